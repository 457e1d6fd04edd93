# SPDX-License-Identifier: Apache-2.0
"""Check that a user's function of a block returns one value for each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from curator_df.core.backend import backend_of
from curator_df.errors import OperatorError


def require_row_values(what: str, kind: str, result: Any, block: Any, is_kind: Callable[[Any], bool]) -> None:
    """Raise `OperatorError` unless a function returned a Series of a kind of values, with the index of the block.

    Parameters
    ----------
    what : str
        Names the function in the message.
    kind : str
        One such value, such as ``"boolean"``.
    result : Any
        What it returned.
    block : pandas.DataFrame or cudf.DataFrame
        What it was given.
    is_kind : callable
        Tells of a dtype whether its values are of the kind.
    """
    wanted = f"one {kind} for each of the {len(block)} rows of the block, as a Series with its index"
    # A column of cuDF is known by its type's place: nothing here imports it.
    if not isinstance(result, pd.Series) and not _is_of_cudf(result, block):
        raise OperatorError(
            f"{what} must return {wanted}; it returned a {type(result).__name__}. It is called with a block of rows (a "
            "DataFrame), not with one row: lambda block: block['text'].str.len() > 100"
        )
    if not is_kind(result.dtype):
        raise OperatorError(f"{what} must return {wanted}; it returned values of {result.dtype}")
    if len(result) != len(block) or not result.index.equals(block.index):
        raise OperatorError(f"{what} must return {wanted}; it returned {len(result):,} values with another index")


def _is_of_cudf(result: Any, block: Any) -> bool:
    return (
        backend_of(block) == "cudf"
        and type(result).__module__.startswith("cudf.")
        and type(result).__name__ == "Series"
    )

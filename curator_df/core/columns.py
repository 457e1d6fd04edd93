# SPDX-License-Identifier: Apache-2.0
"""Checks of column names and types at the door of an operator, with errors that list what there is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

import pandas as pd
import pyarrow as pa

from curator_df.errors import ColumnError, ParameterError, SchemaError


def require_columns(df: Any, operator: str, *names: str) -> None:
    """Raise `ColumnError` unless every name is a column of ``df``.

    Examples
    --------
    >>> import pandas as pd
    >>> require_columns(pd.DataFrame({"id": [1]}), "keep_profile", "text")
    Traceback (most recent call last):
    ...
    curator_df.errors.ColumnError: keep_profile needs the column 'text'; the table has: 'id'
    """
    missing = [name for name in names if name not in df.columns]
    if missing:
        wanted = "columns" if len(missing) > 1 else "column"
        raise ColumnError(f"{operator} needs the {wanted} {_listed(missing)}; the table has: {_listed(df.columns)}")


def require_text(df: Any, operator: str, name: str) -> None:
    """Raise unless ``name`` is a column of strings."""
    require_columns(df, operator, name)
    dtype = df.dtypes[name]
    if not is_text(dtype):
        raise SchemaError(
            f"{operator} needs text in the column {name!r}, which holds {dtype}; "
            f"name another column with text=, or read it as text with dtype={{{name!r}: 'string'}}"
        )


def refuse_columns(df: Any, operator: str, *names: str) -> None:
    """Raise `ColumnError` if a column to be added is there already: operators never overwrite."""
    clashing = [name for name in names if name in df.columns]
    if clashing:
        raise ColumnError(
            f"{operator} would overwrite {_listed(clashing)}; choose other names, or drop the column first"
        )


def choose(operator: str, parameter: str, value: Any, choices: Any) -> None:
    """Raise `ParameterError` unless ``value`` is one of a Literal's values, and list them."""
    allowed = get_args(choices) or tuple(choices)
    if value not in allowed:
        raise ParameterError(f"{operator}: {parameter}={value!r} is not one of {_listed(allowed)}")


def is_text(dtype: Any) -> bool:
    """Tell whether a dtype holds strings, on pandas or cuDF."""
    if isinstance(dtype, pd.ArrowDtype):
        return bool(pa.types.is_string(dtype.pyarrow_dtype) or pa.types.is_large_string(dtype.pyarrow_dtype))
    return isinstance(dtype, pd.StringDtype) or getattr(dtype, "kind", "") == "O"


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(repr(name) for name in names) or "no columns"

# SPDX-License-Identifier: Apache-2.0
"""Drop rows whose content (or any other columns) stood in the input before, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np

from curator_df.core.barrier import Barrier, Keys
from curator_df.core.blocks import BlockKernel, map_blocks
from curator_df.core.columns import choose, require_columns
from curator_df.core.exchange import Keep
from curator_df.core.stages import DROP_PEAK_FACTOR
from curator_df.errors import BarrierError, ParameterError, SchemaError
from curator_df.kernels.content_hash import Normalize, row_hashes

Survivor = Literal["first", "last", "longest"]
REASON = "exact_duplicate"


@dataclass(frozen=True)
class Best:
    """The row with the largest or smallest value of a column survives (see `best`)."""

    column: str
    """Numbers."""
    which: Literal["max", "min"]
    """Which value wins; of equal values the first in input order; a missing value loses."""


def best(column: str, which: Literal["max", "min"] = "max") -> Best:
    """Say that of duplicates the one with the largest (or smallest) value of a column stays.

    Parameters
    ----------
    column : str
        A column of numbers.
    which : {"max", "min"}
        Which value wins; of equal values the first in input order. A missing value loses to every other.

    Returns
    -------
    Best
        For the ``keep=`` of a ``drop_`` operator.

    Raises
    ------
    ParameterError
        If ``which`` is neither.

    Notes
    -----
    Computes: no.

    Examples
    --------
    >>> best("score")
    Best(column='score', which='max')
    """
    choose("best", "which", which, Literal["max", "min"])
    return Best(column, which)


def drop_exact_duplicates(
    df: Any,
    *,
    text: str | Sequence[str] = "text",
    normalize: Normalize | None = None,
    keep: Survivor | Best = "first",
) -> Any:
    """Keep one of all rows that have the same text, or the same values in several columns.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A chain that begins with `read_jsonl` or `read_parquet`.
    text : str or list of str
        Column, or columns, whose values must all be the same: text, integers, booleans or floats.
    normalize : {"case_and_spaces"}, optional
        Compare texts in lower case, with runs of white space as one space and none at the ends. Nothing is changed.
    keep : {"first", "last", "longest"} or `best`
        Which row stays, whatever the blocks and workers: the first or last in input order, the one with the longest text
        (in characters), or the one with the best value of a column.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with a pending drop: `write_parquet` and `write_jsonl` run it; ``.compute()`` and ``.head()`` cannot.

    Raises
    ------
    ColumnError
        If a column is missing.
    BarrierError
        From ``.compute()`` or ``.head()`` on the result.

    Notes
    -----
    Rows: subset, order kept. Peak extra memory: 2.2 x block. Computes: no. What comes before it runs twice: once to hash
    the rows (MurmurHash3, 128 bits), once to write them. Only hashes and addresses are exchanged, 24 to 32 bytes a row, in
    files below the output. Null is a value like any other: of all rows without text one stays.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["a", "b", "a"]}), npartitions=1)
    >>> drop_exact_duplicates(docs).columns.tolist()
    ['text']
    """
    columns = (text,) if isinstance(text, str) else tuple(text)
    if not columns:
        raise ParameterError("drop_exact_duplicates: text=[] names no column")
    require_columns(df, "drop_exact_duplicates", *columns)
    if normalize is not None:
        choose("drop_exact_duplicates", "normalize", normalize, Normalize)
    ranked_by = _ranked_by(df, keep)
    parameters = {"columns": columns, "normalize": normalize, "ranked_by": ranked_by}
    barrier = Barrier(content_keys, parameters, _policy(keep), REASON)
    kernel = BlockKernel(
        "drop_exact_duplicates", refuse_block, {}, peak_factor=DROP_PEAK_FACTOR, peak_is_measured=True, barrier=barrier
    )
    return map_blocks(df, kernel, meta=df._meta)


def content_keys(block: Any, *, columns: tuple[str, ...], normalize: Normalize | None, ranked_by: str | None) -> Keys:
    """Hash the rows of a block, and take the values that survivors are chosen by (``"#length"``: characters of the text)."""
    hashes = row_hashes(block, columns, normalize=normalize)
    if ranked_by is None:
        return Keys(hashes)
    if ranked_by == "#length":
        lengths = sum(block[name].str.len().fillna(0).to_numpy(dtype=np.int64) for name in columns)
        return Keys(hashes, lengths)
    values = block[ranked_by]
    missing = values.isna().to_numpy(dtype=np.bool_)
    integers = getattr(values.dtype, "kind", "f") in "iub"
    numbers = values.fillna(0).to_numpy(dtype=np.int64 if integers else np.float64)
    return Keys(hashes, numbers, missing)


def refuse_block(block: Any) -> NoReturn:  # noqa: ARG001 - the face of a kernel
    """Refuse to run block by block."""
    raise BarrierError(
        "a pending drop cannot be computed block by block: which rows go is known only when all have been seen. Write the "
        "table with write_parquet or write_jsonl (a checkpoint) and read it back to look at it"
    )


def _policy(keep: Survivor | Best) -> Keep:
    if isinstance(keep, Best):
        return "largest" if keep.which == "max" else "smallest"
    choose("drop_exact_duplicates", "keep", keep, Survivor)
    return "largest" if keep == "longest" else keep


def _ranked_by(df: Any, keep: Survivor | Best) -> str | None:
    if isinstance(keep, Best):
        require_columns(df, "drop_exact_duplicates", keep.column)
        if getattr(df.dtypes[keep.column], "kind", "O") not in "iufb":
            raise SchemaError(
                f"drop_exact_duplicates: keep=best({keep.column!r}) needs numbers, the column holds {df.dtypes[keep.column]}"
            )
        return keep.column
    if keep == "longest":
        return "#length"
    return None

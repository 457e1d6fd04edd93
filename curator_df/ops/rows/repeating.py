# SPDX-License-Identifier: Apache-2.0
"""Repeat each row as often as a column says: `repeat_rows`."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd

from curator_df.core.backend import integer_column
from curator_df.core.columns import refuse_columns, require_columns
from curator_df.core.ranges.blocks import BlockKernel, Outcome, block_bytes, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import SchemaError
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.rows.joined_texts import Integers, one_array
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.rows.segments import LEAST_PART_BYTES, row_bytes, taken_texts, with_columns
from curator_df.kernels.text.buffers import is_arrow_text
from curator_df.ops.host_only import require_host

OPERATOR = "repeat_rows"
REASON = "repeated_0_times"
PEAK_FACTOR = 2.6
"""Peak extra bytes as a multiple of the block's: a part, which is as large, the size of each row, and the numbers."""


def repeat_rows(df: dd.DataFrame, by: str, *, into: str = "repetition") -> dd.DataFrame:
    """Write each row several times, as often as a column says.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    by : str
        Column of integers: the number of times that each row is written. Rows with 0 are dropped.
    into : str, default "repetition"
        Name of the new column.

    Returns
    -------
    dask.dataframe.DataFrame
        The rows, the copies of each one after the other, with one more column ``Int64``: the number of the repetition,
        from 0. Together with an ID of the row it identifies the copy.

    Raises
    ------
    ColumnError
        If the column is missing, or the new column already exists.
    SchemaError
        If the column does not contain integers.
    OperatorError
        When running: if a value is null or negative. With ``on_error="quarantine"``, the writers quarantine such rows.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    drop_exact_duplicates, drop_near_duplicates, drop_semantic_duplicates, blend

    Notes
    -----
    Rows: each as often as ``by`` says, in order. Columns: plus ``repetition``; the others repeat. Backends: pandas. Peak
    extra memory: 2.6 x block; the following steps hold the block as well. Computes: no.

    The output of a block is passed on in parts no larger than the block, so memory does not depend on the numbers. To
    write documents again according to how often they were found, let ``count_into=`` of a ``drop_`` operator count the
    copies of each kept row, derive the number of times from it, and repeat the rows. Shuffle them afterwards, so that
    copies do not follow each other (`shuffle_rows`).

    The copies of a row share its address. Operators that identify rows by address are refused after it, as after
    `split_documents`: `add_ids` with ``identity="address"``, and the steps that wait for all rows, such as
    `drop_exact_duplicates`. ``add_ids(dense=True)`` numbers the copies, and after ``checkpoint(df, path)`` each copy has
    its own address.

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"id": ["a", "b", "c"], "times": [2, 0, 1]}), npartitions=1)
    >>> docs.pipe(repeat_rows, by="times").compute()
      id  times  repetition
    0  a      2           0
    0  a      2           1
    2  c      1           0
    """
    require_columns(df, OPERATOR, by)
    require_host(df._meta, OPERATOR)
    refuse_columns(df, OPERATOR, into)
    if getattr(df.dtypes[by], "kind", "O") not in "iu":
        raise SchemaError(
            f"{OPERATOR}: by={by!r} needs integers, but the column holds {df.dtypes[by]}. Convert it with "
            f"df.assign({by}=df.{by}.astype('Int64'))"
        )
    chosen = BlockKernel(OPERATOR, choose_rows_block, {"by": by}, price=Price(PEAK_FACTOR, is_measured=True))
    kernel = BlockKernel(
        OPERATOR,
        repeat_rows_block,
        {"by": by, "into": into},
        price=Price(PEAK_FACTOR, is_measured=True),
        compiled=kernel_sets.SPLITTING,
        makes_rows=True,
    )
    meta = df._meta.assign(**{into: integer_column(df._meta, np.zeros(0, np.int64))})
    return map_blocks(map_blocks(df, chosen, meta=df._meta), kernel, meta=meta)


def choose_rows_block(block: Any, *, by: str) -> Outcome:
    """Kernel of `repeat_rows` that drops rows to write 0 times, and names those whose number is unusable."""
    require_host(block, OPERATOR)
    counts, missing = block[by], block[by].isna().to_numpy(dtype=np.bool_)
    numbers = counts.fillna(0).to_numpy(dtype=np.int64)
    failed = {
        place: f"found {'null' if missing[place] else numbers[place]} in the column {by!r}, where a number must be 0 or more"
        for place in np.flatnonzero(missing | (numbers < 0)).tolist()
    }
    zero = (numbers == 0) & ~missing
    if not zero.any() and not failed:
        return Outcome(block)
    gone = int(zero.sum())
    return Outcome(
        keep_rows(block, numbers > 0),
        {REASON: gone} if gone else {},
        rejects=lambda: (keep_rows(block, zero), {"reason": [REASON] * gone}),
        failed=failed,
    )


def repeat_rows_block(block: Any, *, by: str, into: str) -> Outcome:
    """Kernel of `repeat_rows` that repeats rows; each at least once."""
    require_host(block, OPERATOR)
    if not len(block):
        return Outcome(block.assign(**{into: integer_column(block, np.zeros(0, np.int64))}))
    parts = repeat_block(block, block[by].to_numpy(dtype=np.int64), into=into)
    return Outcome(next(parts), rest=map(Outcome, parts))


def repeat_block(block: pd.DataFrame, counts: Integers, *, into: str) -> Iterator[pd.DataFrame]:
    """Yield each row of a block as often as its count says, in parts.

    Parameters
    ----------
    block : pandas.DataFrame
        The block.
    counts : ndarray of int64, shape (rows,)
        Number of times for each row, at least 1.
    into : str
        Name of the new column: the number of the repetition, from 0.

    Yields
    ------
    pandas.DataFrame
        The next rows, about as many bytes as the block has, and at least one row. The index repeats.

    Examples
    --------
    >>> [part] = repeat_block(pd.DataFrame({"id": [5, 6]}), np.array([2, 1]), into="n")
    >>> part.to_dict("list")
    {'id': [5, 5, 6], 'n': [0, 1, 0]}
    """
    held = {name: one_array(block[name]) for name in block.columns if is_arrow_text(block[name].dtype)}
    rest = block.drop(columns=list(held))
    most_bytes = max(block_bytes(block), LEAST_PART_BYTES)
    sizes = row_bytes(rest, held)
    ends, byte_ends = np.cumsum(counts), np.cumsum(counts.astype(np.float64) * sizes)
    start = 0
    # No part is bound to a name here, because it would be held until the next one exists.
    while start < ends[-1]:
        stop = _stop(start, ends, byte_ends, sizes, most_bytes)
        places = np.arange(start, stop)
        rows = np.searchsorted(ends, places, side="right")
        places -= (ends - counts)[rows]
        columns = {name: functools.partial(taken_texts, column, rows) for name, column in held.items()}
        yield with_columns(rest.take(rows), block, columns).assign(**{into: integer_column(block, places)})
        start = stop


def _stop(start: int, ends: Integers, byte_ends: Any, sizes: Integers, most_bytes: int) -> int:
    """Return the end of the part that begins at a place among all repeated rows; it has at least one row."""
    row = int(np.searchsorted(ends, start, side="right"))
    last_byte = byte_ends[row] - float(ends[row] - start) * sizes[row] + most_bytes
    row = int(np.searchsorted(byte_ends, last_byte, side="right"))
    if row == len(ends):
        return int(ends[-1])
    return max(int(ends[row]) - int(np.ceil((byte_ends[row] - last_byte) / sizes[row])), start + 1)

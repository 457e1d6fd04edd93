# SPDX-License-Identifier: Apache-2.0
"""Repeat each row as often as a column says, or as the class in a column says: `repeat_rows`."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.arguments import require_integer, require_mapping, require_number
from curator_df.core.backend import integer_column
from curator_df.core.columns import is_text, refuse_columns, require_columns
from curator_df.core.planning.lowering import require_addresses
from curator_df.core.ranges.blocks import BlockKernel, Outcome, block_bytes, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError, SchemaError
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.rows.joined_texts import Integers, one_array
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.rows.row_sample import random_numbers
from curator_df.kernels.rows.segments import LEAST_PART_BYTES, row_bytes, taken_texts, with_columns
from curator_df.kernels.text.buffers import is_arrow_text, text_chunks
from curator_df.ops.host_only import require_host

OPERATOR = "repeat_rows"
MOST_TIMES = 1_000_000
"""Maximum number of times of a class."""
REASON = "repeated_0_times"
PEAK_FACTOR = 2.6
"""Peak extra bytes as a multiple of the block's: a part, which is as large, the size of each row, and the numbers."""


@dataclass(frozen=True)
class Times:
    """Number of times of each class, for rows with the class in a column."""

    classes: tuple[str, ...]
    """Values of the column."""
    numbers: tuple[float, ...]
    """Number of times of each value; the last is that of other values and null, NaN if they have none."""
    seed: int
    """Seed of the choice of rows that are written once more, where a number is not whole."""

    @property
    def is_drawn(self) -> bool:
        """Return whether a number is not whole, so that rows are chosen at random."""
        return any(number % 1 > 0 for number in self.numbers)


def repeat_rows(
    df: dd.DataFrame,
    by: str,
    *,
    times: Mapping[str | None, float] | None = None,
    seed: int = 0,
    into: str = "repetition",
) -> dd.DataFrame:
    """Write each row several times, as often as a column says.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    by : str
        Column of integers: the number of times that each row is written. Rows with 0 are dropped. With ``times``, a column of
        text.
    times : mapping of str to float, optional
        Number of times for each value of ``by``, such as ``{"high": 3, "medium": 1, "low": 0.2}`` for the tiers of
        `add_quality_tier`; under the key None for null and all other values. Of rows with 2.3, each is written twice, and
        three in ten of them once more.
    seed : int, default 0
        Another seed selects other rows to write once more, where a number is not whole.
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
        If the column does not contain integers; with ``times``, if it does not contain text.
    ParameterError
        If ``times`` is empty or has a number that is negative or not finite, or ``seed`` is given without ``times``.
    ExpressionError
        If rows share an address and a number of ``times`` is not whole.
    OperatorError
        When running: if a value is null or negative, or has no number in ``times``. With ``on_error="quarantine"``, the
        writers quarantine such rows.
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

    Which rows are written once more depends on their addresses and the seed alone, so a larger number repeats the same rows and
    others.

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
    >>> tiers = dd.from_pandas(pd.DataFrame({"tier": ["high", "low", "high"]}), npartitions=1)
    >>> tiers.pipe(repeat_rows, by="tier", times={"high": 2, "low": 0}).compute()["repetition"].tolist()
    [0, 1, 0, 1]
    """
    require_columns(df, OPERATOR, by)
    require_host(df._meta, OPERATOR)
    refuse_columns(df, OPERATOR, into)
    found = _times_of(df, by, times, seed)
    if found is None and getattr(df.dtypes[by], "kind", "O") not in "iu":
        raise SchemaError(
            f"{OPERATOR}: by={by!r} needs integers, but the column holds {df.dtypes[by]}. Convert it with "
            f"df.assign({by}=df.{by}.astype('Int64'))"
        )
    parameters = {"by": by, "times": found}
    is_drawn = found is not None and found.is_drawn
    price = Price(PEAK_FACTOR, is_measured=True)
    chosen = BlockKernel(OPERATOR, choose_rows_block, parameters, price=price, uses_addresses=is_drawn)
    kernel = BlockKernel(
        OPERATOR,
        repeat_rows_block,
        {**parameters, "into": into},
        price=price,
        compiled=kernel_sets.SPLITTING,
        uses_addresses=is_drawn,
        makes_rows=True,
    )
    meta = df._meta.assign(**{into: integer_column(df._meta, np.zeros(0, np.int64))})
    return map_blocks(map_blocks(df, chosen, meta=df._meta), kernel, meta=meta)


def _times_of(df: Any, by: str, times: Mapping[str | None, float] | None, seed: int) -> Times | None:
    """Return the checked numbers of each class; None if the column itself has the numbers."""
    require_integer(OPERATOR, "seed", seed)
    if not -(1 << 63) <= seed < 1 << 63:
        raise ParameterError(f"{OPERATOR}: seed={seed} is not a 64-bit integer. Use a whole number such as 0")
    if times is None:
        if seed:
            raise ParameterError(
                f"{OPERATOR}: seed={seed} has an effect only with times=, where it decides which rows are written once more "
                "if a number is not whole, such as 1.5. Leave it out"
            )
        return None
    require_mapping(OPERATOR, "times", times)
    if not times:
        raise ParameterError(f"{OPERATOR}: times= is empty. Give a number for each value of {by!r}, as {{'high': 2}}")
    if not is_text(df.dtypes[by]):
        raise SchemaError(
            f"{OPERATOR}: times= needs text in the column {by!r}, but it holds {df.dtypes[by]}. Name a column of text, or leave "
            "out times= if the column has the numbers"
        )
    for name, number in times.items():
        if not isinstance(name, str) and name is not None:
            raise ParameterError(f"{OPERATOR}: times= has the key {name!r}, which is neither text nor None")
        require_number(OPERATOR, f"times[{name!r}]", number)
        if not 0 <= number <= MOST_TIMES:
            raise ParameterError(f"{OPERATOR}: times[{name!r}]={number} must be a number from 0 to {MOST_TIMES:,}")
    classes = tuple(sorted(name for name in times if name is not None))
    found = Times(classes, (*(float(times[name]) for name in classes), float(times.get(None, math.nan))), seed)
    if found.is_drawn:
        require_addresses(df, OPERATOR)
    return found


def _numbers(block: Any, by: str, times: Times | None) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return how often each row is written, and the rows without a number."""
    if times is None:
        missing = block[by].isna().to_numpy(dtype=np.bool_)
        return block[by].fillna(0).to_numpy(dtype=np.int64), missing
    chunks = text_chunks(block[by])
    places = pc.index_in(chunks, value_set=pa.array(times.classes, chunks.type)).fill_null(len(times.classes))
    numbers = np.array(times.numbers)[np.asarray(places)]
    missing = np.isnan(numbers)
    numbers[missing] = 0
    counts: Integers = numbers.astype(np.int64)
    if times.is_drawn:
        identities = block.index.to_numpy().astype(np.int64).view(np.uint64)
        counts += random_numbers(identities, times.seed, OPERATOR) < numbers - counts
    return counts, missing


def choose_rows_block(block: Any, *, by: str, times: Times | None) -> Outcome:
    """Kernel of `repeat_rows` that drops rows to write 0 times, and names those whose number is unusable."""
    require_host(block, OPERATOR)
    numbers, missing = _numbers(block, by, times)
    failed = {
        place: _why_not(block[by].iloc[place], by, times) for place in np.flatnonzero(missing | (numbers < 0)).tolist()
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


def _why_not(value: Any, by: str, times: Times | None) -> str:
    found = "null" if pd.isna(value) else value if times is None else repr(value)
    if times is None:
        return f"found {found} in the column {by!r}, where a number must be 0 or more"
    return (
        f"found {found} in the column {by!r}, which has no number in times=. Add it, or one for other values under None"
    )


def repeat_rows_block(block: Any, *, by: str, times: Times | None, into: str) -> Outcome:
    """Kernel of `repeat_rows` that repeats rows; each at least once."""
    require_host(block, OPERATOR)
    if not len(block):
        return Outcome(block.assign(**{into: integer_column(block, np.zeros(0, np.int64))}))
    parts = repeat_block(block, _numbers(block, by, times)[0], into=into)
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

# SPDX-License-Identifier: Apache-2.0
"""Split texts into rows, one for each segment, in parts up to the size of the block; the other columns repeat.

However many segments a text has, and however wide the other columns are, only one part is held in memory.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.core.backend import integer_column
from curator_df.core.ranges.blocks import block_bytes
from curator_df.kernels.rows.joined_texts import Integers, TextArray, one_array
from curator_df.kernels.rows.segment_copy import copy_pieces, find_segments
from curator_df.kernels.text.buffers import is_arrow_text, large_strings, text_series

SEGMENT_BYTES = 25
"""Bytes of a row in addition to its values: end of its text, number, row ID."""
LEAST_PART_BYTES = 64_000
"""Minimum size of the parts of a small block, in bytes."""


def split_block(block: pd.DataFrame, *, text: str, separator: str, segment_id: str) -> Iterator[pd.DataFrame]:
    """Yield a block with a row for each segment of its texts, in parts.

    Parameters
    ----------
    block : pandas.DataFrame
        The block.
    text : str
        Text column. A null has one segment, which is null.
    separator : str
        Separator between two segments.
    segment_id : str
        Name of the new column: the number of the segment in its text, from 0.

    Yields
    ------
    pandas.DataFrame
        The next rows, about as many bytes as the block has, and at least one row. The index repeats.
    """
    texts, others = one_array(block[text]), block.drop(columns=text)
    held = {name: one_array(others[name]) for name in others.columns if is_arrow_text(others[name].dtype)}
    rest = others.drop(columns=list(held))
    other_bytes = row_bytes(rest, held)
    most_bytes = max(block_bytes(block), LEAST_PART_BYTES)
    most = min(most_bytes // SEGMENT_BYTES, len(texts.data) + len(block)) + 1
    rows, starts, stops, numbers = np.empty((4, most), dtype=np.int64)
    place = np.array([0, -1, 0], dtype=np.int64)
    mark = np.frombuffer(separator.encode(), dtype=np.uint8)
    # No part is bound to a name here, because it would be held until the next one exists.
    while place[0] < len(block):
        count = find_segments(
            texts.data, texts.offsets, mark, other_bytes, most_bytes, place, rows, starts, stops, numbers
        )
        part = _Part(rows[:count], starts[:count], stops[:count], numbers[:count].copy())
        columns: dict[str, Callable[..., pa.Array]] = {
            name: functools.partial(taken_texts, column, part.rows) for name, column in held.items()
        }
        columns[text] = functools.partial(_pieces, texts, *part[:3])
        yield with_columns(rest.take(part.rows), block, columns).assign(
            **{segment_id: integer_column(block, part.numbers)}
        )


class _Part(NamedTuple):
    """Range of segments."""

    rows: Integers
    """Position of the row in the block, shape (segments,)."""
    starts: Integers
    stops: Integers
    """Bytes of the text column at which each segment begins and ends."""
    numbers: Integers
    """Number of each segment in its text."""


def with_columns(
    part: pd.DataFrame, like: pd.DataFrame, columns: Mapping[str, Callable[..., pa.Array]]
) -> pd.DataFrame:
    """Return rows with columns of text added, in the order of another block."""
    made = {name: text_series([make()], like[name], part.index) for name, make in columns.items()}
    return part.assign(**made)[list(like.columns)]


def _pieces(texts: TextArray, rows: Integers, starts: Integers, stops: Integers) -> pa.Array:
    """Return pieces of texts; null if the row is null."""
    copied = np.empty(int((stops - starts).sum()), dtype=np.uint8)
    offsets = np.zeros(len(starts) + 1, dtype=np.int64)
    copy_pieces(texts.data, starts, stops, copied, offsets)
    return large_strings(copied, offsets, None if texts.valid is None else texts.valid[rows])


def taken_texts(texts: TextArray, rows: Integers) -> pa.Array:
    """Return whole texts by row, with repeats, without the growing buffers of pandas and Arrow."""
    return _pieces(texts, rows, texts.offsets[rows], texts.offsets[rows + 1])


def row_bytes(rest: pd.DataFrame, held: dict[str, TextArray]) -> Integers:
    """Return the approximate bytes of each row without its text."""
    sizes = np.full(len(rest), SEGMENT_BYTES, dtype=np.int64)
    for texts in held.values():
        sizes += np.diff(texts.offsets) + 8
    for name in rest.columns:
        sizes += _value_bytes(rest[name])
    sizes.flags.writeable = False
    return sizes


def _value_bytes(column: pd.Series) -> Any:
    """Return the approximate bytes of each value, or of any value."""
    dtype: Any = column.dtype
    kind = dtype.pyarrow_dtype if isinstance(dtype, pd.ArrowDtype) else pa.null()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pc.fill_null(pc.binary_length(column.array.__arrow_array__()), 0).to_numpy().astype(np.int64) + 8
    if pa.types.is_nested(kind):
        chunks = pa.chunked_array(column.array.__arrow_array__()).chunks
        return np.array([chunk.slice(row, 1).nbytes for chunk in chunks for row in range(len(chunk))], dtype=np.int64)
    if pd.api.types.is_object_dtype(dtype):
        return np.array([8 + sys.getsizeof(value) for value in column], dtype=np.int64)
    return int(getattr(dtype, "itemsize", 8)) + 1

# SPDX-License-Identifier: Apache-2.0
"""Repeat the rows of a block, each as often as a count says, in parts up to the size of the block.

However often a row is repeated, only one part is held in memory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from curator_df.core.backend import integer_column
from curator_df.core.ranges.blocks import block_bytes
from curator_df.kernels.rows.joined_texts import Integers, one_array
from curator_df.kernels.rows.segments import LEAST_PART_BYTES, row_bytes, taken_texts, with_columns
from curator_df.kernels.text.buffers import is_arrow_text


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

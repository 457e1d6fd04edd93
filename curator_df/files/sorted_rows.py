# SPDX-License-Identifier: Apache-2.0
"""Sorted rows that accompany the blocks of a range: those up to an address, block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from curator_df.errors import CorruptFileError
from curator_df.files.row_order import Rows


class RowsUpTo:
    """Iterator over sorted rows in pieces, up to the row whose first word exceeds an address.

    Parameters
    ----------
    pieces : iterator of ndarray of uint64, shape (rows, words)
        Rows in order, as `row_sort.merge_slices` yields them.
    words : int
        Number of words of a row.
    """

    def __init__(self, pieces: Iterator[Rows], words: int) -> None:
        self._pieces = pieces
        self._waiting: Rows = np.empty((0, words), dtype=np.uint64)

    def take(self, last: int) -> Iterator[Rows]:
        """Yield the rows up to an address, except those that were already taken."""
        while True:
            stop = int(np.searchsorted(self._waiting[:, 0], np.uint64(last), side="right"))
            piece, self._waiting = self._waiting[:stop], self._waiting[stop:]
            if stop:
                yield piece
            if len(self._waiting):
                return
            following = next(self._pieces, None)
            if following is None:
                return
            self._waiting = following.copy()

    def rest(self) -> int:
        """Read the remaining rows; return their number."""
        left = len(self._waiting) + sum(len(piece) for piece in self._pieces)
        self._waiting = self._waiting[:0]
        return left


def with_values(pieces: Iterator[Rows], table: RowsUpTo, missing: str) -> Iterator[tuple[Rows, Rows]]:
    """Yield sorted rows with the row of a sorted table that has the same first word.

    Parameters
    ----------
    pieces : iterator of ndarray of uint64, shape (rows, words)
        Rows in order; a first word may be repeated.
    table : RowsUpTo
        Rows with distinct first words, among them all those of ``pieces``.
    missing : str
        Message of the error if the table lacks a row.

    Raises
    ------
    CorruptFileError
        If the table lacks a row.
    """
    held: Rows | None = None
    for rows in pieces:
        if not len(rows):
            continue
        parts = [*([] if held is None else [held]), *table.take(int(rows[-1, 0]))]
        if not parts:
            raise CorruptFileError(missing)
        known = np.concatenate(parts)
        at = np.minimum(np.searchsorted(known[:, 0], rows[:, 0]), len(known) - 1)
        if (known[at, 0] != rows[:, 0]).any():
            raise CorruptFileError(missing)
        held = known[-1:].copy()
        yield rows, known[at]

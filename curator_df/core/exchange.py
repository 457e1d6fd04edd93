# SPDX-License-Identifier: Apache-2.0
"""All-to-all of key rows: find, for every row of the input, the row with the same key that stays.

A key row is a 128-bit hash and the row's address, with a rank before the address where survivors are chosen by a value;
text never moves. Three kinds of task, each a pure function of files, so that any of them can be run again:

1. map, one for each range: a `KeyWriter` sorts the range's key rows into one file with a slice for each reducer;
2. reduce, one for each reducer: `reduce_keys` merges its slices of all those files. Rows are ordered by key, rank and
   address, so the first of a group is its survivor and all others go, whatever the size of the group. What goes is
   written as (address, survivor), with a slice for each range;
3. where reducers and ranges are many, `drops.collect_drops`: many ranges' slices of all reducers into one file.

The second pass over the text then reads the drops of its range with a `drops.DropReader`. See `exchange_plan` for sizes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curator_df.core.row_order import Rows
from curator_df.core.row_sort import PIECE_ROWS, RowSorter, merge_slices
from curator_df.core.slice_file import Bounds, open_slices
from curator_df.core.source import OFFSET_BITS, Ranges
from curator_df.core.storage import FileRecord, Folder
from curator_df.errors import ParameterError

Keep = Literal["first", "last", "largest", "smallest"]
"""Which row of a group stays: the first or last in input order, or the one with the largest or smallest value; of equal
values the first in input order. A missing value (null, NaN) loses to every other."""

DROP_WORDS = 2
"""Address of the row that goes, address of the one that stays."""
_SIGN = np.uint64(1 << 63)
_WORST = np.uint64((1 << 64) - 1)


@dataclass(frozen=True)
class Exchange:
    """What all tasks of one exchange share. Picklable and small; memory and workers are not in it."""

    folder: Folder
    """Where its files go, seen by all workers."""
    keep: Keep
    """Which row of a group stays."""
    reducers: int
    """Hash ranges (`exchange_plan.choose_reducers`). Part of what a resume compares: the files are cut by it."""
    range_starts: npt.NDArray[np.int64]
    """Shape (ranges,): least address of each range (`range_starts`)."""
    ranges_per_drop_file: int = 1
    """Ranges whose drops share a slice of a reducer's file; more than 1 asks for `collect_drops`."""
    of_parts: bool = False
    """Whether keys are of parts of rows: then a drop is (address, number of the part), not (address, survivor)."""

    @property
    def words(self) -> int:
        """64-bit words of a key row."""
        return key_words(self.keep, of_parts=self.of_parts)

    @property
    def drop_files(self) -> int:
        """How many `collect_drops` tasks there are, when there are any."""
        return -(-len(self.range_starts) // self.ranges_per_drop_file)


@dataclass(frozen=True)
class Reduced:
    """What one reduce task did: what the journal keeps of it."""

    number: int
    """Of the reducer."""
    file: FileRecord
    """Its drops; its ``rows`` are the rows to drop."""
    rows: int
    """Key rows merged."""
    groups: int
    """Distinct keys, which is the rows that stay."""
    read_bytes: int
    """Read from the map tasks' files."""
    spilled_bytes: int
    """Drops that went through the scratch directory to be sorted."""
    seconds: float
    """Wall time."""


def key_words(keep: Keep, *, of_parts: bool = False) -> int:
    """Return the 64-bit words of a key row: hash (two), address and, for a policy by value a rank, for parts a number."""
    return 4 if of_parts or keep in ("largest", "smallest") else 3


def range_starts(ranges: Ranges) -> npt.NDArray[np.int64]:
    """Return the least address that a row of each range can have."""
    return (ranges.table[:, 0] << OFFSET_BITS) | ranges.table[:, 1]


def hash_bounds(reducers: int) -> Bounds:
    """Return the least high word of each reducer's keys: ``reducer == (high * reducers) >> 64``, exactly.

    Examples
    --------
    >>> [hex(bound) for bound in hash_bounds(3)]
    ['0x0', '0x5555555555555556', '0xaaaaaaaaaaaaaaab']
    """
    return np.array([-(-(number << 64) // reducers) for number in range(reducers)], dtype=np.uint64)


def ranks(values: npt.NDArray[Any], keep: Keep, missing: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.uint64]:
    """Return numbers whose ascending order is the order of preference; missing values come last.

    Parameters
    ----------
    values : ndarray of int64 or float64, shape (rows,)
        NaN counts as missing, -0.0 as 0.0.
    keep : {"largest", "smallest"}
        What is preferred.
    missing : ndarray of bool, shape (rows,), optional
        Where the value is null.

    Examples
    --------
    >>> np.argsort(ranks(np.array([1.5, np.nan, -2.0, 3.0]), "largest")).tolist()
    [3, 0, 2, 1]
    """
    if np.issubdtype(values.dtype, np.floating):
        numbers = values.astype(np.float64) + 0.0
        bits = numbers.view(np.uint64)
        rising = np.where(bits & _SIGN, ~bits, bits | _SIGN)
        absent = np.isnan(numbers)
    else:
        rising = values.astype(np.int64).view(np.uint64) ^ _SIGN
        absent = np.zeros(len(values), dtype=np.bool_)
    preferred = ~rising if keep == "largest" else rising
    return np.where(absent if missing is None else absent | missing, _WORST, preferred)


class KeyWriter:
    """Takes the key rows of one range, in any order, and commits them as one file sorted by hash.

    Parameters
    ----------
    exchange : Exchange
        The exchange.
    number : int
        Of the range.
    memory_bytes : int
        To hold at most; beyond it sorted runs go to the scratch directory.
    scratch : str, optional
        Local directory; by default the system's for temporary files.
    """

    def __init__(self, exchange: Exchange, number: int, *, memory_bytes: int, scratch: str | None = None) -> None:
        self._keep: Keep = exchange.keep
        self._words, self._of_parts = exchange.words, exchange.of_parts
        bounds = hash_bounds(exchange.reducers)
        self._sorter = RowSorter(
            exchange.folder,
            f"keys/part-{number:06d}.slices",
            words=exchange.words,
            bounds=bounds,
            memory_bytes=memory_bytes,
            scratch=scratch,
        )

    @property
    def spilled_bytes(self) -> int:
        """Bytes that went through the scratch directory."""
        return self._sorter.spilled_bytes

    def append(
        self,
        keys: npt.NDArray[np.uint64],
        addresses: npt.NDArray[np.int64],
        values: npt.NDArray[Any] | None = None,
        missing: npt.NDArray[np.bool_] | None = None,
        parts: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Take the keys of a block.

        Parameters
        ----------
        keys : ndarray of uint64, shape (rows, 2)
            High and low half of each hash.
        addresses : ndarray of int64, shape (rows,)
            The block's index.
        values : ndarray of int64 or float64, shape (rows,), optional
            What ``keep="largest"`` and ``"smallest"`` compare.
        missing : ndarray of bool, shape (rows,), optional
            Where the value is null.
        parts : ndarray of int64, shape (rows,), optional
            Of keys of parts: the number of each part in its row.
        """
        for start in range(0, len(addresses), PIECE_ROWS):
            part = slice(start, start + PIECE_ROWS)
            rows = np.empty((len(addresses[part]), self._words), dtype=np.uint64)
            rows[:, :2] = keys[part]
            rows[:, -1] = _swap_if_last(addresses[part], self._keep)
            if self._of_parts:
                if parts is None:
                    raise ParameterError("keys of parts need the number of each part")
                rows[:, 2] = rows[:, 3]
                rows[:, 3] = _swap_if_last(parts[part], self._keep)
            elif self._words == 4:
                if values is None:
                    raise ParameterError(f"keep={self._keep!r} compares values, and none were given")
                rows[:, 2] = ranks(values[part], self._keep, None if missing is None else missing[part])
            self._sorter.append(rows)

    def commit(self) -> FileRecord:
        """Make the file durable and visible; its record is all that a reducer needs."""
        return self._sorter.commit()

    def discard(self) -> None:
        """Drop what was not committed."""
        self._sorter.discard()


def reduce_keys(
    exchange: Exchange, number: int, files: Sequence[FileRecord], *, memory_bytes: int, scratch: str | None = None
) -> Reduced:
    """Merge one reducer's slices of all map files, and write what is to be dropped.

    Parameters
    ----------
    exchange : Exchange
        The exchange.
    number : int
        Of the reducer.
    files : sequence of FileRecord
        What every `KeyWriter` committed.
    memory_bytes : int
        To hold at most: one half merges, the other sorts the drops by address.
    scratch : str, optional
        Local directory for what does not fit; by default the system's for temporary files.

    Raises
    ------
    CorruptFileError
        If a page does not match its checksum; names file and offset. Nothing is committed.
    """
    started = time.perf_counter()
    slices = open_slices(exchange.folder, files, number)
    sorter = RowSorter(
        exchange.folder,
        f"drops/reduced-{number:06d}.slices",
        words=DROP_WORDS,
        bounds=drop_bounds(exchange.range_starts[:: exchange.ranges_per_drop_file]),
        memory_bytes=memory_bytes // 2,
        scratch=scratch,
    )
    rows = groups = 0
    try:
        survivor = _NO_SURVIVOR
        for merged in merge_slices(slices, memory_bytes=memory_bytes // 2, scratch=scratch):
            for start in range(0, len(merged), PIECE_ROWS):
                piece = merged[start : start + PIECE_ROWS]
                drops, new_groups, survivor = drops_of(piece, survivor, exchange.keep, of_parts=exchange.of_parts)
                sorter.append(drops)
                rows += len(piece)
                groups += new_groups
        file = sorter.commit()
    finally:
        sorter.discard()
    read_bytes = sum(piece.size_bytes for piece in slices)
    return Reduced(number, file, rows, groups, read_bytes, sorter.spilled_bytes, time.perf_counter() - started)


Survivor = tuple[int, int, int]
"""Key (two halves) and address, as stored, of the row that stays of the group that was begun last."""
_NO_SURVIVOR: Survivor = (-1, -1, -1)


def drops_of(rows: Rows, before: Survivor, keep: Keep, *, of_parts: bool = False) -> tuple[Rows, int, Survivor]:
    """Return (address, survivor) of the rows that go, the groups that begin here, and the last group's survivor.

    Parameters
    ----------
    rows : ndarray of uint64, shape (rows, 3 or 4)
        Sorted key rows that follow those of the last call.
    before : tuple
        What the last call returned.
    keep : {"first", "last", "largest", "smallest"}
        The policy, which the order of the rows follows already.
    of_parts : bool
        Whether to return (address, number of the part) instead.
    """
    begins = np.empty(len(rows), dtype=np.bool_)
    begins[0] = (int(rows[0, 0]), int(rows[0, 1])) != before[:2]
    begins[1:] = (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] != rows[:-1, 1])
    firsts, going = np.flatnonzero(begins), np.flatnonzero(~begins)
    # One more in front: the group that began before these rows.
    survivors = np.empty(len(firsts) + 1, dtype=np.uint64)
    survivors[0] = max(before[2], 0)
    survivors[1:] = rows[firsts, -1]
    drops = np.empty((len(going), DROP_WORDS), dtype=np.uint64)
    if of_parts:
        drops[:] = _swap_if_last(rows[going, 2:], keep)
    else:
        drops[:, 0] = _swap_if_last(rows[going, -1], keep)
        drops[:, 1] = _swap_if_last(survivors[np.searchsorted(firsts, going)], keep)
    high, low = rows[-1, :2].tolist()
    return drops, len(firsts), (high, low, int(survivors[-1]))


def skew(reduced: Sequence[Reduced]) -> float:
    """Return the rows of the largest reducer as a multiple of the mean; 1.0 when there are none."""
    rows = [one.rows for one in reduced]
    return max(rows) * len(rows) / sum(rows) if sum(rows) else 1.0


def drop_bounds(starts: npt.NDArray[np.int64]) -> Bounds:
    """Return the least address of each slice of drops; the first takes all before it too."""
    bounds = starts.astype(np.uint64)
    bounds[:1] = 0
    return bounds


def _swap_if_last(addresses: npt.NDArray[Any], keep: Keep) -> Rows:
    """Turn addresses into what is stored and back: for ``last`` the complement, so that the last comes first."""
    words: Rows = addresses.view(np.uint64)
    return ~words if keep == "last" else words

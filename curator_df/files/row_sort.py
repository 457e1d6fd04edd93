# SPDX-License-Identifier: Apache-2.0
"""Sort more rows than fit in memory into one slice file, and merge slices, within a fixed number of bytes.

A merge keeps one chunk of every slice in memory. All rows up to the smallest of the chunks' last rows are complete: they are
joined, sorted and passed on. So the memory depends on the number of slices and never on the distribution of the keys, and
slices whose key ranges do not overlap, or a single key that fills all of them, need no comparison. If chunks would be smaller
than a page, groups of slices are first merged into the scratch directory.
"""

from __future__ import annotations

import heapq
import os
import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from curator_df.files.row_order import SORT_BYTES_PER_ROW, Rows, rows_up_to, sorted_order, take_rows
from curator_df.files.scratch import scratch_directory
from curator_df.files.slice_file import Bounds, Slice, SliceWriter, read_rows, rows_in_page
from curator_df.files.storage import FileRecord, Folder, disk_errors

PIECE_ROWS = 8192
"""Number of rows that are passed on together."""


def merge_row_bytes(words: int) -> int:
    """Return the bytes that a merge uses per row: in its chunk, in the joined rows, and while these are sorted."""
    return 2 * 8 * words + SORT_BYTES_PER_ROW


def merge_slices(slices: Sequence[Slice], *, memory_bytes: int, scratch: str | None = None) -> Iterator[Rows]:
    """Merge sorted slices.

    Parameters
    ----------
    slices : sequence of Slice
        Any number of slices, with rows of the same number of words.
    memory_bytes : int
        Maximum working memory. Two pages (0.3 MB) are always in memory.
    scratch : str, optional
        Local directory for intermediate merges. Default: `scratch_directory`.

    Yields
    ------
    ndarray of uint64, shape (rows, words)
        Rows of all slices in order. The caller must read each array before it requests the next.
    """
    waiting = [piece for piece in slices if piece.rows]
    with ScratchRuns(scratch) as runs:
        while len(waiting) > 2 and sum(map(_least_bytes, waiting)) > memory_bytes:
            groups = _groups(waiting, memory_bytes)
            waiting = [
                runs.write(_merge(group, memory_bytes), group[0].words) if len(group) > 1 else group[0]
                for group in groups
            ]
        yield from _merge(waiting, memory_bytes)


class ScratchRuns:
    """Sorted runs in an anonymous file: a process that dies leaves nothing behind."""

    def __init__(self, directory: str | None = None) -> None:
        self.directory = directory
        """Directory of the file; None for `scratch_directory`."""
        self._file: Any = None
        self.size_bytes = 0
        """Number of bytes written so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, sorted_rows: Iterator[Rows], words: int) -> Slice:
        """Write a run and return it as a slice for merging."""
        if self.directory is None:
            self.directory = scratch_directory()
        with disk_errors(Folder(self.directory)):
            if self._file is None:
                os.makedirs(self.directory, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=self.directory)  # noqa: SIM115
            start = self.size_bytes
            writer = SliceWriter(self._file, words, np.zeros(1, dtype=np.uint64))
            for rows in sorted_rows:
                writer.append(rows)
            [entry] = writer.finish().tolist()
            self._file.flush()
            self.size_bytes = self._file.tell()
        name = f"a temporary file in {self.directory}"
        return Slice(name, self._read, 0, start + entry[0], entry[1], words, rows_in_page(words))

    def close(self) -> None:
        """Release the disk space."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, start: int, stop: int) -> bytes:
        return os.pread(self._file.fileno(), stop - start, start)


class RowSorter:
    """Sorter that accepts rows in any order and commits them as one slice file, within ``memory_bytes``."""

    def __init__(
        self,
        folder: Folder,
        name: str,
        *,
        words: int,
        bounds: Bounds,
        memory_bytes: int,
        scratch: str | None = None,
    ) -> None:
        self._folder, self._name, self._words, self._bounds = folder, name, words, bounds
        self._memory_bytes = memory_bytes
        self._capacity = max(memory_bytes // (8 * words + SORT_BYTES_PER_ROW), 1)
        self._buffer: Any = None
        self._waiting = 0
        self._scratch = ScratchRuns(scratch)
        self._runs: list[Slice] = []
        self.rows = 0
        """Number of rows appended so far."""

    @property
    def spilled_bytes(self) -> int:
        """Number of bytes written to the scratch directory."""
        return self._scratch.size_bytes

    def append(self, rows: Rows) -> None:
        """Append rows; a copy is made."""
        start = 0
        while start < len(rows):
            if self._waiting == self._capacity:
                self._spill()
            if self._buffer is None:
                self._buffer = np.empty((self._capacity, self._words), dtype=np.uint64)
            stop = min(len(rows), start + self._capacity - self._waiting)
            self._buffer[self._waiting : self._waiting + stop - start] = rows[start:stop]
            self._waiting += stop - start
            start = stop
        self.rows += len(rows)

    def commit(self) -> FileRecord:
        """Write the file, and make it visible."""
        with disk_errors(self._folder), self._folder.create(self._name) as file:
            writer = SliceWriter(file, self._words, self._bounds)
            for rows in self._merged() if self._runs else self._sorted():
                writer.append(rows)
            writer.finish()
            self.discard()
            return file.commit(self.rows)

    def discard(self) -> None:
        """Release memory and scratch space; uncommitted data is discarded."""
        self._scratch.close()
        self._buffer = None

    def _sorted(self) -> Iterator[Rows]:
        if self._waiting:
            rows = self._buffer[: self._waiting]
            order = sorted_order(rows)
            for start in range(0, len(order), PIECE_ROWS):
                yield take_rows(rows, order[start : start + PIECE_ROWS])

    def _merged(self) -> Iterator[Rows]:
        self._spill()
        self._buffer = None
        directory = self._scratch.directory
        return merge_slices(self._runs, memory_bytes=self._memory_bytes, scratch=directory)

    def _spill(self) -> None:
        self._runs.append(self._scratch.write(self._sorted(), self._words))
        self._waiting = 0


def _least_bytes(piece: Slice) -> int:
    return min(piece.rows, piece.page_rows) * merge_row_bytes(piece.words)


def _groups(slices: list[Slice], memory_bytes: int) -> list[list[Slice]]:
    """Split a list of slices into groups of at least two that can be merged in one step."""
    groups: list[list[Slice]] = [[]]
    held = 0
    for piece in slices:
        if len(groups[-1]) > 1 and held + _least_bytes(piece) > memory_bytes:
            groups.append([])
            held = 0
        groups[-1].append(piece)
        held += _least_bytes(piece)
    return groups


class _Chunk:
    """Rows of one slice that are in memory."""

    def __init__(self, piece: Slice, pages: int) -> None:
        self._piece, self._pages, self._next_page = piece, pages, piece.first_page
        self.rows: Rows = np.empty((0, piece.words), dtype=np.uint64)
        self.at = 0

    @property
    def has_more(self) -> bool:
        return self._next_page * self._piece.page_rows < self._piece.rows

    def load(self) -> None:
        self.rows = self.rows[:0].copy()  # free the old chunk before the new one is read
        self.rows, self.at = read_rows(self._piece, self._next_page, self._pages), 0
        self._next_page += self._pages

    def take_up_to(self, last: list[int] | None) -> Rows:
        start, self.at = self.at, len(self.rows) if last is None else rows_up_to(self.rows, last, self.at)
        return self.rows[start : self.at]


def _merge(slices: Sequence[Slice], memory_bytes: int) -> Iterator[Rows]:
    if not slices:
        return
    fitting = memory_bytes // merge_row_bytes(slices[0].words)
    share = fitting if sum(piece.rows for piece in slices) <= fitting else fitting // len(slices)
    chunks = [_Chunk(piece, max(min(share, piece.rows + piece.page_rows) // piece.page_rows, 1)) for piece in slices]
    heads: list[tuple[list[int], int]] = []  # first row of each chunk
    tails: list[tuple[list[int], int]] = []  # last row of each chunk that another will follow
    empty = list(range(len(chunks)))
    while empty or heads:
        for number in empty:
            chunk = chunks[number]
            chunk.load()
            heapq.heappush(heads, (chunk.rows[0].tolist(), number))
            if chunk.has_more:
                heapq.heappush(tails, (chunk.rows[-1].tolist(), number))
        last = tails[0][0] if tails else None
        parts, empty = [], []
        while heads and (last is None or heads[0][0] <= last):
            _, number = heapq.heappop(heads)
            chunk = chunks[number]
            parts.append(chunk.take_up_to(last))
            if chunk.at < len(chunk.rows):
                heapq.heappush(heads, (chunk.rows[chunk.at].tolist(), number))
            elif chunk.has_more:
                empty.append(number)
            else:
                chunk.rows = chunk.rows[:0].copy()
        while tails and tails[0][0] == last:
            heapq.heappop(tails)
        yield from _in_order(parts)


def _in_order(parts: list[Rows]) -> Iterator[Rows]:
    """Join sorted parts in order; the list is emptied."""
    rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    is_sorted = len(parts) == 1
    parts.clear()
    if is_sorted:
        yield rows
        return
    order = sorted_order(rows)
    for start in range(0, len(order), PIECE_ROWS):
        yield take_rows(rows, order[start : start + PIECE_ROWS])

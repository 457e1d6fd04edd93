# SPDX-License-Identifier: Apache-2.0
"""Rows of one cluster in order, and the groups they form, for the removal of similar vectors.

A cluster may have any size. Its vectors, and the numbers that are stored for each row, are kept in memory or, if they are too
many, in anonymous files. Vectors are compared in tiles, and group members are found piece by piece.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from curator_df.dedup.vectors.settings import VectorSettings
from curator_df.dedup.vectors.tasks import CLUSTER_HEAD, stored_addresses
from curator_df.dedup.vectors.vector_math import (
    Floats,
    from_words,
    most_similar_earlier,
    most_similar_kept,
    most_similar_other,
    roots_of,
    tile_rows,
    unit_rows,
)
from curator_df.files.row_order import Rows
from curator_df.files.scratch import ScratchColumn, scratch_directory
from curator_df.files.storage import Folder, disk_errors

EPS_WORDS = 4
"""Number of words of a member for each ``eps``: the kept row of its group (if none is kept, one of its rows), the number of rows
in the group, the row that it matched (its own address if the row is kept), bits of the cosine with that row. The address of the
member stands before them.
"""
PIECE_ROW_BYTES = 200
"""Bytes in use for each row of a piece; each ``eps`` adds 72."""
MOST_PIECE_ROWS = 65_536


def member_words(pending: VectorSettings) -> int:
    """Return the number of words of a member."""
    return 1 + EPS_WORDS * len(pending.eps)


def eps_word(place: int) -> int:
    """Return the index of the first word of a member for an ``eps``.

    Examples
    --------
    >>> eps_word(0), eps_word(2)
    (1, 9)
    """
    return 1 + EPS_WORDS * place


class ClusterRows:
    """Rows of one cluster after another; of repeated vectors, only one is stored."""

    def __init__(self, pending: VectorSettings, memory_bytes: int) -> None:
        self._pending, self._most = pending, memory_bytes // 2
        self._file: Any = None
        several = len(pending.eps)
        matches = several if pending.covers else 1  # otherwise a row has the same match for each eps
        share = memory_bytes // 2 // (5 + 4 * matches + 2 * several)
        self._addresses = ScratchColumn(np.uint64, share)
        self._places = ScratchColumn(np.int64, share)
        """Index of the distinct vector of each row."""
        self._firsts = ScratchColumn(np.int64, share)
        """First row of each distinct vector."""
        self._cosines = [ScratchColumn(np.float32, share) for _ in range(matches)]
        """Cosine of each distinct vector with the most similar earlier one, or with the most similar earlier one that is kept."""
        self._nearest = [ScratchColumn(np.int64, share) for _ in range(matches)]
        """Index of that earlier vector; -1 for the first, or for those that are kept."""
        self._parents = [ScratchColumn(np.int64, share) for _ in range(matches)]
        """Row that each row matched; the first row, or a kept one, has itself."""
        self._found = [ScratchColumn(np.float32, share) for _ in range(matches)]
        """Cosine with that row."""
        self._of_others = ScratchColumn(np.float32, share)
        """If no row of a group is kept: cosine of each distinct vector with the most similar other one."""
        self._others = ScratchColumn(np.int64, share)
        """Index of that vector; -1 if there is no other."""
        self._roots = [ScratchColumn(np.int64, share) for _ in pending.eps]
        """Kept row of the group of each row, for each ``eps``."""
        self._sizes = [ScratchColumn(np.int64, share) for _ in pending.eps]
        """Number of rows of the group, stored at the kept row."""
        self.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        for column in self._columns:
            column.close()

    @property
    def _columns(self) -> list[ScratchColumn]:
        of_rows = [self._addresses, self._places, *self._parents, *self._found]
        of_vectors = [self._firsts, *self._cosines, *self._nearest, self._of_others, self._others]
        return [*of_rows, *of_vectors, *self._roots, *self._sizes]

    def clear(self) -> None:
        """Start the next cluster."""
        self._vector_bytes = 0  # in the file
        self._held: list[Rows] = []
        self._held_rows = 0
        self._last: Rows | None = None
        for column in self._columns:
            column.clear()
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return len(self._addresses)

    @property
    def different(self) -> int:
        """Number of distinct vectors so far."""
        return len(self._firsts)

    @property
    def spilled_bytes(self) -> int:
        """Number of bytes in files."""
        return self._vector_bytes + sum(column.spilled_bytes for column in self._columns)

    def append(self, rows: Rows) -> None:
        """Append the next rows."""
        vectors = rows[:, CLUSTER_HEAD:]
        is_new = np.ones(len(rows), dtype=np.bool_)
        is_new[1:] = (vectors[1:] != vectors[:-1]).any(axis=1)
        is_new[0] = self._last is None or bool((vectors[0] != self._last).any())
        self._last = vectors[-1].copy()
        self._places.append(self.different - 1 + np.cumsum(is_new))
        self._firsts.append(self.rows + np.flatnonzero(is_new))
        self._addresses.append(stored_addresses(self._pending, rows[:, 2].copy()))
        self._held.append(vectors[is_new])
        self._held_rows += len(self._held[-1])
        if self._held_rows * 8 * self._pending.words > self._most // 2:
            self._spill()

    def members(self, memory_bytes: int) -> Iterator[Rows]:
        """Yield the rows that are in a group for any ``eps``, in order; call it after all rows were appended."""
        self._settle()
        keeps_none = self._pending.keeps_none
        self._match(tile_rows(self._pending.width, memory_bytes))
        each = PIECE_ROW_BYTES + 72 * len(self._pending.eps)
        piece = min(max(memory_bytes // each, 1024), MOST_PIECE_ROWS)
        starts = range(0, self.rows, piece)
        follow = self._join_kept if self._pending.covers else self._follow
        for start in starts:
            follow(start, min(start + piece, self.rows))
        for start in starts if keeps_none else ():
            self._join_last(start, min(start + piece, self.rows))
        for start in starts:
            yield self._members(start, min(start + piece, self.rows))

    def _match(self, tile: int) -> None:
        """Find the match of each distinct vector."""
        if self._pending.covers:
            found = most_similar_kept(self._read, self._is_kept, self.different, tile, self._thresholds)
        else:
            found = ([one] for one in most_similar_earlier(self._read, self.different, tile))
        for matches in found:
            for (cosines, nearest), known, places in zip(matches, self._cosines, self._nearest, strict=True):
                known.append(cosines)
                places.append(nearest)
        if self._pending.keeps_none:
            for cosines, nearest in most_similar_other(self._read, self.different, tile):
                self._of_others.append(cosines)
                self._others.append(nearest)

    @property
    def _thresholds(self) -> npt.NDArray[np.float32]:
        """Minimum cosine of similar vectors, for each ``eps``."""
        return np.array([1 - eps for eps in self._pending.eps], dtype=np.float32)

    def _is_kept(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        return np.stack([nearest.read(start, stop) < 0 for nearest in self._nearest])

    def _join_kept(self, start: int, stop: int) -> None:
        """Join some rows with the kept row that they matched, for each ``eps``."""
        rows, places = np.arange(start, stop), self._places.read(start, stop)
        firsts = self._firsts.take(places)
        for place, (known, sizes) in enumerate(zip(self._roots, self._sizes, strict=True)):
            nearest = self._nearest[place].take(places)
            is_kept = nearest < 0  # the vector, so only the first of the rows that have it
            roots = np.where(is_kept, firsts, self._firsts.take(np.maximum(nearest, 0)))
            found = np.where(is_kept, np.float32(1.0), self._cosines[place].take(places))
            self._parents[place].append(roots)
            self._found[place].append(found)
            known.append(roots)
            sizes.append(np.zeros(len(rows), dtype=np.int64))
            _count(roots, sizes)

    def _follow(self, start: int, stop: int) -> None:
        """Find the groups of some rows, after those of all rows before them."""
        rows = np.arange(start, stop)
        places = self._places.read(start, stop)
        firsts = self._firsts.take(places)
        nearest = self._nearest[0].take(places)
        is_first = firsts == rows
        parents = firsts.copy()
        of_nearest = is_first & (nearest >= 0)
        parents[of_nearest] = self._firsts.take(nearest[of_nearest])
        found = np.where(is_first, self._cosines[0].take(places), np.float32(1.0))
        self._parents[0].append(parents)
        self._found[0].append(found)
        for threshold, known, sizes in zip(self._thresholds, self._roots, self._sizes, strict=True):
            roots = roots_of(np.where(found >= threshold, parents, rows), start)
            before = roots < start
            roots[before] = known.take(roots[before])
            known.append(roots)
            sizes.append(np.zeros(len(rows), dtype=np.int64))
            _count(roots, sizes)

    def _join_last(self, start: int, stop: int) -> None:
        """Replace the match of some rows by the most similar of all other rows, and join rows without a group to that row's.

        A row can be similar to a later one that is more similar to a third; without this, it would be alone.
        """
        rows, places = np.arange(start, stop), self._places.read(start, stop)
        firsts, others = self._firsts.take(places), self._others.take(places)
        is_repeated = np.diff(self._places.read(start, stop + 1), append=-1)[: len(rows)] == 0  # by the next row
        of_others = np.where(others >= 0, self._firsts.take(np.maximum(others, 0)), rows)
        is_first = firsts == rows
        matches = np.where(is_first, np.where(is_repeated, rows + 1, of_others), firsts)
        found = np.where(is_first & ~is_repeated, self._of_others.take(places), np.float32(1.0))
        self._parents[0].put(rows, matches)
        self._found[0].put(rows, found)
        for threshold, known, sizes in zip(self._thresholds, self._roots, self._sizes, strict=True):
            is_similar = (found >= threshold) & (matches > rows)
            is_alone = is_similar & (sizes.take(known.read(start, stop)) == 1)
            roots = known.take(matches[is_alone])
            known.put(rows[is_alone], roots)
            _count(roots, sizes)

    def _members(self, start: int, stop: int) -> Rows:
        roots = [known.read(start, stop) for known in self._roots]
        sizes = [counted.take(ends) for counted, ends in zip(self._sizes, roots, strict=True)]
        # A row that is in a group for a small eps can be alone for a larger one, if its kept row is then dropped.
        chosen = np.flatnonzero(np.logical_or.reduce([counts > 1 for counts in sizes]))
        addresses = self._addresses.read(start, stop)[chosen]
        table = np.empty((len(chosen), member_words(self._pending)), dtype=np.uint64)
        table[:, 0] = addresses
        for place, (ends, counts) in enumerate(zip(roots, sizes, strict=True)):
            of_match = place if self._pending.covers else 0
            similar = self._addresses.take(self._parents[of_match].read(start, stop)[chosen])
            found = self._found[of_match].read(start, stop)[chosen].astype(np.float64)
            going = (ends[chosen] != chosen + start) | (self._pending.keeps_none & (counts[chosen] > 1))
            word = eps_word(place)
            table[:, word] = self._addresses.take(ends[chosen])
            table[:, word + 1] = counts[chosen].astype(np.uint64)
            table[:, word + 2] = np.where(going, similar, addresses)
            table[:, word + 3] = np.where(going, found, np.nan).view(np.uint64)
        return table

    def _settle(self) -> None:
        """Join the vectors in memory into one array, or append them to the file if it is already in use."""
        if self._vector_bytes:
            self._spill()
        else:
            self._held = [np.concatenate(self._held)]

    def _read(self, start: int, stop: int) -> Floats:
        """Return some of the distinct vectors, scaled to length 1; call `_settle` first."""
        if not self._vector_bytes:
            words = self._held[0][start:stop]
        else:
            each = 8 * self._pending.words
            stop = min(stop, self.different)
            raw = os.pread(self._file.fileno(), (stop - start) * each, start * each)
            words = np.frombuffer(raw, dtype=np.uint64).reshape(-1, self._pending.words)
        return unit_rows(from_words(words, self._pending.width, self._pending.dtype))

    def _spill(self) -> None:
        directory = scratch_directory()
        with disk_errors(Folder(directory)):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closed with the task
            for rows in self._held:
                self._file.write(np.ascontiguousarray(rows).data)
                self._vector_bytes += rows.nbytes
            self._file.flush()
        self._held, self._held_rows = [], 0


def _count(roots: npt.NDArray[np.int64], sizes: ScratchColumn) -> None:
    """Add rows to the sizes of their groups, which are stored at the kept rows."""
    those, counts = np.unique(roots, return_counts=True)
    sizes.put(those, sizes.take(those) + counts)

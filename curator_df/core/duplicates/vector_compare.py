# SPDX-License-Identifier: Apache-2.0
"""Rows of clusters into groups, and groups into the rows that go: the last two kinds of task of a drop by vectors.

1. `run_compare`, one for each part of the clusters: each row with all of its cluster that stand before it.
2. `run_collect`, one for each group of ranges: what was found, in order of address.

A cluster's vectors lie in memory or, if they are too many, in a file without a name; they are compared in tiles, so that
nothing but some numbers for each row grows with the cluster.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from curator_df.core.duplicates.vector_tasks import CLUSTER_HEAD, load_vector_job, stored_addresses
from curator_df.core.exchange.exchange import DROP_WORDS, drop_bounds
from curator_df.core.exchange.vector_barrier import VectorBarrier
from curator_df.core.exchange.vector_math import (
    Floats,
    from_words,
    most_similar_earlier,
    roots_of,
    tile_rows,
    unit_rows,
)
from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import RowSorter, merge_slices
from curator_df.core.files.slice_file import SliceWriter, open_slices
from curator_df.core.files.storage import Folder, disk_errors
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.sizes import show_size
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.errors import BudgetError

MEMBER_HEAD = 3
"""Words of a member: address, the row that it is most similar to (itself where it stays), bits of the cosine. Then for each
``eps``: the row of its group that stays, rows of the group."""
CLUSTER_ROW_BYTES = 96
"""Held for each row of a cluster besides its vector: address, cosine, parent, roots, and copies of these."""
_HALF = np.uint64(32)


def member_words(barrier: VectorBarrier) -> int:
    """Return the words of a member."""
    return MEMBER_HEAD + 2 * len(barrier.eps)


def run_compare(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Compare the rows of some clusters; write those that are in a group."""

    def work(manifest: Manifest) -> None:
        job = load_vector_job(job_bytes)
        memory_bytes = attempt.exclusive_bytes or attempt.block_bytes
        slices = open_slices(job.folder, job.files, attempt.piece.number)
        sorter = RowSorter(
            job.folder,
            f"compared/part-{attempt.piece.number:06d}.slices",
            words=member_words(job.barrier),
            bounds=job.groups.bounds,
            memory_bytes=memory_bytes // 8,
        )
        largest = clusters = spilled = 0
        try:
            with ClusterRows(job.barrier, memory_bytes // 4) as cluster:
                for rows in _by_cluster(merge_slices(slices, memory_bytes=memory_bytes // 8)):
                    if rows is not None:
                        cluster.append(rows)
                        _require_room(cluster.rows, memory_bytes // 4, alone=attempt.exclusive_bytes is not None)
                        continue
                    largest, clusters = max(largest, cluster.rows), clusters + 1
                    spilled += cluster.spilled_bytes
                    sorter.append(_members(job.barrier, cluster, memory_bytes // 8))
                    manifest.rows_read += cluster.rows
                    cluster.clear()
            manifest.files = [sorter.commit()]
        finally:
            sorter.discard()
        manifest.summary = {
            "spilled_bytes": spilled + sorter.spilled_bytes,
            "largest_cluster": largest,
            "clusters": clusters,
        }

    return run_guarded(attempt, work)


def run_collect(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Write the members of a group of ranges in order, and for each ``eps`` the rows that go."""

    def work(manifest: Manifest) -> None:
        job = load_vector_job(job_bytes)
        number, several = attempt.piece.number, len(job.barrier.eps)
        slices = open_slices(job.folder, job.files, number)
        # Where a group is one range, a file has a slice for every range, as `read_drops` expects it.
        ranges = job.groups.range_bounds(number) if job.groups.per_group > 1 else drop_bounds(job.groups.starts)
        groups, going = np.zeros(several, dtype=np.int64), np.zeros(several, dtype=np.int64)
        names = [f"members/part-{number:06d}.slices"]
        names += [f"drops/{place:03d}/part-{number:06d}.slices" for place in range(several)]
        with disk_errors(job.folder), contextlib.ExitStack() as stack:
            files = [stack.enter_context(job.folder.create(name)) for name in names]
            first = np.zeros(1, dtype=np.uint64)
            members = SliceWriter(files[0], member_words(job.barrier), first)
            writers = [SliceWriter(file, DROP_WORDS, ranges) for file in files[1:]]
            rows_written = 0
            for rows in merge_slices(slices, memory_bytes=attempt.block_bytes // 4):
                members.append(rows)
                rows_written += len(rows)
                for place, writer in enumerate(writers):
                    roots, sizes = rows[:, MEMBER_HEAD + 2 * place], rows[:, MEMBER_HEAD + 2 * place + 1]
                    goes = roots != rows[:, 0]
                    groups[place] += int(((sizes > 1) & ~goes).sum())
                    going[place] += int(goes.sum())
                    writer.append(np.column_stack([rows[goes, 0], roots[goes]]))
            for writer in (members, *writers):
                writer.finish()
            counts = [rows_written, *going.tolist()]
            manifest.files = [file.commit(count) for file, count in zip(files, counts, strict=True)]
        manifest.summary = {f"groups_{place}": int(count) for place, count in enumerate(groups)}
        manifest.summary |= {f"going_{place}": int(count) for place, count in enumerate(going)}

    return run_guarded(attempt, work)


class ClusterRows:
    """The rows of one cluster, in order; of vectors that repeat the one before, one."""

    def __init__(self, barrier: VectorBarrier, memory_bytes: int) -> None:
        self._barrier, self._most = barrier, memory_bytes
        self._file: Any = None
        self.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def clear(self) -> None:
        """Begin with the next cluster."""
        self.rows = 0
        """So far."""
        self.different = 0
        """Of these, rows whose vector is not that of the row before."""
        self.spilled_bytes = 0
        """Bytes in the file."""
        self._addresses: list[npt.NDArray[np.uint64]] = []
        self._places: list[npt.NDArray[np.int64]] = []
        self._held: list[Rows] = []
        self._held_rows = 0
        self._last: Rows | None = None
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()

    def append(self, rows: Rows) -> None:
        """Take the next rows."""
        vectors = rows[:, CLUSTER_HEAD:]
        is_new = np.ones(len(rows), dtype=np.bool_)
        is_new[1:] = (vectors[1:] != vectors[:-1]).any(axis=1)
        is_new[0] = self._last is None or bool((vectors[0] != self._last).any())
        self._last = vectors[-1].copy()
        self._addresses.append(stored_addresses(self._barrier, rows[:, 2].copy()))
        self._places.append(self.different - 1 + np.cumsum(is_new))
        self._held.append(vectors[is_new])
        self._held_rows += len(self._held[-1])
        self.rows += len(rows)
        self.different += len(self._held[-1])
        if self._held_rows * 8 * self._barrier.words > self._most // 2:
            self._spill()

    @property
    def addresses(self) -> npt.NDArray[np.uint64]:
        """Shape (rows,)."""
        return np.concatenate(self._addresses)

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """Shape (rows,): which of the different vectors each row has."""
        return np.concatenate(self._places)

    def settle(self) -> None:
        """Put what is held in one piece, or into the file where some of it is there already."""
        if self.spilled_bytes:
            self._spill()
        else:
            self._held = [np.concatenate(self._held)]

    def read(self, start: int, stop: int) -> Floats:
        """Return some of the different vectors, with length 1; after `settle`."""
        if not self.spilled_bytes:
            words = self._held[0][start:stop]
        else:
            each = 8 * self._barrier.words
            stop = min(stop, self.different)
            raw = os.pread(self._file.fileno(), (stop - start) * each, start * each)
            words = np.frombuffer(raw, dtype=np.uint64).reshape(-1, self._barrier.words)
        return unit_rows(from_words(words, self._barrier.width, self._barrier.dtype))

    def _spill(self) -> None:
        with disk_errors(Folder(tempfile.gettempdir())):
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the task
            for rows in self._held:
                self._file.write(np.ascontiguousarray(rows).data)
                self.spilled_bytes += rows.nbytes
            self._file.flush()
        self._held, self._held_rows = [], 0


def _by_cluster(pieces: Iterator[Rows]) -> Iterator[Rows | None]:
    """Yield the rows of one cluster after the other, and None at the end of each."""
    cluster = -1
    for rows in pieces:
        numbers = (rows[:, 0] >> _HALF).astype(np.int64)
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(rows)]
        for start, stop in itertools.pairwise(cuts):
            if cluster not in (-1, int(numbers[start])):
                yield None
            cluster = int(numbers[start])
            yield rows[start:stop]
    if cluster >= 0:
        yield None


def _require_room(rows: int, memory_bytes: int, *, alone: bool) -> None:
    needed = rows * CLUSTER_ROW_BYTES
    if needed <= memory_bytes:
        return
    said = f"a cluster has {rows:,} rows or more, for which {show_size(needed)} are held, and there are "
    if not alone:
        raise MemoryError(said + show_size(memory_bytes))
    raise BudgetError(f"{said}{show_size(memory_bytes)}; ask for more clusters (num_clusters=), or allow more memory=")


def _members(barrier: VectorBarrier, cluster: ClusterRows, memory_bytes: int) -> Rows:
    """Return the rows of a cluster that are in a group for the largest ``eps``."""
    cluster.settle()
    cosines, nearest = most_similar_earlier(cluster.read, cluster.different, tile_rows(barrier.width, memory_bytes))
    places, addresses = cluster.places, cluster.addresses
    rows = np.arange(cluster.rows)
    first = np.searchsorted(places, np.arange(cluster.different))  # the row that had each vector first
    is_first = first[places] == rows
    parents = np.where(is_first, first[nearest[places]], first[places])
    found = np.where(is_first, cosines[places], np.float32(1.0)).astype(np.float32)
    roots = [roots_of(parents, found >= np.float32(1 - eps)) for eps in barrier.eps]
    sizes = [np.bincount(each, minlength=cluster.rows)[each] for each in roots]
    members = np.flatnonzero(sizes[-1] > 1)
    going = roots[-1][members] != members
    table = np.empty((len(members), member_words(barrier)), dtype=np.uint64)
    table[:, 0] = addresses[members]
    table[:, 1] = np.where(going, addresses[parents[members]], addresses[members])
    table[:, 2] = np.where(going, found[members].astype(np.float64), np.nan).view(np.uint64)
    for place, (ends, counts) in enumerate(zip(roots, sizes, strict=True)):
        table[:, MEMBER_HEAD + 2 * place] = addresses[ends[members]]
        table[:, MEMBER_HEAD + 2 * place + 1] = counts[members].astype(np.uint64)
    return table

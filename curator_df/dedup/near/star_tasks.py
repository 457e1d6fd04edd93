# SPDX-License-Identifier: Apache-2.0
"""Grouping of edges on disk, for graphs whose vertices do not fit into the memory of one task.

The algorithm: alternating stars. A large star links every vertex's larger neighbors to the smallest of its neighbors and itself;
a small star links its smaller neighbors and itself to the smallest of these. After a number of rounds, about the logarithm of the
longest path in the graph, every group is one star around its smallest vertex. Each step streams sorted edges, so the memory
in use does not depend on the number of neighbors of a vertex.

1. `run_large_star` and `run_small_star`, once per group of ranges, until no edge changes.
2. `run_vertices`: send each vertex and its rank to the group of ranges of its star's center.
3. `run_survivors`: choose the kept row and count the size of each star, and send them to its vertices.
4. `run_members`: write the files that `grouping.run_components` also writes, one for each group of ranges.

References
----------
R. Kiveris, S. Lattanzi, V. Mirrokni, V. Rastogi, S. Vassilvitskii, "Connected components in MapReduce and beyond", SoCC 2014.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import RowSorter, merge_slices
from curator_df.core.files.slice_file import SliceWriter, open_slices
from curator_df.core.files.storage import disk_errors
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.near.tasks import NearJob, distinct_rows, edge_slices, load_near_job
from curator_df.exchange.exchange import DROP_WORDS, MEMBER_WORDS, drop_bounds

STAR_BYTES = 100
"""Bytes in use by `run_survivors` for each star whose center is in its group of ranges, while the parts are joined."""
LINK_WORDS = 2
"""Words of a link: address of a row, address of another row."""
_NONE = np.uint64((1 << 64) - 1)


def run_large_star(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Link the larger neighbors of each vertex to its smallest; edges arrive in both directions and leave in one."""

    def work(manifest: Manifest) -> None:
        job = load_near_job(job_bytes)
        smallest = _Smallest()

        def links() -> Iterator[tuple[Rows, int]]:
            for rows in _neighbours(job, attempt):
                centre = np.minimum(rows[:, 0], smallest.of(rows))
                larger = rows[:, 1] > rows[:, 0]
                yield np.stack([rows[larger, 1], centre[larger]], axis=1), int((centre != rows[:, 0])[larger].sum())

        _write_links(job, attempt, manifest, links())

    return run_guarded(attempt, work)


def run_small_star(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Link each vertex and its smaller neighbors to the smallest; edges arrive in one direction and leave in both."""

    def work(manifest: Manifest) -> None:
        job = load_near_job(job_bytes)
        smallest = _Smallest()

        def links() -> Iterator[tuple[Rows, int]]:
            for rows in _neighbours(job, attempt):
                centre = smallest.of(rows)
                is_other = rows[:, 1] != centre
                ends = np.where(is_other, rows[:, 1], rows[:, 0])
                one_way = np.stack([ends, centre], axis=1)
                yield np.concatenate([one_way, one_way[:, ::-1]]), int(is_other.sum())

        _write_links(job, attempt, manifest, links())

    return run_guarded(attempt, work)


def run_vertices(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Send each vertex of a group of ranges, with its rank, to the group of its star's center."""

    def work(manifest: Manifest) -> None:
        job, group = load_near_job(job_bytes), attempt.piece.number
        ranks = _Ranks(job, group)
        sorter = RowSorter(
            job.folder,
            f"{job.into}/part-{group:06d}.slices",
            words=3,
            bounds=job.groups.bounds,
            memory_bytes=attempt.block_bytes // 2,
        )
        last = _NONE
        try:
            for rows in _neighbours(job, attempt):
                is_new = np.ones(len(rows), dtype=np.bool_)
                is_new[1:] = rows[1:, 0] != rows[:-1, 0]
                is_new[0] = rows[0, 0] != last
                last = rows[-1, 0]
                first = rows[is_new]
                centre = np.minimum(first[:, 0], first[:, 1])
                sorter.append(np.stack([centre, first[:, 0], ranks.of(first[:, 0])], axis=1))
            manifest.files = [sorter.commit()]
        finally:
            sorter.discard()
        manifest.summary = {"vertices": sorter.rows, "spilled_bytes": sorter.spilled_bytes}

    return run_guarded(attempt, work)


def run_survivors(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Choose the kept row of each star whose center is in a group of ranges, and send it to all its vertices."""

    def work(manifest: Manifest) -> None:
        job, group = load_near_job(job_bytes), attempt.piece.number
        stars = _stars(job, attempt)
        sorter = RowSorter(
            job.folder,
            f"{job.into}/part-{group:06d}.slices",
            words=MEMBER_WORDS,
            bounds=job.groups.bounds,
            memory_bytes=attempt.block_bytes // 4,
        )
        try:
            for rows in _neighbours(job, attempt):
                places = np.searchsorted(stars.centres, rows[:, 0])
                sorter.append(np.stack([rows[:, 1], stars.survivors[places], stars.sizes[places]], axis=1))
            manifest.files = [sorter.commit()]
        finally:
            sorter.discard()
        manifest.summary = {
            "groups": int((stars.sizes > 0).sum()),
            "largest_group": int(stars.sizes.max(initial=0)),
            "spilled_bytes": sorter.spilled_bytes,
        }

    return run_guarded(attempt, work)


def run_members(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Write the group members in a group of ranges, and the rows to drop, with a slice for each range."""

    def work(manifest: Manifest) -> None:
        job, group = load_near_job(job_bytes), attempt.piece.number
        bounds, name = drop_bounds(job.groups.starts), f"part-{group:06d}.slices"
        rows = going = kept = 0
        folder = job.folder
        with disk_errors(folder), folder.create(f"groups/{name}") as members, folder.create(f"drops/{name}") as drops:
            of_members, of_drops = SliceWriter(members, MEMBER_WORDS, bounds), SliceWriter(drops, DROP_WORDS, bounds)
            for piece in _neighbours(job, attempt):
                gone = piece[piece[:, 0] != piece[:, 1], :2]
                of_members.append(piece)
                of_drops.append(gone)
                rows += len(piece)
                kept += int((piece[:, 0] >= job.groups.first_kept).sum())
                going += int((gone[:, 0] < job.groups.first_kept).sum())
            of_members.finish()
            of_drops.finish()
            manifest.files = [members.commit(rows), drops.commit(going)]
        manifest.rows_read = rows
        manifest.summary = {"going": going, **({"matched_signatures": kept} if job.groups.kept else {})}

    return run_guarded(attempt, work)


class _Smallest:
    """Smallest neighbor of each vertex, which comes first, over pieces of sorted rows."""

    def __init__(self) -> None:
        self._vertex = self._neighbour = _NONE

    def of(self, rows: Rows) -> npt.NDArray[np.uint64]:
        begins = np.ones(len(rows), dtype=np.bool_)
        begins[1:] = rows[1:, 0] != rows[:-1, 0]
        starts = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
        found: npt.NDArray[np.uint64] = rows[starts, 1]
        if rows[0, 0] == self._vertex:
            found[starts == 0] = self._neighbour
        self._vertex, self._neighbour = rows[-1, 0], found[-1]
        return found


@dataclass(frozen=True)
class _Stars:
    centres: npt.NDArray[np.uint64]
    survivors: npt.NDArray[np.uint64]
    sizes: npt.NDArray[np.uint64]


def _stars(job: NearJob, attempt: Attempt) -> _Stars:
    """Return kept row and size of each star."""
    first_kept, keep = job.groups.first_kept, job.pending.keep
    parts: list[Rows] = []
    for rows in _neighbours(job, attempt):
        is_row = rows[:, 1] < first_kept
        preference = {"first": rows[:, 1], "last": ~rows[:, 1]}.get(keep, rows[:, 2])
        part = _best(
            rows[:, 0],
            np.where(is_row, preference, _NONE),
            np.where(is_row, rows[:, 1], _NONE),
            np.where(is_row, _NONE, rows[:, 1]),
            is_row.astype(np.uint64),
        )
        if parts and parts[-1][-1, 0] == part[0, 0]:  # a star that continues from the piece before
            joined = np.concatenate([parts[-1][-1:], part[:1]])
            part[:1] = _best(*joined.T)
            parts[-1] = parts[-1][:-1]
        parts.append(part)
    stars = np.concatenate(parts) if parts else np.empty((0, 5), dtype=np.uint64)
    survivors = np.where(stars[:, 3] != _NONE, stars[:, 3], stars[:, 2])
    return _Stars(np.ascontiguousarray(stars[:, 0]), survivors, stars[:, 4])


def _best(centres: Any, preferences: Any, rows: Any, kept: Any, counts: Any) -> Rows:
    """Return for each center the preferred row (of several, the first), its first kept signature, and its number of rows."""
    begins = np.ones(len(centres), dtype=np.bool_)
    begins[1:] = centres[1:] != centres[:-1]
    starts = np.flatnonzero(begins)
    least = np.minimum.reduceat(preferences, starts)
    are_best = np.where(preferences == least[np.cumsum(begins) - 1], rows, _NONE)
    columns = [
        centres[starts],
        least,
        np.minimum.reduceat(are_best, starts),
        np.minimum.reduceat(kept, starts),
        np.add.reduceat(counts, starts),
    ]
    return np.stack(columns, axis=1)


class _Ranks:
    """Ranks of ascending vertices of a group of ranges, from the files of its ranges; 0 if the position decides."""

    def __init__(self, job: NearJob, group: int) -> None:
        first = group * job.groups.per_group
        self._pieces = self._read(job, job.ranks[first : first + job.groups.per_group])
        self._held: Any = np.empty((0, 2), dtype=np.uint64)
        self._has_any = bool(job.ranks)

    @staticmethod
    def _read(job: NearJob, files: Any) -> Iterator[Rows]:
        for file in files:
            yield from merge_slices(open_slices(job.folder, (file,), 0), memory_bytes=1_000_000)

    def of(self, vertices: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        found = np.full(len(vertices), _NONE if self._has_any else np.uint64(0), dtype=np.uint64)
        at = 0
        while self._has_any and at < len(vertices):
            if not len(self._held):
                following = next(self._pieces, None)
                if following is None:
                    break  # kept signatures have no rank
                self._held = following.copy()
            stop = int(np.searchsorted(vertices, self._held[-1, 0], side="right"))
            found[at:stop] = self._held[np.searchsorted(self._held[:, 0], vertices[at:stop]), 1]
            at = stop
            if at < len(vertices):
                self._held = self._held[:0]
        return found


def _neighbours(job: NearJob, attempt: Attempt) -> Iterator[Rows]:
    """Yield the rows of a group of ranges in order, each once."""
    slices = edge_slices(job, attempt.piece.number)
    for rows in distinct_rows(merge_slices(slices, memory_bytes=attempt.block_bytes // 4)):
        if len(rows):
            yield rows


def _write_links(job: NearJob, attempt: Attempt, manifest: Manifest, links: Iterator[tuple[Rows, int]]) -> None:
    name = f"{job.into}/part-{attempt.piece.number:06d}.slices"
    memory_bytes = attempt.block_bytes // 2
    sorter = RowSorter(job.folder, name, words=LINK_WORDS, bounds=job.groups.bounds, memory_bytes=memory_bytes)
    changed = 0
    try:
        for rows, new in links:
            sorter.append(rows)
            changed += new
        manifest.files = [sorter.commit()]
    finally:
        sorter.discard()
    manifest.summary = {"changed": changed, "spilled_bytes": sorter.spilled_bytes}

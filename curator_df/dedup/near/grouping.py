# SPDX-License-Identifier: Apache-2.0
"""Last stage of a near-duplicate removal: group the edges, in the memory of one task or, if they are too many, on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.ranges.manifest import Manifest, files_below
from curator_df.core.runner.passes import Stage, StageRecord, sum_of
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.near.tasks import NearJob, distinct_rows, edge_slices, load_near_job
from curator_df.exchange.exchange import DROP_WORDS, MEMBER_WORDS, drop_bounds
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import PIECE_ROWS, RowSorter, merge_slices
from curator_df.files.slice_file import SliceWriter, open_slices
from curator_df.files.storage import FileRecord, disk_errors
from curator_df.kernels.minhash.graphs import component_names
from curator_df.memory.sizes import show_size

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
        ranks = Ranks(job, group)
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
                gone = piece[_go(job, piece[:, 0], piece[:, 1]), :2]
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
        preference = {"first": rows[:, 1], "none": rows[:, 1], "last": ~rows[:, 1]}.get(keep, rows[:, 2])
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


class Ranks:
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
        """Return the ranks of the next vertices."""
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


VERTEX_BYTES = 64
"""Bytes that `run_components` needs for each row with an edge: ID, name, position of the name, kept row, size, working copies."""
COMPONENTS_FIXED_BYTES = 8_000_000
"""Other bytes that `run_components` needs: pieces of edges in transit, and writers."""


def run_components(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Find the groups, choose the kept rows, and write (address, kept row, size) of all members, and the rows to drop.

    A manifest without files means that the rows did not fit in memory.
    """

    def work(manifest: Manifest) -> None:
        job = load_near_job(job_bytes)
        count = sum(len(ids) for ids in _vertices(job))
        needed = count * VERTEX_BYTES + COMPONENTS_FIXED_BYTES
        if needed > attempt.block_bytes and attempt.exclusive_bytes is None:
            raise MemoryError(
                f"grouping the {count:,} rows that match others needs {show_size(needed)} of memory, more than a task has. "
                "Start the cluster with a larger memory="
            )
        if attempt.exclusive_bytes is not None and needed > attempt.exclusive_bytes:
            return
        ids = np.empty(count, dtype=np.int64)
        at = 0
        for part in _vertices(job):
            ids[at : at + len(part)] = part
            at += len(part)
        names = component_names(ids, (np.ascontiguousarray(rows[:, :2]).view(np.int64) for rows in _edges(job)))
        places = np.searchsorted(ids, names)
        del names
        rows = int(np.searchsorted(ids.view(np.uint64), job.groups.first_kept))  # the kept signatures follow
        survivors = _survivors(job, ids, places)
        _prefer_kept(ids, places, survivors, rows)
        sizes = np.bincount(places[:rows], minlength=count)
        manifest.files = [_write_members(job, ids, survivors, sizes[places]), _write_drops(job, ids, survivors)]
        manifest.rows_read = count
        manifest.summary = {
            "groups": int((sizes > 0).sum()),
            "largest_group": int(sizes.max(initial=0)),
            "going": int(_go(job, ids[:rows], survivors[:rows]).sum()),
            **({"matched_signatures": count - rows} if job.groups.kept else {}),
        }

    return run_guarded(attempt, work)


def _edges(job: NearJob) -> Iterator[Rows]:
    for group in range(len(job.groups)):
        yield from merge_slices(edge_slices(job, group), memory_bytes=COMPONENTS_FIXED_BYTES // 4)


def _vertices(job: NearJob) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the rows that have an edge in ascending order, each once."""
    last = -1
    for rows in _edges(job):
        ids = rows[:, 0].view(np.int64) if rows.flags.c_contiguous else rows[:, 0].astype(np.int64)
        is_new = np.empty(len(ids), dtype=np.bool_)
        is_new[0] = ids[0] != last
        is_new[1:] = ids[1:] != ids[:-1]
        last = int(ids[-1])
        yield ids[is_new]


def _survivors(job: NearJob, ids: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the kept row for each row, or its first if none is kept; ``places`` has the position of its group's first row."""
    if job.pending.keep in ("first", "none"):
        return ids[places]
    chosen = np.empty(len(ids), dtype=np.int64)
    if job.pending.keep == "last":
        chosen[places] = ids  # the last assignment wins: ids ascend
        return chosen[places]
    values = _ranks_of(job, ids)
    best = np.full(len(ids), np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(best, places, values)
    are_best = np.flatnonzero(values == best[places])[::-1]  # the first comes last, and wins
    chosen[places[are_best]] = ids[are_best]
    return chosen[places]


def _prefer_kept(ids: npt.NDArray[np.int64], places: npt.NDArray[np.int64], survivors: Any, rows: int) -> None:
    """Replace the kept row of each group that has kept signatures by the first of them, so that all its rows are dropped."""
    if rows == len(ids):
        return
    chosen = np.full(len(ids), -1, dtype=np.int64)
    chosen[places[rows:][::-1]] = ids[rows:][::-1]  # the first one wins
    kept = chosen[places]
    np.copyto(survivors, kept, where=kept >= 0)


def _ranks_of(job: NearJob, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    found = np.full(len(ids), np.iinfo(np.uint64).max, dtype=np.uint64)  # kept signatures have none
    at = 0
    for file in job.ranks:
        slices = open_slices(job.folder, (file,), 0)
        for rows in merge_slices(slices, memory_bytes=COMPONENTS_FIXED_BYTES // 8):
            stop = int(np.searchsorted(ids, np.int64(rows[-1, 0]), side="right"))
            found[at:stop] = rows[np.searchsorted(rows[:, 0], ids[at:stop].view(np.uint64)), 1]
            at = stop
    return found


def _write_members(job: NearJob, ids: Any, survivors: Any, sizes: Any) -> FileRecord:
    return _write(job, "groups/members.slices", MEMBER_WORDS, (ids, survivors, sizes), np.arange(len(ids)))


def _write_drops(job: NearJob, ids: Any, survivors: Any) -> FileRecord:
    return _write(
        job, "drops/part-000000.slices", DROP_WORDS, (ids, survivors), np.flatnonzero(_go(job, ids, survivors))
    )


def _go(job: NearJob, rows: npt.NDArray[Any], survivors: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which members of groups are dropped; of kept signatures, the answer is not read."""
    is_other: npt.NDArray[np.bool_] = rows != survivors
    return is_other | (job.pending.keep == "none")


def _write(job: NearJob, name: str, words: int, columns: tuple[Any, ...], chosen: npt.NDArray[np.int64]) -> FileRecord:
    """Write rows, with a slice for each range."""
    with disk_errors(job.folder), job.folder.create(name) as file:
        writer = SliceWriter(file, words, drop_bounds(job.groups.starts))
        for start in range(0, len(chosen), PIECE_ROWS):
            part = chosen[start : start + PIECE_ROWS]
            writer.append(np.stack([column[part].astype(np.uint64) for column in columns], axis=1))
        writer.finish()
        return file.commit(len(chosen))


@dataclass(frozen=True)
class Grouped:
    """Result of the grouping."""

    members: tuple[FileRecord, ...]
    """Files of (address, kept row, rows of the group) for all members, with a slice for each range."""
    drops: tuple[FileRecord, ...]
    """Files of (address, kept row) for the rows to drop, with a slice for each range."""
    matches: tuple[FileRecord, ...]
    """Files of the edges from members to their matches, if these are not the edges that define the groups."""
    summary: dict[str, int]
    """Figures for the receipt."""


def group_rows(stage: Stage, job: NearJob) -> Grouped:
    """Return the groups that the edges of a job form, given the ranks of the rows."""
    home, groups = stage.home, len(job.groups)
    [done] = stage.tasks("groups", "groups", run_components, job, 1)
    if done.files:
        members, drops = done.files
        return Grouped((members,), (drops,), (), dict(done.summary))
    stars, rounds = _linked_to_smallest(stage, replace(job, ranks=()))
    vertices = replace(job, files=stars, known=(), into="stars/vertices")
    sent = files_below(stage.tasks("stars/vertices", "groups", run_vertices, vertices, groups), "stars")
    into = "stars/survivors"
    survivors = replace(job, files=sent, known=(), ranks=(), into=into)
    chosen = stage.tasks(into, "groups", run_survivors, survivors, groups)
    last = replace(job, files=files_below(chosen, "stars"), known=(), ranks=())
    written = stage.tasks("stars/members", "groups", run_members, last, groups)
    summary = {
        "groups": sum_of(chosen, "groups"),
        "largest_group": max(record.summary["largest_group"] for record in chosen),
        "grouping_rounds": rounds,
    }
    for record in written:
        for name, count in record.summary.items():
            summary[name] = summary.get(name, 0) + count
    home.delete_tree("stars")
    return Grouped(files_below(written, "groups"), files_below(written, "drops"), (), summary)


def _linked_to_smallest(stage: Stage, job: NearJob) -> tuple[tuple[FileRecord, ...], int]:
    """Return links in both directions from every vertex to the smallest of its group, and the number of rounds."""
    _forget_lost_rounds(stage)
    rounds, changed = 0, 1
    while changed:
        done = _star_round(stage, job, rounds)
        job, changed = replace(job, files=done.files["links"], known=()), done.figures["changed"]
        rounds += 1
    return job.files, rounds


def _star_round(stage: Stage, job: NearJob, number: int) -> StageRecord:
    """Let every vertex link to smaller ones; delete the links of the round before, whose files a later round does not read."""
    name, used = f"stars/round-{number:03d}", list[FileRecord]()

    def make() -> StageRecord:
        title, into, groups = f"groups, round {number + 1}", f"{name}/large", len(job.groups)
        large = stage.tasks(into, title, run_large_star, replace(job, into=into), groups)
        sent, into = files_below(large, name), f"{name}/small"
        small = stage.tasks(into, title, run_small_star, replace(job, files=sent, known=(), into=into), groups)
        used.extend((*sent, *(job.files if number else ())))
        return StageRecord({"links": files_below(small, name)}, {"changed": sum_of([*large, *small], "changed")})

    done = stage.once(name, make, needs_files=False)
    stage.home.delete_all([file.name for file in used])
    return done


def _forget_lost_rounds(stage: Stage) -> None:
    """Discard all rounds if files of the newest are missing: they are then computed again from the edges."""
    newest, rounds = None, 0
    while (record := stage.record_of(f"stars/round-{rounds:03d}")) is not None:
        newest, rounds = record, rounds + 1
    if newest is not None and not stage.home.holds(newest.all_files):
        stage.home.delete_tree("stars")

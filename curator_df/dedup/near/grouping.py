# SPDX-License-Identifier: Apache-2.0
"""Last stage of a near-duplicate removal: group the edges, in the memory of one task or, if they are too many, on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import PIECE_ROWS, merge_slices
from curator_df.core.files.slice_file import SliceWriter, open_slices
from curator_df.core.files.storage import FileRecord, disk_errors
from curator_df.core.ranges.manifest import Manifest, files_below
from curator_df.core.runner.passes import Stage, StageRecord, sum_of
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.near.star_tasks import (
    run_large_star,
    run_members,
    run_small_star,
    run_survivors,
    run_vertices,
)
from curator_df.dedup.near.tasks import NearJob, edge_slices, load_near_job
from curator_df.exchange.exchange import DROP_WORDS, MEMBER_WORDS, drop_bounds
from curator_df.kernels.minhash.components import component_names

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
            raise MemoryError(f"{count:,} rows with edges need {needed:,} bytes")
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
            "going": int((ids[:rows] != survivors[:rows]).sum()),
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
    """Return the kept row for each row; ``places`` is the position in ``ids`` of the first row of its group."""
    if job.pending.keep == "first":
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
    return _write(job, "drops/part-000000.slices", DROP_WORDS, (ids, survivors), np.flatnonzero(ids != survivors))


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
    summary: dict[str, int]
    """Figures for the receipt."""


def group_rows(stage: Stage, job: NearJob) -> Grouped:
    """Return the groups that the edges of a job form, given the ranks of the rows."""
    home, groups = stage.home, len(job.groups)
    [done] = stage.tasks("groups", "groups", run_components, job, 1)
    if done.files:
        members, drops = done.files
        return Grouped((members,), (drops,), dict(done.summary))
    stars, rounds = _stars(stage, replace(job, ranks=()))
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
    return Grouped(files_below(written, "groups"), files_below(written, "drops"), summary)


def _stars(stage: Stage, job: NearJob) -> tuple[tuple[FileRecord, ...], int]:
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

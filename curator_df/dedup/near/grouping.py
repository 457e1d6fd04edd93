# SPDX-License-Identifier: Apache-2.0
"""Last stage of a near-duplicate removal: group the edges, in the memory of one task or, if they are too many, on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import PIECE_ROWS, merge_slices
from curator_df.core.files.slice_file import SliceWriter, open_slices
from curator_df.core.files.storage import FileRecord, Folder, disk_errors, split_files
from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.manifest import Manifest
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


Tasks = Callable[..., list[dict[str, Any]]]
"""Runner of a stage, ``tasks(name, title, task, count, **fields_of_the_job)``: runs its unfinished tasks, returns all results."""


@dataclass(frozen=True)
class Grouped:
    """Result of the grouping."""

    members: tuple[FileRecord, ...]
    """Files of (address, kept row, rows of the group) for all members, with a slice for each range."""
    drops: tuple[FileRecord, ...]
    """Files of (address, kept row) for the rows to drop, with a slice for each range."""
    summary: dict[str, int]
    """Figures for the receipt."""


def group_rows(
    tasks: Tasks,
    home: Folder,
    groups: int,
    *,
    files: tuple[FileRecord, ...],
    known: tuple[FileRecord, ...],
    ranks: tuple[FileRecord, ...],
) -> Grouped:
    """Return the groups that the edges form."""
    [done] = tasks("groups", "groups", run_components, 1, files=files, known=known, ranks=ranks)
    if done["files"]:
        members, drops = done["files"]
        return Grouped((members,), (drops,), done["summary"])
    stars, rounds = _stars(tasks, home, groups, files, known)
    sent = tasks("stars/vertices", "groups", run_vertices, groups, files=stars, ranks=ranks, into="stars/vertices")
    into = "stars/survivors"
    chosen = tasks(into, "groups", run_survivors, groups, files=split_files(sent, "stars"), into=into)
    written = tasks("stars/members", "groups", run_members, groups, files=split_files(chosen, "stars"))
    summary = {
        "groups": sum(manifest["summary"]["groups"] for manifest in chosen),
        "largest_group": max(manifest["summary"]["largest_group"] for manifest in chosen),
        "grouping_rounds": rounds,
    }
    for manifest in written:
        for name, count in manifest["summary"].items():
            summary[name] = summary.get(name, 0) + count
    home.delete_tree("stars")
    return Grouped(split_files(written, "groups"), split_files(written, "drops"), summary)


def _stars(
    tasks: Tasks, home: Folder, groups: int, files: tuple[FileRecord, ...], known: tuple[FileRecord, ...]
) -> tuple[tuple[FileRecord, ...], int]:
    """Return links in both directions from every vertex to the smallest of its group, and the number of rounds."""
    _forget_lost_rounds(home)
    rounds, changed = 0, 1
    while changed:
        name = f"stars/round-{rounds:03d}"
        with Journal(home.below(name)) as journal:
            if journal.receipt is None:
                title = f"groups, round {rounds + 1}"
                into = f"{name}/large"
                large = tasks(into, title, run_large_star, groups, files=files, known=known, into=into)
                into = f"{name}/small"
                small = tasks(into, title, run_small_star, groups, files=split_files(large, name), into=into)
                journal.finish(
                    {
                        "files": [vars(file) for file in split_files(small, name)],
                        "changed": sum(manifest["summary"]["changed"] for manifest in (*large, *small)),
                    }
                )
                used = split_files(large, name) + (files if rounds else ())
                for file in used:
                    if home.exists(file.name):
                        home.delete(file.name)
            said = journal.receipt or {}
        files, known, changed = tuple(FileRecord(**file) for file in said["files"]), (), said["changed"]
        rounds += 1
    return files, rounds


def _forget_lost_rounds(home: Folder) -> None:
    """Discard all rounds if files of the newest are missing: they are then computed again from the edges."""
    newest, rounds = None, 0
    while (said := Journal(home.below(f"stars/round-{rounds:03d}")).receipt) is not None:
        newest, rounds = said, rounds + 1
    if newest is not None and not home.holds([FileRecord(**file) for file in newest["files"]]):
        home.delete_tree("stars")

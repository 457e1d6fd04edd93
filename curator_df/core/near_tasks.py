# SPDX-License-Identifier: Apache-2.0
"""What runs on workers between the two passes of a near-duplicate drop, and after them: pure functions of files.

1. `run_buckets`, one for each hash range of a band: key rows into edges (`core.buckets`).
2. `run_pairs`, one for each group of ranges: the edges of an iteration and those known before into distinct ones.
3. `run_verify`, one for each group of ranges: pairs and their texts into edges with their similarity.
4. `run_components`, one: edges into groups, and the rows that go.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from curator_df.core.buckets import both_ways, reduce_buckets
from curator_df.core.exchange import DROP_WORDS, Exchange, drop_bounds
from curator_df.core.near_barrier import EDGE_WORDS, NearBarrier, NearGroups
from curator_df.core.pair_texts import pair_batches
from curator_df.core.row_order import Rows
from curator_df.core.row_sort import PIECE_ROWS, RowSorter, merge_slices
from curator_df.core.slice_file import Slice, SliceWriter, open_slices
from curator_df.core.storage import FileRecord, Folder, disk_errors
from curator_df.core.task import Attempt, Manifest, run_guarded
from curator_df.errors import BudgetError

SIMILARITY_BINS = 20
"""Of equal width from 0 to 1, in which compared pairs are counted."""
MEMBER_WORDS = 3
"""Address of a row, of the one of its group that stays, rows of the table in the group."""
VERTEX_BYTES = 64
"""Of `run_components` for each row that has an edge: id, name, place of the name, survivor, size, and working copies."""
COMPONENTS_FIXED_BYTES = 8_000_000
"""Of `run_components` besides: pieces of edges on their way, and writers."""


@dataclass(frozen=True)
class NearJob:
    """Everything about these tasks that is the same for all of a stage; each kind needs some of it."""

    folder: Folder
    """Where the files are."""
    groups: NearGroups
    """Of the ranges."""
    barrier: NearBarrier
    """What was asked for."""
    files: tuple[FileRecord, ...]
    """What the stage before left: of keys, edges, locations or edges again."""
    exchange: Exchange | None = None
    """Of the keys."""
    first_reducer: int = 0
    """Of the bands of this iteration."""
    known: tuple[FileRecord, ...] = ()
    """Edges with a file for each group and a slice for each range: those of earlier iterations, or all there are."""
    into: str = ""
    """Sub-folder to write to, where it is not always the same."""
    ranks: tuple[FileRecord, ...] = ()
    """A file for each range, of (address, rank)."""


@functools.lru_cache(maxsize=2)
def _load(job_bytes: bytes) -> NearJob:
    job: NearJob = cloudpickle.loads(job_bytes)
    return job


def run_buckets(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Merge a hash range of a band (of the contents, where the job's reducers begin after those of the bands)."""

    def work(manifest: Manifest) -> None:
        job = _load(job_bytes)
        if job.exchange is None:
            raise TypeError("no exchange; this is a defect in curator_df")
        number = job.first_reducer + attempt.piece.number
        of_contents = number * (job.barrier.num_bands + 1) // job.exchange.reducers >= job.barrier.num_bands
        found = reduce_buckets(
            job.exchange,
            number,
            job.files,
            groups=job.groups,
            anchors=None if of_contents else job.barrier.anchors,
            memory_bytes=attempt.block_bytes,
        )
        manifest.files, manifest.rows_read = [found.file], found.rows
        manifest.summary = {
            "buckets": found.buckets,
            "largest_bucket": found.largest_bucket,
            "spilled_bytes": found.spilled_bytes,
        }

    return run_guarded(attempt, work)


def run_pairs(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Put the edges of a group of ranges together, each once."""

    def work(manifest: Manifest) -> None:
        job, group = _load(job_bytes), attempt.piece.number
        slices = [*open_slices(job.folder, job.files, group), *_slices_of_known(job, group)]
        name = f"{job.into}/part-{group:06d}.slices"
        rows = 0
        with disk_errors(job.folder), job.folder.create(name) as file:
            writer = SliceWriter(file, EDGE_WORDS, job.groups.range_bounds(group))
            for distinct in _distinct(merge_slices(slices, memory_bytes=attempt.block_bytes)):
                writer.append(distinct)
                rows += len(distinct)
            writer.finish()
            manifest.files = [file.commit(rows)]

    return run_guarded(attempt, work)


def run_verify(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Compare the pairs whose smaller address is in a group of ranges; keep those that are similar enough."""

    def work(manifest: Manifest) -> None:
        job, group, memory_bytes = _load(job_bytes), attempt.piece.number, attempt.block_bytes
        barrier, found = job.barrier, np.zeros(SIMILARITY_BINS, dtype=np.int64)
        name = f"verified/part-{group:06d}.slices"
        sorter = RowSorter(job.folder, name, words=EDGE_WORDS, bounds=job.groups.bounds, memory_bytes=memory_bytes // 8)
        joined = 0
        try:
            slices = open_slices(job.folder, job.files, group)
            rows = merge_slices(slices, memory_bytes=memory_bytes // 4)
            # Texts are held twice while they are read.
            for batch in pair_batches(job.folder, job.groups, rows, memory_bytes=memory_bytes // 8):
                are_kept = batch.text_addresses.view(np.uint64) >= job.groups.first_kept
                similarities = barrier.similarities(
                    batch.texts, are_kept, batch.places, memory_bytes // 4, **barrier.parameters
                )
                places = np.minimum((similarities * SIMILARITY_BINS).astype(np.int64), SIMILARITY_BINS - 1)
                found += np.bincount(places, minlength=SIMILARITY_BINS)
                similar = similarities >= (barrier.verify or 0.0)
                joined += int(similar.sum())
                edges = batch.addresses[similar].view(np.uint64)
                sorter.append(both_ways(edges, similarities[similar].view(np.uint64)))
            manifest.files = [sorter.commit()]
        finally:
            sorter.discard()
        manifest.summary = {
            "joined": joined,
            "spilled_bytes": sorter.spilled_bytes,
            **{f"compared_{place}": int(count) for place, count in enumerate(found)},
        }

    return run_guarded(attempt, work)


def run_components(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Name the groups, choose who stays, and write (address, survivor, size) of all members and the rows that go."""

    def work(manifest: Manifest) -> None:
        job = _load(job_bytes)
        count = sum(len(ids) for ids in _vertices(job))
        needed = count * VERTEX_BYTES + COMPONENTS_FIXED_BYTES
        if needed > attempt.block_bytes and attempt.exclusive_bytes is None:
            raise MemoryError(f"{count:,} rows with edges need {needed:,} bytes")
        if attempt.exclusive_bytes is not None and needed > attempt.exclusive_bytes:
            raise BudgetError(
                f"{count:,} rows are similar to another one; to group them takes {needed:,} bytes, and alone on the node a "
                f"task has {attempt.exclusive_bytes:,}. Allow more memory= and resume: what is finished stays"
            )
        ids = np.empty(count, dtype=np.int64)
        at = 0
        for part in _vertices(job):
            ids[at : at + len(part)] = part
            at += len(part)
        names = job.barrier.components(ids, (np.ascontiguousarray(rows[:, :2]).view(np.int64) for rows in _edges(job)))
        places = np.searchsorted(ids, names)
        del names
        rows = int(np.searchsorted(ids.view(np.uint64), job.groups.first_kept))  # kept signatures come after them
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


def edge_slices(job: NearJob, group: int) -> list[Slice]:
    """Return all edges of a group of ranges: sorted when merged."""
    return [*open_slices(job.folder, job.files, group), *_slices_of_known(job, group)]


def _slices_of_known(job: NearJob, group: int) -> Iterator[Slice]:
    for place in range(len(job.groups.range_bounds(group)) if job.known else 0):
        yield from open_slices(job.folder, job.known[group : group + 1], place)


def _distinct(pieces: Iterator[Rows]) -> Iterator[Rows]:
    last: Any = None
    for rows in pieces:
        is_new = np.ones(len(rows), dtype=np.bool_)
        is_new[1:] = (rows[1:, :2] != rows[:-1, :2]).any(axis=1)
        is_new[0] = last is None or bool((rows[0, :2] != last).any())
        last = rows[-1, :2].copy()
        yield rows[is_new]


def _edges(job: NearJob) -> Iterator[Rows]:
    for group in range(len(job.groups)):
        yield from merge_slices(edge_slices(job, group), memory_bytes=COMPONENTS_FIXED_BYTES // 4)


def _vertices(job: NearJob) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the rows that have an edge, ascending, each once."""
    last = -1
    for rows in _edges(job):
        ids = rows[:, 0].view(np.int64) if rows.flags.c_contiguous else rows[:, 0].astype(np.int64)
        is_new = np.empty(len(ids), dtype=np.bool_)
        is_new[0] = ids[0] != last
        is_new[1:] = ids[1:] != ids[:-1]
        last = int(ids[-1])
        yield ids[is_new]


def _survivors(job: NearJob, ids: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the row that stays for each; ``places`` says where the first row of its group stands in ``ids``."""
    if job.barrier.keep == "first":
        return ids[places]
    chosen = np.empty(len(ids), dtype=np.int64)
    if job.barrier.keep == "last":
        chosen[places] = ids  # of several the last is what stays: ids ascend
        return chosen[places]
    values = _ranks_of(job, ids)
    best = np.full(len(ids), np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(best, places, values)
    are_best = np.flatnonzero(values == best[places])[::-1]  # the first comes last, and stays
    chosen[places[are_best]] = ids[are_best]
    return chosen[places]


def _prefer_kept(ids: npt.NDArray[np.int64], places: npt.NDArray[np.int64], survivors: Any, rows: int) -> None:
    """Where a group has kept signatures, put the first of them into ``survivors``: all rows of the group go."""
    if rows == len(ids):
        return
    chosen = np.full(len(ids), -1, dtype=np.int64)
    chosen[places[rows:][::-1]] = ids[rows:][::-1]  # of several the first is what stays
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
    """Write rows with a slice for each range."""
    with disk_errors(job.folder), job.folder.create(name) as file:
        writer = SliceWriter(file, words, drop_bounds(job.groups.starts))
        for start in range(0, len(chosen), PIECE_ROWS):
            part = chosen[start : start + PIECE_ROWS]
            writer.append(np.stack([column[part].astype(np.uint64) for column in columns], axis=1))
        writer.finish()
        return file.commit(len(chosen))

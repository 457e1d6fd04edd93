# SPDX-License-Identifier: Apache-2.0
"""Tasks of a near-duplicate removal between its two passes and after them: pure functions of files.

1. `run_buckets`, once per hash range of a band: turn key rows into edges (`dedup.near.buckets`).
2. `run_pairs`, once per group of ranges: merge the edges of an iteration with the known ones into distinct edges.
3. `run_verify`, once per group of ranges: turn pairs and their texts into edges with their similarity.

For the grouping of edges, and the rows to drop, see `group_tasks`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import RowSorter, merge_slices
from curator_df.core.files.slice_file import Slice, SliceWriter, open_slices
from curator_df.core.files.storage import FileRecord, Folder, disk_errors
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.near.buckets import both_ways, reduce_buckets
from curator_df.dedup.near.pair_texts import pair_batches
from curator_df.dedup.near.settings import EDGE_WORDS, NearSettings
from curator_df.exchange.exchange import Exchange
from curator_df.exchange.range_groups import RangeGroups

COMPARE_BYTES = 64 << 20
"""Maximum memory for shingles while two texts are compared, in bytes: texts of up to four million bytes are then read once."""
SIMILARITY_BINS = 20
"""Number of bins of equal width from 0 to 1 in which compared pairs are counted by similarity."""


@dataclass(frozen=True)
class NearJob:
    """Fields that all tasks of a stage share; each kind of task needs some of them."""

    folder: Folder
    """Folder of the files."""
    groups: RangeGroups
    """Groups of the ranges."""
    pending: NearSettings
    """Deferred operation, with the settings of the user."""
    files: tuple[FileRecord, ...]
    """Files of the previous stage: keys, edges, locations or again edges."""
    exchange: Exchange | None = None
    """Exchange of the keys."""
    first_reducer: int = 0
    """Number of the first reducer of this iteration's bands."""
    known: tuple[FileRecord, ...] = ()
    """Files of edges for one group of ranges each, with a slice for each range: those of earlier iterations, or all edges."""
    into: str = ""
    """Subfolder to write to, if it varies."""
    ranks: tuple[FileRecord, ...] = ()
    """Files of (address, rank), one for each range."""


@functools.lru_cache(maxsize=2)
def load_near_job(job_bytes: bytes) -> NearJob:
    """Return a job that was pickled for all its tasks."""
    job: NearJob = cloudpickle.loads(job_bytes)
    return job


def run_buckets(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Merge one hash range of a band, or of the contents if the job's reducers follow those of the bands."""

    def work(manifest: Manifest) -> None:
        job = load_near_job(job_bytes)
        if job.exchange is None:
            raise TypeError("no exchange; this is a defect in curator_df")
        number = job.first_reducer + attempt.piece.number
        of_contents = number * (job.pending.num_bands + 1) // job.exchange.reducers >= job.pending.num_bands
        found = reduce_buckets(
            job.exchange,
            number,
            job.files,
            groups=job.groups,
            anchors=None if of_contents else job.pending.anchors,
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
    """Merge the edges of a group of ranges, each once."""

    def work(manifest: Manifest) -> None:
        job, group = load_near_job(job_bytes), attempt.piece.number
        slices = [*open_slices(job.folder, job.files, group), *_slices_of_known(job, group)]
        name = f"{job.into}/part-{group:06d}.slices"
        rows, manifest.rows_read = 0, sum(piece.rows for piece in slices)
        with disk_errors(job.folder), job.folder.create(name) as file:
            writer = SliceWriter(file, EDGE_WORDS, job.groups.range_bounds(group))
            for distinct in distinct_rows(merge_slices(slices, memory_bytes=attempt.block_bytes)):
                writer.append(distinct)
                rows += len(distinct)
            writer.finish()
            manifest.files = [file.commit(rows)]

    return run_guarded(attempt, work)


def run_verify(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Compare the pairs whose smaller address is in a group of ranges, and keep those that are similar enough."""

    def work(manifest: Manifest) -> None:
        job, group, memory_bytes = load_near_job(job_bytes), attempt.piece.number, attempt.block_bytes
        pending, found = job.pending, np.zeros(SIMILARITY_BINS, dtype=np.int64)
        name = f"verified/part-{group:06d}.slices"
        sorter = RowSorter(job.folder, name, words=EDGE_WORDS, bounds=job.groups.bounds, memory_bytes=memory_bytes // 8)
        joined = text_bytes = 0
        compare_bytes = min(memory_bytes // 4, COMPARE_BYTES)
        try:
            slices = open_slices(job.folder, job.files, group)
            manifest.rows_read = sum(piece.rows for piece in slices)
            rows = merge_slices(slices, memory_bytes=memory_bytes // 4)
            # Texts are in memory twice while they are read.
            for batch in pair_batches(job.folder, job.groups, rows, memory_bytes=memory_bytes // 8):
                text_bytes = max(text_bytes, batch.texts.nbytes)
                are_kept = batch.text_addresses.view(np.uint64) >= job.groups.first_kept
                similarities = pending.similarities(batch.texts, are_kept, batch.places, compare_bytes)
                places = np.minimum((similarities * SIMILARITY_BINS).astype(np.int64), SIMILARITY_BINS - 1)
                found += np.bincount(places, minlength=SIMILARITY_BINS)
                similar = similarities >= (pending.verify or 0.0)
                joined += int(similar.sum())
                edges = batch.addresses[similar].view(np.uint64)
                sorter.append(both_ways(edges, similarities[similar].view(np.uint64)))
            manifest.files = [sorter.commit()]
        finally:
            sorter.discard()
        manifest.summary = {
            "joined": joined,
            "held_bytes": 2 * text_bytes + (compare_bytes if text_bytes else 0),
            "spilled_bytes": sorter.spilled_bytes,
            **{f"compared_{place}": int(count) for place, count in enumerate(found)},
        }

    return run_guarded(attempt, work)


def edge_slices(job: NearJob, group: int) -> list[Slice]:
    """Return all edges of a group of ranges as slices, which are sorted when merged."""
    return [*open_slices(job.folder, job.files, group), *_slices_of_known(job, group)]


def _slices_of_known(job: NearJob, group: int) -> Iterator[Slice]:
    for place in range(len(job.groups.range_bounds(group)) if job.known else 0):
        yield from open_slices(job.folder, job.known[group : group + 1], place)


def distinct_rows(pieces: Iterator[Rows]) -> Iterator[Rows]:
    """Yield the first row of each run of sorted rows with the same first two words."""
    last: Any = None
    for rows in pieces:
        is_new = np.ones(len(rows), dtype=np.bool_)
        is_new[1:] = (rows[1:, :2] != rows[:-1, :2]).any(axis=1)
        is_new[0] = last is None or bool((rows[0, :2] != last).any())
        last = rows[-1, :2].copy()
        yield rows[is_new]

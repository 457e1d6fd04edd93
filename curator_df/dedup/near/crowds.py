# SPDX-License-Identifier: Apache-2.0
"""Tasks that pair rows by the shingles that set them apart from their crowd, and that look up the texts of new pairs.

A bucket of pages from one template holds thousands of texts that are all alike, but not enough to be duplicates. Comparing each
with the anchors alone misses the pairs among the others, and comparing all costs the square of their number. A pair that is
more alike than the crowd shares shingles that the anchor lacks. So the smallest hashes of these are keys of their own, and rows
with a common key are compared (`run_own_pairs`). If a key is itself that of a crowd, its first row is the next anchor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.near.settings import EDGE_WORDS, IN_CROWD, UNKNOWN
from curator_df.dedup.near.tasks import (
    NearJob,
    add_figures,
    distinct_rows,
    edge_slices,
    ignored_table,
    load_near_job,
    reversed_edges,
    verify_group,
)
from curator_df.dedup.near.text_sink import LOCATION_WORDS, PLACE_WORDS, location_rows
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import PIECE_ROWS, RowSorter, merge_slices
from curator_df.files.slice_file import open_slices
from curator_df.files.sorted_rows import RowsUpTo, with_values

ALL_PAIRS = 4
"""Number of rows with a common key up to which all pairs are made of them."""


FOUND_BINS = 200
"""Number of bins of equal width from 0 to 1 in which similar pairs are counted."""
CROWD_EDGES = "verified/crowds/"
"""Beginning of the names of the files of edges that were found in crowds."""


class OwnPairs:
    """Pairs of the rows with a common key, over pieces of sorted keys: each row with the first and with the two before it."""

    def __init__(self) -> None:
        self._held: Any = np.empty((0, 3), dtype=np.uint64)

    def of(self, rows: Rows) -> Rows:
        """Return edges of distinct keys (hash, address) that follow those of the last call; at least one."""
        held = len(self._held)
        joined = np.zeros((held + len(rows), 3), dtype=np.uint64)
        joined[:held], joined[held:, :2] = self._held, rows
        begins = np.ones(len(joined), dtype=np.bool_)
        begins[1:] = joined[1:, 0] != joined[:-1, 0]
        places = np.arange(len(joined))
        starts = np.maximum.accumulate(np.where(begins, places, 0))
        ranks = places - starts
        if held:  # the held rows are not all that came before
            goes_on = places >= held
            goes_on &= starts == 0
            ranks[goes_on] += int(self._held[-1, 2]) + 1 - held
            ranks[:held] = self._held[:, 2]
        joined[:, 2] = ranks
        new = places >= held
        parts = []
        for back in (1, 2):
            members = np.flatnonzero(new & (ranks >= back))
            bits = np.full(len(members), UNKNOWN)
            parts.append(np.stack([joined[members, 1], joined[members - back, 1], bits], axis=1))
        members = np.flatnonzero(new & (ranks > 2))
        bits = np.where(ranks[members] >= ALL_PAIRS, IN_CROWD, UNKNOWN)
        parts.append(np.stack([joined[members, 1], joined[starts[members], 1], bits], axis=1))
        crowded = np.flatnonzero(new & (ranks == ALL_PAIRS))
        for rank in range(1, ALL_PAIRS):
            firsts = starts[crowded]
            bits = np.full(len(crowded), IN_CROWD)
            parts.append(np.stack([joined[firsts + rank, 1], joined[firsts, 1], bits], axis=1))
        self._held = _last_key(joined[starts[-1] :])
        return np.concatenate(parts)


def _last_key(rows: Rows) -> Rows:
    """Return the first rows of the last key, and its last two."""
    if len(rows) <= ALL_PAIRS + 2:
        return rows.copy()
    return np.concatenate([rows[:ALL_PAIRS], rows[-2:]])


def run_own_pairs(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Merge one hash range of the keys of rows in crowds (or all), and write the edges of rows with a common key."""

    def work(manifest: Manifest) -> None:
        job = load_near_job(job_bytes)
        for number in _numbers(job, attempt):
            _pair_range(job, number, attempt.block_bytes, manifest)

    return run_guarded(attempt, work)


def run_locate(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Write where the texts are of the rows of a group of ranges that have new edges, for `tasks.run_verify`."""

    def work(manifest: Manifest) -> None:
        _locate_group(load_near_job(job_bytes), attempt.piece.number, attempt.block_bytes, manifest)

    return run_guarded(attempt, work)


def run_compare_few(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Compare all pairs of new edges in one task, as `run_locate` and `tasks.run_verify` do in many."""

    def work(manifest: Manifest) -> None:
        job, located = load_near_job(job_bytes), Manifest(attempt.piece.number)
        for group in range(len(job.groups)):
            _locate_group(job, group, attempt.block_bytes, located)
        add_figures(manifest, located=located.summary["located"])
        if located.summary["located"]:
            pairs, ignored = replace(job, files=tuple(located.files)), ignored_table(job)
            for group in range(len(job.groups)):
                verify_group(pairs, group, attempt.block_bytes, manifest, ignored)
        job.folder.delete_all([file.name for file in located.files])

    return run_guarded(attempt, work)


def run_count(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Count the distinct pairs that were similar enough, by similarity: of bands alone, and of crowds."""

    def work(manifest: Manifest) -> None:
        job, memory_bytes = load_near_job(job_bytes), attempt.block_bytes
        crowds = tuple(file for file in job.files if file.name.startswith(CROWD_EDGES))
        all_pairs, of_crowds = (np.zeros(FOUND_BINS, dtype=np.int64) for _ in range(2))
        for group in _numbers(job, attempt):
            for counts, files in ((all_pairs, job.files), (of_crowds, crowds)):
                slices = open_slices(job.folder, files, group)
                manifest.rows_read += sum(piece.rows for piece in slices)
                for rows in distinct_rows(merge_slices(slices, memory_bytes=memory_bytes)):
                    similarities = rows[rows[:, 0] < rows[:, 1], 2].copy().view(np.float64)
                    bins = np.minimum((similarities * FOUND_BINS).astype(np.int64), FOUND_BINS - 1)
                    counts[:] += np.bincount(bins, minlength=FOUND_BINS)
        for name, found in (("crowd", of_crowds), ("band", all_pairs - of_crowds)):
            add_figures(manifest, **{f"{name}_{place}": int(count) for place, count in enumerate(found) if count})

    return run_guarded(attempt, work)


def _numbers(job: NearJob, attempt: Attempt) -> Sequence[int]:
    return range(len(job.groups)) if job.at_once else (attempt.piece.number,)


def _pair_range(job: NearJob, number: int, memory_bytes: int, manifest: Manifest) -> None:
    slices = open_slices(job.folder, job.files, number)
    manifest.rows_read += sum(piece.rows for piece in slices)
    name, bounds = f"{job.into}/pairs-{number:06d}.slices", job.groups.bounds
    sorter = RowSorter(job.folder, name, words=EDGE_WORDS, bounds=bounds, memory_bytes=memory_bytes // 2)
    pairs = OwnPairs()
    try:
        for rows in distinct_rows(merge_slices(slices, memory_bytes=memory_bytes // 2)):
            for start in range(0, len(rows), PIECE_ROWS):
                edges = pairs.of(rows[start : start + PIECE_ROWS])
                sorter.append(edges)
                sorter.append(reversed_edges(edges))
        manifest.files.append(sorter.commit())
    finally:
        sorter.discard()
    add_figures(manifest, spilled_bytes=sorter.spilled_bytes)


def _locate_group(job: NearJob, group: int, memory_bytes: int, manifest: Manifest) -> None:
    slices = edge_slices(job, group)
    manifest.rows_read += sum(piece.rows for piece in slices)
    name, bounds = f"{job.into}/located-{group:06d}.slices", job.groups.bounds
    sorter = RowSorter(job.folder, name, words=LOCATION_WORDS, bounds=bounds, memory_bytes=memory_bytes // 2)
    places = RowsUpTo(_places_of(job, group), PLACE_WORDS)
    missing = (
        f"the temporary files in {job.folder.url} lack a text of rows to compare. Delete the folder, and run again"
    )
    edges = distinct_rows(merge_slices(slices, memory_bytes=memory_bytes // 4))
    if (asked := job.round) is not None:  # pairs that were compared in an earlier round have its number
        edges = (rows[rows[:, 2] == np.uint64(asked)] for rows in edges)
    try:
        for rows, found in with_values(edges, places, missing):
            sorter.append(location_rows(rows, found[:, 1:]))
        manifest.files.append(sorter.commit())
    finally:
        sorter.discard()
    add_figures(manifest, located=sorter.rows, spilled_bytes=sorter.spilled_bytes)


def _places_of(job: NearJob, group: int) -> Iterator[Rows]:
    first = group * job.groups.per_group
    for file in job.places:
        number = int(PurePosixPath(file.name).stem.rpartition("-")[2])
        if first <= number < first + job.groups.per_group:
            yield from merge_slices(open_slices(job.folder, (file,), 0), memory_bytes=1_000_000)

# SPDX-License-Identifier: Apache-2.0
"""Tasks of near-duplicate detection: make candidate pairs of matching signatures, and keep those that are similar enough.

1. `run_buckets`, once per hash range of a band: turn key rows into edges (`reduce_buckets`).
2. `run_pairs`, once per group of ranges: merge the edges of an iteration with the known ones into distinct edges.
3. `run_verify`, once per group of ranges: turn pairs and their texts into edges with their similarity.

For the grouping of edges, and the rows to drop, see `grouping`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.near.frequent_files import read_checked
from curator_df.dedup.near.keys import ROW_BIT
from curator_df.dedup.near.pair_texts import PairBatch, pair_batches
from curator_df.dedup.near.settings import EDGE_WORDS, IN_CROWD, UNKNOWN, NearSettings
from curator_df.errors import ParameterError
from curator_df.exchange.exchange import Exchange, hash_bounds
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import PIECE_ROWS, RowSorter, merge_slices
from curator_df.files.slice_file import Slice, SliceWriter, open_slices
from curator_df.files.storage import FileRecord, Folder, disk_errors
from curator_df.kernels.minhash.jaccard import NOTHING_IGNORED, hash_table


@dataclass(frozen=True)
class Bucketed:
    """Result of one reduce task."""

    number: int
    """Number of the reducer."""
    file: FileRecord
    """File of the edges; its ``rows`` counts them."""
    rows: int
    """Number of bucket rows merged."""
    buckets: int
    """Number of distinct buckets."""
    largest_bucket: int
    """Number of distinct contents in the fullest bucket; the number of rows if all have the same content."""
    read_bytes: int
    """Bytes read from the files of the map tasks."""
    spilled_bytes: int
    """Bytes of edges that were sorted in the scratch directory."""
    seconds: float
    """Wall time in seconds."""


@dataclass(frozen=True)
class OpenBucket:
    """State of the last bucket, which may continue in the next piece."""

    first_rows: Rows = field(default_factory=lambda: np.empty((0, 3), dtype=np.uint64))
    """Array of shape (at most 2 x anchors + 2, 3): its first kept signatures, and two more of its first rows."""
    rows: int = 0
    """Number of rows seen so far."""
    last: tuple[int, int] = (-1, -1)
    """Bucket and content of the last row."""


def reduce_buckets(
    exchange: Exchange,
    number: int,
    files: Sequence[FileRecord],
    *,
    groups: RangeGroups,
    anchors: int | None,
    memory_bytes: int,
    scratch: str | None = None,
) -> Bucketed:
    """Merge one reducer's slices of all map files, and write the edges of their buckets.

    Parameters
    ----------
    exchange : Exchange
        Exchange that the files belong to.
    number : int
        Number of the reducer.
    files : sequence of FileRecord
        Files that every `KeyWriter` committed, with ``keep="first"``.
    groups : RangeGroups
        Groups of the ranges, for the slices of the edges.
    anchors : int or None
        Number of first rows of a bucket that each later row is paired with. None: a bucket is the rows with the same content,
        each is paired with the first of them, and the similarity is 1.
    memory_bytes : int
        Maximum working memory: one half merges, the other sorts the edges.
    scratch : str, optional
        Local directory for spilled data. Default: the system's directory for temporary files.

    Raises
    ------
    CorruptFileError
        If a page does not match its checksum; names file and offset. Nothing is committed.
    ParameterError
        If anchors is less than 1.
    """
    if anchors is not None and anchors < 1:
        raise ParameterError(f"reduce_buckets: anchors={anchors} is less than the minimum of 1. Use 1 or more")
    started = time.perf_counter()
    slices = open_slices(exchange.folder, files, number)
    sorter = RowSorter(
        exchange.folder,
        f"edges/reduced-{number:06d}.slices",
        words=EDGE_WORDS,
        bounds=groups.bounds,
        memory_bytes=memory_bytes // 2,
        scratch=scratch,
    )
    rows = buckets = largest = 0
    last = OpenBucket()
    try:
        for merged in merge_slices(slices, memory_bytes=memory_bytes // 2, scratch=scratch):
            for start in range(0, len(merged), PIECE_ROWS):
                piece = merged[start : start + PIECE_ROWS]
                if anchors is None:
                    edges, begun, fullest, last = same_contents(piece, last)
                    edges = edges[edges[:, 1] < groups.first_kept]  # two kept signatures are not a pair
                    sorter.append(both_ways(edges, np.full(len(edges), _SAME)))
                else:
                    edges, begun, fullest, last = edges_of(piece, last, anchors)
                    sorter.append(edges)
                    sorter.append(reversed_edges(edges))
                rows, buckets, largest = rows + len(piece), buckets + begun, max(largest, fullest)
        file = sorter.commit()
    finally:
        sorter.discard()
    read_bytes = sum(piece.size_bytes for piece in slices)
    seconds = time.perf_counter() - started
    return Bucketed(number, file, rows, buckets, largest, read_bytes, sorter.spilled_bytes, seconds)


def both_ways(edges: Rows, similarities: Rows) -> Rows:
    """Return rows (row, other, bits of the similarity) for each edge, followed by the reversed edges."""
    rows = np.empty((2 * len(edges), EDGE_WORDS), dtype=np.uint64)
    rows[: len(edges), :2], rows[len(edges) :, :2] = edges, edges[:, ::-1]
    rows[: len(edges), 2] = rows[len(edges) :, 2] = similarities
    return rows


_SAME = np.float64(1.0).view(np.uint64)


def reversed_edges(edges: Rows) -> Rows:
    """Return edges of unknown similarity from the other row of each edge."""
    rows = np.empty_like(edges)
    rows[:, 0], rows[:, 1], rows[:, 2] = edges[:, 1], edges[:, 0], UNKNOWN
    return rows


def edges_of(rows: Rows, before: OpenBucket, anchors: int) -> tuple[Rows, int, int, OpenBucket]:
    """Return the edges of some bucket rows, the number of new buckets, the size of the fullest one, and the last bucket.

    An edge is (row, anchor, `IN_CROWD` or `UNKNOWN`). Rows of a crowd are those that are not compared with all others of their
    bucket: neither anchors, nor the only other row.

    Parameters
    ----------
    rows : ndarray of uint64, shape (rows, 3)
        Sorted bucket rows (bucket, content, address) that follow those of the last call; at least one. Contents without
        `ROW_BIT` are kept signatures: rows are also paired with the first of these, but kept signatures are never paired
        with each other.
    before : OpenBucket
        Last bucket that the previous call returned.
    anchors : int
        Number of first rows, as in `reduce_buckets`.

    Examples
    --------
    >>> rows = np.array([[1, 3, 90], [1, 4, 10], [1, 5, 20], [1, 5, 25], [1, 6, 30], [2, 0, 10]], dtype=np.uint64)
    >>> rows[1:, 1] |= ROW_BIT
    >>> edges, buckets, fullest, _ = edges_of(rows, OpenBucket(), 2)
    >>> edges[:, :2].tolist(), buckets, fullest
    ([[20, 10], [30, 10], [10, 90], [20, 90], [30, 90], [30, 20]], 2, 4)
    """
    begun, last = _buckets_begun(rows, before), (int(rows[-1, 0]), int(rows[-1, 1]))
    rows = _in_company(rows, before)
    is_other = np.empty(len(rows), dtype=np.bool_)
    is_other[0] = (int(rows[0, 0]), int(rows[0, 1])) != before.last
    is_other[1:] = (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] != rows[:-1, 1])
    # The first rows of the open bucket come first, so that it continues like any other bucket.
    joined = np.concatenate([before.first_rows, rows[is_other]])
    held, places, is_row = len(before.first_rows), np.arange(len(joined)), joined[:, 1] >= ROW_BIT
    begins = np.ones(len(joined), dtype=np.bool_)
    begins[1:] = joined[1:, 0] != joined[:-1, 0]
    starts = np.maximum.accumulate(np.where(begins, places, 0))
    rows_begin = begins.copy()
    rows_begin[1:] |= is_row[1:] != is_row[:-1]
    row_starts = np.maximum.accumulate(np.where(rows_begin, places, 0))
    later = is_row & (places >= held)
    lengths = np.diff(np.append(np.flatnonzero(rows_begin), len(joined)))
    in_crowd = is_row & (places - row_starts >= anchors) & (np.repeat(lengths, lengths) > anchors + 1)
    # A row that was the only one after the anchors is in a crowd as soon as there is another.
    now_in_crowd = later | (in_crowd & (np.count_nonzero(is_row[:held]) == anchors + 1))
    parts = []
    for anchor in range(anchors):
        for first, stop, chosen in ((row_starts, places, now_in_crowd), (starts, row_starts, later)):
            members = np.flatnonzero(chosen & (stop - first > anchor))
            bits = np.where(in_crowd[members] & (first is row_starts), IN_CROWD, UNKNOWN)
            parts.append(np.stack([joined[members, 2], joined[first[members] + anchor, 2], bits], axis=1))
    sizes = np.diff(np.append(np.flatnonzero(begins), len(joined)))
    sizes[0] += before.rows - held
    open_rows, are_rows = joined[starts[-1] :], is_row[starts[-1] :]
    first_rows = np.concatenate([open_rows[~are_rows][:anchors], open_rows[are_rows][: anchors + 2]])
    after = OpenBucket(first_rows, int(sizes[-1]), last)
    return np.concatenate(parts), begun, int(sizes.max()), after


def _buckets_begun(rows: Rows, before: OpenBucket) -> int:
    goes_on = int(rows[0, 0]) == before.last[0]
    return 1 - goes_on + int(np.count_nonzero(rows[1:, 0] != rows[:-1, 0]))


def _in_company(rows: Rows, before: OpenBucket) -> Rows:
    """Return the rows that share a bucket, and the last row: the buckets of most texts have only one row."""
    is_shared = np.empty(len(rows), dtype=np.bool_)
    is_shared[0] = int(rows[0, 0]) == before.last[0]
    is_shared[1:] = rows[1:, 0] == rows[:-1, 0]
    is_shared[:-1] |= is_shared[1:].copy()
    is_shared[-1] = True
    return rows[is_shared]


def same_contents(rows: Rows, before: OpenBucket) -> tuple[Rows, int, int, OpenBucket]:
    """Return edges as `edges_of` does, with the rows of the same two words as a bucket, each paired with the first of them.

    Examples
    --------
    >>> rows = np.array([[1, 3, 10], [1, 4, 20], [1, 4, 25], [1, 4, 30]], dtype=np.uint64)
    >>> same_contents(rows, OpenBucket())[0].tolist()
    [[25, 20], [30, 20]]
    """
    held = len(before.first_rows)
    joined = np.concatenate([before.first_rows, rows])
    begins = np.ones(len(joined), dtype=np.bool_)
    begins[1:] = (joined[1:, 0] != joined[:-1, 0]) | (joined[1:, 1] != joined[:-1, 1])
    starts = np.maximum.accumulate(np.where(begins, np.arange(len(joined)), 0))
    members = np.flatnonzero(~begins)
    members = members[members >= held]
    edges = np.stack([joined[members, 2], joined[starts[members], 2]], axis=1)
    sizes = np.diff(np.append(np.flatnonzero(begins), len(joined)))
    sizes[0] += before.rows - held
    after = OpenBucket(joined[starts[-1] : starts[-1] + 1].copy(), int(sizes[-1]))
    return edges, int(begins[held:].sum()), int(sizes.max()), after


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
    places: tuple[FileRecord, ...] = ()
    """Files with the places of texts, in ascending order of addresses."""
    same: tuple[FileRecord, ...] = ()
    """Files of the edges between rows with the same text, which are among ``files``."""
    at_once: bool = False
    """Whether one task does the work of all groups of ranges, because it is little."""
    documents: int = 0
    """Number of rows of the input, for the share of documents that have a shingle."""
    ignored: FileRecord | None = None
    """File of the shingles that do not make texts similar; None if there are none."""
    round: int | None = None
    """Number of the round of questions (`links`); the third word of an edge is then that of the round that asked for it first."""


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
            raise TypeError(
                "a task that compares rows did not get the keys of the rows. This is a defect in curator_df; please report "
                "it with this traceback"
            )
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
    """Compare the pairs whose smaller address is in a group of ranges, and keep those that are similar enough.

    The second file has the keys of rows in crowds: hashes of shingles that a row has and its anchor lacks (`crowds`).
    """

    def work(manifest: Manifest) -> None:
        job = load_near_job(job_bytes)
        verify_group(job, attempt.piece.number, attempt.block_bytes, manifest, ignored_table(job))

    return run_guarded(attempt, work)


def ignored_table(job: NearJob) -> npt.NDArray[np.uint64]:
    """Return the table of the shingles that do not make texts similar."""
    if job.ignored is None:
        return NOTHING_IGNORED
    return hash_table(np.frombuffer(read_checked(job.folder, job.ignored), dtype=np.uint64))


def verify_group(
    job: NearJob, group: int, memory_bytes: int, manifest: Manifest, ignored: npt.NDArray[np.uint64]
) -> None:
    """Compare the pairs of a group of ranges, as `run_verify` does; add files and figures to a manifest."""
    pending, found = job.pending, np.zeros(SIMILARITY_BINS, dtype=np.int64)
    verified = _sorter(job, f"verified/{job.into}/part-{group:06d}.slices", EDGE_WORDS, job.groups.bounds, memory_bytes)
    bounds = hash_bounds(len(job.groups))
    keys = _sorter(job, f"crowd-keys/{job.into}/part-{group:06d}.slices", CROWD_WORDS, bounds, memory_bytes)
    joined = text_bytes = 0
    compare_bytes = min(memory_bytes // 4, COMPARE_BYTES)
    try:
        slices = open_slices(job.folder, job.files, group)
        manifest.rows_read += sum(piece.rows for piece in slices)
        rows = merge_slices(slices, memory_bytes=memory_bytes // 4)
        # Texts are in memory twice while they are read.
        for batch in pair_batches(job.folder, job.groups, rows, memory_bytes=memory_bytes // 8):
            text_bytes = max(text_bytes, batch.texts.nbytes)
            are_kept = batch.text_addresses.view(np.uint64) >= job.groups.first_kept
            both = pending.similarities(batch.texts, are_kept, batch.places, compare_bytes, ignored)
            similarities = both.min(axis=1)
            places = np.minimum((similarities * SIMILARITY_BINS).astype(np.int64), SIMILARITY_BINS - 1)
            found += np.bincount(places, minlength=SIMILARITY_BINS)
            similar = similarities >= (pending.verify or 0.0)
            joined += int(similar.sum())
            edges = batch.addresses[similar].view(np.uint64)
            verified.append(both_ways(edges, similarities[similar].view(np.uint64)))
            _append_crowd_keys(keys, batch, both[:, 0], pending, compare_bytes, ignored)
        manifest.files += [verified.commit(), keys.commit()]
    finally:
        verified.discard()
        keys.discard()
    held_bytes = 2 * text_bytes + (compare_bytes if text_bytes else 0)
    add_figures(
        manifest,
        joined=joined,
        spilled_bytes=verified.spilled_bytes + keys.spilled_bytes,
        **{f"compared_{place}": int(count) for place, count in enumerate(found)},
    )
    manifest.summary["held_bytes"] = max(manifest.summary.get("held_bytes", 0), held_bytes)


def add_figures(manifest: Manifest, **figures: int) -> None:
    """Add figures to those of a manifest."""
    for name, number in figures.items():
        manifest.summary[name] = manifest.summary.get(name, 0) + number


def _sorter(job: NearJob, name: str, words: int, bounds: Rows, memory_bytes: int) -> RowSorter:
    return RowSorter(job.folder, name, words=words, bounds=bounds, memory_bytes=memory_bytes // 16)


CROWD_WORDS = 2
"""Words of a key of a row in a crowd: hash of a shingle, address of the row."""
LEAST_LIKE_ANCHOR = 0.5
"""Minimum similarity of a row to the anchor of its crowd, as a share of the threshold."""


def _append_crowd_keys(
    keys: RowSorter, batch: PairBatch, similarities: Any, pending: NearSettings, memory_bytes: int, ignored: Any
) -> None:
    if not pending.finds_crowds:
        return
    is_like = similarities >= LEAST_LIKE_ANCHOR * (pending.verify or 0.0)
    for side in (0, 1):
        chosen = np.flatnonzero(batch.in_crowd[:, side] & is_like)
        pairs = batch.places[chosen][:, [side, 1 - side]]
        hashes, numbers = pending.residuals(batch.texts, pairs, memory_bytes, ignored)
        keys.append(np.stack([hashes, batch.addresses[chosen, side].view(np.uint64)[numbers]], axis=1))


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

# SPDX-License-Identifier: Apache-2.0
"""Tasks that run after the pass that wrote the vectors: pure functions of files.

1. `run_sample`, once per group of ranges: choose some of their vectors by content.
2. `run_fit`, once: compute centroids from the vectors of all samples.
3. `run_assign`, once per group of ranges: sort the vectors by cluster, and within it in the order of preference to be kept.

For the groups of a cluster, and the rows to drop, see `stages`.
"""

from __future__ import annotations

import functools
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.vectors.settings import VECTOR_HEAD, VectorSettings
from curator_df.dedup.vectors.vector_math import from_words, hash_words, nearest_centroids, unit_rows
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import RowSorter, merge_slices
from curator_df.files.slice_file import Bounds, damaged, open_slices, wrong
from curator_df.files.storage import FileRecord, Folder, disk_errors
from curator_df.memory.sizes import show_sizes

CLUSTER_HEAD = 3
"""Number of words before a vector in the rows of clusters: cluster and the upper half of the rank, the rank, address."""
LEAST_OF_SAMPLE = 0.5
"""Minimum fraction of the wanted sample; with less, more of the vectors are sampled."""
DISTANCE_STEP = 1e-6
"""Difference below which distances to a centroid count as equal: k-means has its centroids as float32."""
CENTROIDS = "centroids/centroids.npy"
PIECE_BYTES = 4_000_000
"""Size of a batch of vectors as float64, in bytes."""
_HALF = np.uint64(32)


@dataclass(frozen=True)
class VectorJob:
    """Fields that all tasks of a stage share; each kind of task needs some of them."""

    folder: Folder
    """Folder of the files."""
    groups: RangeGroups
    """Groups of the ranges."""
    pending: VectorSettings
    """Deferred operation, with the settings of the user."""
    files: tuple[FileRecord, ...]
    """Files of the previous stage."""
    sample: int = 0
    """Number of vectors from which clusters are found."""
    fraction: float = 1.0
    """Fraction of the distinct vectors that may be in the sample."""
    look: int = 0
    """Number of earlier samples that were too small because many vectors are equal."""
    clusters: int = 0
    """Number of clusters."""
    bounds: Bounds | None = None
    """Smallest first word of each part into which the clusters are split."""
    checksum: int = 0
    """CRC-32 of the file of centroids."""


@functools.lru_cache(maxsize=2)
def load_vector_job(job_bytes: bytes) -> VectorJob:
    """Return a job that was pickled for all its tasks."""
    job: VectorJob = cloudpickle.loads(job_bytes)
    return job


def run_sample(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Write the distinct vectors of a group of ranges whose hash is below a bound, sorted by hash."""

    def work(manifest: Manifest) -> None:
        job = load_vector_job(job_bytes)
        pending, most = job.pending, np.uint64(min(int(job.fraction * (1 << 64)), (1 << 64) - 1))
        sorter = RowSorter(
            job.folder,
            f"sample/{job.look}-{attempt.piece.number:06d}.slices",
            words=1 + pending.words,
            bounds=np.zeros(1, dtype=np.uint64),
            memory_bytes=attempt.block_bytes // 3,
        )
        try:
            for rows in _group_vectors(job, attempt):
                hashes = hash_words(rows[:, VECTOR_HEAD:], pending.seed)
                _, first = np.unique(hashes, return_index=True)
                chosen = first[hashes[first] <= most]
                sorter.append(np.column_stack([hashes[chosen], rows[chosen, VECTOR_HEAD:]]))
            manifest.files = [sorter.commit()]
        finally:
            sorter.discard()
        manifest.summary = {"spilled_bytes": sorter.spilled_bytes}

    return run_guarded(attempt, work)


def run_fit(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Compute centroids from the sampled vectors with the lowest hashes; none if the sample is too small and others remain."""

    def work(manifest: Manifest) -> None:
        job = load_vector_job(job_bytes)
        pending, needed = job.pending, job.pending.fit_bytes(job.clusters)
        if needed > attempt.block_bytes and attempt.exclusive_bytes is None:
            need, has = show_sizes(needed, attempt.block_bytes)
            raise MemoryError(
                f"k-means with num_clusters={job.clusters} needs {need}, but this task has {has}. Set a smaller num_clusters=, "
                "or start the workers with a larger memory="
            )
        sample: npt.NDArray[np.float32] = np.empty((job.sample, pending.width), dtype=np.float32)
        slices = [piece for file in job.files for piece in open_slices(job.folder, (file,), 0)]
        taken, last = 0, None
        for rows in merge_slices(slices, memory_bytes=min(attempt.block_bytes // 4, PIECE_BYTES)):
            is_new = np.ones(len(rows), dtype=np.bool_)
            is_new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
            is_new[0] = last is None or bool((rows[0] != last).any())
            last = rows[-1].copy()
            chosen = rows[is_new][: job.sample - taken]
            units = unit_rows(from_words(chosen[:, 1:], pending.width, pending.dtype))
            sample[taken : taken + len(chosen)] = units
            taken += len(chosen)
            if taken == job.sample:
                break
        manifest.summary = {"clusters": 0, "sampled": taken}
        if taken < job.sample * LEAST_OF_SAMPLE and job.fraction < 1:
            return
        clusters = min(job.clusters, taken)
        centroids = np.ascontiguousarray(pending.fit(sample[:taken], clusters, pending.seed), dtype=np.float64)
        content = io.BytesIO()
        np.save(content, centroids)
        with disk_errors(job.folder), job.folder.create(CENTROIDS) as file:
            file.write(content.getvalue())
            manifest.files = [file.commit(clusters)]
        manifest.summary = {"clusters": clusters, "sampled": taken, "checksum": zlib.crc32(content.getvalue())}

    return run_guarded(attempt, work)


def run_assign(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Write the vectors of a group of ranges by cluster, each cluster in the order of preference to be kept."""

    def work(manifest: Manifest) -> None:
        job = load_vector_job(job_bytes)
        pending, centroids = job.pending, _centroids(job)
        if job.bounds is None:
            raise TypeError(
                "a task that sorts vectors by cluster did not get the sizes of the clusters. This is a defect in "
                "curator_df; please report it with this traceback"
            )
        sorter = RowSorter(
            job.folder,
            f"clusters/part-{attempt.piece.number:06d}.slices",
            words=CLUSTER_HEAD + pending.words,
            bounds=job.bounds,
            memory_bytes=attempt.block_bytes // 3,
        )
        try:
            for rows in _group_vectors(job, attempt):
                vectors = rows[:, VECTOR_HEAD:]
                units = unit_rows(from_words(vectors, pending.width, pending.dtype))
                clusters, distances = nearest_centroids(units, centroids)
                ranks = _ranks(pending, rows, distances)
                placed = clusters.view(np.uint64) << _HALF | ranks >> _HALF
                sorter.append(np.column_stack([placed, ranks, stored_addresses(pending, rows[:, 0]), vectors]))
            manifest.files = [sorter.commit()]
        finally:
            sorter.discard()
        manifest.summary = {"spilled_bytes": sorter.spilled_bytes}

    return run_guarded(attempt, work)


def cluster_bounds(clusters: int, parts: int) -> Bounds:
    """Return the smallest first word of each part into which clusters are split.

    Examples
    --------
    >>> [int(bound) >> 32 for bound in cluster_bounds(10, 4)]
    [0, 3, 5, 8]
    """
    return np.array([-(-number * clusters // parts) << 32 for number in range(parts)], dtype=np.uint64)


def _group_vectors(job: VectorJob, attempt: Attempt) -> Iterator[Rows]:
    """Yield the vectors of a group of ranges in batches."""
    first = attempt.piece.number * job.groups.per_group
    most = max(PIECE_BYTES // (8 * job.pending.width), 16)
    for file in job.files[first : first + job.groups.per_group]:
        slices = open_slices(job.folder, (file,), 0)
        for rows in merge_slices(slices, memory_bytes=min(attempt.block_bytes // 4, 2 * PIECE_BYTES)):
            for start in range(0, len(rows), most):
                yield rows[start : start + most]


def _ranks(pending: VectorSettings, rows: Rows, distances: npt.NDArray[np.float32]) -> npt.NDArray[np.uint64]:
    """Return numbers whose ascending order is the comparison order of the rows of a cluster; the first row of a group is kept."""
    if pending.ranking is not None:
        return rows[:, 1]
    if pending.keep == "random":
        return hash_words(rows[:, VECTOR_HEAD:], pending.seed + 1)
    rising = (distances / DISTANCE_STEP).round().astype(np.uint64) << _HALF
    return rising if pending.keep == "easy" else ~rising


def stored_addresses(pending: VectorSettings, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Convert addresses to the order of rows with equal rank, and back: with "hard" the last comes first, as in NeMo Curator."""
    return ~addresses if pending.keep == "hard" else addresses


def _centroids(job: VectorJob) -> npt.NDArray[np.float64]:
    content = job.folder.read(CENTROIDS)
    if zlib.crc32(content) != job.checksum:
        raise damaged(job.folder.path(CENTROIDS), wrong("file", 0))
    centroids: Any = np.load(io.BytesIO(content), allow_pickle=False)
    return centroids  # type: ignore[no-any-return]

# SPDX-License-Identifier: Apache-2.0
"""Last two kinds of task of a removal of similar vectors: find groups in clusters, and the rows to drop.

1. `run_compare`, once per part of the clusters: compare each row with all earlier rows of its cluster.
2. `run_collect`, once per group of ranges: sort the results by address.

The memory in use does not grow with the size of a cluster (see `cluster_rows`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import numpy as np

from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import RowSorter, merge_slices
from curator_df.core.files.slice_file import SliceWriter, open_slices
from curator_df.core.files.storage import disk_errors
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.vectors.cluster_rows import MEMBER_HEAD, ClusterRows, member_words
from curator_df.dedup.vectors.tasks import load_vector_job
from curator_df.exchange.exchange import DROP_WORDS, drop_bounds

_HALF = np.uint64(32)


def run_compare(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Compare the rows of some clusters; write those that are in a group."""

    def work(manifest: Manifest) -> None:
        job = load_vector_job(job_bytes)
        memory_bytes = attempt.exclusive_bytes or attempt.block_bytes
        slices = open_slices(job.folder, job.files, attempt.piece.number)
        sorter = RowSorter(
            job.folder,
            f"compared/part-{attempt.piece.number:06d}.slices",
            words=member_words(job.pending),
            bounds=job.groups.bounds,
            memory_bytes=memory_bytes // 8,
        )
        largest = clusters = spilled = 0
        try:
            with ClusterRows(job.pending, memory_bytes // 4) as cluster:
                for rows in _by_cluster(merge_slices(slices, memory_bytes=memory_bytes // 8)):
                    if rows is not None:
                        cluster.append(rows)
                        continue
                    for members in cluster.members(memory_bytes // 8):
                        sorter.append(members)
                    largest, clusters = max(largest, cluster.rows), clusters + 1
                    spilled += cluster.spilled_bytes
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
    """Write the members in a group of ranges in order, and for each ``eps`` the rows to drop."""

    def work(manifest: Manifest) -> None:
        job = load_vector_job(job_bytes)
        number, several = attempt.piece.number, len(job.pending.eps)
        slices = open_slices(job.folder, job.files, number)
        # If a group is one range, a file has a slice for every range, as `read_drops` expects.
        ranges = job.groups.range_bounds(number) if job.groups.per_group > 1 else drop_bounds(job.groups.starts)
        groups, going = np.zeros(several, dtype=np.int64), np.zeros(several, dtype=np.int64)
        names = [f"members/part-{number:06d}.slices"]
        names += [f"drops/{place:03d}/part-{number:06d}.slices" for place in range(several)]
        with disk_errors(job.folder), contextlib.ExitStack() as stack:
            files = [stack.enter_context(job.folder.create(name)) for name in names]
            first = np.zeros(1, dtype=np.uint64)
            members = SliceWriter(files[0], member_words(job.pending), first)
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


def _by_cluster(pieces: Iterator[Rows]) -> Iterator[Rows | None]:
    """Yield the rows of one cluster after another, and None at the end of each."""
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

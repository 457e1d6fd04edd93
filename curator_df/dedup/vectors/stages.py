# SPDX-License-Identifier: Apache-2.0
"""Run the stages of a deferred removal of similar vectors, each with its own journal.

The stages: write the vectors in one pass over the rows; compute centroids from a sample; assign all vectors to clusters; find the
groups of each cluster; sort the groups by address. Completed stages and tasks are not repeated. Files are deleted as soon as no
later stage reads them.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.price import TASK_SLACK_BYTES
from curator_df.core.planning.program import DiskNeed, Pending, PendingPass, Program, StageStart, Step
from curator_df.core.planning.row_estimate import estimate_kept
from curator_df.core.ranges.manifest import Manifest, TaskRecord, files_below
from curator_df.core.ranges.range_action import RangeAction
from curator_df.core.ranges.sink import StageSink
from curator_df.core.ranges.source import range_starts
from curator_df.core.runner.passes import PassRunner, Stage, StageRecord, first_pass, mended, skew, sum_of
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.vectors.cluster_rows import ClusterRows, eps_word, member_words
from curator_df.dedup.vectors.settings import (
    FIRST_NOT_FINITE,
    NOT_FINITE,
    UNUSABLE,
    VECTOR_HEAD,
    VECTOR_WRITER_FACTOR,
    VectorSettings,
    require_gpu,
    require_room,
    sample_rows,
)
from curator_df.dedup.vectors.tasks import (
    CLUSTER_HEAD,
    VectorJob,
    cluster_bounds,
    load_vector_job,
    run_assign,
    run_fit,
    run_sample,
)
from curator_df.dedup.vectors.vector_math import to_words
from curator_df.errors import ParameterError
from curator_df.exchange.dropped_rows import DropRows, Found
from curator_df.exchange.exchange import DROP_WORDS, Exchange, drop_bounds, ranks
from curator_df.exchange.exchange_plan import choose_reducers
from curator_df.exchange.keys import CHECKSUM_MASK, key_checksum
from curator_df.exchange.range_groups import RangeGroups, ranges_per_group
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import RowSorter, merge_slices
from curator_df.files.slice_file import SliceWriter, open_slices
from curator_df.files.storage import JOURNAL_FOLDER, FileRecord, Folder, NewFile, disk_errors
from curator_df.memory.budget import Layout
from curator_df.memory.sizes import show_count
from curator_df.receipts.receipt import ExchangeReceipt

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
                    roots, sizes = rows[:, eps_word(place)], rows[:, eps_word(place) + 1]
                    is_root = roots == rows[:, 0]
                    goes = sizes > 1 if job.pending.keeps_none else ~is_root
                    groups[place] += int(((sizes > 1) & is_root).sum())
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


ROWS_AT_A_TIME = 2048
"""Number of rows of a block whose vectors are copied together."""


@dataclass(frozen=True)
class VectorSink(StageSink):
    """Sink of the first pass: a file of vectors for each range."""

    folder: Folder
    """Folder of the files."""
    pending: VectorSettings
    """Deferred operation, which takes the vectors from a block."""
    writer_factor: float = VECTOR_WRITER_FACTOR
    """Peak extra memory as a multiple of the block's bytes."""

    @property
    def fingerprint(self) -> str:
        """Digest of the settings that determine the content."""
        return fingerprint(self.pending)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeVectors:  # noqa: ARG002 - the face of a sink
        """Create the file of a range."""
        return _RangeVectors(self, number)


class _RangeVectors:
    def __init__(self, sink: VectorSink, number: int) -> None:
        self._pending = sink.pending
        self._file = NewFile(sink.folder, f"vectors/part-{number:06d}.slices")
        self._writer = SliceWriter(self._file, VECTOR_HEAD + sink.pending.words, np.zeros(1, dtype=np.uint64))
        self._checksum = self._rows = self._vectors = 0
        self._unusable = dict.fromkeys(UNUSABLE, 0)
        self._first_not_finite: int | None = None

    def append(self, block: Any) -> None:
        for start in range(0, len(block), ROWS_AT_A_TIME):
            self._append(block.iloc[start : start + ROWS_AT_A_TIME])

    def _append(self, block: Any) -> None:
        pending, addresses = self._pending, block.index.to_numpy()
        self._checksum = (self._checksum + key_checksum(pending.of(block).hashes, addresses)) & CHECKSUM_MASK
        taken = pending.take(block, **pending.parameters)
        rows = np.zeros((len(taken.vectors), VECTOR_HEAD + pending.words), dtype=np.uint64)
        rows[:, 0] = addresses[taken.valid].view(np.uint64)
        if pending.ranking is not None and taken.values is not None:
            rows[:, 1] = ranks(taken.values, pending.ranking, taken.missing)[taken.valid]
        rows[:, VECTOR_HEAD:] = to_words(taken.vectors)
        self._writer.append(rows)
        self._rows += len(block)
        self._vectors += len(rows)
        for cause, found in taken.unusable.items():
            self._unusable[cause] += int(found.sum())
            if cause == NOT_FINITE and self._first_not_finite is None and found.any():
                self._first_not_finite = int(addresses[found.argmax()])

    def commit(self) -> list[FileRecord]:
        self._writer.finish()
        return [self._file.commit(self._vectors)]

    def discard(self) -> None:
        self._file.discard()

    @property
    def summary(self) -> dict[str, int]:
        first = {} if self._first_not_finite is None else {FIRST_NOT_FINITE: self._first_not_finite}
        return {"key_checksum": self._checksum, "vectors": self._vectors, **self._unusable, **first}


CHOSEN = f"{JOURNAL_FOLDER}/clusters.json"
MORE_IN_SAMPLE = 1.3
"""Number of vectors whose hash passes the bound, as a multiple of the required number."""
MORE_EACH_LOOK = 8
"""Factor by which the sampled fraction grows each time the sample was too small."""
FEWEST_PARTS = 16
"""Minimum number of parts into which clusters are split, if there are as many clusters: one comparison task each."""


@dataclass(frozen=True)
class VectorFound(Found):
    """Result of these stages, for the last pass and for the table of groups."""

    pending: VectorSettings = dataclasses.field(kw_only=True)
    """Deferred operation, with the settings of the user."""

    def member_rows(self, group: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield the members that `run_collect` wrote for a group of ranges, which has its own file of members."""
        slices = open_slices(self.exchange.folder, self.members[group : group + 1], 0)
        return merge_slices(slices, memory_bytes=memory_bytes)

    def matched_rows(self, number: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield (address, matched row, bits of the cosine) of the members of a range, and of some before and after it."""
        word = eps_word(self.pending.chosen)
        for rows in self._members_near(number, memory_bytes):
            yield rows[:, [0, word + 2, word + 3]]

    def members_near(self, number: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield (address, kept row, rows of the group) for the distance by which rows are dropped."""
        word = eps_word(self.pending.chosen)
        for rows in self._members_near(number, memory_bytes):
            yield rows[:, [0, word, word + 1]]

    def _members_near(self, number: int, memory_bytes: int) -> Iterator[Rows]:
        group = number // self.groups.per_group
        return merge_slices(self._near(number, self.members[group : group + 1], 0), memory_bytes=memory_bytes)


class VectorStages:
    """Stages of one deferred removal."""

    stage: Stage
    home: Folder

    def __init__(self, runner: PassRunner, before: Program, step: Step, pending: VectorSettings) -> None:
        self.runner, self.before, self.step, self.pending = runner, before, step, pending
        starts = range_starts(runner.ranges)
        self.groups = RangeGroups(starts, ranges_per_group(len(starts)))
        layout = runner.session.layout
        self.layout = dataclasses.replace(layout, work_bytes=layout.work_bytes - pending.held_bytes)
        self.memory_bytes = self.layout.thread_bytes - TASK_SLACK_BYTES

    def run(self) -> Found:
        """Run all unfinished stages."""
        with self.runner.open_stage(self.before, self.step, self.pending.home) as stage:
            self.stage, self.home = stage, stage.home
            stage.work_bytes = self.memory_bytes
            done = stage.finish(self._run_all)
            for name in ("compared", "centroids"):
                self.home.delete_tree(name)
            keys = list(stage.journal.done())
        starts, each = self.groups.starts, self.groups.per_group
        chosen = f"drops/{self.pending.chosen:03d}/"
        return VectorFound(
            Exchange(self.home, "none" if self.pending.keeps_none else "first", 1, starts, each),
            tuple(file for file in done.files["drops"] if file.name.startswith(chosen)),
            *first_pass(keys, len(self.runner.ranges)),
            groups=self.groups,
            members=done.files["members"],
            pending=self.pending,
        )

    def _run_all(self) -> StageRecord:
        started = time.monotonic()
        start = StageStart(self.before, self.runner.ranges, self.runner.session.layout)
        projected_bytes = vector_need(self.step.name, self.pending, start).needed_bytes

        def compare(assigned: list[TaskRecord]) -> list[TaskRecord]:
            chosen = json.loads(self.home.read(CHOSEN))
            job = self._job(files_below(assigned, "clusters"))
            return (
                self.stage.tasks("compare", "compare", run_compare, job, chosen["parts"]) if chosen["clusters"] else []
            )

        def make() -> StageRecord:
            _, done = mended(self.home, self._assigned, compare)
            figures = {
                "largest_cluster": max((record.summary["largest_cluster"] for record in done), default=0),
                "skew": skew([record.rows_read for record in done]),
            }
            return StageRecord({"pairs": files_below(done, "compared")}, figures)

        compared = self.stage.once("compared", make)
        self.home.delete_tree("clusters")
        job = self._job(compared.files["pairs"])
        collected = self.stage.tasks("collect", "groups", run_collect, job, len(self.groups))
        return self._finished(collected, compared, projected_bytes, time.monotonic() - started)

    def _finished(
        self, collected: list[TaskRecord], compared: StageRecord, projected_bytes: int, seconds: float
    ) -> StageRecord:
        chosen = json.loads(self.home.read(CHOSEN))
        files = {name: files_below(collected, name) for name in ("drops", "members")}
        sums = collections.Counter[str]()
        for record in collected:
            sums.update(record.summary)
        receipt = ExchangeReceipt(
            step=self.step.name,
            keys=chosen["rows"],
            unique=chosen["rows"] - sums[f"going_{self.pending.chosen}"],
            hash_ranges=chosen["parts"],
            skew=compared.figures["skew"],
            projected_bytes=projected_bytes,
            key_bytes=chosen["vector_bytes"],
            drop_bytes=sum(file.size_bytes for record in collected for file in record.files),
            spilled_bytes=self.stage.spilled_bytes,
            seconds=seconds,
            details={
                "clusters": chosen["clusters"],
                "largest_cluster": compared.figures["largest_cluster"],
                "without_vector": chosen["rows"] - chosen["vectors"],
                **{f"{cause}_vectors": chosen[cause] for cause in UNUSABLE},
                FIRST_NOT_FINITE: chosen[FIRST_NOT_FINITE],
                "sampled": chosen["sampled"],
                "by_eps": [
                    {"eps": eps, "groups": sums[f"groups_{place}"], "going": sums[f"going_{place}"]}
                    for place, eps in enumerate(self.pending.eps)
                ],
            },
        )
        return StageRecord(files, exchange=receipt)

    def _job(self, files: tuple[FileRecord, ...]) -> VectorJob:
        return VectorJob(self.home, self.groups, self.pending, files)

    def _assigned(self) -> list[TaskRecord]:
        """Return a record with the files of the vectors that were assigned to clusters."""

        def make() -> StageRecord:
            _, done = mended(self.home, self._take_vectors, self._assign)
            return StageRecord({"clusters": files_below(done, "clusters")})

        assigned = self.stage.once("assigned", make)
        for name in ("vectors", "sample"):
            self.home.delete_tree(name)
        return [TaskRecord(0, files=assigned.files["clusters"])]

    def _take_vectors(self) -> list[TaskRecord]:
        sink, title = VectorSink(self.home, self.pending), f"{self.step.name}: vectors"
        return self.stage.stream(title, self.before, self.pending.columns, sink, self.runner.ranges)

    def _assign(self, taken: list[TaskRecord]) -> list[TaskRecord]:
        files, vectors = files_below(taken, "vectors"), sum_of(taken, "vectors")
        first_not_finite = [record.summary[FIRST_NOT_FINITE] for record in taken if FIRST_NOT_FINITE in record.summary]
        chosen: dict[str, Any] = {
            "rows": sum(record.rows_written for record in taken),
            "vectors": vectors,
            **{cause: sum_of(taken, cause) for cause in UNUSABLE},
            FIRST_NOT_FINITE: min(first_not_finite, default=None),
            "vector_bytes": sum(file.size_bytes for file in files),
            "clusters": 0,
            "parts": 0,
            "sampled": 0,
        }
        wanted = self.pending.clusters(vectors)
        if self.pending.num_clusters is not None and wanted > vectors > 0:
            raise ParameterError(
                f"{self.step.name}: num_clusters={wanted}, but only {show_count(vectors, 'row')} of the table "
                f"{'has' if vectors == 1 else 'have'} a vector. Use num_clusters={vectors} or less"
            )
        done: list[TaskRecord] = []
        if vectors:
            require_room(self.step.name, self.pending, wanted, self.layout)
            found = self._fitted(files, vectors, wanted)
            chosen |= {"clusters": found["clusters"], "sampled": found["sampled"]}
            chosen["parts"] = self._parts(vectors, found["clusters"])
            bounds = cluster_bounds(found["clusters"], chosen["parts"])
            job = dataclasses.replace(self._job(files), bounds=bounds, checksum=found["checksum"])
            done = self.stage.tasks("placed", "clusters", run_assign, job, len(self.groups))
        self.home.write(CHOSEN, json.dumps(chosen).encode())
        return done

    def _fitted(self, files: tuple[FileRecord, ...], vectors: int, clusters: int) -> Mapping[str, int]:
        """Return the figures of the centroids. If many vectors are equal, the first sample may be too small and is enlarged."""
        sample = min(sample_rows(clusters, self.pending.width), vectors)
        fraction, look = min(MORE_IN_SAMPLE * sample / vectors, 1.0), 0
        while True:
            job = dataclasses.replace(self._job(files), sample=sample, fraction=fraction, look=look)
            sampled = self.stage.tasks(f"sampled-{look}", "sample", run_sample, job, len(self.groups))
            job = dataclasses.replace(job, files=files_below(sampled, "sample"), clusters=clusters)
            [fitted] = self.stage.tasks(f"fitted-{look}", "k-means", run_fit, job, 1)
            if fitted.summary["clusters"]:
                return fitted.summary
            fraction, look = min(fraction * MORE_EACH_LOOK, 1.0), look + 1

    def _parts(self, vectors: int, clusters: int) -> int:
        """Return the number of parts into which clusters are split; a resumed run keeps it, whatever its memory."""
        name = f"{JOURNAL_FOLDER}/parts.json"
        if not self.home.exists(name):
            fitting = choose_reducers(vectors, 8 * (CLUSTER_HEAD + self.pending.words), self.memory_bytes)
            self.home.write(name, json.dumps(min(max(fitting, FEWEST_PARTS), clusters)).encode())
        return int(json.loads(self.home.read(name)))


PAGES = 1.05
"""Size of files as a multiple of that of their vectors: they also have checksums of pages, and places of slices."""


def vector_need(name: str, pending: VectorSettings, start: StageStart) -> DiskNeed:
    """Return the disk space for a removal: all vectors twice, as the pass leaves them and by cluster, and the sample.

    After these are deleted, all rows may be members of groups.
    """
    rows, vector_bytes = estimate_kept(start.before, start.ranges), 8 * (CLUSTER_HEAD + pending.words)
    sample = int(MORE_IN_SAMPLE * min(sample_rows(pending.clusters(rows), pending.width), rows))
    vectors = int(PAGES * (2 * rows + sample) * vector_bytes)
    members = int(PAGES * rows * 8 * (member_words(pending) + DROP_WORDS * len(pending.eps)))
    return DiskNeed(name, {"vectors": max(vectors, 2 * members)}, members)


@dataclass(frozen=True)
class VectorDrop(VectorSettings, Pending):
    """Deferred drop of rows with similar vectors, except for the one of each group that is kept."""

    @property
    def last_pass(self) -> Mapping[str, Any]:
        """The column of counts, if there is one."""
        return {} if self.count_into is None else {"count_into": self.count_into}

    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return the pass that stores vectors."""
        return [PendingPass(f"vectors for {name}, then clusters", "store vectors", VECTOR_WRITER_FACTOR)]

    def require_room(self, name: str, rows: int | None, layout: Layout) -> None:
        """Refuse k-means that does not fit if the number of clusters is known; otherwise the run does so when it has counted."""
        if self.fits_on_device:
            require_gpu(name, layout)
        if self.num_clusters is not None or rows is not None:
            require_room(name, self, self.clusters(rows or 0), layout)

    def disk_need(self, name: str, start: StageStart) -> DiskNeed | None:
        """Return the disk space for the vectors."""
        return vector_need(name, self, start)

    def prepare(self, runner: Any, before: Program, step: Step) -> Found:
        """Find the groups."""
        return VectorStages(runner, before, step, self).run()

    def resolved(self, prepared: Found) -> RangeAction:
        """Return the action that drops the rows in the last pass."""
        return DropRows(self, prepared)

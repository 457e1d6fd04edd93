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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import RowSorter, merge_slices
from curator_df.core.files.slice_file import SliceWriter, open_slices, part_of_slice
from curator_df.core.files.storage import JOURNAL_FOLDER, FileRecord, Folder, NewFile, disk_errors, split_files
from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.program import Program, Step
from curator_df.core.planning.row_estimate import estimate_kept
from curator_df.core.planning.task_factor import TASK_SLACK_BYTES
from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.sink import StageSink
from curator_df.core.ranges.source import Range, range_starts
from curator_df.core.receipts.receipt import ExchangeReceipt
from curator_df.core.runner.events import Exchanged
from curator_df.core.runner.passes import PassRunner, first_pass, mended
from curator_df.core.sizes import show_count, show_size
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.vectors.cluster_rows import MEMBER_HEAD, ClusterRows, member_words
from curator_df.dedup.vectors.settings import (
    FIRST_NOT_FINITE,
    NOT_FINITE,
    UNUSABLE,
    VECTOR_HEAD,
    VECTOR_WRITER_FACTOR,
    VectorSettings,
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
from curator_df.errors import DiskFullError, ParameterError
from curator_df.exchange.dropped_rows import MATCH_WORDS, Found
from curator_df.exchange.exchange import DROP_WORDS, Exchange, drop_bounds, ranks
from curator_df.exchange.exchange_plan import choose_reducers, smaller_part
from curator_df.exchange.keys import CHECKSUM_MASK, key_checksum
from curator_df.exchange.range_groups import RangeGroups, ranges_per_group

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
        """Yield (address, most similar row, bits of the cosine) of the members of a range, and of some before and after it."""
        group, starts = number // self.groups.per_group, self.groups.starts
        last = int(starts[number + 1]) - 1 if number + 1 < len(starts) else (1 << 63) - 1
        slices = open_slices(self.exchange.folder, self.members[group : group + 1], 0)
        parts = [part_of_slice(piece, int(starts[number]), last) for piece in slices if piece.rows]
        for rows in merge_slices(parts, memory_bytes=memory_bytes):
            yield rows[:, :MATCH_WORDS]


class VectorStages:
    """Stages of one deferred removal."""

    def __init__(self, runner: PassRunner, before: Program, step: Step, pending: VectorSettings) -> None:
        self.runner, self.before, self.step, self.pending = runner, before, step, pending
        starts = range_starts(runner.ranges)
        self.groups = RangeGroups(starts, ranges_per_group(len(starts)))
        layout = runner.session.layout
        self.layout = dataclasses.replace(layout, work_bytes=layout.work_bytes - pending.held_bytes)
        self.memory_bytes = self.layout.thread_bytes - TASK_SLACK_BYTES
        self.home = Folder(".")
        self._spilled = 0

    def run(self) -> Found:
        """Run all unfinished stages."""
        with self.runner.open_stage(self.before, self.step, self.pending.home) as journal:
            self.home = journal.folder
            if journal.receipt is None or not self._all_there(journal.receipt["files"]):
                journal.finish(self._run_all(journal))
                for name in ("compared", "centroids"):
                    self.home.delete_tree(name)
                self.runner.session.tell(Exchanged(ExchangeReceipt(**(journal.receipt or {})["receipt"])))
            said = journal.receipt or {}
            self.runner.exchanges.append(ExchangeReceipt(**said["receipt"]))
            keys = list(journal.done())
        manifests = [{"files": [FileRecord(**file) for file in said["files"]]}]
        starts, each = self.groups.starts, self.groups.per_group
        return VectorFound(
            Exchange(self.home, "first", 1, starts, each),
            split_files(manifests, f"drops/{self.pending.chosen:03d}"),
            *first_pass(keys, len(self.runner.ranges)),
            groups=self.groups,
            members=split_files(manifests, "members"),
            pending=self.pending,
        )

    def _run_all(self, journal: Journal) -> dict[str, Any]:
        started = time.monotonic()
        projected_bytes = self._require_disk()

        def compare(assigned: list[dict[str, Any]]) -> list[dict[str, Any]]:
            chosen = json.loads(self.home.read(CHOSEN))
            job = {"files": split_files(assigned, "clusters")}
            return self._tasks("compare", "compare", run_compare, chosen["parts"], **job) if chosen["clusters"] else []

        with Journal(self.home.below("compared")) as compared:
            if compared.receipt is None or not self._all_there(compared.receipt["files"]):
                _, done = mended(self.home, lambda: self._assigned(journal), compare)
                sizes = [manifest["rows_read"] for manifest in done] or [0]
                compared.finish(
                    {
                        "files": [vars(file) for file in split_files(done, "compared")],
                        "largest_cluster": max((made["summary"]["largest_cluster"] for made in done), default=0),
                        "skew": max(sizes) * len(sizes) / max(sum(sizes), 1),
                    }
                )
            said = compared.receipt or {}
        self.home.delete_tree("clusters")
        files = tuple(FileRecord(**file) for file in said["files"])
        collected = self._tasks("collect", "groups", run_collect, len(self.groups), files=files)
        return self._finished(collected, said, projected_bytes, time.monotonic() - started)

    def _finished(
        self,
        collected: list[dict[str, Any]],
        compared: dict[str, Any],
        projected_bytes: int,
        seconds: float,
    ) -> dict[str, Any]:
        chosen = json.loads(self.home.read(CHOSEN))
        files = [file for manifest in collected for file in manifest["files"]]
        sums = collections.Counter[str]()
        for manifest in collected:
            sums.update(manifest["summary"])
        receipt = ExchangeReceipt(
            step=self.step.name,
            keys=chosen["rows"],
            unique=chosen["rows"] - sums[f"going_{self.pending.chosen}"],
            hash_ranges=chosen["parts"],
            skew=compared["skew"],
            projected_bytes=projected_bytes,
            key_bytes=chosen["vector_bytes"],
            drop_bytes=sum(file.size_bytes for file in files),
            spilled_bytes=self._spilled,
            seconds=seconds,
            details={
                "clusters": chosen["clusters"],
                "largest_cluster": compared["largest_cluster"],
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
        return {"receipt": dataclasses.asdict(receipt), "files": [vars(file) for file in files]}

    def _assigned(self, journal: Journal) -> list[dict[str, Any]]:
        """Return the results of the tasks that assigned the vectors to clusters."""
        with Journal(self.home.below("assigned")) as assigned:
            if assigned.receipt is None or not self._all_there(assigned.receipt["files"]):
                _, done = mended(self.home, lambda: self._take_vectors(journal), self._assign)
                assigned.finish({"files": [vars(file) for file in split_files(done, "clusters")]})
            said = assigned.receipt or {}
        for name in ("vectors", "sample"):
            self.home.delete_tree(name)
        return [{"files": [FileRecord(**file) for file in said["files"]]}]

    def _take_vectors(self, journal: Journal) -> list[dict[str, Any]]:
        sink, title = VectorSink(self.home, self.pending), f"{self.step.name}: vectors"
        return self.runner.run_pass(journal, title, self.before, self.pending.columns, sink, self.runner.ranges)

    def _assign(self, taken: list[dict[str, Any]]) -> list[dict[str, Any]]:
        files = split_files(taken, "vectors")
        vectors = sum(manifest["summary"]["vectors"] for manifest in taken)
        chosen = {
            "rows": sum(manifest["rows_written"] for manifest in taken),
            "vectors": vectors,
            **{cause: sum(manifest["summary"][cause] for manifest in taken) for cause in UNUSABLE},
            FIRST_NOT_FINITE: min(
                (row for made in taken if (row := made["summary"].get(FIRST_NOT_FINITE)) is not None), default=None
            ),
            "vector_bytes": sum(file.size_bytes for file in files),
            "clusters": 0,
            "parts": 0,
            "sampled": 0,
        }
        wanted = self.pending.clusters(vectors)
        if self.pending.num_clusters is not None and wanted > vectors > 0:
            raise ParameterError(
                f"{self.step.name}: num_clusters={wanted}, but only {show_count(vectors, 'row')} of the table have a vector. "
                f"Use num_clusters={vectors} or less"
            )
        done: list[dict[str, Any]] = []
        if vectors:
            require_room(self.step.name, self.pending, wanted, self.layout)
            found = self._fitted(files, vectors, wanted)
            chosen |= {"clusters": found["clusters"], "sampled": found["sampled"]}
            chosen["parts"] = self._parts(vectors, found["clusters"])
            bounds = cluster_bounds(found["clusters"], chosen["parts"])
            job = {"files": files, "bounds": bounds, "checksum": found["checksum"]}
            done = self._tasks("placed", "clusters", run_assign, len(self.groups), **job)
        self.home.write(CHOSEN, json.dumps(chosen).encode())
        return done

    def _fitted(self, files: tuple[FileRecord, ...], vectors: int, clusters: int) -> dict[str, int]:
        """Return the figures of the centroids. If many vectors are equal, the first sample may be too small and is enlarged."""
        sample = min(sample_rows(clusters, self.pending.width), vectors)
        fraction, look = min(MORE_IN_SAMPLE * sample / vectors, 1.0), 0
        while True:
            which: dict[str, Any] = {"sample": sample, "fraction": fraction, "look": look}
            sampled = self._tasks(f"sampled-{look}", "sample", run_sample, len(self.groups), files=files, **which)
            which |= {"files": split_files(sampled, "sample"), "clusters": clusters}
            [fitted] = self._tasks(f"fitted-{look}", "k-means", run_fit, 1, **which)
            if fitted["summary"]["clusters"]:
                return dict(fitted["summary"])
            fraction, look = min(fraction * MORE_EACH_LOOK, 1.0), look + 1

    def _parts(self, vectors: int, clusters: int) -> int:
        """Return the number of parts into which clusters are split; a resumed run keeps it, whatever its memory."""
        name = f"{JOURNAL_FOLDER}/parts.json"
        if not self.home.exists(name):
            fitting = choose_reducers(vectors, 8 * (CLUSTER_HEAD + self.pending.words), self.memory_bytes)
            self.home.write(name, json.dumps(min(max(fitting, FEWEST_PARTS), clusters)).encode())
        return int(json.loads(self.home.read(name)))

    def _tasks(self, name: str, title: str, task: Callable[..., Any], count: int, **what: Any) -> list[dict[str, Any]]:
        stage = dataclasses.replace(self.runner.stage, block_bytes=self.memory_bytes)
        job = VectorJob(self.home, self.groups, self.pending, **what)
        pieces: Sequence[Range] = [Range(number, 0, 0, 0, 0) for number in range(count)]
        with Journal(self.home.below(name)) as journal:
            done = self.runner.run_tasks(journal, title, job, pieces, stage=stage, folder=self.home, task=task)
        self._spilled += sum(manifest["summary"].get("spilled_bytes", 0) for manifest in done)
        return done

    def _all_there(self, files: list[dict[str, Any]]) -> bool:
        return self.home.holds([FileRecord(**file) for file in files])

    def _require_disk(self) -> int:
        """Return the bytes of temporary files, which store all vectors twice; raise an error if disk space is short."""
        rows = estimate_kept(self.before, self.runner.ranges)
        needed = 2 * rows * 8 * (CLUSTER_HEAD + self.pending.words)
        free = self.home.free_bytes()
        if free is not None and free < needed and not self.home.exists(CHOSEN):
            raise DiskFullError(
                f"{self.step.name} needs about {show_size(needed)} for vectors, but only {show_size(free)} are free in "
                f"{self.home.url}. Nothing was started. Free some space, set another workdir=, or {smaller_part(free / needed)}"
            )
        return needed

# SPDX-License-Identifier: Apache-2.0
"""Run the stages of a deferred removal of similar vectors, each with its own journal.

The stages: write the vectors in one pass over the rows; compute centroids from a sample; assign all vectors to clusters; find the
groups of each cluster; sort the groups by address. Completed stages and tasks are not repeated. Files are deleted as soon as no
later stage reads them.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import merge_slices
from curator_df.core.files.slice_file import open_slices, part_of_slice
from curator_df.core.files.storage import JOURNAL_FOLDER, FileRecord, Folder, split_files
from curator_df.core.planning.program import Program, Step
from curator_df.core.planning.row_estimate import estimate_kept
from curator_df.core.planning.task_factor import TASK_SLACK_BYTES
from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.source import Range, range_starts
from curator_df.core.receipts.receipt import ExchangeReceipt
from curator_df.core.runner.events import Exchanged
from curator_df.core.runner.passes import PassRunner, first_pass, mended
from curator_df.core.sizes import show_size
from curator_df.dedup.vectors.compare import run_collect, run_compare
from curator_df.dedup.vectors.settings import FIRST_NOT_FINITE, UNUSABLE, VectorSettings, require_room, sample_rows
from curator_df.dedup.vectors.sink import VectorSink
from curator_df.dedup.vectors.tasks import (
    CLUSTER_HEAD,
    VectorJob,
    cluster_bounds,
    run_assign,
    run_fit,
    run_sample,
)
from curator_df.errors import DiskFullError, ParameterError
from curator_df.exchange.dropped_rows import MATCH_WORDS, Found
from curator_df.exchange.exchange import Exchange
from curator_df.exchange.exchange_plan import choose_reducers, smaller_part
from curator_df.exchange.range_groups import RangeGroups, ranges_per_group

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
        """Yield the members that `vector_compare.run_collect` wrote for a group of ranges, which has its own file of members."""
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
            raise ParameterError(f"{self.step.name}: num_clusters={wanted:,}, but only {vectors:,} rows have a vector")
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

# SPDX-License-Identifier: Apache-2.0
"""Run what comes before the last pass: for each pending drop a pass that hashes keys, and a merge of these by hash range.

Each stage has its folder and its journal below the output's ``_curator/``, so that it resumes like the output itself; the
folders go when the run is complete.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from curator_df.core.barrier import Barrier, DropRows, KeySink
from curator_df.core.dispatch import Dispatcher
from curator_df.core.drops import collect_drops
from curator_df.core.exchange import Exchange, range_starts, reduce_keys
from curator_df.core.exchange_plan import TASK_SLACK_BYTES, project_exchange
from curator_df.core.journal import Identity, Journal
from curator_df.core.plan import StagePlan
from curator_df.core.program import Program, Step, StepTally
from curator_df.core.session import Session
from curator_df.core.source import Range, Ranges
from curator_df.core.storage import JOURNAL_FOLDER, FileRecord, Folder
from curator_df.core.task import Attempt, Job, Manifest, OnError, run_guarded

STAGES_FOLDER = f"{JOURNAL_FOLDER}/stages"
"""Below the output folder."""
ROW_BYTES_GUESS = 300
"""Input bytes of a row, to choose the number of hash ranges; too few of them do no harm, they are streamed."""
DROP_PEAK_FACTOR = 2.2
"""Peak extra bytes of dropping rows: the rows that stay, once as pandas takes them and once as Arrow does, and the keys."""
SHOW = Callable[[str, int, int], None]


@dataclass(frozen=True)
class MergeJob:
    """Everything about a merge that is the same for all its tasks."""

    exchange: Exchange
    """What is merged."""
    files: tuple[FileRecord, ...]
    """Files of the stage before."""
    collects: bool
    """False: keys into drops; True: drops of all hash ranges into files for ranges."""


def run_merge(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Merge one hash range (or collect the drops of some ranges); return what became of it."""

    def merge(manifest: Manifest) -> None:
        job: MergeJob = cloudpickle.loads(job_bytes)
        number, memory_bytes = attempt.piece.number, attempt.block_bytes
        if job.collects:
            manifest.files = [collect_drops(job.exchange, number, job.files, memory_bytes=memory_bytes)]
            return
        reduced = reduce_keys(job.exchange, number, job.files, memory_bytes=memory_bytes)
        manifest.files, manifest.rows_read = [reduced.file], reduced.rows
        counts = {"keys": reduced.rows, "unique": reduced.groups, "read_bytes": reduced.read_bytes}
        manifest.steps = [StepTally(seconds=reduced.seconds, counters=counts)]

    return run_guarded(attempt, merge)


class StageRunner:
    """Runs the stages of one output, one after the other."""

    def __init__(self, session: Session, stage: StagePlan, output: Folder, ranges: Ranges, on_error: OnError) -> None:
        self.session, self.stage, self.output, self.ranges, self.on_error = session, stage, output, ranges, on_error
        self.figures: dict[str, str] = {}
        self._show: SHOW = lambda title, done, total: None  # noqa: ARG005

    def resolve(self, program: Program, show: SHOW) -> Program:
        """Return the program with every pending drop replaced by the rows that it drops."""
        self._show = show
        for place, step in enumerate(program.steps):
            barrier = step.barrier
            if barrier is not None:
                before = dataclasses.replace(program, steps=program.steps[:place])
                drops = self._find_drops(before, step, barrier, place)
                resolved = Step(step.name, drops, DROP_PEAK_FACTOR, True)
                program = dataclasses.replace(
                    program, steps=(*program.steps[:place], resolved, *program.steps[place + 1 :])
                )
        return program

    def clear(self) -> None:
        """Delete the stages' files: the output is complete."""
        self.output.delete_tree(STAGES_FOLDER)

    def _find_drops(self, before: Program, step: Step, barrier: Barrier, place: int) -> DropRows:
        home = Folder(f"{self.output.url}/{STAGES_FOLDER}/{place:02d}", self.output.options)
        steps = tuple((s.name, s.fingerprint) for s in before.steps)
        identity = Identity(before.source.fingerprint, before.fingerprint, step.fingerprint, steps)
        with Journal(home) as journal:
            if journal.is_started:
                journal.resume(identity)
            else:
                journal.start(identity, self.ranges)
            exchange = self._exchange(home, before, barrier)
            keys = self._map(journal, exchange, before, step, barrier)
            files = tuple(record for manifest in keys for record in manifest["files"])
            merged = self._merge(home, "merge", exchange, files, exchange.reducers, collects=False)
            drops = [record for manifest in merged for record in manifest["files"]]
            if exchange.ranges_per_drop_file > 1:
                count = exchange.drop_files
                collected = self._merge(home, "collect", exchange, tuple(drops), count, collects=True)
                drops = [record for manifest in collected for record in manifest["files"]]
        self._note(step.name, exchange, merged)
        rows = np.array([manifest["rows_written"] for manifest in keys], dtype=np.int64)
        checksums = np.array([manifest["summary"]["key_checksum"] for manifest in keys], dtype=np.uint64)
        return DropRows(barrier, exchange, tuple(drops), rows, checksums)

    def _exchange(self, home: Folder, before: Program, barrier: Barrier) -> Exchange:
        name = f"{JOURNAL_FOLDER}/exchange.json"
        starts = range_starts(self.ranges)
        if home.exists(name):  # a resumed run keeps the hash ranges, whatever its memory: the files are cut by them
            kept = json.loads(home.read(name))
            return Exchange(home, barrier.keep, kept["reducers"], starts, kept["ranges_per_drop_file"])
        layout = self.session.layout
        plan = project_exchange(
            before.source.input_bytes // ROW_BYTES_GUESS + 1,
            keep=barrier.keep,
            map_files=len(self.ranges),
            work_bytes=layout.thread_bytes,
            tasks_at_a_time=layout.workers * layout.threads,
            folder=home,
        )
        chosen = {"reducers": plan.reducers, "ranges_per_drop_file": plan.ranges_per_drop_file}
        home.write(name, json.dumps(chosen).encode())
        return Exchange(home, barrier.keep, plan.reducers, starts, plan.ranges_per_drop_file)

    def _map(
        self, journal: Journal, exchange: Exchange, before: Program, step: Step, barrier: Barrier
    ) -> list[dict[str, Any]]:
        job = Job(uuid.uuid4().hex, before, KeySink(exchange, barrier), None, exchange.folder, self.on_error)
        return self._run(journal, f"{step.name}: keys", job, len(self.ranges), self.stage, None)

    def _merge(
        self, home: Folder, name: str, exchange: Exchange, files: tuple[FileRecord, ...], count: int, *, collects: bool
    ) -> list[dict[str, Any]]:
        memory_bytes = self.session.layout.thread_bytes - TASK_SLACK_BYTES
        stage = dataclasses.replace(self.stage, block_bytes=memory_bytes)
        with Journal(Folder(f"{home.url}/{name}", home.options)) as journal:
            return self._run(journal, name, MergeJob(exchange, files, collects), count, stage, run_merge)

    def _run(
        self, journal: Journal, title: str, job: Any, count: int, stage: StagePlan, task: Any
    ) -> list[dict[str, Any]]:
        """Run the tasks that the journal does not have; return what it has of all, in order."""
        done = {record["number"]: record for record in map(_with_records, journal.done())}

        def note(manifest: Manifest) -> None:
            journal.record([manifest])
            done[manifest.number] = {**vars(manifest)}
            self._show(title, len(done), count)

        self._show(title, len(done), count)
        waiting = [number for number in range(count) if number not in done]
        extra = {} if task is None else {"task": task}
        Dispatcher(self.session, job, stage, note, **extra).run(self._pieces(waiting, task is None))
        return [done[number] for number in range(count)]

    def _pieces(self, numbers: list[int], are_ranges: bool) -> Iterator[Range]:
        return (self.ranges[number] if are_ranges else Range(number, 0, 0, 0, 0) for number in numbers)

    def _note(self, name: str, exchange: Exchange, merged: list[dict[str, Any]]) -> None:
        sizes = [manifest["rows_read"] for manifest in merged]
        skew = max(sizes) * len(sizes) / max(sum(sizes), 1)
        self.figures[name] = (
            f"{sum(sizes):,} keys in {exchange.reducers:,} hash ranges, the largest {skew:.1f} x the mean"
        )


def _with_records(done: dict[str, Any]) -> dict[str, Any]:
    return {**done, "files": [FileRecord(**file) for file in done["files"]]}

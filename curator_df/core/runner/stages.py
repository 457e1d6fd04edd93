# SPDX-License-Identifier: Apache-2.0
"""Run the stages before the last pass: for each deferred step a pass that hashes keys, and a merge of these by hash range.

Each stage has its own folder and journal, below the output's ``_curator/`` or in the user's ``workdir``, so that it can be
resumed like the output itself. The folders are deleted when the run is complete, except those that a ``find_`` operator keeps.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import cloudpickle
import numpy as np
import numpy.typing as npt

from curator_df.core.exchange.barrier import Barrier, Found, KeySink
from curator_df.core.exchange.drops import collect_drops
from curator_df.core.exchange.exchange import Exchange, range_starts
from curator_df.core.exchange.exchange_reduce import reduce_keys
from curator_df.core.exchange.part_barrier import PartBarrier
from curator_df.core.exchange.range_groups import RangeGroups, ranges_per_group
from curator_df.core.exchange.row_count import CountSink, NumberRows, RowCount
from curator_df.core.files.storage import JOURNAL_FOLDER, FileRecord, Folder, split_files
from curator_df.core.fingerprint import fingerprint
from curator_df.core.memory.leaks import LeakReceipt
from curator_df.core.planning.branches import Branch, fork, named_steps
from curator_df.core.planning.exchange_plan import TASK_SLACK_BYTES, estimate_kept, merge_bytes, project_exchange
from curator_df.core.planning.plan import StagePlan
from curator_df.core.planning.program import Program, Step, with_columns
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.journal import Identity, Journal, all_done
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.parameter_digests import printed_source
from curator_df.core.ranges.range_action import RangeAction
from curator_df.core.ranges.source import Range, Ranges
from curator_df.core.ranges.step_tally import StepTally
from curator_df.core.receipts.receipt import ExchangeReceipt
from curator_df.core.runner.dispatch import Dispatcher
from curator_df.core.runner.events import Exchanged, Note, StageStarted, stage_name
from curator_df.core.runner.session import Session
from curator_df.core.tasks.task import Attempt, Job, OnError, OnOom, run_guarded
from curator_df.errors import CorruptFileError, ParameterError, ResumeError

STAGES_FOLDER = f"{JOURNAL_FOLDER}/stages"
"""Name of the folder below the output folder."""
DROP_PEAK_FACTOR = 1.4
"""Peak extra memory of dropping rows as a multiple of the block's bytes: the kept rows, and their keys."""
T = TypeVar("T")
SHOW = Callable[[str, int, int], None]


@dataclass(frozen=True)
class MergeJob:
    """Fields that all tasks of a merge share."""

    exchange: Exchange
    """Exchange to merge."""
    files: tuple[FileRecord, ...]
    """Files of the previous stage."""
    collects: bool
    """Kind of merge. False: keys into drops; True: drops of all hash ranges into files for ranges."""


def run_merge(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Merge one hash range (or collect the drops of some ranges); return the result."""

    def merge(manifest: Manifest) -> None:
        job: MergeJob = cloudpickle.loads(job_bytes)
        number, memory_bytes = attempt.piece.number, attempt.block_bytes
        if job.collects:
            manifest.files = [collect_drops(job.exchange, number, job.files, memory_bytes=memory_bytes)]
            return
        reduced = reduce_keys(job.exchange, number, job.files, memory_bytes=memory_bytes)
        manifest.files = [reduced.file] if reduced.members is None else [reduced.file, reduced.members]
        manifest.rows_read = reduced.rows
        manifest.summary = {"unique": reduced.groups, "spilled_bytes": reduced.spilled_bytes}
        manifest.steps = [StepTally(seconds=reduced.seconds)]

    return run_guarded(attempt, merge)


class StageRunner:
    """Runner of the stages of one output, one after the other."""

    def __init__(
        self,
        session: Session,
        stage: StagePlan,
        temporary: Folder,
        ranges: Ranges,
        on_error: OnError,
        on_oom: OnOom = "retry",
    ) -> None:
        self.session, self.stage, self.ranges, self.on_error, self.on_oom = session, stage, ranges, on_error, on_oom
        self.temporary, self.run_id = temporary, uuid.uuid4().hex
        self.exchanges: list[ExchangeReceipt] = []
        self.retries: collections.Counter[str] = collections.Counter()
        self.leaks: list[LeakReceipt] = []
        self.start_bytes = 0
        """Final block size of the passes over rows so far, in bytes; 0 before the first."""
        self.merge_bytes = 0
        """Maximum memory that a merge (or comparison) could need in bytes; it had ``work_bytes``, or the node if exclusive."""
        self.work_bytes = session.layout.thread_bytes - TASK_SLACK_BYTES
        self._made: list[str] = []
        self._show: SHOW = lambda title, done, total: None  # noqa: ARG005

    def resolve(self, program: Program, show: SHOW) -> Program:
        """Return the program with every deferred step replaced by its resolved form."""
        self._show = show
        for place, step in enumerate(program.steps):
            barrier = step.barrier
            if barrier is not None and not isinstance(step.action, RangeAction):
                before = dataclasses.replace(program, steps=program.steps[:place])
                action: RangeAction
                if isinstance(barrier, RowCount):
                    action = self._count_rows(before, step, barrier)
                else:
                    action = barrier.resolved(barrier.find(self, before, step))
                resolved = dataclasses.replace(step, action=action)
                program = dataclasses.replace(
                    program, steps=(*program.steps[:place], resolved, *program.steps[place + 1 :])
                )
        return program

    def find(self, program: Program, home: Folder, show: SHOW) -> tuple[Program, Found]:
        """Return the steps before the last, deferred step of a program, and the result of its stages, stored in ``home``."""
        before = self.resolve(dataclasses.replace(program, steps=program.steps[:-1]), show)
        barrier = program.steps[-1].barrier
        if barrier is None or isinstance(barrier, RowCount):
            raise ParameterError("the last step is not a deferred operation; this is a defect in curator_df")
        return before, dataclasses.replace(barrier, home=home).find(self, before, program.steps[-1])

    @property
    def folders(self) -> tuple[Folder, ...]:
        """The folders of its stages that are temporary."""
        return tuple(self.temporary.below(name) for name in self._made)

    def clear(self) -> None:
        """Delete the stages' temporary files: the output is complete."""
        for name in self._made:
            self.temporary.delete_tree(name)

    def run_tasks(
        self,
        journal: Journal,
        title: str,
        job: Any,
        pieces: Sequence[Range],
        *,
        stage: StagePlan,
        folder: Folder,
        task: Any = None,
        only: npt.NDArray[np.bool_] | None = None,
        gone: str | None = None,
    ) -> list[dict[str, Any]]:
        """Run the tasks that are not in the journal, or whose files are missing; return the records of all, in order.

        The number of each piece is its index in ``pieces``; ``folder`` contains the files. ``only`` selects the required pieces.
        Files of the subfolder ``gone`` need not exist any more.
        """
        done = _still_there(folder, journal.records(), gone)
        wanted = range(len(pieces)) if only is None else np.flatnonzero(only).tolist()

        def note(manifest: Manifest) -> None:
            journal.record([manifest])
            done[manifest.number] = {**vars(manifest)}
            self._show(title, len(done), len(wanted))

        self._show(title, len(done), len(wanted))
        self.session.tell(StageStarted(stage_name(title), job, len(wanted), len(done)))
        waiting: Iterator[Range] = (pieces[number] for number in wanted if number not in done)
        extra = {"start_bytes": self.start_bytes} if task is None else {"task": task}
        dispatcher = Dispatcher(self.session, job, stage, note, title=title, **extra)
        try:
            dispatcher.run(waiting)
        finally:
            self.retries += dispatcher.retries
            self.leaks += dispatcher.leaks
        journal.sync()  # the next stage may delete the inputs of these tasks, so no record of them may be lost
        if task is None:
            self.start_bytes = dispatcher.start_bytes
        else:
            self.merge_bytes = max(self.merge_bytes, merge_bytes(job, list(done.values())))
        return [done[number] for number in wanted]

    def run_pass(
        self,
        journal: Journal,
        title: str,
        program: Program,
        columns: tuple[str, ...],
        sink: Any,
        ranges: Ranges,
        *,
        home: Folder | None = None,
        **which: Any,
    ) -> list[dict[str, Any]]:
        """Stream ranges through a program into a sink that needs these columns; see `run_tasks`.

        Quarantined rows go to the folder of the journal, which belongs to this pass; that of the sink may be shared.
        """
        program = with_columns(program, columns)
        # Kernels process each row separately; a user's step may not.
        by_row = all(isinstance(step.action, BlockKernel) for step in program.steps)
        wanted = sink.wanted if by_row else None
        how: dict[str, Any] = {"wanted": wanted, "capacity": self.stage.capacity, "run_id": self.run_id}
        job = Job(fork([Branch(program, sink, set_aside=journal.folder)]), self.on_error, self.on_oom, **how)
        return self.run_tasks(journal, title, job, ranges, stage=self.stage, folder=home or journal.folder, **which)

    @contextlib.contextmanager
    def open_stage(self, before: Program, step: Step, home: Folder | None = None) -> Iterator[Journal]:
        """Open the journal of a deferred step's stages, new or already started, in its folder: by default a temporary one."""
        identity = stage_identity(before, step)
        if home is None:
            home = self._temporary_home(step, identity)
            if self.session.looks is not None and self.session.looks.hand_over(home, self.ranges):
                self.session.tell(Note("reuse", f"passes of {step.name}: done by an earlier look, reused"))
        with Journal(home) as journal:
            if journal.is_started:
                self._require_same_ranges(journal.resume(identity), home)
            else:
                journal.start(identity, self.ranges)
            yield journal

    def _count_rows(self, before: Program, step: Step, barrier: RowCount) -> NumberRows:
        with self.open_stage(before, step) as journal:
            sink = CountSink(journal.folder)
            counted = self.run_pass(journal, f"{step.name}: count rows", before, (), sink, self.ranges)
        return NumberRows(barrier, np.array([manifest["rows_written"] for manifest in counted], dtype=np.int64))

    def find_drops(self, before: Program, step: Step, barrier: Barrier | PartBarrier) -> Found:
        """Exchange the keys of all rows (or parts); return which of them to drop."""
        with self.open_stage(before, step, barrier.home) as journal:
            home = journal.folder
            exchange, _ = self._exchange(home, before, barrier)
            files = None if journal.receipt is None else self._found_files(home, exchange)
            if files is None:
                said = ExchangeReceipt(**self._exchange_keys(journal, before, step, barrier))
                journal.finish(dataclasses.asdict(said))
                self.session.tell(Exchanged(said))
                files = self._found_files(home, exchange)
            if files is None:
                raise CorruptFileError(f"{home.url}: files of a stage were deleted while it ran. Run it again")
            self.exchanges.append(ExchangeReceipt(**(journal.receipt or {})))
            home.delete_tree("keys")
            first = first_pass(journal.done(), len(self.ranges))
        groups = RangeGroups(exchange.range_starts, ranges_per_group(len(self.ranges)))
        return Found(exchange, files["drops"], *first, groups=groups, members=files["members"])

    def _found_files(self, home: Folder, exchange: Exchange) -> dict[str, tuple[FileRecord, ...]] | None:
        """Return the files that the last pass, or a table, reads; None if one of them, or the record of a task, is missing."""
        found: dict[str, tuple[FileRecord, ...]] = {}
        merged = ("merge", exchange.reducers)
        last = ("collect", exchange.drop_files) if exchange.ranges_per_drop_file > 1 else merged
        for kind, (name, count) in (("drops", last), ("members", merged)):
            done = all_done(home.below(name), count)
            if done is None:
                return None
            found[kind] = split_files(done, kind)
        return found if home.holds([file for files in found.values() for file in files]) else None

    def _exchange_keys(
        self, journal: Journal, before: Program, step: Step, barrier: Barrier | PartBarrier
    ) -> dict[str, Any]:
        """Write keys, compare them and collect the drops; return the figures for an `ExchangeReceipt`."""
        started, home = time.monotonic(), journal.folder
        exchange, projected_bytes = self._exchange(home, before, barrier)
        keys, merged = self._map_and_merge(journal, exchange, before, step, barrier)
        found = [record for manifest in merged for record in manifest["files"]]
        if exchange.ranges_per_drop_file > 1:
            collected = self._merge(home, "collect", exchange, split_files(merged, "drops"), exchange.drop_files)
            found += split_files(collected, "drops")
        sizes = [manifest["rows_read"] for manifest in merged]
        return {
            "step": step.name,
            "keys": sum(sizes),
            "unique": sum(manifest["summary"]["unique"] for manifest in merged),
            "hash_ranges": exchange.reducers,
            "skew": max(sizes) * len(sizes) / max(sum(sizes), 1),
            "projected_bytes": projected_bytes,
            "key_bytes": sum(record.size_bytes for record in split_files(keys, "keys")),
            "drop_bytes": sum(record.size_bytes for record in found),
            "spilled_bytes": sum(manifest["summary"]["spilled_bytes"] for manifest in [*keys, *merged]),
            "seconds": time.monotonic() - started,
        }

    def _map_and_merge(
        self, journal: Journal, exchange: Exchange, before: Program, step: Step, barrier: Barrier | PartBarrier
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        def take() -> list[dict[str, Any]]:
            sink = KeySink(exchange, barrier)
            return self.run_pass(journal, f"{step.name}: keys", before, barrier.columns, sink, self.ranges)

        def merge(keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return self._merge(journal.folder, "merge", exchange, split_files(keys, "keys"), exchange.reducers)

        return mended(journal.folder, take, merge)

    def _merge(
        self, home: Folder, name: str, exchange: Exchange, files: Sequence[FileRecord], count: int
    ) -> list[dict[str, Any]]:
        stage = dataclasses.replace(self.stage, block_bytes=self.work_bytes)
        pieces = [Range(number, 0, 0, 0, 0) for number in range(count)]
        with Journal(home.below(name)) as journal:
            job = MergeJob(exchange, tuple(files), name == "collect")
            return self.run_tasks(journal, name, job, pieces, stage=stage, folder=home, task=run_merge)

    def _exchange(self, home: Folder, before: Program, barrier: Barrier | PartBarrier) -> tuple[Exchange, int]:
        """Return the exchange and its estimated disk space in bytes; a resumed one keeps its hash ranges, whatever its memory."""
        name, starts = f"{JOURNAL_FOLDER}/exchange.json", range_starts(self.ranges)
        groups = RangeGroups(starts, ranges_per_group(len(starts)))
        keeps_members = barrier.home is not None and not barrier.of_parts
        if home.exists(name):
            chosen = json.loads(home.read(name))
        else:
            layout = self.session.layout
            plan = project_exchange(
                estimate_kept(before, self.ranges, of_parts=barrier.of_parts),
                keep=barrier.keep,
                map_files=len(self.ranges),
                work_bytes=layout.thread_bytes,
                tasks_at_a_time=layout.workers * layout.threads,
                folder=home,
                of_parts=barrier.of_parts,
                member_slices=len(groups) if keeps_members else 0,
            )
            chosen = {
                "reducers": plan.reducers,
                "ranges_per_drop_file": plan.ranges_per_drop_file,
                "projected_bytes": plan.disk_bytes + plan.scratch_bytes,
            }
            home.write(name, json.dumps(chosen).encode())
        exchange = Exchange(
            home,
            barrier.keep,
            chosen["reducers"],
            starts,
            chosen["ranges_per_drop_file"],
            of_parts=barrier.of_parts,
            member_bounds=groups.bounds if keeps_members else None,
        )
        return exchange, int(chosen["projected_bytes"])

    def _temporary_home(self, step: Step, identity: Identity) -> Folder:
        name = temporary_name(step, identity)
        self._made.append(name)
        return self.temporary.below(name)

    def _require_same_ranges(self, ranges: Ranges, home: Folder) -> None:
        if not np.array_equal(ranges.table, self.ranges.table):
            raise ResumeError(
                f"{home.url} contains a stage of the same input that was split into {len(ranges):,} other parts (by another "
                "version of curator_df). Delete the folder, and run again"
            )


def mended(
    folder: Folder, write: Callable[[], list[dict[str, Any]]], read: Callable[[list[dict[str, Any]]], T]
) -> tuple[list[dict[str, Any]], T]:
    """Return the results of ``write`` and ``read``; if ``read`` finds a file of ``write`` damaged, it is written again, once."""
    seen: set[str] = set()
    while True:
        written = write()
        try:
            return written, read(written)
        except CorruptFileError as exc:
            names = [record.name for manifest in written for record in manifest["files"]]
            damaged = [name for name in names if folder.path(name) == exc.path]
            if not damaged or exc.path in seen:
                raise
            seen.add(exc.path)
            if folder.exists(damaged[0]):
                folder.delete(damaged[0])


def temporary_name(step: Step, identity: Identity) -> str:
    """Return the name of the folder of a stage that goes when the run is complete."""
    return f"{step.name}-{fingerprint(identity)[:16]}"


def stage_identity(before: Program, step: Step) -> Identity:
    """Return the identity of the stage of a deferred step."""
    named, read = named_steps(before.steps), printed_source(before.source)
    return Identity(before.source.fingerprint, before.fingerprint, step.fingerprint, *named, step.parameters, read)


def first_pass(keys: Iterable[Mapping[str, Any]], ranges: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Return the rows of each range in the pass that wrote keys, and their checksums."""
    rows, checksums = np.zeros(ranges, dtype=np.int64), np.zeros(ranges, dtype=np.uint64)
    for manifest in keys:  # for a repeated range, the last record counts
        rows[manifest["number"]] = manifest["rows_written"]
        checksums[manifest["number"]] = manifest["summary"]["key_checksum"]
    return rows, checksums


def _still_there(folder: Folder, noted: dict[int, dict[str, Any]], gone: str | None) -> dict[int, dict[str, Any]]:
    """Return the records of tasks whose files all exist with their sizes; files of ``gone`` are not checked."""
    skipped = () if gone is None else (f"{gone}/",)
    sizes = folder.sizes_of([file.name for record in noted.values() for file in record["files"]])

    def is_there(file: FileRecord) -> bool:
        return file.name.startswith(skipped) or sizes.get(file.name) == file.size_bytes

    return {number: record for number, record in noted.items() if all(map(is_there, record["files"]))}

# SPDX-License-Identifier: Apache-2.0
"""Run the stages before the last pass: for each deferred step a pass that hashes keys, and a merge of these by hash range.

Each stage has its own folder and journal, below the output's ``_curator/`` or in the user's ``workdir``, so that it can be
resumed like the output itself. Each part of its work has a journal in a subfolder, without an owner of its own. The folders are
deleted when the run is complete, except those that a ``find_`` operator keeps.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.branches import Branch, Fork, fork, named_steps
from curator_df.core.planning.disk import stage_files
from curator_df.core.planning.first_steps import Reuse
from curator_df.core.planning.plan import Plan, StagePlan
from curator_df.core.planning.price import TASK_SLACK_BYTES
from curator_df.core.planning.program import Program, StageStart, Step, with_columns
from curator_df.core.ranges.journal import Identity, Journal, all_done, difference
from curator_df.core.ranges.manifest import Manifest, TaskRecord
from curator_df.core.ranges.parameter_digests import printed_source
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.set_up import forget_run
from curator_df.core.ranges.sink import Sink
from curator_df.core.ranges.source import Range, Ranges
from curator_df.core.runner.dispatch import Dispatcher
from curator_df.core.runner.events import Exchanged, Note, RunStarted, StageStarted, run_events, stage_name
from curator_df.core.runner.live_panel import live_panel
from curator_df.core.runner.prefix import Prefix, stored_prefix
from curator_df.core.runner.session import Session
from curator_df.core.tasks.task import Job, OnError, OnOom
from curator_df.errors import CorruptFileError, InputChangedError, InputError, ParameterError, ResumeError
from curator_df.files.owner import OWNERS_FOLDER
from curator_df.files.row_order import SORT_BYTES_PER_ROW
from curator_df.files.row_sort import merge_row_bytes
from curator_df.files.storage import JOURNAL_FOLDER, FileRecord, Folder
from curator_df.files.working_files import COMPARE_PARQUET, FIND_AGAIN, has_working_file
from curator_df.memory.leaks import LeakReceipt
from curator_df.memory.process_cache import released_after
from curator_df.memory.sizes import show_count
from curator_df.receipts.receipt import ExchangeReceipt

STAGES_FOLDER = f"{JOURNAL_FOLDER}/stages"
"""Name of the folder below the output folder."""
DROP_PEAK_FACTOR = 1.4
"""Peak extra memory of dropping rows as a multiple of the block's bytes: the kept rows, and their keys."""
WIDEST_WORDS = 4
"""Words of the rows that are merged and sorted if the exchange is unknown; vectors are wider, and count by their bytes."""
T = TypeVar("T")
SHOW = Callable[[str, int, int], None]


@dataclass(frozen=True)
class StageRecord:
    """Record of a finished stage, or of a finished part of one."""

    files: Mapping[str, tuple[FileRecord, ...]] = field(default_factory=dict)
    """Files that later stages read, by purpose."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Figures for later stages and the receipt, by name."""
    exchange: ExchangeReceipt | None = None
    """Receipt of the whole operation; None for a part."""

    @property
    def all_files(self) -> list[FileRecord]:
        """Files of all purposes."""
        return [file for files in self.files.values() for file in files]

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the record that a journal contains."""
        files = {name: tuple(FileRecord(**file) for file in files) for name, files in stored["files"].items()}
        exchange = None if stored["exchange"] is None else ExchangeReceipt(**stored["exchange"])
        return cls(files, stored["figures"], exchange)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the journal's file."""
        return {
            "files": {name: [vars(file) for file in files] for name, files in self.files.items()},
            "figures": dict(self.figures),
            "exchange": None if self.exchange is None else dataclasses.asdict(self.exchange),
        }


class PassRunner:
    """Runner of the stages of one output, one after the other."""

    def __init__(
        self,
        session: Session,
        stage: StagePlan,
        temporary: Folder,
        ranges: Ranges,
        on_error: OnError,
        on_oom: OnOom = "retry",
        reuse: Reuse = "never",
        stored: str = "",
    ) -> None:
        self.reuse, self.stored = reuse, stored
        self.session, self.stage, self.ranges, self.on_error, self.on_oom = session, stage, ranges, on_error, on_oom
        self.temporary, self.run_id = temporary, uuid.uuid4().hex
        self.prefix: Prefix | None = None
        """Stored rows of the first steps, which the passes read instead of the input."""
        self.exchanges: list[ExchangeReceipt] = []
        self.retries: collections.Counter[str] = collections.Counter()
        self.leaks: list[LeakReceipt] = []
        self.start_bytes = 0
        """Final block size of the passes over rows so far, in bytes; 0 before the first."""
        self.longest_bytes = 0
        """Size of the largest block of these passes in bytes: a row of it may be missing in the last pass."""
        self.merge_bytes = 0
        """Maximum memory that a merge (or comparison) could need in bytes; it had ``work_bytes``, or the node if exclusive."""
        self.work_bytes = session.layout.thread_bytes - TASK_SLACK_BYTES
        self.finished: npt.NDArray[np.bool_] = np.zeros(len(ranges), dtype=np.bool_)
        """Mask of the ranges that an earlier run finished in every output."""
        self._made: list[str] = []
        self._show: SHOW = lambda title, done, total: None  # noqa: ARG005

    @contextlib.contextmanager
    def running(self, name: str, plan: Plan, steps: Sequence[Step], *others: PassRunner) -> Iterator[None]:
        """Show a run in progress under a name; at its end, release what its steps hold in the workers."""
        session, started = self.session, RunStarted(name, plan.input_bytes, plan.projected_bytes)
        with contextlib.ExitStack() as stack:
            stack.enter_context(live_panel(session))
            for runner in (self, *others):
                forget = functools.partial(forget_run, runner.run_id)
                stack.enter_context(released_after(session, steps, forget))
            stack.enter_context(run_events(session, started))
            yield

    def store_prefix(self, joined: Fork, finished: npt.NDArray[np.bool_], show: SHOW) -> None:
        """Store what the first steps of a run make, if it pays: the passes over its rows then read that."""
        self._show, self.finished = show, finished
        self.prefix = stored_prefix(self, joined, self.reuse, finished, name=self.stored)

    def last_job(self, joined: Fork, stage: StagePlan) -> Job:
        """Return the job of the last pass, whose steps are all resolved."""
        stored = None if self.prefix is None else self.prefix.for_pass(is_last=True)
        return Job(joined, self.on_error, self.on_oom, stored=stored, capacity=stage.capacity, run_id=self.run_id)

    def resolve(self, program: Program, show: SHOW) -> Program:
        """Return the program with every deferred step replaced by its resolved form."""
        self._show = show
        require_found_groups(program)
        for place, step in enumerate(program.steps):
            if step.is_pending and step.pending is not None:
                before = dataclasses.replace(program, steps=program.steps[:place])
                action = step.pending.resolved(step.pending.prepare(self, before, step))
                price = Price(step.price.peak_factor, step.price.is_measured)  # the passes had the rest
                resolved = dataclasses.replace(step, action=action, price=price)
                program = dataclasses.replace(
                    program, steps=(*program.steps[:place], resolved, *program.steps[place + 1 :])
                )
        return program

    def prepare_last(self, program: Program, home: Folder, show: SHOW) -> tuple[Program, Any]:
        """Return the steps before the last, deferred step of a program, and the result of its stages, stored in ``home``."""
        before = self.resolve(dataclasses.replace(program, steps=program.steps[:-1]), show)
        step = program.steps[-1]
        if step.pending is None:
            raise ParameterError(
                "the last step does not need a full pass over the data, but is prepared as one that does. This is a defect "
                "in curator_df; please report it with this traceback"
            )
        return before, step.pending.stored_in(home).prepare(self, before, step)

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
        needs_removed: bool = False,
    ) -> list[TaskRecord]:
        """Run the tasks that are not in the journal, or whose files are missing; return the records of all, in order.

        The number of each piece is its index in ``pieces``; ``folder`` contains the files. ``only`` selects the required pieces.
        Files of the subfolder ``gone`` need not exist any more; with ``needs_removed``, those of removed rows must.
        """
        done = _still_there(folder, journal.records(), gone, needs_removed=needs_removed)
        wanted = range(len(pieces)) if only is None else np.flatnonzero(only).tolist()

        def note(manifest: Manifest) -> None:
            done[manifest.number] = TaskRecord.of(manifest)
            journal.record([done[manifest.number]])
            self._show(title, len(done), len(wanted))

        self._show(title, len(done), len(wanted))
        self.session.emit(StageStarted(stage_name(title), job, len(wanted), len(done)))
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
            self.longest_bytes = max(self.longest_bytes, dispatcher.peaks.block_bytes)
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
        only: npt.NDArray[np.bool_] | None = None,
        gone: str | None = None,
        rejects: Sink | None = None,
        needs_removed: bool = False,
    ) -> list[TaskRecord]:
        """Stream ranges through a program into a sink that needs these columns; see `run_tasks`.

        Quarantined rows go to the folder of the journal, which belongs to this pass; that of the sink may be shared.
        """
        stored = None
        if self.prefix is not None and self.prefix.leads(program) and self.prefix.covers(only):
            stored = self.prefix.for_pass()
        program = with_columns(program, columns)
        # Kernels process each row separately; a user's step may not.
        by_row = all(step.action.is_rowwise for step in program.steps)
        wanted = sink.wanted if by_row else None
        job = Job(
            fork([Branch(program, sink, rejects, set_aside=journal.folder)]),
            self.on_error,
            self.on_oom,
            wanted=wanted,
            stored=stored,
            capacity=self.stage.capacity,
            run_id=self.run_id,
        )
        folder = home or journal.folder
        return self.run_tasks(
            journal,
            title,
            job,
            ranges,
            stage=self.stage,
            folder=folder,
            only=only,
            gone=gone,
            needs_removed=needs_removed,
        )

    @contextlib.contextmanager
    def open_stage(self, before: Program, step: Step, home: Folder | None = None) -> Iterator[Stage]:
        """Open the stage of a deferred step, new or already started, in its folder: by default a temporary one."""
        identity = stage_identity(before, step)
        if home is None:
            home = self._temporary_home(step, identity)
            if self.session.looks is not None and self.session.looks.hand_over(home, self.ranges):
                self.session.emit(Note("reuse", f"passes of {step.name}: done by an earlier look, reused"))
        start = StageStart(before, self.ranges, self.session.layout)
        with self._opened(home, identity, lambda: stage_files(step, start).require(home)) as stage:
            yield stage

    @contextlib.contextmanager
    def open_temporary(self, name: str, identity: Identity) -> Iterator[Stage]:
        """Open a stage that belongs to no step, new or already started, in a temporary folder of this name."""
        self.note_temporary(name)
        with self._opened(self.temporary.below(name), identity) as stage:
            yield stage

    def has_temporary(self, name: str) -> bool:
        """Return whether the temporary folder of this name was started."""
        return Journal(self.temporary.below(name)).is_started

    def forget_other(self, name: str, identity: Identity) -> None:
        """Delete the temporary folder of this name if it holds something else, such as rows for other outputs of a run."""
        folder = self.temporary.below(name)
        journal = Journal(folder)
        if journal.is_started:
            try:
                journal.resume(identity)
            except ResumeError:
                folder.delete_tree("")

    def note_temporary(self, name: str) -> None:
        """Delete the temporary folder of this name, if there is one, when the run is complete."""
        if name not in self._made:
            self._made.append(name)

    @contextlib.contextmanager
    def _opened(
        self, home: Folder, identity: Identity, require_disk: Callable[[], None] = lambda: None
    ) -> Iterator[Stage]:
        with Journal(home) as journal:
            if journal.is_started:
                self._require_same_ranges(journal.resume(identity), home)
            else:
                require_disk()
                home.delete_all(_leftovers(home))
                journal.start(identity, self.ranges)
            yield Stage(self, journal)

    def _temporary_home(self, step: Step, identity: Identity) -> Folder:
        name = temporary_name(step, identity)
        self._made.append(name)
        return self.temporary.below(name)

    def _require_same_ranges(self, ranges: Ranges, home: Folder) -> None:
        if not np.array_equal(ranges.table, self.ranges.table):
            raise ResumeError(
                f"{home.url} contains intermediate files of this input from another version of curator_df, which split the "
                f"input differently ({show_count(len(ranges), 'other part')}). Delete the folder, and run again"
            )


def require_found_groups(program: Program) -> None:
    """Raise an error if groups with which a drop of a program was built are gone, or were found in another table.

    Groups are compared when the drop is built. Until a run, their cluster may have been closed, or the input changed.
    """
    for place, step in enumerate(program.steps):
        if not step.is_pending or step.pending is None or step.pending.home is None:
            continue
        plan = Journal(step.pending.home).plan
        if plan is None:
            folder = step.pending.home.url.partition(f"/{JOURNAL_FOLDER}/")[0]
            raise InputError(
                f"{step.name}: the groups passed as groups= were stored in {folder}, which is gone: {FIND_AGAIN}, and pass "
                f"the new ones to {step.name}"
            )
        if plan["input"] == program.source.fingerprint:
            continue
        if has_working_file(program.source.files):
            raise ParameterError(f"{step.name}: {COMPARE_PARQUET}")
        now = stage_identity(dataclasses.replace(program, steps=program.steps[:place]), step)
        raise InputChangedError(
            f"{step.name}: the groups passed as groups= were found in another table: {difference(plan, now)}. Find groups "
            f"again in this table, and pass these to {step.name}"
        )


def _leftovers(home: Folder) -> list[str]:
    """Return the files of a folder without a plan: of a stage whose deletion, or whose copying, was killed."""
    guards = (f"{JOURNAL_FOLDER}/lock", f"{OWNERS_FOLDER}/")
    return [name for name in home.names() if not name.startswith(guards)]


def mended(
    folder: Folder, write: Callable[[], list[TaskRecord]], read: Callable[[list[TaskRecord]], T]
) -> tuple[list[TaskRecord], T]:
    """Return the results of ``write`` and ``read``; if ``read`` finds a file of ``write`` damaged, it is written again, once."""
    seen: set[str] = set()
    while True:
        written = write()
        try:
            return written, read(written)
        except CorruptFileError as exc:
            names = [file.name for record in written for file in record.files]
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
    return Identity(
        before.source.fingerprint, before.fingerprint, step.stage_fingerprint, *named, step.parameters, read
    )


def first_pass(keys: Iterable[TaskRecord], ranges: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """Return the rows of each range in the pass that wrote keys, and their checksums."""
    rows, checksums = np.zeros(ranges, dtype=np.int64), np.zeros(ranges, dtype=np.uint64)
    for record in keys:  # for a repeated range, the last record counts
        rows[record.number] = record.rows_written
        checksums[record.number] = record.summary["key_checksum"]
    return rows, checksums


def skew(sizes: Sequence[int]) -> float:
    """Return the largest of some sizes as a multiple of their mean; 0.0 if all are 0."""
    return max(sizes, default=0) * len(sizes) / max(sum(sizes), 1)


def sum_of(records: Iterable[TaskRecord], name: str) -> int:
    """Return the sum of a figure over the tasks that have it."""
    return sum(record.summary.get(name, 0) for record in records)


def _still_there(
    folder: Folder, noted: dict[int, TaskRecord], gone: str | None, *, needs_removed: bool = False
) -> dict[int, TaskRecord]:
    """Return the records of tasks whose files all exist as they were written; files of ``gone`` are not checked.

    Files of removed rows are checked with ``needs_removed``; they are then in the same folder.
    """
    skipped = () if gone is None else (f"{gone}/",)

    def files_of(record: TaskRecord) -> Iterator[FileRecord]:
        files = (*record.files, *record.other_files) if needs_removed else record.files
        return (file for file in files if not file.name.startswith(skipped))

    changed = {file.name for file in folder.changed([file for one in noted.values() for file in files_of(one)])}
    return {
        number: record for number, record in noted.items() if changed.isdisjoint(file.name for file in files_of(record))
    }


def merge_bytes(job: Any, done: Sequence[TaskRecord]) -> int:
    """Return the maximum bytes of a merge: for the rows that it counted, or else as if one task had all files of the stage."""
    files = [file for name in ("files", "known") for file in getattr(job, name, ())]
    if not files:
        return 0  # the rows merged and sorted in this case were merged before
    exchange = getattr(job, "exchange", None)
    rows = max((record.rows_read for record in done), default=0)
    merged = rows * merge_row_bytes(WIDEST_WORDS if exchange is None else exchange.words)
    if not rows:
        merged = sum(max(file.rows * merge_row_bytes(WIDEST_WORDS), 3 * file.size_bytes) for file in files)
    row_bytes = 8 * WIDEST_WORDS + SORT_BYTES_PER_ROW
    written = (sum(max(file.rows * row_bytes, 2 * file.size_bytes) for file in record.files) for record in done)
    said = max((record.summary.get("held_bytes", 0) for record in done), default=0)
    return int(merged + max(written, default=0) + said + TASK_SLACK_BYTES)


class Stage:
    """Open stage of a deferred operation: its folder, its journal, and the parts of its work."""

    def __init__(self, runner: PassRunner, journal: Journal) -> None:
        self.runner, self.journal, self.home = runner, journal, journal.folder
        self.work_bytes = runner.work_bytes
        """Working memory of a task that merges, in bytes."""
        self.spilled_bytes = 0
        """Bytes that tasks have moved to disk, because a merge did not fit into memory."""

    def record_of(self, name: str = "") -> StageRecord | None:
        """Return the record of a part (by default of the whole stage); None if it is not finished."""
        stored = (self.journal.part(name) if name else self.journal).receipt
        return None if stored is None else StageRecord.from_json(stored)

    def once(self, name: str, make: Callable[[], StageRecord], *, needs_files: bool = True) -> StageRecord:
        """Return the record of a part, made by calling ``make`` unless it is finished and, if needed, all its files exist."""
        record = self.record_of(name)
        if record is None or (needs_files and not self.home.holds(record.all_files)):
            record = make()
            with self.journal.part(name) as journal:
                journal.finish(record.to_json())
        return record

    def finish(self, make: Callable[[], StageRecord]) -> StageRecord:
        """Return the record of the stage, made by calling ``make`` unless it is finished and all its files exist."""
        record = self.record_of()
        if record is None or not self.home.holds(record.all_files):
            record = make()
            self.journal.finish(record.to_json())
            if record.exchange is not None:
                self.runner.session.emit(Exchanged(record.exchange))
        if record.exchange is not None:
            self.runner.exchanges.append(record.exchange)
        return record

    def tasks(self, name: str, title: str, task: Callable[..., Any], job: Any, count: int) -> list[TaskRecord]:
        """Run those of ``count`` tasks that are not done; return the records of all, in order.

        Parameters
        ----------
        name : str
            Subfolder of the part's journal.
        title : str
            Title for the progress bar.
        task : callable
            Function that runs on a worker: ``task(job_bytes, attempt)``.
        job : Any
            Fields that all tasks share.
        count : int
            Number of tasks.
        """
        plan = dataclasses.replace(self.runner.stage, block_bytes=self.work_bytes)
        pieces = [Range(number, 0, 0, 0, 0) for number in range(count)]
        with self.journal.part(name) as journal:
            done = self.runner.run_tasks(journal, title, job, pieces, stage=plan, folder=self.home, task=task)
        self.spilled_bytes += sum(record.summary.get("spilled_bytes", 0) for record in done)
        return done

    def tasks_done(self, name: str, count: int) -> list[TaskRecord] | None:
        """Return the records of the tasks of a part, in order; None unless all are done."""
        return all_done(self.journal.part(name), count)

    def stream(
        self,
        title: str,
        program: Program,
        columns: tuple[str, ...],
        sink: Any,
        ranges: Ranges,
        *,
        name: str = "",
        only: npt.NDArray[np.bool_] | None = None,
        gone: str | None = None,
        rejects: Sink | None = None,
        needs_removed: bool = False,
    ) -> list[TaskRecord]:
        """Stream ranges through a program into a sink; see `PassRunner.run_pass`.

        By default, the stage's own journal records the ranges; otherwise that of the part ``name``.
        """
        with self.journal.part(name) if name else contextlib.nullcontext(self.journal) as journal:
            return self.runner.run_pass(
                journal,
                title,
                program,
                columns,
                sink,
                ranges,
                home=self.home,
                only=only,
                gone=gone,
                rejects=rejects,
                needs_removed=needs_removed,
            )

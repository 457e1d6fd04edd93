# SPDX-License-Identifier: Apache-2.0
"""Memory-bounded runner of every `write_*`: plan, journal, processing of ranges, receipt."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.arguments import choose
from curator_df.core.planning.branches import (
    Branch,
    Fork,
    bound,
    fork,
    identity_of,
    overlapping_samples,
    require_appended,
    side_branches,
)
from curator_df.core.planning.device_plan import for_sink
from curator_df.core.planning.disk import WorkingFiles, working_files
from curator_df.core.planning.first_steps import Reuse
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.one_pass import MAY_NEED_PASSES, in_all_passes, passes_after
from curator_df.core.planning.output_paths import require_disjoint_outputs, require_not_input
from curator_df.core.planning.plan import Plan, plan_fork, planned
from curator_df.core.ranges.journal import (
    Identity,
    Journal,
    OnExisting,
    check_output,
    delete_unfinished,
    open_run,
    resumed_ranges,
    settle_files,
    whole_ranges,
)
from curator_df.core.ranges.manifest import Manifest, TaskRecord
from curator_df.core.ranges.rejects import RejectsFolder
from curator_df.core.ranges.sink import Sink
from curator_df.core.ranges.source import Range, Ranges, Source
from curator_df.core.recorded_calls import current_call
from curator_df.core.runner.advice import advice, rows_out_of_memory
from curator_df.core.runner.dispatch import Dispatcher
from curator_df.core.runner.events import Event, Note, StageStarted
from curator_df.core.runner.explaining import is_explaining, stop_if_explaining, with_time_left
from curator_df.core.runner.passes import SHOW, STAGES_FOLDER, PassRunner, require_found_groups
from curator_df.core.runner.prefix import require_storable, stored_folders
from curator_df.core.runner.progress import passes_bar, progress_bar, with_progress_lines
from curator_df.core.runner.run_receipt import add_record, new_receipt
from curator_df.core.runner.session import Session, current_session, prepare_kernels
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.errors import ResumeError, RowCountError, outside_level
from curator_df.files.owner import require_claimable
from curator_df.files.storage import Folder
from curator_df.memory.budget import Layout
from curator_df.memory.gpus import measured_use
from curator_df.memory.process_cache import release_held
from curator_df.memory.sizes import show_count, show_size
from curator_df.receipts.model_figures import most_reserved
from curator_df.receipts.receipt import Receipt, RunEvent

RANGE_BYTES = 64_000_000
"""Decompressed bytes of a range: about a second of work, so that a lost worker costs little."""
SMALL_RANGE_BYTES = 16_000_000
"""Decompressed bytes of a range of a small input, which would otherwise be one or two tasks."""
FEWEST_RANGES = 32
EVEN_RANGES = 4
"""Divisor of the number of ranges of small inputs, so that two or four threads end together."""
MOST_EVENTS = 200
"""Maximum number of events in a receipt."""
MOST_RANGES = 50_000
"""Maximum number of ranges; beyond it ranges grow: the scheduler and the journal need memory for each."""


def run(
    df: Any,
    sink: Sink,
    *,
    rejects: Sink | None = None,
    workdir: Folder | None = None,
    on_existing: OnExisting = "raise",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    reuse: Reuse = "auto",
) -> Receipt:
    """Run a lazy table into a sink under the budget of the current session.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        Chain that begins with a reader of curator_df.
    sink : Sink
        Sink of the rows.
    rejects : Sink, optional
        Sink of the removed rows.
    workdir : Folder, optional
        Folder for the temporary files of drops; by default below the output.
    on_existing : {"raise", "resume", "overwrite"}
        Policy for an output folder that already contains files.
    on_error : {"raise", "quarantine"}
        Policy for rows on which a step fails.
    on_oom : {"retry", "raise"}
        Policy for exhausted memory: process fewer rows, down to one, or stop.
    reuse : {"auto", "always", "never"}
        Policy for the first steps of a chain whose later drops need several passes: `core.runner.prefix`.

    Returns
    -------
    Receipt
        Totals, including those of an earlier, interrupted run.

    Raises
    ------
    BudgetError
        If the plan does not fit. Nothing has been started.
    """
    (receipt,) = run_branches(
        [(df, sink, rejects)],
        workdir=workdir,
        on_existing=on_existing,
        on_error=on_error,
        on_oom=on_oom,
        reuse=reuse,
    )
    return receipt


def _shared_rows(overlap: Sequence[Branch]) -> str:
    """Return the warning that two outputs are samples that may share rows."""
    first, second = (branch.sink.folder.url for branch in overlap)
    return (
        f"{first} and {second} are two samples of sample_rows, which share rows: with the same seed the larger sample "
        "contains the smaller one. For disjoint outputs, such as a training and a test set, use split_rows."
    )


@with_progress_lines("preparing the run")
def run_branches(
    outputs: Sequence[tuple[Any, Sink, Sink | None]],
    *,
    workdir: Folder | None = None,
    on_existing: OnExisting = "raise",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    reuse: Reuse = "auto",
) -> list[Receipt]:
    """Run several lazy tables into a sink each, in one pass over their common input.

    Each output has its own journal and receipt, as if it had been written alone; a range that an interrupted run finished
    for some outputs only is run again for the others. The temporary files of drops go below the first output by default.

    Parameters
    ----------
    outputs : sequence of (dask.dataframe.DataFrame, Sink, Sink or None)
        Tables, the sinks of their rows, and the sinks of their removed rows.
    workdir, on_existing, on_error, on_oom, reuse
        Same arguments as for `run`, for every output.

    Returns
    -------
    list of Receipt
        Receipt of each output.

    Raises
    ------
    BudgetError
        If the plan does not fit. Nothing has been started.
    ExpressionError
        If the tables do not begin with the same input.
    ParameterError
        If two of the folders are the same or one is inside another, or if one of them contains the input.
    """
    choose(_called(), "reuse", reuse, Reuse)
    branches = checked_branches(outputs, workdir=workdir, on_existing=on_existing, on_error=on_error, on_oom=on_oom)
    branches += checked_side_branches(branches, workdir)
    session = current_session()
    layout = session.weigh_client()
    joined, plan = planned(fork(branches), layout, range_bytes)
    require_storable(joined, reuse)
    plan = with_disk(plan, joined, layout, reuse)
    require_disk(plan.working_files, workdir or branches[0].sink.folder, branches, on_existing)
    overlap = overlapping_samples(branches)
    if overlap is not None:
        warnings.warn(_shared_rows(overlap), UserWarning, stacklevel=outside_level())
    _stop_if_explaining(plan, branches, on_existing)
    prepare_kernels(session, [branch.program for branch in branches])
    with contextlib.ExitStack() as stack:
        guards = [stack.enter_context(branch.guard) for branch in branches if branch.guard is not None]
        branches = [dataclasses.replace(branch, guard=None) for branch in branches]  # workers do not need locks
        pairs = [(stack.enter_context(Journal(branch.sink.folder)), branch) for branch in branches]
        homes = [
            stack.enter_context(RejectsFolder(branch.rejects, journal))
            for journal, branch in pairs
            if branch.rejects is not None
        ]
        for journal, branch in pairs:  # before the first of them is opened, which may delete its content
            check_output(journal, branch.sink, on_existing)
        for home in homes:
            home.check(on_existing)
        earlier = stored_folder(pairs[0][0])
        identities = [identity_of(branch) for branch in branches]
        found = [
            open_run(journal, branch.sink, identity, on_existing)
            for (journal, branch), identity in zip(pairs, identities, strict=True)
        ]
        if on_existing == "overwrite":
            for home in homes:
                home.empty()
            _delete_stored(workdir, earlier)
        receipts = [None if receipt is None else Receipt.from_json(receipt) for _, receipt in found]
        waiting = [number for number, receipt in enumerate(receipts) if receipt is None]
        if waiting:
            joined = fork([branches[number] for number in waiting])
            pinned = [(pairs[number][0], identities[number], found[number][0]) for number in waiting]
            for guard in guards:  # first, since it says whose run the folder of an index has
                guard.begin()
            ranges = _pin(pinned, joined.source)
            for home in homes:
                home.claim()
            joined, plan = planned(joined, session.layout, range_bytes, ranges)
            before = plan_fork(in_all_passes(joined), session.layout).stages[0]  # rows wait in the last pass only
            steps = [step for branch in joined.branches for step in branch.program.steps]
            first = branches[waiting[0]].sink.folder
            temporary = workdir or first.below(STAGES_FOLDER)
            stored = stored_folder(pairs[0][0])
            stages = PassRunner(session, before, temporary, ranges, on_error, on_oom, reuse, stored)
            folders = ", ".join(branches[number].sink.folder.url for number in waiting)
            with stages.running(folders, plan, steps):
                now = _Run(session, plan, joined, [pairs[number][0] for number in waiting], stages).execute(stages)
            for number, receipt in zip(waiting, now, strict=True):
                receipts[number] = receipt
        return [receipt for receipt in receipts[: len(outputs)] if receipt is not None]


def _called() -> str:
    """Return the name of the public function that was called, for errors about its arguments."""
    call = current_call()
    return "run" if call is None else call.name


def with_disk(plan: Plan, joined: Fork, layout: Layout, reuse: Reuse = "never") -> Plan:
    """Return a plan with the disk space for working files."""
    ranges = joined.source.cut(range_bytes(joined.source))
    return dataclasses.replace(plan, working_files=working_files(joined, ranges, layout, reuse))


def stored_folder(journal: Journal) -> str:
    """Return the name of the folder for stored rows of a run; empty if it was not started."""
    run = journal.run
    return "" if run is None or run["id"] is None else f"stored-{run['id'][:16]}"


def _delete_stored(workdir: Folder | None, name: str) -> None:
    """Delete the stored rows that an earlier run left in the user's folder for temporary files."""
    if workdir is not None and name:
        for each in stored_folders(name):
            workdir.delete_tree(each)


def checked_branches(
    outputs: Sequence[tuple[Any, Sink, Sink | None]],
    *,
    workdir: Folder | None,
    on_existing: OnExisting,
    on_error: OnError,
    on_oom: OnOom,
) -> list[Branch]:
    """Return the branches of a run, after the checks of its arguments, of the session and of its folders by name.

    The arguments and errors are those of `run_branches`. Nothing is written.
    """
    operator = _called()
    choose(operator, "on_existing", on_existing, OnExisting)
    choose(operator, "on_error", on_error, OnError)
    choose(operator, "on_oom", on_oom, OnOom)
    require_disjoint_outputs([(sink, rejects) for _, sink, rejects in outputs])
    current_session().require_ready()
    for df, _, _ in outputs:
        require_appended(df)
    lowered = [Branch(for_sink(lower(df, spools=True)), sink, rejects) for df, sink, rejects in outputs]
    branches = [bound(branch, on_existing) for branch in lowered]
    for branch in branches:
        require_not_input(branch.program, branch.sink, branch.rejects, workdir)
        if on_existing != "resume":  # a finished run needs its groups no more
            require_found_groups(branch.program)
    return branches


def checked_side_branches(branches: Sequence[Branch], workdir: Folder | None) -> list[Branch]:
    """Return the branches of the folders that operations write in addition to the outputs, after checks of their names."""
    others = side_branches(branches)
    if others:
        require_disjoint_outputs([(branch.sink, branch.rejects) for branch in (*branches, *others)])
        for branch in others:
            require_not_input(branch.program, branch.sink, None, workdir)
    return others


def check_folders(branch: Branch, on_existing: OnExisting) -> None:
    """Raise the error that a run of one branch raises for the state of its folders. Nothing is written or deleted."""
    journal = Journal(branch.sink.folder)
    for sink in filter(None, (branch.sink, branch.rejects)):
        require_claimable(sink.folder)
    if branch.guard is not None:
        branch.guard.check()
    present = check_output(journal, branch.sink, on_existing)
    if branch.rejects is not None:
        RejectsFolder(branch.rejects, journal).check(on_existing)
    if present and on_existing != "overwrite":  # which deletes what an earlier run has left
        resumed_ranges(journal, identity_of(branch), present)


def is_begun(branches: Sequence[Branch]) -> bool:
    """Return whether an output has a run that was begun, which has some of its working files already."""
    return any(Journal(branch.sink.folder).is_started for branch in branches)


def require_disk(
    files: WorkingFiles,
    folder: Folder,
    branches: Sequence[Branch],
    on_existing: OnExisting,
    firsts: Sequence[Folder] = (),
) -> None:
    """Raise `DiskFullError` if a folder has too little free space for working files.

    An output that is overwritten gives its space back, and stays if that is not enough. Any other run that was begun, in an
    output or in a folder of its first passes, is resumed with the files that it has, or refused.
    """
    if on_existing == "overwrite":
        files.require(folder, replaced=[branch.sink.folder for branch in branches])
    else:
        files.require(folder, is_begun=is_begun(branches) or any(Journal(first).is_started for first in firsts))


def _stop_if_explaining(plan: Plan, branches: Sequence[Branch], on_existing: OnExisting) -> None:
    """Stop with the plan, and the time that is left where that is known, if only the plan of a run is requested."""
    check_if_explaining(branches, on_existing)
    if is_explaining() and on_existing == "resume" and is_begun(branches):
        plan = with_time_left(plan, [Journal(branch.sink.folder) for branch in branches])
    stop_if_explaining(plan, [branch.program for branch in branches])


def check_if_explaining(branches: Sequence[Branch], on_existing: OnExisting) -> None:
    """Raise the error for the state of the folders of a run of which only the plan is requested. A run locks them first."""
    if is_explaining():
        for branch in branches:
            check_folders(branch, on_existing)


def _pin(outputs: Sequence[tuple[Journal, Identity, Ranges | None]], source: Source) -> Ranges:
    """Return the ranges of a run, from the interrupted one if there is one, and start the new journals."""
    pinned = [(journal, ranges) for journal, _, ranges in outputs if ranges is not None]
    chosen = pinned[0][1] if pinned else source.cut(range_bytes(source))
    for journal, ranges in pinned:
        if not np.array_equal(ranges.table, chosen.table):
            raise ResumeError(
                f"the interrupted runs in {pinned[0][0].folder.url} and {journal.folder.url} have split the same input "
                "differently, so one call cannot resume both. Resume each output with a call of its own"
            )
    for journal, identity, begun in outputs:
        if begun is None:
            journal.start(identity, chosen)
    return chosen


def range_bytes(source: Source) -> int:
    """Return the size of a range for an input: it depends only on the input, so that runs can resume."""
    wanted = min(max(source.input_bytes // FEWEST_RANGES, SMALL_RANGE_BYTES), RANGE_BYTES)
    few = -(-source.input_bytes // wanted)
    if EVEN_RANGES < few < FEWEST_RANGES:
        wanted = -(-source.input_bytes // (-(-few // EVEN_RANGES) * EVEN_RANGES))
    return max(wanted, source.input_bytes // MOST_RANGES)


class _Target:
    """One output of a run: its journal and its receipt."""

    def __init__(self, branch: Branch, journal: Journal, receipt: Receipt) -> None:
        self.branch, self.journal, self.receipt = branch, journal, receipt
        self.finished = np.zeros(receipt.ranges, dtype=bool)
        for done in whole_ranges(journal, None if branch.rejects is None else branch.rejects.folder):
            self._count(done)
        receipt.ranges_resumed = int(self.finished.sum())
        for sink in filter(None, (branch.sink, branch.rejects)):
            delete_unfinished(sink.folder, sink, self.finished)

    def take(self, manifest: Manifest) -> None:
        """Record and count a finished range."""
        record = TaskRecord.of(manifest)
        self.journal.record([record])
        self._count(record)

    @with_progress_lines("completing the output")
    def finish(self) -> Receipt:
        """Check that every row is accounted for, and mark the output complete."""
        receipt = self.receipt
        came = receipt.rows_read + receipt.rows_made
        if came != receipt.rows_written + receipt.rows_dropped + receipt.rows_quarantined:
            made = f" and {receipt.rows_made:,} made from them" if receipt.rows_made else ""
            raise RowCountError(
                f"the rows do not add up: {show_count(receipt.rows_read, 'row')} read{made}, but {receipt.rows_written:,} "
                f"written + {receipt.rows_dropped:,} dropped + {receipt.rows_quarantined:,} quarantined. Do not use the "
                f"output in {receipt.output}. Run it again with on_existing='overwrite'. If the error comes back, it is a "
                "defect in curator_df; please report it"
            )
        settle_files(self.journal, receipt.ranges, self.branch.sink, self.branch.rejects)
        if receipt.files == 0:
            self.branch.sink.write_empty(self.branch.program.meta)
        receipt.advice = advice(receipt)
        if receipt.rows_out_of_memory:
            warnings.warn(rows_out_of_memory(receipt), UserWarning, stacklevel=outside_level())
        self.journal.finish(receipt.to_json())
        return receipt

    def count_ordered(self) -> None:
        """Count the keys of a step that was decided in input order."""
        for one in self.receipt.exchanges:
            if not one.hash_ranges:
                step = next(step for step in reversed(self.receipt.steps) if step.name == one.step)
                one.keys, one.unique, one.seconds = step.rows_in, step.rows_out, step.seconds

    def _count(self, done: TaskRecord) -> None:
        if not self.finished[done.number]:
            self.finished[done.number] = True
            add_record(self.receipt, done)


class _Run:
    """One execution, which connects dispatcher, journals, progress and receipts."""

    def __init__(
        self, session: Session, plan: Plan, joined: Fork, journals: Sequence[Journal], stages: PassRunner
    ) -> None:
        self.session, self.plan, self.fork, self.ranges = session, plan, joined, stages.ranges
        self._stages = stages
        policies = (len(stages.ranges), stages.on_error, stages.on_oom)
        self.targets = [
            _Target(branch, journal, new_receipt(plan, joined, branch, *policies))
            for branch, journal in zip(joined.branches, journals, strict=True)
        ]
        self.show: Any = None

    @property
    def finished(self) -> npt.NDArray[np.bool_]:
        """Mask of the ranges that are finished in every output."""
        in_all: npt.NDArray[np.bool_] = np.all([target.finished for target in self.targets], axis=0)
        return in_all

    def execute(self, stages: PassRunner) -> list[Receipt]:
        started = time.monotonic()
        events: list[RunEvent] = []
        recycling = self.session.recycling
        recycled_before = 0 if recycling is None else recycling.recycled

        def watch(event: Event) -> None:
            if isinstance(event, Note) and len(events) < MOST_EVENTS:
                events.append(RunEvent(round(time.monotonic() - started, 3), event.text, event.kind))

        if self.session.sampler is not None:
            self.session.sampler.take()
        self.session.watchers.append(watch)
        try:
            dispatcher, gpu_use = self._all_passes(stages)
        except KeyboardInterrupt:
            self._say_how_to_resume()
            raise
        finally:
            self.session.watchers.remove(watch)
        timeline = [] if self.session.sampler is None else self.session.sampler.trace()
        for target in self.targets:
            target.receipt.seconds = time.monotonic() - started
            target.receipt.timeline, target.receipt.events = timeline, events
            target.receipt.gpu_use = gpu_use
            target.receipt.retries = dict(stages.retries + dispatcher.retries)
            target.receipt.leaks = stages.leaks + dispatcher.leaks
            if dispatcher.start_bytes < dispatcher.stage.block_bytes:
                smaller = f"; from {show_size(dispatcher.start_bytes)} on after input splits ran out of memory"
                target.receipt.settings["blocks"] += smaller
            if dispatcher.balance is not None:
                target.receipt.settings["balance"] = str(dispatcher.balance)
            if recycling is not None:
                times = recycling.recycled - recycled_before
                target.receipt.settings["recycled"] = f"{times:,} restarts of workers, each after {recycling.after}"
                target.receipt.arguments["recycle_after"] = recycling.after.argument
            target.receipt.measured_bytes = self._measured(dispatcher)
            self._note_device(target.receipt, dispatcher)
            longest = max(dispatcher.peaks.block_bytes, stages.longest_bytes)
            target.receipt.projected_bytes = max(
                self.plan.with_long_row(longest), self.plan.with_merges(stages.merge_bytes)
            )
        # The first output is finished last: until then, the files of drops below it are useful to a resumed run.
        receipts = [target.finish() for target in reversed(self.targets)]
        stages.clear()
        for target in self.targets:
            target.branch.sink.folder.delete_tree(STAGES_FOLDER)
        return receipts[::-1]

    def _all_passes(self, stages: PassRunner) -> tuple[Dispatcher, Any]:
        """Run the passes of deferred steps and the last one; what cannot be decided in the last one gets passes of its own."""
        try:
            return self._passes(stages)
        except MAY_NEED_PASSES as exc:
            in_passes, why = passes_after(exc, self.fork)
            self.session.emit(Note("passes", f"keys are compared in passes of their own: {why}"))
            self.session.client.run(release_held, on_error="ignore")
            stages.exchanges.clear()
            self.fork, self.plan = in_passes, plan_fork(in_passes, self.session.layout)
            stages.stage = self.plan.stages[0]
            return self._passes(stages)

    def _passes(self, stages: PassRunner) -> tuple[Dispatcher, Any]:
        """Return what ran the last pass, and what was measured of the GPUs."""
        with passes_bar() as show:
            stages.store_prefix(self.fork, self.finished, show)
            branches = self._resolve(stages, show)
        dispatcher = self._last_pass(stages, dataclasses.replace(self.fork, branches=branches))
        with progress_bar("curating", len(self.ranges)) as self.show:
            self._on_progress()
            with measured_use(self.session.gpus) as gpu_use:
                dispatcher.run(self._pieces())
        for target in self.targets:
            target.count_ordered()
        return dispatcher, gpu_use

    def _last_pass(self, stages: PassRunner, joined: Fork) -> Dispatcher:
        """Return the dispatcher of the last pass, whose steps are all resolved, and emit that it begins."""
        stage = self.plan.stages[-1]
        job = stages.last_job(joined, stage)
        complete = None if stages.prefix is None else stages.prefix.complete
        dispatcher = Dispatcher(
            self.session, job, stage, self._on_done, complete=complete, start_bytes=stages.start_bytes
        )
        self.session.emit(StageStarted(dispatcher.title, job, len(self.ranges), int(self.finished.sum())))
        return dispatcher

    def _resolve(self, stages: PassRunner, show: SHOW) -> tuple[Branch, ...]:
        """Run the stages of deferred steps, those of shared steps once; set the ranges that each branch has already finished."""
        program = self.fork.branches[0].program
        stem = stages.resolve(dataclasses.replace(program, steps=self.fork.stem), show).steps
        common, finished, resolved = len(stages.exchanges), self.finished, []
        for branch, target in zip(self.fork.branches, self.targets, strict=True):
            before = len(stages.exchanges)
            steps = (*stem, *self.fork.own_steps(branch))
            program = stages.resolve(dataclasses.replace(branch.program, steps=steps), show)
            target.receipt.exchanges = stages.exchanges[:common] + stages.exchanges[before:]
            alone = frozenset(np.flatnonzero(target.finished & ~finished).tolist())
            resolved.append(dataclasses.replace(branch, program=program, finished=alone))
        return tuple(resolved)

    def _pieces(self) -> Iterator[Range]:
        return (self.ranges[int(number)] for number in np.flatnonzero(~self.finished))

    def _on_done(self, manifest: Manifest) -> None:
        for part in (manifest, *manifest.others):
            self.targets[part.branch].take(part)
        if self._stages.prefix is not None:
            self._stages.prefix.give_back(manifest.number)
        self._on_progress()

    def _on_progress(self) -> None:
        receipt = self.targets[0].receipt
        rows = f"{show_count(receipt.rows_read, 'row')}, {receipt.rows_dropped:,} dropped"
        self.show(int(self.finished.sum()), rows)

    def _note_device(self, receipt: Receipt, dispatcher: Dispatcher) -> None:
        if self.plan.device is not None:
            # A process may have both: the sum of their peaks is an upper bound of its use.
            by_torch = most_reserved(step for target in self.targets for step in target.receipt.steps)
            measured = [most for most in (dispatcher.peaks.device_bytes, by_torch) if most is not None]
            receipt.measured_device_bytes = sum(measured) if measured else None
            receipt.device_spilled_bytes = dispatcher.peaks.device_spilled_bytes
            longest = self.plan.device.alone(dispatcher.peaks.block_bytes)
            receipt.projected_device_bytes = max(self.plan.device_bytes, longest)

    def _measured(self, dispatcher: Dispatcher) -> int:
        if self.session.sampler is not None:
            return self.session.sampler.seen()
        return dispatcher.peaks.worker_bytes  # workers on other machines: the largest, as they measured themselves

    def _say_how_to_resume(self) -> None:
        if sys.stderr is None:  # closed, as by 2>&-
            return
        done = int(self.finished.sum())
        folders = ", ".join(target.receipt.output for target in self.targets)
        sys.stderr.write(
            f"interrupted: {done:,} of {len(self.ranges):,} input splits are finished and stay in {folders}. "
            "To continue, repeat the call with on_existing='resume'. Its memory= may differ\n"
        )

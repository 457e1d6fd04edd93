# SPDX-License-Identifier: Apache-2.0
"""The bounded runner behind every `write_*`: plan, journal, ranges to files, receipt."""

from __future__ import annotations

import dataclasses
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np

from curator_df.core.columns import choose
from curator_df.core.dispatch import Dispatcher
from curator_df.core.journal import Identity, Journal, OnExisting, delete_unfinished, open_run
from curator_df.core.plan import Plan, plan_stream
from curator_df.core.program import Program, lower
from curator_df.core.progress import progress_bar
from curator_df.core.receipt import Receipt, StepReceipt
from curator_df.core.session import Session, current_session
from curator_df.core.sink import Sink
from curator_df.core.sizes import show_size
from curator_df.core.source import Range, Ranges, Source
from curator_df.core.stages import STAGES_FOLDER, StageRunner
from curator_df.core.storage import Folder
from curator_df.core.task import Job, Manifest, OnError
from curator_df.errors import RowCountError

RANGE_BYTES = 64_000_000
"""Decompressed text of a range: a second of work, so that a lost worker costs little."""
SMALL_RANGE_BYTES = 16_000_000
"""Range of a small input, which would otherwise be one or two tasks."""
FEWEST_RANGES = 32
MOST_RANGES = 50_000
"""Beyond that ranges grow: the scheduler and the journal hold something for each."""


def run(
    df: Any,
    sink: Sink,
    *,
    rejects: Sink | None = None,
    workdir: Folder | None = None,
    on_existing: OnExisting = "error",
    on_error: OnError = "raise",
) -> Receipt:
    """Run a lazy table into a sink under the budget of the current session.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A chain that begins with one of our readers.
    sink : Sink
        Where the rows go.
    rejects : Sink, optional
        Where removed rows go.
    workdir : Folder, optional
        Where the temporary files of drops go; by default below the output.
    on_existing : {"error", "resume", "overwrite"}
        What to do when the output holds something.
    on_error : {"raise", "quarantine"}
        What to do with rows on which a user's function raises.

    Returns
    -------
    Receipt
        Totals, also of what an earlier, interrupted run did.

    Raises
    ------
    BudgetError
        If the plan does not fit. Nothing has been started.
    """
    choose("write", "on_existing", on_existing, OnExisting)
    choose("write", "on_error", on_error, OnError)
    session = current_session()
    program = lower(df)
    plan = plan_stream(program, sink, rejects, session.layout)
    identity = _identity(program, sink, rejects)
    with Journal(sink.folder) as journal:
        ranges, receipt = open_run(journal, sink, identity, on_existing)
        if receipt is not None:
            return Receipt.from_json(receipt)
        if ranges is None:
            ranges = program.source.cut(range_bytes(program.source))
            journal.start(identity, ranges)
        job = Job(uuid.uuid4().hex, program, sink, rejects, sink.folder, on_error)
        temporary = workdir or Folder(f"{sink.folder.url}/{STAGES_FOLDER}", sink.folder.options)
        stages = StageRunner(session, plan.stages[0], temporary, ranges, on_error)
        return _Run(session, plan, job, journal, ranges).execute(stages)


def range_bytes(source: Source) -> int:
    """Return the size of a range for an input: it follows from the input alone, so that runs can resume."""
    wanted = min(max(source.input_bytes // FEWEST_RANGES, SMALL_RANGE_BYTES), RANGE_BYTES)
    return max(wanted, source.input_bytes // MOST_RANGES)


def new_receipt(plan: Plan, job: Job, ranges: int) -> Receipt:
    """Return a receipt with everything known before the run."""
    stage = plan.stages[0]
    receipt = Receipt(
        job.sink.folder.url,
        ranges=ranges,
        input_bytes=plan.input_bytes,
        allowed_bytes=plan.layout.allowed_bytes,
        projected_bytes=plan.projected_bytes,
    )
    receipt.steps = [StepReceipt("read"), *(StepReceipt(step.name) for step in job.program.steps), StepReceipt("write")]
    receipt.rejects = None if job.rejects is None else job.rejects.folder.url
    receipt.settings = {
        "layout": f"{plan.layout.shape}: {plan.layout.reason}",
        "blocks": f"{show_size(stage.block_bytes)}, {stage.task_factor:.1f} x that for a task",
    }
    return receipt


class _Run:
    """One execution: ties dispatcher, journal, progress and receipt together."""

    def __init__(self, session: Session, plan: Plan, job: Job, journal: Journal, ranges: Ranges) -> None:
        self.session, self.plan, self.job, self.journal, self.ranges = session, plan, job, journal, ranges
        self.receipt = new_receipt(plan, job, len(ranges))
        self.finished = np.zeros(len(ranges), dtype=bool)
        self.show: Any = None

    def execute(self, stages: StageRunner) -> Receipt:
        started = time.monotonic()
        for done in self.journal.done():
            self._count(done)
        self.receipt.ranges_resumed = int(self.finished.sum())
        for sink in filter(None, (self.job.sink, self.job.rejects)):
            delete_unfinished(sink.folder, sink, self.finished)
        if self.session.sampler is not None:
            self.session.sampler.take()
        try:
            with progress_bar("comparing", 1) as show:
                program = stages.resolve(
                    self.job.program, lambda title, done, total: show(done, f"{title} {done}/{total}")
                )
            self.job = dataclasses.replace(self.job, program=program)
            self.receipt.exchanges = stages.exchanges
            dispatcher = Dispatcher(self.session, self.job, self.plan.stages[-1], self._on_done)
            with progress_bar("curating", len(self.ranges)) as self.show:
                self._on_progress()
                dispatcher.run(self._pieces())
        except KeyboardInterrupt:
            sys.stderr.write(self._how_to_resume() + "\n")
            raise
        self.receipt.seconds = time.monotonic() - started
        self.receipt.retries = dict(dispatcher.retries)
        self.receipt.measured_bytes = self._measured(dispatcher)
        self.receipt.projected_bytes = self.plan.with_long_row(dispatcher.largest_block_bytes)
        receipt = self._finish()
        stages.clear()
        self.job.sink.folder.delete_tree(STAGES_FOLDER)
        return receipt

    def _pieces(self) -> Iterator[Range]:
        return (self.ranges[int(number)] for number in np.flatnonzero(~self.finished))

    def _on_done(self, manifest: Manifest) -> None:
        self.journal.record([manifest])
        self._count(
            {
                **vars(manifest),
                "steps": [vars(step) for step in manifest.steps],
                "files": [vars(file) for file in manifest.files],
            }
        )
        self._on_progress()

    def _count(self, done: dict[str, Any]) -> None:
        if not self.finished[done["number"]]:
            self.finished[done["number"]] = True
            self.receipt.add(done)

    def _on_progress(self) -> None:
        rows = f"{self.receipt.rows_read:,} rows, {self.receipt.rows_dropped:,} dropped"
        self.show(int(self.finished.sum()), rows)

    def _measured(self, dispatcher: Dispatcher) -> int:
        if self.session.sampler is not None:
            return self.session.sampler.seen()
        return dispatcher.peak_bytes  # workers elsewhere: the largest of them, as they measured themselves

    def _finish(self) -> Receipt:
        receipt = self.receipt
        if receipt.rows_read != receipt.rows_written + receipt.rows_dropped + receipt.rows_quarantined:
            raise RowCountError(
                f"{receipt.rows_read:,} rows read, but {receipt.rows_written:,} written + {receipt.rows_dropped:,} "
                f"dropped + {receipt.rows_quarantined:,} quarantined; the output in {receipt.output} is not to be trusted"
            )
        if receipt.files == 0:
            self.job.sink.write_empty(self.job.program.meta)
        receipt.advice = advice(receipt)
        self.journal.finish(receipt.to_json())
        return receipt

    def _how_to_resume(self) -> str:
        done = int(self.finished.sum())
        return (
            f"interrupted: {done:,} of {len(self.ranges):,} ranges are finished and kept in {self.receipt.output}; "
            "run the same again with on_existing='resume' to go on, with any memory="
        )


def advice(receipt: Receipt) -> list[str]:
    """Return what the figures of a run say about the next one."""
    said = []
    busy = sum(step.seconds for step in receipt.steps)
    slowest = max(receipt.steps, key=lambda step: step.seconds)
    if busy > 10 and slowest.seconds > 0.6 * busy and slowest.name not in ("read", "write"):
        said.append(f"{slowest.name} took {slowest.seconds / busy:.0%} of the time ({slowest.seconds:,.0f} s)")
    if receipt.rows_read and receipt.rows_dropped > 0.95 * receipt.rows_read:
        said.append("more than 95 % of the rows were dropped: see receipt.reasons() for the rules that did it")
    if receipt.retries.get("memory"):
        said.append("tasks ran out of memory and were run again with smaller blocks; a smaller blocksize= avoids that")
    return said


def _identity(program: Program, sink: Sink, rejects: Sink | None) -> Identity:
    steps = tuple((step.name, step.fingerprint) for step in program.steps)
    outputs = sink.fingerprint + (rejects.fingerprint if rejects is not None else "")
    return Identity(program.source.fingerprint, program.fingerprint, outputs, steps)

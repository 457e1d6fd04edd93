# SPDX-License-Identifier: Apache-2.0
"""Convert the events of the runner to metrics: rows, bytes, drops, seconds and errors, as tasks finish."""

from __future__ import annotations

import time

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.step_tally import StepTally
from curator_df.core.runner.events import (
    FINAL_STAGE,
    Event,
    Exchanged,
    Note,
    RunEnded,
    RunStarted,
    StageStarted,
    TaskEnded,
)
from curator_df.core.runner.session import Session
from curator_df.core.tasks.tallies import tallies
from curator_df.core.tasks.task import Job
from curator_df.monitor.alerts import LOG
from curator_df.monitor.series import SeriesBook

CAUSES = ("memory", "worker lost", "exclusive")
OUTCOMES = ("finished", "failed", "interrupted")
WORKER_LOST = "worker lost"
STEP_COUNTERS = ("rows_in", "rows_out", "bytes_in", "bytes_out", "seconds")


class RunSeries:
    """Watcher of a `Session` that records metrics."""

    def __init__(self, session: Session) -> None:
        self.book = SeriesBook()
        self._failed = False
        self.book.set("curator_df_memory_allowed_bytes", session.layout.allowed_bytes)
        self.book.set("curator_df_workers_expected", session.layout.workers)
        self.book.set("curator_df_runs_active", 0)
        # Prometheus sees no increase in a series whose first value is 1, so alerts on it would be late by one.
        for outcome in OUTCOMES:
            self.book.add("curator_df_runs_total", 0, outcome)
        for cause in CAUSES:
            self.book.add("curator_df_retries_total", 0, cause)
        for cause in ("memory", "other"):
            self.book.add("curator_df_rows_quarantined_total", 0, cause)
        for name in ("rows_read", "rows_written", "output_bytes"):
            self.book.add(f"curator_df_{name}_total", 0)
        self.book.add("curator_df_leaks_total", 0, "")

    def __call__(self, event: Event) -> None:
        """Record an event of the runner; an error in this code does not end a run."""
        try:
            self._take(event)
        except Exception:  # noqa: BLE001 - logged once; the run matters more than its metrics
            if not self._failed:
                LOG.exception("metrics: %s could not be counted; the run continues", type(event).__name__)
            self._failed = True

    def _take(self, event: Event) -> None:
        match event:
            case TaskEnded():
                self._task(event)
            case StageStarted():
                self._stage(event)
            case Note(kind="retry"):
                self.book.add("curator_df_retries_total", 1, event.cause)
            case Note(kind="leak"):
                self.book.add("curator_df_leaks_total", 1, event.cause)
            case Exchanged():
                self._exchange(event)
            case RunStarted():
                self.book.add("curator_df_runs_active", 1)
                self.book.set("curator_df_run_start_timestamp_seconds", time.time())
                self.book.set("curator_df_progress_timestamp_seconds", time.time())
                self.book.set("curator_df_run_input_bytes", event.input_bytes)
                self.book.set("curator_df_memory_projected_bytes", event.projected_bytes)
            case RunEnded():
                self.book.add("curator_df_runs_active", -1)
                self.book.add("curator_df_runs_total", 1, event.outcome)

    def _stage(self, event: StageStarted) -> None:
        self.book.set("curator_df_stage_tasks", event.tasks, event.stage)
        self.book.set("curator_df_stage_tasks_done", event.done, event.stage)
        self.book.add("curator_df_tasks_total", 0, event.stage, "done")
        if isinstance(event.job, Job):
            for branch in event.job.fork.branches:
                names = ("read", *(step.name for step in branch.program.steps), "write")
                for place, name in enumerate(names):
                    for counter in STEP_COUNTERS:
                        self.book.add(f"curator_df_step_{counter}_total", 0, event.stage, _place(place), name)

    def _task(self, event: TaskEnded) -> None:
        manifest, stage = event.manifest, event.stage
        outcome = WORKER_LOST if manifest is None else manifest.outcome
        self.book.set("curator_df_progress_timestamp_seconds", time.time())
        self.book.add("curator_df_tasks_total", 1, stage, outcome)
        self.book.observe("curator_df_task_seconds", event.seconds, stage)
        if manifest is None or outcome != "done":
            step = "" if manifest is None else manifest.step
            self.book.add("curator_df_task_errors_total", 1, stage, step, outcome)
            return
        self.book.add("curator_df_stage_tasks_done", 1, stage)
        if isinstance(event.job, Job):
            for place, name, tally in tallies(event.job, manifest):
                self._step(tally, stage, _place(place), name)
            if stage == FINAL_STAGE:
                self._rows(manifest)

    def _step(self, tally: StepTally, *labels: str) -> None:
        for counter in STEP_COUNTERS:
            self.book.add(f"curator_df_step_{counter}_total", getattr(tally, counter), *labels)
        if any(tally.blocks_by_seconds):
            self.book.add_counts("curator_df_step_block_seconds", tally.blocks_by_seconds, tally.seconds, *labels)
        for reason, rows in tally.dropped.items():
            self.book.add("curator_df_step_rows_dropped_total", rows, *labels, reason)
        for name, number in tally.counters.items():
            self.book.add("curator_df_step_counted_total", number, *labels, name)
        for name, number in tally.peaks.items():
            self.book.raise_to("curator_df_step_peak_bytes", number, *labels, name)

    def _rows(self, manifest: Manifest) -> None:
        self.book.add("curator_df_rows_read_total", manifest.rows_read)
        for part in (manifest, *manifest.others):
            self.book.add("curator_df_rows_written_total", part.rows_written)
            self.book.add("curator_df_rows_quarantined_total", part.rows_out_of_memory, "memory")
            other = part.rows_quarantined - part.rows_out_of_memory
            self.book.add("curator_df_rows_quarantined_total", other, "other")
            self.book.add("curator_df_output_bytes_total", sum(file.size_bytes for file in part.files))

    def _exchange(self, event: Exchanged) -> None:
        said = event.receipt
        self.book.add("curator_df_exchange_keys_total", said.keys, said.step)
        for kind in ("key", "drop", "spilled"):
            self.book.add("curator_df_exchange_bytes_total", getattr(said, f"{kind}_bytes"), said.step, kind)
        self.book.add("curator_df_exchange_seconds_total", said.seconds, said.step)
        self.book.set("curator_df_exchange_skew_ratio", said.skew, said.step)


def _place(number: int) -> str:
    """Return the position of a step in its chain, so that labels sort in the order of the chain."""
    return f"{number:02d}"

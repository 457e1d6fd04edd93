# SPDX-License-Identifier: Apache-2.0
"""Keep a few ranges in progress on the cluster, and decide how to continue after a task ran out of memory or lost its worker.

The sequence for one range: as planned; after a `MemoryError` with half the block size; after another one in a step,
exclusively, where that step gets its first row, then twice as many rows as long as they fit; with the smallest blocks if a row
does not fit alone, and then such rows are quarantined. Later ranges start with what fitted. Other work than steps gets half the
block size each time, down to the minimum, and then runs exclusively. A range whose worker died twice also runs exclusively: the
rows it was working on are processed in ever smaller units, and a row that crashes two workers on its own is quarantined. A row
that is too long for a concurrent task runs exclusively at once, and one that is too long even then is quarantined; a page of a
file runs exclusively too, but cannot be quarantined. With ``on_oom="raise"`` the first failure is the error.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import queue
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
from distributed import KilledWorker
from distributed.client import ClosedClientError

from curator_df.core.cleaning_up import clean_up
from curator_df.core.cluster_client import ClusterClient, SentTask, address_of, failing_at_once, fetched, why_cancelled
from curator_df.core.planning.concurrency import ConcurrencyTuner, is_offloaded
from curator_df.core.planning.plan import StagePlan
from curator_df.core.ranges.manifest import Manifest, Peaks
from curator_df.core.ranges.out_of_memory import (
    MOST_IN_A_ROW,
    SMALLEST_BLOCK_BYTES,
    Cause,
    OnOom,
    RowsLackMemoryError,
    Unit,
    unit_left,
)
from curator_df.core.ranges.source import Range
from curator_df.core.runner.events import FINAL_STAGE, Note, TaskEnded, stage_name
from curator_df.core.runner.interrupts import raise_lost_interrupt, remembered_interrupts
from curator_df.core.runner.lost_scheduler import (
    AGAIN,
    answered,
    expect_loss,
    require_open,
    scheduler_lost,
    tells_of_loss,
)
from curator_df.core.runner.recycling import bytes_held, diagnose_leak, left_too_much, restart_full
from curator_df.core.runner.retry_units import error_of_step, fitting_start, for_long_row, narrowed, smaller_block
from curator_df.core.runner.session import Session
from curator_df.core.tasks.job_parcel import JobParcel, run_with_job
from curator_df.core.tasks.stopping import stop_tasks
from curator_df.core.tasks.task import Attempt, Job, run_range
from curator_df.core.tasks.worker_limits import more_than_limits
from curator_df.core.user_frames import with_user_frames
from curator_df.errors import CuratorError, OperatorError, StepMemoryError, WorkerLostError, type_and_text
from curator_df.memory.leaks import MUCH_GROWTH_SHARE, Leak, LeakReceipt, LeakWatch
from curator_df.memory.limits import release_free_memory
from curator_df.memory.sizes import show_count, show_size

REMEMBER_AFTER = 2
"""Number of ranges that must run out of memory with a block size before later ranges start with half of it."""
MOST_LOST_ROWS = 2
"""Maximum number of rows of one range that may crash the worker; with more of them, the step is the cause."""
MOST_EMPTIED = 3
"""Workers that are started again for one range that runs out of memory."""
STEP_MEMORY_PARTS = 4
"""Factor by which blocks become smaller when a step took too much memory outside of its worker."""

WALL_SECONDS = 0.2
"""Seconds between two checks of a run whether one of its workers was ended for memory that a step took."""


@dataclasses.dataclass
class Dispatcher:
    """Dispatcher of the ranges of one stage."""

    session: Session
    """Session that runs them."""
    job: Any
    """Job to run: a `Job`, or the argument of another ``task``."""
    stage: StagePlan
    """Sizes of blocks and rows."""
    on_done: Callable[[Manifest], None]
    """Function that is called for each finished range, in order of completion."""
    complete: Callable[[Manifest], None] | None = None
    """Function that adds to the result of a finished range what an earlier pass did with it, before watchers see it."""
    task: Callable[[bytes, Attempt], Manifest] = run_range
    """Function that runs on a worker."""
    title: str = FINAL_STAGE
    """Purpose of the stage, for watchers."""
    retries: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    """Number of retried ranges, by cause."""
    peaks: Peaks = dataclasses.field(default_factory=Peaks)
    """Peaks over all tasks."""
    leaks: list[LeakReceipt] = dataclasses.field(default_factory=list)
    """Workers whose memory grew after each task, and the action taken."""
    balance: ConcurrencyTuner | None = None
    """Controller of the number of concurrent tasks of a worker, if it may exceed the number of its threads."""
    start_bytes: int = 0
    """Current block size of new ranges in bytes: that of the stage, or less after ranges ran out of memory with it. 0, or the
    final value of an earlier pass over the same rows.
    """

    def __post_init__(self) -> None:
        self.start_bytes = min(self.start_bytes or self.stage.block_bytes, self.stage.block_bytes)
        self._on_oom: OnOom = self.job.on_oom if isinstance(self.job, Job) else "retry"
        self.balance = self._new_balance()
        self._failed_at: collections.Counter[int] = collections.Counter()
        self._has_done = False
        self._leaks = LeakWatch(self.session.layout.work_bytes, self.session.layout.threads + self.stage.extra_tasks)
        self._leak: tuple[Leak, Attempt] | None = None
        self._emptied_for: collections.Counter[tuple[int, bool]] = collections.Counter()
        self._empties = not self.session.layout.in_process
        self._again: list[Attempt] = []
        self._suspects: list[tuple[Attempt, Manifest]] = []
        self._suspected: set[int] = set()
        self._due: str | None = None
        self._stage_id = uuid.uuid4().hex
        layout = self.session.layout
        self._client: ClusterClient = self.session.client
        self._patience = self.session.patience
        self._parcel = JobParcel(cloudpickle.dumps(self.job), layout.workers * (layout.threads + 1))
        # Ranges that take turns are not sent ahead: one could be stuck behind others that wait for it.
        self._takes_turns = self._is_job and any(step.action.holds_rows for step in self.job.steps)
        self._flying: dict[SentTask, Attempt] = {}
        self._submitted: dict[SentTask, float] = {}
        self._unfetched: set[SentTask] = set()
        self._finished: queue.SimpleQueue[SentTask] = queue.SimpleQueue()
        self._alone: collections.deque[Attempt] = collections.deque()
        self._crashed: Attempt | None = None  # the latest that lost its worker once while it ran alone

    def run(self, pieces: Iterator[Range]) -> None:
        """Run all ranges; raise the first error that no retry can resolve."""
        require_open(self._client, AGAIN)
        expect_loss(self._client)
        if self.session.wall is not None:
            self.session.wall.skip_ended()
        try:
            with remembered_interrupts():
                more = True
                while more or self._again or self._suspects:
                    if self._suspects:
                        self._examine()
                    elif self._again:
                        self._empty_workers(self._again[0])
                    more = self._run_together(pieces)
                    if self._leak is not None:
                        self._after_leak(*self._leak)
                    if self._due is not None:
                        self._recycle(self._due)
                    while self._alone:
                        self._run_alone(self._alone.popleft())
                raise_lost_interrupt()
        except BaseException as exc:
            clean_up(exc, functools.partial(self._stop, waits=not isinstance(exc, StepMemoryError)))
            clean_up(exc, functools.partial(restart_full, self._client, self._leaks, exc, restarts=self._empties))
            raise
        finally:
            if self.session.recycling is not None:
                self.session.recycling.join()

    def _run_together(self, pieces: Iterator[Range]) -> bool:
        """Run ranges concurrently until none is left or a worker was lost with one; return whether there are more."""
        lost_before = self.retries[Cause.WORKER_LOST]
        workers = self.session.layout.workers
        again, self._again = self._again[:workers], self._again[workers:]
        for attempt in again:  # each on an empty worker
            self._submit(dataclasses.replace(attempt, block_bytes=min(attempt.block_bytes, self.start_bytes)))
        more = bool(again) or self._submit_next(pieces)
        while self._flying:
            retry = self._settle(*self._next_finished())
            if retry is not None:
                self._submit(retry)
            shows = not self._has_done and any(each.halves for each in self._alone)  # what fits, to the others
            is_disturbed = self._leak is not None or self._due is not None or self._again or self._suspects or shows
            if self.retries[Cause.WORKER_LOST] == lost_before and not is_disturbed:
                # Otherwise that range is first tried exclusively: if it still crashes workers, no other task is lost with it.
                # A worker that leaks, or is due, is restarted when no task runs, so that no work is lost.
                more = self._submit_next(pieces)
        return more

    def _new_balance(self) -> ConcurrencyTuner | None:
        if not self.stage.extra_tasks or not isinstance(self.job, Job):
            return None
        layout = self.session.layout
        names = [step.name for step in self.job.steps if is_offloaded(step)]
        # Not the spare CPUs of the workers: a plan does not use them if blocks are on a GPU.
        spare_cpus = self.stage.capacity.threads - layout.threads
        if not names and not spare_cpus:
            return None
        most = self.stage.extra_tasks
        return ConcurrencyTuner(names, workers=layout.workers, threads=layout.threads, most=most, spare_cpus=spare_cpus)

    def _submit_next(self, pieces: Iterator[Range]) -> bool:
        layout, extra_tasks = self.session.layout, self.balance.extra_tasks if self.balance is not None else 0
        while len(self._flying) < layout.workers * (layout.threads + extra_tasks + (not self._takes_turns)):
            piece = next(pieces, None)
            if piece is None:
                return False
            most = self.stage.largest_row_bytes
            self._submit(Attempt(piece, self.start_bytes, most, stage_id=self._stage_id, extra_tasks=extra_tasks))
        return True

    def _submit(self, attempt: Attempt) -> None:
        key = f"curate-range-{attempt.piece.number}-{attempt.tries}-{uuid.uuid4().hex[:8]}"
        what = (run_with_job, self.task, self._parcel.take(), attempt, self.session.worker_limits)
        try:
            future = self._client.submit(*what, key=key, pure=False, priority=-attempt.piece.number)
        except ClosedClientError:
            raise scheduler_lost(self._client, AGAIN) from None
        self._flying[future] = attempt
        self._submitted[future] = time.monotonic()
        future.add_done_callback(self._finished.put)

    def _next_finished(self) -> tuple[SentTask, Attempt, Manifest | None]:
        """Wait for a task and its manifest, if there is one; check from time to time whether any worker could finish one."""
        workless = 0.0
        while True:
            future = self._finished_within(self._patience.watch_seconds)
            if future is None:
                workless = self._watch(workless)
                future = next((held for held in self._unfetched if held.done()), None)
            raise_lost_interrupt()
            if future is None or future not in self._flying:
                continue
            manifest = fetched(future, self._patience.watch_seconds)
            if manifest is None and future.status not in ("error", "cancelled"):
                # Its worker died after the end of the task. Dask runs it again, without another callback.
                self._unfetched.add(future)
                continue
            self._unfetched.discard(future)
            return future, self._flying.pop(future), manifest

    def _finished_within(self, seconds: float) -> SentTask | None:
        """Return a task that has ended, or None after so long; raise `StepMemoryError` if a worker was ended for a step."""
        deadline = time.monotonic() + seconds
        while True:
            wall, left = self.session.wall, deadline - time.monotonic()
            if wall is not None and (ended := wall.ended_worker()) is not None:
                raise ended.error(wall.memory_argument)
            try:
                return self._finished.get(timeout=max(0.0, left if wall is None else min(left, WALL_SECONDS)))
            except queue.Empty:
                if left <= 0:
                    return None

    def _wait_for_worker(self) -> None:
        workless = 0.0
        while not self._has_worker():
            workless = self._watch(workless)
            time.sleep(self._patience.watch_seconds)

    def _has_worker(self) -> bool:
        with answered(self._client, AGAIN):
            return bool(self._client.nthreads())

    def _watch(self, workless_seconds: float) -> float:
        """Replace workers that are permanently gone; return for how many seconds there was none."""
        if self._client.status != "running":
            raise scheduler_lost(self._client, AGAIN)
        if self._has_worker():
            return 0.0
        # A nanny does not restart a worker that dies before the nanny knows that it has started.
        if workless_seconds >= self.session.workless_seconds:
            raise WorkerLostError(
                f"no worker came back within {self.session.workless_seconds:.0f} s after the last one died. Finished files are "
                "kept. Look for the cause in the log of the workers, such as too little memory, and repeat the run with "
                "on_existing='resume'"
            )
        longer = workless_seconds + self._patience.watch_seconds
        due_seconds = self._patience.revive_seconds
        if self.session.revive is not None and any(workless_seconds < due <= longer for due in due_seconds):
            self.session.revive()
        return longer

    def _settle(self, future: SentTask, attempt: Attempt, manifest: Manifest | None) -> Attempt | None:
        """Process a result; return the next attempt at the same range, if it can run concurrently with others."""
        seconds = time.monotonic() - self._submitted.pop(future)
        if manifest is not None and manifest.outcome == "no job":
            self._parcel.send_again()
            return attempt
        if self.complete is not None and manifest is not None and manifest.outcome == "done":
            self.complete(manifest)
        self.session.emit(TaskEnded(stage_name(self.title), self.job, manifest, seconds))
        if manifest is None:
            return self._after_lost_worker(future, attempt)
        self.peaks.add(manifest)
        held_before = self._note_held(attempt, manifest)
        if manifest.outcome == "done":
            if self.balance is not None and self.balance.add(attempt.extra_tasks, manifest):
                self.session.emit(Note("balance", str(self.balance)))
            if attempt.halves and attempt.block_bytes > SMALLEST_BLOCK_BYTES and not manifest.rows_out_of_memory:
                fitting = fitting_start(manifest.fitting_bytes or attempt.block_bytes, self.session.layout, attempt)
                self.start_bytes = min(self.start_bytes, fitting)
            self._has_done = True
            self.on_done(manifest)
            return None
        if manifest.outcome in ("again", "oversize"):
            self._run_later(attempt, manifest)
            return None
        if manifest.outcome != "memory":
            if manifest.error is None:
                raise CuratorError(
                    f"input split {attempt.piece.number:,} (a part of the input) failed without an error. This is a defect "
                    "in curator_df; please report it"
                )
            raise with_user_frames(manifest.error, self.job)
        return self._after_memory_error(attempt, manifest, held_before)

    def _run_later(self, attempt: Attempt, manifest: Manifest) -> None:
        """Run a range with a long row exclusively, and one that waited in vain for an earlier range after that one."""
        if manifest.outcome == "again":
            self._count(Cause.TURN, attempt)
            again = dataclasses.replace(attempt, exclusive_bytes=None)
            self._again = sorted([*self._again, again], key=lambda each: each.piece.number)
            return
        sets_aside = self._is_job and self._on_oom != "raise"
        self._alone.append(
            for_long_row(attempt, manifest.error, self.stage, self.session.layout, sets_aside=sets_aside)
        )

    def _note_held(self, attempt: Attempt, manifest: Manifest) -> Leak | None:
        """Note what a worker holds after a task; return what it held before that was left by earlier ones."""
        held_before = self._leaks.fullest(manifest.worker)
        leak = self._leaks.add(manifest.worker, manifest.floor_bytes, manifest.idle_bytes)
        if leak is not None and self._leak is None:
            self._leak = (leak, attempt)
        if self.session.recycling is not None:
            due = self.session.recycling.add(manifest.worker, manifest.floor_bytes)
            self._due = self._due or due
        return held_before

    def _again_on_an_empty_worker(self, attempt: Attempt, held_before: Leak | None) -> bool:
        """Try a range again with the memory that it was promised, where a worker held much of earlier tasks when it failed.

        What fails on an empty worker is charged to the range.
        """
        how = (attempt.piece.number, attempt.exclusive_bytes is None)
        if held_before is None or not self._empties or self._suspects or self._emptied_for[how] >= MOST_EMPTIED:
            return False
        self._emptied_for[how] += 1
        self._count(Cause.FULL_WORKER, attempt)
        if attempt.exclusive_bytes is None:
            # The worker is started again when nothing is in flight.
            self._leak = self._leak or (held_before, attempt)
            self._again.append(attempt)
        else:
            self._alone.appendleft(attempt)
        return True

    def _may_be_full(self, attempt: Attempt, manifest: Manifest) -> bool:
        """Return whether a range may have failed because a step left memory behind, which no earlier task has shown."""
        is_known = attempt.piece.number in self._suspected or any(leak.step for leak in self.leaks)
        if is_known or not self._empties or not manifest.idle_bytes:
            return False
        may_be = manifest.floor_bytes - manifest.idle_bytes > MUCH_GROWTH_SHARE * self.session.layout.work_bytes
        if may_be:
            self._suspected.add(attempt.piece.number)
        return may_be

    def _examine(self) -> None:
        """Find the step that left memory behind where ranges ran out of it, and try these again; nothing is in flight."""
        suspects, self._suspects = self._suspects, []
        with answered(self._client, AGAIN):
            held = self._client.run(bytes_held, on_error="ignore")
        for attempt, manifest in suspects:
            address = address_of(self._client, manifest.worker)
            held_bytes = held.get(address or "", 0) - manifest.idle_bytes
            if self._leaks.hold(manifest.worker, held_bytes):
                self._empty_workers(attempt)
            again: Attempt | None = attempt
            if not any(leak.step for leak in self.leaks):
                again = self._with_smaller_blocks(attempt, manifest)
            elif (
                attempt.exclusive_bytes is not None
                and (leaking := left_too_much(self.leaks, manifest, self.session.layout)) is not None
            ):
                raise leaking
            else:
                self._count(Cause.FULL_WORKER, attempt)
            if again is not None:
                (self._again if attempt.exclusive_bytes is None else self._alone).append(again)

    def _empty_workers(self, attempt: Attempt) -> None:
        """Start workers again that hold much of earlier tasks; nothing is in flight."""
        self._leak = None
        while (leak := self._leaks.fullest()) is not None:
            self._after_leak(leak, attempt)
            self._leaks.forget(leak.worker)

    def _after_memory_error(self, attempt: Attempt, manifest: Manifest, held_before: Leak | None) -> Attempt | None:
        if self._again_on_an_empty_worker(attempt, held_before):
            return None
        if self._on_oom == "raise":
            raise error_of_step(manifest)
        if isinstance(manifest.error, StepMemoryError | OperatorError):
            return self._after_step_memory(attempt, manifest.unit, manifest.error)
        if self._may_be_full(attempt, manifest):
            self._suspects.append((attempt, manifest))
            return None
        if (leaking := left_too_much(self.leaks, manifest, self.session.layout)) is not None:
            # Smaller blocks would leave more behind.
            layout = self.session.layout
            if attempt.exclusive_bytes is not None or (
                not self._flying and layout.exclusive_bytes <= layout.work_bytes
            ):
                raise leaking
            self._count(Cause.FULL_WORKER, attempt)
            self._alone.append(dataclasses.replace(attempt, tries=attempt.tries + 1))
            return None
        return self._with_smaller_blocks(attempt, manifest)

    def _with_smaller_blocks(self, attempt: Attempt, manifest: Manifest) -> Attempt | None:
        self._count(Cause.MEMORY, attempt)
        self._remember(attempt)
        if isinstance(manifest.error, RowsLackMemoryError):
            raise error_of_step(manifest)
        smaller = smaller_block(attempt, manifest.unit, self.start_bytes)
        retry = dataclasses.replace(attempt, block_bytes=smaller, tries=attempt.tries + 1)
        if attempt.exclusive_bytes is None:
            splits = attempt.tries > 0 and self._is_job and manifest.step in {s.name for s in self.job.steps}
            if smaller < attempt.block_bytes and not splits:
                return retry
            on_device = splits and self.job.is_on_device(manifest.step)
            self._alone.append(dataclasses.replace(retry, halves=splits, lacks_device_memory=on_device))
            return None
        if smaller == attempt.block_bytes and attempt.halves:
            if manifest.unit is None or manifest.unit.step != "write":
                # A step's rows were halved already, and what else there is does not depend on rows.
                raise error_of_step(manifest)
            error = manifest.error or MemoryError()
            reason = f"out of memory: writing this row exclusively raised {type_and_text(error)}"
            if not manifest.rows_written and attempt.rows_aside(Cause.MEMORY) >= MOST_IN_A_ROW:
                raise error_of_step(manifest)
            retry = narrowed(retry, manifest.unit, reason, error_of_step(manifest))
        return dataclasses.replace(retry, halves=attempt.halves or smaller <= SMALLEST_BLOCK_BYTES)

    def _after_step_memory(self, attempt: Attempt, unit: Unit | None, error: CuratorError) -> Attempt | None:
        """Return the attempt after a step took memory outside of its worker: alone, then with smaller blocks, then fewer rows.

        Blocks become smaller in larger steps than after an allocation that failed: each try starts processes again.
        """
        again = dataclasses.replace(attempt, tries=attempt.tries + 1)
        if attempt.exclusive_bytes is None:
            self._count(Cause.MEMORY, attempt)
            self._alone.append(again)
            return None
        if isinstance(error, OperatorError):  # what it started failed, and memory need not be the reason
            raise error
        retry = dataclasses.replace(
            again, block_bytes=max(attempt.block_bytes // STEP_MEMORY_PARTS, SMALLEST_BLOCK_BYTES)
        )
        if attempt.block_bytes > SMALLEST_BLOCK_BYTES * STEP_MEMORY_PARTS and not attempt.aside:
            self._count(Cause.MEMORY, attempt)
            return retry
        if (
            not self._is_job
            or self.job.on_error == "raise"
            or unit is None
            or attempt.rows_aside(Cause.MEMORY) >= MOST_LOST_ROWS
        ):
            raise error
        self._count(Cause.MEMORY, attempt)
        return narrowed(retry, unit, f"out of memory: {error}", error)

    def _count(self, cause: Cause, attempt: Attempt) -> None:
        self.retries[cause.value] += 1
        blocks = f"blocks of {show_size(attempt.block_bytes)}"
        self.session.emit(
            Note("retry", f"input split {attempt.piece.number:,} runs again ({cause}); it had {blocks}", cause)
        )

    def _after_leak(self, leak: Leak, attempt: Attempt) -> None:
        """Examine a worker whose memory keeps growing, and restart it if it leaks; no task is running."""
        self._leak = None
        job_bytes, restarts = self._parcel.job_bytes if self._is_job else None, not self.session.layout.in_process
        known = next((one for one in self.leaks if one.step), None)
        told = diagnose_leak(self._client, leak, job_bytes, attempt, restarts=restarts, known=known)
        (self._leaks.forget if told.recycled or told.only_kept else self._leaks.wait)(leak.worker)
        self._wait_for_worker()
        if not told.only_kept:
            self.leaks.append(told)
        self.session.emit(Note("kept" if told.only_kept else "leak", str(told), told.step))

    def _recycle(self, worker: str) -> None:
        """Restart a worker that is due; no task is running."""
        self._due = None
        if self.session.recycling is not None:
            self._leaks.forget(worker)
            self.session.emit(Note("recycle", self.session.recycling.recycle(self._client, worker), worker))

    def _remember(self, attempt: Attempt) -> None:
        """Let later ranges start with half the block size if several ran out of memory with this one."""
        self._failed_at[attempt.block_bytes] += 1
        if self._failed_at[attempt.block_bytes] >= REMEMBER_AFTER and attempt.exclusive_bytes is None:
            self.start_bytes = min(self.start_bytes, max(attempt.block_bytes // 2, SMALLEST_BLOCK_BYTES))

    def _after_lost_worker(self, future: SentTask, attempt: Attempt) -> Attempt | None:
        is_cancelled, number = future.status == "cancelled", attempt.piece.number
        exc = why_cancelled(future) if is_cancelled else future.exception()
        if is_cancelled and (self._client.status != "running" or tells_of_loss(exc)):
            raise scheduler_lost(self._client, AGAIN)
        if not isinstance(exc, KilledWorker):
            raise WorkerLostError(
                f"input split {number:,} (a part of the input) could not run: {str(exc).rstrip('.')}. Finished files are kept. "
                "Repeat the run with on_existing='resume'"
            ) from exc
        if self._on_oom == "raise":
            raise WorkerLostError(
                f"input split {number:,} (a part of the input) crashed its worker, probably for lack of memory, and "
                f"on_oom='raise' stops the run then. Use on_oom='retry', a larger memory= or a smaller blocksize=, "
                "and repeat the run with on_existing='resume'"
            ) from exc
        held_before = self._leaks.fullest()
        if held_before is not None:
            self._leaks.forget(held_before.worker)  # that process is gone
            if self._again_on_an_empty_worker(attempt, held_before):
                self._leak = None
                self._wait_for_worker()
                return None
        if attempt.exclusive_bytes is not None:
            return self._after_lost_alone(attempt, exc)
        self._count(Cause.WORKER_LOST, attempt)
        smaller = max(attempt.block_bytes // 2, SMALLEST_BLOCK_BYTES)
        self._alone.append(dataclasses.replace(attempt, block_bytes=smaller, tries=attempt.tries + 1))
        return None

    def _after_lost_alone(self, attempt: Attempt, exc: KilledWorker) -> Attempt:
        """Return the attempt in which the rows that crashed a worker are processed in smaller units.

        A process can also end by chance. So a single row, or the range, is blamed only when the same attempt ends another one.
        """
        unit = unit_left(self.job.fork.branches[0].sink.folder, attempt.piece.number) if self._is_job else None
        died_once = not exc.allowed_failures and attempt != self._crashed
        if died_once and (unit is None or unit.rows == 1):
            self._crashed = attempt
            self._count(Cause.WORKER_LOST, attempt)
            self._wait_for_worker()
            return attempt
        error = WorkerLostError(
            f"input split {attempt.piece.number:,} (a part of the input) crashed its worker again, although it ran exclusively "
            f"with blocks of {show_size(attempt.block_bytes)}"
            + (f", in step {unit.step!r} on {show_count(unit.rows, 'row')}" if unit is not None else "")
            + ". A function crashes the process, or needs more memory than a worker has. Read the last output of the workers, "
            "correct the step or start the cluster with a larger memory=, and repeat the run with on_existing='resume'"
        )
        if unit is None or (unit.rows == 1 and attempt.rows_aside(Cause.WORKER_LOST) >= MOST_LOST_ROWS):
            raise error from exc
        self._count(Cause.WORKER_LOST, attempt)
        self._wait_for_worker()
        reason = (
            f"its worker process ended when step {unit.step!r} ran exclusively on this row (out of memory, or a crash)"
        )
        return narrowed(dataclasses.replace(attempt, tries=attempt.tries + 1), unit, reason, error, Cause.WORKER_LOST)

    @property
    def _is_job(self) -> bool:
        return isinstance(self.job, Job)

    def _run_alone(self, attempt: Attempt) -> None:
        """Run one range exclusively: it may use the memory of all tasks together.

        The task is not tied to a worker: Dask (2026.7.1) leaves a task whose worker is gone in the state "no-worker",
        even with ``allow_other_workers`` and another worker available. So the limits of all workers are raised in the meantime.
        """
        if attempt.halves and attempt.exclusive_bytes is None and attempt.block_bytes > self.start_bytes:
            self._again.append(dataclasses.replace(attempt, block_bytes=self.start_bytes, halves=False))
            return
        self._count(Cause.EXCLUSIVE, attempt)
        if self.session.recycling is not None:
            self.session.recycling.join()  # limits are raised only on the workers that exist now
        self._wait_for_worker()  # the last one may have just died
        if self._empties:
            self._empty_workers(attempt)
        with answered(self._client, AGAIN):
            self._client.run(release_free_memory, on_error="ignore")
        most, usual_bytes = self.session.layout.exclusive_bytes, self.session.layout.work_bytes
        more_bytes = most - usual_bytes if self.session.limits_data and self._empties else 0
        at_once = failing_at_once(self._client) if self.session.is_started_here else contextlib.nullcontext()
        with more_than_limits(self._client, more_bytes), at_once:
            halves = attempt.halves or (self._on_oom == "retry" and attempt.block_bytes <= SMALLEST_BLOCK_BYTES)
            again: Attempt | None = dataclasses.replace(attempt, exclusive_bytes=most, halves=halves, extra_tasks=0)
            while again is not None:
                self._submit(again)
                again = self._settle(*self._next_finished())

    def _stop(self, *, waits: bool = True) -> None:
        """Make what is in flight end. Tasks of a worker that was ended begin again on another one, and need not be waited for."""
        flying = list(self._flying)
        self._flying.clear()
        self._submitted.clear()
        self._unfetched.clear()
        stop_tasks(self._client, flying, self._stage_id, wait_seconds=self._patience.stop_seconds if waits else 0.0)

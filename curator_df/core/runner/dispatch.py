# SPDX-License-Identifier: Apache-2.0
"""Keep a few ranges in flight on the cluster, and decide what follows a task that ran out of memory or lost its worker.

The ladder for one range: as planned; after each `MemoryError` with half the block; at the smallest block alone on the
node, where a step that runs out of memory takes half of the rows, down to one, which is then set aside. A range whose
worker died twice goes alone as well: what it was working on is taken in ever smaller units, and a row that ends its worker
when it is alone is set aside. A row that is too long for a task beside others goes alone at once, and one that is too long
even then is set aside; so does a page of a file, which cannot be set aside. With ``on_oom="raise"`` the first failure is the
error.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import queue
import time
import traceback
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
from distributed import CancelledError, KilledWorker

from curator_df.core.cluster_client import ClusterClient, SentTask
from curator_df.core.memory.leaks import Leak, LeakReceipt, LeakWatch
from curator_df.core.memory.limits import more_than_limits, release_free_memory
from curator_df.core.planning.balance import Balance, works_elsewhere
from curator_df.core.planning.plan import StagePlan
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.out_of_memory import OnOom, unit_left
from curator_df.core.ranges.source import Range
from curator_df.core.runner.events import FINAL_STAGE, Note, TaskEnded, stage_name
from curator_df.core.runner.interrupts import raise_lost_interrupt, remembered_interrupts
from curator_df.core.runner.narrowing import for_long_row, narrowed
from curator_df.core.runner.session import Session
from curator_df.core.sizes import show_size
from curator_df.core.tasks.job_parcel import JobParcel, run_with_job
from curator_df.core.tasks.leak_probe import treat
from curator_df.core.tasks.peaks import Peaks
from curator_df.core.tasks.task import Attempt, Job, request_stop, run_range
from curator_df.errors import CuratorError, SchedulerLostError, WorkerLostError

SMALLEST_BLOCK_BYTES = 64_000
"""Where halving ends. Then the rows of a block are halved: `core.tasks.stretch`."""
REMEMBER_AFTER = 2
"""When so many ranges ran out of memory with a block size, later ranges begin with half of it. One range may be odd."""
MOST_LOST_ROWS = 2
"""So many rows of one range may end their worker; more of them, and it is the step that does."""
LOST_ROW = "its worker process ended"
"""How the reason begins for a row that is set aside because of that."""

STOP_POLL_SECONDS = 0.02
"""How often a run that ends early looks whether its tasks have ended."""
LOG = logging.getLogger("curator_df.core")


@dataclasses.dataclass
class Dispatcher:
    """Runs the ranges of one stage."""

    session: Session
    """Where they run."""
    job: Any
    """What runs: a `Job`, or what another ``task`` takes."""
    stage: StagePlan
    """Block and row sizes."""
    on_done: Callable[[Manifest], None]
    """Called for each finished range, in order of completion."""
    task: Callable[[bytes, Attempt], Manifest] = run_range
    """What runs on a worker."""
    title: str = FINAL_STAGE
    """What the stage is for, to those who listen."""
    retries: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    """Ranges run again, by cause."""
    peaks: Peaks = dataclasses.field(default_factory=Peaks)
    """The largest of what tasks measured."""
    leaks: list[LeakReceipt] = dataclasses.field(default_factory=list)
    """Workers that held more after each task, and what was done."""
    balance: Balance | None = None
    """Chooses how many tasks a worker has at a time, where that may be more than it has threads."""
    start_bytes: int = 0
    """Block size with which ranges begin now: that of the stage, or less since ranges ran out of memory with it. 0, or what an
    earlier pass over the same rows came to."""

    def __post_init__(self) -> None:
        self.start_bytes = min(self.start_bytes or self.stage.block_bytes, self.stage.block_bytes)
        self._on_oom: OnOom = self.job.on_oom if isinstance(self.job, Job) else "retry"
        self.balance = self._new_balance()
        self._failed_at: collections.Counter[int] = collections.Counter()
        self._leaks = LeakWatch(self.session.layout.work_bytes, self.session.layout.threads + self.stage.beside)
        self._leak: tuple[Leak, Attempt] | None = None
        self._due: str | None = None
        self._stage_id = uuid.uuid4().hex
        layout = self.session.layout
        self._client: ClusterClient = self.session.client
        self._patience = self.session.patience
        self._parcel = JobParcel(cloudpickle.dumps(self.job), layout.workers * (layout.threads + 1))
        self._flying: dict[SentTask, Attempt] = {}
        self._submitted: dict[SentTask, float] = {}
        self._unfetched: set[SentTask] = set()
        self._finished: queue.SimpleQueue[SentTask] = queue.SimpleQueue()
        self._alone: collections.deque[Attempt] = collections.deque()

    def run(self, pieces: Iterator[Range]) -> None:
        """Run all ranges; raise the first error that no retry can mend."""
        try:
            with remembered_interrupts():
                more = True
                while more:
                    more = self._run_together(pieces)
                    if self._leak is not None:
                        self._after_leak(*self._leak)
                    if self._due is not None:
                        self._recycle(self._due)
                    while self._alone:
                        self._run_alone(self._alone.popleft())
                raise_lost_interrupt()
        except BaseException:
            self._stop()
            raise
        finally:
            if self.session.recycling is not None:
                self.session.recycling.join()

    def _run_together(self, pieces: Iterator[Range]) -> bool:
        """Run ranges side by side until there are no more, or one was given up by workers; tell whether there are more."""
        lost_before = self.retries["worker lost"]
        more = self._submit_next(pieces)
        while self._flying:
            again = self._settle(*self._next_finished())
            if again is not None:
                self._submit(again)
            if self.retries["worker lost"] == lost_before and self._leak is None and self._due is None:
                # Otherwise that range is tried alone first: if it still kills, no other worker is to die for it. And a
                # worker that leaks, or is due, is started again when nothing is in flight, so that no work is lost.
                more = self._submit_next(pieces)
        return more

    def _new_balance(self) -> Balance | None:
        if not self.stage.beside or not isinstance(self.job, Job):
            return None
        layout, fork = self.session.layout, self.job.fork
        steps = (*fork.stem, *(step for branch in fork.branches for step in fork.own_steps(branch)))
        names = [step.name for step in steps if works_elsewhere(step)]
        # Not the spare CPUs of the workers: where blocks are on a GPU a plan leaves them alone.
        spare_cpus = self.stage.capacity.threads - layout.threads
        if not names and not spare_cpus:
            return None
        most = self.stage.beside
        return Balance(names, workers=layout.workers, threads=layout.threads, most=most, spare_cpus=spare_cpus)

    def _submit_next(self, pieces: Iterator[Range]) -> bool:
        layout, beside = self.session.layout, self.balance.beside if self.balance is not None else 0
        while len(self._flying) < layout.workers * (layout.threads + beside + 1):
            piece = next(pieces, None)
            if piece is None:
                return False
            most = self.stage.largest_row_bytes
            self._submit(Attempt(piece, self.start_bytes, most, stage_id=self._stage_id, beside=beside))
        return True

    def _submit(self, attempt: Attempt) -> None:
        key = f"curate-range-{attempt.piece.number}-{attempt.tries}-{uuid.uuid4().hex[:8]}"
        what = (run_with_job, self.task, self._parcel.take(), attempt, self.session.worker_limits)
        future = self._client.submit(*what, key=key, pure=False, priority=-attempt.piece.number)
        self._flying[future] = attempt
        self._submitted[future] = time.monotonic()
        future.add_done_callback(self._finished.put)

    def _next_finished(self) -> tuple[SentTask, Attempt, Manifest | None]:
        """Wait for a task and what it tells, if it tells anything; look now and then whether a worker could finish one."""
        workless = 0.0
        while True:
            future: SentTask | None
            try:
                future = self._finished.get(timeout=self._patience.watch_seconds)
            except queue.Empty:
                workless = self._watch(workless)
                future = next((held for held in self._unfetched if held.done()), None)
            raise_lost_interrupt()
            if future is None or future not in self._flying:
                continue
            manifest = _fetched(future, self._patience.watch_seconds)
            if manifest is None and future.status not in ("error", "cancelled"):
                # Its worker died between the end of the task and now. Dask runs it again, and calls nobody then.
                self._unfetched.add(future)
                continue
            self._unfetched.discard(future)
            return future, self._flying.pop(future), manifest

    def _wait_for_worker(self) -> None:
        workless = 0.0
        while not self._client.nthreads():
            workless = self._watch(workless)
            time.sleep(self._patience.watch_seconds)

    def _watch(self, workless_seconds: float) -> float:
        """Bring workers back that are gone for good; return for how long there was none."""
        if self._client.status != "running":
            raise _scheduler_lost(self._client)
        if self._client.nthreads():
            return 0.0
        # A worker that dies before its nanny knows that it started is not started again by the nanny.
        if workless_seconds >= self.session.workless_seconds:
            raise WorkerLostError(
                f"no worker came back within {self.session.workless_seconds:.0f} s after the last one died; what is "
                "finished stays, and on_existing='resume' goes on from there"
            )
        longer = workless_seconds + self._patience.watch_seconds
        due_seconds = self._patience.revive_seconds
        if self.session.revive is not None and any(workless_seconds < due <= longer for due in due_seconds):
            self.session.revive()
        return longer

    def _settle(self, future: SentTask, attempt: Attempt, manifest: Manifest | None) -> Attempt | None:
        """Take what came back; return the next attempt at the same range, if it can run beside others."""
        seconds = time.monotonic() - self._submitted.pop(future)
        if manifest is not None and manifest.outcome == "no job":
            self._parcel.send_again()
            return attempt
        self.session.tell(TaskEnded(stage_name(self.title), self.job, manifest, seconds))
        if manifest is None:
            return self._after_lost_worker(future, attempt)
        self.peaks.add(manifest)
        leak = self._leaks.add(manifest.worker, manifest.floor_bytes)
        if leak is not None and self._leak is None:
            self._leak = (leak, attempt)
        if self.session.recycling is not None:
            due = self.session.recycling.add(manifest.worker, manifest.floor_bytes)
            self._due = self._due or due
        if manifest.outcome == "done":
            if self.balance is not None and self.balance.add(attempt.beside, manifest):
                self.session.tell(Note("balance", str(self.balance)))
            self.on_done(manifest)
            return None
        if manifest.outcome == "oversize":
            sets_aside = self._is_job and self._on_oom != "raise"
            self._alone.append(
                for_long_row(attempt, manifest.error, self.stage, self.session.layout, sets_aside=sets_aside)
            )
            return None
        if manifest.outcome != "memory":
            raise manifest.error if manifest.error is not None else CuratorError(f"range {attempt.piece.number} failed")
        return self._after_memory_error(attempt, manifest)

    def _after_memory_error(self, attempt: Attempt, manifest: Manifest) -> Attempt | None:
        error = manifest.error if manifest.error is not None else MemoryError(f"range {attempt.piece.number}")
        if self._on_oom == "raise":
            raise error
        self._count("memory", attempt)
        self._remember(attempt)
        smaller = max(attempt.block_bytes // 2, SMALLEST_BLOCK_BYTES)
        retry = dataclasses.replace(attempt, block_bytes=smaller, tries=attempt.tries + 1)
        if attempt.exclusive_bytes is None:
            if smaller < attempt.block_bytes:
                return retry
            self._alone.append(retry)
            return None
        if smaller == attempt.block_bytes and attempt.halves:
            if manifest.unit is None or manifest.unit.step != "write":
                raise error  # a step's rows were halved already, and what else there is does not depend on rows
            reason = f"out of memory: writing this row alone on the node raised {type(error).__name__}: {error}"
            retry = narrowed(retry, manifest.unit, reason, error)
        return dataclasses.replace(retry, halves=smaller <= SMALLEST_BLOCK_BYTES)

    def _count(self, cause: str, attempt: Attempt) -> None:
        self.retries[cause] += 1
        blocks = f"blocks of {show_size(attempt.block_bytes)}"
        self.session.tell(Note("retry", f"range {attempt.piece.number} again: {cause}, it had {blocks}", cause))

    def _after_leak(self, leak: Leak, attempt: Attempt) -> None:
        """Find out about a worker that holds more and more, and start it again if it leaks; nothing is in flight."""
        self._leak = None
        job_bytes, restarts = self._parcel.job_bytes if self._is_job else None, not self.session.layout.in_process
        told = treat(self._client, leak, job_bytes, attempt, restarts=restarts)
        (self._leaks.forget if told.recycled or told.only_kept else self._leaks.wait)(leak.worker)
        self._wait_for_worker()
        if not told.only_kept:
            self.leaks.append(told)
        self.session.tell(Note("kept" if told.only_kept else "leak", str(told), told.step))

    def _recycle(self, worker: str) -> None:
        """Start a worker again that is due; nothing is in flight."""
        self._due = None
        if self.session.recycling is not None:
            self._leaks.forget(worker)
            self.session.tell(Note("recycle", self.session.recycling.recycle(self._client, worker), worker))

    def _remember(self, attempt: Attempt) -> None:
        """Let later ranges begin with half the block, when more than one ran out of memory with this one."""
        self._failed_at[attempt.block_bytes] += 1
        if self._failed_at[attempt.block_bytes] >= REMEMBER_AFTER and attempt.exclusive_bytes is None:
            self.start_bytes = min(self.start_bytes, max(attempt.block_bytes // 2, SMALLEST_BLOCK_BYTES))

    def _after_lost_worker(self, future: SentTask, attempt: Attempt) -> Attempt | None:
        if future.status == "cancelled":  # nobody cancels while a run goes on, but a client that lost its scheduler
            raise _scheduler_lost(self._client)
        exc, number = future.exception(), attempt.piece.number
        if not isinstance(exc, KilledWorker):
            raise WorkerLostError(f"range {number} did not run: {exc}") from exc
        if self._on_oom == "raise":
            raise WorkerLostError(f"range {number} ended its worker, and on_oom='raise' asks to stop: {exc}") from exc
        if attempt.exclusive_bytes is not None:
            return self._after_lost_alone(attempt, exc)
        self._count("worker lost", attempt)
        smaller = max(attempt.block_bytes // 2, SMALLEST_BLOCK_BYTES)
        self._alone.append(dataclasses.replace(attempt, block_bytes=smaller, tries=attempt.tries + 1))
        return None

    def _after_lost_alone(self, attempt: Attempt, exc: KilledWorker) -> Attempt:
        """Return the attempt in which the rows that ended a worker are taken in smaller units."""
        unit = unit_left(self.job.fork.branches[0].sink.folder, attempt.piece.number) if self._is_job else None
        error = WorkerLostError(
            f"range {attempt.piece.number} ended its worker again, alone on the node and with blocks of "
            f"{show_size(attempt.block_bytes)}"
            + (f", in step {unit.step!r} on {unit.rows:,} rows" if unit is not None else "")
            + f": {exc}"
        )
        lost = sum(row.reason.startswith(LOST_ROW) for row in attempt.aside)
        if unit is None or (unit.rows == 1 and lost >= MOST_LOST_ROWS):
            raise error from exc
        self._count("worker lost", attempt)
        self._wait_for_worker()
        reason = f"{LOST_ROW} when step {unit.step!r} had this row alone on the node (out of memory, or a crash)"
        return narrowed(dataclasses.replace(attempt, tries=attempt.tries + 1), unit, reason, error)

    @property
    def _is_job(self) -> bool:
        return isinstance(self.job, Job)

    def _run_alone(self, attempt: Attempt) -> None:
        """Run one range with nothing beside it: it may hold what all tasks may hold together.

        The task is not tied to a worker: Dask (2026.7.1) leaves a task whose worker went away in the state "no-worker",
        even with ``allow_other_workers`` and another worker there. So the limits of all are lifted meanwhile.
        """
        self._count("exclusive", attempt)
        if self.session.recycling is not None:
            self.session.recycling.join()  # limits are lifted on the workers that are there
        self._wait_for_worker()  # it may have died just now
        self._client.run(release_free_memory, on_error="ignore")
        layout = self.session.layout
        more_bytes = (
            layout.exclusive_bytes - layout.work_bytes if self.session.limits_data and not layout.in_process else 0
        )
        with more_than_limits(self._client, more_bytes):
            halves = self._on_oom == "retry" and attempt.block_bytes <= SMALLEST_BLOCK_BYTES
            how: dict[str, Any] = {"exclusive_bytes": layout.exclusive_bytes, "halves": halves, "beside": 0}
            again: Attempt | None = dataclasses.replace(attempt, **how)
            while again is not None:
                self._submit(again)
                again = self._settle(*self._next_finished())

    def _stop(self) -> None:
        """Make what is in flight end, and wait for it: a task that still ran would hold memory, and write, in the next run."""
        client, flying = self._client, list(self._flying)
        self._flying.clear()
        self._submitted.clear()
        self._unfetched.clear()
        if client.status != "running" or not flying:
            return
        try:
            if client.nthreads():
                client.run(request_stop, self._stage_id, wait=False, on_error="ignore")
                self._wait_for_end(flying)
        finally:
            client.cancel(flying, force=True, asynchronous=False)

    def _wait_for_end(self, flying: list[SentTask]) -> None:
        stop_seconds = self._patience.stop_seconds
        deadline = time.monotonic() + stop_seconds
        while not all(future.done() for future in flying):
            if time.monotonic() >= deadline:
                LOG.warning("%d s after the run ended a task of it still works; it ends with its block", stop_seconds)
                return
            time.sleep(STOP_POLL_SECONDS)


def _fetched(future: SentTask, timeout_seconds: float) -> Manifest | None:
    """Return what a task told, or None if it failed, or if its worker died with it."""
    try:
        return future.result(timeout=timeout_seconds) if future.status == "finished" else None
    except (TimeoutError, KilledWorker, CancelledError):  # the future's status tells which
        return None


def _scheduler_lost(client: ClusterClient) -> SchedulerLostError:
    logging.getLogger("distributed.client").addFilter(_NotOfLost(client))
    address = getattr(client.scheduler, "address", "its address")
    return SchedulerLostError(
        f"the connection to the scheduler at {address} broke off, so nothing can run there any more; what is finished stays. "
        "Start a cluster (or connect to one) again, and run the same with on_existing='resume'"
    )


class _NotOfLost(logging.Filter):
    """Drop what Dask logs of a client that lost its scheduler: its closing cancels its attempt to connect again."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._client = weakref.ref(client)

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is about something else."""
        exc = record.exc_info[1] if record.exc_info else None
        if not isinstance(exc, asyncio.CancelledError):
            return True
        frames = [frame for frame, _ in traceback.walk_tb(exc.__traceback__)]
        reconnects = (frame for frame in frames if frame.f_code.co_name == "_reconnect")
        return not any(frame.f_locals.get("self") is self._client() for frame in reconnects)

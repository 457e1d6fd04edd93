# SPDX-License-Identifier: Apache-2.0
"""Second attempt, exclusively on its worker, for Dask's own tasks that run out of memory.

The tasks of a run handle a lack of memory themselves (`core.runner.dispatch`). A task that Dask creates for ``.compute()``, a
shuffle or a string operation fails at once instead, and the memory of the failure (frames of the traceback with whole
blocks) stays until Python's cyclic garbage collector finds it, which few but large objects never trigger: a worker
of 1 GB was measured with 544 MB in use and no key in memory, and 264 MB after ``gc.collect()``.

A worker that lacks the memory for a result of another worker tries to fetch it again, too, after the same release. Dask would
wait for ever for the tasks that need it (dask/distributed#6705).

Not covered: a task that is killed from outside, and tasks that leave their thread (``secede``) and wait for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from dask.utils import key_split
from distributed import Reschedule
from distributed.core import Status, error_message
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import WORKER_ANY_RUNNING
from distributed.worker_state_machine import GatherDepFailureEvent, TaskErredMsg

from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.core.ranges.stream_parts import PARTS_FOLDER
from curator_df.core.user_frames import keep_user_frames
from curator_df.errors import BudgetError, StepMemoryError
from curator_df.memory.limits import release_free_memory
from curator_df.memory.sizes import show_size
from curator_df.memory.system import NO_LIMIT, data_limit, status_bytes
from curator_df.memory.wall import users_step

RANGE_KEY = "curate-range"
"""Prefix of the keys of the tasks of a run (`core.runner.dispatch`)."""
PLUGIN_NAME = "curator_df-second-try"
FULL_FRACTION = 0.5
"""Fraction of the working memory that may be in use before a task starts; above it, freed memory is first returned."""
SECONDS_BETWEEN_RELEASES = 0.2
"""Minimum time in seconds between two such attempts, since tables that Dask keeps on the worker stay."""
SECONDS_TO_BE_ALONE = 30.0
"""Maximum wait in seconds for the other tasks of the worker: one of them may itself depend on a waiting task."""
SECONDS_BETWEEN_PAUSED = 0.1
"""Interval in seconds at which a worker is checked for whether it is paused, and its memory is released."""
MOST_SECONDS_BETWEEN_PAUSED = 2.0
"""Maximum interval in seconds; it doubles up to this while nothing was released."""
FREED_BYTES = 1_000_000
"""Minimum number of bytes that count as released."""
RELEASES_IN_VAIN = 3
"""Number of releases in a row that free nothing on an idle, paused worker, after which it goes on."""
PAUSE_STEP = 0.02
"""Fraction of Dask's limit by which such a worker may grow before Dask pauses it again."""
SECONDS_BETWEEN_FETCHES = 0.5
"""Time in seconds after which a result for which there was no memory is fetched again."""
FETCHES_WHEN_IDLE = 3
"""Number of attempts, while no task runs on the worker, after which the tasks that need the result fail."""
ERROR_FIELDS = ("exception", "traceback", "exception_text", "traceback_text")
"""Fields of Dask's messages that describe an error."""
FAILED = "Compute Failed"
"""Beginning of the message that a worker logs when a task fails; distributed 2026.7.1."""
OWN_ERROR = re.compile(r"^Exception: ['\"]+(BudgetError|StepMemoryError)\(", re.MULTILINE)
REMEDY = (
    "Use smaller partitions (blocksize= of the reader), fewer columns or rows, split_out=True in an aggregation of many groups, "
    "or start the cluster with a larger memory="
)
"""Advice for an operation that lacks memory, for messages."""
SECONDS_TO_SPILL = 120.0
"""Maximum wait in seconds for the worker to write its results to disk."""
LOG = logging.getLogger("curator_df.core")


class Gate:
    """Lock that lets tasks run concurrently, or one of them exclusively."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._waiting = 0

    @property
    def is_idle(self) -> bool:
        """Whether no task runs."""
        return self._running == 0

    @contextmanager
    def with_others(self) -> Iterator[None]:
        """Run concurrently with others, but not with a task that runs exclusively or waits for that."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, SECONDS_TO_BE_ALONE)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run when no other task does; waiting tasks run one after the other."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._running, SECONDS_TO_BE_ALONE)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._waiting -= 1
                self._changed.notify_all()


class SecondTry(WorkerPlugin):  # type: ignore[misc]
    """Plugin that runs the tasks of a worker and repeats one that runs out of memory exclusively, after all else was released.

    Parameters
    ----------
    work_bytes : int
        Working memory of the worker, for the decision when to release memory and for messages.
    parts : str, optional
        Folder for the parts of compressed files (`core.ranges.stream_parts`) that all workers see.
    """

    name = PLUGIN_NAME

    def __init__(self, work_bytes: int, parts: str | None = None) -> None:
        self._work_bytes, self.parts = work_bytes, parts
        self._worker: Any = None
        self._gate: Gate
        self._submit: Callable[..., Future[Any]]
        self._gather_dep: Callable[..., Any]
        self._get_data: Callable[..., Any]
        self._next_release = 0.0
        self._pauses: Future[None]
        self._pause_fraction: float | None = None

    def setup(self, worker: Any) -> None:
        """Take over the submission of tasks to the threads of a worker."""
        self._worker, self._gate = worker, Gate()
        # A plugin of Dask sees transitions of tasks, but cannot hold a task back or repeat it. The thread pool can.
        executor = worker.executors["default"]
        self._submit = executor.submit
        executor.submit = self.submit
        self._gather_dep, worker.gather_dep = worker.gather_dep, self.gather_dep
        self._get_data, worker.handlers["get_data"] = worker.handlers["get_data"], self.get_data
        for handler in kept_logs(worker):
            handler.addFilter(text_for_frames)
        for handler in shown_logs():
            handler.addFilter(is_not_told)
        self._pauses = asyncio.run_coroutine_threadsafe(self._release_while_paused(), worker.loop.asyncio_loop)

    def teardown(self, worker: Any) -> None:
        """Restore the original submission of tasks."""
        self._pauses.cancel()
        self._restore_pause_fraction()
        worker.executors["default"].__dict__.pop("submit", None)
        vars(worker).pop("gather_dep", None)
        worker.handlers["get_data"] = self._get_data
        for handler in kept_logs(worker):
            handler.removeFilter(text_for_frames)
        for handler in shown_logs():
            handler.removeFilter(is_not_told)
        shutil.rmtree(f"{worker.local_directory}/{PARTS_FOLDER}", ignore_errors=True)

    def submit(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> Future[Any]:
        """Submit a task; called in the event loop, from the asyncio task that Dask names after the key."""
        current = asyncio.current_task()
        name = current.get_name() if current is not None else ""
        return self._submit(self.run, partial(call, *arguments, **named), operation_of(name), key_of(name))

    def run(self, call: Callable[[], Any], operation: str, key: str = "") -> Any:
        """Run a task in its thread; return Dask's message with the result or the error."""
        with self._gate.with_others():
            self._release_when_full()
            message = _attempt(call, operation)
        if not _ran_out_of_memory(message):
            return _told_by_user_frames(message, key)
        del message  # it refers to the frames of the failure
        with self._gate.alone():
            self._back_to_floor()
            message = _attempt(call, operation)
            if _ran_out_of_memory(message):
                cause = message["actual_exception"]
                error = cause if isinstance(cause, StepMemoryError) else self._error(operation, cause)
                keep_user_frames(error, key, cause)
                message.update(error_message(error), actual_exception=error, op="task-erred")
                del cause  # it refers to the frames of the failure, and they to what the task held
                release_free_memory()
        return message

    async def gather_dep(self, worker: str, to_gather: Collection[Any], total_nbytes: int, *, stimulus_id: str) -> Any:
        """Fetch results from another worker, again and again while memory lacks; at last fail the tasks that need them."""
        deadline, when_idle = time.monotonic() + SECONDS_TO_BE_ALONE, 0
        while True:
            event = await self._gather_dep(worker, to_gather, total_nbytes, stimulus_id=stimulus_id)
            if not isinstance(event, GatherDepFailureEvent):
                return event
            if self._worker.status not in WORKER_ANY_RUNNING:
                return event  # the scheduler gives the tasks of a worker that closes to others
            when_idle += self._gate.is_idle
            lacks_memory = "MemoryError" in event.exception_text
            # The connection waits for an answer to what could not be read, and would take the next question for it.
            for comm in self._worker.rpc.available.pop(worker, ()):
                self._worker.rpc.semaphore.release()
                comm.abort()
            if not lacks_memory or when_idle >= FETCHES_WHEN_IDLE or time.monotonic() > deadline:
                break
            await _spill_all(self._worker)
            release_free_memory()
            await asyncio.sleep(SECONDS_BETWEEN_FETCHES)
        self._fail_dependents(to_gather, event, lacks_memory=lacks_memory)
        return event

    async def get_data(self, comm: Any, keys: Collection[Any], who: Any = None, serializers: Any = None) -> Any:
        """Send results, after there is memory for those that were spilled.

        A result that cannot be read back counts for Dask as a transfer that never ends; after 20 of them, it refuses all others.
        """
        data = self._worker.data
        if self._refuses_transfers():
            return await self._get_data(comm, keys, who=who, serializers=serializers)
        self._release_when_full()
        for attempt in range(1, FETCHES_WHEN_IDLE + 1):
            try:
                for key in keys:
                    data.get(key)
                break
            except Exception as exc:
                if attempt == FETCHES_WHEN_IDLE or not is_out_of_memory(exc):
                    raise
            await _spill_all(self._worker)
            release_free_memory()
            await asyncio.sleep(SECONDS_BETWEEN_FETCHES)
        return await self._get_data(comm, keys, who=who, serializers=serializers)

    def _refuses_transfers(self) -> bool:
        """Return whether Dask answers that the worker is busy: then nothing has to be read back from disk."""
        limit = 1 if self._worker.status == Status.paused else self._worker.transfer_outgoing_count_limit
        return limit is not False and self._worker.transfer_outgoing_count >= limit

    def _fail_dependents(self, keys: Collection[Any], event: Any, *, lacks_memory: bool) -> None:
        """Report the tasks of this worker that wait for results which cannot be fetched as failed."""
        message = {name: getattr(event, name) for name in ERROR_FIELDS}
        if lacks_memory:
            names = ", ".join(sorted({str(key_split(key)) for key in keys}))
            error = BudgetError(
                f"A worker could not fetch the results of the Dask operation {names!r} ({show_size(event.total_nbytes)}). It "
                f"may use {show_size(self._work_bytes)}, and had no memory for them, even after it had released everything "
                f"else. {REMEDY}. Cause: {event.exception_text[:200]}"
            )
            keep_user_frames(error, str(next(iter(keys))))
            said = error_message(error)
            message = {name: said[name] for name in ERROR_FIELDS}
        tasks = self._worker.state.tasks
        for waiting in {one for key in keys if key in tasks for one in tasks[key].dependents}:
            told = TaskErredMsg(
                key=waiting.key,
                run_id=waiting.run_id,
                thread=None,
                startstops=[],
                stimulus_id=event.stimulus_id,
                **message,
            )
            self._worker.batched_send(told.to_dict())

    async def _release_while_paused(self) -> None:
        """Release memory while Dask has paused the worker, which it does on connected clusters.

        Dask only collects garbage then. Pages that malloc and Arrow keep (556 MB were seen) would leave it paused for ever.
        """
        seconds, in_vain = SECONDS_BETWEEN_PAUSED, 0
        while True:
            is_freed = True
            try:
                if self._worker.status == Status.paused:
                    is_freed = False
                    before_bytes = status_bytes("VmRSS")
                    await _spill_all(self._worker)
                    release_free_memory()
                    is_freed = before_bytes - status_bytes("VmRSS") >= FREED_BYTES
                elif self._pause_fraction is not None and self._used_fraction() < self._pause_fraction:
                    self._restore_pause_fraction()
            except Exception:  # such as a full disk: the worker may still be paused, and later there may be room
                LOG.debug("a paused worker could not release memory", exc_info=True)
            in_vain = 0 if is_freed or not self._gate.is_idle else in_vain + 1
            if in_vain >= RELEASES_IN_VAIN:
                in_vain = 0
                self._pause_later()
            seconds = SECONDS_BETWEEN_PAUSED if is_freed else min(2 * seconds, MOST_SECONDS_BETWEEN_PAUSED)
            await asyncio.sleep(seconds)

    def _pause_later(self) -> None:
        """Let an idle worker that Dask has paused, and that has nothing left to release, go on with its tasks.

        What an idle worker holds becomes less only with its tasks: two workers with a limit of 500 MB were seen paused for ever,
        each with 250 MB of its own and 144 MB of pages of libraries.
        """
        manager = self._worker.memory_manager
        if self._worker.status != Status.paused or not manager.memory_limit or not manager.memory_pause_fraction:
            return
        if self._pause_fraction is None:
            self._pause_fraction = manager.memory_pause_fraction
        manager.memory_pause_fraction = max(manager.memory_pause_fraction, self._used_fraction()) + PAUSE_STEP

    def _restore_pause_fraction(self) -> None:
        if self._pause_fraction is not None:
            self._worker.memory_manager.memory_pause_fraction = self._pause_fraction
            self._pause_fraction = None

    def _used_fraction(self) -> float:
        """Return the memory of the process as Dask compares it with its thresholds."""
        return float(self._worker.monitor.get_process_memory() / self._worker.memory_manager.memory_limit)

    def _release_when_full(self) -> None:
        now = time.monotonic()
        if now >= self._next_release and self.free_bytes() < self._work_bytes * (1 - FULL_FRACTION):
            self._next_release = now + SECONDS_BETWEEN_RELEASES
            release_free_memory()

    def free_bytes(self) -> int:
        """Return the bytes that the process may still allocate: up to its data limit, or up to Dask's limit if it has none."""
        limit, _ = data_limit()
        if limit != NO_LIMIT:
            return limit - status_bytes("VmData")
        allowed = self._worker.memory_manager.memory_limit
        return int(allowed) - status_bytes("VmRSS") if allowed else self._work_bytes

    def _back_to_floor(self) -> None:
        asyncio.run_coroutine_threadsafe(_spill_all(self._worker), self._worker.loop.asyncio_loop).result(
            SECONDS_TO_SPILL
        )
        release_free_memory()

    def _error(self, operation: str, cause: BaseException) -> BudgetError:
        said = str(cause).strip().split("\n", maxsplit=1)[0]
        return BudgetError(
            f"The Dask operation {operation!r} ran out of memory twice, the second time exclusively on its worker, which may use "
            f"{show_size(self._work_bytes)}. {REMEDY}. Cause: {type(cause).__name__}{': ' * bool(said)}{said[:200]}"
        )


def operation_of(name: str) -> str:
    """Return the operation of a task, from the name of the asyncio task that executes it.

    Examples
    --------
    >>> operation_of("execute(('getitem-434d7603026c99f4ace235fc451c0edd', 6))")
    'getitem'
    >>> operation_of("execute(inc-434d7603026c99f4ace235fc451c0edd)")
    'inc'
    """
    return str(key_split(key_of(name).strip("()").split(",")[0].strip("'\"")))


def key_of(name: str) -> str:
    """Return the key of a task as text, from the name of the asyncio task that executes it.

    Examples
    --------
    >>> key_of("execute(('getitem-434d7603026c99f4ace235fc451c0edd', 6))")
    "('getitem-434d7603026c99f4ace235fc451c0edd', 6)"
    """
    return name.removeprefix("execute(").removesuffix(")")


def kept_logs(worker: Any) -> list[logging.Handler]:
    """Return the handler that keeps a worker's log messages for Dask's dashboard; distributed 2026.7.1 has one."""
    handler = getattr(worker, "_deque_handler", None)
    return [handler] if isinstance(handler, logging.Handler) else []


def shown_logs() -> list[logging.Handler]:
    """Return the handlers that write messages of Dask to the terminal or notebook, as workers of a `LocalCluster` do.

    Messages that go to a file, such as the log of a batch job, are unchanged.
    """
    streams = [stream for stream in (sys.stderr, sys.__stderr__) if stream is not None and not _is_file(stream)]
    loggers = [logging.getLogger(name) for name in ("distributed.worker", "distributed", None)]
    return [each for logger in loggers for each in logger.handlers if getattr(each, "stream", None) in streams]


def _is_file(stream: Any) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):  # a notebook's stream has no descriptor
        return False


def is_not_told(record: logging.LogRecord) -> bool:
    """Return whether a log message is about anything but a task that failed with an error of this module.

    The client raises that error, or goes on with smaller partitions. Errors of other work stay on the terminal.
    """
    return not (isinstance(record.msg, str) and record.msg.startswith(FAILED) and OWN_ERROR.search(record.getMessage()))


def text_for_frames(record: logging.LogRecord) -> bool:
    """Replace the error in a log message by its text: Dask keeps thousands of messages, and frames hold whole blocks.

    A worker of 660 MB that could not spill a result of 72 MB was measured with 290 MB more in use from then on.
    """
    if record.exc_info:
        record.exc_text = record.exc_text or _FORMATTER.formatException(record.exc_info)
        record.exc_info = None
    if record.args:
        try:
            record.msg = record.getMessage()
        except Exception as exc:  # noqa: BLE001 - of any type: the message is another library's, and the work must go on
            known = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
            record.msg = f"{known} (a log message that cannot be formatted: {type(exc).__name__})"
        record.args = None
    return True


_FORMATTER = logging.Formatter()


def _attempt(call: Callable[[], Any], operation: str) -> Any:
    """Run a task; a lack of memory while Dask composes its error message, or ``sys.exit``, is also returned as a message."""
    started = time.time()
    try:
        # The steps of a run are named by themselves.
        with contextlib.nullcontext() if operation.startswith(RANGE_KEY) else users_step(operation):
            return call()
    except (MemoryError, RuntimeError) as exc:  # Dask has made messages of all others, but for SystemExit
        return {"actual_exception": exc, "start": started, "stop": time.time(), "thread": threading.get_ident()}


def _ran_out_of_memory(message: Any) -> bool:
    error = message.get("actual_exception") if isinstance(message, dict) else None
    return error is not None and (isinstance(error, StepMemoryError) or is_out_of_memory(error))


def _told_by_user_frames(message: Any, key: str) -> Any:
    """Return Dask's message; that of an error has the user's lines and the task, in place of the frames of all libraries."""
    error = message.get("actual_exception") if isinstance(message, dict) else None
    if error is None or isinstance(error, Reschedule):
        return message
    keep_user_frames(error, key)
    return {**message, **error_message(error), "actual_exception": error, "op": "task-erred"}


async def _spill_all(worker: Any) -> None:
    """Write the results in a worker's memory to its spill folder, if it has one."""
    evict = getattr(worker.data, "evict", None)
    while evict is not None and worker.data.memory and evict() >= 0:
        await asyncio.sleep(0)

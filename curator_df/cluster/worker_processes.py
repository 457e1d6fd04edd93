# SPDX-License-Identifier: Apache-2.0
"""Start the worker processes of this process within a time limit, count them, and end them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import dask
import psutil
from distributed import Client, LocalCluster, Nanny, SpecCluster, Status, default_client
from distributed.client import _set_global_client
from distributed.utils import sync

from curator_df.cluster.surroundings import MAIN_GUARD, is_interactive, limits_in_force
from curator_df.core.cleaning_up import clean_up
from curator_df.core.cluster_client import LEAVE_SECONDS, RESTART_SECONDS
from curator_df.errors import NoClusterError, type_and_text

START_SECONDS = 120
"""Maximum seconds that workers may take to start on a loaded machine."""
SILENT_SECONDS = 60
"""Maximum seconds of a start without a single living worker process."""
LIMITED_START_SECONDS = 35
"""Maximum seconds of a start while a limit of the shell is low: then it often does not fail, but waits for ever."""
LIMITED_CLOSE_SECONDS = 3
"""Seconds that the parts of a start that did not end in time may take to end, while a limit of the shell is low."""
LOOK_SECONDS = 0.01
"""Interval at which a start looks for the workers that it waits for."""
COUNT_SECONDS = 0.25
"""Interval at which a start counts its worker processes, for which the system reads an entry of each process of the machine."""
CLOSE_SECONDS = 15
"""Seconds that workers may take to end before they are killed."""
SYSTEM_REFUSES = (
    "The system has no memory or no process left. End other programs, or start fewer workers with a smaller cpus="
)


class StartDeadline:
    """Time limit of a start, for all waits of this process for Dask's event loop.

    Where no thread can be started or no memory mapped, an error may end a callback of that loop, and what waits for it waits
    for ever.
    """

    def __init__(self) -> None:
        self.is_limited = bool(limits_in_force())
        self.seconds = LIMITED_START_SECONDS if self.is_limited else START_SECONDS
        self._until: float | None = time.monotonic() + self.seconds

    @property
    def left_seconds(self) -> float | None:
        """Seconds that are left, at least one; None after the start."""
        return None if self._until is None else max(1.0, self._until - time.monotonic())

    @property
    def close_seconds(self) -> float:
        """Seconds that workers may take to end before they are killed."""
        return LIMITED_CLOSE_SECONDS if self.is_limited and self._until is not None else CLOSE_SECONDS

    def renew(self) -> None:
        """Give another attempt the whole time again, unless a limit of the shell is low."""
        if not self.is_limited:
            self._until = time.monotonic() + self.seconds

    def lift(self) -> None:
        """End the limit: the cluster has started."""
        self._until = None


class BoundedCluster(LocalCluster):  # type: ignore[misc] # Dask's classes have no types
    """Local cluster that raises `TimeoutError` where its start does not end in time, and leaves restarting nannies alone.

    Dask closes a nanny if its worker is missing 15 s after a worker of that name was removed, even while the nanny starts one:
    after two restarts within 15 s, or one that takes longer on a loaded machine. The run then waits until its patience ends.
    `Cluster._revive` replaces workers that are permanently gone.
    """

    def __init__(self, *, deadline: StartDeadline, **options: Any) -> None:
        self._deadline = deadline
        try:
            super().__init__(**options)
        except BaseException as exc:  # an interrupt would leave a scheduler that listens
            clean_up(exc, functools.partial(_close_unfinished, self, deadline.close_seconds))
            raise

    def _update_worker_status(self, op: str, msg: Any) -> None:
        super(SpecCluster, self)._update_worker_status(op, msg)

    def sync(self, func: Any, *args: Any, callback_timeout: Any = None, **options: Any) -> Any:
        """Run a coroutine on the event loop, and wait for it until the deadline."""
        timeout = self._deadline.left_seconds if callback_timeout is None else callback_timeout
        return super().sync(func, *args, callback_timeout=timeout, **options)


def _close_unfinished(cluster: SpecCluster, seconds: float) -> None:
    """Close the parts of a cluster whose start failed."""
    if _loop_runs(cluster):
        cluster.status = Status.failed  # Dask does not close the parts of a cluster that is starting
        with contextlib.suppress(AttributeError):  # there are no parts yet
            close_or_kill(cluster, seconds)


@contextlib.contextmanager
def closing_unfinished() -> Iterator[None]:
    """Close the cluster of another library that is started in a block, if an error or an interrupt ends its constructor.

    The constructor starts a scheduler, and returns nothing that could be closed if it is interrupted.
    """
    try:
        yield
    except BaseException as exc:
        for cluster in _being_made(exc):
            if getattr(cluster, "status", Status.closed) not in (Status.closed, Status.closing):
                clean_up(exc, functools.partial(_close_unfinished, cluster, CLOSE_SECONDS))
        raise


def _being_made(exc: BaseException) -> list[SpecCluster]:
    """Return the clusters through whose methods an error has passed; those that other threads start are not among them."""
    selves = (frame.f_locals.get("self") for frame, _ in traceback.walk_tb(exc.__traceback__))
    return list({id(one): one for one in selves if isinstance(one, SpecCluster)}.values())


def leave_nannies(cluster: Any) -> Callable[[], None]:
    """Let the nannies of a user's `LocalCluster` restart their workers as those of `BoundedCluster` do; return how to undo it.

    Without that, a few workers that are killed within seconds leave a cluster without workers for ever. Others are left alone.
    """
    if not isinstance(cluster, LocalCluster) or isinstance(cluster, BoundedCluster):
        return lambda: None
    connections = vars(cluster).setdefault("_curator_df_connections", [])
    connection = object()
    connections.append(connection)
    # That of SpecCluster closes the nanny of a worker that has been gone for a while, although it is about to start another.
    cluster._update_worker_status = super(SpecCluster, cluster)._update_worker_status

    def undo() -> None:
        connections.remove(connection)
        if not connections:
            vars(cluster).pop("_update_worker_status", None)

    return undo


def _loop_runs(part: Any) -> bool:
    """Return whether the event loop of a client or cluster was started, so that the part can be closed through it."""
    runner = getattr(part, "_loop_runner", None)
    return runner is not None and runner.is_started()


class ClosingClient(Client):  # type: ignore[misc] # Dask's classes have no types
    """Client that is closed where its start fails or is interrupted.

    One of Dask (distributed 2026.7.1) remains the default client, and blocks the next one forever if the garbage collector finds
    it at that moment.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        scheduler = dask.config.get("scheduler", None)
        try:
            super().__init__(*arguments, **options)
        except BaseException as exc:
            if _loop_runs(self):
                self.status = "connecting"  # Dask does not close a client that is not connected yet
                clean_up(exc, self._close_unfinished)
            dask.config.set(scheduler=scheduler)
            raise

    def _close_unfinished(self) -> None:
        with suppressed_end_of_loop(), contextlib.suppress(TimeoutError):
            close_client(self, timeout=CLOSE_SECONDS)


class BoundedClient(ClosingClient):
    """Client that raises `TimeoutError` where its start, or a call before the deadline is lifted, does not end in time."""

    def __init__(self, cluster: LocalCluster, *, deadline: StartDeadline) -> None:
        self._deadline = deadline
        # Results that pass through the scheduler are pickled with an older protocol, for which a worker makes several copies.
        super().__init__(cluster, set_as_default=True, direct_to_workers=True)

    def start(self, **options: Any) -> None:
        """Connect; Dask's own method (distributed 2026.7.1) waits for the connection without a limit."""
        if self.status != "newly-created":
            return
        self._loop_runner.start()
        _set_global_client(self)
        sync(self.loop, self._start, callback_timeout=self._deadline.left_seconds, **options)

    def sync(self, func: Any, *args: Any, callback_timeout: Any = None, **options: Any) -> Any:
        """Run a coroutine on the event loop, and wait for it until the deadline."""
        timeout = self._deadline.left_seconds if callback_timeout is None else callback_timeout
        return super().sync(func, *args, callback_timeout=timeout, **options)

    async def _restart(self, timeout: Any, wait_for_workers: bool) -> None:
        """Restart all workers, and wait until the scheduler knows only the new ones.

        Dask (distributed 2026.7.1) counts workers before its scheduler has noticed that the old ones are gone. It may then return
        at once, and the next call goes to processes that have ended.
        """
        workers = self.cluster.scheduler.workers
        before = list(workers.values())
        await super()._restart(timeout, wait_for_workers)
        leave, back = time.monotonic() + LEAVE_SECONDS, time.monotonic() + RESTART_SECONDS
        while any(one in before for one in workers.values()) and time.monotonic() < leave:
            await asyncio.sleep(0.05)
        while wait_for_workers and len(workers) < len(before) and time.monotonic() < back:
            await asyncio.sleep(0.05)


class EndingNanny(Nanny):  # type: ignore[misc] # Dask's classes have no types
    """A nanny that ends when its worker process cannot be started.

    In distributed 2026.7.1 closing such a nanny fails with an AssertionError, and every later close waits for the first one
    without a limit.
    """

    start_error: BaseException | None = None
    """Why the worker process could not be started."""

    async def instantiate(self) -> Status:
        """Start the worker process, and keep the error if that fails."""
        try:
            return await super().instantiate()
        except Exception as exc:
            first: BaseException = exc
            while first.__context__ is not None:
                first = first.__context__
            self.start_error = first
            raise

    async def kill(self, timeout: float = 5, reason: str = "nanny-kill") -> None:
        """End the worker process; do nothing if it never started."""
        if await self._ended_unborn():
            return
        await super().kill(timeout=timeout, reason=reason)

    async def _ended_unborn(self) -> bool:
        """Tell whether no process with a known ID was started; end one that started before its ID was known."""
        attempt = self.process
        if attempt is None or (attempt.process is not None and attempt.process.pid is not None):
            return False
        if attempt.status == Status.starting and attempt.running.is_set() and attempt.process is not None:
            with contextlib.suppress(AttributeError):  # there is no process
                await attempt.process.kill()
            return True
        return attempt.status in (Status.init, Status.failed)


def worker_processes() -> int:
    """Count the living worker processes by their command line, because multiprocessing would reap them."""
    count = 0
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended during the check
            count += child.status() != psutil.STATUS_ZOMBIE and "--multiprocessing-fork" in child.cmdline()
    return count


def is_starting(cluster: LocalCluster) -> bool:
    """Return whether a nanny waits for a worker process that it has started, and which is alive."""
    processes = [found for nanny in cluster.workers.values() if (found := getattr(nanny, "process", None)) is not None]
    return any(
        there.status == Status.starting and there.process is not None and there.process.is_alive()
        for there in processes
    )


def close_or_kill(cluster: LocalCluster, seconds: float = CLOSE_SECONDS) -> None:
    """Close a cluster; kill the workers of one that does not end.

    A nanny (distributed 2026.7.1) that is closed while it restarts its worker waits for it without a limit.
    """
    ended = False
    with suppressed_end_of_loop(), contextlib.suppress(TimeoutError):
        cluster.close(timeout=seconds)
        ended = True
    if not ended:
        _kill_workers(cluster)
        with suppressed_end_of_loop(), contextlib.suppress(TimeoutError):
            cluster.close(timeout=seconds)


def replace_workers(cluster: LocalCluster, count: int) -> None:
    """Close the workers of a cluster, kill those that do not end, and start others.

    Dask does nothing when it is scaled to 0 and back before it has looked: names, and so nannies, stay the same.
    """
    cluster.scale(0)
    for _ in range(2):
        deadline = time.monotonic() + CLOSE_SECONDS
        while cluster.workers and time.monotonic() < deadline:
            time.sleep(0.02)
        if not cluster.workers:
            break
        _kill_workers(cluster)
    cluster.scale(count)


def _kill_workers(cluster: LocalCluster) -> None:
    for pid in [nanny.pid for nanny in cluster.workers.values() if getattr(nanny, "pid", None)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()


@contextlib.contextmanager
def suppressed_end_of_loop() -> Iterator[None]:
    """Continue if the loop of Dask's thread has ended, in which case nothing can be closed through it any more."""
    try:
        yield
    except RuntimeError as exc:
        if "loop is closed" not in str(exc).lower() and "loop is not running" not in str(exc).lower():
            raise


def wait_for_workers(cluster: LocalCluster, count: int, deadline: StartDeadline | None = None) -> None:
    """Wait until workers are there; raise `NoClusterError` as soon as one cannot start, or after a minute without any."""
    started, most_alive, next_count = time.monotonic(), 0, -math.inf
    left_seconds = START_SECONDS if deadline is None or deadline.left_seconds is None else deadline.left_seconds
    while len(cluster.scheduler.workers) < count:
        time.sleep(LOOK_SECONDS)
        now = time.monotonic()
        alive = most_alive
        if now >= next_count:
            alive, next_count = worker_processes(), now + COUNT_SECONDS
        most_alive = max(most_alive, alive)
        allowed = min(left_seconds, START_SECONDS if most_alive else SILENT_SECONDS)
        ended = [nanny for nanny in cluster.workers.values() if nanny.status in _ENDED]
        if ended or alive < most_alive or now - started > allowed:
            close_or_kill(cluster, CLOSE_SECONDS if deadline is None else deadline.close_seconds)
            raise NoClusterError(_why_none_started(next((_start_error(nanny) for nanny in ended), None)))


_ENDED = (Status.closing, Status.closed, Status.failed)


def _start_error(nanny: Nanny) -> BaseException | None:
    return getattr(nanny, "start_error", None)


def _why_none_started(exc: BaseException | None) -> str:
    limits = limits_in_force()
    too_low = f"A limit of this shell is too low: {limits}" if limits else ""
    if exc is not None:
        return f"A worker process could not be started ({type_and_text(exc)}). {too_low or SYSTEM_REFUSES}"
    if is_interactive():
        why = too_low or "Look there for the cause, such as memory that another program uses"
    else:
        why = f"{too_low}. If it is not that: {MAIN_GUARD}" if limits else MAIN_GUARD
    return f"the worker processes did not start (their output is above). {why}"


def close_client(client: Client, **options: Any) -> None:
    """Close a client, and let Dask compute with the client that is left, or in this process if none is.

    A client of Dask restores the scheduler that was set when it began. Of two that close in the order in which they began, the
    first would unset the scheduler of the second, and the second would leave one behind that is gone.
    """
    try:
        client.close(**options)
    finally:
        try:
            default_client()
        except ValueError:
            if dask.config.get("scheduler", None) in ("dask.distributed", "distributed"):
                dask.config.set(scheduler=None)
        else:
            if dask.config.get("scheduler", None) is None:
                dask.config.set(scheduler="dask.distributed")

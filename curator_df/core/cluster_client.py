# SPDX-License-Identifier: Apache-2.0
"""Protocols for the part of Dask's client that a run uses, so that a test can replace the cluster; find and restart a worker."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from distributed import CancelledError, KilledWorker

RESTART_SECONDS = 60
"""Maximum seconds until a worker that is restarted is there again."""
LEAVE_SECONDS = 10.0
"""Maximum seconds until the scheduler notices that the process of a restarted worker is gone."""


class SentTask(Protocol):
    """A task that was sent to the cluster, such as a `distributed.Future`."""

    @property
    def status(self) -> str:
        """``pending``, ``finished``, ``error``, ``cancelled`` or ``lost``."""

    def done(self) -> bool:
        """Return whether the task has ended: finished, failed, cancelled or lost."""

    def result(self, timeout: float | None = None) -> Any:
        """Return what the task returned, or raise what it raised."""

    def exception(self) -> BaseException | None:
        """Return the exception that the task raised, or the reason why it could not run."""

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Call the function with the task when the task has ended."""

    def cancel(self) -> None:
        """Ask the cluster to forget the task."""

    def release(self) -> None:
        """Say that the result is not needed any more."""


class ClusterClient(Protocol):
    """A connection to a scheduler, such as a `distributed.Client`."""

    @property
    def status(self) -> str:
        """``running`` while the connection is open."""

    @property
    def scheduler(self) -> Any:
        """The connection; its ``address`` is that of the scheduler."""

    def submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> SentTask:
        """Send a call to the cluster."""

    def run(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Mapping[str, Any]:
        """Call a function in every worker process at once; return its results by worker address."""

    def nthreads(self) -> Mapping[str, int]:
        """Return the number of threads of each connected worker, by address."""

    def scheduler_info(self, n_workers: int = 5) -> Mapping[str, Any]:
        """Return the scheduler's information about its workers."""

    def restart_workers(self, workers: Sequence[str], timeout: float, *, raise_for_error: bool) -> Mapping[str, str]:
        """Restart worker processes; return ``OK`` or the failure, by address."""

    def run_on_scheduler(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the scheduler's process, with the scheduler as ``dask_scheduler``; return its result."""

    def cancel(self, futures: Sequence[Any], *, asynchronous: bool, force: bool) -> None:
        """Ask the cluster to forget tasks."""


def address_of(client: ClusterClient, worker: str) -> str | None:
    """Return the address of the worker with this host and process ID."""
    names = client.run(worker_name, on_error="ignore")
    return next((address for address, name in names.items() if name == worker), None)


def restart(client: ClusterClient, address: str) -> bool:
    """Restart a worker on which no task runs; return False if it has no nanny for that, or did not stop."""
    info = client.scheduler_info(n_workers=-1)["workers"].get(address, {})
    if not info.get("nanny"):
        return False
    workers = len(client.nthreads())
    done = client.restart_workers([address], timeout=RESTART_SECONDS, raise_for_error=False)
    if done.get(address) != "OK":
        # On a busy machine the new process may take longer to appear, but the old one is gone.
        return not _is_there(client, address, info)
    # Dask (distributed 2026.7.1) counts workers before its scheduler has noticed that the old one is gone, so that "OK" may come
    # before the new one: whatever is then sent to all workers, or submitted, goes to a process that has ended.
    left, back = time.monotonic() + LEAVE_SECONDS, time.monotonic() + RESTART_SECONDS
    while _is_there(client, address, info) and time.monotonic() < left:
        time.sleep(0.05)
    while len(client.nthreads()) < workers and time.monotonic() < back:
        time.sleep(0.05)
    return True


def _is_there(client: ClusterClient, address: str, before: Mapping[str, Any]) -> bool:
    """Return whether the scheduler still knows a worker process.

    A worker with a fixed port has the address of the process before it. Each process makes a folder with a name of its own.
    """
    now = client.scheduler_info(n_workers=-1)["workers"].get(address)
    return now is not None and now.get("local_directory") == before.get("local_directory")


@contextlib.contextmanager
def failing_at_once(client: ClusterClient) -> Iterator[None]:
    """Let a task fail when its worker dies for the first time, and not only when it dies again on the next worker."""
    before = client.run_on_scheduler(_allow_failures, 0)
    try:
        yield
    finally:
        if client.status == "running":
            client.run_on_scheduler(_allow_failures, before)


def _allow_failures(failures: int, dask_scheduler: Any) -> int:
    before, dask_scheduler.allowed_failures = int(dask_scheduler.allowed_failures), failures
    return before


def fetched(task: SentTask, timeout_seconds: float) -> Any:
    """Return what a task returned; None if it failed or its worker died with it.

    The result is released at once: Dask would run the task again, somewhere else, when the worker that has it is restarted.
    """
    try:
        result = task.result(timeout=timeout_seconds) if task.status == "finished" else None
    except (TimeoutError, KilledWorker, CancelledError, MemoryError):  # the status of the task tells which
        return None
    if result is not None:
        task.release()
    return result


def why_cancelled(task: SentTask) -> BaseException | None:
    """Return the reason why a task was cancelled, if it is known."""
    try:
        task.result(timeout=0)
    except (CancelledError, TimeoutError) as exc:
        return exc
    return None


def worker_name() -> str:
    """Return host and process ID of this process."""
    return f"{socket.gethostname()}:{os.getpid()}"

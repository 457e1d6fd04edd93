# SPDX-License-Identifier: Apache-2.0
"""Count the worker processes of this process, wait until they are connected, and end them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import psutil
from distributed import LocalCluster, Status

from curator_df.cluster.surroundings import limits_in_force
from curator_df.errors import NoClusterError

START_SECONDS = 120
"""Maximum seconds that workers may take to start on a loaded machine."""
CLOSE_SECONDS = 15
"""Seconds that workers may take to end before they are killed."""
MAIN_GUARD = (
    "In a script, start_cluster must be below \"if __name__ == '__main__':\", because worker processes import the script "
    "that starts them. This is not needed in a notebook, or with so little memory that no worker process is started"
)


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


def close_or_kill(cluster: LocalCluster) -> None:
    """Close a cluster; kill the workers of one that does not end.

    A nanny (distributed 2026.7.1) that is closed while it restarts its worker waits for it without a limit.
    """
    ended = False
    with suppressed_end_of_loop(), contextlib.suppress(TimeoutError):
        cluster.close(timeout=CLOSE_SECONDS)
        ended = True
    if not ended:
        _kill_workers(cluster)
        with suppressed_end_of_loop(), contextlib.suppress(TimeoutError):
            cluster.close(timeout=CLOSE_SECONDS)


def replace_workers(cluster: LocalCluster, count: int) -> None:
    """Close the workers of a cluster, kill those that do not end, and start others.

    Dask does nothing when it is told to scale to 0 and back before it has looked: names, and so nannies, stay the same.
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


def wait_for_workers(cluster: LocalCluster, count: int) -> None:
    """Wait until workers are connected; fail at once if one cannot start, for which Dask's nanny would wait forever."""
    deadline, most_alive = time.monotonic() + START_SECONDS, 0
    while len(cluster.scheduler.workers) < count:
        alive = worker_processes()
        most_alive = max(most_alive, alive)
        if alive < most_alive or time.monotonic() > deadline:
            close_or_kill(cluster)
            limits = limits_in_force()
            why = f"A limit of this shell is too low: {limits}. Otherwise: {MAIN_GUARD}" if limits else MAIN_GUARD
            raise NoClusterError(f"the worker processes did not start (their output is above). {why}")
        time.sleep(0.05)

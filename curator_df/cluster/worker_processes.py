# SPDX-License-Identifier: Apache-2.0
"""The worker processes of this one: how many live, waiting until they are there, and ending them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import dask
import psutil
from distributed import LocalCluster, Nanny, Status

from curator_df.cluster.surroundings import limits_in_force
from curator_df.errors import NoClusterError

START_SECONDS = 120
"""How long workers may take to start on a loaded machine."""
CLOSE_SECONDS = 15
"""How long they may take to end before they are killed."""
MAIN_GUARD = (
    "In a script, start_cluster must stand below \"if __name__ == '__main__':\", because worker processes import the script "
    "that starts them; in a notebook or with memory so small that no worker process is started it need not"
)


class BudgetNanny(Nanny):  # type: ignore[misc]
    """A nanny that gives the settings of its cluster to every worker process that it starts.

    Dask's nanny (distributed 2026.7.1) takes the settings in force when it is made, and shares parts of that dictionary with the
    process: workers that it starts again would have the settings of that moment. And a cluster that replaces lost workers makes
    nannies long after it started.
    """

    def __init__(self, *arguments: Any, settings: Mapping[str, Any], **named: Any) -> None:
        with dask.config.set(settings):
            super().__init__(*arguments, **named)
            self.config: dict[str, Any] = dask.config.merge(self.config)


def worker_processes() -> int:
    """Count the living worker processes, by their command line: asking multiprocessing would reap them."""
    count = 0
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended while we looked
            count += child.status() != psutil.STATUS_ZOMBIE and "--multiprocessing-fork" in child.cmdline()
    return count


def is_starting(cluster: LocalCluster) -> bool:
    """Tell whether a nanny waits for a worker process that it has started, and which lives."""
    processes = [found for nanny in cluster.workers.values() if (found := getattr(nanny, "process", None)) is not None]
    return any(
        there.status == Status.starting and there.process is not None and there.process.is_alive()
        for there in processes
    )


def close_or_kill(cluster: LocalCluster) -> None:
    """Close a cluster; kill the workers of one that does not end.

    A nanny (distributed 2026.7.1) that is closed while it starts its worker again waits for it without a limit.
    """
    ended = False
    with suppressed_end_of_loop(), contextlib.suppress(TimeoutError):
        cluster.close(timeout=CLOSE_SECONDS)
        ended = True
    if not ended:
        for pid in [nanny.pid for nanny in cluster.workers.values() if getattr(nanny, "pid", None)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        with suppressed_end_of_loop(), contextlib.suppress(TimeoutError):
            cluster.close(timeout=CLOSE_SECONDS)


@contextlib.contextmanager
def suppressed_end_of_loop() -> Iterator[None]:
    """Go on where the loop of Dask's thread has ended: nothing can be closed through it any more."""
    try:
        yield
    except RuntimeError as exc:
        if "loop is closed" not in str(exc).lower() and "loop is not running" not in str(exc).lower():
            raise


def wait_for_workers(cluster: LocalCluster, count: int) -> None:
    """Wait until workers are there; see at once when one cannot start, for which Dask's nanny would wait for ever."""
    deadline, most_alive = time.monotonic() + START_SECONDS, 0
    while len(cluster.scheduler.workers) < count:
        alive = worker_processes()
        most_alive = max(most_alive, alive)
        if alive < most_alive or time.monotonic() > deadline:
            close_or_kill(cluster)
            limits = limits_in_force()
            why = (
                f"A limit of this shell is too low: {limits}. If it is not that: {MAIN_GUARD}" if limits else MAIN_GUARD
            )
            raise NoClusterError(f"the worker processes did not start (what they said stands above). {why}")
        time.sleep(0.05)

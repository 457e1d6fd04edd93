# SPDX-License-Identifier: Apache-2.0
"""Limits that a plan expects of every worker, checked on the worker: workers may join a foreign cluster at any time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distributed import get_worker

from curator_df.core.cluster_client import ClusterClient
from curator_df.errors import BudgetError
from curator_df.memory.sizes import show_size


@dataclass(frozen=True)
class WorkerLimits:
    """Limits of the workers that existed when the connection was made."""

    memory_bytes: int
    """Memory limit of the smallest worker, in bytes."""
    threads: int
    """Number of threads of the worker with the most."""

    def broken_by(self, address: str, memory_bytes: int | None, threads: int) -> BudgetError | None:
        """Return the error for a worker whose limits differ from the planned ones; None if it keeps them.

        Examples
        --------
        >>> limits = WorkerLimits(2_000_000_000, 1)
        >>> limits.broken_by("tcp://10.0.0.7:4711", 2_000_000_000, 1)
        >>> type(limits.broken_by("tcp://10.0.0.7:4711", None, 1)).__name__
        'BudgetError'
        """
        if not memory_bytes:
            what = "no memory limit"
        elif memory_bytes < self.memory_bytes:
            what = f"a memory limit of {show_size(memory_bytes)}"
        elif threads > self.threads:
            what = f"{threads} threads"
        else:
            return None
        return BudgetError(
            f"worker {address} joined after the connection was made and has {what}, but runs are planned with at least "
            f"{show_size(self.memory_bytes)} and at most {self.threads} thread{'s' * (self.threads > 1)} for each worker. Start "
            "it with these limits, or connect again"
        )

    def broken_here(self) -> BudgetError | None:
        """Return the error for the worker that this runs on."""
        worker = get_worker()
        return self.broken_by(worker.address, worker.memory_manager.memory_limit, worker.state.nthreads)


@contextmanager
def more_than_limits(client: ClusterClient, more_bytes: int) -> Iterator[None]:
    """Let workers use more bytes before Dask's own thresholds act; a task raises its process's data limit itself."""
    _raise_memory_limits(client, more_bytes)
    try:
        yield
    finally:
        _raise_memory_limits(client, -more_bytes)


def _raise_memory_limits(client: ClusterClient, more_bytes: int) -> None:
    for nanny in (True, False) if more_bytes else ():
        client.run(_raise_memory_limit, more_bytes, nanny=nanny, on_error="ignore")


def _raise_memory_limit(more_bytes: int, dask_worker: Any) -> None:
    manager = dask_worker.memory_manager
    if manager is not None and manager.memory_limit:
        manager.memory_limit += more_bytes

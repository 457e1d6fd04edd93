# SPDX-License-Identifier: Apache-2.0
"""Limits that a plan expects of every worker, checked on the worker: workers may join a foreign cluster at any time."""

from __future__ import annotations

from dataclasses import dataclass

from distributed import get_worker

from curator_df.core.sizes import show_size
from curator_df.errors import BudgetError


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

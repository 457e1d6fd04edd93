# SPDX-License-Identifier: Apache-2.0
"""Start workers again after so many bytes, seconds or tasks, one at a time, while none of them has work.

Dask's own ``lifetime`` ends a worker with whatever it holds, and several of them close together. Here the runner sends
nothing for a moment; what is in flight ends; one worker goes, and as soon as it is gone the others go on.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Literal

from dask.utils import parse_timedelta

from curator_df.core.cluster_client import ClusterClient
from curator_df.core.memory.budget import Layout, least_with_workers
from curator_df.core.sizes import read_size, show_count, show_size
from curator_df.core.tasks.leak_probe import address_of, restart
from curator_df.errors import ParameterError

Unit = Literal["bytes", "seconds", "tasks"]
GONE_SECONDS = 30.0
"""How long to wait for a worker to be gone from the scheduler before work is sent again."""


@dataclass(frozen=True)
class RecycleAfter:
    """When a worker is started again."""

    amount: float
    """How many of them."""
    unit: Unit
    """``bytes`` that it holds more than after its first task, ``seconds`` since then, or ``tasks`` that it finished."""

    def __str__(self) -> str:
        if self.unit == "bytes":
            return f"{show_size(int(self.amount))} more than at first"
        return f"{self.amount:,.0f} {self.unit}"

    @property
    def argument(self) -> str | int:
        """The same as `read_recycle_after` takes it.

        Examples
        --------
        >>> [RecycleAfter(5e8, "bytes").argument, RecycleAfter(90, "seconds").argument, RecycleAfter(40, "tasks").argument]
        ['500000000B', '90s', 40]
        """
        if self.unit == "tasks":
            return int(self.amount)
        return f"{self.amount:g}s" if self.unit == "seconds" else f"{self.amount:.0f}B"


def read_recycle_after(operator: str, given: str | int | None) -> RecycleAfter | None:
    """Tell tasks (a number), bytes (``"500MB"``) and seconds (``"2h"``) from each other.

    Examples
    --------
    >>> read_recycle_after("start_cluster", "500MB"), read_recycle_after("start_cluster", "2h").unit
    (RecycleAfter(amount=500000000, unit='bytes'), 'seconds')
    """
    if given is None:
        return None
    if isinstance(given, int):
        after = RecycleAfter(given, "tasks")
    elif given.strip().lower().endswith("b"):
        after = RecycleAfter(read_size("recycle_after", given), "bytes")
    else:
        try:
            after = RecycleAfter(float(parse_timedelta(given)), "seconds")
        except (KeyError, ValueError) as exc:
            raise ParameterError(
                f"{operator}: recycle_after={given!r} is not one of: a number of tasks (1000), bytes that a worker holds more "
                "('500MB'), or a time ('2h')"
            ) from exc
    if after.amount <= 0:
        raise ParameterError(f"{operator}: recycle_after={given!r} must be more than nothing")
    return after


def require_processes(after: RecycleAfter | None, layout: Layout, held_bytes: int) -> None:
    """Refuse to start workers again where they are threads of the client."""
    if after is not None and layout.in_process:
        raise ParameterError(
            f"start_cluster: recycle_after={after} needs worker processes, and memory={show_size(layout.allowed_bytes)} is only "
            f"enough for threads of this one; allow at least memory={least_with_workers(held_bytes):_}, or leave it out"
        )


@dataclass
class _Worker:
    """What is known of one worker process."""

    started: float
    floor_bytes: int
    tasks: int = 0
    share: float = 1.0


@dataclass
class Recycling:
    """Counts what each worker did, and starts the ones that are due again."""

    after: RecycleAfter
    """When."""
    workers: int
    """How many there are, over which the first restarts are spread."""
    recycled: int = 0
    """Workers that were started again."""
    _known: dict[str, _Worker] = field(default_factory=dict)
    _seen: int = 0
    _restart: threading.Thread | None = None

    def add(self, worker: str, floor_bytes: int) -> str | None:
        """Take what a worker holds after a task; return it if it is due and no other is away."""
        known = self._known.get(worker)
        if known is None:
            # The first ones go early, each after another share, so that they are not due together.
            self._seen += 1
            share = (self._seen / self.workers) if self._seen < self.workers else 1.0
            known = self._known[worker] = _Worker(time.monotonic(), floor_bytes, share=share)
        known.tasks += 1
        done = {
            "bytes": floor_bytes - known.floor_bytes,
            "seconds": time.monotonic() - known.started,
            "tasks": known.tasks,
        }[self.after.unit]
        is_due = done >= self.after.amount * (1.0 if self.after.unit == "bytes" else known.share)
        return worker if is_due and not self.is_away else None

    @property
    def is_away(self) -> bool:
        """Whether a worker is being started again."""
        return self._restart is not None and self._restart.is_alive()

    def recycle(self, client: ClusterClient, worker: str) -> str:
        """Start a worker again that has no work; return when it is gone, and say what was done."""
        self.join()
        known = self._known.pop(worker)
        address = address_of(client, worker)
        if address is None:
            return f"worker {worker} was gone before it was started again"
        self._restart = threading.Thread(target=restart, args=(client, address), daemon=True)
        self._restart.start()
        deadline = time.monotonic() + GONE_SECONDS
        while self.is_away and time.monotonic() < deadline and address in client.nthreads():
            time.sleep(0.05)
        if self.workers == 1:
            self.join()
        self.recycled += 1
        return f"worker {worker} is started again after {show_count(known.tasks, 'task')} (recycle_after: {self.after})"

    def join(self) -> None:
        """Wait until no worker is away."""
        if self._restart is not None:
            self._restart.join()
            self._restart = None

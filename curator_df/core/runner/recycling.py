# SPDX-License-Identifier: Apache-2.0
"""Restart workers after a number of bytes, seconds or tasks, and those whose memory keeps growing, while none has work.

Dask's own ``lifetime`` closes a worker together with its results, and several workers at almost the same time. The runner
instead pauses sending tasks until the running ones have ended; then one worker is stopped. When it is gone, the others
continue. Of a worker whose memory keeps growing, free pages are returned first, and the step that leaves memory behind is found.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dask.utils import parse_timedelta

from curator_df.core.cluster_client import ClusterClient, address_of, restart
from curator_df.errors import ParameterError, StepMemoryError
from curator_df.memory.budget import Layout, least_with_workers
from curator_df.memory.leaks import LEAST_GROWTH_BYTES, MUCH_GROWTH_SHARE, Leak, LeakReceipt, LeakWatch
from curator_df.memory.limits import release_free_memory
from curator_df.memory.sizes import read_size, show_count, show_size, size_to_type
from curator_df.memory.system import status_bytes

if TYPE_CHECKING:
    from curator_df.core.ranges.manifest import Manifest
    from curator_df.core.tasks.task import Attempt

LOG = logging.getLogger("curator_df.core")
Unit = Literal["bytes", "seconds", "tasks"]
GONE_SECONDS = 30.0
"""Maximum wait for a worker to disappear from the scheduler before tasks are sent again, in seconds."""
PROBE_PARTS = 8
"""Divisor of the bytes that had filled a worker: it is restarted after a probe that left more than the quotient."""
PROBE_SECONDS = 60
PROBE_LOOK_SECONDS = 0.5
"""Interval at which a probe is checked for whether its worker still exists: a step that leaks may crash it."""


@dataclass(frozen=True)
class RecycleAfter:
    """Condition for the restart of a worker."""

    amount: float
    """Number of units after which a worker is restarted."""
    unit: Unit
    """Unit: ``bytes`` of growth since its first task, ``seconds`` since then, or finished ``tasks``."""

    def __str__(self) -> str:
        if self.unit == "bytes":
            return f"{show_size(int(self.amount))} more than at first"
        return f"{self.amount:,.0f} {self.unit}"

    @property
    def argument(self) -> str | int:
        """Return the condition in the form that `read_recycle_after` accepts.

        Examples
        --------
        >>> [RecycleAfter(5e8, "bytes").argument, RecycleAfter(90, "seconds").argument, RecycleAfter(40, "tasks").argument]
        ['500000000B', '90s', 40]
        """
        if self.unit == "tasks":
            return int(self.amount)
        return f"{self.amount:g}s" if self.unit == "seconds" else f"{self.amount:.0f}B"


def read_recycle_after(operator: str, given: str | int | None) -> RecycleAfter | None:
    """Parse a number of tasks, bytes (``"500MB"``) or a time (``"2h"``).

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
                f"{operator}: recycle_after={given!r} must be a number of tasks (1000), a growth of a worker's memory "
                "('500MB'), or a time ('2h')"
            ) from exc
    if after.amount <= 0:
        raise ParameterError(f"{operator}: recycle_after={given!r} must be more than 0")
    return after


def require_processes(after: RecycleAfter | None, layout: Layout, held_bytes: int) -> None:
    """Raise an error if workers cannot be restarted because they are threads of the client."""
    if after is not None and layout.in_process:
        raise ParameterError(
            f"start_cluster: recycle_after={after} needs worker processes, but memory={show_size(layout.allowed_bytes)} is only "
            f"enough for threads of this process. Use memory={size_to_type(least_with_workers(held_bytes))}, or remove "
            "recycle_after="
        )


@dataclass
class _Worker:
    """Observations of one worker process."""

    started: float
    floor_bytes: int
    tasks: int = 0
    share: float = 1.0


@dataclass
class Recycling:
    """Counter of each worker's use, which restarts the workers that are due."""

    after: RecycleAfter
    """Condition for a restart."""
    workers: int
    """Number of workers, over which the first restarts are spread."""
    recycled: int = 0
    """Number of workers that were restarted."""
    _known: dict[str, _Worker] = field(default_factory=dict)
    _seen: int = 0
    _restart: threading.Thread | None = None

    def add(self, worker: str, floor_bytes: int) -> str | None:
        """Add a worker's memory after a task; return the worker if it is due and no other is being restarted."""
        known = self._known.get(worker)
        if known is None:
            # The first restarts are early, each after another fraction, so that they do not coincide.
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
        """Whether a worker is being restarted."""
        return self._restart is not None and self._restart.is_alive()

    def recycle(self, client: ClusterClient, worker: str) -> str:
        """Restart a worker without work; return a description when the old process is gone."""
        self.join()
        known = self._known.pop(worker)
        address = address_of(client, worker)
        if address is None:
            return f"worker {worker} was gone before its restart"
        self._restart = threading.Thread(target=restart, args=(client, address), daemon=True)
        self._restart.start()
        deadline = time.monotonic() + GONE_SECONDS
        while self.is_away and time.monotonic() < deadline and address in client.nthreads():
            time.sleep(0.05)
        if self.workers == 1:
            self.join()
        self.recycled += 1
        return f"worker {worker} is restarted after {show_count(known.tasks, 'task')} (recycle_after: {self.after})"

    def join(self) -> None:
        """Wait until no worker is being restarted."""
        if self._restart is not None:
            self._restart.join()
            self._restart = None


def diagnose_leak(
    client: ClusterClient,
    leak: Leak,
    job_bytes: bytes | None,
    attempt: Attempt,
    *,
    restarts: bool,
    known: LeakReceipt | None = None,
) -> LeakReceipt:
    """Return free pages once more; if that is not enough, name the step and restart the worker. No task is running.

    If no step is found to leave memory behind, it may be a cache that is filling up, so the worker is not changed the first time.
    A full worker has no memory to try a step, so it is restarted first.

    Parameters
    ----------
    client : ClusterClient
        Client of the cluster.
    leak : Leak
        Growth found from the floors after each task.
    job_bytes : bytes, optional
        Pickled `curator_df.core.tasks.task.Job` whose steps are tried; None if tasks have no steps.
    attempt : Attempt
        Latest task, on whose range the steps are tried.
    restarts : bool
        Whether workers are processes that can be restarted.
    known : LeakReceipt, optional
        Earlier leak of this run, whose step was found.
    """
    address = address_of(client, leak.worker)
    told = LeakReceipt(**vars(leak), step="", left_bytes=0, recycled=False)
    if address is None:
        return told
    told.given_back_bytes = int(client.run(given_back, workers=[address], on_error="ignore").get(address, 0))
    if told.only_kept:
        return told
    if known is not None:
        told.step, told.left_bytes = known.step, known.left_bytes
    if restarts and (leak.again or told.step):
        others = set(client.nthreads()) - {address}
        told.recycled = restart(client, address)
        address = next((new for new in client.nthreads() if new not in others), address)
    if told.step or job_bytes is None:
        return told
    before_bytes = _held(client, address) if told.recycled else 0
    if (found := probe(client, address, job_bytes, attempt)) is not None:
        told.step, told.left_bytes = found
    # What the probe left, also one that failed, is of the worker's work memory. A restart takes 2 s of CPU time.
    least_bytes = max(LEAST_GROWTH_BYTES, leak.growth_bytes // PROBE_PARTS)
    is_used = told.recycled and _held(client, address) - before_bytes > least_bytes
    if (found is not None and not told.recycled) or is_used:
        told.recycled = restarts and restart(client, address)
    return told


def _held(client: ClusterClient, address: str) -> int:
    return int(client.run(bytes_held, workers=[address], on_error="ignore").get(address, 0))


def restart_full(client: ClusterClient, leaks: LeakWatch, error: BaseException, *, restarts: bool) -> None:
    """Restart workers that a run has left full, if it ended for lack of memory: an operation of Dask would then fail as well."""
    if not restarts or client.status != "running" or not isinstance(error, MemoryError):
        return
    while (leak := leaks.fullest()) is not None:
        leaks.forget(leak.worker)
        address = address_of(client, leak.worker)
        if address is not None:
            try:
                restart(client, address)
            except (OSError, RuntimeError) as exc:  # the error of the run comes first
                LOG.warning("worker %s was not restarted: %s", leak.worker, exc)
                return


def given_back() -> int:
    """Return unused memory of Arrow's pool and malloc to the system; return the private bytes freed (runs on a worker)."""
    before = status_bytes("RssAnon")
    release_free_memory()
    return max(before - status_bytes("RssAnon"), 0)


def bytes_held() -> int:
    """Return the private bytes of this worker after free pages were returned (runs on a worker on which no task runs)."""
    release_free_memory()
    return status_bytes("RssAnon")


def probe(client: ClusterClient, address: str, job_bytes: bytes, attempt: Attempt) -> tuple[str, int] | None:
    """Return the step that leaves the most behind on a worker, and its bytes for each block; None if no step is found."""
    from curator_df.core.tasks.task import left_by_steps  # a cluster starts without what tasks import

    future = client.submit(left_by_steps, job_bytes, attempt, workers=[address], pure=False)
    deadline = time.monotonic() + PROBE_SECONDS
    while True:
        try:
            # Once it has ended, only its result is on the way, which a full worker on a busy machine sends late.
            left = future.result(timeout=PROBE_SECONDS if future.done() else PROBE_LOOK_SECONDS)
            break
        except TimeoutError:
            if time.monotonic() >= deadline or not (future.done() or address in client.nthreads()):
                future.cancel()
                return None
        except Exception:  # noqa: BLE001 - after a failed probe, the leak is reported without a name
            return None
    future.release()
    return max(left.items(), key=lambda item: item[1]) if left else None


def left_too_much(leaks: Iterable[LeakReceipt], manifest: Manifest, layout: Layout) -> StepMemoryError | None:
    """Return the error for a range that fills an empty worker with what a step leaves behind; None if no step does."""
    named = next((leak for leak in leaks if leak.step), None)
    left_bytes = manifest.floor_bytes - manifest.idle_bytes
    if named is None or not manifest.idle_bytes or left_bytes < MUCH_GROWTH_SHARE * layout.work_bytes:
        return None
    return StepMemoryError(
        f"step {named.step!r} leaves {show_size(named.left_bytes)} behind at each block. On input split {manifest.number}, "
        f"that was {show_size(left_bytes)} of the {show_size(layout.work_bytes)} of working memory of an empty worker. "
        "Remove what the step keeps (a global, a cache), use a larger blocksize=, or start the cluster with more memory="
    )

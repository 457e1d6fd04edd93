# SPDX-License-Identifier: Apache-2.0
"""Settings of every worker process that curator_df starts: Dask's settings, the environment, its memory limit, Dask's logs.

`start_cluster` passes these directly; a job on a batch system gets them as lines of its script (`as_exports`).
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shlex
import socket
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
from distributed.diagnostics.plugin import NannyPlugin, WorkerPlugin
from distributed.utils import silence_logging_cmgr

from curator_df.cluster.preload import WORK_BYTES_VARIABLE, CountedMemory, end_for_counted_memory
from curator_df.core.host_blocks import pickle_without_copies
from curator_df.memory.budget import Layout, worker_rss_bytes
from curator_df.memory.limits import give_back_large_buffers
from curator_df.memory.wall import WALL_VARIABLE, Wall

PRELOAD = "curator_df.cluster.preload"
TERMINATE_FRACTION = 0.95
RESULTS_FRACTION = 0.3
"""Share of a worker's working memory that results of Dask's own tasks may use before the oldest are spilled."""
SHUFFLE_BUFFERS_PER_WORK = 16
"""Divisor of a worker's working memory for each of the two buffers of Dask's P2P shuffle: one sixteenth."""
SHUFFLE_LIMITERS = ("memory_limiter_comms", "memory_limiter_disk")
"""Attributes of Dask's plugin for P2P shuffles that limit the bytes of these buffers (distributed 2026.7.1)."""
LOG_MESSAGES = 50
"""Number of messages that Dask keeps of each connection between scheduler and workers, for its developers; 1,000 by default.
The first messages of a stage have its whole plan (`core.tasks.job_parcel`)."""


def worker_environment(layout: Layout, wall: Wall | None = None) -> dict[str, str]:
    """Return the environment variables of a worker process. Variables that are already set take precedence in Dask."""
    return {
        **({} if wall is None else {WALL_VARIABLE: wall.folder}),
        WORK_BYTES_VARIABLE: str(layout.work_bytes),
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "OMP_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
        # Buffers come from the system and are returned to it (`give_back_large_buffers`), in faster pages of 2 MB if the machine
        # offers them on request. Read by glibc from 2.35 on, when a process starts.
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    }


def worker_memory_limit(layout: Layout) -> int:
    """Return Dask's limit for a worker: the data limit must apply first, so it is that limit divided by `TERMINATE_FRACTION`."""
    return int((worker_rss_bytes() + layout.work_bytes) / TERMINATE_FRACTION)


def worker_settings(layout: Layout, spill_bytes: int | None = None) -> dict[str, Any]:
    """Return Dask's settings for a worker that may spill ``spill_bytes``; None means no limit."""
    shuffle_bytes = layout.work_bytes // SHUFFLE_BUFFERS_PER_WORK
    return {
        # Fraction of Dask's own limit, which includes an idle worker's memory: results are spilled while a task still has room.
        "distributed.worker.memory.target": RESULTS_FRACTION * layout.work_bytes / worker_memory_limit(layout),
        "distributed.worker.memory.spill": 0.7,
        # Tasks keep no results and their memory is planned, so a full worker is a busy one, not one to be paused:
        # with less than 100 MB between the idle process and the limit, paused workers never came back.
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.terminate": TERMINATE_FRACTION,
        "distributed.worker.memory.max-spill": spill_bytes or False,
        # Dask's defaults are 1 GiB and 100 MiB in each worker, regardless of its memory.
        "distributed.p2p.comm.buffer": shuffle_bytes,
        "distributed.p2p.storage.buffer": shuffle_bytes,
        "distributed.nanny.preload": [PRELOAD],
        "distributed.worker.profile.enabled": False,
        "distributed.admin.system-monitor.gil.enabled": False,
        "distributed.admin.low-level-log-length": LOG_MESSAGES,
    }


class ConnectedWorker(WorkerPlugin):  # type: ignore[misc] # Dask's classes have no types
    """Memory settings of a worker that others have started, while a connection uses it.

    They are those of the workers that curator_df starts, as far as they can be changed later: buffers of shuffles that fit the
    worker, freed memory that goes back to the system, and thresholds for counted memory. Dask takes resident memory, with clean
    pages of libraries (144 MB): two workers with a limit of 500 MB stayed paused for ever with 250 MB of their own.

    Parameters
    ----------
    work_bytes : int
        Working memory of the worker.
    """

    name = "curator_df-connected-worker"
    idempotent = True

    def __init__(self, work_bytes: int) -> None:
        self._shuffle_bytes = work_bytes // SHUFFLE_BUFFERS_PER_WORK
        self._client_process = _this_process()
        self._limits: dict[str, int] = {}

    def setup(self, worker: Any) -> None:
        """Change the settings of a worker."""
        shuffles = worker.plugins.get("shuffle")
        for name in SHUFFLE_LIMITERS:
            limiter = getattr(shuffles, name, None)
            if limiter is not None and limiter.limit is not None and limiter.limit > self._shuffle_bytes:
                self._limits[name], limiter.limit = limiter.limit, self._shuffle_bytes
        if _this_process() == self._client_process:
            return  # the allocators are those of the user's own program
        worker.monitor.get_process_memory = CountedMemory(os.getpid())
        pa.set_memory_pool(pa.system_memory_pool())
        give_back_large_buffers()
        pickle_without_copies()
        # A full collection walked all modules for 160 ms, during which the worker receives nothing.
        gc.collect()
        gc.freeze()

    def teardown(self, worker: Any) -> None:
        """Restore what Dask's thresholds and shuffles use."""
        for name, limit in self._limits.items():
            getattr(worker.plugins["shuffle"], name).limit = limit
        vars(worker.monitor).pop("get_process_memory", None)


class ConnectedNanny(NannyPlugin):  # type: ignore[misc] # Dask's classes have no types
    """Plugin that lets a nanny kill its worker for counted memory while a connection uses the worker."""

    name = "curator_df-connected-nanny"
    idempotent = True

    def __init__(self) -> None:
        self._memory_monitor: Any = None

    def setup(self, nanny: Any) -> None:
        """Replace the check of a nanny."""
        if callback := nanny.periodic_callbacks.get("memory_monitor"):
            self._memory_monitor = callback.callback
            end_for_counted_memory(nanny)

    def teardown(self, nanny: Any) -> None:
        """Restore the check."""
        if self._memory_monitor is not None:
            nanny.periodic_callbacks["memory_monitor"].callback = self._memory_monitor


def _this_process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def as_exports(settings: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
    """Return lines of a shell script that set Dask's settings and the environment.

    Examples
    --------
    >>> as_exports({"distributed.worker.memory.max-spill": False}, {"OMP_NUM_THREADS": "1"})
    ['export DASK_DISTRIBUTED__WORKER__MEMORY__MAX_SPILL=False', 'export OMP_NUM_THREADS=1']
    """
    named = {
        f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value) for name, value in settings.items()
    }
    return [f"export {name}={shlex.quote(value)}" for name, value in {**named, **environment}.items()]


class SilentLogs:
    """Silence of Dask's logs on the terminal while any cluster of this process is open.

    Dask restores the levels when the first of several clusters closes. The others would then log their own end, many lines each.
    """

    _open: ClassVar[int] = 0
    _levels: ClassVar[contextlib.ExitStack] = contextlib.ExitStack()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._has_ended = False
        with SilentLogs._lock:
            if not SilentLogs._open:
                for root in ("distributed", "bokeh"):
                    SilentLogs._levels.enter_context(silence_logging_cmgr(logging.CRITICAL, root))
            SilentLogs._open += 1

    def end(self) -> None:
        """Restore the levels if no other cluster is open; do nothing if it was called before."""
        with SilentLogs._lock:
            if self._has_ended:
                return
            self._has_ended = True
            SilentLogs._open -= 1
            if not SilentLogs._open:
                SilentLogs._levels.close()

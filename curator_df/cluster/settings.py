# SPDX-License-Identifier: Apache-2.0
"""Settings of every worker process that curator_df starts: Dask's settings, the environment, its memory limit, Dask's logs.

`start_cluster` passes these directly; a job on a batch system gets them as lines of its script (`as_exports`).
"""

from __future__ import annotations

import contextlib
import logging
import shlex
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

from distributed.utils import silence_logging_cmgr

from curator_df.cluster.preload import WORK_BYTES_VARIABLE
from curator_df.memory.budget import Layout, worker_rss_bytes
from curator_df.memory.wall import WALL_VARIABLE, Wall

PRELOAD = "curator_df.cluster.preload"
TERMINATE_FRACTION = 0.95
RESULTS_FRACTION = 0.3
"""Share of a worker's working memory that results of Dask's own tasks may use before the oldest are spilled."""
SHUFFLE_BUFFERS_PER_WORK = 16
"""Divisor of a worker's working memory for each of the two buffers of Dask's P2P shuffle: one sixteenth."""
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

# SPDX-License-Identifier: Apache-2.0
"""What a worker process does before its first task: import what tasks need, then set its hard data limit.

It also sees to it that a clock that is set back holds up nothing (`curator_df.cluster.clock`). Dask loads this as a worker
preload, so a worker that a nanny restarts gets its limit as well. The bytes come in the environment variable
``CURATOR_DF_WORK_BYTES``.

Dask loads it as a preload of nannies as well: a nanny then ends its worker for the memory that counts
(`curator_df.core.memory.peak.counted_bytes`), not for clean pages of the libraries and files that the worker maps.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from typing import Any

from distributed import Nanny, Status

from curator_df.cluster.cgroups import CGROUP_VARIABLE, enter_worker_cgroup
from curator_df.cluster.clock import send_what_waits
from curator_df.core.memory.held import release_held
from curator_df.core.memory.limits import give_back_large_buffers, limit_data, release_free_memory
from curator_df.core.memory.peak import counted_bytes, private_bytes, resident_bytes
from curator_df.core.memory.wall import WALL_VARIABLE, note_end_by_nanny, stand_in, weigh_idle
from curator_df.kernels.warm import BASIC, compile_group

WORK_BYTES_VARIABLE = "CURATOR_DF_WORK_BYTES"

OTHER_THREADS = 12
"""Threads a worker starts after its first seconds: communication, spilling, pyarrow's pools."""


SHARED_FRACTION = 0.25
"""Share of a worker's limit in shared memory from which on it is what a step shares that ends the worker."""
ROLLUP_SECONDS = 1.0
"""How old may be what a nanny knows of its worker's shared memory; reading it takes milliseconds."""


def dask_setup(worker: Any) -> None:
    """Prepare this worker process, or the nanny of one (called by Dask)."""
    if isinstance(worker, Nanny):
        end_for_counted_memory(worker)
        return
    prepare_process()
    if worker.memory_manager is not None:
        # As `settings.worker_settings` says. A worker that is started again in the place of a lost one may come without these
        # settings; it was then paused for pages of libraries, which count as resident, and no task ran any more.
        worker.memory_manager.memory_pause_fraction = False
    if worker.nanny and threading.current_thread() is threading.main_thread():
        # Ctrl-C in a terminal, and an interrupt in a notebook, reach all processes of the group. They are for the one that the
        # user sees: it lets the workers be, or has their nannies end them.
        signal.signal(signal.SIGINT, _let_be)
    if place := os.environ.get(CGROUP_VARIABLE):
        limit_bytes, _, cgroup = place.partition(" ")
        enter_worker_cgroup(cgroup, int(limit_bytes))
    if folder := os.environ.get(WALL_VARIABLE):
        stand_in(folder)
    work_bytes = os.environ.get(WORK_BYTES_VARIABLE)
    if work_bytes:
        limit_data(int(work_bytes), threads=OTHER_THREADS + worker.state.nthreads)
    loop = asyncio.get_running_loop()
    send_what_waits(loop, lambda: [worker], lambda: worker.status is not Status.closed)


def _let_be(number: int, frame: Any) -> None:
    """Do nothing about a signal: unlike one that is ignored, it ends the programs that steps start."""


def dask_teardown(worker: Any) -> None:
    """Let go of what this process holds when it ends in good order, as one that is started again does."""
    if not isinstance(worker, Nanny):
        release_held()


def end_for_counted_memory(nanny: Any) -> None:
    """Make a nanny look at the counted memory of its worker before Dask looks at the resident memory, and may end it."""
    manager, callback = nanny.memory_manager, nanny.periodic_callbacks.get("memory_monitor")
    others_bytes, due = 0, 0.0

    def look() -> None:
        nonlocal others_bytes, due
        limit = manager.memory_limit * manager.memory_terminate_fraction
        if nanny.pid is None or resident_bytes(nanny.pid) <= limit:
            return
        private = private_bytes(nanny.pid)
        if time.monotonic() >= due:
            others_bytes, due = max(0, counted_bytes(nanny.pid) - private), time.monotonic() + ROLLUP_SECONDS
        if private + others_bytes > limit:
            if others_bytes > SHARED_FRACTION * limit:  # not a leak, after which the range runs again on a new worker
                note_end_by_nanny(nanny.pid, private + others_bytes, int(limit))
            manager.memory_monitor(nanny)

    if callback is not None:  # none where there is no limit
        callback.callback = look


def prepare_process() -> None:
    """Import what tasks need and choose the allocators, before anything is measured."""
    import numba  # noqa: F401
    import pyarrow as pa
    import pyarrow.json
    import pyarrow.parquet

    # mimalloc kept 1.2 GB after one 200 MB document was written; the system's allocator gives pages back (0.2 GB).
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    pa.set_io_thread_count(2)
    give_back_large_buffers()


def tighten_limit(work_bytes: int, threads: int = 0) -> int:
    """Set the data limit anew once all threads run and the kernels are loaded: from then on all of it is for work."""
    compile_group(BASIC)
    release_free_memory()
    if not threads:  # a process of our own: in the user's there may be cycles that are to go
        # Modules stay: one collection that walks them took 0.2 s on a busy machine, one that does not under 1 ms.
        gc.freeze()
    weigh_idle()
    return limit_data(work_bytes, threads=threads)

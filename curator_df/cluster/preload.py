# SPDX-License-Identifier: Apache-2.0
"""Prepare a worker process before its first task: import what tasks need, then set its hard data limit.

It also prevents a clock that is set back from stopping messages (`curator_df.cluster.clock_jump`). Dask loads this as a worker
preload, so a worker that a nanny restarts gets its limit as well. The bytes come in the environment variable
``CURATOR_DF_WORK_BYTES``.

Dask also loads it as a preload of nannies: a nanny then kills its worker for its counted memory
(`curator_df.memory.counted_memory.counted_bytes`), not for clean pages of the libraries and files that the worker maps.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import signal
import threading
import time
from typing import Any

from distributed import Nanny, Status

from curator_df.cluster.cgroups import CGROUP_VARIABLE, enter_worker_cgroup
from curator_df.cluster.clock_jump import send_what_waits
from curator_df.core.importing import without_collections
from curator_df.kernels.compiling.compile_cache import refuse_to_compile
from curator_df.memory.counted_memory import counted_bytes, private_bytes, resident_bytes
from curator_df.memory.limits import give_back_large_buffers, limit_data, release_free_memory
from curator_df.memory.process_cache import release_held
from curator_df.memory.wall import WALL_VARIABLE, note_end_by_nanny, stand_in, weigh_idle

WORK_BYTES_VARIABLE = "CURATOR_DF_WORK_BYTES"

OF_TASKS = (
    "pyarrow.json",
    "pyarrow.parquet",
    "curator_df.core.tasks.task",
    "curator_df.io.jsonl.reader",
    "curator_df.io.parquet.reader",
    "curator_df.io.output.formats",
)
"""Modules that tasks import, with all that they import: pandas and Dask's tables too."""
TIGHTEN_SECONDS = 0.005
"""Interval in seconds at which a worker that starts is checked for whether it is connected."""
OTHER_THREADS = 12
"""Number of threads that a worker starts after its first seconds: communication, spilling, pyarrow's pools."""


KERNEL_BYTES = 6_000_000
"""Room for the machine code of the kernels that tasks load: 1 MB each, about. Measured: 5 MB for six of them."""
SHARED_FRACTION = 0.25
"""Share of a worker's limit in shared memory from which on the end of the worker is blamed on the step's shared memory."""
ROLLUP_SECONDS = 1.0
"""Maximum age in seconds of a reading of the shared memory of a worker; reading it takes milliseconds."""


def dask_setup(worker: Any) -> None:
    """Prepare this worker process, or the nanny of one (called by Dask)."""
    if isinstance(worker, Nanny):
        end_for_counted_memory(worker)
        return
    prepare_process()
    if worker.nanny and threading.current_thread() is threading.main_thread():
        # Ctrl-C in a terminal, and an interrupt in a notebook, reach all processes of the group. They are for the process that
        # the user sees, which leaves the workers running, or has their nannies end them.
        signal.signal(signal.SIGINT, _let_be)
    if place := os.environ.get(CGROUP_VARIABLE):
        limit_bytes, _, cgroup = place.partition(" ")
        enter_worker_cgroup(cgroup, int(limit_bytes))
    if folder := os.environ.get(WALL_VARIABLE):
        stand_in(folder)
    if worker.nanny:
        refuse_to_compile("it is a worker under a memory budget, and the compiler takes up to 420 MB")
    work_bytes = os.environ.get(WORK_BYTES_VARIABLE)
    if work_bytes:
        limit_data(int(work_bytes) + KERNEL_BYTES, threads=OTHER_THREADS + worker.state.nthreads)
    loop = asyncio.get_running_loop()
    if work_bytes:
        loop.call_later(TIGHTEN_SECONDS, _tighten_when_running, worker, int(work_bytes), loop)
    send_what_waits(loop, lambda: [worker], lambda: worker.status is not Status.closed)


def _tighten_when_running(worker: Any, work_bytes: int, loop: asyncio.AbstractEventLoop) -> None:
    """Set the data limit of a worker again once it is connected, before its first task takes memory.

    The client does so when a cluster has started (`tighten_limit`). A worker that is restarted later would otherwise keep the
    room for stacks of threads that it never starts: 100 MB that its tasks could take.
    """
    if worker.status is Status.running:
        limit_data(work_bytes + KERNEL_BYTES, threads=worker.state.nthreads)
    elif worker.status in (Status.undefined, Status.created, Status.init, Status.starting):
        loop.call_later(TIGHTEN_SECONDS, _tighten_when_running, worker, work_bytes, loop)


def _let_be(number: int, frame: Any) -> None:
    """Do nothing about a signal: unlike an ignored signal, it ends the programs that steps start."""


def dask_teardown(worker: Any) -> None:
    """Release the resources of this process when it ends normally, as a restarted one does."""
    if not isinstance(worker, Nanny):
        release_held()


class CountedMemory:
    """Counted memory of a process, read often: what changes slowly is read once a second, since that takes milliseconds."""

    def __init__(self, pid: int) -> None:
        self._pid, self._due = pid, 0.0
        self.others_bytes = 0
        """Bytes that are not private pages, such as shared memory."""

    def __call__(self) -> int:
        """Return the bytes."""
        private = private_bytes(self._pid)
        if time.monotonic() >= self._due:
            self.others_bytes = max(0, counted_bytes(self._pid) - private)
            self._due = time.monotonic() + ROLLUP_SECONDS
        return private + self.others_bytes


def end_for_counted_memory(nanny: Any) -> None:
    """Make a nanny check the counted memory of its worker before Dask checks the resident memory, and might kill it."""
    manager, callback = nanny.memory_manager, nanny.periodic_callbacks.get("memory_monitor")
    counted: dict[int, CountedMemory] = {}

    def look() -> None:
        limit = manager.memory_limit * manager.memory_terminate_fraction
        if nanny.pid is None or resident_bytes(nanny.pid) <= limit:
            return
        if nanny.pid not in counted:  # it has restarted its worker
            counted.clear()
            counted[nanny.pid] = CountedMemory(nanny.pid)
        memory = counted[nanny.pid]
        if (held_bytes := memory()) > limit:
            if (
                memory.others_bytes > SHARED_FRACTION * limit
            ):  # not a leak, after which the range runs again on a new worker
                note_end_by_nanny(nanny.pid, held_bytes, int(limit))
            manager.memory_monitor(nanny)

    if callback is not None:  # None if there is no limit
        callback.callback = look


def prepare_process() -> None:
    """Import the packages that tasks need and choose the allocators, before anything is measured."""
    with without_collections():
        import pyarrow as pa
        from numba.core.registry import cpu_target

        from curator_df.core.host_blocks import pickle_without_copies

        for module in OF_TASKS:
            importlib.import_module(module)

    # mimalloc kept 1.2 GB after one 200 MB document was written; the system's allocator gives pages back (0.2 GB).
    pa.set_memory_pool(pa.system_memory_pool())
    # Dask's threads use all CPUs already, and the stack of every further thread counts against the data limit.
    pa.set_cpu_count(1)
    pa.set_io_thread_count(2)
    give_back_large_buffers()
    pickle_without_copies()
    # What numba needs to load a kernel: 16 MB, without compiling anything.
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def tighten_limit(work_bytes: int, threads: int = 0, later_bytes: int = 0) -> int:
    """Set the data limit again when all threads of this process run, and return it.

    The stacks of threads count against the limit. From now on all of ``work_bytes`` is for tasks; the machine code of kernels
    has `KERNEL_BYTES` more, and what this process will import while tasks run has ``later_bytes``.
    """
    release_free_memory()
    if not threads:  # in a separate process; the user's process may have garbage cycles to collect
        # Modules stay: one collection that walks them took 0.2 s on a busy machine, one that does not under 1 ms.
        gc.freeze()
    weigh_idle()
    return limit_data(work_bytes + KERNEL_BYTES + later_bytes, threads=threads)

# SPDX-License-Identifier: Apache-2.0
"""Plugins for the workers of a running cluster, and for their nannies: settings that hold while a connection uses them."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
from typing import Any, ClassVar

import dask
import psutil
import pyarrow as pa
from distributed.diagnostics.plugin import NannyPlugin, WorkerPlugin

from curator_df.cluster.preload import OTHER_THREADS, CountedMemory, end_for_counted_memory
from curator_df.cluster.settings import SHUFFLE_BUFFERS_PER_WORK
from curator_df.core.cleaning_up import clean_up
from curator_df.core.host_blocks import pickle_without_copies
from curator_df.memory.budget import MARGIN_FRACTION
from curator_df.memory.counted_memory import counted_bytes
from curator_df.memory.gpus import read_gpus
from curator_df.memory.limits import give_back_large_buffers, lift_data_limit, limit_data
from curator_df.memory.system import NO_LIMIT, data_limit

SHUFFLE_LIMITERS = ("memory_limiter_comms", "memory_limiter_disk")
"""Attributes of Dask's plugin for P2P shuffles that limit the bytes of these buffers (distributed 2026.7.1)."""


class ConnectedWorker(WorkerPlugin):  # type: ignore[misc] # Dask's classes have no types
    """Memory settings of a worker that others have started, while a connection uses it.

    They are those of the workers that curator_df starts, as far as they can be changed later: buffers of shuffles that fit the
    worker, freed memory that goes back to the system, and thresholds for counted memory. Dask takes resident memory, with clean
    pages of libraries (144 MB): two workers with a limit of 500 MB stayed paused for ever with 250 MB of their own.

    A worker with a nanny also gets a hard data limit just below the memory at which the nanny kills it. A task that needs more
    then raises a `MemoryError` and is tried again; Dask alone kills the worker, with the shuffle that it is part of, four times.

    All of it is restored when the last connection closes, but for the thresholds of malloc, which it does not tell.

    Parameters
    ----------
    work_bytes : int
        Working memory of the worker.
    """

    name = "curator_df-connected-worker"

    def __init__(self, work_bytes: int) -> None:
        self._shuffle_bytes = work_bytes // SHUFFLE_BUFFERS_PER_WORK
        self._client_process = _this_process()
        self._limits: dict[str, int] = {}
        self._is_process_changed = False
        self._limits_data = False

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
        ProcessSettings.enter()
        self._is_process_changed = True
        try:
            self._limit_data(worker)
        except BaseException as exc:
            clean_up(exc, ProcessSettings.leave)
            raise

    def _limit_data(self, worker: Any) -> None:
        """Set a hard data limit, if a nanny would kill the worker and the machine has no GPU: CUDA maps address space."""
        limit_bytes = worker.memory_manager.memory_limit
        if not (worker.nanny and limit_bytes) or data_limit()[0] != NO_LIMIT or read_gpus():
            return
        killed_at = dask.config.get("distributed.worker.memory.terminate") or 1.0
        may_use_bytes = int(limit_bytes * (killed_at - MARGIN_FRACTION))
        more_threads = OTHER_THREADS + worker.state.nthreads - psutil.Process().num_threads()
        limit_data(max(may_use_bytes - counted_bytes(os.getpid()), 0), threads=max(more_threads, 0))
        self._limits_data = True

    def teardown(self, worker: Any) -> None:
        """Restore what Dask's thresholds and shuffles use, and lift the data limit."""
        shuffles = worker.plugins.get("shuffle")
        for name, limit in self._limits.items():
            if shuffles is not None:  # it was removed before, where the worker closes
                getattr(shuffles, name).limit = limit
        vars(worker.monitor).pop("get_process_memory", None)
        if self._limits_data:
            lift_data_limit()
        if self._is_process_changed:
            ProcessSettings.leave()


class ProcessSettings:
    """Settings of a process with workers that others have started, until no worker of it is in use any more."""

    _workers: ClassVar[int] = 0
    _undo: ClassVar[contextlib.ExitStack] = contextlib.ExitStack()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def enter(cls) -> None:
        """Change the allocators, the pickling of text columns and the garbage collector, unless another worker has done so."""
        with cls._lock:
            cls._workers += 1
            if cls._workers > 1:
                return
            cls._undo.callback(pa.set_memory_pool, pa.default_memory_pool())
            pa.set_memory_pool(pa.system_memory_pool())
            give_back_large_buffers()
            cls._undo.callback(pickle_without_copies())
            # A full collection walked all modules for 160 ms, during which the worker receives nothing.
            gc.collect()
            if not gc.get_freeze_count():  # what the owner of a worker has frozen stays frozen
                cls._undo.callback(gc.unfreeze)
            gc.freeze()

    @classmethod
    def leave(cls) -> None:
        """Restore what the process had, once no worker of it is in use."""
        with cls._lock:
            cls._workers -= 1
            if not cls._workers:
                cls._undo.close()


class ConnectedNanny(NannyPlugin):  # type: ignore[misc] # Dask's classes have no types
    """Plugin that lets a nanny kill its worker for counted memory while a connection uses the worker."""

    name = "curator_df-connected-nanny"

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

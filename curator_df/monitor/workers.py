# SPDX-License-Identifier: Apache-2.0
"""What a worker says of itself: Dask's managed and spilled bytes, Arrow's pool, and of a GPU RMM and cuDF's spilling."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import asdict, dataclass
from typing import Any

from curator_df.core.memory.device_peak import counting_resource
from curator_df.core.memory.gpus import GpuReading, read_gpus
from curator_df.monitor.processes import ProcessMemory, ProcessReader

_readers: dict[int, ProcessReader] = {}


@dataclass(frozen=True)
class ProcessReading(ProcessMemory):
    """One process at one time, as it says itself."""

    host: str
    """Name of its machine."""
    pid: int
    """Process number there."""


@dataclass(frozen=True)
class WorkerReading(ProcessReading):
    """One worker at one time. Bytes that nobody can tell are None."""

    name: str
    """Name of the worker, the same after its nanny started it again."""
    arrow_bytes: int
    """Allocated from Arrow's memory pool."""
    managed_bytes: int
    """Results in memory that Dask knows of."""
    spilled_bytes: int
    """Results on disk."""
    limit_bytes: int | None
    """Dask's limit for the worker."""
    is_paused: bool
    """Whether it takes no tasks, because it is full."""
    rmm_bytes: int | None
    """Allocated from RMM, where its statistics are on."""
    cudf_spilled_bytes: int | None
    """What cuDF moved from the GPU to this process's memory, where its spilling is on."""
    gpus: tuple[GpuReading, ...]
    """GPUs of its machine; empty unless asked for."""


def read_process() -> ProcessReading:
    """Return what this process holds now (runs on the scheduler)."""
    pid = os.getpid()
    held = _readers.setdefault(pid, ProcessReader(pid)).read()
    if held is None:
        raise OSError(f"/proc/{pid} cannot be read; the monitor needs Linux")
    return ProcessReading(**asdict(held), host=socket.gethostname(), pid=pid)


def read_worker(dask_worker: Any, *, with_gpus: bool = False) -> WorkerReading:
    """Return what a worker holds now (runs on the worker)."""
    import pyarrow as pa

    spilled = getattr(dask_worker.data, "spilled_total", None)
    return WorkerReading(
        **asdict(read_process()),
        name=str(dask_worker.name),
        arrow_bytes=pa.total_allocated_bytes(),
        managed_bytes=int(dask_worker.state.nbytes) - (0 if spilled is None else int(spilled.memory)),
        spilled_bytes=0 if spilled is None else int(spilled.disk),
        limit_bytes=None if dask_worker.memory_manager is None else dask_worker.memory_manager.memory_limit,
        is_paused=dask_worker.status.name == "paused",
        rmm_bytes=_rmm_bytes(),
        cudf_spilled_bytes=_cudf_spilled_bytes(),
        gpus=read_gpus() if with_gpus else (),
    )


def _rmm_bytes() -> int | None:
    """Return what RMM has allocated; None where nobody imported it, or its statistics are off."""
    counting = counting_resource()
    return None if counting is None else int(counting.allocation_counts.current_bytes)


def _cudf_spilled_bytes() -> int | None:
    """Return the bytes of buffers that cuDF spilled; None where nobody imported it, or its spilling is off."""
    spilling = sys.modules.get("cudf.core.buffer.spill_manager")
    manager = None if spilling is None else spilling.get_global_manager()
    return None if manager is None else sum(buffer.size for buffer in manager.buffers() if buffer.is_spilled)

# SPDX-License-Identifier: Apache-2.0
"""Memory that a worker reports: Dask's managed and spilled bytes, Arrow's pool, and RMM and cuDF spilling for a GPU."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import asdict, dataclass
from typing import Any

from curator_df.memory.device_peak import counting_resource
from curator_df.memory.gpus import GpuReading, read_gpus
from curator_df.monitor.processes import ProcessMemory, ProcessReader

_readers: dict[int, ProcessReader] = {}


@dataclass(frozen=True)
class ProcessReading(ProcessMemory):
    """Memory of one process at one time, reported by the process."""

    host: str
    """Name of the machine."""
    pid: int
    """Process number on that machine."""


@dataclass(frozen=True)
class WorkerReading(ProcessReading):
    """Memory of one worker at one time. Unknown values are None."""

    name: str
    """Name of the worker; it stays the same when its nanny restarts it."""
    arrow_bytes: int
    """Bytes allocated from Arrow's memory pool."""
    managed_bytes: int
    """Bytes of results in memory that Dask manages."""
    spilled_bytes: int
    """Bytes of results on disk."""
    limit_bytes: int | None
    """Dask's memory limit of the worker, in bytes."""
    is_paused: bool
    """Whether the worker is paused because its memory is full."""
    rmm_bytes: int | None
    """Bytes allocated from RMM, if its statistics are enabled."""
    cudf_spilled_bytes: int | None
    """Bytes that cuDF spilled from the GPU to this process's memory, if its spilling is enabled."""
    gpus: tuple[GpuReading, ...]
    """GPUs of its machine; empty unless requested."""


def read_process() -> ProcessReading:
    """Return the memory of this process now (runs on the scheduler)."""
    pid = os.getpid()
    held = _readers.setdefault(pid, ProcessReader(pid)).read()
    if held is None:
        raise OSError(
            f"The memory of process {pid} cannot be read. On Linux the monitor needs /proc. Mount it, or run the monitor "
            "where it is mounted."
        )
    return ProcessReading(**asdict(held), host=socket.gethostname(), pid=pid)


def read_worker(dask_worker: Any, *, with_gpus: bool = False) -> WorkerReading:
    """Return the memory of a worker now (runs on the worker)."""
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
    """Return the bytes that RMM has allocated; None if RMM is not imported or its statistics are off."""
    counting = counting_resource()
    return None if counting is None else int(counting.allocation_counts.current_bytes)


def _cudf_spilled_bytes() -> int | None:
    """Return the bytes of buffers that cuDF spilled; None if cuDF is not imported or its spilling is off."""
    spilling = sys.modules.get("cudf.core.buffer.spill_manager")
    manager = None if spilling is None else spilling.get_global_manager()
    return None if manager is None else sum(buffer.size for buffer in manager.buffers() if buffer.is_spilled)

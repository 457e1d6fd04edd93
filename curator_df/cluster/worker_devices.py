# SPDX-License-Identifier: Apache-2.0
"""GPUs that the workers of a cluster report, and whether a plan can count on them. No worker is started here.

See `curator_df.cluster.cuda` for the options of curator_df's own workers, and
``docs/decisions/0014-who-spills-from-the-gpu.md``.
"""

from __future__ import annotations

import collections
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed import Client

from curator_df.errors import BudgetError
from curator_df.memory.gpus import read_gpus, uuid_of
from curator_df.memory.limits import usable_cpus
from curator_df.memory.sizes import show_size

HOW_TO_START = "dask cuda worker --rmm-async --rmm-maximum-pool-size BYTES --enable-cudf-spill --device-memory-limit 0"
"""Command that starts a worker that passes the checks."""


@dataclass(frozen=True)
class WorkerDevice:
    """GPU of a worker, as the worker sees it."""

    name: str
    """Name of the GPU, the first of its ``CUDA_VISIBLE_DEVICES``; empty if that is not set."""
    total_bytes: int
    """Memory of the GPU; that of the machine's smallest one if the name is not a number."""
    limit_bytes: int | None
    """Maximum bytes that RMM allocates; None if there is no limit."""
    cudf_spills: bool
    """Whether cuDF spills its buffers to the host."""
    dask_cuda_spills: bool
    """Whether dask-cuda spills results of tasks to the host."""
    cpus: int = 1
    """CPUs that its process may use, shared with other workers."""
    uuid: str = ""
    """Identifier of the GPU, if NVML reports it: jobs and containers of one machine may each call another GPU 0."""


@dataclass(frozen=True)
class FoundDevices:
    """GPUs of all workers together."""

    device_bytes: int
    """Minimum over the workers of the bytes that RMM allocates at most; 0 if a plan cannot count on GPUs."""
    said: str
    """Description; empty if no worker has a GPU."""
    cpus: int = 1
    """Minimum over the workers of the CPUs of each, shared by the workers of a host."""


def read_worker_device(dask_worker: Any) -> WorkerDevice | None:
    """Return the GPU of this worker process (called on it by Dask); None without a GPU."""
    gpus = read_gpus()
    name = os.environ.get("CUDA_VISIBLE_DEVICES", "0" if gpus else "").partition(",")[0].strip()
    if not gpus or not name:
        return None
    mine = [gpu.total_bytes for gpu in gpus if str(gpu.index) == name]
    cudf = sys.modules.get("cudf")
    return WorkerDevice(
        name,
        total_bytes=min(mine or [gpu.total_bytes for gpu in gpus]),
        limit_bytes=_limit_bytes(),
        cudf_spills=cudf is not None and bool(cudf.get_option("spill")),
        # A zict buffer over a dict if dask-cuda has a limit; otherwise only the dict.
        dask_cuda_spills=hasattr(getattr(dask_worker.data, "device_buffer", None), "fast"),
        cpus=usable_cpus(),
        uuid=uuid_of(name),
    )


def _limit_bytes() -> int | None:
    """Return the smallest limit of RMM's adaptors, which wrap each other; None without RMM or a limit."""
    rmm = sys.modules.get("rmm")
    resource: Any = None if rmm is None else rmm.mr.get_current_device_resource()
    limits = []
    while resource is not None:
        if hasattr(resource, "get_allocation_limit"):
            limits.append(int(resource.get_allocation_limit()))
        resource = resource.get_upstream() if hasattr(resource, "get_upstream") else None
    return min(limits, default=None)


def verified_devices(client: Client, allowed_bytes: int | None) -> FoundDevices:
    """Query all workers of a client's cluster for their GPUs, and `verify_devices`.

    Without ``allowed_bytes``, workers are queried only if one reported a GPU to Dask at its start: the query imports this
    package, for which a worker that runs other code may have no memory.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if allowed_bytes is None and not any("gpu" in worker for worker in workers.values()):
        return FoundDevices(0, "")
    hosts = {address: worker["host"] for address, worker in workers.items()}
    return verify_devices(client.run(read_worker_device, workers=list(hosts)), hosts, allowed_bytes)


def verify_devices(
    found: Mapping[str, WorkerDevice | None], hosts: Mapping[str, str], allowed_bytes: int | None
) -> FoundDevices:
    """Return the part of each worker's GPU on which a plan can count.

    Parameters
    ----------
    found : mapping of str to WorkerDevice or None
        GPU of each worker, by its address.
    hosts : mapping of str to str
        The host of each worker, by its address.
    allowed_bytes : int, optional
        Budget of each GPU: workers that do not keep it, or have no GPU, are then an error. By default a cluster
        with such workers counts as one without GPUs, with the reason.

    Raises
    ------
    BudgetError
        If ``allowed_bytes`` are given and a worker does not keep them. The message names the worker.
    """
    problem = _problem(found, hosts, allowed_bytes)
    if problem and allowed_bytes is not None:
        raise BudgetError(f"device_memory={show_size(allowed_bytes)}: {problem}")
    devices = [device for device in found.values() if device is not None]
    if problem:
        return FoundDevices(0, f"GPUs are not used: {problem}" if devices else "")
    limits = [device.limit_bytes or 0 for device in devices]
    spilling = "cuDF spills" if all(device.cudf_spills for device in devices) else "cuDF does not spill"
    smallest = min(device.total_bytes for device in devices)
    workers_of_host = collections.Counter(hosts[address] for address in found)
    cpus = min((d.cpus // workers_of_host[hosts[address]] for address, d in found.items() if d is not None), default=1)
    said = f"a GPU for each worker: {show_size(min(limits))} of {show_size(smallest)}; {spilling}"
    return FoundDevices(min(limits), said, max(cpus, 1))


def _problem(found: Mapping[str, WorkerDevice | None], hosts: Mapping[str, str], allowed_bytes: int | None) -> str:
    """Describe the problem of the first invalid worker; empty if all are valid."""
    seen: dict[tuple[str, str], str] = {}
    for address, device in found.items():
        if device is None:
            return f"worker {address} has no GPU. Start all workers with {HOW_TO_START}"
        if wrong := _wrong(device, allowed_bytes):
            return f"worker {address} {wrong}"
        other = seen.setdefault((hosts[address], device.uuid or device.name), address)
        if other != address:
            return f"workers {other} and {address} share GPU {device.name} of {hosts[address]}. Start one for each GPU"
    return ""


def _wrong(device: WorkerDevice, allowed_bytes: int | None) -> str:
    if device.limit_bytes is None:
        return (
            f"has no limit on the GPU memory that RMM, the allocator of RAPIDS, may use. Start it with {HOW_TO_START}"
        )
    if device.limit_bytes > device.total_bytes:
        return (
            f"may allocate {show_size(device.limit_bytes)}, but its GPU has only {show_size(device.total_bytes)}. Start it "
            "with a smaller --rmm-maximum-pool-size"
        )
    if allowed_bytes is not None and device.limit_bytes > allowed_bytes:
        start = f"Start it with --rmm-maximum-pool-size {allowed_bytes}"
        return f"may allocate {show_size(device.limit_bytes)}, which is more. {start}"
    if device.cudf_spills and device.dask_cuda_spills:
        return (
            "moves data from the GPU to the host twice, by cuDF and by dask-cuda's limit. Start it with "
            "--device-memory-limit 0"
        )
    return ""

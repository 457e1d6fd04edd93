# SPDX-License-Identifier: Apache-2.0
"""Workers with a GPU each, on this machine, through dask-cuda: the usable memory of each GPU, and spilling.

cuDF spills, and dask-cuda's own device limit is off: ``docs/decisions/0014-who-spills-from-the-gpu.md``.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import logging
from dataclasses import dataclass
from typing import Any, Literal

from distributed import LocalCluster

from curator_df.cluster.dashboard import dashboard_at
from curator_df.cluster.settings import PRELOAD, worker_memory_limit
from curator_df.cluster.surroundings import in_brackets
from curator_df.cluster.worker_processes import closing_unfinished
from curator_df.errors import BudgetError, ParameterError
from curator_df.extras import missing_extra
from curator_df.memory.budget import Baseline, Layout, layout_of_workers, require_cpus
from curator_df.memory.gpus import SLICE, read_gpus, visible_gpus
from curator_df.memory.limits import usable_cpus
from curator_df.memory.sizes import read_size, show_count, show_size, show_sizes

DEVICE_FRACTION = 0.8
"""Share of a GPU's memory that is the default of ``device_memory``; the rest is for CUDA's own context and other programs."""
REQUIRED = ("dask_cuda", "cudf", "rmm", "pynvml")
"""Packages that GPU workers import (the gpu extra)."""


@dataclass(frozen=True)
class Devices:
    """GPUs of the workers, one each."""

    names: tuple[str, ...]
    """Names as in ``CUDA_VISIBLE_DEVICES``: numbers or UUIDs."""
    device_bytes: int
    """Bytes that RMM may allocate on each."""
    total_bytes: int
    """Memory of the smallest GPU."""


def choose_devices(gpus: int | Literal["auto"], device_memory: str | int | None) -> Devices | None:
    """Return the GPUs to use; None for none, which is a possible result of ``"auto"``."""
    if gpus != "auto" and (isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0):
        raise ParameterError(f"gpus={gpus!r} must be a number of 0 or more, or 'auto'")
    if gpus == 0:
        if device_memory is not None:
            raise ParameterError("device_memory= needs GPUs, but gpus=0 requests none. Use gpus='auto' or a number")
        return None
    names = visible_gpus()
    if names and gpus != "auto" and (missing := _missing()):
        raise missing_extra(f"gpus={gpus}", missing, "gpu")
    if why := _why_not(names):
        if gpus == "auto":
            return None
        raise ParameterError(f"gpus={gpus}: {why}. Use gpus=0, or gpus='auto', which uses the CPU in this case")
    if gpus != "auto" and gpus > len(names):
        raise ParameterError(
            f"gpus={gpus}, but only {show_count(len(names), 'GPU')} can be used ({', '.join(names)}). Use gpus={len(names)} "
            "or gpus='auto', or make more GPUs visible with CUDA_VISIBLE_DEVICES"
        )
    chosen = names if gpus == "auto" else names[:gpus]
    if device_memory is None and (slices := [name for name in chosen if name.startswith(SLICE)]):
        raise ParameterError(
            f"{slices[0]} is a part of a GPU (MIG), and the size of its memory is unknown. Set device_memory= to about "
            f"{DEVICE_FRACTION:.0%} of the memory that nvidia-smi lists for it"
        )
    total_bytes = _smallest(chosen)
    device_bytes = (
        int(total_bytes * DEVICE_FRACTION) if device_memory is None else read_size("device_memory", device_memory)
    )
    if device_bytes > total_bytes:
        asked, has = show_sizes(device_bytes, total_bytes)
        raise BudgetError(
            f"device_memory={asked} is more than the smallest GPU has, {has}. Use less, or leave device_memory= out"
        )
    return Devices(chosen, device_bytes, total_bytes)


def describe_gpus(gpus: int | str, devices: Devices | None) -> str:
    """Describe the GPUs that are used, or why there are none; empty if none were requested."""
    if devices is not None:
        share = f"{show_size(devices.device_bytes)} of {show_size(devices.total_bytes)} each"
        return f"{', '.join(devices.names)}: {share}; cuDF spills"
    return f"{_why_not(visible_gpus())}: the workers use the CPU" if gpus == "auto" else ""


def _smallest(names: tuple[str, ...]) -> int:
    """Return the memory of the smallest of some GPUs, or of all GPUs if one is given by its UUID, which is not read."""
    gpus = read_gpus()
    chosen = [gpu.total_bytes for gpu in gpus if str(gpu.index) in names]
    return min(chosen if len(chosen) == len(names) else [gpu.total_bytes for gpu in gpus])


def _why_not(names: tuple[str, ...]) -> str:
    """Explain why none of these GPUs can be used; empty if they can."""
    reasons = []
    if not names:
        reasons.append(
            "CUDA_VISIBLE_DEVICES hides all GPUs" if read_gpus() else "the driver finds no GPU on this machine"
        )
    if missing := _missing():
        reasons.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed (the gpu extra)")
    return ", and ".join(reasons)


def _missing() -> list[str]:
    return [name for name in REQUIRED if importlib.util.find_spec(name) is None]


def gpu_layout(
    allowed_bytes: int,
    devices: Devices,
    held_bytes: int,
    cpus: int | None = None,
    *,
    baseline: Baseline | None = None,
) -> Layout:
    """Return the layout of one worker with one thread for each GPU, or raise if the host's memory is too little.

    The other CPUs, of ``cpus`` or of all usable ones, are distributed among the workers.
    """
    workers = len(devices.names)
    layout = layout_of_workers(
        allowed_bytes, workers, held_bytes=held_bytes, reason="one for each GPU", baseline=baseline
    )
    cpus = usable_cpus() if cpus is None else cpus
    require_cpus(cpus)
    spare_cpus = max(cpus // workers - layout.threads, 0)
    # CUDA maps address space that RLIMIT_DATA would count, so workers with a GPU have no data limit that could be raised.
    return dataclasses.replace(layout, shares_work=False, device_bytes=devices.device_bytes, spare_cpus=spare_cpus)


def start_gpu_workers(
    layout: Layout,
    devices: Devices,
    *,
    spill_directory: str,
    host: str,
    dashboard: Any,
    config: dict[str, Any],
    comm: dict[str, Any],
) -> LocalCluster:
    """Start one worker process for each GPU."""
    dask_cuda: Any = importlib.import_module("dask_cuda")
    with closing_unfinished():
        return dask_cuda.LocalCUDACluster(
            CUDA_VISIBLE_DEVICES=list(devices.names),
            n_workers=layout.workers,
            threads_per_worker=layout.threads,
            memory_limit=worker_memory_limit(layout),
            local_directory=spill_directory,
            host=in_brackets(host),
            dashboard_address=dashboard,
            scheduler_kwargs={"dashboard_address": dashboard or dashboard_at(host, 0)},
            preload=[PRELOAD],
            config=config,
            silence_logs=logging.CRITICAL,
            **comm,
            **gpu_arguments(devices.device_bytes),
        )


def gpu_arguments(device_bytes: int) -> dict[str, Any]:
    """Return dask-cuda's arguments for the memory of each GPU: cuDF spills its buffers, and dask-cuda spills no keys."""
    return {
        "device_memory_limit": None,
        "enable_cudf_spill": True,
        "cudf_spill_stats": 1,
        "rmm_async": True,
        "rmm_maximum_pool_size": device_bytes,
    }


def gpu_options(device_bytes: int) -> list[str]:
    """Return the arguments of `gpu_arguments` as options of ``dask cuda worker``.

    Examples
    --------
    >>> " ".join(gpu_options(60_000_000_000))
    '--device-memory-limit 0 --enable-cudf-spill --cudf-spill-stats 1 --rmm-async --rmm-maximum-pool-size 60000000000'
    """
    spilling = ["--device-memory-limit", "0", "--enable-cudf-spill", "--cudf-spill-stats", "1"]
    return [*spilling, "--rmm-async", "--rmm-maximum-pool-size", str(device_bytes)]

# SPDX-License-Identifier: Apache-2.0
"""GPUs of this machine: which ones this process may use, their UUIDs, and NVML's readings of memory and utilization."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

SLICE = "MIG-"
"""Prefix of the names of GPU partitions."""
UUIDS = ("GPU-", SLICE)
"""Prefixes of GPU names that are not numbers."""
USE_SECONDS = 1.0
"""Interval between two readings of GPU utilization during a run, in seconds."""


@dataclass(frozen=True)
class GpuReading:
    """Reading of one GPU at one time."""

    index: int
    """Number of the GPU in NVML's order."""
    used_bytes: int
    """Bytes of memory in use by all processes and the driver."""
    total_bytes: int
    """Bytes of memory of the device."""
    utilization: float | None
    """Fraction of the last sample period (0 to 1) in which a kernel ran; None if the device does not report it."""
    processes: tuple[tuple[int, int | None], ...]
    """Process ID and bytes of each process that computes on it, as far as the driver reports; None for unknown bytes."""


def read_gpus() -> tuple[GpuReading, ...]:
    """Return the GPUs of this machine; empty without a driver or without nvidia-ml-py.

    A GPU that does not report its memory is left out: one that the driver has lost, or that has none of its own.
    """
    nvml = _nvml()
    if nvml is None:
        return ()
    read = (_read(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    return tuple(reading for reading in read if reading is not None)


def visible_gpus() -> tuple[str, ...]:
    """Return the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them.

    As in CUDA, all names after the first invalid one, such as ``-1``, are ignored.
    """
    numbers = tuple(str(gpu.index) for gpu in read_gpus())
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None or not numbers:
        return numbers
    names = (name.strip() for name in given.split(","))
    return tuple(itertools.takewhile(lambda name: name in numbers or name.startswith(UUIDS), names))


@contextlib.contextmanager
def measured_use(names: Collection[str]) -> Iterator[dict[str, float]]:
    """Measure GPUs of this machine while the block runs; at its end, the dict contains the mean utilization of each.

    Parameters
    ----------
    names : collection of str
        Numbers of the GPUs in NVML's order; GPUs with other names are left out.
    """
    found: dict[str, list[float]] = {}
    mean: dict[str, float] = {}
    stop = threading.Event()

    def follow() -> None:
        while not stop.wait(USE_SECONDS):
            for gpu in read_gpus():
                if str(gpu.index) in names and gpu.utilization is not None:
                    found.setdefault(f"GPU {gpu.index}", []).append(gpu.utilization)

    thread = threading.Thread(target=follow, name="curator-df-gpu-use", daemon=True)
    if names:
        thread.start()
    try:
        yield mean
    finally:
        stop.set()
        if names:
            thread.join()
        mean.update((name, round(sum(shares) / len(shares), 3)) for name, shares in sorted(found.items()))


def uuid_of(name: str) -> str:
    """Return the UUID of a GPU that is named by its number or by that UUID; empty if NVML does not report it.

    Numbers are those visible to this process: two jobs of one machine may each use GPU 0 for another device.
    """
    if name.startswith(UUIDS):
        return name
    nvml = _nvml()
    if nvml is None or not name.isdigit():
        return ""
    try:
        found = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(int(name)))
    except nvml.NVMLError:
        return ""
    return found.decode() if isinstance(found, bytes) else str(found)


@cache
def _nvml() -> Any:
    """Return the initialized NVML bindings; None without a readable GPU."""
    try:
        import pynvml
    except ImportError:  # the monitor extra is not installed
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver
        return None
    return pynvml


def _read(nvml: Any, index: int) -> GpuReading | None:
    try:
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(device)
    except nvml.NVMLError:
        return None
    utilization: float | None = None
    processes: list[tuple[int, int | None]] = []
    with contextlib.suppress(nvml.NVMLError):  # a MIG device does not report its own utilization
        utilization = nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100
    with contextlib.suppress(nvml.NVMLError):  # some systems hide other processes
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(device):
            processes.append((int(process.pid), process.usedGpuMemory))  # noqa: PERF401 - keep partial results
    return GpuReading(index, int(memory.used), int(memory.total), utilization, tuple(processes))

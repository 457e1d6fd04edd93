# SPDX-License-Identifier: Apache-2.0
"""What NVML says of each GPU of this machine: memory, utilisation, and which process holds how much."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

USE_SECONDS = 1.0
"""How often the use of GPUs is read while a run goes on."""


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one time."""

    index: int
    """As NVML counts them."""
    used_bytes: int
    """Memory in use, of all processes and the driver."""
    total_bytes: int
    """Memory of the device."""
    utilization: float | None
    """Share of the last sample period (0 to 1) in which a kernel ran; None where the device does not say."""
    processes: tuple[tuple[int, int | None], ...]
    """Process number and bytes of each process that computes on it, as far as the driver tells; None where it does not say."""


def read_gpus() -> tuple[GpuReading, ...]:
    """Return the GPUs of this machine; none where there is no driver or nvidia-ml-py is not installed.

    Left out is a GPU that does not say how much memory it has: one that the driver has lost, or that has none of its own.
    """
    nvml = _nvml()
    if nvml is None:
        return ()
    read = (_read(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    return tuple(reading for reading in read if reading is not None)


@contextlib.contextmanager
def measured_use(names: Collection[str]) -> Iterator[dict[str, float]]:
    """Measure GPUs of this machine while the block runs; the mean utilisation of each is in the dict when it has ended.

    Parameters
    ----------
    names : collection of str
        Numbers of the GPUs, as NVML counts them; those that go by other names are left out.
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


@cache
def _nvml() -> Any:
    """Return the NVML bindings, ready for use; None where there is no GPU to read."""
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
    with contextlib.suppress(nvml.NVMLError):  # a MIG device has no utilisation of its own
        utilization = nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100
    with contextlib.suppress(nvml.NVMLError):  # not everywhere may one process see the others
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(device):
            processes.append((int(process.pid), process.usedGpuMemory))  # noqa: PERF401 - what came stays
    return GpuReading(index, int(memory.used), int(memory.total), utilization, tuple(processes))

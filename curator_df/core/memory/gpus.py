# SPDX-License-Identifier: Apache-2.0
"""What NVML says of each GPU of this machine: memory, utilisation, and which process holds how much."""

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
"""How the name of a part of a GPU begins."""
UUIDS = ("GPU-", SLICE)
"""How a name begins that is not a number."""
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


def visible_gpus() -> tuple[str, ...]:
    """Return the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them.

    As CUDA reads it: what comes after the first name that is no GPU's, such as ``-1``, is not seen either.
    """
    numbers = tuple(str(gpu.index) for gpu in read_gpus())
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None or not numbers:
        return numbers
    names = (name.strip() for name in given.split(","))
    return tuple(itertools.takewhile(lambda name: name in numbers or name.startswith(UUIDS), names))


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


def uuid_of(name: str) -> str:
    """Return the UUID of a GPU that goes by its number here, or by that UUID; empty where NVML does not say.

    Numbers are those of what this process may see: two jobs of one machine may each call another GPU 0.
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

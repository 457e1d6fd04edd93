# SPDX-License-Identifier: Apache-2.0
"""GPU memory of a worker process in a run: its peak, and the bytes spilled to the host, as the allocators report them.

RAPIDS is looked up among the loaded modules and never imported.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol


def counting_resource() -> Any:
    """Return RMM's resource that counts allocations, whatever wraps it; None if none counts or RMM is not used."""
    rmm = sys.modules.get("rmm")
    if rmm is None or "rmm.statistics" not in sys.modules:
        return None
    resource = rmm.mr.get_current_device_resource()
    while resource is not None and not hasattr(resource, "allocation_counts"):
        resource = resource.get_upstream() if hasattr(resource, "get_upstream") else None
    return resource


class DeviceMeter(Protocol):
    """Counter of the GPU memory that is allocated in this process."""

    def start(self) -> None:
        """Restart the count."""

    def peak_bytes(self) -> int:
        """Return the peak of the allocated bytes since `start`."""

    def spilled_bytes(self) -> int:
        """Return the bytes that were moved to the host to free GPU memory since `start`."""


class _Process:
    def __init__(self) -> None:
        self.meter: DeviceMeter | None = None
        self.run_id = ""
        self.lock = threading.Lock()


_process = _Process()


def measured_by(meter: Callable[[], DeviceMeter]) -> None:
    """Measure this process from now on; the first meter stays in use."""
    with _process.lock:
        if _process.meter is None:
            _process.meter = meter()


def device_run(run_id: str) -> None:
    """Register the start of a task of a run; the first task of another run restarts the count."""
    with _process.lock:
        if _process.run_id != run_id:
            _process.run_id = run_id
            if _process.meter is not None:
                _process.meter.start()


def device_peak_bytes() -> int | None:
    """Return the peak bytes in the run so far; None if no block was ever on a GPU."""
    with _process.lock:
        return None if _process.meter is None else _process.meter.peak_bytes()


def device_spilled_bytes() -> int | None:
    """Return the bytes moved from the GPU to the host in the run so far; None if no block was ever on a GPU."""
    with _process.lock:
        return None if _process.meter is None else _process.meter.spilled_bytes()

# SPDX-License-Identifier: Apache-2.0
"""What a worker process held of its GPU in a run at most, and what was moved out of it, as those say who hand that memory out.

RAPIDS is looked up among the modules that are there, and never imported.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Protocol


def counting_resource() -> Any:
    """Return RMM's resource that counts what is handed out, whatever wraps it; None where nobody counts, or uses RMM."""
    rmm = sys.modules.get("rmm")
    if rmm is None or "rmm.statistics" not in sys.modules:
        return None
    resource = rmm.mr.get_current_device_resource()
    while resource is not None and not hasattr(resource, "allocation_counts"):
        resource = resource.get_upstream() if hasattr(resource, "get_upstream") else None
    return resource


class DeviceMeter(Protocol):
    """Counts what is handed out of a GPU's memory in this process."""

    def start(self) -> None:
        """Count anew."""

    def peak_bytes(self) -> int:
        """Return the most bytes at a time since `start`."""

    def spilled_bytes(self) -> int:
        """Return the bytes that were moved to the host since `start`, to make room."""


class _Process:
    def __init__(self) -> None:
        self.meter: DeviceMeter | None = None
        self.run_id = ""
        self.lock = threading.Lock()


_process = _Process()


def measured_by(meter: Callable[[], DeviceMeter]) -> None:
    """Have this process measured from now on; the first meter stays."""
    with _process.lock:
        if _process.meter is None:
            _process.meter = meter()


def device_run(run_id: str) -> None:
    """Say that a task of a run begins: with another run than before, the count begins anew."""
    with _process.lock:
        if _process.run_id != run_id:
            _process.run_id = run_id
            if _process.meter is not None:
                _process.meter.start()


def device_peak_bytes() -> int | None:
    """Return the most bytes in the run so far; None where no block was ever on a GPU."""
    with _process.lock:
        return None if _process.meter is None else _process.meter.peak_bytes()


def device_spilled_bytes() -> int | None:
    """Return the bytes that were moved from the GPU to the host in the run so far; None where no block was ever on a GPU."""
    with _process.lock:
        return None if _process.meter is None else _process.meter.spilled_bytes()

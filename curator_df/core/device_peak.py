# SPDX-License-Identifier: Apache-2.0
"""The most bytes of its GPU that a worker process held in a run, as those say who hand them out; core itself knows no RAPIDS."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol


class DeviceMeter(Protocol):
    """Counts what is handed out of a GPU's memory in this process."""

    def start(self) -> None:
        """Count anew."""

    def peak_bytes(self) -> int:
        """Return the most bytes at a time since `start`."""


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

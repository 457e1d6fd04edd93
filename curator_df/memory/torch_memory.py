# SPDX-License-Identifier: Apache-2.0
"""GPU memory of torch in this process: limited and measured, if another module has imported torch.

Torch is looked up among the loaded modules and never imported. The GPU part has not run on a GPU yet.
"""

from __future__ import annotations

import sys
from typing import Any

from curator_df.memory.process_cache import cached
from curator_df.memory.resources import capacity_here

TORCH_PEAKS = ("device_allocated_bytes", "device_reserved_bytes")
"""Names of the peak bytes in tensors on the GPU, and of the peak bytes that torch reserved."""


def bound_torch() -> None:
    """Limit torch to the GPU memory that the run may use, and start to measure at the first call in a run."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        cached("torch on a GPU", lambda: Bounded(torch))


class Bounded:
    """Torch, limited in this process for one run; at its end, cached GPU memory is released."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        torch.cuda.init()
        capacity = capacity_here()
        if capacity is not None and capacity.device_bytes:
            share = capacity.device_bytes / torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(share, 1.0))
        torch.cuda.reset_peak_memory_stats()

    def close(self) -> None:
        """Release the GPU memory that no tensor uses."""
        self._torch.cuda.empty_cache()


def torch_peaks() -> dict[str, int]:
    """Return the peak bytes on the GPU since `bound_torch`, by `TORCH_PEAKS`; empty if torch has used none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    most = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
    return dict(zip(TORCH_PEAKS, most, strict=True))

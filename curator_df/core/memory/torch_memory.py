# SPDX-License-Identifier: Apache-2.0
"""What torch takes of the worker's GPU in this process, where somebody else has imported it: bounded, and measured.

Torch is looked up among the modules that are there and never imported. The part for GPUs has not run on one yet.
"""

from __future__ import annotations

import sys
from typing import Any

from curator_df.core.memory.held import held
from curator_df.core.memory.resources import capacity_here

TORCH_PEAKS = ("device_allocated_bytes", "device_reserved_bytes")
"""Names of the most bytes in tensors on the GPU, and of those in all."""


def bound_torch() -> None:
    """Let torch take no more of the GPU than the run may use, and measure from the first time on in a run."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        held("torch on a GPU", lambda: Bounded(torch))


class Bounded:
    """Torch, bounded in this process for a run; what it keeps of the GPU for later goes back at the end."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        torch.cuda.init()
        capacity = capacity_here()
        if capacity is not None and capacity.device_bytes:
            share = capacity.device_bytes / torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(share, 1.0))
        torch.cuda.reset_peak_memory_stats()

    def close(self) -> None:
        """Give back what no tensor uses."""
        self._torch.cuda.empty_cache()


def torch_peaks() -> dict[str, int]:
    """Return the most bytes on the GPU since `bound_torch`, by `TORCH_PEAKS`; nothing where torch has used none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    most = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
    return dict(zip(TORCH_PEAKS, most, strict=True))

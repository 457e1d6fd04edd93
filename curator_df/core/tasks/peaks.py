# SPDX-License-Identifier: Apache-2.0
"""Maximum of the measurements of a stage's tasks, and sums over workers."""

from __future__ import annotations

from dataclasses import dataclass, field

from curator_df.core.ranges.manifest import Manifest


@dataclass
class Peaks:
    """Peaks over all returned tasks, including failed ones."""

    worker_bytes: int = 0
    """Peak resident bytes of any worker process."""
    block_bytes: int = 0
    """Bytes of the largest block of any task."""
    device_bytes: int | None = None
    """Peak GPU memory of any worker in bytes; None if it was not measured."""
    _spilled: dict[str, int] = field(default_factory=dict)

    def add(self, manifest: Manifest) -> None:
        """Include the measurements of a task."""
        self.worker_bytes = max(self.worker_bytes, manifest.peak_bytes)
        self.block_bytes = max(self.block_bytes, manifest.largest_block_bytes)
        if manifest.device_peak_bytes is not None:
            self.device_bytes = max(self.device_bytes or 0, manifest.device_peak_bytes)
        if manifest.device_spilled_bytes is not None:
            before = self._spilled.get(manifest.worker, 0)
            self._spilled[manifest.worker] = max(before, manifest.device_spilled_bytes)

    @property
    def device_spilled_bytes(self) -> int | None:
        """Sum of the bytes that workers moved from their GPUs to the host; None if it was not counted."""
        return sum(self._spilled.values()) if self._spilled else None

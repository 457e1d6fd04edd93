# SPDX-License-Identifier: Apache-2.0
"""The largest of what the tasks of a stage measured, and the sum over workers of what is counted in each."""

from __future__ import annotations

from dataclasses import dataclass, field

from curator_df.core.ranges.manifest import Manifest


@dataclass
class Peaks:
    """Of all tasks that came back, also of those that failed."""

    worker_bytes: int = 0
    """Most resident bytes of any worker process."""
    block_bytes: int = 0
    """Bytes of the largest block that any task met."""
    device_bytes: int | None = None
    """Most bytes that any worker held of its GPU; None where nobody measured it."""
    _spilled: dict[str, int] = field(default_factory=dict)

    def add(self, manifest: Manifest) -> None:
        """Look at what a task measured."""
        self.worker_bytes = max(self.worker_bytes, manifest.peak_bytes)
        self.block_bytes = max(self.block_bytes, manifest.largest_block_bytes)
        if manifest.device_peak_bytes is not None:
            self.device_bytes = max(self.device_bytes or 0, manifest.device_peak_bytes)
        if manifest.device_spilled_bytes is not None:
            before = self._spilled.get(manifest.worker, 0)
            self._spilled[manifest.worker] = max(before, manifest.device_spilled_bytes)

    @property
    def device_spilled_bytes(self) -> int | None:
        """Bytes that workers moved from their GPUs to the host, all together; None where nobody counted."""
        return sum(self._spilled.values()) if self._spilled else None

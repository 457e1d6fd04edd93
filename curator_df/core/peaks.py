# SPDX-License-Identifier: Apache-2.0
"""The largest of what the tasks of a stage measured."""

from __future__ import annotations

from dataclasses import dataclass

from curator_df.core.manifest import Manifest


@dataclass
class Peaks:
    """Of all tasks that came back, also of those that failed."""

    worker_bytes: int = 0
    """Most resident bytes of any worker process."""
    block_bytes: int = 0
    """Bytes of the largest block that any task met."""
    device_bytes: int | None = None
    """Most bytes that any worker held of its GPU; None where nobody measured it."""

    def add(self, manifest: Manifest) -> None:
        """Look at what a task measured."""
        self.worker_bytes = max(self.worker_bytes, manifest.peak_bytes)
        self.block_bytes = max(self.block_bytes, manifest.largest_block_bytes)
        if manifest.device_peak_bytes is not None:
            self.device_bytes = max(self.device_bytes or 0, manifest.device_peak_bytes)

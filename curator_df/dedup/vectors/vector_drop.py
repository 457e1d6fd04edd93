# SPDX-License-Identifier: Apache-2.0
"""Pending drop of rows with similar vectors.

Its pass writes the vectors of each range to a file, and `stages` continues from these files. The steps that compute the vectors
therefore run twice: once for the comparison and once to write the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from curator_df.core.memory.budget import Layout
from curator_df.core.planning.program import Pending, PendingPass, Program, Step
from curator_df.core.ranges.range_action import RangeAction
from curator_df.dedup.vectors.settings import VECTOR_WRITER_FACTOR, VectorSettings, require_gpu, require_room
from curator_df.dedup.vectors.stages import VectorStages
from curator_df.exchange.dropped_rows import DropRows, Found


@dataclass(frozen=True)
class VectorDrop(VectorSettings, Pending):
    """Pending drop of rows with similar vectors, except for one of each group."""

    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return the pass that stores vectors."""
        return [PendingPass(f"vectors for {name}, then clusters", "store vectors", VECTOR_WRITER_FACTOR)]

    def require_room(self, name: str, rows: int | None, layout: Layout) -> None:
        """Refuse k-means that does not fit if the number of clusters is known; otherwise the run does so when it has counted."""
        if self.fits_on_device:
            require_gpu(name, layout)
        if self.num_clusters is not None or rows is not None:
            require_room(name, self, self.clusters(rows or 0), layout)

    def prepare(self, runner: Any, before: Program, step: Step) -> Found:
        """Find the groups."""
        return VectorStages(runner, before, step, self).run()

    def resolved(self, prepared: Found) -> RangeAction:
        """Return the action that drops the rows in the last pass."""
        return DropRows(self, prepared)

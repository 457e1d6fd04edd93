# SPDX-License-Identifier: Apache-2.0
"""Tally of one step over the blocks of a range: rows, seconds, bytes and reasons, counted block by block."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from curator_df.core.ranges.blocks import Outcome

BLOCK_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bounds in seconds of the counts in `StepCounts.blocks_by_seconds`."""


@dataclass
class StepCounts:
    """Tally of one step over the blocks of one range."""

    rows_in: int = 0
    """Number of rows that entered."""
    rows_out: int = 0
    """Number of rows that were passed on."""
    seconds: float = 0.0
    """Wall time in the step in seconds."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Number of removed rows, by reason."""
    counters: dict[str, int] = field(default_factory=dict)
    """Counts of the kernel, by name."""
    peaks: dict[str, int] = field(default_factory=dict)
    """Peak memory of the step in bytes, by name."""
    bytes_in: int = 0
    """Bytes of the blocks that entered."""
    bytes_out: int = 0
    """Bytes of the blocks that were passed on."""
    blocks_by_seconds: list[int] = field(default_factory=lambda: [0] * (len(BLOCK_SECONDS) + 1))
    """Number of blocks that took up to each of `BLOCK_SECONDS` (and more than the previous bound); last, the longer ones."""

    def leave_out(self, rows: int, reason: str) -> None:
        """Count rows that the step drops and that the reader left out."""
        if rows:
            self.rows_in += rows
            self.dropped[reason] = self.dropped.get(reason, 0) + rows

    def add(self, outcome: Outcome, rows_in: int, seconds: float, bytes_in: int, bytes_out: int) -> None:
        """Count one block."""
        self.rows_in += rows_in
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out
        self.blocks_by_seconds[bisect.bisect_left(BLOCK_SECONDS, seconds)] += 1
        self.rows_out += len(outcome.block)
        self.seconds += seconds
        for counts, new in ((self.dropped, outcome.dropped), (self.counters, outcome.counters)):
            for name, number in new.items():
                counts[name] = counts.get(name, 0) + int(number)
        for name, number in outcome.peaks.items():
            self.peaks[name] = max(self.peaks.get(name, 0), int(number))

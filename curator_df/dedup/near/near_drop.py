# SPDX-License-Identifier: Apache-2.0
"""Pending drop of near duplicates.

Its first pass over the text writes one key for each row and band, and one for the content, into the files of an `Exchange`; its
second writes the texts to compare and the position of each. `stages` processes these files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from curator_df.core.planning.program import Pending, PendingPass, Program, Step
from curator_df.core.ranges.range_action import RangeAction
from curator_df.dedup.near.settings import NearSettings
from curator_df.dedup.near.stages import NearStages
from curator_df.exchange.dropped_rows import DropRows, Found
from curator_df.exchange.keys import KEY_WRITER_FACTOR


@dataclass(frozen=True)
class NearDrop(NearSettings, Pending):
    """Pending drop of rows with similar texts, except for one of each group."""

    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return the pass that computes signatures, the one over kept signatures, and the one that fetches texts."""
        bands = f"compute MinHash signatures, hash and sort {self.num_bands} bands"
        found = [PendingPass(f"signatures for {name}, then buckets", bands, KEY_WRITER_FACTOR)]
        if self.against is not None and self.against.program is not None:  # stored results no longer need their chain
            found.append(PendingPass(f"kept signatures for {name}", bands, KEY_WRITER_FACTOR, self.against.program))
        if self.verify is not None:
            fetch = "fetch texts of candidates"
            found.append(PendingPass(f"texts for {name}, then compare them", fetch, KEY_WRITER_FACTOR))
        return found

    def prepare(self, runner: Any, before: Program, step: Step) -> Found:
        """Find the groups."""
        return NearStages(runner, before, step, self).run()

    def resolved(self, prepared: Found) -> RangeAction:
        """Return the action that drops the rows in the last pass."""
        return DropRows(self, prepared)

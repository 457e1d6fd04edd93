# SPDX-License-Identifier: Apache-2.0
"""What a pending step becomes in the last pass: something that knows what belongs to each range."""

from __future__ import annotations

import abc
from typing import Any, Protocol

from curator_df.core.ranges.blocks import Outcome
from curator_df.errors import RowCountError


class OfRange(Protocol):
    """What a `RangeAction` does to one range, block by block."""

    def run(self, block: Any) -> Outcome:
        """Take the next block."""

    def finish(self, step: str) -> None:
        """Raise unless the range was the one that was prepared for."""


class RangeAction(abc.ABC):
    """What a pending step is in the last pass: it knows what belongs to each range."""

    barrier: Any
    """What it waited for."""

    @abc.abstractmethod
    def of_range(self, number: int) -> OfRange:
        """Return what runs on one range, once."""


def changed_rows(step: str, number: int, before: int, now: int, more: str) -> RowCountError:
    """Return the error for a range whose rows were not those of the first pass."""
    return RowCountError(
        f"what comes before {step!r} is not the same each time it runs: range {number} had {before:,} rows in the first "
        f"pass and {now:,} in the last{more}. A step before it depends on chance, time or state; make it a function of the "
        "row (seed it by the row's id). Rows set aside out of memory in one of the passes only do the same: then run with "
        "on_existing='overwrite'"
    )

# SPDX-License-Identifier: Apache-2.0
"""Resolved form of a deferred step in the last pass: an action that knows the data of each range."""

from __future__ import annotations

import abc
from typing import Any, Protocol

from curator_df.core.ranges.blocks import Outcome
from curator_df.errors import RowCountError


class OfRange(Protocol):
    """Application of a `RangeAction` to one range, block by block."""

    def run(self, block: Any) -> Outcome:
        """Process the next block."""

    def finish(self, step: str) -> None:
        """Raise an error unless the range was the one that was prepared."""


class RangeAction(abc.ABC):
    """Resolved form of a deferred step in the last pass, with the data of each range."""

    barrier: Any
    """Deferred operation that was resolved."""

    @abc.abstractmethod
    def of_range(self, number: int) -> OfRange:
        """Return the object that processes one range, once."""


def changed_rows(step: str, number: int, before: int, now: int, more: str) -> RowCountError:
    """Return the error for a range whose rows differ from those of the first pass."""
    return RowCountError(
        f"the steps before {step!r} gave different results in two passes: range {number} had {before:,} rows in the first "
        f"pass and {now:,} in the last{more}. A step before it depends on chance, time or state. Make it a function of the "
        "row (seed it by the row's ID). Rows quarantined out of memory in only one of the passes have the same effect: in that "
        "case, run with on_existing='overwrite'"
    )

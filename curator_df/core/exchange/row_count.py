# SPDX-License-Identifier: Apache-2.0
"""Consecutive numbers for rows: a pass that counts the rows of each range, and what numbers them in the last pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from curator_df.core.backend import integer_column
from curator_df.core.files.storage import FileRecord, Folder
from curator_df.core.ranges.blocks import Outcome
from curator_df.core.ranges.range_action import OfRange, RangeAction, changed_rows
from curator_df.core.ranges.sink import StageSink


@dataclass(frozen=True)
class RowCount:
    """Consecutive numbers for rows, which need the number of rows in all ranges before."""

    into: str
    """Name of the column."""
    start: int
    """Number of the first row."""


@dataclass(frozen=True)
class CountSink(StageSink):
    """The end of a pass that only counts rows."""

    uses_addresses: ClassVar[bool] = False
    """Any index will do."""
    folder: Folder
    """Where the journal is."""
    writer_factor: float = 0.0
    """Nothing is held."""
    fingerprint: str = "count"
    """Nothing is written."""

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _NoFile:  # noqa: ARG002 - the face of a sink
        """Start a range."""
        return _NoFile()


class _NoFile:
    """The runner counts what it appends."""

    summary: ClassVar[dict[str, int]] = {}

    def append(self, block: Any) -> None:
        pass

    def commit(self) -> list[FileRecord]:
        return []

    def discard(self) -> None:
        pass


@dataclass(frozen=True)
class NumberRows(RangeAction):
    """What pending row numbers are in the last pass."""

    barrier: RowCount
    """The column."""
    rows: npt.NDArray[np.int64] = field(repr=False)
    """Shape (ranges,): rows of each range in the first pass."""

    def of_range(self, number: int) -> OfRange:
        """Return what numbers the rows of one range, once."""
        return _RangeNumbers(self, number)


class _RangeNumbers:
    def __init__(self, action: NumberRows, number: int) -> None:
        self._into, self._number, self._expected = action.barrier.into, number, int(action.rows[number])
        self._first = self._next = action.barrier.start + int(action.rows[:number].sum())

    def run(self, block: Any) -> Outcome:
        numbers = np.arange(self._next, self._next + len(block))
        self._next += len(block)
        return Outcome(block.assign(**{self._into: integer_column(block, numbers)}))

    def finish(self, step: str) -> None:
        if self._next - self._first != self._expected:
            raise changed_rows(step, self._number, self._expected, self._next - self._first, "")

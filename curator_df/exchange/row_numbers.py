# SPDX-License-Identifier: Apache-2.0
"""Consecutive row numbers: a pass that counts the rows of each range, and the action that numbers them in the last pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from curator_df.core.backend import integer_column
from curator_df.core.planning.program import Pending, PendingPass, Program, Step
from curator_df.core.ranges.blocks import Outcome
from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.range_action import OfRange, RangeAction, changed_rows
from curator_df.core.ranges.sink import StageSink
from curator_df.files.storage import FileRecord, Folder


@dataclass(frozen=True)
class CountSink(StageSink):
    """Sink of a pass that only counts rows."""

    uses_addresses: ClassVar[bool] = False
    """False, because any index is allowed."""
    folder: Folder
    """Folder of the journal."""
    writer_factor: float = 0.0
    """Peak extra memory as a multiple of the block's bytes: none."""
    fingerprint: str = "count"
    """Digest of the settings; constant, because nothing is written."""

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _NoFile:  # noqa: ARG002 - the face of a sink
        """Start a range."""
        return _NoFile()


class _NoFile:
    """Writer without a file: the runner counts the appended rows."""

    summary: ClassVar[dict[str, int]] = {}

    def append(self, block: Any) -> None:
        pass

    def commit(self) -> list[FileRecord]:
        return []

    def discard(self) -> None:
        pass


@dataclass(frozen=True)
class NumberRows(RangeAction):
    """Resolved form of deferred row numbers in the last pass."""

    pending: RowNumbering
    """Deferred operation with the column and the first number."""
    rows: npt.NDArray[np.int64] = field(repr=False)
    """Array of shape (ranges,): rows of each range in the first pass."""

    def of_range(self, number: int) -> OfRange:
        """Return the object that numbers the rows of one range, once."""
        return _RangeNumbers(self, number)


class _RangeNumbers:
    def __init__(self, action: NumberRows, number: int) -> None:
        self._into, self._number, self._expected = action.pending.into, number, int(action.rows[number])
        self._first = self._next = action.pending.start + int(action.rows[:number].sum())

    def run(self, block: Any) -> Outcome:
        numbers = np.arange(self._next, self._next + len(block))
        self._next += len(block)
        return Outcome(block.assign(**{self._into: integer_column(block, numbers)}))

    def finish(self, step: str) -> None:
        if self._next - self._first != self._expected:
            raise changed_rows(step, self._number, self._expected, self._next - self._first, "")


@dataclass(frozen=True)
class RowNumbering(Pending):
    """Pending numbering of rows, which needs the number of rows in all earlier ranges."""

    into: str
    """Name of the column."""
    start: int
    """Number of the first row."""
    uses_addresses: ClassVar[bool] = False

    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return the pass that counts rows."""
        return [PendingPass(f"rows for {name}", "count", 0.0)]

    def is_whole(self, stage: Folder, ranges: int) -> bool:
        """Return whether the rows of all ranges were counted."""
        return Journal(stage).records().keys() >= set(range(ranges))

    def prepare(self, runner: Any, before: Program, step: Step) -> npt.NDArray[np.int64]:
        """Count the rows of each range."""
        with runner.open_stage(before, step) as stage:
            counted = stage.stream(f"{step.name}: count rows", before, (), CountSink(stage.home), runner.ranges)
        return np.array([record.rows_written for record in counted], dtype=np.int64)

    def resolved(self, prepared: npt.NDArray[np.int64]) -> RangeAction:
        """Return the action that numbers the rows in the last pass."""
        return NumberRows(self, prepared)

# SPDX-License-Identifier: Apache-2.0
"""Resolved form of a deferred step in the last pass: an action that knows the data of each range."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt

from curator_df.core.ranges.blocks import Action, Outcome
from curator_df.errors import CuratorError, RowCountError


class OfRange(Protocol):
    """Application of a `RangeAction` to one range, block by block."""

    def run(self, block: Any) -> Outcome:
        """Process the next block."""

    def finish(self, step: str) -> None:
        """Raise an error unless the range was the one that was prepared."""


class LeavesOut(OfRange, Protocol):
    """Application of an action that `core.ranges.blocks.Action.drops_by_address`: a reader may ask which rows to leave out.

    `run` then receives the other rows only, and returns all of them.
    """

    @property
    def reason(self) -> str:
        """Drop reason of the rows."""

    def left_out(self, addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of the next rows are dropped, by their ascending row IDs."""

    def note_passed(self, rows: int) -> None:
        """Count rows that it passed on and that a later step leaves out, so that `run` does not receive them."""


class HoldsRows(OfRange, Protocol):
    """Application of a `RangeAction` that `holds_rows`: `run` only takes the next block, and passes nothing on."""

    def wait(self, check: Callable[[], None]) -> None:
        """Wait until it can be decided what happens to the rows of the range, all of which were taken.

        ``check`` is called again and again; it raises an error if the task has to stop.
        """

    def decided(self, step: str) -> Iterator[tuple[Any, Outcome]]:
        """Yield each block that was taken, with the outcome for its rows."""

    def close(self) -> None:
        """End the range, whether it was decided or not."""


class NotItsTurnError(CuratorError):
    """Raised in a range that waits for an earlier one which does not run, so that it has to run again after that one."""


class NeedsPassesError(CuratorError):
    """Raised where a deferred operation cannot be decided in the last pass, so that its own passes have to run."""


class RangeAction(Action, abc.ABC):
    """Resolved form of a deferred operation in the last pass, with the data of each range."""

    needs_range: ClassVar[bool] = True
    follows_addresses: ClassVar[bool] = False
    """Whether the address of a row tells what happens to it, so that part of a range can be taken alone."""

    @abc.abstractmethod
    def of_range(self, number: int) -> OfRange:
        """Return the object that processes one range, once."""


def changed_rows(step: str, number: int, before: int, now: int, more: str) -> RowCountError:
    """Return the error for a range whose rows differ from those of the first pass."""
    return RowCountError(
        f"the steps before {step!r} gave different results when the input was read twice: part {number:,} of the input "
        f"had {before:,} rows the first time and {now:,} the last time{more}. One of these steps depends on chance, "
        "time or state. Make its result depend on the row alone, for example with a random seed made from the row's ID. "
        "If rows were quarantined because memory ran out, repeat the run with on_existing='overwrite' instead"
    )


@dataclass(frozen=True)
class OnPartitions(RangeAction):
    """A resolved step on the partitions of a table, which begin and end elsewhere than the ranges of its passes."""

    action: RangeAction
    """The step on ranges."""
    ranges: npt.NDArray[np.int64] = field(repr=False)
    """Least address of each range, ascending."""
    partitions: npt.NDArray[np.int64] = field(repr=False)
    """Least address of each partition, ascending."""

    @property
    def pending(self) -> Any:
        """Operation that was resolved."""
        return self.action.pending

    def of_range(self, number: int) -> OfRange:
        """Return what runs on one partition, once."""
        return _OfPartition(self, number)

    def inside(self, number: int) -> range:
        """Return the ranges that lie in one partition as a whole; what they hold can be checked."""
        first = int(np.searchsorted(self.ranges, self.partitions[number]))
        if number + 1 == len(self.partitions):
            return range(first, len(self.ranges))
        return range(first, int(np.searchsorted(self.ranges, self.partitions[number + 1], side="right")) - 1)


class _OfPartition:
    def __init__(self, action: OnPartitions, number: int) -> None:
        self._action, self._inside = action, action.inside(number)
        self._open: dict[int, OfRange] = {}

    def run(self, block: Any) -> Outcome:
        outcomes = [self._range(number).run(part) for number, part in self._parts(block)]
        if len(outcomes) == 1:
            return outcomes[0]
        dropped: dict[str, int] = {}
        for outcome in outcomes:
            for reason, count in outcome.dropped.items():
                dropped[reason] = dropped.get(reason, 0) + count
        return Outcome(dd.methods.concat([outcome.block for outcome in outcomes]), dropped)

    def finish(self, step: str) -> None:
        for number in self._inside:
            self._range(number).finish(step)

    def _parts(self, block: Any) -> Iterator[tuple[int, Any]]:
        """Yield the rows of each range, with the number of the range; an empty block goes to one of them."""
        ranges = np.maximum(np.searchsorted(self._action.ranges, block.index.to_numpy(), side="right") - 1, 0)
        if not len(block):
            yield next(iter(self._open), self._inside.start if self._inside else 0), block
            return
        starts = [0, *(np.flatnonzero(np.diff(ranges)) + 1).tolist(), len(block)]
        for start, stop in itertools.pairwise(starts):
            yield int(ranges[start]), block if stop - start == len(block) else block.iloc[start:stop]

    def _range(self, number: int) -> OfRange:
        if number not in self._open:
            self._open[number] = self._action.action.of_range(number)
        return self._open[number]

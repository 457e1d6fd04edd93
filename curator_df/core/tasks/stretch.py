# SPDX-License-Identifier: Apache-2.0
"""Consecutive steps on the way to the same outputs, on the blocks of one range; each output counts them as its own.

What happens to rows on which a step fails is decided here: a user's function that raises (`core.planning.failing_rows`), and
memory that does not suffice (`core.ranges.out_of_memory`).
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from curator_df.core.memory.limits import release_free_memory
from curator_df.core.memory.wall import started_processes
from curator_df.core.planning.addresses import require_kept_addresses
from curator_df.core.planning.balance import works_elsewhere
from curator_df.core.planning.failing_rows import may_be_users, operator_error, without_failing_rows
from curator_df.core.planning.program import Step, run_step
from curator_df.core.ranges.blocks import BlockKernel, Outcome, block_bytes
from curator_df.core.ranges.out_of_memory import MOST_IN_A_ROW, UnitLog, has_room, is_out_of_memory, row_without_memory
from curator_df.core.ranges.range_action import RangeAction
from curator_df.core.ranges.source import ADDRESS, BadRow
from curator_df.core.ranges.step_tally import StepTally
from curator_df.core.sizes import show_count
from curator_df.errors import CuratorError, RowCountError

OnError = Literal["raise", "quarantine"]
"""A user's function that raises: stop, or set the rows aside on which it does."""


class Stretch:
    """Steps that run on every block of a range, one after the other."""

    def __init__(
        self,
        steps: Sequence[Step],
        number: int,
        *,
        files: Sequence[str],
        on_error: OnError,
        halves: bool,
        log: UnitLog,
        set_aside: Callable[[BadRow], None],
        reject: Callable[[Step, Any, Outcome], None],
    ) -> None:
        self.steps, self.tallies = steps, [StepTally() for _ in steps]
        self._files, self._on_error, self._halves, self._log = files, on_error, halves, log
        self._set_aside, self._reject = set_aside, reject
        self._prepared = {
            n: s.action.of_range(number) for n, s in enumerate(steps) if isinstance(s.action, RangeAction)
        }
        self._failed_in_a_row = [0] * len(steps)

    def run(self, blocks: list[Any], first: int = 0) -> Iterator[Any]:
        """Yield what is left of blocks after these steps, in order; where memory ran out or rows were made, in parts.

        The list is emptied, so that a block is let go of as soon as a step has made another of it.
        """
        waiting = [(first, block) for block in reversed(blocks)]
        blocks.clear()
        while waiting:
            place, part = waiting.pop()
            part_bytes = block_bytes(part)  # once for each block between two steps: weighing takes time
            while place < len(self.steps):
                try:
                    taken, outcome, seconds = self._run_step(place, part)
                except Exception as exc:
                    if not (self._may_halve(place) and is_out_of_memory(exc)):
                        raise
                    waiting += self._halved(place, part, exc)
                    break
                if outcome is None:
                    self._log.leave()
                    break
                require_kept_addresses(self.steps[place], taken, outcome.block)
                part_bytes = self._count(place, len(taken), outcome, seconds, part_bytes)
                self._keep_rejects(place, taken, outcome)
                if outcome.rest is not None:
                    made = self._parts(place, taken, outcome)
                    del taken, outcome
                    for parts in made:
                        yield from self.run(parts, place + 1)
                    break
                part = outcome.block
                del taken, outcome
                place += 1
            else:
                yield part

    @property
    def elsewhere_seconds(self) -> float:
        """Seconds so far in steps whose work is done elsewhere."""
        both = zip(self.steps, self.tallies, strict=True)
        return sum(tally.seconds for step, tally in both if works_elsewhere(step))

    def finish(self) -> None:
        """Check that the range was the one of the first pass."""
        for number, of_range in self._prepared.items():
            of_range.finish(self.steps[number].name)

    def _may_halve(self, place: int) -> bool:
        # What knows the rows of the range has noted some of them by then, and cannot take them again.
        return self._halves and place not in self._prepared

    def _run_step(self, place: int, block: Any) -> tuple[Any, Outcome | None, float]:
        """Return the rows that a step took, what came out, and the seconds; nothing is counted if it raises.

        Nothing came out where all rows were set aside.
        """
        step, failing = self.steps[place], list[BadRow]()
        outcome: Outcome | None
        self._log.enter(step.name, block)
        started = time.perf_counter()
        try:
            outcome, seconds = run_step(step, block, self._prepared.get(place))
        except Exception as exc:
            if isinstance(exc, CuratorError) or is_out_of_memory(exc) or not may_be_users(step):
                raise
            # What a step starts may fail because of what others have started; then all of it is tried alone first.
            is_first = bool(started_processes(exc)) and not self._log.is_alone
            # Of no rows none can be set aside; and without addresses nobody could say which they were.
            if self._on_error == "raise" or is_first or not len(block) or block.index.name != ADDRESS:
                raise operator_error(step, block, exc, self._files) from exc
            block = without_failing_rows(step, block, self._files, failing.append)
            outcome = self._run_on_others(step, block)
            # With the tries before: a step that asks a server has its answers from them, and the last one takes no time.
            seconds = time.perf_counter() - started
            if outcome is None:
                self.tallies[place].seconds += seconds
        for row in failing:
            self._set_aside(row)
        return block, outcome, seconds

    def _run_on_others(self, step: Step, block: Any) -> Outcome | None:
        """Run a step on the rows that are left; None where no row is: what it makes of none is not known then."""
        if not len(block):
            return None
        try:
            return run_step(step, block)[0]
        except Exception as exc:
            if isinstance(exc, CuratorError) or is_out_of_memory(exc):
                raise
            raise operator_error(step, block, exc, self._files) from exc

    def _parts(self, place: int, block: Any, outcome: Outcome) -> Iterator[list[Any]]:
        """Yield what comes out of a step that makes rows, part by part; each list is emptied before the next is made."""
        step, rest = self.steps[place], outcome.rest
        parts = [outcome.block]
        del outcome
        while rest is not None:
            yield parts
            self._log.enter(step.name, block)
            started = time.perf_counter()
            more = next(rest, None)
            if more is None:
                return
            self._count(place, 0, more, time.perf_counter() - started, 0)
            parts = [more.block]
            del more

    def _count(self, place: int, rows_in: int, outcome: Outcome, seconds: float, bytes_in: int) -> int:
        """Count what a step made of so many rows; return the bytes of what came out."""
        step, removed = self.steps[place], rows_in - len(outcome.block)
        self._log.leave()
        by_reason = sum(outcome.dropped.values())
        if isinstance(step.action, BlockKernel) and not step.action.makes_rows and removed != by_reason:
            raise RowCountError(
                f"{step.name} took {show_count(rows_in, 'row')}, returned {len(outcome.block):,} and gave reasons for "
                f"{by_reason:,} removed; every removed row needs one"
            )
        self._failed_in_a_row[place] = 0
        bytes_out = block_bytes(outcome.block)
        self.tallies[place].add(outcome, rows_in, seconds, bytes_in, bytes_out)
        return bytes_out

    def _keep_rejects(self, place: int, block: Any, outcome: Outcome) -> None:
        if outcome.rest is None and len(outcome.block) < len(block):
            self._reject(self.steps[place], block, outcome)

    def _halved(self, place: int, block: Any, exc: Exception) -> list[tuple[int, Any]]:
        """Return the halves of a block as they wait for the step that ran out of memory; set a single row aside."""
        traceback.clear_frames(exc.__traceback__)  # they hold what the step had made
        release_free_memory()
        if len(block) > 1:
            half = len(block) // 2
            return [(place, block.iloc[half:]), (place, block.iloc[:half])]
        step = self.steps[place]
        self._failed_in_a_row[place] += 1
        if not has_room() or self._failed_in_a_row[place] > MOST_IN_A_ROW:
            raise MemoryError(
                f"step {step.name!r} runs out of memory on one row after the other, each of them alone on the node, so it "
                f"is not the rows: the step itself needs more than there is ({exc}). Allow more memory and resume"
            ) from exc
        reason = f"out of memory: step {step.name!r} raised {type(exc).__name__} on this row alone on the node: {exc}"
        self._set_aside(row_without_memory(block, self._files, reason))
        return []

# SPDX-License-Identifier: Apache-2.0
"""Consecutive steps with the same outputs, on the blocks of one range; each output counts them as its own.

This module handles rows on which a step fails. Where a user's function raises, the error names the rows, or they are found by
halving and quarantined; exhausted memory is the business of `core.ranges.out_of_memory`.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curator_df.core.host_blocks import host_block
from curator_df.core.planning.concurrency import is_offloaded
from curator_df.core.planning.program import Step, run_step
from curator_df.core.ranges.blocks import QUARANTINE, Outcome, block_bytes, row_error
from curator_df.core.ranges.out_of_memory import (
    FIRST_ROWS,
    MOST_IN_A_ROW,
    RowsLackMemoryError,
    UnitLog,
    UnitRows,
    has_room,
    is_out_of_memory,
    row_without_memory,
    shortest_row,
)
from curator_df.core.ranges.range_action import LeavesOut, RangeAction
from curator_df.core.ranges.source import ADDRESS, OFFSET_BITS, BadRow, RowChoice, among
from curator_df.core.ranges.step_counts import StepCounts
from curator_df.errors import CuratorError, OperatorError, RowCountError, type_and_text
from curator_df.memory.limits import release_free_memory
from curator_df.memory.sizes import show_count
from curator_df.memory.wall import started_processes

NO_CHILDREN = "daemonic processes are not allowed to have children"
"""Text of the error that multiprocessing raises when a pool is started in a worker."""
WITHOUT_IDS = (
    "on_error='quarantine' is set, but an earlier step replaced the index, which has the row IDs, so the rows cannot be "
    "quarantined. Keep the index in that step"
)
OnError = Literal["raise", "quarantine"]
"""Policy for a user's function that raises: stop, or quarantine the rows on which it does."""


class StepRunner:
    """Steps that run on every block of a range, one after the other."""

    def __init__(
        self,
        steps: Sequence[Step],
        number: int,
        *,
        files: Sequence[str],
        on_error: OnError,
        halves: bool,
        gives_up: bool = True,
        log: UnitLog,
        set_aside: Callable[[BadRow], None],
        reject: Callable[[Step, Any, Outcome], None],
    ) -> None:
        self.steps, self.tallies = steps, [StepCounts() for _ in steps]
        self.rows_left_out = 0
        """Number of rows that the reader left out because of `row_choice`."""
        self._files, self._on_error, self._halves, self._log = files, on_error, halves, log
        self._set_aside, self._reject, self._gives_up = set_aside, reject, gives_up
        self._prepared = {
            n: s.action.of_range(number) for n, s in enumerate(steps) if isinstance(s.action, RangeAction)
        }
        self._holding: dict[int, Any] = {
            place: of_range for place, of_range in self._prepared.items() if steps[place].action.holds_rows
        }
        self._failed_in_a_row, self._has_passed = [0] * len(steps), [False] * len(steps)
        self._unit_rows = [UnitRows() for _ in steps]

    def run(self, blocks: list[Any], first: int = 0) -> Iterator[Any]:
        """Yield the rows of blocks that pass these steps, in order; in parts if memory ran out or rows were made.

        The list is emptied, so that a block is released as soon as a step has replaced it.
        """
        waiting = [(first, block) for block in reversed(blocks)]
        blocks.clear()
        while waiting:
            place, part = waiting.pop()
            part_bytes = block_bytes(part)  # once for each block between two steps, because it takes time
            while place < len(self.steps):
                if 0 < (most := self._unit_rows[place].most) < len(part):
                    waiting.append((place, part.iloc[most:]))
                    part = part.iloc[:most]
                    part_bytes = block_bytes(part)
                if place in self._holding:
                    self._hold(place, part)
                    break
                try:
                    taken, outcome, seconds = self._run_step(place, part)
                except Exception as exc:
                    if not (self._may_halve(place) and is_out_of_memory(exc)):
                        raise
                    others = waiting[-1][1] if waiting and waiting[-1][0] == place else None
                    waiting += self._smaller(place, part, others, exc)
                    break
                self._unit_rows[place].passed(len(part), part_bytes)
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

    def rest(self, check: Callable[[], None]) -> Iterator[Any]:
        """Yield the rows that a step held, and that pass it and later ones, when all rows of the range were run.

        ``check`` is called while it waits and before each block; it raises an error if the task has to stop.
        """
        for place, holding in self._holding.items():
            holding.wait(check)
            step, started = self.steps[place], time.perf_counter()
            for taken, outcome in holding.decided(step.name):
                check()
                seconds, bytes_in = time.perf_counter() - started, block_bytes(taken)
                self._log.enter(step.name, taken)
                self._count(place, len(taken), outcome, seconds, bytes_in)
                self._keep_rejects(place, taken, outcome)
                yield from self.run([outcome.block], place + 1)
                started = time.perf_counter()

    def _hold(self, place: int, block: Any) -> None:
        step = self.steps[place]
        self._log.enter(step.name, block)
        self.tallies[place].seconds += run_step(step, block, self._holding[place])[1]
        self._log.leave()

    def close(self) -> None:
        """End the range for the steps that held its rows, also if it failed."""
        for holding in self._holding.values():
            holding.close()

    def row_choice(self, required: npt.NDArray[np.int64] | None) -> RowChoice | None:
        """Return which rows to read; None for all.

        They are those with the ``required`` row IDs; or, if that is None, all except the rows that the first steps drop by their
        row IDs alone. These steps count what the reader leaves out. Both are not combined: a row that is not required may be one
        that cannot be read, which no step counts.
        """
        if required is not None:
            return among(required)
        dropping: list[Any] = [self._prepared[place] for place in range(leading_drops(self.steps))]
        return functools.partial(self._choose, dropping) if dropping else None

    def _choose(self, dropping: Sequence[LeavesOut], addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        wanted = np.ones(len(addresses), dtype=np.bool_)
        for place, step in enumerate(dropping):
            going = step.left_out(addresses[wanted])
            rows = int(going.sum())
            self.tallies[place].leave_out(rows, step.reason)
            for tally, earlier in zip(self.tallies, dropping[:place], strict=False):
                tally.rows_in, tally.rows_out = tally.rows_in + rows, tally.rows_out + rows
                earlier.note_passed(rows)
            self.rows_left_out += rows
            wanted[wanted] = ~going
        return wanted

    @property
    def elsewhere_seconds(self) -> float:
        """Time spent so far in steps whose work is done elsewhere, in seconds."""
        both = zip(self.steps, self.tallies, strict=True)
        return sum(tally.seconds for step, tally in both if is_offloaded(step))

    @property
    def fitting_share(self) -> float:
        """Largest part of a block that every step had memory for, if blocks had to be split; 0 otherwise."""
        return min((unit.share for unit in self._unit_rows if unit.share), default=0.0)

    def finish(self) -> None:
        """Check that the range was the same as in the first pass."""
        for number, of_range in self._prepared.items():
            of_range.finish(self.steps[number].name)

    def _may_halve(self, place: int) -> bool:
        # An action prepared for the range has already recorded some of its rows, and cannot accept them again.
        return self._halves and place not in self._prepared

    def _run_step(self, place: int, block: Any) -> tuple[Any, Outcome | None, float]:
        """Return the rows that a step processed, its outcome and its seconds; nothing is counted if it raises.

        The outcome is None if all rows were quarantined.
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
            # A process that a step starts may fail because of those that others have started; then all is tried alone first.
            is_first = bool(started_processes(exc)) and not self._log.is_alone
            # Rows can be quarantined only if there are any, and if they have addresses.
            if self._on_error == "raise" or is_first or not len(block) or block.index.name != ADDRESS:
                raise operator_error(step, block, exc, self._files) from exc
            block = without_failing_rows(step, block, self._files, failing.append)
            outcome = self._run_on_others(step, block)
            # Including earlier attempts: a step that queries a server got its answers in these, and the last one is fast.
            seconds = time.perf_counter() - started
            if outcome is None:
                self.tallies[place].seconds += seconds
        for row in failing:
            self._set_aside(row)
        if outcome is not None and outcome.failed:
            set_aside = self._set_aside if self._on_error == "quarantine" else None
            block = without_failed_rows(step, block, outcome.failed, self._files, set_aside)
            outcome = replace(outcome, failed={})
        return block, outcome, seconds

    def _run_on_others(self, step: Step, block: Any) -> Outcome | None:
        """Run a step on the remaining rows; None if no row remains: its result for no rows is then unknown."""
        if not len(block):
            return None
        try:
            return run_step(step, block)[0]
        except Exception as exc:
            if isinstance(exc, CuratorError) or is_out_of_memory(exc):
                raise
            raise operator_error(step, block, exc, self._files) from exc

    def _parts(self, place: int, block: Any, outcome: Outcome) -> Iterator[list[Any]]:
        """Yield the results of a step that makes rows, part by part; each list is emptied before the next is made."""
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
        """Count the results of a step for a number of rows; return the bytes of its output."""
        step, removed = self.steps[place], rows_in - len(outcome.block)
        self._log.leave()
        by_reason = sum(outcome.dropped.values())
        if step.action.is_rowwise and not step.action.makes_rows and removed != by_reason:
            raise RowCountError(
                f"step {step.name!r} got {show_count(rows_in, 'row')}, returned {len(outcome.block):,} and gave reasons for "
                f"{by_reason:,} removed rows, but every removed row needs a reason. If you wrote the step, count each "
                "removed row in dropped= of its Outcome; otherwise this is a defect in curator_df, so please report it"
            )
        self._failed_in_a_row[place], self._has_passed[place] = 0, True
        bytes_out = block_bytes(outcome.block)
        self.tallies[place].add(outcome, rows_in, seconds, bytes_in, bytes_out)
        return bytes_out

    def _keep_rejects(self, place: int, block: Any, outcome: Outcome) -> None:
        if outcome.rest is None and len(outcome.block) < len(block):
            self._reject(self.steps[place], block, outcome)

    def _smaller(self, place: int, block: Any, others: Any, exc: Exception) -> list[tuple[int, Any]]:
        """Return the block as it waits for the step that ran out of memory, to get fewer rows; quarantine a single row.

        ``others`` are rows that wait for the same step.
        """
        traceback.clear_frames(exc.__traceback__)  # they refer to the results of the step
        release_free_memory()
        self._unit_rows[place].failed(len(block), block_bytes(block))
        if len(block) > 1:
            return [(place, block)]
        if not self._gives_up:
            raise exc  # there may be room for it without the rest of its block
        step = self.steps[place]
        said = str(exc) or type(exc).__name__
        self._failed_in_a_row[place] += 1
        if not has_room():
            raise RowsLackMemoryError(
                f"step {step.name!r} ran out of memory on a single row, and hardly any memory of the worker is free ({said}). "
                "Start the cluster with a larger memory=, and repeat the run with on_existing='resume'"
            ) from exc
        if self._fails_on_every_row(place, others):
            raise RowsLackMemoryError(
                f"step {step.name!r} ran out of memory on several single rows in succession, although each had all the "
                f"working memory. So the step itself needs more memory than is available ({said}). Start the cluster with a "
                "larger memory=, and repeat the run with on_existing='resume'"
            ) from exc
        reason = (
            f"out of memory: step {step.name!r} raised {type(exc).__name__} on this row, which ran exclusively: {said}"
        )
        self._set_aside(row_without_memory(block, self._files, reason))
        return []

    def _fails_on_every_row(self, place: int, others: Any) -> bool:
        """Return whether the rows are not the reason: many failed, or the first ones and the shortest of those that wait."""
        failed = self._failed_in_a_row[place]
        if failed > MOST_IN_A_ROW:
            return True
        if self._has_passed[place] or failed != FIRST_ROWS or others is None:
            return False
        try:
            run_step(self.steps[place], shortest_row(others))
        except Exception as exc:  # noqa: BLE001 - another error of a row comes again when it is its turn
            traceback.clear_frames(exc.__traceback__)
            release_free_memory()
            return is_out_of_memory(exc)
        return False


def leading_drops(steps: Sequence[Step]) -> int:
    """Return the number of first steps that only drop rows that are known by their row IDs."""
    return sum(1 for _ in itertools.takewhile(lambda step: step.action.drops_by_address, steps))


def may_be_users(step: Step) -> bool:
    """Return whether a step runs a function that the user wrote."""
    return step.action.is_users


def operator_error(step: Step, block: Any, exc: Exception, files: Sequence[str]) -> OperatorError:
    """Return the error that names the step and the rows of the block."""
    raised = f"step {step.name!r} raised {type_and_text(exc)} on a block"
    started = started_processes(exc)
    fix = f"{started}. Start the cluster with more memory=, fix the function" if started else "Fix the function"
    if NO_CHILDREN in str(exc):
        fix = (
            "Workers are daemonic processes, in which multiprocessing starts no others. In the function, use threads "
            "(concurrent.futures.ThreadPoolExecutor) or subprocess, or remove the pool: blocks are processed concurrently anyway"
        )
    remedy = getattr(exc, "remedy", fix)
    error = _operator_error(raised, remedy, block, files)
    error.may_be_memory = bool(started)
    return error


def _operator_error(raised: str, remedy: str, block: Any, files: Sequence[str]) -> OperatorError:
    if not len(block):
        return OperatorError(f"{raised} without rows, which earlier steps may produce. {remedy}")
    rows = f"of {show_count(len(block), 'row')}"
    if block.index.name == ADDRESS:  # a user's function may have changed the index
        first, last = int(block.index[0]), int(block.index[-1])
        end = _place(last, files)
        if first >> OFFSET_BITS == last >> OFFSET_BITS:
            end = end.removeprefix(f"{files[last >> OFFSET_BITS]} ")
        rows += f", from {_place(first, files)} to {end}"
    return OperatorError(
        f"{raised} {rows}. {remedy}, or quarantine such rows with on_error='quarantine', which needs the index that the reader "
        "created"
    )


def _place(address: int, files: Sequence[str]) -> str:
    file, offset = address >> OFFSET_BITS, address & ((1 << OFFSET_BITS) - 1)
    return f"{files[file]} offset {offset:,}"


def without_failing_rows(step: Step, block: Any, files: Sequence[str], set_aside: Callable[[BadRow], None]) -> Any:
    """Find the rows on which a step raises, by halving; quarantine them and return the others, possibly none."""
    failing: dict[int, str] = {}
    waiting, in_a_row = [(0, len(block))], 0
    while waiting:
        start, stop = waiting.pop()
        exc = _raised(step, block.iloc[start:stop])
        if exc is None:
            in_a_row = 0
            continue
        if stop - start == 1:
            in_a_row += 1
            if in_a_row > MOST_IN_A_ROW and started_processes(exc):  # each try takes long, and it is not the rows
                raise operator_error(step, block, exc, files)
            failing[start] = f"step {step.name!r} raised {type_and_text(exc)}"
        else:
            middle = (start + stop) // 2
            waiting += [(middle, stop), (start, middle)]
    if not failing:
        raise OperatorError(
            f"step {step.name!r} raises on a block of {show_count(len(block), 'row')} but not on smaller parts of it, so "
            "no single row is at fault. The function may keep state between calls, or need a certain number of rows. Make its "
            "result depend on the rows alone"
        )
    places = np.array(list(failing))
    for row in _failed_rows(block.iloc[places], failing.values(), files):
        set_aside(row)
    return block.iloc[np.delete(np.arange(len(block)), places)]


def without_failed_rows(
    step: Step, block: Any, failed: Mapping[int, str], files: Sequence[str], set_aside: Callable[[BadRow], None] | None
) -> Any:
    """Quarantine the rows that an outcome names as failed (`Outcome.failed`), and return the others.

    Raises
    ------
    OperatorError
        If ``set_aside`` is None, or the rows have no address.
    """
    places = np.array(sorted(failed))
    has_addresses = block.index.name == ADDRESS
    if set_aside is None or not has_addresses:
        place = _place(int(block.index[places[0]]), files) if has_addresses else ""
        raise row_error(step.name, failed, place, QUARANTINE if set_aside is None else WITHOUT_IDS)
    reasons = [f"step {step.name!r} {failed[place]}" for place in places.tolist()]
    for row in _failed_rows(block.iloc[places], reasons, files):
        set_aside(row)
    return block.iloc[np.delete(np.arange(len(block)), places)]


def _raised(step: Step, part: Any) -> Exception | None:
    try:
        run_step(step, part)
    except Exception as exc:
        if isinstance(exc, CuratorError) or is_out_of_memory(exc):
            raise
        return exc
    return None


def _failed_rows(rows: Any, reasons: Iterable[str], files: Sequence[str]) -> Iterator[BadRow]:
    # All in one call, which takes a millisecond even for one row. Not splitlines: texts may contain U+2028.
    records = host_block(rows).to_json(orient="records", lines=True, force_ascii=False).strip("\n").split("\n")
    for address, reason, record in zip(rows.index.to_numpy().tolist(), reasons, records, strict=True):
        path, offset = files[address >> OFFSET_BITS], address & ((1 << OFFSET_BITS) - 1)
        yield BadRow(os.fspath(path), 0, offset, reason, record.encode())


def require_kept_addresses(step: Step, before: Any, after: Any) -> None:
    """Raise an error unless the rows that a step returned have row IDs of the block it received, in order.

    Parameters
    ----------
    step : Step
        Step to check; nothing is checked unless a later step or pass uses row IDs.
    before, after : pandas.DataFrame or cudf.DataFrame
        Block that the step received, and block that it returned.

    Raises
    ------
    OperatorError
        If there are other row IDs, or they are repeated or reordered.
    """
    if not step.addresses_for or after.index is before.index:
        return
    fault = _fault(before.index.to_numpy(), after.index.to_numpy())
    if not fault and len(after) < len(before) and after.index.name != before.index.name:
        fault = "the index is a new one"  # numbers from 0 look like row IDs in the first block of a Parquet file
    if fault:
        raise OperatorError(
            f"step {step.name!r} changed the index: of the {len(after):,} rows that it returned for a block of {len(before):,}, "
            f"{fault}. The index contains the row IDs, by which {step.addresses_for} identifies rows. Keep the index of "
            "the block, without reset_index or set_index; or run the chain up to this step with checkpoint(df, path), and use "
            "the table that it returns, which has new row IDs"
        )


def _fault(before: Any, after: Any) -> str:
    """Return the fault in the row IDs after a step; empty if there is none."""
    if not len(after):
        return ""
    if after.dtype != before.dtype or not len(before):
        return f"none has a row ID (the index has the type {after.dtype})"
    places = np.minimum(np.searchsorted(before, after), len(before) - 1)
    strange = int((before[places] != after).sum())
    if strange:
        return f"{strange:,} have an index value that is not in the block"
    # Rows made from one row, as by a split, share its row ID until they are joined again.
    shared = bool((before[1:] == before[:-1]).any())
    moved = after[1:] < after[:-1] if shared else after[1:] <= after[:-1]
    return f"{int(moved.sum()):,} are repeated or reordered" if moved.any() else ""

# SPDX-License-Identifier: Apache-2.0
"""Choose whether the last deferred operation of a run is decided while the rows are written, without a pass of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from curator_df.core.planning.branches import Fork
from curator_df.core.planning.program import Step
from curator_df.core.planning.row_estimate import estimate_kept
from curator_df.core.ranges.range_action import NeedsPassesError
from curator_df.core.ranges.source import OFFSET_BITS, Ranges, Source
from curator_df.errors import OversizeRowError, StepMemoryError
from curator_df.memory.budget import Layout
from curator_df.memory.sizes import show_size

LEAST_BYTES = 64_000_000
"""Size of the input's text in bytes below which a pass of its own is not worth saving."""
MOST_SHARE = 0.5
"""Maximum share of a worker's working memory for what waits: the blocks need the rest."""
HELD_FACTOR = 1.25
"""Memory of the rows of a range that wait for their turn, as a multiple of the bytes of its text."""
ROW_BYTES, COLUMN_BYTES = 32, 9
"""Memory of each of these rows beyond its text: its key and its address, and for each column an offset and a mark for null."""
HELD_FIXED_BYTES = 1_000_000
"""Memory beyond that: an input split is a little longer than it is meant to be."""
MAY_NEED_PASSES = (NeedsPassesError, OversizeRowError, StepMemoryError)
"""Errors of a run in one pass after which more passes may succeed: in these, blocks and rows have all of the memory."""
HELD_BY_TASK = "rows of an input split"


def in_one_pass(
    joined: Fork, layout: Layout, range_bytes: Callable[[Source], int], ranges: Ranges | None = None
) -> Fork:
    """Return the fork with its last deferred operation decided in input order, if that is possible and fits; else unchanged.

    Parameters
    ----------
    joined : Fork
        Outputs of the run.
    layout : Layout
        Processes, threads and memory.
    range_bytes : callable
        Function that returns the size of a range.
    ranges : Ranges, optional
        Ranges of a run that was started.
    """
    first, *others = joined.branches
    if others or layout.nodes > 1 or not first.sink.folder.is_local or joined.source.text_bytes < LEAST_BYTES:
        return joined
    program = first.program
    place = max((n for n, step in enumerate(program.steps) if step.is_pending), default=-1)
    if place < 0 or any(step.on_device for step in program.steps):
        return joined
    step, source = program.steps[place], joined.source
    if ordered_step(step, 0, 0) is None:
        return joined
    ranges = source.cut(range_bytes(source)) if ranges is None else ranges
    rows = estimate_kept(dataclasses.replace(program, steps=program.steps[:place]), ranges)
    text_bytes = max(range_bytes(source), largest_text(source, ranges))
    held_rows = int(rows * text_bytes / max(source.text_bytes, 1)) + 1
    held_bytes = int(text_bytes * HELD_FACTOR) + held_rows * (ROW_BYTES + COLUMN_BYTES * joined.most_columns)
    ordered = ordered_step(step, rows, held_bytes + HELD_FIXED_BYTES)
    if ordered is None:
        return joined
    waiting = ordered.price.held_bytes + layout.threads * ordered.price.held_by_task[HELD_BY_TASK]
    if waiting > layout.work_bytes * MOST_SHARE:
        return joined
    return _with_step(joined, place, ordered)


def largest_text(source: Source, ranges: Ranges) -> int:
    """Return the approximate bytes of the text of the largest range, if that is part of one file; at least the mean.

    Ranges of several files are small ones, which were put together up to the size of a range.
    """
    first, start, last, stop = ranges.table.T
    rows = source.about_rows()
    lengths = (stop - start)[(first == last) & (stop < 1 << OFFSET_BITS)]  # a larger end stands for that of the file
    of_one = source.text_bytes / max(source.input_bytes if rows is None else rows, 1)
    return max(int(lengths.max(initial=0) * of_one), source.text_bytes // max(len(ranges), 1))


def ordered_step(step: Step, rows: int, held_bytes: int) -> Step | None:
    """Return a deferred step that is decided in input order, with the memory that this costs; None if it cannot be."""
    pending = None if step.pending is None or step.pending.is_stored else step.pending.in_order(rows, held_bytes)
    if pending is None:
        return None
    price = dataclasses.replace(
        step.price,
        held_bytes=step.price.held_bytes + pending.ordered.held_bytes,
        held_by_task={**step.price.held_by_task, HELD_BY_TASK: pending.ordered.most_held_bytes},
    )
    action: Any = step.action
    return dataclasses.replace(step, action=dataclasses.replace(action, pending=pending), price=price)


def in_all_passes(joined: Fork) -> Fork:
    """Return the fork with all deferred operations decided in passes of their own."""
    for place, step in enumerate(joined.branches[0].program.steps):
        if step.pending is not None and step.pending.ordered is not None:
            held = {name: size for name, size in step.price.held_by_task.items() if name != HELD_BY_TASK}
            held_bytes = step.price.held_bytes - step.pending.ordered.held_bytes
            price = dataclasses.replace(step.price, held_bytes=held_bytes, held_by_task=held)
            pending: Any = dataclasses.replace(step.pending, ordered=None)  # type: ignore[type-var]
            action: Any = step.action
            changed = dataclasses.replace(step, action=dataclasses.replace(action, pending=pending), price=price)
            joined = _with_step(joined, place, changed)
    return joined


def passes_after(exc: Exception, joined: Fork) -> tuple[Fork, str]:
    """Return the fork with all passes after an error of `MAY_NEED_PASSES`, and the reason; raise the error if it had them."""
    in_passes = in_all_passes(joined)
    if in_passes is joined:
        raise exc
    lacks_memory = not isinstance(exc, NeedsPassesError)
    return in_passes, "the rows that wait for their turn leave too little memory" if lacks_memory else str(exc)


def said_of_order(steps: Iterable[Step]) -> Iterator[tuple[str, str]]:
    """Yield what a plan says about steps that are decided in input order."""
    for step in steps:
        if step.pending is not None and step.pending.ordered is not None:
            held = show_size(step.pending.ordered.held_bytes)
            said = (
                f"{step.name} is decided in input order while the rows are written, without a pass of its own: its keys take "
                f"{held} in each worker, and the rows of each input split wait in memory for their turn"
            )
            yield "one pass", said


def _with_step(joined: Fork, place: int, step: Step) -> Fork:
    [branch] = joined.branches
    steps = (*branch.program.steps[:place], step, *branch.program.steps[place + 1 :])
    program = dataclasses.replace(branch.program, steps=steps)
    return dataclasses.replace(joined, branches=(dataclasses.replace(branch, program=program),))

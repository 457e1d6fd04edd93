# SPDX-License-Identifier: Apache-2.0
"""Choose whether the last pending operation of a run is decided while the rows are written, without a pass of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from curator_df.core.planning.branches import Fork
from curator_df.core.planning.program import Step
from curator_df.core.planning.row_estimate import estimate_kept
from curator_df.core.ranges.source import Ranges, Source
from curator_df.memory.budget import Layout
from curator_df.memory.sizes import show_size

LEAST_BYTES = 64_000_000
"""Size of the input's text in bytes below which a pass of its own is not worth saving."""
MOST_SHARE = 0.5
"""Maximum share of a worker's working memory for what waits: the blocks need the rest."""
HELD_FACTOR = 1.25
"""Memory of the rows of a range that wait for their turn, as a multiple of the bytes of its text."""
HELD_FIXED_BYTES = 1_000_000
"""Memory beyond that: an input split is a little longer than the mean, and rows have addresses and keys."""
HELD_BY_TASK = "rows of an input split"


def in_one_pass(
    joined: Fork, layout: Layout, range_bytes: Callable[[Source], int], ranges: Ranges | None = None
) -> Fork:
    """Return the fork with its last pending operation decided in input order, if that is possible and fits; else unchanged.

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
    ranges = source.cut(range_bytes(source)) if ranges is None else ranges
    before = dataclasses.replace(program, steps=program.steps[:place])
    text_bytes = max(range_bytes(source), source.text_bytes // max(len(ranges), 1))
    ordered = ordered_step(step, estimate_kept(before, ranges), int(text_bytes * HELD_FACTOR) + HELD_FIXED_BYTES)
    if ordered is None:
        return joined
    waiting = ordered.price.held_bytes + layout.threads * ordered.price.held_by_task[HELD_BY_TASK]
    if waiting > layout.work_bytes * MOST_SHARE:
        return joined
    return _with_step(joined, place, ordered)


def ordered_step(step: Step, rows: int, held_bytes: int) -> Step | None:
    """Return a pending step that is decided in input order, with the memory that this costs; None if it cannot be."""
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
    """Return the fork with all pending operations decided in passes of their own."""
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

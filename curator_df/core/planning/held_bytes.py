# SPDX-License-Identifier: Apache-2.0
"""Memory of a worker in addition to its blocks: models, tables and packages, texts of any length, and pages of files."""

from __future__ import annotations

from collections.abc import Sequence

from curator_df.core.memory.budget import Layout
from curator_df.core.memory.resources import Capacity
from curator_df.core.planning.branches import Fork
from curator_df.core.planning.program import Step
from curator_df.core.planning.task_factor import passes_over_others, task_factor

KERNEL_FIXED_BYTES = 20_000_000
"""Part of `TASK_FIXED_BYTES` that a step may use whatever its block, in bytes; a plan adds memory for larger needs."""


def steps_of(joined: Fork) -> list[Step]:
    """Return all steps of a run, including those of passes over other tables."""
    steps = list(joined.stem)
    for branch in joined.branches:
        steps += joined.own_steps(branch)
    for program, _ in passes_over_others(joined):
        steps += program.steps
    return steps


def held_bytes_of(joined: Fork, capacity: Capacity, tasks: int) -> int:
    """Return the memory of each worker in addition to blocks: once, in each task beyond its room, and in concurrent calls."""
    steps = steps_of(joined)
    beyond = max((step.action.fixed_bytes for step in steps), default=0) - KERNEL_FIXED_BYTES
    longest = int(max((step.action.row_bytes for step in steps), default=0) * task_factor(joined))
    calls = sum(capacity.at_once(step.action.resources, tasks) * step.action.resource_bytes for step in steps)
    return _held_once(steps) + tasks * (max(beyond, 0) + longest + page_bytes_of(joined)) + calls


def page_bytes_of(joined: Fork) -> int:
    """Return the memory that a task needs for pages of its files, in addition to blocks."""
    sources = [joined.source, *(program.source for program, _ in passes_over_others(joined))]
    return max(source.reader_fixed_bytes for source in sources)


def kept_bytes_of(steps: Sequence[Step], layout: Layout) -> dict[str, int]:
    """Return the memory of packages from earlier runs that these steps do not count themselves, by package."""
    counted = {name for step in steps for name in step.action.libraries}
    return {name: kept_bytes for name, kept_bytes in layout.kept if name not in counted}


def _held_once(steps: Sequence[Step]) -> int:
    """Return the memory of a worker for all calls: packages and weights count once, however many steps use them."""
    together: dict[str, int] = {}
    for step in steps:
        for name, size in step.held_together.items():
            together[name] = max(together.get(name, 0), size)
    own = (max(step.action.held_bytes - sum(step.held_together.values()), 0) for step in steps)
    return sum(own) + sum(together.values())

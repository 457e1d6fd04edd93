# SPDX-License-Identifier: Apache-2.0
"""Sum of the prices of the steps of a run: the peak host memory of a task, and what its worker keeps in addition to blocks.

At its peak, a task needs the memory that the reader needs to make a block, or the block and a step's extra memory, or the block
and the writer's extra memory; one more block always waits in each writer for its row group. After a fork, the block that
the branches share stays in memory in addition to the one that a branch has made from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from curator_df.core.columns import column_bytes
from curator_df.core.planning.branches import Fork
from curator_df.core.planning.program import Program, Step
from curator_df.memory.budget import Layout
from curator_df.memory.resources import Capacity

TASK_FIXED_BYTES = 40_000_000
"""Fixed memory of a task in bytes: a codec's state, allocator arenas, Python objects of a slice. Measured (private
resident bytes, Gopher chain to Parquet): 52, 98, 156 and 235 MB with blocks of 4, 16, 32 and 64 MB.
"""
TASK_SLACK_BYTES = 6_000_000
"""Fixed memory of a task in bytes: pieces in transit, a read of pages and its rows, bounds and index, allocator rounding."""
SLACK_FACTOR = 0.5
"""Memory multiplier added to every task's factor: partial lines, decompressor windows, rounding, pages not yet returned."""


KERNEL_FIXED_BYTES = 20_000_000
"""Part of `TASK_FIXED_BYTES` that a step may use whatever its block, in bytes; a plan adds memory for larger needs."""


def task_bytes(block_bytes: int, factor: float) -> int:
    """Return the peak bytes of a task with blocks (or a row) of this size."""
    return TASK_FIXED_BYTES + int(block_bytes * factor)


def largest_block(work_bytes: int, factor: float) -> int:
    """Return the largest block (or row) for which a task stays within ``work_bytes``: the inverse of `task_bytes`."""
    return max(0, int((work_bytes - TASK_FIXED_BYTES) / factor))


def task_factor(joined: Fork) -> float:
    """Return the peak memory of a task as a multiple of its block's bytes."""
    worst = max(joined.source.reader_factor, 1.0 + max_peak_factor(joined.stem))
    held = held_blocks(joined.stem)
    kept = 0.0
    for branch in joined.branches:
        own = joined.own_steps(branch)
        others = 1.0 if own and len(joined.branches) > 1 else 0.0  # the block that other branches still need
        others += held
        worst = max(worst, 1.0 + others + max(max_peak_factor(own), held_blocks(own) + branch.sink.writer_factor))
        kept += 1.0 + (1.0 if branch.rejects is not None else 0.0)
    return worst + kept + SLACK_FACTOR


def passes_over_others(joined: Fork) -> list[tuple[Program, float]]:
    """Return the programs of the other tables whose rows deferred steps have yet to read, with the factor of the writer."""
    every = [one for step, pending in joined.waiting for one in pending.passes(step.name)]
    return [(one.of_other, one.writer_factor) for one in every if one.of_other is not None]


def others_factor(joined: Fork) -> float:
    """Return `task_factor` for passes over other tables; 0 if there are none."""
    factors = (
        max(
            program.source.reader_factor,
            1.0 + max(max_peak_factor(program.steps), held_blocks(program.steps) + writer_factor),
        )
        for program, writer_factor in passes_over_others(joined)
    )
    return max(factors, default=-1.0 - SLACK_FACTOR) + 1.0 + SLACK_FACTOR


def max_peak_factor(steps: Sequence[Step]) -> float:
    """Return the largest peak of consecutive steps, as a multiple of their block, with what earlier ones hold; 0 for none."""
    factors = (held_blocks(steps[:place]) + step.price.peak_factor for place, step in enumerate(steps))
    return max(factors, default=0.0)


def held_blocks(steps: Sequence[Step]) -> float:
    """Return the number of blocks that stay in memory after these steps because they split rows into parts."""
    return float(sum(step.action.is_rowwise and step.action.makes_rows for step in steps))


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
    beyond = max((step.price.fixed_bytes for step in steps), default=0) - KERNEL_FIXED_BYTES
    longest = int(max((step.price.row_bytes for step in steps), default=0) * task_factor(joined))
    calls = sum(capacity.at_once(step.price.resources, tasks) * step.price.resource_bytes for step in steps)
    by_name: dict[str, int] = {}
    for step in steps:
        for name, size in step.price.held_by_task.items():
            by_name[name] = max(by_name.get(name, 0), size)
    each_task = max(beyond, 0) + longest + page_bytes_of(joined) + sum(by_name.values())
    return _held_once(steps) + tasks * each_task + calls


def page_bytes_of(joined: Fork) -> int:
    """Return the memory that a task needs for pages of its files and for many columns, in addition to blocks."""
    sources = [joined.source, *(program.source for program, _ in passes_over_others(joined))]
    return max(source.reader_fixed_bytes for source in sources) + column_bytes(joined.most_columns)


def kept_bytes_of(steps: Sequence[Step], layout: Layout) -> dict[str, int]:
    """Return the memory of packages from earlier runs that these steps do not count themselves, by package."""
    counted = {name for step in steps for name in step.price.libraries}
    return {name: kept_bytes for name, kept_bytes in layout.kept if name not in counted}


def _held_once(steps: Sequence[Step]) -> int:
    """Return the memory of a worker for all calls: packages and weights count once, however many steps use them."""
    together: dict[str, int] = {}
    for step in steps:
        for name, size in step.price.held_together.items():
            together[name] = max(together.get(name, 0), size)
    own = (max(step.price.held_bytes - sum(step.price.held_together.values()), 0) for step in steps)
    return sum(own) + sum(together.values())

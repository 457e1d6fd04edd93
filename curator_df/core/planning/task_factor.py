# SPDX-License-Identifier: Apache-2.0
"""The peak bytes of a task on the host: so many times its block, and something whatever the block.

A task holds, at its worst moment: what the reader needs to make a block, or the block and what a step adds to it, or
the block and what the writer adds; and at all times one block that waits in each writer for its row group. Behind a fork
the block that the branches share is held beside the one that a branch has made of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from curator_df.core.exchange.barrier import KEY_WRITER_FACTOR, Barrier
from curator_df.core.exchange.near_barrier import NearBarrier
from curator_df.core.exchange.part_barrier import PartBarrier
from curator_df.core.exchange.row_count import RowCount
from curator_df.core.exchange.vector_barrier import VectorBarrier
from curator_df.core.files.storage import JOURNAL_FOLDER
from curator_df.core.planning.branches import Fork
from curator_df.core.planning.program import Program, Step

TASK_FIXED_BYTES = 40_000_000
"""What a task holds whatever its block: a codec's state, allocator arenas, Python objects of a slice. Measured (private
resident bytes, Gopher chain to Parquet): 52, 98, 156 and 235 MB with blocks of 4, 16, 32 and 64 MB."""
SLACK_FACTOR = 0.5
"""Added to every task's factor: rests of lines, decompressor windows, allocator rounding, pages not yet given back."""


def is_found(barrier: Barrier | PartBarrier | NearBarrier | VectorBarrier | RowCount) -> bool:
    """Tell whether what a drop waits for was computed before and kept."""
    if isinstance(barrier, RowCount):
        return False
    return barrier.home is not None and barrier.home.exists(f"{JOURNAL_FOLDER}/receipt.json")


def task_needs(block_bytes: int, factor: float) -> int:
    """Return the peak bytes of a task with such blocks (or with such a row)."""
    return TASK_FIXED_BYTES + int(block_bytes * factor)


def fitting_block(work_bytes: int, factor: float) -> int:
    """Return the largest block (or row) for which a task stays within ``work_bytes``: the inverse of `task_needs`."""
    return max(0, int((work_bytes - TASK_FIXED_BYTES) / factor))


def task_factor(joined: Fork) -> float:
    """Return the peak bytes of a task as a multiple of its block's."""
    worst = max(joined.source.reader_factor, 1.0 + _dearest(joined.stem))
    held = held_blocks(joined.stem)
    kept = 0.0
    for branch in joined.branches:
        own = joined.own_steps(branch)
        beside = 1.0 if own and len(joined.branches) > 1 else 0.0  # the block that other branches still need
        beside += held
        worst = max(worst, 1.0 + beside + max(_dearest(own), held_blocks(own) + branch.sink.writer_factor))
        kept += 1.0 + (1.0 if branch.rejects is not None else 0.0)
    return worst + kept + SLACK_FACTOR


def against_programs(joined: Fork) -> list[Program]:
    """Return what makes the other tables with which rows are still to be compared."""
    barriers = [step.barrier for branch in joined.branches for step in branch.program.steps]
    return [
        barrier.against.program
        for barrier in barriers
        if isinstance(barrier, NearBarrier) and barrier.against is not None and not is_found(barrier)
    ]


def against_factor(joined: Fork) -> float:
    """Return `task_factor` for passes over other tables; 0 where there is none."""
    factors = (
        max(
            program.source.reader_factor,
            1.0 + max(_dearest(program.steps), held_blocks(program.steps) + KEY_WRITER_FACTOR),
        )
        for program in against_programs(joined)
    )
    return max(factors, default=-1.0 - SLACK_FACTOR) + 1.0 + SLACK_FACTOR


def _dearest(steps: Sequence[Step]) -> float:
    factors = (held_blocks(steps[:place]) + step.peak_factor for place, step in enumerate(steps))
    return max(factors, default=0.0)


def held_blocks(steps: Sequence[Step]) -> float:
    """Return how many blocks are held behind these steps because rows are made of them, part by part."""
    return float(sum(step.makes_rows for step in steps))

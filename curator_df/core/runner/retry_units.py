# SPDX-License-Identifier: Apache-2.0
"""Next attempt at a range in which something was too large: a row, a page of a file, or the rows of a step."""

from __future__ import annotations

import dataclasses

from curator_df.core.planning.plan import MIN_BLOCK_BYTES, StagePlan
from curator_df.core.planning.price import task_bytes
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.out_of_memory import (
    SMALLEST_BLOCK_BYTES,
    Cause,
    RowAside,
    RowsLackMemoryError,
    Unit,
    smaller_units,
)
from curator_df.core.tasks.task import Attempt
from curator_df.errors import CuratorError, OversizePageError, OversizeRowError, StepMemoryError, type_and_text
from curator_df.memory.budget import Layout, memory_for_alone
from curator_df.memory.sizes import show_size, show_sizes, size_to_type

MOST_UNITS = 100
"""Maximum number of times that the rows of one range are split into smaller units; more splits would not find the rows."""


def for_long_row(
    attempt: Attempt, row: BaseException | None, stage: StagePlan, layout: Layout, *, sets_aside: bool
) -> Attempt:
    """Return the attempt that reads the oversize row or page exclusively.

    Parameters
    ----------
    attempt : Attempt
        Attempt that failed.
    row : OversizeRowError
        Error of that attempt.
    stage : StagePlan
        Plan of the pass.
    layout : Layout
        Layout of the cluster.
    sets_aside : bool
        Whether a row that is too long even then is left out and quarantined.

    Raises
    ------
    OversizeRowError
        If an exclusive attempt has too little memory; the message names the memory that suffices.
    """
    if not isinstance(row, OversizeRowError):
        raise CuratorError(
            "a task reported a row that is too long, but not which one. This is a defect in curator_df; please report it "
            "with this traceback"
        )
    small = min(attempt.block_bytes, MIN_BLOCK_BYTES)
    if isinstance(row, OversizePageError):
        if attempt.exclusive_bytes is not None:
            needed = task_bytes(small + row.row_bytes, stage.task_factor)
            raise row.that_would_fit(attempt.exclusive_bytes, size_to_type(memory_for_alone(needed, layout))) from row
    elif row.row_bytes > stage.exclusive_row_bytes and not sets_aside:
        needed = task_bytes(row.row_bytes, stage.task_factor)
        need, has = show_sizes(needed, layout.exclusive_bytes)
        raise OversizeRowError(
            f"{row.path} line {row.line:,} (byte {row.offset:,}) is one row of {show_size(row.row_bytes)}. It needs "
            f"{need} of working memory ({stage.task_factor:.1f} x its size), but a task that runs exclusively "
            f"has only {has}. Start the cluster with "
            f"memory={size_to_type(memory_for_alone(needed, layout))}, and repeat the run with on_existing='resume'"
        ) from row
    return dataclasses.replace(attempt, block_bytes=small, largest_row_bytes=stage.exclusive_row_bytes)


def narrowed(attempt: Attempt, unit: Unit, reason: str, error: BaseException, cause: Cause = Cause.MEMORY) -> Attempt:
    """Return an attempt that processes a unit's rows in smaller units, or quarantines its only row."""
    if len(attempt.spans) + len(attempt.aside) >= MOST_UNITS:
        raise error
    if unit.rows == 1:
        return dataclasses.replace(attempt, aside=(*attempt.aside, RowAside(unit.first, reason, cause)))
    return dataclasses.replace(attempt, spans=(*attempt.spans, smaller_units(unit)))


def smaller_block(attempt: Attempt, unit: Unit | None, start_bytes: int) -> int:
    """Return the block size after memory ran out: half, or the smallest at once if a single row of the block did not fit.

    Parameters
    ----------
    attempt : Attempt
        Attempt that failed.
    unit : Unit, optional
        Rows on which it worked, if they are known.
    start_bytes : int
        Block size of new ranges, which is not exceeded.
    """
    if attempt.halves and unit is not None and unit.rows == 1:
        return SMALLEST_BLOCK_BYTES
    return max(min(attempt.block_bytes // 2, start_bytes), SMALLEST_BLOCK_BYTES)


def fitting_start(fitting_bytes: int, layout: Layout, attempt: Attempt) -> int:
    """Return the block size for concurrent tasks from the size that fit an attempt with the memory of all of them.

    Each worker has its own GPU memory, so that only its threads share that.
    """
    if attempt.lacks_device_memory:
        return max(fitting_bytes // layout.threads, SMALLEST_BLOCK_BYTES)
    share = layout.work_bytes / layout.threads / max(layout.exclusive_bytes, layout.work_bytes)
    return max(int(fitting_bytes * share), SMALLEST_BLOCK_BYTES)


def error_of_step(manifest: Manifest) -> CuratorError:
    """Return the error of a run for an allocation that failed in a step, or in the work of a task without steps."""
    error = manifest.error if manifest.error is not None else MemoryError(f"range {manifest.number}")
    if isinstance(error, CuratorError):
        return error
    if isinstance(error, RowsLackMemoryError):
        final = StepMemoryError(str(error))
        final.__cause__ = error
        return final
    named = StepMemoryError(
        f"step {manifest.step!r} ran out of memory: {type_and_text(error)}. Start the cluster with a larger "
        "memory=, and repeat the run with on_existing='resume'"
    )
    named.__cause__ = error
    return named

# SPDX-License-Identifier: Apache-2.0
"""The next attempt at a range in which something was too large: a row, a page of a file, or the rows that a step had."""

from __future__ import annotations

import dataclasses

from curator_df.core.memory.budget import Layout, memory_for_alone
from curator_df.core.planning.plan import MIN_BLOCK_BYTES, StagePlan
from curator_df.core.planning.task_factor import task_needs
from curator_df.core.ranges.out_of_memory import RowAside, Unit, smaller_units
from curator_df.core.sizes import show_size
from curator_df.core.tasks.task import Attempt
from curator_df.errors import CuratorError, OversizePageError, OversizeRowError

MOST_UNITS = 100
"""How often the rows of one range may be taken in smaller units; more, and units do not lead to the rows."""


def for_long_row(
    attempt: Attempt, row: BaseException | None, stage: StagePlan, layout: Layout, *, sets_aside: bool
) -> Attempt:
    """Return the attempt that reads what was too large, alone on the node.

    Parameters
    ----------
    attempt : Attempt
        What was tried.
    row : OversizeRowError
        What it ended with.
    stage : StagePlan
        The pass.
    layout : Layout
        Of the cluster.
    sets_aside : bool
        Whether a row that is too long there, too, is left out and kept aside.

    Raises
    ------
    OversizeRowError
        If that would not do, with the memory that would.
    """
    if not isinstance(row, OversizeRowError):
        raise CuratorError("an oversize task came back without its row; this is a defect in curator_df")
    small = min(attempt.block_bytes, MIN_BLOCK_BYTES)
    if isinstance(row, OversizePageError):
        if attempt.exclusive_bytes is not None:
            needed = task_needs(small + row.row_bytes, stage.task_factor)
            raise row.that_would_fit(attempt.exclusive_bytes, memory_for_alone(needed, layout)) from row
    elif row.row_bytes > stage.exclusive_row_bytes and not sets_aside:
        needed = task_needs(row.row_bytes, stage.task_factor)
        raise OversizeRowError(
            f"{row.path} line {row.line:,} (byte {row.offset:,}) is one row of {show_size(row.row_bytes)}. It needs "
            f"{show_size(needed)} of work memory ({stage.task_factor:.1f} x its size); alone on the node it would "
            f"have {show_size(layout.exclusive_bytes)}. Allow "
            f"memory={memory_for_alone(needed, layout):_} and resume"
        ) from row
    return dataclasses.replace(attempt, block_bytes=small, largest_row_bytes=stage.exclusive_row_bytes)


def narrowed(attempt: Attempt, unit: Unit, reason: str, error: BaseException) -> Attempt:
    """Return an attempt that takes a unit's rows in smaller ones, or sets its only row aside."""
    if len(attempt.spans) + len(attempt.aside) >= MOST_UNITS:
        raise error
    if unit.rows == 1:
        return dataclasses.replace(attempt, aside=(*attempt.aside, RowAside(unit.first, reason)))
    return dataclasses.replace(attempt, spans=(*attempt.spans, smaller_units(unit)))

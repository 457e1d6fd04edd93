# SPDX-License-Identifier: Apache-2.0
"""First steps of a run that several passes need: which they are, whether their rows can be stored, and what a plan says."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from curator_df.core.planning.branches import Fork
from curator_df.core.planning.program import DiskNeed, Step
from curator_df.core.planning.row_estimate import estimate_kept, estimate_row_bytes, may_remove_rows
from curator_df.core.ranges.source import Ranges
from curator_df.memory.sizes import show_size

Reuse = Literal["auto", "always", "never"]
"""Policy for rows that several passes need: store what the first steps made if it pays, always, or never."""
LEAST_BYTES = 256_000_000
"""Size of the input's text in bytes below which ``"auto"`` stores nothing: there are seconds to save at most."""
STORED_SHARE = 0.5
"""Bytes of the stored rows as a share of those of the text, for a plan. Measured: 0.39 for 300 MB of documents."""


def first_steps(joined: Fork) -> tuple[Step, ...]:
    """Return the steps before the first pending one, if all outputs share them and it; else none."""
    for place, step in enumerate(joined.stem):
        if step.is_pending:
            return joined.stem[:place]
    return ()


def passes_over_rows(joined: Fork, finished: Sequence[str] = ()) -> int:
    """Return how many passes over the rows of the run its first steps are part of, including the last pass.

    ``finished`` has the names of deferred steps whose passes were done by an earlier look.
    """
    passes = 1
    for step in joined.stem:
        is_done = step.name in finished or (step.pending is not None and step.pending.is_stored)
        if step.pending is not None and step.is_pending and not is_done:
            passes += sum(one.of_other is None for one in step.pending.passes(step.name))
    return passes


def unstorable(steps: Sequence[Step]) -> str | None:
    """Return the name of the first step after which rows cannot be stored; None if there is none."""
    for step in steps:
        if not step.action.is_rowwise or step.action.makes_rows or step.on_device:
            return step.name
    return None


def may_store(joined: Fork) -> bool:
    """Return whether there are first steps whose rows can be stored for several passes."""
    steps = first_steps(joined)
    return bool(steps) and unstorable(steps) is None and passes_over_rows(joined) > 1


def stored_rows_need(joined: Fork, ranges: Ranges, reuse: Reuse) -> DiskNeed | None:
    """Return the disk space for the rows that first steps leave to several passes; None if none can be stored.

    With ``"auto"``, the run itself decides whether there is room for them.
    """
    if reuse == "never" or not may_store(joined) or (reuse == "auto" and joined.source.text_bytes < LEAST_BYTES):
        return None
    program = dataclasses.replace(joined.branches[0].program, steps=first_steps(joined))
    most = int(estimate_kept(program, ranges) * estimate_row_bytes(program, ranges))
    is_known = reuse == "always" and not may_remove_rows(program)
    usual = int(most * STORED_SHARE) if is_known else 0
    what = f"rows after {program.steps[-1].name}"
    worst = "if it saves time to store rows" if reuse == "auto" else "if their texts cannot be compressed"
    if reuse == "always" and not is_known:
        worst = "if no rows are removed"
    return DiskNeed(what, {what: usual}, usual, most - usual, worst)


def how_to_run_once(joined: Fork) -> str:
    """Return what a plan says about first steps that several passes run; empty if there are none that can be stored."""
    if not may_store(joined):
        return ""
    names, passes = ", ".join(step.name for step in first_steps(joined)), passes_over_rows(joined)
    if joined.source.text_bytes < LEAST_BYTES:
        return (
            f"With reuse='always', {names} would run once instead of {passes} times, and their rows be stored on disk"
        )
    size = show_size(int(joined.source.text_bytes * STORED_SHARE))
    return (
        f"If the first input splits show that it saves time, {names} run once instead of {passes} times: their rows are then "
        f"stored in temporary files, about {size}. reuse='always' or 'never' decides it"
    )

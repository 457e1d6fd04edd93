# SPDX-License-Identifier: Apache-2.0
"""Tally of each step of a program in one task, with the name and the position of the step."""

from __future__ import annotations

from collections.abc import Iterator

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.step_counts import StepCounts
from curator_df.core.tasks.task import Job


def counts_by_step(job: Job, manifest: Manifest) -> Iterator[tuple[int, str, StepCounts]]:
    """Yield position, name and tally of each step that a task ran; steps that outputs share occur once."""
    taken = manifest.rows_read - manifest.rows_quarantined
    first = manifest.steps[0].bytes_in if manifest.steps else 0
    yield 0, "read", StepCounts(taken, taken, manifest.read_seconds, bytes_in=first, bytes_out=first)
    for part in (manifest, *manifest.others):
        steps = job.fork.branches[part.branch].program.steps
        for place, (step, tally) in enumerate(zip(steps, part.steps, strict=True)):
            if part is manifest or place >= job.fork.shared:
                yield place + 1, step.name, tally
        last = part.steps[-1].bytes_out if part.steps else 0
        rows = part.rows_written
        yield len(steps) + 1, "write", StepCounts(rows, rows, part.write_seconds, bytes_in=last, bytes_out=last)

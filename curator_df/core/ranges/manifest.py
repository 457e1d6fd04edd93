# SPDX-License-Identifier: Apache-2.0
"""What a task returns: a few hundred bytes that say what became of its range, and never a block."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from curator_df.core.files.storage import FileRecord
from curator_df.core.ranges.out_of_memory import Unit
from curator_df.core.ranges.step_tally import StepTally


@dataclass
class Manifest:
    """What became of one attempt, in its first branch; ``others`` has what became of it in each other one."""

    number: int
    """Of the range."""
    outcome: Literal["done", "memory", "oversize", "stopped", "failed", "no job"] = "failed"
    """``done``: everything is committed. Otherwise nothing is. ``no job``: the worker was not told yet what to do."""
    rows_read: int = 0
    """Rows that the reader found, bad ones included."""
    rows_written: int = 0
    """Rows in the sink's files."""
    rows_quarantined: int = 0
    """Rows set aside: unreadable ones, ones on which a user's function raised, and the following."""
    rows_out_of_memory: int = 0
    """Of these, rows for which memory did not suffice even when they were alone on the node."""
    steps: list[StepTally] = field(default_factory=list)
    """What each step did."""
    files: list[FileRecord] = field(default_factory=list)
    """The sink's files."""
    summary: dict[str, int] = field(default_factory=dict)
    """What the sink says of the range besides its files."""
    other_files: list[FileRecord] = field(default_factory=list)
    """Files of rejects and quarantine."""
    block_bytes: int = 0
    """Block size of this attempt."""
    largest_block_bytes: int = 0
    """Bytes of the largest block that came: more than ``block_bytes`` where one row is."""
    read_seconds: float = 0.0
    """Time in the reader."""
    write_seconds: float = 0.0
    """Time in the sink."""
    seconds: float = 0.0
    """Time of the task in its worker."""
    elsewhere_seconds: float = 0.0
    """Of this, in steps whose work is done elsewhere."""
    peak_bytes: int = 0
    """Most resident bytes of the worker process (all its threads) up to the end of the task."""
    device_peak_bytes: int | None = None
    """Most bytes that the worker process held of its GPU in this run; None where no block was there."""
    device_spilled_bytes: int | None = None
    """Bytes that it moved from its GPU to the host in this run so far; None likewise."""
    worker: str = ""
    """Host and process number of the worker."""
    idle_bytes: int = 0
    """Private resident bytes of its worker before the first task of the process; 0 where nobody knows."""
    floor_bytes: int = 0
    """What the worker held after the task, when free memory was given back (private pages)."""
    error: BaseException | None = None
    """Why it did not finish."""
    unit: Unit | None = None
    """Rows in work when it did not finish; None if that was not in a step or in the writer."""
    step: str = ""
    """What it worked on last: a step, ``read``, ``write``, or the kind of a task that has no steps."""
    branch: int = 0
    """Place of the branch among those of the job."""
    others: list[Manifest] = field(default_factory=list)
    """One for each other branch for which the range was not finished before."""

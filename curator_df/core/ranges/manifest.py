# SPDX-License-Identifier: Apache-2.0
"""Result of a task, and what the journal stores of it: a few hundred bytes that describe its range, and never a block."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from curator_df.core.ranges.out_of_memory import Unit
from curator_df.core.ranges.step_counts import StepCounts
from curator_df.files.storage import FileRecord


@dataclass
class Manifest:
    """Result of one attempt in its first branch; ``others`` has the results in the other branches."""

    number: int
    """Number of the range."""
    outcome: Literal["done", "memory", "oversize", "stopped", "again", "failed", "no job"] = "failed"
    """Outcome of the attempt. ``done``: everything is committed; otherwise nothing is. ``again``: an earlier range has to run
    first. ``no job``: the worker lacked the job.
    """
    rows_read: int = 0
    """Number of rows that the reader found, including bad ones."""
    rows_written: int = 0
    """Number of rows in the sink's files."""
    rows_quarantined: int = 0
    """Number of quarantined rows: unreadable ones, ones on which a user's function raised, and ``rows_out_of_memory``."""
    rows_out_of_memory: int = 0
    """Number of quarantined rows that did not fit into memory even when processed exclusively."""
    steps: list[StepCounts] = field(default_factory=list)
    """Tally of each step."""
    files: list[FileRecord] = field(default_factory=list)
    """Files of the sink."""
    summary: dict[str, int] = field(default_factory=dict)
    """Further figures of the sink for the range."""
    other_files: list[FileRecord] = field(default_factory=list)
    """Files of rejects and quarantine."""
    block_bytes: int = 0
    """Block size of this attempt in bytes."""
    largest_block_bytes: int = 0
    """Size of the largest block in bytes: more than ``block_bytes`` if one row is longer."""
    fitting_bytes: int = 0
    """Size in bytes of the largest part of a block that each step had memory for, if blocks had to be split for memory."""
    read_seconds: float = 0.0
    """Time in the reader in seconds."""
    write_seconds: float = 0.0
    """Time in the sink in seconds."""
    seconds: float = 0.0
    """Time of the task in its worker in seconds."""
    elsewhere_seconds: float = 0.0
    """Part of that time in steps whose work is done elsewhere, in seconds."""
    peak_bytes: int = 0
    """Peak resident bytes of the worker process (all its threads) up to the end of the task."""
    device_peak_bytes: int | None = None
    """Peak bytes of GPU memory that the worker process used in this run; None if no block was on the GPU."""
    device_spilled_bytes: int | None = None
    """Bytes moved from its GPU to the host in this run so far; None if no block was on the GPU."""
    worker: str = ""
    """Host and process ID of the worker."""
    idle_bytes: int = 0
    """Private resident bytes of its worker before the first task of the process; 0 where nobody knows."""
    floor_bytes: int = 0
    """Private memory of the worker after the task in bytes, after free memory was returned to the system."""
    error: BaseException | None = None
    """Error that stopped the attempt."""
    unit: Unit | None = None
    """Rows in progress when it was stopped; None if that was not in a step or in the writer."""
    step: str = ""
    """Last activity: a step, ``read``, ``write``, or the kind of a task that has no steps."""
    branch: int = 0
    """Index of the branch among those of the job."""
    others: list[Manifest] = field(default_factory=list)
    """Results of the other branches for which the range was not finished before."""


STORED_OF_STEP = ("rows_in", "rows_out", "seconds", "dropped", "counters", "peaks")
"""Fields of a `StepCounts` that the journal stores."""


@dataclass(frozen=True)
class TaskRecord:
    """Record of a finished range or task, as the journal stores it and a receipt counts it."""

    number: int
    """Number of the range or task."""
    rows_read: int = 0
    """Number of rows that the reader found, including bad ones; for a merge, the rows that it merged."""
    rows_written: int = 0
    """Number of rows in the sink's files."""
    rows_quarantined: int = 0
    """Number of quarantined rows, including ``rows_out_of_memory``."""
    rows_out_of_memory: int = 0
    """Number of quarantined rows that did not fit into memory even when processed exclusively."""
    steps: tuple[StepCounts, ...] = ()
    """Tally of each step."""
    files: tuple[FileRecord, ...] = ()
    """Files of the sink."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    """Further figures of the sink or task, by name."""
    other_files: tuple[FileRecord, ...] = ()
    """Files of rejects and quarantine."""
    block_bytes: int = 0
    """Block size of the attempt in bytes."""
    largest_block_bytes: int = 0
    """Size of the largest block in bytes."""
    read_seconds: float = 0.0
    """Time in the reader in seconds."""
    write_seconds: float = 0.0
    """Time in the sink in seconds."""
    seconds: float = 0.0
    """Time of the task in its worker in seconds."""
    elsewhere_seconds: float = 0.0
    """Part of that time in steps whose work is done elsewhere, in seconds."""
    peak_bytes: int = 0
    """Peak resident bytes of the worker process up to the end of the task."""
    device_peak_bytes: int | None = None
    """Peak bytes of GPU memory that the worker process used in this run; None if no block was on the GPU."""
    device_spilled_bytes: int | None = None
    """Bytes moved from its GPU to the host in this run so far; None if no block was on the GPU."""
    idle_bytes: int = 0
    """Private resident bytes of its worker before the first task of the process; 0 where unknown."""

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the record of a finished task."""
        values: dict[str, Any] = {one.name: getattr(manifest, one.name) for one in dataclasses.fields(cls)}
        lists = {name: tuple(values[name]) for name in ("steps", "files", "other_files")}
        return cls(**{**values, **lists})

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the record of a line of the journal; fields that an earlier version did not store have their defaults."""
        names = (one.name for one in dataclasses.fields(cls))
        values = {name: stored[name] for name in names if name in stored}
        values["files"], values["other_files"] = (
            tuple(FileRecord(**file) for file in stored.get(name, ())) for name in ("files", "other_files")
        )
        values["steps"] = tuple(StepCounts(**step) for step in stored.get("steps", ()))
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Return the line of the journal."""
        return {
            **vars(self),
            "files": [vars(file) for file in self.files],
            "other_files": [vars(file) for file in self.other_files],
            "steps": [{name: getattr(step, name) for name in STORED_OF_STEP} for step in self.steps],
        }


def files_below(records: Iterable[TaskRecord], folder: str) -> tuple[FileRecord, ...]:
    """Return those files of some tasks that are in a subfolder, in the order of the tasks."""
    return tuple(file for record in records for file in record.files if file.name.startswith(f"{folder}/"))


@dataclass
class Peaks:
    """Peaks over all returned tasks, including failed ones."""

    worker_bytes: int = 0
    """Peak resident bytes of any worker process."""
    block_bytes: int = 0
    """Bytes of the largest block of any task."""
    device_bytes: int | None = None
    """Peak GPU memory of any worker in bytes; None if it was not measured."""
    _spilled: dict[str, int] = field(default_factory=dict)

    def add(self, manifest: Manifest) -> None:
        """Include the measurements of a task."""
        self.worker_bytes = max(self.worker_bytes, manifest.peak_bytes)
        self.block_bytes = max(self.block_bytes, manifest.largest_block_bytes)
        if manifest.device_peak_bytes is not None:
            self.device_bytes = max(self.device_bytes or 0, manifest.device_peak_bytes)
        if manifest.device_spilled_bytes is not None:
            before = self._spilled.get(manifest.worker, 0)
            self._spilled[manifest.worker] = max(before, manifest.device_spilled_bytes)

    @property
    def device_spilled_bytes(self) -> int | None:
        """Sum of the bytes that workers moved from their GPUs to the host; None if it was not counted."""
        return sum(self._spilled.values()) if self._spilled else None

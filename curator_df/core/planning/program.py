# SPDX-License-Identifier: Apache-2.0
"""Programs: the steps between a source and a sink, each with its action, and deferred operations, which need all rows first."""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.blocks import Action, BlockKernel, Outcome
from curator_df.core.ranges.foreign_step import FOREIGN_PEAK_FACTOR
from curator_df.core.ranges.parameter_digests import Printed, printed
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.range_action import OfRange, RangeAction
from curator_df.core.ranges.sink import Sink
from curator_df.core.ranges.source import Ranges, Source
from curator_df.errors import ExpressionError
from curator_df.files.storage import JOURNAL_FOLDER, Folder
from curator_df.memory.budget import Layout
from curator_df.memory.wall import users_step


@dataclass(frozen=True)
class PendingPass:
    """A pass over rows before the last one, as a plan and `explain` show it."""

    title: str
    """Purpose of the pass."""
    work: str
    """Operation on the blocks at the end of its steps."""
    writer_factor: float
    """Peak extra memory of that work as a multiple of the block's bytes."""
    of_other: Program | None = None
    """Program of another table whose rows it reads; None for the rows of the run."""


class Ordered(Protocol):
    """Room for an operation that is decided in input order during the last pass."""

    @property
    def held_bytes(self) -> int:
        """Memory that each worker keeps for what is decided, in bytes."""

    @property
    def most_held_bytes(self) -> int:
        """Maximum memory of the rows of a range that wait until earlier ranges are decided, in bytes."""


class SideOutput(Protocol):
    """Folder of its own to which a run writes something of each row that passes a deferred operation."""

    @property
    def sink(self) -> Sink:
        """Sink of the folder."""

    @property
    def appends_to(self) -> str:
        """Index that gets the rows, so that no step may follow the operation; empty for another folder."""

    @property
    def guard(self) -> Any:
        """Context manager that is entered before anything is written, and whose ``begin`` is called next; None for none."""

    def kernel(self, program: Program) -> tuple[BlockKernel, Any]:
        """Return the kernel that makes its rows from those of a program, and their empty block."""


@dataclass(frozen=True)
class DiskNeed:
    """Disk space for the working files of one operation, in bytes."""

    name: str
    """Name of the operation."""
    parts: Mapping[str, int]
    """Size of each kind of working files that exist together when they take the most space, by what they contain."""
    kept_bytes: int
    """Size of those that stay until the run is complete."""
    more_bytes: int = 0
    """Additional space in the worst case, which a run does not require before it starts."""
    worst_case: str = ""
    """The worst case in words, such as ``"if most texts are similar to others"``; empty if there is none."""

    @property
    def needed_bytes(self) -> int:
        """Space that a run requires before it starts."""
        return sum(self.parts.values())

    def to_json(self) -> dict[str, Any]:
        """Return the need as plain values."""
        return {
            "name": self.name,
            "needed_bytes": self.needed_bytes,
            "most_bytes": self.needed_bytes + self.more_bytes,
            "worst_case": self.worst_case,
            "parts": dict(self.parts),
        }


class Pending(abc.ABC):
    """Operation that needs all rows before it can process the first one, as the kernel of its step carries it.

    This class is all that planning and running know of such operations. A run calls `prepare`, which may run passes over the
    rows before the step and tasks after them, and puts `resolved` in its place for the last pass.
    """

    home: Folder | None = None
    """Folder that stores the completed stage; None stores it with the run's temporary files, which are deleted."""
    uses_addresses: ClassVar[bool] = True
    """Whether it identifies rows by their row ID."""
    side_output: SideOutput | None = None
    """Folder that a run writes in addition to its output; None for none."""
    index: Any = None
    """Index (`ops.duplicates.index_runs.IndexUse`) to whose documents it compares rows, and to which a run appends; or None."""

    ordered: Ordered | None = None
    """Room in which it is decided in input order during the last pass; None if it has passes of its own."""

    def in_order(self, rows: int, most_held_bytes: int) -> Any:  # noqa: ARG002 - of other kinds
        """Return a copy that is decided in input order during the last pass; None if it needs passes of its own.

        ``rows`` is the approximate number of its rows, and ``most_held_bytes`` the memory for the rows of a range that wait.
        """
        return None

    @property
    def last_pass(self) -> Mapping[str, Any]:
        """Settings of the last pass alone, by name; they and the fields identify a run, but not the stages before it."""
        return {}

    @property
    def more_of_stage(self) -> tuple[Any, ...]:
        """Settings that change what the stages leave, in addition to the fields."""
        return ()

    @property
    def is_stored(self) -> bool:
        """Whether its passes were run and stored before."""
        return self.home is not None and self.home.exists(f"{JOURNAL_FOLDER}/receipt.json")

    def for_output(self, output: Folder, on_existing: str) -> Any:
        """Return a copy for a run into an output, which knows the state of its index that this run is decided with."""
        return self if self.index is None else self.index.bound(self, output, on_existing)

    def stored_in(self, home: Folder) -> Any:
        """Return a copy that stores its completed stage in a folder."""
        copy: Any = replace(self, home=home)  # type: ignore[type-var]
        return copy

    @abc.abstractmethod
    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return the passes that it needs in a step of this name."""

    def require_room(self, name: str, rows: int | None, layout: Layout) -> None:  # noqa: B027 - most always fit
        """Raise `BudgetError` if it is known not to fit; ``rows`` is the number of rows of the input, if known."""

    @abc.abstractmethod
    def disk_need(self, name: str, start: StageStart) -> DiskNeed | None:
        """Return the disk space for the working files of its stage in a step of this name; None if it has none."""

    def is_whole(self, stage: Folder, ranges: int) -> bool:  # noqa: ARG002 - of other kinds
        """Return whether a stage that an earlier run left in a folder is complete."""
        return stage.exists(f"{JOURNAL_FOLDER}/receipt.json")

    @abc.abstractmethod
    def prepare(self, runner: Any, before: Program, step: Step) -> Any:
        """Run the passes and tasks that it needs, with a `core.runner.passes.PassRunner`; return their result."""

    @abc.abstractmethod
    def resolved(self, prepared: Any) -> RangeAction:
        """Return the action of the last pass from the result of `prepare`."""


@dataclass(frozen=True)
class Step:
    """One step of a program."""

    name: str
    """Name of the operator, or of the Dask operation."""
    action: Action
    """Operation that the step runs."""
    price: Price
    """Memory that it costs."""
    takes_device: bool = False
    """Whether its input block is in GPU memory."""
    gives_device: bool = False
    """Whether its output block is in GPU memory."""
    addresses_for: str = ""
    """Later step or pass that identifies rows by the index, so that this step must keep it; empty if there is none."""

    @property
    def on_device(self) -> bool:
        """Whether it uses a block in GPU memory."""
        return self.takes_device or self.gives_device

    @property
    def device_peak_factor(self) -> float:
        """Peak extra GPU memory as a multiple of the block's bytes; assumed for a step that does not state it."""
        if not self.on_device:
            return 0.0
        said = self.price.device_peak_factor
        return FOREIGN_PEAK_FACTOR if said is None else said

    @property
    def device_fixed_bytes(self) -> int:
        """Extra GPU memory of one call in bytes, whatever the block."""
        return self.price.device_fixed_bytes if self.on_device else 0

    @property
    def pending(self) -> Pending | None:
        """Deferred operation of the step, resolved or not; None for a step that needs only one block."""
        pending: Pending | None = self.action.pending
        return pending

    @property
    def is_pending(self) -> bool:
        """Whether the operation has yet to be resolved."""
        return self.pending is not None and not self.action.needs_range

    @property
    def uses_addresses(self) -> bool:
        """Whether it identifies rows by their row ID."""
        return self.action.uses_addresses if self.pending is None else self.pending.uses_addresses

    @property
    def parameters(self) -> Printed:
        """Parameters of the step as a journal stores them; the whole step for one of Dask."""
        if self.pending is None:
            return self.action.printed(self.fingerprint)
        return printed(self.pending) | printed(self.pending.last_pass)

    @property
    def fingerprint(self) -> str:
        """Digest of the operation of this step; a deferred operation and its resolved form are the same."""
        if self.pending is None:
            return self.action.identity(self.name)
        return fingerprint(self.name, self.pending, *self.pending.last_pass.values())

    @property
    def stage_fingerprint(self) -> str:
        """Digest of the stages of this step, for a deferred operation."""
        if self.pending is None:
            return self.fingerprint
        return fingerprint(self.name, self.pending, *self.pending.more_of_stage)


@dataclass(frozen=True)
class Program:
    """Steps between a source and a sink."""

    source: Source
    """Source of the blocks."""
    steps: tuple[Step, ...]
    """Steps that process each block, in order."""
    meta: Any
    """Empty block with the columns of the result."""
    block_bytes: int
    """Block size in bytes of the table as it was read."""
    explicit_blocks: bool
    """True if the user set that block size."""
    origin: Source
    """Source as it was read, including columns that this program does not need."""

    @property
    def row_share(self) -> float:
        """Approximate fraction of the source's rows in the result, as far as known; samples with one seed are nested."""
        return min((step.action.row_share for step in self.steps), default=1.0)

    @property
    def compiled(self) -> tuple[str, ...]:
        """Names of the compiled functions that its source and its steps call."""
        parts = (self.source, *(step.action for step in self.steps))
        return tuple(dict.fromkeys(name for part in parts for name in getattr(part, "compiled", ())))

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the operations of the program, independent of blocks, workers and memory."""
        return fingerprint([step.fingerprint for step in self.steps])


@dataclass(frozen=True)
class StageStart:
    """Facts that are known when the stage of a deferred operation begins."""

    before: Program
    """Program of the rows that the operation gets."""
    ranges: Ranges
    """Input splits of the run."""
    layout: Layout
    """Layout of the cluster."""


def run_step(step: Step, block: Any, of_range: OfRange | None = None) -> tuple[Outcome, float]:
    """Run one step on one block; return its outcome and the duration in seconds. A `RangeAction` needs its range."""
    started = time.perf_counter()
    if step.action.needs_range:
        if of_range is None:
            raise ExpressionError(
                f"step {step.name!r} was run without the rows that belong to it. This is a defect in curator_df; please "
                "report it with this traceback"
            )
        return of_range.run(block), time.perf_counter() - started
    action: Any = step.action
    with users_step(step.name) if action.is_users else contextlib.nullcontext():
        outcome: Outcome = action.run(block)
    return outcome, time.perf_counter() - started


def with_columns(program: Program, columns: tuple[str, ...]) -> Program:
    """Read only the columns that the keys need, if no step comes before them.

    All columns are read if bad rows are quarantined: a row that is bad in another column must be missing in both passes.
    """
    if program.steps or program.source.quarantines or not columns:
        return program
    source = program.source.select([name for name in program.source.meta.columns if name in columns])
    return replace(program, source=source, meta=source.meta)

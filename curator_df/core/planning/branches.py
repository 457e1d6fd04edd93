# SPDX-License-Identifier: Apache-2.0
"""Several chains with the same input: their common steps run once for each block.

A run into one sink is a fork with one branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from curator_df.core.columns import leaf_columns
from curator_df.core.planning.dask_steps import shared_addresses
from curator_df.core.planning.lowering import foreign_part
from curator_df.core.planning.program import Pending, Program, Step
from curator_df.core.ranges.deferred_step import DeferredStep
from curator_df.core.ranges.journal import Identity
from curator_df.core.ranges.parameter_digests import Printed, printed, printed_source
from curator_df.core.ranges.sink import Sink, StageSink
from curator_df.core.ranges.source import Source
from curator_df.errors import ExpressionError, ParameterError
from curator_df.files.storage import Folder
from curator_df.memory.sizes import show_count


@dataclass(frozen=True)
class Branch:
    """One chain and its sink."""

    program: Program
    """Program of the whole chain, including the steps that it shares with other branches."""
    sink: Sink
    """Sink of the rows."""
    rejects: Sink | None = None
    """Sink of removed rows, if they are written."""
    finished: frozenset[int] = frozenset()
    """Numbers of ranges that an earlier run finished for this branch, but not for every other one."""
    set_aside: Folder | None = None
    """Folder for quarantined rows; None for the folder of the sink."""
    guard: Any = None
    """Context manager that the run enters before it writes, and whose ``begin`` it calls next (`SideOutput.guard`)."""

    @property
    def holds_rows(self) -> bool:
        """Whether a step holds the rows of each range until it decides which of them stay."""
        return any(step.action.holds_rows for step in self.program.steps)


def side_branches(branches: Sequence[Branch]) -> list[Branch]:
    """Return the branches of the folders that the operations of a run write in addition to its outputs."""
    found: dict[tuple[str, str], Branch] = {}
    outputs: dict[str, Folder] = {}  # by index
    for branch in branches:
        for place, step in enumerate(branch.program.steps):
            side = None if step.pending is None else step.pending.side_output
            if side is None:
                continue
            first = outputs.setdefault(side.appends_to, branch.sink.folder)
            if side.appends_to and first is not branch.sink.folder:
                raise ParameterError(
                    f"{first.url} and {branch.sink.folder.url} both have the rows of {step.name} with index=, but a run adds "
                    f"the rows of only one output to the index {side.appends_to!r}. Write one output first, and read it to "
                    "make the others"
                )
            if side.appends_to and place + 1 < len(branch.program.steps):
                raise ParameterError(
                    f"{step.name} with index= must be the last step, but {branch.program.steps[place + 1].name!r} comes "
                    f"after it: rows that a later step drops would be in the index, but not in the output. Move {step.name} "
                    "to the end"
                )
            before = replace(branch.program, steps=branch.program.steps[: place + 1])
            kernel, meta = side.kernel(before)
            program = replace(before, steps=(*before.steps, Step(kernel.name, kernel, kernel.price)), meta=meta)
            found.setdefault((before.fingerprint, side.sink.folder.url), Branch(program, side.sink, guard=side.guard))
    return list(found.values())


def indexed_step(expression: Any) -> str:
    """Return the name of an operation of an expression that appends rows to an index; empty if there is none."""
    for node in () if expression is None else expression.walk():
        if isinstance(node, DeferredStep) and node.operand("func").pending.index is not None:
            return str(node.operand("func").name)
    return ""


def require_appended(df: Any) -> None:
    """Raise `ParameterError` if Dask would compute an operation of a table that appends rows to an index: then none is."""
    if name := indexed_step(foreign_part(df.expr)):
        raise ParameterError(
            f"{name} with index= must be the last step, but an operation that Dask computes first comes after it: its rows "
            f"would be in the output, but not in the index. Move {name} to the end"
        )


def without_folders(expression: Any, names: Sequence[str] = ("side_output", "index")) -> Any:
    """Return an expression whose deferred operations lack some of their folders: without these, a run writes its output only.

    Without its index, an operation compares rows with the documents that the index had when the chain was built.
    """
    for node in expression.walk():
        if not isinstance(node, DeferredStep):
            continue
        kernel: Any = node.operand("func")
        if folders := [name for name in names if getattr(kernel.pending, name) is not None]:
            kernel = replace(kernel, pending=replace(kernel.pending, **dict.fromkeys(folders)))
            return without_folders(expression.substitute(node, node.substitute_parameters({"func": kernel})), names)
    return expression


def bound(branch: Branch, on_existing: str) -> Branch:
    """Return a branch whose operations know the output of the run."""
    steps = []
    for step in branch.program.steps:
        if step.pending is not None and step.pending.index is not None:
            pending = step.pending.for_output(branch.sink.folder, on_existing)
            step = replace(step, action=replace(step.action, pending=pending))  # type: ignore[type-var] # noqa: PLW2901
        steps.append(step)
    return replace(branch, program=replace(branch.program, steps=tuple(steps)))


@dataclass(frozen=True)
class Fork:
    """Branches of one source, and the number of steps that they share."""

    source: Source
    """Source of the blocks, with the columns that any branch needs."""
    shared: int
    """Number of leading steps that are the same in every branch and run once."""
    branches: tuple[Branch, ...]
    """Branches of the fork, at least one."""

    @property
    def stem(self) -> tuple[Step, ...]:
        """Steps with which every branch begins."""
        return self.branches[0].program.steps[: self.shared]

    def own_steps(self, branch: Branch) -> tuple[Step, ...]:
        """Return the steps after the shared ones."""
        return branch.program.steps[self.shared :]

    @cached_property
    def waiting(self) -> tuple[tuple[Step, Pending], ...]:
        """Deferred steps whose passes have yet to run, of all branches. On an object store, each question is a request."""
        steps = [(step, step.pending) for branch in self.branches for step in branch.program.steps]
        return tuple((step, pending) for step, pending in steps if pending is not None and not pending.is_stored)

    @property
    def waiting_steps(self) -> Iterator[tuple[Program, Step]]:
        """Yield each of these steps once, in order, with the program of the rows that it gets."""
        waiting = {id(step) for step, _ in self.waiting}
        for number, branch in enumerate(self.branches):
            for place, step in enumerate(branch.program.steps):
                if id(step) in waiting and not (number > 0 and place < self.shared):
                    yield replace(branch.program, steps=branch.program.steps[:place]), step

    @cached_property
    def most_columns(self) -> int:
        """Columns without nested ones of the widest table: what is read, or what a branch or another table's pass makes."""
        others = [one.of_other for step, pending in self.waiting for one in pending.passes(step.name)]
        programs = [*(branch.program for branch in self.branches), *(other for other in others if other is not None)]
        tables = [self.source.meta, *(table for one in programs for table in (one.source.meta, one.meta))]
        return max(sum(map(leaf_columns, table.dtypes)) for table in tables)

    @property
    def explicit_block_bytes(self) -> int | None:
        """Smallest block size in bytes that the user set for any branch."""
        named = [branch.program.block_bytes for branch in self.branches if branch.program.explicit_blocks]
        return min(named, default=None)


SINK_NAMES = {"target_file_bytes": "target_file_size"}
"""Names of a sink's fields as users know them."""


def identity_of(branch: Branch) -> Identity:
    """Return the identity of the run of a branch: resume requires that all of it is unchanged."""
    program, rejects = branch.program, branch.rejects
    outputs = branch.sink.fingerprint + (rejects.fingerprint if rejects is not None else "")
    output = {
        SINK_NAMES.get(name, name): value
        for name, value in printed(branch.sink, without=("folder", "buffer_bytes", "writer_factor")).items()
    }
    if (form := getattr(branch.sink, "format", None)) is not None:
        name = getattr(form, "name", "") or form.suffix.partition(".")[0]
        output["format"] = (repr(name), name)
    output["rejects"] = ("not set", "") if rejects is None else ("a folder", rejects.fingerprint)
    read = printed_source(program.source)
    return Identity(program.source.fingerprint, program.fingerprint, outputs, *named_steps(program.steps), output, read)


def named_steps(steps: Sequence[Step]) -> tuple[tuple[tuple[str, str], ...], tuple[Printed, ...]]:
    """Return the name and fingerprint of each step, and its parameters, in the form of an `Identity`."""
    return tuple((step.name, step.fingerprint) for step in steps), tuple(step.parameters for step in steps)


def fork(branches: Sequence[Branch]) -> Fork:
    """Find the common steps of chains.

    Raises
    ------
    ExpressionError
        If they do not begin with the same input.
    """
    first, *others = branches = [_with_address_users(branch) for branch in branches]
    if not others:
        return _joined(first.program.source, len(first.program.steps), branches)
    for other in others:
        _require_same_input(first, other)
    columns = [list(branch.program.source.meta.columns) for branch in branches]
    if all(names == columns[0] for names in columns):
        return _joined(first.program.source, _shared_steps(branches), branches)
    # The same step on other columns may act differently: dropna checks all columns.
    needed = {name for names in columns for name in names}
    origin = first.program.origin
    every = list(origin.meta.columns)
    source = origin if needed.issuperset(every) else origin.select([name for name in every if name in needed])
    return Fork(source, 0, tuple(branches))


def overlapping_samples(branches: Sequence[Branch]) -> tuple[Branch, Branch] | None:
    """Return two branches with independent samples of the rows, which may therefore share rows; None if there are none."""
    shared = _shared_steps(branches)
    sampled = [
        branch for branch in branches if any(step.name == "sample_rows" for step in branch.program.steps[shared:])
    ]
    return (sampled[0], sampled[1]) if len(sampled) > 1 else None


def _shared_steps(branches: Sequence[Branch]) -> int:
    """Return the number of leading steps that are the same in every branch."""
    chains = [[step.fingerprint for step in branch.program.steps] for branch in branches]
    shared = 0
    for together in zip(*chains, strict=False):
        if len(set(together)) > 1:
            break
        shared += 1
    return shared


def _with_address_users(branch: Branch) -> Branch:
    """Mark each foreign step with the later step or pass that identifies rows by their index, so that it must keep the index."""
    later = ""
    if branch.rejects is not None:
        later = "the folder of rejects"
    elif isinstance(branch.sink, StageSink) and branch.sink.uses_addresses:
        later = "a later pass"
    steps: list[Step] = []
    for step in reversed(branch.program.steps):
        if step.action.may_change_index:
            later_here = later or step.addresses_for
            if later_here and step.action.makes_rows:
                raise shared_addresses(later_here, step.name)
            steps.append(replace(step, addresses_for=later_here))
        else:
            steps.append(step)
            later = step.name if step.uses_addresses else later
    return replace(branch, program=replace(branch.program, steps=tuple(reversed(steps))))


def _joined(source: Source, shared: int, branches: Sequence[Branch]) -> Fork:
    """Return a fork whose shared steps keep the row IDs if any of its branches needs them."""
    first, *others = branches
    together = zip(*(branch.program.steps[:shared] for branch in branches), strict=True)
    stem = [
        replace(steps[0], addresses_for=next((each.addresses_for for each in steps if each.addresses_for), ""))
        for steps in together
    ]
    program = replace(first.program, steps=(*stem, *first.program.steps[shared:]))
    return Fork(source, shared, (replace(first, program=program), *others))


def _require_same_input(first: Branch, other: Branch) -> None:
    one, two = first.program.origin, other.program.origin
    if (one.fingerprint, one.quarantines) != (two.fingerprint, two.quarantines):
        raise ExpressionError(
            f"the rows for {first.sink.folder.url} and for {other.sink.folder.url} do not come from the same "
            f"read ({_input(one)}; {_input(two)}), but one pass reads one input. Make both tables from one call of read_jsonl or "
            "read_parquet, or write them one after the other"
        )


def _input(source: Source) -> str:
    files = f"{show_count(len(source.files), 'file')} from {source.files[0]!r} on" if source.files else "no files"
    return f"{files}, columns {', '.join(map(repr, source.meta.columns))}"

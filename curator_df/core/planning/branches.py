# SPDX-License-Identifier: Apache-2.0
"""Several chains that begin with the same input: what they have in common runs once for each block.

A run into one sink is a fork with one branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from curator_df.core.files.storage import Folder
from curator_df.core.planning.dask_steps import shared_addresses
from curator_df.core.planning.program import Program, Step
from curator_df.core.ranges.foreign_step import Graph
from curator_df.core.ranges.journal import Identity
from curator_df.core.ranges.printed import Printed, printed, printed_source
from curator_df.core.ranges.sink import Sink, StageSink
from curator_df.core.ranges.source import Source
from curator_df.core.sizes import show_count
from curator_df.errors import ExpressionError


@dataclass(frozen=True)
class Branch:
    """One chain, and where its rows go."""

    program: Program
    """The whole chain, with the steps that other branches have too."""
    sink: Sink
    """Where the rows go."""
    rejects: Sink | None = None
    """Where removed rows go, if they are kept."""
    finished: frozenset[int] = frozenset()
    """Numbers of ranges that an earlier run finished for this branch, but not for every other one."""
    set_aside: Folder | None = None
    """Where rows set aside go; None: to the folder of the sink."""


@dataclass(frozen=True)
class Fork:
    """Branches of one source, and how far they go together."""

    source: Source
    """Where the blocks come from, with the columns that any branch needs."""
    shared: int
    """So many steps at the beginning of every branch are the same, and run once."""
    branches: tuple[Branch, ...]
    """At least one."""

    @property
    def stem(self) -> tuple[Step, ...]:
        """The steps that every branch begins with."""
        return self.branches[0].program.steps[: self.shared]

    def own_steps(self, branch: Branch) -> tuple[Step, ...]:
        """Return the steps after those that are shared."""
        return branch.program.steps[self.shared :]

    @property
    def explicit_block_bytes(self) -> int | None:
        """The smallest block size that the user named for any branch."""
        named = [branch.program.block_bytes for branch in self.branches if branch.program.explicit_blocks]
        return min(named, default=None)


SINK_NAMES = {"target_file_bytes": "target_file_size"}
"""What users call parameters of a sink."""


def identity_of(branch: Branch) -> Identity:
    """Return what the run of a branch is: resume asks that all of it is the same."""
    program, rejects = branch.program, branch.rejects
    outputs = branch.sink.fingerprint + (rejects.fingerprint if rejects is not None else "")
    output = {
        SINK_NAMES.get(name, name): value
        for name, value in printed(branch.sink, without=("folder", "buffer_bytes", "writer_factor")).items()
    }
    output["rejects"] = ("not set", "") if rejects is None else ("a folder", rejects.fingerprint)
    read = printed_source(program.source)
    return Identity(program.source.fingerprint, program.fingerprint, outputs, *named_steps(program.steps), output, read)


def named_steps(steps: Sequence[Step]) -> tuple[tuple[tuple[str, str], ...], tuple[Printed, ...]]:
    """Return name and fingerprint of each step, and its parameters, as an `Identity` has them."""
    return tuple((step.name, step.fingerprint) for step in steps), tuple(step.parameters for step in steps)


def fork(branches: Sequence[Branch]) -> Fork:
    """Find what chains have in common.

    Raises
    ------
    ExpressionError
        If they do not begin with the same input.
    """
    first, *others = branches = [_with_address_users(branch) for branch in branches]
    for other in others:
        _require_same_input(first, other)
    columns = [list(branch.program.source.meta.columns) for branch in branches]
    if all(names == columns[0] for names in columns):
        return _joined(first.program.source, _shared_steps(branches), branches)
    # The same step on other columns need not do the same: a dropna looks at all there are.
    needed = {name for names in columns for name in names}
    origin = first.program.origin
    every = list(origin.meta.columns)
    source = origin if needed.issuperset(every) else origin.select([name for name in every if name in needed])
    return Fork(source, 0, tuple(branches))


def overlapping_samples(branches: Sequence[Branch]) -> tuple[Branch, Branch] | None:
    """Return two branches that each take their own sample of the rows, so that they may share rows; None if there are none."""
    shared = _shared_steps(branches)
    sampled = [
        branch for branch in branches if any(step.name == "sample_rows" for step in branch.program.steps[shared:])
    ]
    return (sampled[0], sampled[1]) if len(sampled) > 1 else None


def _shared_steps(branches: Sequence[Branch]) -> int:
    """Return how many steps at the beginning are the same in every branch."""
    chains = [[step.fingerprint for step in branch.program.steps] for branch in branches]
    shared = 0
    for together in zip(*chains, strict=False):
        if len(set(together)) > 1:
            break
        shared += 1
    return shared


def _with_address_users(branch: Branch) -> Branch:
    """Note at each step that is not ours what later tells rows apart by their address, so that it must keep that."""
    later = ""
    if branch.rejects is not None:
        later = "the folder of rejects"
    elif isinstance(branch.sink, StageSink) and branch.sink.uses_addresses:
        later = "a later pass"
    steps: list[Step] = []
    for step in reversed(branch.program.steps):
        if isinstance(step.action, Graph):
            later_here = later or step.addresses_for
            if later_here and step.action.makes_rows:
                raise shared_addresses(later_here, step.name)
            steps.append(replace(step, addresses_for=later_here))
        else:
            steps.append(step)
            later = step.name if step.uses_addresses else later
    return replace(branch, program=replace(branch.program, steps=tuple(reversed(steps))))


def _joined(source: Source, shared: int, branches: Sequence[Branch]) -> Fork:
    """Return a fork whose shared steps keep addresses where any of its branches needs them."""
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
            f"what goes to {first.sink.folder.url} and what goes to {other.sink.folder.url} does not begin with the same "
            f"read ({_input(one)}; {_input(two)}); one pass reads one input. Make both tables from what one read_jsonl or "
            "read_parquet returned, or write them one after the other"
        )


def _input(source: Source) -> str:
    files = f"{show_count(len(source.files), 'file')} from {source.files[0]!r} on" if source.files else "no files"
    return f"{files}, columns {', '.join(map(repr, source.meta.columns))}"

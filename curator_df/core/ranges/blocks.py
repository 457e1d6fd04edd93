# SPDX-License-Identifier: Apache-2.0
"""A kernel with its price, and the one place that maps kernels over the partitions of a table.

Every public operator is a `BlockKernel` passed to `map_blocks`. Dask then runs it like any function of a partition,
while the runner (`core.runner.run`) finds it in the expression and knows its name, what it costs and what it dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import dask
import dask.dataframe as dd
from dask.dataframe.dask_expr import new_collection

from curator_df.core.memory.held import outside_of_runs
from curator_df.core.memory.resources import NO_LIMITS, Resources
from curator_df.core.ranges.deferred_step import defer


@dataclass(frozen=True)
class Outcome:
    """What a kernel returns when it has more to say than a block."""

    block: Any
    """The rows that go on, index kept."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rows removed by reason. The sum is the number of rows that did not go on."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Anything else worth a line in the receipt, such as ``{"rows_changed": 12}``."""
    rejects: Callable[[], tuple[Any, Mapping[str, Any]]] | None = None
    """Makes the removed rows (a DataFrame, index kept) and why they went: ``reason`` (strings) and, where they exist, the
    ``rule`` that was broken (strings), the ``value`` that broke it and its ``threshold`` (floats), and the address of the
    row that was ``matched`` (int64, with ``other_files`` after those of the input), one for each row. Called only by a run
    that keeps rejects, before the next block."""
    rest: Iterator[Outcome] | None = None
    """Of a kernel that makes several rows of one: what else comes out, each made when it is asked for, so that no more than
    one is held. Each is no larger than the block."""
    peaks: Mapping[str, int] = field(default_factory=dict)
    """Bytes that were held at most; of all blocks the largest counts."""


@dataclass(frozen=True)
class BlockKernel:
    """A function of one block, with its price."""

    name: str
    """Name of the public operator."""
    func: Callable[..., Any]
    """Module-level function: ``func(block, **parameters)`` returns a block or an `Outcome`."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``func``; part of what identifies the program, so plain picklable values."""
    peak_factor: float = 1.0
    """Peak extra bytes of one call as a multiple of the block's bytes, its result included."""
    fixed_bytes: int = 0
    """Extra bytes of one call whatever the block; up to `core.planning.plan.KERNEL_FIXED_BYTES` are in every plan."""
    row_bytes: int = 0
    """Longest row that it may make of several: the steps after it hold one beside a block."""
    held_bytes: int = 0
    """Bytes that a worker holds once, for all its calls, such as a table that is looked up."""
    libraries: Mapping[str, int] = field(default_factory=dict)
    """Of these what stays in the process when the run is over: packages that were imported, and their bytes."""
    shared: Mapping[str, int] = field(default_factory=dict)
    """Of ``held_bytes`` what goes with the run, such as weights. What steps name alike, here or there, they hold together."""
    resources: Resources = NO_LIMITS
    """What a call takes of its worker, and so how many run at a time (``func`` calls `core.memory.resources.admitted`)."""
    resource_bytes: int = 0
    """Extra bytes of a call only while it has that."""
    peak_is_measured: bool = False
    """False when the factor was assumed: `explain` says which."""
    works_elsewhere: bool = False
    """True when a server does the work of a call and its thread waits meanwhile, so that another task may use the CPU."""
    is_users: bool = False
    """True when the function came from the user: its exceptions may be quarantined (``on_error``)."""
    slow_path: str = ""
    """What makes a call slow, such as a user's function of one text: `explain` says so."""
    computes: str = ""
    """Where a model computes and in which numbers: `explain` says so."""
    compiled: tuple[str, ...] = ()
    """Names of compiled functions (`curator_df.kernels.kernel_sets`) that a call needs: they are compiled before a task runs."""
    makes_rows: bool = False
    """True when several rows may come of one, all with its address; the block is then held while they go on, in parts
    (`Outcome.rest`)."""
    unites_rows: bool = False
    """True when such rows become one again."""
    uses_addresses: bool = False
    """True when it tells rows apart by their address, the index: steps before it must then have kept that."""
    row_share: float = 1.0
    """About the share of the rows that go on, where the operator knows it before it has seen them."""
    device_peak_factor: float | None = None
    """``peak_factor`` of the GPU's memory, where the block is there; None for a kernel that nobody has priced there."""
    device_fixed_bytes: int = 0
    """Extra bytes of the GPU's memory of one call whatever the block."""
    barrier: Any = None
    """A `core.exchange.barrier.Barrier` for a drop that needs the keys of all rows first; ``func`` then refuses to run."""

    @property
    def __name__(self) -> str:
        """The operator, in the keys of Dask's tasks and in what it shows of a table."""
        return self.name

    @property
    def remarks(self) -> tuple[tuple[str, str], ...]:
        """What `explain` says of it besides, each with the word before it."""
        return tuple((word, said) for word, said in (("slow", self.slow_path), ("model", self.computes)) if said)

    def __call__(self, block: Any) -> Any:
        """Return the block of rows that go on (what Dask calls)."""
        with outside_of_runs(self.libraries):
            outcome = self.run(block)
            if outcome.rest is None:
                return outcome.block
            return dd.methods.concat([outcome.block, *(more.block for more in outcome.rest)])

    def run(self, block: Any) -> Outcome:
        """Return the outcome (what the runner calls)."""
        result = self.func(block, **self.parameters)
        return result if isinstance(result, Outcome) else Outcome(result)


def block_bytes(block: Any) -> int:
    """Return the bytes that a block holds in its columns, and 8 for the address of each row."""
    # Asking the index itself makes pandas build an engine for look-ups: 2.1 ms against 0.4 ms for a block of 16 MB.
    return int(block.memory_usage(index=False).sum()) + 8 * len(block)


def map_blocks(df: Any, kernel: BlockKernel, *, meta: Any) -> Any:
    """Apply a kernel to every partition of a table, lazily.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        Any Dask (or dask-cudf) table.
    kernel : BlockKernel
        What to apply.
    meta : pandas.DataFrame or cudf.DataFrame
        Empty block with the columns and dtypes of the result.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with the kernel applied. Nothing is computed.

    Notes
    -----
    Rows: as the kernel says. Peak extra memory: ``kernel.peak_factor`` x block. Computes: no.
    """
    # Dask would otherwise turn object columns into their str() (its "convert-string" default).
    with dask.config.set({"dataframe.convert-string": False}):
        table = df.map_partitions(kernel, meta=meta, enforce_metadata=False)
    return table if kernel.barrier is None else new_collection(defer(table.expr))

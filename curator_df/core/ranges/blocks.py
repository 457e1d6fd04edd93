# SPDX-License-Identifier: Apache-2.0
"""Kernels, each with its price (`core.ranges.price`), and the single function that maps kernels over the partitions of a table.

Every public operator is a `BlockKernel` passed to `map_blocks`. Dask then runs it like any function of a partition,
while the runner (`core.runner.run`) finds it in the expression and knows its name, its costs and the rows it dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import dask
import dask.dataframe as dd
from dask.dataframe.dask_expr import new_collection

from curator_df.core.backend import is_on_device
from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.deferred_step import defer
from curator_df.core.ranges.parameter_digests import Printed, printed
from curator_df.core.ranges.price import Price
from curator_df.errors import OperatorError
from curator_df.memory.process_cache import outside_of_runs


@dataclass(frozen=True)
class Outcome:
    """Result of a kernel that returns more than a block."""

    block: Any
    """Block of the rows that are passed on, with their index."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Number of removed rows by reason. The sum is the number of rows that were not passed on."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Other counts for the receipt, such as ``{"rows_changed": 12}``."""
    rejects: Callable[[], tuple[Any, Mapping[str, Any]]] | None = None
    """Function that returns the removed rows (a DataFrame with their index) and the reasons of their removal, one value per row:
    ``reason`` (strings) and, if available, the ``rule`` that was broken (strings), the ``value`` that broke it and its
    ``threshold`` (floats), and the address of the ``matched`` row (int64, with ``other_files`` after those of the input). It is
    called only by a run that writes rejects, before the next block.
    """
    rest: Iterator[Outcome] | None = None
    """Further outcomes of a kernel that makes several rows from one, each created on demand, so that only one is in memory.
    None is larger than the block.
    """
    failed: Mapping[int, str] = field(default_factory=dict)
    """Rows on which the step failed, which are not in ``block``: by their position in the block that the kernel received, what
    happened ("took more than 10 CPU seconds"). They are quarantined, or stop the run (``on_error``).
    """
    peaks: Mapping[str, int] = field(default_factory=dict)
    """Peak bytes in use, by name; of all blocks the largest counts."""


class Action:
    """Operation of a step: a kernel, a block-by-block operation of Dask, or a deferred operation when resolved."""

    row_share: float = 1.0
    """Approximate fraction of the rows that are passed on, if known in advance."""
    is_offloaded: bool = False
    """Whether a server does the work of a call while its thread waits."""
    is_users: bool = False
    """Whether the function was written by the user."""
    is_rowwise: ClassVar[bool] = False
    """Whether it is known to process each row independently of the others in its block."""
    needs_range: ClassVar[bool] = False
    """Whether it runs on the blocks of one known range only: the resolved form of a deferred operation."""
    holds_rows: ClassVar[bool] = False
    """Whether the rows of a range wait until earlier ranges are decided: a `RangeAction` whose `of_range` returns a
    `HoldsRows`.
    """
    drops_by_address: ClassVar[bool] = False
    """Whether it only drops rows that are known by their address, so that a reader can leave them out: a `RangeAction` whose
    `of_range` returns a `LeavesOut`.
    """
    may_change_index: ClassVar[bool] = False
    """Whether it may change the index, so that rows must be checked where a later step identifies them by it."""
    makes_rows: bool = False
    """Whether it may make several rows with the same row ID from one row. The block of a kernel that does stays in memory while
    they are processed in parts.
    """
    uses_addresses: bool = False
    """Whether it identifies rows by their row ID, the index."""
    pending: Any
    """Operation (`core.planning.program.Pending`) that needs all rows first; None for what needs only one block."""

    @property
    def remarks(self) -> tuple[tuple[str, str], ...]:
        """Additional remarks for `explain`, each with its label."""
        return ()

    def printed(self, fingerprint: str) -> Printed:  # noqa: ARG002 - of other kinds
        """Return the parameters as a journal stores them; ``fingerprint`` is that of the step."""
        return {}

    def identity(self, name: str) -> str:
        """Return a digest of its operation in a step of this name."""
        return fingerprint([name])


@dataclass(frozen=True)
class BlockKernel(Action):
    """Function of one block, with its memory costs."""

    is_rowwise: ClassVar[bool] = True

    name: str
    """Name of the public operator."""
    func: Callable[..., Any]
    """Module-level function: ``func(block, **parameters)`` returns a block or an `Outcome`."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``func``; they identify the program, so they must be plain picklable values."""
    price: Price = field(default_factory=Price)
    """Memory that it costs."""
    is_offloaded: bool = False
    """True if a server does the work of a call while its thread waits, so that another task may use the CPU."""
    is_users: bool = False
    """True if the function was written by the user: rows on which it raises may be quarantined (``on_error``)."""
    slow_path: str = ""
    """Reason why a call is slow, such as a user's function of one text; shown by `explain`."""
    computes: str = ""
    """Device and number format in which a model computes; shown by `explain`."""
    compiled: tuple[str, ...] = ()
    """Names of compiled functions (`kernels.compiling.kernel_sets`) that a call needs: they are compiled before a task runs."""
    makes_rows: bool = False
    """True if it may make several rows from one, all with its address; the block then stays in memory while they are processed
    in parts (`Outcome.rest`).
    """
    unites_rows: bool = False
    """True if it joins such rows into one again."""
    uses_addresses: bool = False
    """True if it identifies rows by their address, the index, which earlier steps must then have kept."""
    row_share: float = 1.0
    """Approximate fraction of the rows that are passed on, if the operator knows it in advance."""
    pending: Any = None
    """Deferred operation (`exchange.key_drop.KeyDrop`) that needs the keys of all rows first; ``func`` refuses to run."""

    @property
    def __name__(self) -> str:
        """Name of the operator, for the keys of Dask's tasks and the display of a table."""
        return self.name

    @property
    def remarks(self) -> tuple[tuple[str, str], ...]:
        """Additional remarks for `explain`, each with its label."""
        return tuple((word, said) for word, said in (("slow", self.slow_path), ("model", self.computes)) if said)

    def printed(self, fingerprint: str) -> Printed:  # noqa: ARG002 - of other kinds
        """Return the parameters as a journal stores them."""
        return printed(self.parameters)

    def identity(self, name: str) -> str:  # noqa: ARG002 - a kernel has a name of its own
        """Return a digest of its name, function and parameters."""
        return fingerprint(self.name, self.func, self.parameters)

    def __call__(self, block: Any) -> Any:
        """Return the block of rows that are passed on (called by Dask)."""
        with outside_of_runs(self.price.libraries):
            outcome = self.run(block)
            if outcome.failed:
                raise row_error(self.name, outcome.failed)
            if outcome.rest is None:
                return outcome.block
            return dd.methods.concat([outcome.block, *(more.block for more in outcome.rest)])

    def run(self, block: Any) -> Outcome:
        """Return the outcome (called by the runner)."""
        result = self.func(block, **self.parameters)
        return result if isinstance(result, Outcome) else Outcome(result)


QUARANTINE = "Write the table with on_error='quarantine' to quarantine such rows"


def row_error(name: str, failed: Mapping[int, str], place: str = "", remedy: str = QUARANTINE) -> OperatorError:
    """Return the error for rows on which a step failed; ``place`` is the file and offset of the first, if known."""
    row, what = min(failed.items())
    others = f" ({len(failed):,} rows of its block failed)" if len(failed) > 1 else ""
    return OperatorError(f"step {name!r} {what} on {place or f'row {row:,} of a block'}{others}. {remedy}")


def block_bytes(block: Any) -> int:
    """Return the bytes of a block's columns, plus 8 for the row ID of each row."""
    # The index is not queried, because pandas would build a lookup engine: 2.1 ms against 0.4 ms for a block of 16 MB.
    if is_on_device(block):
        return int(block.memory_usage(index=False).sum()) + 8 * len(block)
    # Not memory_usage() of the block, which makes a Series of each column: 110 ms -> 20 ms for 10,000 columns.
    arrays = block._iter_column_arrays()
    sizes = (each.memory_usage() if hasattr(each, "memory_usage") else each.nbytes for each in arrays)
    return int(sum(sizes)) + 8 * len(block)


def map_blocks(df: Any, kernel: BlockKernel, *, meta: Any) -> Any:
    """Apply a kernel to every partition of a table, lazily.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        Any Dask (or dask-cudf) table.
    kernel : BlockKernel
        Kernel to apply.
    meta : pandas.DataFrame or cudf.DataFrame
        Empty block with the columns and dtypes of the result.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with the kernel applied. Nothing is computed.

    Notes
    -----
    Rows: depends on the kernel. Peak extra memory: ``kernel.price.peak_factor`` x block. Computes: no.
    """
    # Dask would otherwise turn object columns into their str() (its "convert-string" default).
    with dask.config.set({"dataframe.convert-string": False}):
        table = df.map_partitions(kernel, meta=meta, enforce_metadata=False)
    return table if kernel.pending is None else new_collection(defer(table.expr))

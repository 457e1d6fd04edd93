# SPDX-License-Identifier: Apache-2.0
"""From a Dask expression to a program: one shippable callable, block in, block out.

The expression is lowered once, on a one-partition placeholder, never per partition (a graph of 100,000 partitions took
18 s and 470 MB to optimise). A step is what lies between two tables that every row must pass through: a kernel of ours,
or any block-by-block Dask operation (``df[df.n > 3]``, ``assign``, ``map_partitions``).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import dask
import dask.dataframe as dd
import numpy as np
from dask.dataframe.dask_expr import FrameBase
from dask.dataframe.dask_expr._expr import Blockwise, Expr, MapPartitions, Projection
from dask.dataframe.dask_expr.io import FromMap

from curator_df.core.backend import require_host_blocks
from curator_df.core.barrier import Barrier
from curator_df.core.blocks import BlockKernel, Outcome
from curator_df.core.fingerprint import fingerprint
from curator_df.core.near_barrier import NearBarrier
from curator_df.core.part_barrier import PartBarrier
from curator_df.core.range_action import OfRange, RangeAction
from curator_df.core.resources import NO_LIMITS, Resources
from curator_df.core.row_count import RowCount
from curator_df.core.set_up import SetUp, set_up
from curator_df.core.source import Range, Ranges, Source
from curator_df.errors import ExpressionError

FOREIGN_PEAK_FACTOR = 1.5
"""Assumed for a step that is not ours: one copy of the block, and masks and new columns half as large again."""
FOREIGN_REASON = "filtered"
"""Reason under which rows count that a step removed which is not ours."""


@dataclass(frozen=True)
class ReadPartition:
    """What `dask.dataframe.from_map` calls for each partition of a table we read."""

    source: Source
    """Where the rows come from."""
    ranges: Ranges
    """One range for each Dask partition."""
    block_bytes: int
    """About the decompressed bytes of each partition."""
    explicit: bool
    """True when the user named the block size."""

    def __call__(self, number: int, columns: Any = None) -> Any:
        """Return a whole partition as one block."""
        source = self.source if columns is None else self.source.select(list(columns))
        piece: Range = self.ranges[number]
        blocks = list(source.blocks(piece, block_bytes=self.block_bytes))
        if not blocks:
            return source.meta
        return blocks[0] if len(blocks) == 1 else dd.methods.concat(blocks)


@dataclass(frozen=True)
class Graph:
    """A block-by-block Dask operation that is not one of our kernels."""

    tasks: Mapping[Any, Any]
    """Its Dask tasks for one partition."""
    hole: Any
    """The key to which the input block is put."""
    result: Any
    """The key of its result."""
    held_bytes: int = 0
    """Bytes that a worker holds once, as an object of the user says."""
    is_users: ClassVar[bool] = True
    """What runs is the user's."""

    def __call__(self, block: Any) -> Any:
        """Run the tasks in this thread."""
        return dask.get({**self.tasks, self.hole: block}, self.result)


@dataclass(frozen=True)
class Step:
    """One step of a program."""

    name: str
    """Name of the operator, or of the Dask operation."""
    action: BlockKernel | Graph | RangeAction
    """What runs."""
    peak_factor: float
    """Peak extra bytes as a multiple of the block's bytes."""
    peak_is_measured: bool
    """False when the factor was assumed."""

    @property
    def barrier(self) -> Barrier | PartBarrier | NearBarrier | RowCount | None:
        """What a step waits (or waited) for; None for every step that needs one block at a time."""
        return None if isinstance(self.action, Graph) else self.action.barrier

    @property
    def fixed_bytes(self) -> int:
        """Extra bytes of one call whatever the block."""
        return self.action.fixed_bytes if isinstance(self.action, BlockKernel) else 0

    @property
    def held_bytes(self) -> int:
        """Bytes that a worker holds once for all calls."""
        return 0 if isinstance(self.action, RangeAction) else self.action.held_bytes

    @property
    def libraries(self) -> Mapping[str, int]:
        """What of these bytes stays when the run is over, by package."""
        return self.action.libraries if isinstance(self.action, BlockKernel) else {}

    @property
    def resources(self) -> Resources:
        """What one call takes of its worker."""
        return self.action.resources if isinstance(self.action, BlockKernel) else NO_LIMITS

    @property
    def resource_bytes(self) -> int:
        """Extra bytes of a call while it has that."""
        return self.action.resource_bytes if isinstance(self.action, BlockKernel) else 0

    @property
    def row_bytes(self) -> int:
        """Longest row that it may make of several."""
        return self.action.row_bytes if isinstance(self.action, BlockKernel) else 0

    @property
    def slow_path(self) -> str:
        """What makes a call slow; empty where nothing does."""
        return self.action.slow_path if isinstance(self.action, BlockKernel) else ""

    @property
    def row_share(self) -> float:
        """About the share of the rows that go on, as far as that is known beforehand."""
        return self.action.row_share if isinstance(self.action, BlockKernel) else 1.0

    @property
    def makes_rows(self) -> bool:
        """Whether several rows with the same address may come of one."""
        return isinstance(self.action, BlockKernel) and self.action.makes_rows

    @property
    def fingerprint(self) -> str:
        """Digest of what this step does."""
        if self.barrier is not None:  # pending or resolved, it is the same step
            return fingerprint(self.name, self.barrier)
        if isinstance(self.action, BlockKernel):
            return fingerprint(self.action.name, self.action.func, self.action.parameters)
        return fingerprint([self.name, *(_canonical(self.action) if isinstance(self.action, Graph) else ())])


@dataclass(frozen=True)
class Program:
    """The steps between a source and a sink."""

    source: Source
    """Where the blocks come from."""
    steps: tuple[Step, ...]
    """What happens to each block, in order."""
    meta: Any
    """Empty block as it comes out."""
    block_bytes: int
    """Block size of the table as it was read."""
    explicit_blocks: bool
    """True when the user named that block size."""
    origin: Source
    """The source as it was read, with the columns that this program does not need."""

    @property
    def row_share(self) -> float:
        """About the share of the source's rows that come out, as far as that is known; samples with one seed are nested."""
        return min((step.row_share for step in self.steps), default=1.0)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of what the program does; blocks, workers and memory are not in it."""
        return fingerprint([step.fingerprint for step in self.steps])


def run_step(step: Step, block: Any, of_range: OfRange | None = None) -> tuple[Outcome, float]:
    """Run one step on one block; return what came out and the seconds it took. A `RangeAction` comes with its range."""
    started = time.perf_counter()
    if isinstance(step.action, RangeAction):
        if of_range is None:
            raise ExpressionError(f"{step.name} was run without its range; this is a defect in curator_df")
        outcome = of_range.run(block)
    elif isinstance(step.action, BlockKernel):
        outcome = step.action.run(block)
    else:
        outcome = _foreign_outcome(step.action, block)
    return outcome, time.perf_counter() - started


def _foreign_outcome(action: Graph, block: Any) -> Outcome:
    result = action(block)
    removed = len(block) - len(result)
    if removed <= 0:
        return Outcome(result, dropped={FOREIGN_REASON: removed} if removed else {})

    def rejects() -> tuple[Any, Mapping[str, Any]]:
        places = np.arange(len(block))
        addresses = block.index.to_numpy()
        if len(block) > 1 and (addresses[1:] == addresses[:-1]).any():  # they do not say which of these rows went
            gone = ~np.isin(places, action(block.set_axis(places)).index)
        else:
            gone = ~np.isin(addresses, result.index)
        return block[gone], {"reason": [FOREIGN_REASON] * int(gone.sum())}

    return Outcome(result, dropped={FOREIGN_REASON: removed}, rejects=rejects)


def lower(df: Any) -> Program:
    """Turn a lazy table into a program.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table that begins with one of our readers.

    Returns
    -------
    Program
        The source, the steps, and the columns that come out.

    Raises
    ------
    ExpressionError
        If the table does not begin with one of our readers, reads from several, or has a step that needs more than one
        block (a merge, sort, shuffle or group-by). If a step makes cuDF blocks, `UnsupportedBackendError`.
    """
    if not isinstance(df, FrameBase) or df.ndim != 2:
        raise ExpressionError(
            f"expected a Dask DataFrame, as read_jsonl or read_parquet return it; got {type(df).__name__}"
            + (
                f" (df[[{df.name!r}]], with two brackets, is a DataFrame)"
                if isinstance(df, FrameBase) and df.ndim == 1
                else ""
            )
        )
    origin = _find_origin(df.expr)
    reader: ReadPartition = origin.operand("func")
    source = reader.source
    _require_block_by_block(df.expr, origin)
    hole = _placeholder(source.meta)
    expression = _with_set_up(df.expr.substitute(origin, hole)).optimize(fuse=False)
    spine = _spine(expression, _node_named(expression, hole._name))
    if len(spine) > 1 and isinstance(spine[1], Projection) and isinstance(spine[1].operand("columns"), list):
        source = source.select(spine[1].operand("columns"))
        spine = spine[1:]
    require_host_blocks(node._meta for node in spine)
    steps = tuple(_step(before, after) for before, after in itertools.pairwise(spine))
    return Program(source, steps, expression._meta, reader.block_bytes, reader.explicit, reader.source)


def origin_of(df: Any) -> ReadPartition:
    """Return the reader that a table begins with; raise `ExpressionError` if it is none of ours."""
    reader: ReadPartition = _find_origin(df.expr).operand("func")
    return reader


def require_addresses(df: Any, operator: str) -> None:
    """Raise `ExpressionError` if several rows of a table may have the same address, by which an operator tells rows apart."""
    for node in df.expr.walk():  # from the last step to the first
        kernel = node.operand("func") if isinstance(node, MapPartitions) else None
        if isinstance(kernel, BlockKernel) and kernel.unites_rows:
            return
        if isinstance(kernel, BlockKernel) and kernel.makes_rows:
            raise ExpressionError(
                f"{operator} tells rows apart by their address, and the rows that {kernel.name} makes of one share its "
                f"address. Run what comes before {operator} with checkpoint(df, path), and go on from the table that it "
                "returns: there each row has an address of its own"
            )


def _find_origin(expression: Expr) -> Expr:
    leaves = {node._name: node for node in expression.walk() if not node.dependencies()}
    ours = {name: node for name, node in leaves.items() if _is_ours(node)}
    if not ours:
        raise ExpressionError(
            "this table does not begin with one of curator_df's readers (read_jsonl, read_parquet), so it cannot be "
            "streamed under the budget; write it to Parquet with Dask and read it back with curator_df.read_parquet"
        )
    if len(leaves) > 1:
        raise ExpressionError(
            f"this table combines {len(leaves)} inputs; one run streams one input. Write each with write_parquet, or "
            "name several paths in one read_jsonl or read_parquet"
        )
    return next(iter(ours.values()))


def _require_block_by_block(expression: Expr, origin: Expr) -> None:
    """Refuse what needs several blocks, before the placeholder hides it: a sort of one partition is block by block."""
    for node in expression.walk():
        if node._name != origin._name and not isinstance(node, Blockwise):
            raise ExpressionError(
                f"{type(node).__name__} needs more than one block at a time, so it cannot be streamed under the budget. "
                "Run what comes before it with write_parquet, do this step on what was written with Dask, and go on "
                "from its result with read_parquet"
            )


def _is_ours(node: Expr) -> bool:
    return isinstance(node, FromMap) and isinstance(node.operand("func"), ReadPartition)


def _with_set_up(expression: Expr) -> Expr:
    """Return an expression in which objects given to ``map_partitions`` are set up where they are called."""
    for node in expression.walk():
        if isinstance(node, MapPartitions):
            function = set_up("map_partitions", node.operand("func"))
            if function is not node.operand("func"):
                return _with_set_up(expression.substitute(node, node.substitute_parameters({"func": function})))
    return expression


def _placeholder(meta: Any) -> Expr:
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(_no_block, [0], meta=meta, label="block").expr


def _no_block(_: int) -> Any:
    raise ExpressionError("a placeholder was computed; this is a defect in curator_df")


def _node_named(expression: Expr, name: str) -> Expr:
    return next(node for node in expression.walk() if node._name == name)


def _spine(root: Expr, source: Expr) -> list[Expr]:
    """Return, from source to root, the tables that every path between the two passes through."""
    nodes = {node._name: node for node in root.walk()}
    every = [node for node in nodes.values() if node.ndim == 2 and not _reaches(root, source, avoiding=node._name)]
    return sorted(every, key=lambda node: sum(1 for _ in node.walk()))


def _reaches(root: Expr, source: Expr, *, avoiding: str) -> bool:
    waiting, seen = [root], {avoiding}
    while waiting:
        node = waiting.pop()
        if node._name in seen:
            continue
        if node._name == source._name:
            return True
        seen.add(node._name)
        waiting.extend(node.dependencies())
    return False


def _step(before: Expr, after: Expr) -> Step:
    if isinstance(after, MapPartitions):
        kernel = after.operand("func")
        if isinstance(kernel, BlockKernel) and after.frame._name == before._name:
            return Step(kernel.name, kernel, kernel.peak_factor, kernel.peak_is_measured)
    hole = _placeholder(before._meta)
    expression = after.substitute(before, hole)
    tasks = dict(expression.lower_completely().__dask_graph__())
    objects = [node.operand("func") for node in expression.walk() if isinstance(node, MapPartitions)]
    held_bytes = sum(each.held_bytes for each in objects if isinstance(each, SetUp))
    action = Graph(tasks, (hole._name, 0), (expression._name, 0), held_bytes)
    return Step(_title(after), action, FOREIGN_PEAK_FACTOR, False)


def _title(node: Expr) -> str:
    function = node.operand("func") if isinstance(node, MapPartitions) else None
    if function is None:
        return type(node).__name__.lower()
    name = function.name if isinstance(function, SetUp) else getattr(function, "__name__", type(function).__name__)
    return f"map_partitions({name})"


def _canonical(graph: Graph) -> Iterable[Any]:
    """Yield the tasks with their keys replaced by their order: Dask's keys carry tokens that may change."""
    order = {key: number for number, key in enumerate(_topological(graph))}
    names = {key: str(number) for key, number in order.items()}
    for key, number in order.items():
        yield number
        if key != graph.hole:
            yield graph.tasks[key].substitute(names)


def _topological(graph: Graph) -> list[Any]:
    done: list[Any] = []

    def visit(key: Any) -> None:
        if key in done:
            return
        for dependency in sorted(graph.tasks[key].dependencies, key=str):
            visit(dependency)
        done.append(key)

    visit(graph.result)
    return done

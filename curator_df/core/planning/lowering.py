# SPDX-License-Identifier: Apache-2.0
"""Conversion of a Dask expression to a program: one picklable callable that takes a block and returns a block.

The expression is lowered once, on a one-partition placeholder, never per partition (optimizing a graph of 100,000 partitions
took 18 s and 470 MB). A step is the operation between two tables that every row must pass through: a kernel of curator_df, or any
block-by-block Dask operation (``df[df.n > 3]``, ``assign``, ``map_partitions``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import dask
import dask.dataframe as dd
import pandas as pd
from dask.dataframe.dask_expr import FrameBase, new_collection
from dask.dataframe.dask_expr._expr import Expr, MapPartitions, Projection, _DelayedExpr
from dask.dataframe.dask_expr.io import FromMap
from dask.dataframe.dispatch import make_meta_dispatch

import curator_df.core.column_choice
import curator_df.core.percentiles  # noqa: F401 - Dask computes percentiles of our columns wherever a table is known
from curator_df.core.backend import is_on_device
from curator_df.core.planning.dask_steps import (
    EXPLODES,
    no_reader,
    require_block_by_block,
    several_inputs,
    shared_addresses,
    streams,
    text_of,
    title,
    value_bytes,
    with_plain_values,
)
from curator_df.core.planning.program import Program, Step
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.deferred_step import kept_deferred
from curator_df.core.ranges.foreign_step import FOREIGN_PEAK_FACTOR, Graph
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.set_up import SetUp, set_up
from curator_df.core.ranges.source import Range, Ranges, Source
from curator_df.core.ranges.stream_parts import Parts, PartSource
from curator_df.errors import ExpressionError
from curator_df.files.storage import Folder
from curator_df.memory.resources import NO_LIMITS


class EmptyTable:
    """Block without rows, as an operand of a Dask expression: Dask neither copies its columns nor hashes their content.

    Either takes about 0.1 ms for each column, and a table of 10,000 columns is planned several times.
    """

    def __init__(self, block: Any) -> None:
        self.block = block

    def __dask_tokenize__(self) -> Any:
        dtypes = list(self.block.dtypes)
        kinds = {dtype: number for number, dtype in enumerate(dict.fromkeys(dtypes))}
        index = (self.block.index.name, self.block.index.dtype)
        return ("curator_df.EmptyTable", list(self.block.columns), [kinds[dtype] for dtype in dtypes], [*kinds], index)


make_meta_dispatch.register(EmptyTable, lambda table, index=None: table.block)  # noqa: ARG005 - as Dask calls it


@dataclass(frozen=True)
class ReadPartition:
    """Function that `dask.dataframe.from_map` calls for each partition of a table that curator_df reads."""

    source: Source
    """Source of the rows."""
    ranges: Ranges
    """Ranges of the source, one for each Dask partition."""
    block_bytes: int
    """Approximate decompressed bytes of each partition."""
    explicit: bool
    """True if the user set the block size."""
    parts: Parts | None = None
    """Division of the ranges into partitions, where some of these can only be read from their beginning."""

    def __call__(self, number: int, columns: Any = None) -> Any:
        """Return a whole partition as one block."""
        source = self.source if columns is None else self.source.select(list(columns))
        piece: Range
        if self.parts is None:
            piece = self.ranges[number]
        else:
            source, piece = self.in_parts(source), Range(number, 0, 0, 0, 0)
        blocks = list(source.blocks(piece, block_bytes=self.block_bytes))
        if not blocks:
            return source.meta
        return blocks[0] if len(blocks) == 1 else dd.methods.concat(blocks)

    def place(self, number: int) -> str:
        """Return in words which rows a partition has."""
        split, part, count = (number, 0, 1) if self.parts is None else self.parts.table[number].tolist()
        whole: Range = self.ranges[split]
        if count > 1:
            return f"part {part + 1} of {count} of {self.source.files[whole.first_file]}"
        return whole.place(self.source.files)

    def in_parts(self, source: Source) -> Any:
        """Return a source, perhaps of fewer columns, whose ranges are the partitions; the same where they are its ranges."""
        if self.parts is None:
            return source
        return PartSource(source, self.source, self.ranges, self.parts, self.block_bytes)


class Spooler(Protocol):
    """Object that runs a part of an expression with Dask, and keeps its rows in working files."""

    @property
    def folder(self) -> Folder:
        """Where working files are."""

    @property
    def planned_folder(self) -> Folder:
        """Where working files are or would be; nothing is made."""

    def spooled(self, expression: Expr) -> Any:
        """Return what was written: ``table``, read back with the partitions that it had, and the ``index`` of its rows."""

    def known(self, expression: Expr) -> Any:
        """Return the same if it was written before, None otherwise."""

    def forget(self, expression: Expr) -> int:
        """Delete what was written; return its bytes."""

    def computed(self, files: Sequence[str]) -> Sequence[str]:
        """Return the operations of Dask that made the rows of some files; none if these are not working files."""


_spoolers: list[Spooler] = []
"""Spoolers of the open sessions; the latest is used."""


def add_spooler(spooler: Spooler) -> None:
    """Use ``spooler`` for what a run cannot stream."""
    _spoolers.append(spooler)


def remove_spooler(spooler: Spooler) -> None:
    """Remove a spooler that `add_spooler` registered."""
    if spooler in _spoolers:
        _spoolers.remove(spooler)


def current_spooler() -> Spooler | None:
    """Return the spooler of the latest open session, if one has working files."""
    return _spoolers[-1] if _spoolers else None


def lower(df: Any, *, spools: bool = False) -> Program:
    """Convert a lazy table to a program.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        Table that begins with a reader of curator_df.
    spools : bool
        Whether Dask first computes the parts that a run cannot stream (rows in memory, a sort, a merge) into working files of
        the open session, from which the program then reads.

    Returns
    -------
    Program
        Source, steps, and columns of the result.

    Raises
    ------
    ExpressionError
        If the table does not begin with a reader of curator_df, reads from several, or has a step that needs more than one
        block (a merge, sort, shuffle or group-by).
    UnsupportedBackendError
        If the table contains Dask's own ``to_backend``, which keeps neither the types nor the plan.
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
    expression = spooled(df).expr if spools else df.expr
    origin = find_origin(expression, lacks_cluster=spools)
    reader: ReadPartition = origin.operand("func")
    source = reader.source
    require_block_by_block(expression, origin)
    hole = _placeholder(source.meta)
    with kept_deferred():
        # Not fused: each operation of Dask is a step of its own, with its memory, its rows and its name in errors.
        expression = _with_set_up(with_plain_values(expression).substitute(origin, hole)).optimize(fuse=False)
    spine = _spine(expression, _node_named(expression, hole._name))
    if len(spine) > 1 and isinstance(spine[1], Projection) and isinstance(spine[1].operand("columns"), list):
        source = source.select(spine[1].operand("columns"))
        spine = spine[1:]
    steps = tuple(_step(before, after) for before, after in itertools.pairwise(spine))
    return Program(source, steps, expression._meta, reader.block_bytes, reader.explicit, reader.source)


def spooled(df: Any) -> Any:
    """Return a table whose part that a run cannot stream is read from working files of the open session.

    Dask computes that part first, unless it did so before. The same table is returned if it has no such part, or no session is
    open.
    """
    part = foreign_part(df.expr) if _spoolers else None
    return df if part is None else new_collection(df.expr.substitute(part, _spoolers[-1].spooled(part).table.expr))


def foreign_part(expression: Expr) -> Expr | None:
    """Return the smallest part of an expression that Dask must compute before the rest can be streamed; None if none.

    All rows pass through this table, and every later step works block by block on its rows alone.
    """
    tables = [node for node in _spine_to_leaves(expression) if node.ndim == 2]
    streamed = [node for node in tables if _streams_from(expression, node)]
    if any(_is_ours(node) for node in streamed):
        return None
    return streamed[0] if streamed else expression


def _spine_to_leaves(root: Expr) -> list[Expr]:
    """Return, from the leaves to the root, the nodes that every path from the root to a leaf passes through."""
    nodes = {node._name: node for node in root.walk() if not isinstance(node, _DelayedExpr)}
    leaves = [node for node in nodes.values() if not node.dependencies()]
    every = [
        node
        for node in nodes.values()
        if not any(_reaches(root, leaf, avoiding=node._name) for leaf in leaves if leaf._name != node._name)
        or node._name == root._name
    ]
    return sorted(every, key=lambda node: sum(1 for _ in node.walk()))


def _streams_from(root: Expr, start: Expr) -> bool:
    """Return whether all steps after a table work on one block alone."""
    before = {node._name for node in start.walk()}
    return all(streams(node) for node in root.walk() if node._name not in before)


def origin_of(df: Any) -> ReadPartition:
    """Return the reader that a table begins with; raise `ExpressionError` if it is not one of curator_df."""
    reader: ReadPartition = find_origin(df.expr).operand("func")
    return reader


def require_addresses(df: Any, operator: str) -> None:
    """Raise `ExpressionError` if several rows of a table may share a row ID, by which an operator identifies rows."""
    for node in df.expr.walk():  # from the last step to the first
        kernel = node.operand("func") if isinstance(node, MapPartitions) else None
        if isinstance(kernel, BlockKernel) and kernel.unites_rows:
            return
        if isinstance(kernel, BlockKernel) and kernel.makes_rows:
            raise shared_addresses(operator, kernel.name)
        if type(node).__name__ in EXPLODES:
            raise shared_addresses(operator, title(node))


def find_origin(expression: Expr, *, lacks_cluster: bool = False) -> Expr:
    """Return the node of the reader that an expression begins with; raise `ExpressionError` if it is not one of curator_df."""
    leaves = {node._name: node for node in expression.walk() if not node.dependencies()}
    ours = {name: node for name, node in leaves.items() if _is_ours(node)}
    if not ours:
        raise no_reader(leaves.values(), lacks_cluster=lacks_cluster)
    inputs = [node for node in leaves.values() if not isinstance(node, _DelayedExpr)]
    if len(inputs) > 1:
        raise several_inputs(len(inputs))
    return next(iter(ours.values()))


def _is_ours(node: Expr) -> bool:
    return isinstance(node, FromMap) and isinstance(node.operand("func"), ReadPartition)


def _with_set_up(expression: Expr) -> Expr:
    """Return an expression in which objects passed to ``map_partitions`` are set up in the worker that calls them."""
    for node in expression.walk():
        if isinstance(node, MapPartitions) and not isinstance(node.operand("func"), BlockKernel):
            function = set_up("map_partitions", node.operand("func"))
            if function is not node.operand("func"):
                return _with_set_up(expression.substitute(node, node.substitute_parameters({"func": function})))
    return expression


def _placeholder(meta: Any) -> Expr:
    operand = EmptyTable(meta) if isinstance(meta, pd.DataFrame) else meta
    # Otherwise Dask announces text for lists and dicts, which blocks keep.
    with dask.config.set({"dataframe.convert-string": False}):
        return dd.from_map(_no_block, [0], meta=operand, label="block").expr


def _no_block(_: int) -> Any:
    raise ExpressionError(
        "an empty placeholder was computed instead of the input. This is a defect in curator_df; please report it with this "
        "traceback"
    )


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
    places: dict[str, Any] = {"takes_device": is_on_device(before._meta), "gives_device": is_on_device(after._meta)}
    if isinstance(after, MapPartitions):
        kernel = after.operand("func")
        if isinstance(kernel, BlockKernel) and after.frame._name == before._name:
            # Where the block stays in GPU memory, it does not use host memory.
            price = replace(kernel.price, peak_factor=0.0) if all(places.values()) else kernel.price
            return Step(kernel.name, kernel, price, **places)
    hole = _placeholder(before._meta)
    expression = after.substitute(before, hole)
    tasks = dict(expression.lower_completely().__dask_graph__())
    functions = [node.operand("func") for node in expression.walk() if isinstance(node, MapPartitions)]
    objects = [function for function in functions if isinstance(function, SetUp)]
    asked = (each.taking(each.resources) for each in objects)
    resources = max(asked, default=NO_LIMITS, key=lambda one: one != NO_LIMITS)
    values, makes_rows = value_bytes(tasks), any(type(node).__name__ in EXPLODES for node in expression.walk())
    held_bytes = values + sum(each.held_bytes for each in objects)
    names, text = ((hole._name, 0), (expression._name, 0)), text_of(expression, hole)
    # Values in the operation, such as those of ``isin``, are copied in each call.
    price = Price(FOREIGN_PEAK_FACTOR, held_bytes=held_bytes, resources=resources, fixed_bytes=values)
    return Step(title(after), Graph(tasks, *names, makes_rows, text), price, **places)

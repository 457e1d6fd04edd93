# SPDX-License-Identifier: Apache-2.0
"""Summarize a table in a few lines: what it reads, its columns, the steps so far, and which of them need a full pass."""

from __future__ import annotations

import contextlib
import html
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
from dask.dataframe.dask_expr._expr import MapPartitions
from dask.dataframe.dask_expr.io import FromMap

from curator_df.core.planning.dask_steps import title
from curator_df.core.planning.lowering import ReadPartition, lower, origin_of
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.source import Source
from curator_df.errors import CuratorError
from curator_df.memory.sizes import show_size

SHOWN_COLUMNS = 12
"""Columns that are listed with their types; of more, the number is given."""


@dataclass(frozen=True)
class TableSummary:
    """Facts about a table that are known before anything is computed."""

    reads: str
    """Files and their size."""
    rows: str
    """Rows of the input, where some footers tell."""
    columns: str
    """Names and types."""
    steps: str
    """Names of the steps, in order."""
    deferred: str
    """Steps that need a full pass, and what runs it; empty without any."""
    partitions: int
    """Partitions that Dask computes."""

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return the facts, each with its name."""
        return [
            ("reads", self.reads),
            ("rows", self.rows),
            ("columns", self.columns),
            ("steps", self.steps),
            *([("deferred", self.deferred)] if self.deferred else []),
            ("partitions", f"{self.partitions:,}"),
        ]

    def __str__(self) -> str:
        return "\n".join(["Lazy table: nothing is computed", *(f"{name:<11}{said}" for name, said in self.lines)])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{html.escape(said)}</td></tr>"
            for name, said in self.lines
        )
        return f"<div>Lazy table: nothing is computed</div><table>{rows}</table>"


def summarize_table(df: Any) -> TableSummary | None:
    """Return the summary of a table without computing it; None for a table that does not begin with one of our readers."""
    try:
        source = origin_of(df).source
    except CuratorError:
        return None
    steps, deferred = _steps_of(df)
    return TableSummary(
        _reads(source), _rows(source), _columns(df), ", ".join(steps) or "none", _said_of(deferred), df.npartitions
    )


def is_ours(value: Any) -> bool:
    """Tell whether a value is a lazy table that one of our readers reads."""
    return isinstance(value, dd.DataFrame) and begins_with_reader(value.expr)


def begins_with_reader(table: Any) -> bool:
    """Tell whether an expression or a collection of Dask reads, among other things, with one of our readers."""
    return any(isinstance(node, FromMap) and isinstance(node.operand("func"), ReadPartition) for node in table.walk())


def _reads(source: Source) -> str:
    count = len(source.files)
    first, size = source.files[0] if count else "", show_size(source.input_bytes)
    return f"{first}, {size}" if count == 1 else f"{count:,} files, {size}: {first}, ..."


def _rows(source: Source) -> str:
    rows = None
    if not any("://" in path for path in source.files[:1]):  # footers in a remote store take seconds
        with contextlib.suppress(CuratorError, OSError):  # a file that went away is an error of its reader
            rows = source.about_rows()
    return "unknown before the files are read" if rows is None else f"about {rows:,} in the files"


def _columns(df: Any) -> str:
    shown = [f"{name} ({dtype})" for name, dtype in df.dtypes.items()]
    more = len(shown) - SHOWN_COLUMNS
    return ", ".join(shown[:SHOWN_COLUMNS]) + (f" and {more:,} more" if more > 0 else "")


def _steps_of(df: Any) -> tuple[list[str], list[str]]:
    """Return the names of all steps, and those of the steps that need a full pass."""
    try:
        steps = [(step.name, step.pending is not None) for step in lower(df).steps]
    except CuratorError:  # Dask computes what cannot be streamed, such as a merge
        nodes = [node for node in df.expr.walk() if node.dependencies() and node.ndim == 2]
        steps = list(dict.fromkeys(_named(node) for node in reversed(nodes)))
    deferred = dict.fromkeys(name for name, is_deferred in steps if is_deferred)
    return [f"{name} (deferred until all rows were read)" if late else name for name, late in steps], list(deferred)


def _named(node: Any) -> tuple[str, bool]:
    kernel = node.operand("func") if isinstance(node, MapPartitions) else None
    return (kernel.name, kernel.pending is not None) if isinstance(kernel, BlockKernel) else (title(node), False)


def _said_of(deferred: list[str]) -> str:
    if not deferred:
        return ""
    verb = "needs" if len(deferred) == 1 else "need"
    return (
        f"{', '.join(deferred)} {verb} a full pass over the rows. head(), len() and compute() run it once for each cluster; "
        "write_parquet(), write_jsonl() and checkpoint() run it as part of the run."
    )

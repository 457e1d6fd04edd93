# SPDX-License-Identifier: Apache-2.0
"""Say what a chain would do and hold, without doing it."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterable
from typing import Any, Literal

import dask.dataframe as dd
from dask.dataframe.dask_expr import FrameBase, new_collection

from curator_df.core.columns import choose
from curator_df.core.files.storage import Folder
from curator_df.core.memory.budget import Layout, choose_layout, parse_memory
from curator_df.core.planning.dask_steps import require_no_dependence_on_blocks, title
from curator_df.core.planning.device_steps import for_sink
from curator_df.core.planning.plan import Plan, plan_stream
from curator_df.core.planning.program import Program, current_spooler, foreign_part, lower
from curator_df.core.ranges.deferred_step import DeferredStep
from curator_df.core.runner.session import current_session, has_session
from curator_df.core.sizes import show_duration, show_size
from curator_df.io.output import FileSink
from curator_df.io.spool import about_bytes, about_disk_bytes, stand_in
from curator_df.io.write import TARGET_FILE_BYTES, JsonlFormat, ParquetFormat
from curator_df.kernels.compile_cache import missing_kernels
from curator_df.kernels.kernel_sets import EVERY_RUN, compile_seconds


def explain(
    df: dd.DataFrame,
    *,
    memory: str | int | None = None,
    cpus: int | None = None,
    output: Literal["parquet", "jsonl"] = "parquet",
    rejects: bool = False,
) -> Plan:
    """Show the stages of a chain, their projected memory, and the layout with its reasons.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A chain that begins with `read_jsonl` or `read_parquet`, or any other table of Dask: then the plan says what Dask
        computes first, where its rows are written, and about how many bytes.
    memory : str or int, optional
        Plan for this budget. Defaults to that of the running cluster, or 60 % of the machine's memory.
    cpus : int, optional
        Plan for this many CPUs; use together with ``memory``.
    output : {"parquet", "jsonl"}
        The output format of the chain.
    rejects : bool
        Whether the dropped rows will be written.

    Returns
    -------
    Plan
        A plan: stages, projected bytes, layout and why. It displays itself in terminals and notebooks.

    Raises
    ------
    BudgetError
        If the chain cannot fit; the message states the block size or the memory that would.
    ExpressionError
        If the chain cannot run block by block.

    Notes
    -----
    Rows: none. Peak extra memory: none. Computes: no.
    """
    if memory is None and cpus is None and has_session():
        layout = current_session().weigh_client()
    else:
        layout = choose_layout(parse_memory(memory), cpus=cpus)
    choose("explain", "output", output, ("parquet", "jsonl"))
    parquet = FileSink(Folder("."), ParquetFormat("zstd"), TARGET_FILE_BYTES)
    sink = parquet if output == "parquet" else FileSink(Folder("."), JsonlFormat("none"), TARGET_FILE_BYTES)
    part = foreign_part(df.expr) if isinstance(df, FrameBase) and df.ndim == 2 else None
    if part is not None:
        return _plan_of_computed(df.expr, part, sink, parquet if rejects else None, layout)
    program = for_sink(lower(df))
    plan = plan_stream(program, sink, parquet if rejects else None, layout)
    return dataclasses.replace(plan, remarks=(*plan.remarks, *_reused(program), *_compiling(program)))


def _compiling(program: Program) -> tuple[tuple[str, str], ...]:
    """Return the remark about the kernels that a run compiles first; none where all of them are compiled."""
    parts: Iterable[Any] = (program.source, *(step.action for step in program.steps))
    missing = missing_kernels([*EVERY_RUN, *(kernel for part in parts for kernel in getattr(part, "compiled", ()))])
    if not missing:
        return ()
    seconds = show_duration(compile_seconds(missing))
    return (("compile", f"{', '.join(missing)}: about {seconds} of CPU time before the run, once on this machine"),)


def _reused(program: Program) -> list[tuple[str, str]]:
    """Say which passes a run takes over from a look."""
    looks = current_session().looks if has_session() else None
    names = [] if looks is None else looks.finished(program)
    return [("reused", f"passes of {name}: done by an earlier look, reused") for name in names]


def _plan_of_computed(expression: Any, part: Any, sink: FileSink, rejects: FileSink | None, layout: Layout) -> Plan:
    """Return the plan of a table of which Dask computes a part into working files before a run streams the rest."""
    require_no_dependence_on_blocks(part)
    spooler = current_spooler()
    known = None if spooler is None else spooler.known(part)
    if known is not None:
        said = f"Dask has computed {_name(part)} before; its rows are read from {known.folder.url}, {_on_disk(known.bytes)}"
        program = for_sink(lower(new_collection(expression.substitute(part, known.table.expr))))
        plan = plan_stream(program, sink, rejects, layout)
        return dataclasses.replace(plan, remarks=(*plan.remarks, ("reused", said), *_reused(program)))
    rows_bytes, disk_bytes = about_bytes(part), about_disk_bytes(part)
    where = "the working folder of the cluster" if spooler is None else spooler.folder.url
    size = "a size that is not known beforehand" if disk_bytes is None else f"about {_on_disk(disk_bytes)}"
    with tempfile.TemporaryDirectory() as folder:
        table = stand_in(part, Folder(folder))
        plan = plan_stream(
            for_sink(lower(new_collection(expression.substitute(part, table.expr)))), sink, rejects, layout
        )
    said = f"Dask computes {_name(part)} first and writes its rows to {where}: {size}"
    return dataclasses.replace(
        plan,
        input_bytes=rows_bytes or 0,
        input_files=part.npartitions,
        remarks=(*plan.remarks, ("working files", said)),
    )


def _name(part: Any) -> str:
    return title(part) if part.dependencies() else "the table that the chain begins with"


def _on_disk(size: int) -> str:
    return f"{show_size(size)} on disk"


def forget(df: dd.DataFrame) -> int:
    """Delete what looks at a chain have written, and what Dask has computed for it into working files.

    A later look or run computes it again. Everything goes when the cluster is closed, too.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The chain, or a longer one that begins with it.

    Returns
    -------
    int
        Bytes on disk that were freed.

    Notes
    -----
    Rows: none. Peak extra memory: none. Computes: no.
    """
    if not has_session():
        return 0
    looks, spooler, freed = current_session().looks, current_spooler(), 0
    for node in df.expr.walk():
        if looks is not None and isinstance(node, DeferredStep):
            freed += looks.forget_chain(node.operand("original").expression)
    for node in df.expr.walk():  # afterwards: a chain is known by the working files that it reads
        freed += 0 if spooler is None else spooler.forget(node)
    return freed

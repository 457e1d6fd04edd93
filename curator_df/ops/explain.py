# SPDX-License-Identifier: Apache-2.0
"""Explain a chain without running it: its passes, memory, time and disk space: `explain`."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import dask.dataframe as dd
from dask.dataframe.dask_expr import FrameBase, new_collection
from dask.dataframe.dask_expr._reductions import Chunk

from curator_df.core.calls import unknown_keyword
from curator_df.core.planning.branches import Branch, bound, fork, side_branches
from curator_df.core.planning.dask_steps import require_no_dependence_on_blocks, title
from curator_df.core.planning.device_plan import for_sink
from curator_df.core.planning.disk import DASK_ROWS, WorkingFiles
from curator_df.core.planning.lowering import current_spooler, foreign_part, lower
from curator_df.core.planning.output_paths import require_disjoint_outputs, require_not_input
from curator_df.core.planning.plan import Plan, plan_fork, planned
from curator_df.core.planning.program import DiskNeed, Program
from curator_df.core.ranges.deferred_step import DeferredStep
from curator_df.core.runner.explaining import DaskComputes, PlanKnown, explaining, with_sampled_time
from curator_df.core.runner.run import check_folders, range_bytes, with_disk
from curator_df.core.runner.session import Session, current_session, has_session
from curator_df.errors import ExpressionError, ParameterError
from curator_df.files.storage import Folder
from curator_df.files.working_files import NO_FOLDER
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import TARGET_FILE_BYTES, ParquetFormat
from curator_df.io.output.spool import about_bytes, about_disk_bytes, require_space, stand_in
from curator_df.io.output.write import write_parquet
from curator_df.kernels.compiling.compile_cache import missing_kernels
from curator_df.kernels.compiling.kernel_sets import EVERY_RUN, compile_seconds
from curator_df.memory.budget import Layout, choose_layout, parse_memory
from curator_df.memory.sizes import show_count, show_duration, show_size
from curator_df.memory.small_input import WHY_ASKED, WHY_THREADS, small_input, threads_asked
from curator_df.ops.rows.ids import CountSink

MOST_KERNELS_SHOWN = 3
"""Kernels that are named in the remark about what a run compiles first."""
RUNS = (
    "write_parquet",
    "write_jsonl",
    "write_many",
    "write_by",
    "write_tokens",
    "checkpoint",
    "shuffle_rows",
    "blend",
    "find_exact_duplicates",
    "find_near_duplicates",
    "find_semantic_duplicates",
    "describe",
    "describe_domains",
    "describe_importance",
    "describe_drops",
    "describe_exact_duplicates",
    "describe_near_duplicates",
    "describe_semantic_duplicates",
    "explore_thresholds",
    "audit_duplicates",
    "preview",
    "push_to_hub",
)
"""Functions whose call `explain` plans."""


def explain(
    df: dd.DataFrame | Mapping[str, dd.DataFrame] | str | os.PathLike[str],
    run: Callable[..., Any] | None = None,
    *,
    memory: str | int | None = None,
    cpus: int | None = None,
    processes: bool = True,
    rejects: bool | str | os.PathLike[str] | Mapping[Any, Any] = False,
    **options: Any,
) -> Plan:
    """Show whether a chain fits, its passes and steps with their memory, and the layout with its reasons.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, mapping of str to dask.dataframe.DataFrame, or path
        First argument of ``run``, mostly a table of Dask. For a table that is not a chain on one of the readers, the plan
        says what Dask computes first, where its rows are written, and about how many bytes. A mapping of folders to tables
        is planned as `write_many` runs it: all outputs in one pass.
    run : callable, optional
        Function that will run, whose call is planned as it would start: a writer, `checkpoint`, `shuffle_rows`, `blend`,
        a ``find_`` or ``describe_`` operator, `explore_thresholds`, `audit_duplicates`, `preview` or `push_to_hub`.
        By default `write_parquet`, or `write_many` for a mapping.
    memory : str or int, optional
        Plan for this budget. Defaults to that of the running cluster, or 60% of the machine's memory.
    cpus : int, optional
        Plan for this many CPUs; use together with ``memory``.
    processes : bool, default True
        False plans for a cluster with ``processes=False``, whose tasks run in threads of this process.
    rejects : bool, str, path or mapping
        Whether the dropped rows will be written; with ``run``, as that function takes it.
    **options
        Arguments of ``run``. Its folder may be left out.

    Returns
    -------
    Plan
        A plan: stages, projected bytes, layout and why. It displays itself in terminals and notebooks.

    Raises
    ------
    BudgetError
        If the chain cannot fit; the message states the block size or the memory that would.
    ExpressionError
        If the chain cannot run block by block, or if the tables of a mapping do not begin with the same read.
    ParameterError
        If ``run`` is not one of these functions, or refuses its arguments.
    OutputExistsError, OutputInUseError, ResumeError
        If ``run`` would refuse the state of its folders. Nothing is written.

    See Also
    --------
    preview, recommend, write_parquet

    Notes
    -----
    Rows: none. Peak extra memory: none. Computes: no.

    Examples
    --------
    >>> cdf.explain(docs, cdf.write_parquet, partition_on="language", rejects="rejects/")  # doctest: +SKIP
    >>> cdf.explain(docs, cdf.find_near_duplicates, scheme="fineweb", memory="4GB")  # doctest: +SKIP
    """
    session = current_session() if memory is None and cpus is None and processes and has_session() else None
    if session is not None:
        layout = session.weigh_client()
    else:
        in_threads = threads_asked.get() or not processes
        why_threads = WHY_ASKED if in_threads else WHY_THREADS if small_input.get() else ""
        allowed_bytes = (
            current_session().layout.allowed_bytes if memory is None and has_session() else parse_memory(memory)
        )
        layout = choose_layout(allowed_bytes, cpus=cpus, in_threads=why_threads)
    if run is None and options:
        option = next(iter(options))
        if option in inspect.signature(write_parquet).parameters:
            raise TypeError(
                f"explain: {option}= is an option of the function that writes. Pass that function as well, for example "
                f"explain(df, cdf.write_parquet, {option}=...)"
            )
        raise TypeError(unknown_keyword(explain, option))
    tables = df if isinstance(df, Mapping) else {".": df}
    if not tables:
        raise ParameterError("explain: the dict of tables is empty. Pass at least one table, such as {'out/': docs}")
    with contextlib.ExitStack() as stack:
        computed = _Computed(stack, is_for_running=session is not None)
        readable = {name: computed.readable(table) for name, table in tables.items()}
        if run is None:
            plan, programs = _of_writer(readable, layout, rejects=bool(rejects), has_folders=isinstance(df, Mapping))
        else:
            options |= {} if rejects is False else {"rejects": rejects}
            given = readable if isinstance(df, Mapping) else readable["."]
            plan, programs = _of_call(given, run, options, layout, session)
    reused = dict.fromkeys(remark for program in programs for remark in _reused(program))
    pins = dict.fromkeys(pin for each in programs for pin in getattr(getattr(each.source, "listing", None), "pins", ()))
    pinned = [("pinned", pin) for pin in pins]
    remarks = (*plan.remarks, *computed.remarks, *pinned, *reused, *_compiling(programs))
    files = WorkingFiles((*computed.needs, *plan.working_files.needs))
    plan = with_sampled_time(dataclasses.replace(plan, remarks=remarks, working_files=files), programs)
    return plan if computed.files is None else dataclasses.replace(plan, **computed.files)


def _of_writer(
    tables: Mapping[str, Any], layout: Layout, *, rejects: bool, has_folders: bool
) -> tuple[Plan, Sequence[Program]]:
    """Return the plan of a run that writes tables, and their programs."""
    branches = [
        Branch(
            for_sink(lower(table)),
            FileSink(Folder(name), ParquetFormat("zstd"), TARGET_FILE_BYTES),
            FileSink(Folder(f"{name}/rejects"), ParquetFormat("zstd"), TARGET_FILE_BYTES) if rejects else None,
        )
        for name, table in tables.items()
    ]
    branches = [bound(branch, "raise") for branch in branches]
    if has_folders:
        require_disjoint_outputs([(branch.sink, None) for branch in branches])
        for branch in branches:
            require_not_input(branch.program, branch.sink)
            check_folders(dataclasses.replace(branch, rejects=None), "raise")
    branches += side_branches(branches)
    joined, plan = planned(fork(branches), layout, range_bytes)
    plan = with_disk(plan, joined, layout, "auto")
    if has_folders:
        plan.working_files.require(branches[0].sink.folder)
    return plan, [branch.program for branch in branches]


def _of_call(
    tables: Any, run: Callable[..., Any], options: Mapping[str, Any], layout: Layout, session: Session | None
) -> tuple[Plan, Sequence[Program]]:
    """Return the plan of a call, which stops before it writes anything, and its programs."""
    if isinstance(run, str):
        given = run if run in RUNS else "write_parquet"
        raise ParameterError(
            f"explain: run={run!r} is text. Pass the function itself, without quotes: explain(df, cdf.{given}). The functions "
            f"are {', '.join(RUNS)}"
        )
    name = getattr(run, "__name__", type(run).__name__)
    if name not in RUNS or not str(inspect.unwrap(run).__module__).startswith("curator_df."):
        operator = " Apply an operator to the table first: explain(df.pipe(operator, ...))" if callable(run) else ""
        raise ParameterError(
            f"explain: run={name} is not a function that writes, searches or describes. Use one of: {', '.join(RUNS)}.{operator}"
        )
    nowhere = os.path.join(tempfile.gettempdir(), NO_FOLDER)
    path = inspect.signature(run).parameters.get("path")
    folder = {"path": nowhere} if path is not None and path.default is path.empty else {}
    try:
        with explaining(layout, nowhere, session):
            run(tables, **{**folder, **options})
    except PlanKnown as known:
        return known.plan, known.programs
    except DaskComputes as computed:
        return _of_dask(computed.expression, layout)
    raise ParameterError(
        f"explain: {name} with these arguments starts no run, because it has nothing to compute. Pass a table that is not "
        "computed yet, such as one that read_parquet returns"
    )


def _of_dask(expression: Any, layout: Layout) -> tuple[Plan, Sequence[Program]]:
    """Return the plan for a table that Dask is about to compute, and its program: the largest part that is a chain on a reader.

    Dask computes each partition, which has about the bytes of a block, and combines what comes out.
    """
    for node in expression.walk():
        if getattr(node, "ndim", None) != 2 or isinstance(node, Chunk):  # part of a reduction
            continue
        try:
            program = for_sink(lower(new_collection(node)))
        except ExpressionError:
            continue
        joined = fork([Branch(program, CountSink(Folder(".")))])
        plan = with_disk(plan_fork(joined, layout), joined, layout)
        last = dataclasses.replace(plan.stages[-1], title="compute", steps=plan.stages[-1].steps[:-1])
        said = "Dask computes each partition in a task, and the result comes to this process. It cannot be resumed"
        remarks = (*plan.remarks, ("then", said))
        return dataclasses.replace(plan, stages=(*plan.stages[:-1], last), remarks=remarks, run_once=""), [program]
    raise ParameterError(
        "explain: this call computes tables that do not begin with a reader of curator_df, such as read_parquet. Dask "
        "computes them without a plan. Read the input with a reader of curator_df, to get one"
    )


def _compiling(programs: Iterable[Program]) -> tuple[tuple[str, str], ...]:
    """Return the remark about the kernels that a run compiles first; none where all of them are compiled."""
    missing = missing_kernels([*EVERY_RUN, *(kernel for program in programs for kernel in program.compiled)])
    if not missing:
        return ()
    seconds, more = show_duration(compile_seconds(missing)), len(missing) - MOST_KERNELS_SHOWN
    names = ", ".join(missing[:MOST_KERNELS_SHOWN]) + (f" and {show_count(more, 'more kernel')}" if more > 0 else "")
    return (("compile", f"{names}: about {seconds} of CPU time before the run, once on this machine"),)


def _reused(program: Program) -> list[tuple[str, str]]:
    """Say which passes a run takes over from a look."""
    looks = current_session().looks if has_session() else None
    names = [] if looks is None else looks.finished(program)
    return [("reused", f"passes of {name}: done by an earlier look, reused") for name in names]


class _Computed:
    """Parts of tables that Dask computes into working files before a run streams the rest."""

    def __init__(self, stack: contextlib.ExitStack, *, is_for_running: bool) -> None:
        self._stack, self._is_for_running = stack, is_for_running
        self._tables: dict[str, Any] = {}
        self.remarks: list[tuple[str, str]] = []
        self.needs: list[DiskNeed] = []
        """Disk space for the working files."""
        self.files: dict[str, Any] | None = None
        """Size of the input, where it is such a part that is not computed yet."""

    def readable(self, table: Any) -> Any:
        """Return a table whose part that Dask computes is replaced by its working files, or by a stand-in for these."""
        part = foreign_part(table.expr) if isinstance(table, FrameBase) and table.ndim == 2 else None
        if part is None:
            return table
        require_no_dependence_on_blocks(part)
        if part._name not in self._tables:
            self._tables[part._name] = self._found(part)
        return new_collection(table.expr.substitute(part, self._tables[part._name].expr))

    def _found(self, part: Any) -> Any:
        spooler = current_spooler()
        known = None if spooler is None else spooler.known(part)
        if known is not None:
            rows = f"its rows are read from {known.folder.url}, {_on_disk(known.bytes)}"
            self.remarks.append(("reused", f"Dask has computed {_name(part)} before; {rows}"))
            return known.table
        rows_bytes, disk_bytes = about_bytes(part), about_disk_bytes(part)
        where = "the working folder of the cluster" if spooler is None else spooler.planned_folder.url
        size = "a size that is not known beforehand" if disk_bytes is None else f"about {_on_disk(disk_bytes)}"
        said = f"Dask computes {_name(part)} first and writes its rows to {where}: {size}"
        self.remarks.append(("working files", said))
        self.files = {"input_bytes": rows_bytes or 0, "input_files": part.npartitions}
        if spooler is not None and self._is_for_running:
            require_space(part, spooler.planned_folder)
        if disk_bytes:
            self.needs.append(DiskNeed(_name(part), {DASK_ROWS: disk_bytes}, disk_bytes))
        return stand_in(part, Folder(self._stack.enter_context(tempfile.TemporaryDirectory())))


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

    See Also
    --------
    checkpoint, preview

    Notes
    -----
    Rows: none. Peak extra memory: none. Computes: no.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/").pipe(cdf.drop_exact_duplicates)  # doctest: +SKIP
    >>> rows = len(docs)  # doctest: +SKIP
    >>> freed = cdf.forget(docs)  # doctest: +SKIP
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

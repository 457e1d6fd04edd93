# SPDX-License-Identifier: Apache-2.0
"""Duplicates as a table on disk: run the stages of a deferred drop, keep them, and write which row each one matched.

The folder holds the table (``part-*.parquet``) and, in ``_curator/``, the parameters, the receipt and the drops of each range,
so that a ``drop_`` operator that is given the table computes nothing twice.
"""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from dask.dataframe.dask_expr import FrameBase

from curator_df.arguments import choose, path_of
from curator_df.core.columns import is_text, require_columns
from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.branches import Branch, fork, named_steps
from curator_df.core.planning.disk import WorkingFiles, working_files
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.output_paths import require_outside
from curator_df.core.planning.plan import plan_stream
from curator_df.core.planning.program import DiskNeed, Program, with_columns
from curator_df.core.planning.row_estimate import estimate_kept, estimate_row_bytes
from curator_df.core.ranges.journal import Identity, Journal, difference
from curator_df.core.ranges.manifest import TaskRecord
from curator_df.core.ranges.parameter_digests import printed, printed_source
from curator_df.core.runner.advice import advice, rows_out_of_memory
from curator_df.core.runner.explaining import is_explaining, stop_if_explaining
from curator_df.core.runner.passes import STAGES_FOLDER, PassRunner, Stage, stage_identity
from curator_df.core.runner.progress import passes_bar, with_progress_lines
from curator_df.core.runner.run import range_bytes
from curator_df.core.runner.run_receipt import note_start
from curator_df.core.runner.session import Session, current_session, prepare_kernels
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.dedup.table.id_pass import take_ids
from curator_df.dedup.table.id_sink import ANSWER_WORDS, QUESTION_WORDS
from curator_df.errors import InputChangedError, InputError, ParameterError, SchemaError, outside_level
from curator_df.exchange.dropped_rows import Found
from curator_df.files.hub import refuse_hub_output, without_commits
from curator_df.files.owner import require_claimable
from curator_df.files.storage import JOURNAL_FOLDER, QUARANTINE_FOLDER, FileRecord, Folder, reading_errors, shown_path
from curator_df.files.working_files import COMPARE_PARQUET, FIND_AGAIN, has_working_file
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import TARGET_FILE_BYTES, ParquetFormat
from curator_df.io.output.receipts import folder_of
from curator_df.io.parquet.reader import read_parquet
from curator_df.ops.duplicates.group_table import GroupTable, TableJob, run_table, table_pieces
from curator_df.receipts.earlier import earlier_runs
from curator_df.receipts.receipt import Receipt, StepReceipt

DROPS_FOLDER = f"{JOURNAL_FOLDER}/drops"
PARAMETERS = f"{JOURNAL_FOLDER}/parameters.json"
SEARCHED = f"{JOURNAL_FOLDER}/searched.json.z"
"""Input files of the search, with size and stamp, as compressed JSON."""
KINDS = {"scheme": "near_duplicates", "embedding": "semantic_duplicates", "normalize": "exact_duplicates"}
"""Kind of the search, by a parameter that only this search has."""

FIND_GROUPS = (
    "Run find_exact_duplicates, find_near_duplicates or find_semantic_duplicates on this table, and pass that result"
)
"""Way out of an error about groups of another table."""


@with_progress_lines("preparing the search")
def find_groups(
    pending: Any,
    operator: str,
    parameters: Mapping[str, Any],
    workdir: Any,
    options: Any,
    table: GroupTable,
    on_error: OnError,
    on_oom: OnOom,
) -> Any:
    """Run what a deferred drop waits for, keep it, and return the table of groups.

    Parameters
    ----------
    pending : dask.dataframe.DataFrame
        A table whose last step is the deferred drop.
    operator : str
        Name of the ``find_`` operator, for the folder.
    parameters : mapping
        Of the drop, as JSON takes them.
    workdir : str, path or None
        Where the folder is made; the cluster's by default.
    options : dict or None
        Storage options for fsspec.
    table : GroupTable
        How it is made.
    on_error : {"raise", "quarantine"}
    on_oom : {"retry", "raise"}
        As writers have them.
    """
    choose(operator, "on_error", on_error, OnError)
    choose(operator, "on_oom", on_oom, OnOom)
    session = current_session()
    session.require_ready()
    program = lower(pending, spools=True)
    identity = _identity(program, table)
    home = _home(session, operator, identity, workdir, options)
    sink = FileSink(home, ParquetFormat("zstd"), TARGET_FILE_BYTES)
    require_outside(program, home)
    files = _working_files(program, operator, home, sink, table, session)
    files.require(home, is_begun=Journal(home).is_started)
    if is_explaining():
        # The step has the name of the drop, since both find the same rows; the plan names the call.
        last = dataclasses.replace(program.steps[-1], name=operator)
        shown = dataclasses.replace(program, steps=(*program.steps[:-1], last))
        require_claimable(home)
        plan = dataclasses.replace(plan_stream(shown, sink, None, session.weigh_client()), working_files=files)
        if (journal := Journal(home)).is_started:
            journal.resume(identity)
            if journal.receipt is not None and not home.changed(table_files(home)):
                again = (
                    "reused",
                    f"{operator} has found these groups before, in {home.url}: nothing is searched again",
                )
                plan = dataclasses.replace(plan, remarks=(*plan.remarks, again))
        stop_if_explaining(plan, [program])
    with Journal(home) as journal:
        if journal.is_started:
            ranges = journal.resume(identity)
        else:
            ranges = program.source.cut(range_bytes(program.source))
            home.write(PARAMETERS, json.dumps(dict(parameters)).encode())
            write_searched_files(home, program.source)
            journal.start(identity, ranges)
        if journal.receipt is None or home.changed(table_files(home)):
            plan = plan_stream(program, sink, None, session.weigh_client())
            temporary = home.below(STAGES_FOLDER)
            stages = PassRunner(session, plan.stages[0], temporary, ranges, on_error, on_oom)
            prepare_kernels(session, [program])
            if session.sampler is not None:
                session.sampler.take()
            with stages.running(home.url, plan, program.steps), passes_bar() as show:
                kept = home.below(DROPS_FOLDER)
                before, found = stages.prepare_last(program, kept, show)
                written = _write_table(stages, before, found, table, journal, sink)
            if not any(done.files for done in written):
                sink.write_empty(table.meta)
            _finish(
                journal, sink, program, stages, plan.with_merges(stages.merge_bytes), session, written, _set_aside(kept)
            )
            stages.clear()
            home.delete_tree(STAGES_FOLDER)
    return read_parquet(home.url, storage_options=options)


def _working_files(
    program: Program, operator: str, home: Folder, sink: FileSink, table: GroupTable, session: Session
) -> WorkingFiles:
    """Return the disk space for a search, and in the worst case for the IDs of all rows."""
    step = program.steps[-1]
    kept: Any = step.pending
    action: Any = step.action
    action = dataclasses.replace(action, pending=kept.stored_in(home.below(DROPS_FOLDER)))
    program = dataclasses.replace(
        program, steps=(*program.steps[:-1], dataclasses.replace(step, name=operator, action=action))
    )
    ranges = program.source.cut(range_bytes(program.source))
    files = working_files(fork([Branch(program, sink)]), ranges, session.layout, "never")
    if table.id_column is None:
        return files
    before = with_columns(dataclasses.replace(program, steps=()), (table.id_column,))
    # Each row asks for its ID and for that of the row that it matched; an answer is a position and the ID.
    row_bytes = 2 * (2 * 8 * QUESTION_WORDS + 8 * ANSWER_WORDS) + 2 * estimate_row_bytes(before, ranges)
    size = int(estimate_kept(program, ranges) * row_bytes)
    return WorkingFiles((*files.needs, DiskNeed(f"id={table.id_column!r}", {}, 0, size, "if all rows have duplicates")))


def found_drops(
    groups: Any, operator: str, options: Any = None, *, any_kind: bool = False, needs_table: bool = False
) -> tuple[Folder, dict[str, Any]]:
    """Return where the drops of a table lie, and the parameters with which they were found; of the kind that the operator names.

    Raises
    ------
    InputChangedError
        If the table is needed, and a file of it is not as it was written.
    InputError
        If it is not such a table, was not finished, or was left by another ``find_`` operator.
    ParameterError
        If it is neither a Dask DataFrame nor a path.
    """
    if isinstance(groups, FrameBase):
        folder = folder_of(groups)
    elif isinstance(groups, (str, os.PathLike)):
        folder = Folder(path_of(operator, "groups", groups).rstrip("/"), options or {})
    else:
        raise ParameterError(
            f"{operator}: groups= must be the Dask DataFrame that find_exact_duplicates, find_near_duplicates or "
            f"find_semantic_duplicates returned, or its folder; got a "
            f"{'pandas ' if isinstance(groups, pd.DataFrame) else ''}{type(groups).__name__}"
        )
    with reading_errors(folder.url):
        is_complete = folder.exists(PARAMETERS) and folder.exists(f"{JOURNAL_FOLDER}/receipt.json")
    if not is_complete:
        raise no_groups(operator, folder)
    require_open_files(operator, folder)
    parameters: dict[str, Any] = json.loads(folder.read(PARAMETERS))
    kind = kind_of(parameters)
    if kind and kind not in operator and not any_kind:
        raise InputError(
            f"{operator}: groups= were found by find_{kind}. Pass them to drop_{kind}, or find groups for {operator} with "
            f"find_{operator.partition('_')[2]}"
        )
    if needs_table:
        require_whole_table(folder, operator)
    return folder.below(DROPS_FOLDER), parameters


def table_files(home: Folder) -> list[FileRecord]:
    """Return the files of a table of groups, except the one of a table without rows."""
    return [file for _, done in sorted(Journal(home).records().items()) for file in done.files]


def require_whole_table(home: Folder, operator: str) -> None:
    """Raise `InputChangedError` if a file of a table of groups is not as it was written."""
    if changed := home.changed(table_files(home)):
        raise InputChangedError(
            f"{operator}: {home.path(changed[0].name)!r}, a file of groups=, is missing or is not the one that the search wrote. "
            "To write it again, repeat the call that found the groups, with the same workdir="
        )


def _home_of(drops: Folder) -> Folder:
    return Folder(drops.url.removesuffix(f"/{DROPS_FOLDER}"), drops.options)


def no_groups(operator: str, folder: Folder) -> InputError:
    """Return the error for a folder that is not the complete result of a search."""
    said = (
        f"{operator}: groups= was read from {folder.url}, which is not the complete result of find_exact_duplicates, "
        "find_near_duplicates or find_semantic_duplicates. "
    )
    if any(True for _ in folder.names()):
        return InputError(f"{said}Pass the table that such a call returned, or its folder")
    return InputError(f"{said}It has no files: {FIND_AGAIN}")


def require_open_files(operator: str, groups: Folder) -> None:
    """Raise `ParameterError` if groups were found in working files of a cluster that are gone: no table has these rows now."""
    if not groups.exists(SEARCHED):
        return
    paths = json.loads(zlib.decompress(groups.read(SEARCHED)))[0]
    if any(not Path(path).exists() for path in paths if has_working_file([path])):
        raise ParameterError(f"{operator}: {COMPARE_PARQUET}")


def kind_of(parameters: Mapping[str, Any]) -> str:
    """Return the kind of a search, such as ``"near_duplicates"``, from its parameters; empty if it is unknown."""
    return next((kind for name, kind in KINDS.items() if name in parameters), "")


def require_same_input(docs: Any, operator: str, drops: Folder) -> None:
    """Raise `ParameterError` unless the drops were found in this table."""
    program, kept = lower(docs, spools=True), json.loads(drops.read(f"{JOURNAL_FOLDER}/plan.json"))
    require_searched_files(_home_of(drops), program.source, operator)
    what = ""
    if kept["input"] != program.source.fingerprint:
        what = "its input files or columns are different, or were changed since"
    elif kept["program"] != program.fingerprint:
        what = "its steps are different"
    if what:
        raise ParameterError(f"{operator}: groups= belong to another table than docs=: {what}. {FIND_GROUPS}")


def write_searched_files(home: Folder, source: Any) -> None:
    """Write paths, sizes and stamps (modification time or ETag) of the input files next to the groups that are found in them."""
    listing = source.listing
    files = [[without_commits(path) for path in listing.paths], listing.sizes.tolist(), listing.stamps.tolist()]
    home.write(SEARCHED, zlib.compress(json.dumps(files).encode()))


def require_searched_files(home: Folder, source: Any, operator: str) -> None:
    """Raise `ParameterError` if the input of a table is not the one in which groups were found, with the first file that differs.

    Groups of a release that did not keep the list of files are compared by the names of files only, when they are read.
    """
    listing = getattr(source, "listing", None)
    if listing is None or not home.exists(SEARCHED):
        return
    kept = json.loads(zlib.decompress(home.read(SEARCHED)))
    was = dict(zip(map(without_commits, kept[0]), zip(*kept[1:], strict=True), strict=True))
    problem = ""
    for path, size, stamp in zip(listing.paths, listing.sizes.tolist(), listing.stamps.tolist(), strict=True):
        then = was.pop(without_commits(path), None)
        if then is None:
            problem = f"{shown_path(path)!r} was not among the files of that table"
        elif then[0] != size:
            problem = f"{shown_path(path)!r} had {then[0]:,} bytes and now has {size:,} bytes"
        elif then[1] != stamp:
            problem = f"{shown_path(path)!r} was modified since"
        if problem:
            break
    if not problem and was:
        problem = f"{shown_path(next(iter(was)))!r} of that table is missing in this one"
    if problem:
        raise ParameterError(f"{operator}: groups= belong to another table: {problem}. {FIND_GROUPS}")


def require_same_parameters(operator: str, found: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise `ParameterError` unless groups were found with what is given, and say what differs."""
    was, now = _flat(found), _flat(given)
    if changed := [name for name in sorted({*was, *now}) if was.get(name) != now.get(name)]:
        with_, not_with = (", ".join(f"{name}={of.get(name)!r}" for name in changed) for of in (was, now))
        raise ParameterError(
            f"{operator}: groups= were found with {with_}, but this call has {not_with}. Leave these parameters out, or "
            "find groups again"
        )


def _flat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters by the names that users give them."""
    scheme = parameters.get("scheme") or {}
    return {**{name: value for name, value in parameters.items() if name != "scheme"}, **scheme}


def require_same_table(pending: Any, operator: str, drops: Folder) -> None:
    """Raise `ParameterError` unless the drops were found for this table."""
    program = lower(pending, spools=True)
    require_searched_files(_home_of(drops), program.source, operator)
    before = dataclasses.replace(program, steps=program.steps[:-1])
    kept = json.loads(drops.read(f"{JOURNAL_FOLDER}/plan.json"))
    now = stage_identity(before, program.steps[-1])
    if kept["input"] != now.input:
        raise ParameterError(
            f"{operator}: groups= belong to another table: the input files of this table are different, or were changed "
            f"since (their list, a size or a modification time). {FIND_GROUPS}"
        )
    if found := difference(kept, now):
        raise ParameterError(f"{operator}: groups= belong to another table: {found}. {FIND_GROUPS}")


def _write_table(
    stages: PassRunner, before: Program, found: Found, table: GroupTable, journal: Journal, sink: FileSink
) -> list[TaskRecord]:
    more = () if table.against is None else tuple(table.against.program.source.files)
    job = TableJob(found, sink, (*before.source.files, *more), table, stages.temporary)
    if table.id_column is not None:
        stage = Stage(stages, Journal(stages.temporary, journal))
        ids = take_ids(stage, before, table.id_column, found, table.matches, table.against)
        job = dataclasses.replace(job, ids=ids)
    pieces = table_pieces(found)
    return stages.run_tasks(journal, "table", job, pieces, stage=stages.stage, folder=sink.folder, task=run_table)


def named_by(table: GroupTable, df: Any, operator: str, column: str | None, against: Any = None) -> GroupTable:
    """Return the same table with the ids of rows and of the rows that they matched, of a column of text or integers."""
    if column is None:
        return table
    kept = table.against
    if kept is not None:
        require_columns(against, f"{operator}: against=", column)
        kept = dataclasses.replace(kept, program=lower(against[[column]], spools=True))
    for one in (df,) if kept is None else (df, against):
        require_columns(one, operator, column)
        dtype = one.dtypes[column]
        if not is_text(dtype) and getattr(dtype, "kind", "O") not in "iu":
            raise SchemaError(
                f"{operator}: id={column!r} must be a column of text or integers, but it holds {dtype}. Use another column, or "
                "convert it with astype"
            )
    dtype = "string[pyarrow]" if is_text(df.dtypes[column]) else "Int64"
    return dataclasses.replace(table, id_column=column, id_dtype=dtype, against=kept)


def _identity(program: Program, table: GroupTable) -> Identity:
    columns = fingerprint([table.id_column, [f"{name} {dtype}" for name, dtype in table.columns.items()]])
    named, read = named_steps(program.steps), printed_source(program.source)
    output = printed({"id": table.id_column})
    return Identity(program.source.fingerprint, program.fingerprint, f"groups {columns}", *named, output, read)


def _home(session: Session, operator: str, identity: Identity, workdir: Any, options: Any) -> Folder:
    parent = workdir if workdir is not None else session.workdir
    if parent is None:
        raise ParameterError(
            f"{operator} needs workdir=, because the workers of the cluster that you connected to may be on other machines. "
            "Set it to a folder or URL that all of them can read and write"
        )
    refuse_hub_output(os.fspath(parent))
    return Folder(f"{os.fspath(parent).rstrip('/')}/{operator}-{fingerprint(identity)[:16]}", options or {})


def _set_aside(drops: Folder) -> tuple[int, int]:
    """Return how many rows the pass that took keys has put into the quarantine, and how many of them because memory ran out."""
    done = Journal(drops).records().values()
    return sum(one.rows_quarantined for one in done), sum(one.rows_out_of_memory for one in done)


def _finish(
    journal: Journal,
    sink: FileSink,
    program: Program,
    stages: PassRunner,
    projected_bytes: int,
    session: Session,
    written: list[TaskRecord],
    set_aside: tuple[int, int],
) -> None:
    files = [file for done in written for file in done.files]
    exchange = stages.exchanges[-1]
    receipt = Receipt(
        sink.folder.url,
        rows_read=exchange.keys + set_aside[0],
        rows_quarantined=set_aside[0],
        rows_out_of_memory=set_aside[1],
        quarantine=f"{sink.folder.url}/{DROPS_FOLDER}/{QUARANTINE_FOLDER}" if set_aside[0] else None,
        rows_written=sum(record.rows for record in files),
        files=len(files),
        input_bytes=program.source.input_bytes,
        output_bytes=sum(record.size_bytes for record in files),
        steps=[StepReceipt("compare", exchange.keys, exchange.keys, exchange.seconds)],
        ranges=len(stages.ranges),
        seconds=exchange.seconds,
        allowed_bytes=session.layout.allowed_bytes,
        projected_bytes=projected_bytes,
        measured_bytes=session.sampler.seen() if session.sampler is not None else 0,
        timeline=session.sampler.trace() if session.sampler is not None else [],
        exchanges=stages.exchanges,
        retries=dict(stages.retries),
        leaks=stages.leaks,
        earlier=earlier_runs(program.source),
    )
    note_start(receipt)
    receipt.advice = advice(receipt)
    if receipt.rows_out_of_memory:
        warnings.warn(rows_out_of_memory(receipt), UserWarning, stacklevel=outside_level())
    journal.finish(receipt.to_json())

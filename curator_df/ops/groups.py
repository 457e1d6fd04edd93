# SPDX-License-Identifier: Apache-2.0
"""Duplicates as a table on disk: run the stages of a pending drop, keep them, and write which row each one matched.

The folder holds the table (``part-*.parquet``) and, in ``_curator/``, the parameters, the receipt and the drops of each range,
so that a ``drop_`` operator that is given the table computes nothing twice.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import pandas as pd
from dask.dataframe.dask_expr import FrameBase

from curator_df.core.barrier import DROP_READER_BYTES, Found
from curator_df.core.drops import read_drops
from curator_df.core.events import RunStarted, told_run
from curator_df.core.fingerprint import fingerprint
from curator_df.core.held import released_after
from curator_df.core.journal import Identity, Journal, difference
from curator_df.core.live_panel import live_panel
from curator_df.core.plan import plan_stream
from curator_df.core.program import Program, lower
from curator_df.core.progress import progress_bar
from curator_df.core.receipt import Receipt, StepReceipt
from curator_df.core.run import range_bytes
from curator_df.core.session import Session, current_session, prepare_kernels
from curator_df.core.source import OFFSET_BITS, Range
from curator_df.core.stages import STAGES_FOLDER, StageRunner, stage_identity
from curator_df.core.storage import JOURNAL_FOLDER, Folder
from curator_df.core.task import Attempt, Manifest, run_guarded
from curator_df.errors import InputError, ParameterError
from curator_df.io.checkpoint import folder_of
from curator_df.io.output import FileSink
from curator_df.io.parquet import read_parquet
from curator_df.io.write import TARGET_FILE_BYTES, ParquetFormat

DROPS_FOLDER = f"{JOURNAL_FOLDER}/drops"
PARAMETERS = f"{JOURNAL_FOLDER}/parameters.json"
MOST_FILES = 256
"""Of a table; each holds the duplicates of so many ranges."""
ROWS_AT_A_TIME = 50_000
COLUMNS: dict[str, Any] = {
    "address": "Int64",
    "file": "string[pyarrow]",
    "offset": "Int64",
    "matched_address": "Int64",
    "matched_file": "string[pyarrow]",
    "matched_offset": "Int64",
}


@dataclass(frozen=True)
class GroupTable:
    """What a table of groups looks like, and how it is made."""

    columns: Mapping[str, Any]
    """Dtype of each column."""
    pieces: Callable[[Any, int], list[Range]]
    """``pieces(found, ranges)``: one for each file of the table; ``first_file`` and ``last_file`` are numbers of ranges."""
    blocks: Callable[[TableJob, Range, Any], Iterator[pd.DataFrame]]
    """``blocks(job, piece, paths)`` yields the rows of a file."""
    more_files: tuple[str, ...] = ()
    """Files of another table, to whose rows addresses point that come after those of the input."""

    @property
    def meta(self) -> pd.DataFrame:
        """No rows."""
        return pd.DataFrame({name: pd.array([], dtype=dtype) for name, dtype in self.columns.items()})


@dataclass(frozen=True)
class TableJob:
    """Everything about the table that is the same for all its files."""

    found: Found
    """What was found."""
    sink: FileSink
    """Where the table goes."""
    paths: tuple[str, ...]
    """The input's files, and others (`GroupTable.more_files`)."""
    table: GroupTable
    """What it looks like."""


def find_groups(
    pending: Any,
    operator: str,
    parameters: Mapping[str, Any],
    workdir: Any,
    options: Any,
    *,
    table: GroupTable | None = None,
) -> Any:
    """Run what a pending drop waits for, keep it, and return the table of rows that would go.

    Parameters
    ----------
    pending : dask.dataframe.DataFrame
        A table whose last step is the pending drop.
    operator : str
        Name of the ``find_`` operator, for the folder.
    parameters : mapping
        Of the drop, as JSON takes them.
    workdir : str, path or None
        Where the folder is made; the cluster's by default.
    options : dict or None
        Storage options for fsspec.
    table : GroupTable, optional
        What it looks like; by default a row for each duplicate.
    """
    table = table or DUPLICATES
    session = current_session()
    program = lower(pending)
    identity = _identity(program)
    home = _home(session, operator, identity, workdir, options)
    sink = FileSink(home, ParquetFormat("zstd"), TARGET_FILE_BYTES)
    with Journal(home) as journal:
        if journal.is_started:
            ranges = journal.resume(identity)
        else:
            ranges = program.source.cut(range_bytes(program.source))
            home.write(PARAMETERS, json.dumps(dict(parameters)).encode())
            journal.start(identity, ranges)
        if journal.receipt is None:
            plan = plan_stream(program, sink, None, session.layout)
            temporary = Folder(f"{home.url}/{STAGES_FOLDER}", home.options)
            stages = StageRunner(session, plan.stages[0], temporary, ranges, "raise")
            actions = [step.action for step in program.steps]
            prepare_kernels(session, actions)
            if session.sampler is not None:
                session.sampler.take()
            started = RunStarted(home.url, plan.input_bytes, plan.projected_bytes)
            with (
                live_panel(session),
                released_after(session.client, actions),
                told_run(session, started),
                progress_bar("comparing", 1) as show,
            ):
                found = stages.find(program, Folder(f"{home.url}/{DROPS_FOLDER}", home.options), _line(show))
                job = TableJob(found, sink, (*program.source.files, *table.more_files), table)
                pieces = table.pieces(found, len(ranges))
                written = stages.run_tasks(
                    journal, "table", job, pieces, stage=plan.stages[0], folder=home, task=run_table
                )
            if not any(done["files"] for done in written):
                sink.write_empty(table.meta)
            _finish(journal, sink, program, stages, plan.projected_bytes, session, written)
            stages.clear()
            home.delete_tree(STAGES_FOLDER)
    return read_parquet(home.url, storage_options=options)


def found_drops(groups: Any, operator: str, options: Any = None) -> tuple[Folder, dict[str, Any]]:
    """Return where the drops of a table lie, and the parameters with which they were found.

    Raises
    ------
    InputError
        If it is not such a table, or was not finished.
    """
    folder = (
        folder_of(groups) if isinstance(groups, FrameBase) else Folder(os.fspath(groups).rstrip("/"), options or {})
    )
    if not folder.exists(PARAMETERS) or not folder.exists(f"{JOURNAL_FOLDER}/receipt.json"):
        raise InputError(f"{operator}: groups= was read from {folder.url}, where no find_ operator has left its result")
    parameters: dict[str, Any] = json.loads(folder.read(PARAMETERS))
    return Folder(f"{folder.url}/{DROPS_FOLDER}", folder.options), parameters


def require_same_table(pending: Any, operator: str, drops: Folder) -> None:
    """Raise `ParameterError` unless the drops were found for this table."""
    program = lower(pending)
    before = dataclasses.replace(program, steps=program.steps[:-1])
    kept = json.loads(drops.read(f"{JOURNAL_FOLDER}/plan.json"))
    if found := difference(kept, stage_identity(before, program.steps[-1])):
        raise ParameterError(f"{operator}: groups= were found for another table: {found}. Find them again for this one")


def run_table(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Write one file of the table."""

    def write(manifest: Manifest) -> None:
        job: TableJob = cloudpickle.loads(job_bytes)
        paths = pd.array(list(job.paths), dtype=COLUMNS["file"])
        writer = job.sink.open(attempt.piece.number, job.table.meta, attempt.block_bytes)
        try:
            for block in job.table.blocks(job, attempt.piece, paths):
                writer.append(block)
                manifest.rows_written += len(block)
            manifest.files = writer.commit()
        finally:
            writer.discard()

    return run_guarded(attempt, write)


def address_columns(prefix: str, addresses: npt.NDArray[np.int64], paths: Any) -> dict[str, Any]:
    """Return the three columns that say which row an address is."""
    return {
        f"{prefix}address": pd.array(addresses, dtype="Int64"),
        f"{prefix}file": paths.take(addresses >> OFFSET_BITS),
        f"{prefix}offset": pd.array(addresses & ((1 << OFFSET_BITS) - 1), dtype="Int64"),
    }


def _pieces(found: Found, ranges: int) -> list[Range]:  # noqa: ARG001 - the face of a table
    """Group the ranges for the files of the table."""
    bounds = np.linspace(0, ranges, min(ranges, MOST_FILES) + 1).astype(np.int64).tolist()
    pairs = itertools.pairwise(bounds)
    return [Range(number, start, 0, stop - 1, 0) for number, (start, stop) in enumerate(pairs)]


def _blocks(job: TableJob, piece: Range, paths: Any) -> Iterator[pd.DataFrame]:
    """Yield the rows that go, and those that they repeat."""
    for number in range(piece.first_file, piece.last_file + 1):
        drops = read_drops(job.found.exchange, number, job.found.files, memory_bytes=DROP_READER_BYTES)
        for rows in drops:
            for start in range(0, len(rows), ROWS_AT_A_TIME):
                addresses, matched = rows[start : start + ROWS_AT_A_TIME].T
                yield pd.DataFrame(
                    {**address_columns("", addresses, paths), **address_columns("matched_", matched, paths)}
                )


DUPLICATES = GroupTable(COLUMNS, _pieces, _blocks)


def _identity(program: Program) -> Identity:
    steps = tuple((step.name, step.fingerprint) for step in program.steps)
    return Identity(program.source.fingerprint, program.fingerprint, "groups", steps)


def _home(session: Session, operator: str, identity: Identity, workdir: Any, options: Any) -> Folder:
    parent = workdir if workdir is not None else session.workdir
    if parent is None:
        raise ParameterError(
            f"{operator} needs workdir=: a folder (or URL) that all workers of the cluster you connected to can see"
        )
    return Folder(f"{os.fspath(parent).rstrip('/')}/{operator}-{fingerprint(identity)[:16]}", options or {})


def _line(show: Any) -> Any:
    return lambda title, done, total: show(done, f"{title} {done}/{total}")


def _finish(
    journal: Journal,
    sink: FileSink,
    program: Program,
    stages: StageRunner,
    projected_bytes: int,
    session: Session,
    written: list[dict[str, Any]],
) -> None:
    files = [record for done in written for record in done["files"]]
    exchange = stages.exchanges[-1]
    receipt = Receipt(
        sink.folder.url,
        rows_read=exchange.keys,
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
        exchanges=stages.exchanges,
        retries=dict(stages.retries),
        leaks=stages.leaks,
    )
    journal.finish(receipt.to_json())

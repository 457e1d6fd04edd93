# SPDX-License-Identifier: Apache-2.0
"""Lookup of the IDs for a table of groups: the questions, sorted by input order, and the pass that answers them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import numpy.typing as npt

from curator_df.core.planning.device_plan import for_sink
from curator_df.core.planning.program import Program
from curator_df.core.ranges.manifest import Manifest, files_below
from curator_df.core.runner.passes import Stage
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.table.id_sink import QUESTION_WORDS, IdSink, questions
from curator_df.exchange.dropped_rows import Found
from curator_df.exchange.keys import LEAST_KEY_BYTES, KeptRows
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import RowSorter, merge_slices
from curator_df.files.slice_file import SliceWriter, open_slices, rows_of_slices
from curator_df.files.storage import FileRecord, Folder, disk_errors


class GroupRows(NamedTuple):
    """Rows of a table of groups that are in one group of input ranges, sorted by address."""

    members: Rows
    """Array of shape (rows, 3): address, kept row, rows of the group."""
    matched: npt.NDArray[np.uint64]
    """Array of shape (rows,): address of the matched row; the row's own address if it matched none."""
    similarities: npt.NDArray[np.float64]
    """Array of shape (rows,): similarity of the two rows; NaN if unknown."""
    eps: float | None = None
    """Value of ``eps`` to which the groups belong, in a table for several values."""


Matches = Iterator[GroupRows]


@dataclass(frozen=True)
class QuestionJob:
    """Fields that all question tasks share."""

    folder: Folder
    """Folder for the questions."""
    found: Found
    """Result of the comparison, from which the table is built."""
    matches: Callable[[Any, int], Matches]
    """Function called as ``matches(found, group)``."""
    asked: tuple[FileRecord, ...] | None = None
    """All questions, to be collected for a group of ranges; None to write the questions of a group of the table."""


def run_questions(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Write the questions of one group of the table, or collect those that one group of ranges answers."""

    def work(manifest: Manifest) -> None:
        job: QuestionJob = cloudpickle.loads(job_bytes)
        write = _ask if job.asked is None else _collect
        manifest.files = [write(job, attempt.piece.number, max(attempt.block_bytes, LEAST_KEY_BYTES))]

    return run_guarded(attempt, work)


def _ask(job: QuestionJob, group: int, memory_bytes: int) -> FileRecord:
    name, bounds = f"ids/asked/part-{group:06d}.slices", job.found.groups.bounds
    sorter = RowSorter(job.folder, name, words=QUESTION_WORDS, bounds=bounds, memory_bytes=memory_bytes)
    try:
        for rows in job.matches(job.found, group):
            sorter.append(questions(rows.members[:, 0], rows.matched))
        return sorter.commit()
    finally:
        sorter.discard()


def _collect(job: QuestionJob, group: int, memory_bytes: int) -> FileRecord:
    slices = open_slices(job.folder, job.asked or (), group)
    with disk_errors(job.folder), job.folder.create(f"ids/wanted/part-{group:06d}.slices") as file:
        writer = SliceWriter(file, QUESTION_WORDS, job.found.groups.range_bounds(group))
        for rows in merge_slices(slices, memory_bytes=memory_bytes):
            writer.append(rows)
        writer.finish()
        return file.commit(sum(piece.rows for piece in slices))


def take_ids(
    stage: Stage,
    before: Program,
    column: str,
    found: Found,
    matches: Callable[[Any, int], Matches],
    against: KeptRows | None = None,
) -> tuple[FileRecord, ...]:
    """Look up the IDs of all rows that a table of groups names, and of the rows that they matched.

    Parameters
    ----------
    stage : Stage
        Stage whose folder receives the files, in its subfolder ``ids``.
    before : Program
        Program whose rows are compared.
    column : str
        Column of the IDs.
    found : Found
        Result of the comparison, from which the table is built.
    matches : callable
        Function whose call ``matches(found, group)`` yields the rows of the table.
    against : KeptRows, optional
        Other table that the rows were compared with.

    Returns
    -------
    tuple of FileRecord
        Files for an `IdReader`.
    """
    groups, home = found.groups, stage.home
    of_table = len(groups.starts) - groups.kept
    job = QuestionJob(home, found, matches)
    asked = stage.tasks("ids/ask", "ids", run_questions, job, -(-of_table // groups.per_group))
    job = dataclasses.replace(job, asked=files_below(asked, "ids"))
    wanted = files_below(stage.tasks("ids/wanted", "ids", run_questions, job, len(groups)), "ids")
    is_wanted = np.array([rows > 0 for file in wanted for rows in rows_of_slices(home, file)], dtype=np.bool_)
    sink, only = IdSink(home, groups, wanted, column=column), is_wanted[:of_table]
    program, ranges = for_sink(before), stage.runner.ranges
    answered = stage.stream("ids", program, (column,), sink, ranges, name="ids/look-up", only=only)
    if against is not None:
        sink = IdSink(home, groups, wanted, of_table, against.first_address, column=column)
        program, ranges, only = against.program, against.ranges, is_wanted[of_table:]
        answered += stage.stream("ids", program, (column,), sink, ranges, name="ids/look-up-against", only=only)
    return tuple(file for file in files_below(answered, "ids") if file.name.endswith(".slices"))

# SPDX-License-Identifier: Apache-2.0
"""Ids for a table of groups: what it asks, in the order of the input, and the pass over the input that answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import numpy.typing as npt

from curator_df.core.duplicates.id_sink import QUESTION_WORDS, IdSink, questions
from curator_df.core.exchange.barrier import LEAST_KEY_BYTES, Found
from curator_df.core.exchange.near_barrier import KeptSignatures
from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import RowSorter, merge_slices
from curator_df.core.files.slice_file import SliceWriter, open_slices, rows_of_slices
from curator_df.core.files.storage import FileRecord, Folder, disk_errors, split_files
from curator_df.core.planning.device_steps import for_sink
from curator_df.core.planning.program import Program
from curator_df.core.ranges.journal import Journal
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.source import Range
from curator_df.core.runner.stages import StageRunner
from curator_df.core.tasks.task import Attempt, run_guarded


class GroupRows(NamedTuple):
    """Some rows of a table of groups, of one group of ranges of the input, in order of address."""

    members: Rows
    """Shape (rows, 3): address, survivor, rows of the group."""
    matched: npt.NDArray[np.uint64]
    """Shape (rows,): the row that each matched; its own address where none."""
    similarities: npt.NDArray[np.float64]
    """Shape (rows,): how similar the two are; NaN where that is not known."""
    eps: float | None = None
    """Of a table with groups for several: which."""


Matches = Iterator[GroupRows]


@dataclass(frozen=True)
class QuestionJob:
    """Everything about the questions that is the same for all tasks."""

    folder: Folder
    """Where they go."""
    found: Found
    """What the table is made of."""
    matches: Callable[[Any, int], Matches]
    """``matches(found, group)``."""
    asked: tuple[FileRecord, ...] | None = None
    """None: ask, for a group of rows of the table. Otherwise all questions, to be put together for a group of ranges."""


def run_questions(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Write the questions of one group of the table, or those that one group of ranges is to answer."""

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
    runner: StageRunner,
    before: Program,
    column: str,
    found: Found,
    matches: Callable[[Any, int], Matches],
    home: Folder,
    against: KeptSignatures | None = None,
) -> tuple[FileRecord, ...]:
    """Look up the ids of all rows that a table of groups names, and of those that they matched.

    Parameters
    ----------
    runner : StageRunner
        Runs it.
    before : Program
        The chain whose rows are compared.
    column : str
        The ids.
    found : Found
        What the table is made of.
    matches : callable
        ``matches(found, group)`` yields its rows.
    home : Folder
        Where the files go, in its folder ``ids``.
    against : KeptSignatures, optional
        The other table that rows were compared with.

    Returns
    -------
    tuple of FileRecord
        For an `IdReader`.
    """
    groups = found.groups
    of_table = len(groups.starts) - groups.kept
    job = QuestionJob(home, found, matches)
    asked = _tasks(runner, home, "ask", job, -(-of_table // groups.per_group))
    wanted = _tasks(runner, home, "wanted", dataclasses.replace(job, asked=asked), len(groups))
    is_wanted = np.array([rows > 0 for file in wanted for rows in rows_of_slices(home, file)], dtype=np.bool_)

    def run(name: str, program: Program, sink: IdSink, ranges: Any, only: Any) -> list[dict[str, Any]]:
        with Journal(home.below(f"ids/{name}")) as journal:
            return runner.run_pass(journal, "ids", program, (column,), sink, ranges, home=home, only=only)

    answered = run(
        "look-up", for_sink(before), IdSink(home, groups, wanted, column=column), runner.ranges, is_wanted[:of_table]
    )
    if against is not None:
        sink = IdSink(home, groups, wanted, of_table, against.first_address, column=column)
        answered += run("look-up-against", against.program, sink, against.ranges, is_wanted[of_table:])
    return tuple(file for file in split_files(answered, "ids") if file.name.endswith(".slices"))


def _tasks(runner: StageRunner, home: Folder, name: str, job: QuestionJob, count: int) -> tuple[FileRecord, ...]:
    stage = dataclasses.replace(runner.stage, block_bytes=runner.work_bytes)
    pieces = [Range(number, 0, 0, 0, 0) for number in range(count)]
    with Journal(home.below(f"ids/{name}")) as journal:
        done = runner.run_tasks(journal, "ids", job, pieces, stage=stage, folder=home, task=run_questions)
    return split_files(done, "ids")

# SPDX-License-Identifier: Apache-2.0
"""Estimate of an exchange before it starts: reducers, memory of a task, disk space; raises an error if these are missing."""

from __future__ import annotations

from dataclasses import dataclass

from curator_df.core.planning.price import TASK_SLACK_BYTES
from curator_df.errors import BudgetError, DiskFullError
from curator_df.exchange.exchange import DROP_WORDS, MEMBER_WORDS, Finds, Keep, key_words
from curator_df.files.row_sort import merge_row_bytes
from curator_df.files.slice_file import ENTRY, rows_in_page
from curator_df.files.storage import Folder
from curator_df.memory.sizes import show_size, show_sizes

MOST_REDUCERS = 4096
"""Maximum number of reducers; beyond it reducers grow: each reads a piece of every map file, and pieces would become small."""
MOST_DIRECT_READS = 1024
"""Maximum product of reducers and ranges for direct reads by each range; above it, drops are collected first."""
LEAST_TASK_BYTES = 2_000_000
"""Minimum working memory of a task in bytes: with less, it cannot merge more than two or three slices in one step."""


@dataclass(frozen=True)
class ExchangePlan:
    """Estimate of an exchange."""

    reducers: int
    """Number of hash ranges."""
    ranges_per_drop_file: int
    """Number of ranges whose drops share a file, as in `Exchange`."""
    task_bytes: int
    """Peak memory of a map, reduce or collect task in bytes, in addition to the block of a map task."""
    key_bytes: int
    """Bytes of the files of the map tasks."""
    drop_bytes: int
    """Bytes of the files of the drops, if all rows but one were dropped."""
    member_bytes: int
    """Bytes of the files of group members, if all rows were members and are needed for a table or to be counted."""
    scratch_bytes: int
    """Bytes in the scratch directories of all concurrent tasks, if keys are evenly distributed."""
    passes: int
    """Number of times that a reducer's rows are merged: 1 unless there are too many map files for the memory."""

    count_bytes: int = 0
    """Bytes of other files, which count what rows have in common."""

    @property
    def disk_bytes(self) -> int:
        """Number of bytes in the exchange's folder."""
        return self.key_bytes + self.drop_bytes + self.member_bytes + self.count_bytes


def choose_reducers(total_rows: int, row_bytes: int, work_bytes: int) -> int:
    """Return the number of hash ranges at which a reducer's rows, evenly distributed, are merged in memory in one step.

    Parameters
    ----------
    total_rows : int
        Estimated number of rows. Too low a number is harmless: a reducer streams what does not fit.
    row_bytes : int
        Bytes of a key row: 24, or 32 with a rank.
    work_bytes : int
        Working memory of a task in bytes, half of which is used to merge.

    Examples
    --------
    >>> choose_reducers(200_000_000, 24, 100_000_000)
    417
    """
    fitting = max(work_bytes // 2 // merge_row_bytes(row_bytes // 8), 1)
    return min(max(-(-total_rows // fitting), 1), MOST_REDUCERS)


def project_exchange(
    total_rows: int,
    *,
    keep: Keep,
    map_files: int,
    work_bytes: int,
    tasks_at_a_time: int = 1,
    folder: Folder | None = None,
    reducers: int | None = None,
    of_parts: bool = False,
    finds: Finds = "drops",
    member_slices: int = 0,
    count_bytes: int = 0,
) -> ExchangePlan:
    """Estimate an exchange, and raise an error if it cannot fit.

    Parameters
    ----------
    total_rows : int
        Estimated number of key rows.
    keep : {"first", "last", "largest", "smallest", "none"}
        Policy: with a value, rows have 32 bytes instead of 24.
    map_files : int
        Number of ranges.
    work_bytes : int
        Working memory of a task in bytes.
    tasks_at_a_time : int
        Number of concurrent tasks on the machine of the scratch directory.
    folder : Folder, optional
        Folder for the files, whose free space is checked if it is known.
    reducers : int, optional
        Number of reducers of an exchange that is resumed; by default `choose_reducers`.
    of_parts : bool
        Whether keys are those of parts of rows: 32 bytes each.
    finds : {"drops", "repeats", "stretches"}
        Result of a reducer, as in `Exchange`.
    member_slices : int
        Number of slices of the files of members, if these are needed for a table of groups.
    count_bytes : int
        Bytes of other files, which count what rows have in common.

    Raises
    ------
    BudgetError
        If a task needs more memory than ``work_bytes``. Nothing has been started.
    DiskFullError
        If the folder has too little free space. Nothing has been started.
    """
    if work_bytes < LEAST_TASK_BYTES + TASK_SLACK_BYTES:
        need, has = show_sizes(LEAST_TASK_BYTES + TASK_SLACK_BYTES, work_bytes)
        raise BudgetError(
            f"comparing the keys of all rows needs {need} for each task, but a task has only {has}. Use a larger "
            "memory=, or fewer cpus="
        )
    words = key_words(keep, of_parts=of_parts, finds=finds)
    memory_bytes = work_bytes - TASK_SLACK_BYTES
    reducers = reducers or choose_reducers(total_rows, 8 * words, memory_bytes)
    per_file = 1 if reducers * map_files <= MOST_DIRECT_READS else max(int(map_files**0.5), 2)
    row_share = -(-total_rows // reducers)
    passes = merge_passes(map_files, row_share, words, memory_bytes // 2)
    drop_bytes = _file_bytes(total_rows, DROP_WORDS, reducers, -(-map_files // per_file)) * (1 if per_file == 1 else 2)
    member_bytes = _file_bytes(total_rows, MEMBER_WORDS, reducers, member_slices) if member_slices else 0
    sorted_words = DROP_WORDS + (MEMBER_WORDS if member_slices else 0) + (words if passes > 1 else 0)
    plan = ExchangePlan(
        reducers=reducers,
        ranges_per_drop_file=per_file,
        task_bytes=work_bytes,
        key_bytes=_file_bytes(total_rows, words, map_files, reducers),
        drop_bytes=drop_bytes,
        member_bytes=member_bytes * (1 if per_file == 1 else 2),
        scratch_bytes=tasks_at_a_time * row_share * 8 * sorted_words,
        passes=passes,
        count_bytes=count_bytes,
    )
    _require_space(plan, folder)
    return plan


def merge_passes(slices: int, rows: int, words: int, memory_bytes: int) -> int:
    """Return how often rows are merged if they are evenly distributed over this many slices."""
    passes = 1
    while slices > 2:
        held = min(-(-rows // slices), rows_in_page(words)) * merge_row_bytes(words)
        fan_in = max(memory_bytes // max(held, 1), 2)
        if fan_in >= slices:
            break
        slices = -(-slices // fan_in)
        passes += 1
    return passes


def _file_bytes(rows: int, words: int, files: int, slices: int) -> int:
    pages = rows // rows_in_page(words) + min(files * slices, rows)
    return rows * 8 * words + pages * 8 + files * (slices * ENTRY.size + 32)


def _require_space(plan: ExchangePlan, folder: Folder | None) -> None:
    free = None if folder is None else folder.free_bytes()
    needed = plan.disk_bytes + plan.scratch_bytes
    if free is not None and free < needed:
        need, has = show_sizes(needed, free)
        counts = f"{show_size(plan.count_bytes)} for counting common shingles, " if plan.count_bytes else ""
        raise DiskFullError(
            f"comparing the keys of all rows needs {need} for temporary files: {show_size(plan.key_bytes)} of "
            f"keys, up to {show_size(plan.drop_bytes + plan.member_bytes)} of rows to drop, {counts}and "
            f"{show_size(plan.scratch_bytes)} while sorting; only {has} are free in "
            f"{folder.url if folder else ''}. Nothing was started. Free some space, set another workdir=, or "
            f"{smaller_part(free / needed)}"
        )


def smaller_part(share: float) -> str:
    """Return the advice to process only the share of the rows that fits, rounded down to a hundredth.

    Examples
    --------
    >>> smaller_part(0.379)
    'put sample_rows(fraction=0.37) before it'
    >>> smaller_part(0.001)
    'put sample_rows before it with a fraction below 0.01'
    """
    hundredths = int(100 * share)
    if hundredths == 0:
        return "put sample_rows before it with a fraction below 0.01"
    return f"put sample_rows(fraction={hundredths / 100}) before it"

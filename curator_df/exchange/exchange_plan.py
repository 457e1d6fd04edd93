# SPDX-License-Identifier: Apache-2.0
"""Estimate of an exchange before it starts: reducers, memory of a task, disk space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from curator_df.core.planning.price import TASK_SLACK_BYTES
from curator_df.core.planning.program import DiskNeed
from curator_df.errors import BudgetError
from curator_df.exchange.exchange import DROP_WORDS, MEMBER_WORDS, Finds, Keep, key_words
from curator_df.files.row_sort import merge_row_bytes
from curator_df.files.slice_file import ENTRY, rows_in_page
from curator_df.memory.sizes import show_sizes

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

    def need(self, name: str, **worst: Any) -> DiskNeed:
        """Return its disk space for the operation of this name; ``worst`` are the fields of the worst case."""
        parts = {
            "keys": self.key_bytes,
            "rows to drop": self.drop_bytes + self.member_bytes,
            "counts of common shingles": self.count_bytes,
            "keys while sorting": self.scratch_bytes,
        }
        kept_bytes = self.drop_bytes + self.member_bytes
        return DiskNeed(name, {what: size for what, size in parts.items() if size}, kept_bytes, **worst)


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
    reducers: int | None = None,
    of_parts: bool = False,
    finds: Finds = "drops",
    member_slices: int = 0,
    count_bytes: int = 0,
) -> ExchangePlan:
    """Estimate an exchange, and raise an error if a task of it cannot fit.

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
    return ExchangePlan(
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

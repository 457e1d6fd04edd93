# SPDX-License-Identifier: Apache-2.0
"""What an exchange will need, before it starts: reducers, bytes of a task, bytes on disk; refused if they are not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from curator_df.core.exchange.exchange import DROP_WORDS, MEMBER_WORDS, Keep, key_words
from curator_df.core.files.row_order import SORT_BYTES_PER_ROW
from curator_df.core.files.row_sort import merge_row_bytes
from curator_df.core.files.slice_file import ENTRY, rows_in_page
from curator_df.core.files.storage import Folder
from curator_df.core.planning.program import Program
from curator_df.core.ranges.source import Range, Ranges, Source
from curator_df.core.sizes import show_size
from curator_df.errors import BudgetError, CuratorError, DiskFullError, OversizeRowError

MOST_REDUCERS = 4096
"""Beyond that reducers grow: each reads a piece of every map file, and pieces get small."""
MOST_DIRECT_READS = 1024
"""Reducers times ranges: with more, the drops are collected, since each range would read a piece of every reducer's file."""
LEAST_TASK_BYTES = 2_000_000
"""A task that may hold less than this cannot merge more than two or three slices at a time."""
SAMPLED_RANGES = 8
SAMPLE_BYTES = 500_000
"""About the bytes that are read of each of them."""
LARGEST_SAMPLED_ROW_BYTES = 4_000_000
ROW_BYTES_GUESS = 300
"""Bytes of a row where no block could be read."""
PART_BYTES_GUESS = 100
"""Bytes of a line or paragraph."""
TASK_SLACK_BYTES = 6_000_000
"""Held beside what scales: pieces on their way, a read of pages and its rows, bounds and index, allocator rounding."""

WIDEST_WORDS = 4
"""Of the rows that are merged and sorted, where no exchange says it; vectors are wider, and count by their bytes."""


@dataclass(frozen=True)
class ExchangePlan:
    """An exchange as projected."""

    reducers: int
    """Hash ranges."""
    ranges_per_drop_file: int
    """As in `Exchange`."""
    task_bytes: int
    """Peak memory of a map, reduce or collect task, beside the block of a map task."""
    key_bytes: int
    """Files of the map tasks."""
    drop_bytes: int
    """Files of the drops, if all rows but one were to go."""
    member_bytes: int
    """Files of the members of groups, if all rows were to be, where they are kept for a table."""
    scratch_bytes: int
    """In the scratch directories of all tasks that run at a time, if keys spread evenly."""
    passes: int
    """How often a reducer's rows are merged: 1 unless map files are very many for the memory."""

    @property
    def disk_bytes(self) -> int:
        """Bytes in the exchange's folder."""
        return self.key_bytes + self.drop_bytes + self.member_bytes


def estimate_kept(program: Program, ranges: Ranges, *, of_parts: bool = False) -> int:
    """Return about how many rows come out of a program: those of its source, less what `sample_rows` leaves out."""
    return max(int(estimate_rows(program.source, ranges, of_parts=of_parts) * program.row_share), 1)


def estimate_rows(source: Source, ranges: Ranges, *, of_parts: bool = False) -> int:
    """Return about how many rows (or parts of rows) an input has, from footers or the first block of a few ranges.

    It decides how much disk is asked for and into how many hash ranges keys are cut; nothing rests on its being right.
    """
    if of_parts:
        return int(source.text_bytes / PART_BYTES_GUESS) + 1
    if (rows := source.about_rows()) is not None:
        return rows + 1
    row_bytes = [size for number in sampled_ranges(ranges) if (size := _row_bytes(source, ranges[number]))]
    mean_bytes = sum(row_bytes) / len(row_bytes) if row_bytes else ROW_BYTES_GUESS
    return int(source.text_bytes / mean_bytes) + 1


def sampled_ranges(ranges: Ranges) -> list[int]:
    """Return the numbers of a few ranges, spread over all: at most `SAMPLED_RANGES`."""
    return sorted({int(place * (len(ranges) - 1) / (SAMPLED_RANGES - 1)) for place in range(SAMPLED_RANGES)})


def _row_bytes(source: Source, piece: Range) -> float | None:
    """Return the mean bytes of the rows in the first block of a range."""
    try:
        blocks = source.blocks(
            piece,
            block_bytes=SAMPLE_BYTES,
            largest_row_bytes=LARGEST_SAMPLED_ROW_BYTES,
            on_bad_row=(lambda _: None) if source.quarantines else None,
        )
        block = next(iter(blocks), None)
    except OversizeRowError as exc:
        return exc.row_bytes
    except CuratorError:
        return None  # the run will say what is wrong, with all that belongs to it
    return None if block is None else float(block.memory_usage(index=False).sum()) / len(block)


def choose_reducers(total_rows: int, row_bytes: int, work_bytes: int) -> int:
    """Return the number of hash ranges at which a reducer's rows, spread evenly, are merged in memory at once.

    Parameters
    ----------
    total_rows : int
        Projected. Too few does no harm: a reducer streams what does not fit.
    row_bytes : int
        Of a key row: 24, or 32 with a rank.
    work_bytes : int
        Memory of a task, half of which merges.

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
    member_slices: int = 0,
) -> ExchangePlan:
    """Project an exchange, and refuse it if it cannot fit.

    Parameters
    ----------
    total_rows : int
        Key rows, projected.
    keep : {"first", "last", "largest", "smallest"}
        The policy: with a value, rows are 32 bytes and not 24.
    map_files : int
        Ranges.
    work_bytes : int
        Memory that a task may hold.
    tasks_at_a_time : int
        Tasks that run at the same time on the machine of the scratch directory.
    folder : Folder, optional
        Where the files will go, to be checked for free space where that is known.
    reducers : int, optional
        Those of an exchange to be resumed; by default `choose_reducers`.
    of_parts : bool
        Whether keys are of parts of rows: 32 bytes each.
    member_slices : int
        Slices of the files of members, where these are kept for a table of groups.

    Raises
    ------
    BudgetError
        If a task needs more memory than ``work_bytes``. Nothing has been started.
    DiskFullError
        If the folder has too little free space. Nothing has been started.
    """
    if work_bytes < LEAST_TASK_BYTES + TASK_SLACK_BYTES:
        raise BudgetError(
            f"an exchange needs {show_size(LEAST_TASK_BYTES + TASK_SLACK_BYTES)} for each task, and a task may hold "
            f"{show_size(work_bytes)}; allow more memory=, or fewer threads"
        )
    words = key_words(keep, of_parts=of_parts)
    memory_bytes = work_bytes - TASK_SLACK_BYTES
    reducers = reducers or choose_reducers(total_rows, 8 * words, memory_bytes)
    per_file = 1 if reducers * map_files <= MOST_DIRECT_READS else max(int(map_files**0.5), 2)
    row_share = -(-total_rows // reducers)
    passes = merge_passes(map_files, row_share, words, memory_bytes // 2)
    drop_bytes = _file_bytes(total_rows, DROP_WORDS, reducers, -(-map_files // per_file)) * (1 if per_file == 1 else 2)
    sorted_words = DROP_WORDS + (MEMBER_WORDS if member_slices else 0) + (words if passes > 1 else 0)
    plan = ExchangePlan(
        reducers=reducers,
        ranges_per_drop_file=per_file,
        task_bytes=work_bytes,
        key_bytes=_file_bytes(total_rows, words, map_files, reducers),
        drop_bytes=drop_bytes,
        member_bytes=_file_bytes(total_rows, MEMBER_WORDS, reducers, member_slices) if member_slices else 0,
        scratch_bytes=tasks_at_a_time * row_share * 8 * sorted_words,
        passes=passes,
    )
    _require_space(plan, folder)
    return plan


def merge_passes(slices: int, rows: int, words: int, memory_bytes: int) -> int:
    """Return how often rows are merged when so many slices hold them evenly."""
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
        raise DiskFullError(
            f"the exchange needs {show_size(needed)} for temporary files: "
            f"{show_size(plan.key_bytes)} of keys, up to {show_size(plan.drop_bytes + plan.member_bytes)} of rows to drop, "
            f"{show_size(plan.scratch_bytes)} while sorting; {show_size(free)} are free in {folder.url if folder else ''}. "
            f"Nothing was started; make room, name another workdir=, or {smaller_part(free / needed)}"
        )


def smaller_part(share: float) -> str:
    """Say how to go on with the share of the rows that fits, rounded down to a hundredth.

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


def merge_bytes(job: Any, done: list[dict[str, Any]]) -> int:
    """Return what a merge could hold at most: for the rows that it counted, or else as if one had all files of the stage."""
    files = [file for name in ("files", "known") for file in getattr(job, name, ())]
    if not files:
        return 0  # what is merged and sorted there are rows that were merged before
    exchange = getattr(job, "exchange", None)
    rows = max((one["rows_read"] for one in done), default=0)
    merged = rows * merge_row_bytes(WIDEST_WORDS if exchange is None else exchange.words)
    if not rows:
        merged = sum(max(file.rows * merge_row_bytes(WIDEST_WORDS), 3 * file.size_bytes) for file in files)
    row_bytes = 8 * WIDEST_WORDS + SORT_BYTES_PER_ROW
    written = (sum(max(file.rows * row_bytes, 2 * file.size_bytes) for file in one["files"]) for one in done)
    said = max((one["summary"].get("held_bytes", 0) for one in done), default=0)
    return int(merged + max(written, default=0) + said + TASK_SLACK_BYTES)

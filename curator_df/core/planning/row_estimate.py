# SPDX-License-Identifier: Apache-2.0
"""Estimate the number of rows of an input and their mean size in bytes, from file metadata or a small sample."""

from __future__ import annotations

import contextlib
from collections import Counter
from statistics import harmonic_mean
from typing import Any

from curator_df.core.columns import is_text
from curator_df.core.planning.program import Program
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.source import Range, Ranges, Source
from curator_df.errors import CuratorError, OversizeRowError

SAMPLED_RANGES = 8
SAMPLE_BYTES = 500_000
"""Approximate number of bytes that are read of each of them."""
LARGEST_SAMPLED_ROW_BYTES = 4_000_000
REMOVE = ("drop_", "join", "keep_", "sample_")
"""Beginnings of the names of operators that remove rows."""
KEEP = frozenset(("assign", "astype", "columns", "fillna", "rename"))
"""Names of Dask's operations that keep all rows."""
VALUE_BYTES = 8
"""Bytes of a value of fixed width, of an offset, and of a row ID."""
ROW_BYTES_GUESS = 300
"""Bytes per row if no block could be read."""
PART_BYTES_GUESS = 100
"""Bytes of a line or paragraph if no block could be read."""


def estimate_kept(program: Program, ranges: Ranges, *, of_parts: bool = False) -> int:
    """Return the approximate number of rows that leave a program: those of its source, minus those of `sample_rows`."""
    return max(int(estimate_rows(program.source, ranges, of_parts=of_parts) * program.row_share), 1)


def estimate_rows(source: Source, ranges: Ranges, *, of_parts: bool = False) -> int:
    """Return the approximate number of rows (or parts of rows) of an input, from footers or the first block of a few ranges.

    It determines the requested disk space and the number of hash ranges of keys; results do not depend on its accuracy.
    """
    if of_parts:
        return int(source.text_bytes / PART_BYTES_GUESS) + 1
    if (rows := source.about_rows()) is not None:
        return rows + 1
    row_bytes = [size for number in sampled_ranges(ranges) if (size := _row_bytes(source, ranges[number]))]
    # The mean of rows for each byte, not of bytes for each row: one long row would otherwise stand for all.
    mean_bytes = harmonic_mean(row_bytes) if row_bytes else ROW_BYTES_GUESS
    return int(source.text_bytes / mean_bytes) + 1


def may_remove_rows(program: Program) -> bool:
    """Return whether steps may remove a share of the rows that is not known in advance; `estimate_kept` is a maximum then."""
    return any(
        step.action.row_share == 1.0
        and (step.name.startswith(REMOVE) or (not isinstance(step.action, BlockKernel) and step.name not in KEEP))
        for step in program.steps
    )


def sampled_ranges(ranges: Ranges) -> list[int]:
    """Return the numbers of a few ranges, spread over all: at most `SAMPLED_RANGES`."""
    return sorted({int(place * (len(ranges) - 1) / (SAMPLED_RANGES - 1)) for place in range(SAMPLED_RANGES)})


def estimate_widths(source: Source, ranges: Ranges) -> dict[str, float]:
    """Return the mean bytes of a value of each column, from the first block of a few ranges; nothing if none can be read."""
    sizes, rows = Counter[str](), 0
    for number in sampled_ranges(ranges):
        with contextlib.suppress(CuratorError):  # the run will report the error completely
            block = _first_block(source, ranges[number])
            if block is not None and len(block):
                sizes.update({str(name): int(size) for name, size in block.memory_usage(index=False).items()})
                rows += len(block)
    return {name: size / rows for name, size in sizes.items()} if rows else _stated_widths(source)


def _stated_widths(source: Source) -> dict[str, float]:
    """Return the widths of columns that follow from the size that a source states, of whose rows none can be read yet."""
    rows = source.about_rows()
    texts = [str(name) for name, dtype in source.meta.dtypes.items() if is_text(dtype)]
    if not rows or not texts:
        return {}
    others = {str(name): float(VALUE_BYTES) for name in source.meta.columns if str(name) not in texts}
    text_bytes = max(0.0, source.text_bytes / rows - sum(others.values())) / len(texts)
    return {**others, **dict.fromkeys(texts, text_bytes)}


def estimate_row_bytes(program: Program, ranges: Ranges) -> float:
    """Return the approximate bytes in memory of a row that leaves a program, with its row ID.

    A text that a step adds counts as the widest column of the input.
    """
    widths = estimate_widths(program.source, ranges)
    widest = max(widths.values(), default=ROW_BYTES_GUESS)
    added = (
        widest + VALUE_BYTES if is_text(dtype) else VALUE_BYTES
        for name, dtype in program.meta.dtypes.items()
        if name not in widths
    )
    return VALUE_BYTES + sum(widths.get(str(name), 0.0) for name in program.meta.columns) + sum(added)


def _first_block(source: Source, piece: Range) -> Any:
    blocks = source.blocks(
        piece,
        block_bytes=SAMPLE_BYTES,
        largest_row_bytes=LARGEST_SAMPLED_ROW_BYTES,
        on_bad_row=(lambda _: None) if source.quarantines else None,
    )
    return next(iter(blocks), None)


def _row_bytes(source: Source, piece: Range) -> float | None:
    """Return the mean bytes of the rows in the first block of a range."""
    try:
        block = _first_block(source, piece)
    except OversizeRowError as exc:
        return exc.row_bytes
    except CuratorError:
        return None  # the run will report the error completely
    return None if block is None else float(block.memory_usage(index=False).sum()) / len(block)

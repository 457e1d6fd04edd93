# SPDX-License-Identifier: Apache-2.0
"""Handling of a user's function that raises: the error with its location, or the failing rows, found by halving."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from curator_df.core.host_blocks import host_block
from curator_df.core.planning.program import Step, run_step
from curator_df.core.ranges.out_of_memory import MOST_IN_A_ROW, is_out_of_memory
from curator_df.core.ranges.source import ADDRESS, OFFSET_BITS, BadRow
from curator_df.errors import CuratorError, OperatorError
from curator_df.memory.sizes import show_count
from curator_df.memory.wall import started_processes

NO_CHILDREN = "daemonic processes are not allowed to have children"
"""Text of the error that multiprocessing raises when a pool is started in a worker."""


def may_be_users(step: Step) -> bool:
    """Return whether a step runs a function that the user wrote."""
    return step.action.is_users


def operator_error(step: Step, block: Any, exc: Exception, files: Sequence[str]) -> OperatorError:
    """Return the error that names the step and the rows of the block."""
    raised = f"step {step.name!r} raised {type(exc).__name__}: {exc} on a block"
    started = started_processes(exc)
    fix = f"{started}. Start the cluster with more memory=, fix the function" if started else "Fix the function"
    if NO_CHILDREN in str(exc):
        fix = (
            "Workers are daemonic processes, in which multiprocessing starts no others. In the function, use threads "
            "(concurrent.futures.ThreadPoolExecutor) or subprocess, or remove the pool: blocks are processed concurrently anyway"
        )
    remedy = getattr(exc, "remedy", fix)
    error = _operator_error(raised, remedy, block, files)
    error.may_be_memory = bool(started)
    return error


def _operator_error(raised: str, remedy: str, block: Any, files: Sequence[str]) -> OperatorError:
    if not len(block):
        return OperatorError(f"{raised} without rows, which earlier steps may produce. {remedy}")
    rows = f"of {show_count(len(block), 'row')}"
    if block.index.name == ADDRESS:  # a user's function may have changed the index
        first, last = int(block.index[0]), int(block.index[-1])
        end = _place(last, files)
        if first >> OFFSET_BITS == last >> OFFSET_BITS:
            end = end.removeprefix(f"{files[last >> OFFSET_BITS]} ")
        rows += f", from {_place(first, files)} to {end}"
    return OperatorError(
        f"{raised} {rows}. {remedy}, or quarantine such rows with on_error='quarantine', which needs the index that the reader "
        "created"
    )


def _place(address: int, files: Sequence[str]) -> str:
    file, offset = address >> OFFSET_BITS, address & ((1 << OFFSET_BITS) - 1)
    return f"{files[file]} offset {offset:,}"


def without_failing_rows(step: Step, block: Any, files: Sequence[str], set_aside: Callable[[BadRow], None]) -> Any:
    """Find the rows on which a step raises, by halving; quarantine them and return the others, possibly none."""
    failing: dict[int, str] = {}
    waiting, in_a_row = [(0, len(block))], 0
    while waiting:
        start, stop = waiting.pop()
        exc = _raised(step, block.iloc[start:stop])
        if exc is None:
            in_a_row = 0
            continue
        if stop - start == 1:
            in_a_row += 1
            if in_a_row > MOST_IN_A_ROW and started_processes(exc):  # each try takes long, and it is not the rows
                raise operator_error(step, block, exc, files)
            failing[start] = f"step {step.name!r} raised {type(exc).__name__}: {exc}"
        else:
            middle = (start + stop) // 2
            waiting += [(middle, stop), (start, middle)]
    if not failing:
        raise OperatorError(
            f"step {step.name!r} raises on a block of {show_count(len(block), 'row')} but on none of its parts: it is not a "
            "function of the rows alone"
        )
    places = np.array(list(failing))
    for row in _failed_rows(block.iloc[places], failing.values(), files):
        set_aside(row)
    return block.iloc[np.delete(np.arange(len(block)), places)]


def _raised(step: Step, part: Any) -> Exception | None:
    try:
        run_step(step, part)
    except Exception as exc:
        if isinstance(exc, CuratorError) or is_out_of_memory(exc):
            raise
        return exc
    return None


def _failed_rows(rows: Any, reasons: Iterable[str], files: Sequence[str]) -> Iterator[BadRow]:
    # All in one call, which takes a millisecond even for one row. Not splitlines: texts may contain U+2028.
    records = host_block(rows).to_json(orient="records", lines=True, force_ascii=False).strip("\n").split("\n")
    for address, reason, record in zip(rows.index.to_numpy().tolist(), reasons, records, strict=True):
        path, offset = files[address >> OFFSET_BITS], address & ((1 << OFFSET_BITS) - 1)
        yield BadRow(os.fspath(path), 0, offset, reason, record.encode())

# SPDX-License-Identifier: Apache-2.0
"""Handling of exhausted memory: how it is recognized, which rows were in progress, and how a row is quarantined for it.

A `UnitLog` records the rows and the step before a task works on them. After a failed allocation the task reports them; after
a worker was killed, the runner reads the file, which survives the process.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import itertools
import json
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from curator_df.core.host_blocks import host_block
from curator_df.core.ranges.current_step import READ, enter_step
from curator_df.core.ranges.source import ADDRESS, OFFSET_BITS, BadRow
from curator_df.errors import CuratorError, OversizeRowError
from curator_df.files.storage import TEMPORARY_FOLDER, Folder
from curator_df.memory.limits import thread_limit

OnOom = Literal["retry", "raise"]
"""Policy for exhausted memory: try again with smaller parts, down to one row, and quarantine rows that never fit; or stop."""

SMALLEST_BLOCK_BYTES = 64_000
"""Minimum block size in bytes. Beyond it, blocks are split by rows: `core.tasks.step_runner`."""
ROOM_BYTES = 40_000_000
"""Bytes that a process must be able to allocate; otherwise it is full whatever the row, and no row is blamed."""
MOST_IN_A_ROW = 10
"""Number of consecutive rows that do not fit, from which on the step is the cause and no row is blamed."""
FIRST_ROWS = 2
"""Number of first rows that do not fit after which the shortest other row is tried; if it does not fit, the step is the cause."""
SHORTEST_OF = 256
"""Number of rows among which the shortest is searched."""
MOST_RAW_BYTES = 1_000_000
"""Size in bytes up to which rows are quarantined with their content; larger ones only with position and size."""
ONE_BY_ONE_ROWS = 256
"""Number of rows of a failed unit that are processed one by one; larger units are first split into `UNIT_PARTS`."""
UNIT_PARTS = 16
_RECORD_BYTES = 512
_TORCH_ON_CPU = "DefaultCPUAllocator: can't allocate memory"
_ONEDNN = ("could not create a primitive", "could not execute a primitive")
_CUDA_LIBRARIES = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
NO_THREAD = ("can't start new thread", "Failed to launch worker thread")
"""Messages of Python and Arrow if memory for a thread's stack is missing, or if a limit of threads is reached."""
_MESSAGES = (
    *(*NO_THREAD, "std::bad_alloc", "not enough memory", "out of memory"),
    *(_TORCH_ON_CPU, *_ONEDNN, *_CUDA_LIBRARIES),
)
"""Messages of errors that are not a MemoryError: Python, C++ extensions, zstandard, CUDA and LLVM, torch and libraries that it
calls. oneDNN reports no more than this without memory, possibly also for other causes: then it fails with one row as well.
"""


def lacks_thread(exc: BaseException) -> bool:
    """Return whether an error says that a thread could not be started, for lack of memory or because of a limit of threads."""
    return any(message in str(exc) for message in NO_THREAD)


def is_out_of_memory(exc: BaseException) -> bool:
    """Return whether an error, or one of its causes, is a failed allocation.

    Notes
    -----
    `MemoryError` covers Python, numpy, numba, pyarrow (`ArrowMemoryError`), RMM and cupy, which derive from it.
    ``torch.OutOfMemoryError`` derives from RuntimeError and is recognized by its name, since torch is not imported for this.

    Examples
    --------
    >>> is_out_of_memory(RuntimeError("can't start new thread")), is_out_of_memory(RuntimeError("no"))
    (True, False)
    """
    seen: set[int] = set()
    one: BaseException | None = exc
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        if isinstance(one, CuratorError) and not isinstance(one, OversizeRowError):
            return False  # raised on purpose, with a specific message
        if isinstance(one, MemoryError) or type(one).__name__ == "OutOfMemoryError":
            return True
        if isinstance(one, OSError) and one.errno == errno.ENOMEM:
            return True
        if type(one).__name__ == "CudaAPIError" and "OUT_OF_MEMORY" in str(one):  # numba's, when a kernel is loaded
            return True
        if isinstance(one, RuntimeError | OSError | ImportError) or type(one).__name__ in (
            "ZstdError",
            "ArrowException",
        ):
            said = str(one)
            if any(message in said for message in _MESSAGES) or "Cannot allocate memory" in said:
                return not (lacks_thread(one) and thread_limit())
        one = one.__cause__ or one.__context__
    return False


class RowsLackMemoryError(MemoryError):
    """Raised by a task whose step runs out of memory on one row after the other: smaller blocks do not help."""


@dataclass
class UnitRows:
    """Number of rows that a step gets together after it ran out of memory: 1, then twice as many as long as they fit."""

    most: int = 0
    """Maximum number of rows; 0 if the step has not run out of memory."""
    fits: int = 0
    """Largest number of rows that fit since then."""
    most_bytes: int = 0
    """Size in bytes of the largest part of a block that fit since then."""
    whole_bytes: int = 0
    """Size in bytes of the block on which the step ran out of memory first."""
    is_bounded: bool = False
    """Whether more than ``fits`` rows were tried and did not fit."""

    @property
    def share(self) -> float:
        """Largest part of such a block that fit since then; 0 if none was tried."""
        return min(1.0, self.most_bytes / self.whole_bytes) if self.whole_bytes else 0.0

    def passed(self, rows: int, size_bytes: int) -> None:
        """Note a number of rows that fit together.

        Examples
        --------
        >>> unit = UnitRows()
        >>> unit.failed(100, 900); unit.passed(1, 9); unit.passed(2, 18); unit.most
        4
        >>> unit.failed(4, 36); unit.passed(2, 18); unit.most, unit.share
        (2, 0.02)

        Shorter rows may be more than fitted before:

        >>> unit.passed(2, 2); unit.most
        4
        """
        if not self.most:
            return
        self.fits, self.most_bytes = max(self.fits, rows), max(self.most_bytes, size_bytes)
        if rows >= self.most:
            is_short = 2 * size_bytes <= self.most_bytes
            self.most = 2 * self.most if is_short or not self.is_bounded else min(2 * self.most, self.fits)

    def failed(self, rows: int, size_bytes: int) -> None:
        """Note a number of rows that did not fit together. A single row that does not fit says nothing about the others."""
        if not self.most:
            self.whole_bytes = size_bytes
        self.is_bounded = rows > 1 and self.fits > 0
        self.most = max(1, min(self.fits, rows // 2))


@dataclass(frozen=True)
class Unit:
    """Rows that one step works on together."""

    first: int
    """Address of the first row."""
    last: int
    """Address of the last row."""
    rows: int
    """Number of rows."""
    step: str
    """Name of the step, ``write`` for the writer."""


@dataclass(frozen=True)
class Span:
    """Rows to process in small units, because memory ran out when they were processed together."""

    first: int
    """Address of the first row."""
    last: int
    """Address of the last row."""
    rows: int
    """Number of rows of a unit."""


class Cause(enum.StrEnum):
    """Cause of a repeated attempt at a range, as receipts and metrics name it."""

    MEMORY = "memory"
    """An allocation failed, or a step took too much memory outside of its worker."""
    FULL_WORKER = "full worker"
    """Memory ran out on a worker that held much of earlier ranges."""
    WORKER_LOST = "worker lost"
    """The worker process ended."""
    TURN = "turn"
    """An earlier range on which it depends has to run first."""
    EXCLUSIVE = "exclusive"
    """The range runs alone, with the memory of all tasks."""


@dataclass(frozen=True)
class RowAside:
    """Row to quarantine: memory ran out, or the worker crashed, when it was processed exclusively."""

    address: int
    """Address of the row."""
    reason: str
    """Reason for the quarantine."""
    cause: Cause = Cause.MEMORY
    """Cause of the attempt that quarantines it."""


class UnitLog:
    """Record of the rows that the task of an exclusive range is about to process; also in a file, if all share the disk.

    Parameters
    ----------
    number : int
        Number of the range.
    folder : Folder, optional
        Folder of the file; without one nothing is recorded.
    """

    def __init__(self, number: int, folder: Folder | None) -> None:
        self.unit: Unit | None = None
        """Rows in progress; None while the reader works or nothing runs."""
        self.is_alone = self._notes = folder is not None
        """Whether the task has the node to itself."""
        self._descriptor: int | None = None
        enter_step(READ)
        if folder is not None and folder.is_local:
            path = Path(folder.path(unit_file(number)))
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not truncated: if Dask repeats the task and that worker dies before it begins, the first record stays.
            self._descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)

    def enter(self, step: str, block: Any) -> None:
        """Record that a step is about to work on a block."""
        enter_step(step)
        if self._notes:
            known = len(block) and block.index.name == ADDRESS  # a user's function may have changed the index
            self.unit = _unit(block.index.to_numpy(), step) if known else None
            self._note()

    def leave(self) -> None:
        """Record that no rows are in progress."""
        enter_step(READ)
        if self.unit is not None:
            self.unit = None
            self._note()

    def close(self) -> None:
        """Close the file; it stays until the range has succeeded."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _note(self) -> None:
        if self._descriptor is not None:
            record = json.dumps(None if self.unit is None else asdict(self.unit)).encode()
            os.pwrite(self._descriptor, record.ljust(_RECORD_BYTES), 0)


def _unit(addresses: Any, step: str) -> Unit:
    # Rows made from one row share its address; only that original row can be quarantined.
    rows = 1 + int(np.count_nonzero(addresses[1:] != addresses[:-1]))
    return Unit(int(addresses[0]), int(addresses[-1]), rows, step)


def unit_file(number: int) -> str:
    """Return the name of the file in which the task of a range records its current rows."""
    return f"{TEMPORARY_FOLDER}/unit-{number:06d}.json"


def unit_left(folder: Folder, number: int) -> Unit | None:
    """Return and delete the record of the rows that a task was working on when its process ended; None if unknown."""
    name = unit_file(number)
    if not folder.is_local or not folder.exists(name):
        return None
    record = folder.read(name)
    folder.delete(name)
    with contextlib.suppress(json.JSONDecodeError):  # the process ended while it wrote the record
        found = json.loads(record)
        return None if found is None else Unit(**found)
    return None


def smaller_units(unit: Unit) -> Span:
    """Return how to split rows that did not fit together."""
    return Span(unit.first, unit.last, 1 if unit.rows <= ONE_BY_ONE_ROWS else unit.rows // UNIT_PARTS)


def cut_block(block: Any, spans: Sequence[Span]) -> Iterator[Any]:
    """Yield a block in parts so that rows of each span pass in units of its size; later spans may lie in earlier ones.

    The first row of a span passes alone: if a step fails on every row, it is known after one more attempt.
    """
    addresses = block.index.to_numpy()
    cuts = {0, len(block)}
    for span in spans:
        start, stop = np.searchsorted(addresses, [span.first, span.last + 1]).tolist()
        cuts.update(range(start, stop, span.rows), (start, min(start + 1, stop), stop))
    places = sorted(cuts)
    for start, stop in itertools.pairwise(places):
        yield block if len(places) == 2 else block.iloc[start:stop]


def without_rows(
    block: Any, aside: Sequence[RowAside], files: Sequence[str], set_aside: Callable[[BadRow], None]
) -> Any:
    """Quarantine the rows of a block that must not be processed; return the others."""
    reasons = {row.address: row.reason for row in aside}
    found = np.isin(block.index.to_numpy(), list(reasons))
    if not found.any():
        return block
    for place in np.flatnonzero(found).tolist():
        row = block.iloc[place : place + 1]
        set_aside(row_without_memory(row, files, reasons[int(row.index[0])]))
    return block[~found]


def row_without_memory(row: Any, files: Sequence[str], reason: str) -> BadRow:
    """Return the quarantine record of a row that did not fit into memory, with its bytes if they are few."""
    row = host_block(row)
    address, row_bytes = int(row.index[0]), int(row.memory_usage(index=False, deep=True).sum())
    raw = b""
    if row_bytes <= MOST_RAW_BYTES:
        raw = row.to_json(orient="records", lines=True, force_ascii=False).strip().encode()
    return BadRow(
        files[address >> OFFSET_BITS], 0, address & ((1 << OFFSET_BITS) - 1), reason, raw, size_bytes=row_bytes
    )


def shortest_row(block: Any) -> Any:
    """Return the row with the fewest bytes among the first `SHORTEST_OF` of a block, as a block."""
    rows = (block.iloc[place : place + 1] for place in range(min(len(block), SHORTEST_OF)))
    return min(rows, key=lambda row: int(row.memory_usage(index=False, deep=True).sum()))


def long_row(exc: OversizeRowError) -> BadRow:
    """Return the quarantine record of a row that is too long to be read."""
    reason = (
        f"out of memory: the row has {exc.row_bytes:,} bytes, which does not fit even when it is processed exclusively"
    )
    return BadRow(exc.path, exc.line, exc.offset, reason, b"", size_bytes=exc.row_bytes)


def has_room() -> bool:
    """Return whether this process could allocate `ROOM_BYTES` now."""
    try:
        mmap.mmap(-1, ROOM_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, ValueError, MemoryError):
        return False
    return True

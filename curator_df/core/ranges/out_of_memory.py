# SPDX-License-Identifier: Apache-2.0
"""Running out of memory: how it is recognised, which rows were in work when it happened, and how a row is set aside for it.

A `UnitLog` notes the rows and the step that a task is about to work on. After an allocation that failed the task tells
itself; after a worker that was killed the runner reads the file, which outlives the process.
"""

from __future__ import annotations

import contextlib
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

from curator_df.core.files.storage import TEMPORARY_FOLDER, Folder
from curator_df.core.host_blocks import host_block
from curator_df.core.memory.limits import thread_limit
from curator_df.core.ranges.activity import READ, enter_step
from curator_df.core.ranges.source import ADDRESS, OFFSET_BITS, BadRow
from curator_df.errors import CuratorError, OversizeRowError

OnOom = Literal["retry", "raise"]
"""Out of memory: halve blocks down to one row and set aside rows that do not fit even alone, or stop."""

ROOM_BYTES = 40_000_000
"""A process that cannot get this much is full whatever the row: then no row is blamed."""
MOST_IN_A_ROW = 10
"""So many rows one after the other that do not fit alone: then it is the step that does not fit, and no row is blamed."""
MOST_RAW_BYTES = 1_000_000
"""Rows up to this size are written to the quarantine in full; of larger ones only place and size."""
ONE_BY_ONE_ROWS = 256
"""Rows of a unit that are taken one by one when it failed; larger units are cut in `UNIT_PARTS` first."""
UNIT_PARTS = 16
_RECORD_BYTES = 512
_TORCH_ON_CPU = "DefaultCPUAllocator: can't allocate memory"
_ONEDNN = ("could not create a primitive", "could not execute a primitive")
_CUDA_LIBRARIES = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
NO_THREAD = "can't start new thread"
"""Said by Python where memory for the stack does not suffice, and where a limit of threads is reached."""
_MESSAGES = (
    *(NO_THREAD, "std::bad_alloc", "not enough memory", "out of memory"),
    *(_TORCH_ON_CPU, *_ONEDNN, *_CUDA_LIBRARIES),
)
"""What libraries say in errors that are no MemoryError: Python, C++ extensions, zstandard, CUDA and LLVM, torch and what it
calls. oneDNN says no more than this when it gets no memory, as may be for other reasons: then it fails with one row as well."""


def is_out_of_memory(exc: BaseException) -> bool:
    """Tell whether an error, or one that it came from, is an allocation that failed.

    Notes
    -----
    `MemoryError` covers Python, numpy, numba, pyarrow (`ArrowMemoryError`), RMM and cupy, which derive from it.
    ``torch.OutOfMemoryError`` derives from RuntimeError and is known by its name, since torch is not imported for it.

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
            return False  # raised on purpose, and it says what it is
        if isinstance(one, MemoryError) or type(one).__name__ == "OutOfMemoryError":
            return True
        if isinstance(one, OSError) and one.errno == errno.ENOMEM:
            return True
        if type(one).__name__ == "CudaAPIError" and "OUT_OF_MEMORY" in str(one):  # numba's, when a kernel is loaded
            return True
        if isinstance(one, RuntimeError | OSError | ImportError) or type(one).__name__ == "ZstdError":
            said = str(one)
            if any(message in said for message in _MESSAGES) or "Cannot allocate memory" in said:
                return not (NO_THREAD in said and thread_limit())
        one = one.__cause__ or one.__context__
    return False


@dataclass(frozen=True)
class Unit:
    """Rows that one step works on at a time."""

    first: int
    """Address of the first row."""
    last: int
    """Address of the last row."""
    rows: int
    """How many they are."""
    step: str
    """Name of the step, ``write`` for the writer."""


@dataclass(frozen=True)
class Span:
    """Rows that are to be taken in small units, because memory ran out when they were together."""

    first: int
    """Address of the first row."""
    last: int
    """Address of the last row."""
    rows: int
    """Rows of a unit."""


@dataclass(frozen=True)
class RowAside:
    """A row that is not to be worked on: memory ran out, or the worker ended, when it was alone."""

    address: int
    """Of the row."""
    reason: str
    """Why, for the quarantine."""


class UnitLog:
    """Notes what the task of an exclusive range is about to work on; in a file as well, where all see the same disk.

    Parameters
    ----------
    number : int
        Of the range.
    folder : Folder, optional
        Where the file goes; without one nothing is noted.
    """

    def __init__(self, number: int, folder: Folder | None) -> None:
        self.unit: Unit | None = None
        """Rows in work; None while the reader or nobody works."""
        self._notes = folder is not None
        self._descriptor: int | None = None
        enter_step(READ)
        if folder is not None and folder.is_local:
            path = Path(folder.path(unit_file(number)))
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not truncated: when Dask tries the task again and that worker dies before it begins, the first note stands.
            self._descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)

    def enter(self, step: str, block: Any) -> None:
        """Note that a step is about to work on a block."""
        enter_step(step)
        if self._notes:
            known = len(block) and block.index.name == ADDRESS  # a function of the user may have made another index
            self.unit = _unit(block.index.to_numpy(), step) if known else None
            self._note()

    def leave(self) -> None:
        """Note that no rows are in work."""
        enter_step(READ)
        if self.unit is not None:
            self.unit = None
            self._note()

    def close(self) -> None:
        """Close the file; it stays until the range has gone well."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _note(self) -> None:
        if self._descriptor is not None:
            record = json.dumps(None if self.unit is None else asdict(self.unit)).encode()
            os.pwrite(self._descriptor, record.ljust(_RECORD_BYTES), 0)


def _unit(addresses: Any, step: str) -> Unit:
    # Rows that were made of one row share its address; what can be set aside is the row that they are made of.
    rows = 1 + int(np.count_nonzero(addresses[1:] != addresses[:-1]))
    return Unit(int(addresses[0]), int(addresses[-1]), rows, step)


def unit_file(number: int) -> str:
    """Return the name of the file in which the task of a range notes what it works on."""
    return f"{TEMPORARY_FOLDER}/unit-{number:06d}.json"


def unit_left(folder: Folder, number: int) -> Unit | None:
    """Return what a task was working on when its process ended, and forget it; None if nobody knows."""
    name = unit_file(number)
    if not folder.is_local or not folder.exists(name):
        return None
    record = folder.read(name)
    folder.delete(name)
    with contextlib.suppress(json.JSONDecodeError):  # the process ended in the middle of the note
        found = json.loads(record)
        return None if found is None else Unit(**found)
    return None


def smaller_units(unit: Unit) -> Span:
    """Return how to take rows that were too many together."""
    return Span(unit.first, unit.last, 1 if unit.rows <= ONE_BY_ONE_ROWS else unit.rows // UNIT_PARTS)


def cut_block(block: Any, spans: Sequence[Span]) -> Iterator[Any]:
    """Yield a block in parts so that rows of each span pass in units of its size; later spans may lie in earlier ones."""
    addresses = block.index.to_numpy()
    cuts = {0, len(block)}
    for span in spans:
        start, stop = np.searchsorted(addresses, [span.first, span.last + 1]).tolist()
        cuts.update(range(start, stop, span.rows), (start, stop))
    places = sorted(cuts)
    for start, stop in itertools.pairwise(places):
        yield block if len(places) == 2 else block.iloc[start:stop]


def without_rows(
    block: Any, aside: Sequence[RowAside], files: Sequence[str], set_aside: Callable[[BadRow], None]
) -> Any:
    """Set rows of a block aside that are not to be worked on; return the others."""
    reasons = {row.address: row.reason for row in aside}
    found = np.isin(block.index.to_numpy(), list(reasons))
    if not found.any():
        return block
    for place in np.flatnonzero(found).tolist():
        row = block.iloc[place : place + 1]
        set_aside(row_without_memory(row, files, reasons[int(row.index[0])]))
    return block[~found]


def row_without_memory(row: Any, files: Sequence[str], reason: str) -> BadRow:
    """Return the record of a row for which memory did not suffice, with its bytes where they are few."""
    row = host_block(row)
    address, row_bytes = int(row.index[0]), int(row.memory_usage(index=False, deep=True).sum())
    raw = b""
    if row_bytes <= MOST_RAW_BYTES:
        raw = row.to_json(orient="records", lines=True, force_ascii=False).strip().encode()
    return BadRow(
        files[address >> OFFSET_BITS], 0, address & ((1 << OFFSET_BITS) - 1), reason, raw, size_bytes=row_bytes
    )


def long_row(exc: OversizeRowError) -> BadRow:
    """Return the record of a row that is too long to be read."""
    reason = f"out of memory: the row has {exc.row_bytes:,} bytes, which is more than fits even alone on the node"
    return BadRow(exc.path, exc.line, exc.offset, reason, b"", size_bytes=exc.row_bytes)


def has_room() -> bool:
    """Tell whether this process could get `ROOM_BYTES` now."""
    try:
        mmap.mmap(-1, ROOM_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, ValueError, MemoryError):
        return False
    return True

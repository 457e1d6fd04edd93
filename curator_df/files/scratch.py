# SPDX-License-Identifier: Apache-2.0
"""Scratch space of a task: its directory, and columns of numbers that move to it when they are too long for memory."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from curator_df.files.storage import Folder, disk_errors

PAGE_NUMBERS = 512
"""Number of values that are read together for one random access."""
LEAST_NUMBERS = 1024
"""Number of values that always stay in memory."""


def scratch_directory() -> str:
    """Return the local directory for temporary files of this task.

    In a worker it is the worker's own folder, below ``spill_directory=``, which Dask deletes with the worker; otherwise the
    system's directory for temporary files.
    """
    from distributed import get_worker

    try:
        return str(get_worker().local_directory)
    except ValueError:  # not in a task
        return tempfile.gettempdir()


class ScratchColumn:
    """Sequence of numbers of one type, in memory up to a certain length and beyond it in an anonymous file."""

    def __init__(self, dtype: Any, memory_bytes: int, directory: str | None = None) -> None:
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        # While the array grows, there are two copies, one twice as long as the other.
        self._most = max(memory_bytes // (3 * self._dtype.itemsize), LEAST_NUMBERS)
        self._directory = directory
        self._held: npt.NDArray[Any] = np.empty(0, self._dtype)
        self._file: Any = None
        self._in_file = False
        self._length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the number of values."""
        return self._length

    @property
    def spilled_bytes(self) -> int:
        """Number of bytes in the file."""
        return self._length * self._dtype.itemsize if self._in_file else 0

    def clear(self) -> None:
        """Remove all values."""
        self._length, self._in_file = 0, False
        if self._file is not None:
            self._file.truncate(0)

    def close(self) -> None:
        """Release the memory and the disk space."""
        self._held = self._held[:0].copy()
        if self._file is not None:
            self._file.close()
            self._file = None

    def append(self, numbers: npt.NDArray[Any]) -> None:
        """Append numbers; a copy is made."""
        start, self._length = self._length, self._length + len(numbers)
        if not self._in_file and self._length > self._most:
            self._move(start)
        if self._in_file:
            self._write(start, numbers)
            return
        if self._length > len(self._held):
            grown = np.empty(min(max(2 * len(self._held), self._length), self._most), self._dtype)
            grown[:start] = self._held[:start]
            self._held = grown
        self._held[start : self._length] = numbers

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Return consecutive numbers; ``stop`` may be beyond the last one."""
        stop = min(stop, self._length)
        if not self._in_file:
            return self._held[start:stop].copy()
        size = self._dtype.itemsize
        with disk_errors(self._folder()):
            raw = os.pread(self._file.fileno(), (stop - start) * size, start * size)
        return np.frombuffer(raw, self._dtype).copy()

    def take(self, places: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the numbers at some positions, in any order."""
        if not self._in_file:
            return self._held[places]
        found = np.empty(len(places), self._dtype)
        for page, chosen in _pages(places):
            found[chosen] = self.read(page, page + PAGE_NUMBERS)[places[chosen] - page]
        return found

    def put(self, places: npt.NDArray[np.int64], numbers: npt.NDArray[Any]) -> None:
        """Replace the numbers at some positions."""
        if not self._in_file:
            self._held[places] = numbers
            return
        for page, chosen in _pages(places):
            changed = self.read(page, page + PAGE_NUMBERS)
            changed[places[chosen] - page] = numbers[chosen]
            self._write(page, changed)

    def _move(self, length: int) -> None:
        """Move the numbers from memory to the file."""
        with disk_errors(self._folder()):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder().url)  # noqa: SIM115 - closed with the column
        self._in_file = True
        self._write(0, self._held[:length])
        self._held = self._held[:0].copy()

    def _write(self, start: int, numbers: npt.NDArray[Any]) -> None:
        content = np.ascontiguousarray(numbers, self._dtype).data.cast("B")
        at = start * self._dtype.itemsize
        with disk_errors(self._folder()):
            while content:  # a call may write only a part
                written = os.pwrite(self._file.fileno(), content, at)
                content, at = content[written:], at + written

    def _folder(self) -> Folder:
        if self._directory is None:
            self._directory = scratch_directory()
        return Folder(self._directory)


def _pages(places: npt.NDArray[np.int64]) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Return the first index of each page with some of these positions, and which of them it contains."""
    order = np.argsort(places, kind="stable")
    pages = places[order] // PAGE_NUMBERS
    cuts = np.flatnonzero(np.diff(pages)) + 1
    firsts = pages[np.concatenate([[0], cuts])] if len(pages) else pages
    return [
        (int(first) * PAGE_NUMBERS, chosen)
        for first, chosen in zip(firsts, np.split(order, cuts) if len(pages) else [], strict=True)
    ]

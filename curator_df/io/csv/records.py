# SPDX-License-Identifier: Apache-2.0
"""Stream of a CSV file as pieces of whole records, in bounded memory.

A file is never split: whether a line end is in quotes is known only from the beginning of the file. A quote that never closes
makes its first line a bad record, and reading goes on after that line.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from curator_df.io.jsonl.lines import STEP_BYTES, WINDOW_BYTES, Bytes, count_newlines, first_newline
from curator_df.io.jsonl.parse import LARGEST_LINE_BYTES
from curator_df.io.streams.file_stream import ByteStream, is_compressed
from curator_df.kernels.text.csv_records import FAULT, FIELDS, PLACE, QUOTED, STATE, find_records

NO_QUOTE = 256
"""Value that no byte has: no quotation mark is searched for."""
OPEN = 2
"""Fault of a record whose quote never closes."""
TEXT_AFTER_QUOTE = 1
"""Fault of a record with text after the closing quote of a field."""
UTF8_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Dialect:
    """Form of CSV files."""

    delimiter: str
    """Character between two fields."""
    quote: str | None
    """Quotation mark; None if no field is quoted."""

    @property
    def codes(self) -> tuple[int, int]:
        """Bytes of the delimiter and the quotation mark."""
        return ord(self.delimiter), NO_QUOTE if self.quote is None else ord(self.quote)


class Records(NamedTuple):
    """Consecutive whole records of a file."""

    data: Bytes
    """Bytes of the records."""
    starts: npt.NDArray[np.int64]
    """Shape (records + 1,): first byte of each record, and the end of the last one."""
    fields: npt.NDArray[np.int32]
    """Number of fields of each record."""
    faults: npt.NDArray[np.uint8]
    """Fault of each record, such as `OPEN`; 0 for none."""
    offset: int
    """Offset of the first byte in the decompressed file."""
    lines: int
    """Line feeds before the first byte."""


class TooLong(NamedTuple):
    """Record that is longer than allowed; its bytes were not kept."""

    offset: int
    """Offset of its first byte in the decompressed file."""
    lines: int
    """Line feeds before it."""
    size: int
    """Number of bytes."""


Open = Callable[[], AbstractContextManager[ByteStream]]


class RecordReader:
    """Reader of the records of one file.

    Parameters
    ----------
    path : str
        Path of the file.
    open_file : callable
        Function that opens the file as a `ByteStream`.
    dialect : Dialect
        Form of the file.
    block_bytes : int
        Bytes that are read and searched together.
    most_records : int
        Maximum number of records of a piece.
    largest_row_bytes : int, optional
        Maximum size of a record. A longer one is not held: its length is found by reading on.
    """

    def __init__(
        self,
        path: str,
        open_file: Open,
        dialect: Dialect,
        *,
        block_bytes: int,
        most_records: int,
        largest_row_bytes: int | None = None,
    ) -> None:
        self._path, self._open, self._codes = path, open_file, dialect.codes
        self._block_bytes = max(block_bytes, len(UTF8_BOM))
        self._limit = min(largest_row_bytes or LARGEST_LINE_BYTES, LARGEST_LINE_BYTES)
        self._ends = np.empty(max(most_records, 1), np.int64)
        self._fields, self._faults = np.empty(len(self._ends), np.int32), np.empty(len(self._ends), np.uint8)
        self._again: tuple[int, int] | None = None

    def pieces(self) -> Generator[Records | TooLong, None, None]:
        """Yield all records of the file in order."""
        self._again = 0, 0
        while self._again is not None:
            (offset, lines), self._again = self._again, None
            with self._open() as stream:
                _move_to(stream, self._path, offset)
                yield from self._from(stream, offset, lines)

    def _from(self, stream: ByteStream, offset: int, lines: int) -> Generator[Records | TooLong, None, None]:
        """Yield the records from an offset on, at which a record begins."""
        window = _Window(self._block_bytes, offset, lines)
        while True:
            window.fill(stream)
            while (piece := self._next(window)) is not None:
                yield piece
                del piece
            if window.is_end:
                return
            if window.start:
                window.move()
            elif window.filled <= self._limit:
                window.grow(self._limit + 1)
            else:
                skipped = self._skip(stream, window.held, window.state)
                if skipped.rest is None and window.state[STATE] == QUOTED:  # it never closes
                    yield self._open_line(window, skipped)
                    return
                yield TooLong(window.offset, window.lines, skipped.size)
                if skipped.rest is None:
                    return
                window.go_on(skipped)

    def _next(self, window: _Window) -> Records | None:
        """Return the next whole records of a window; None if more bytes are needed, or there are none."""
        found = find_records(
            window.buffer, window.filled, *self._codes, window.state, self._ends, self._fields, self._faults
        )
        if not found and window.is_end and window.start < window.filled:
            found = self._last(window)
        if not found:
            return None
        starts = np.concatenate(([window.start], self._ends[:found]))
        return window.take(starts, self._fields[:found].copy(), self._faults[:found].copy())

    def _last(self, window: _Window) -> int:
        """Note the last record of a file, which has no line end; of one that never closes, its first line."""
        state, end = window.state, window.filled
        is_open = state[STATE] == QUOTED
        if is_open and (line_end := first_newline(window.held)) is not None:
            end = window.start + line_end + 1
        self._ends[0], self._fields[0], self._faults[0] = end, state[FIELDS] + 1, OPEN if is_open else state[FAULT]
        state[:] = 0, 0, 0, end
        return 1

    def _skip(self, stream: ByteStream, held: Bytes, state: npt.NDArray[np.int64]) -> _Skipped:
        """Read to the end of a record without holding it; ``held`` are its first bytes, in which it does not end."""
        window, one = (
            np.empty(WINDOW_BYTES, np.uint8),
            (np.empty(1, np.int64), np.empty(1, np.int32), np.empty(1, np.uint8)),
        )
        size, lines, line_end = len(held), count_newlines(held), first_newline(held)
        while count := stream.readinto(window.data):
            state[PLACE] = 0
            found = find_records(window, count, *self._codes, state, *one)
            end = int(one[0][0]) if found else count
            if line_end is None and (place := first_newline(window[:end])) is not None:
                line_end = size + place
            size, lines = size + end, lines + count_newlines(window[:end])
            if found:
                return _Skipped(size, lines, line_end, window[end:count].copy())
        return _Skipped(size, lines, line_end, None)

    def _open_line(self, window: _Window, skipped: _Skipped) -> Records | TooLong:
        """Return the first line of a record whose quote never closes; the rest of the file is then read again."""
        stop = skipped.size if skipped.line_end is None else skipped.line_end + 1
        if skipped.line_end is not None:
            self._again = window.offset + stop, window.lines + 1
        if stop > window.filled:
            return TooLong(window.offset, window.lines, stop)
        return window.take(np.array([0, stop]), np.zeros(1, np.int32), np.full(1, OPEN, np.uint8))


class _Window:
    """Bytes of a file that are searched for records."""

    def __init__(self, block_bytes: int, offset: int, lines: int) -> None:
        self._block_bytes = block_bytes
        self.buffer = np.empty(block_bytes, np.uint8)
        self.state = np.zeros(4, np.int64)
        """State of the search, as `find_records` takes it."""
        self.start = self.filled = 0
        """First byte of the next record, and number of bytes that were read."""
        self.offset, self.lines = offset, lines
        """Offset of the first byte in the decompressed file, and line feeds before the next record."""
        self.is_end = False
        """Whether the file has no more bytes."""

    @property
    def held(self) -> Bytes:
        """Bytes from the next record on."""
        return self.buffer[self.start : self.filled]

    def fill(self, stream: ByteStream) -> None:
        """Read until the buffer is full or the file ends; leave out a byte order mark."""
        is_first = not self.offset and not self.filled
        while self.filled < len(self.buffer) and (count := stream.readinto(self.buffer[self.filled :].data)):
            self.filled += count
        self.is_end = self.filled < len(self.buffer)
        if is_first and self.buffer[: min(self.filled, len(UTF8_BOM))].tobytes() == UTF8_BOM:
            self.start = self.state[PLACE] = len(UTF8_BOM)

    def take(
        self, starts: npt.NDArray[np.int64], fields: npt.NDArray[np.int32], faults: npt.NDArray[np.uint8]
    ) -> Records:
        """Return the next records, and go on after them."""
        data = self.buffer[self.start : starts[-1]]
        records = Records(data, starts - self.start, fields, faults, self.offset + self.start, self.lines)
        self.start, self.lines = int(starts[-1]), self.lines + count_newlines(data)
        return records

    def move(self) -> None:
        """Move the bytes from the next record on to the beginning of the buffer."""
        self._begin(self.held.copy(), self.offset + self.start)
        self.state[PLACE] = self.filled

    def go_on(self, skipped: _Skipped) -> None:
        """Go on after a record that was skipped."""
        self.lines += skipped.lines
        self._begin(skipped.rest if skipped.rest is not None else self.held[:0], self.offset + skipped.size)
        self.state[:] = 0

    def grow(self, most_bytes: int) -> None:
        """Enlarge the buffer for a record that fills it, up to ``most_bytes``."""
        self.buffer.resize(min(len(self.buffer) + min(len(self.buffer), STEP_BYTES), most_bytes), refcheck=False)

    def _begin(self, rest: Bytes, offset: int) -> None:
        self.buffer = np.empty(max(self._block_bytes, len(rest)), np.uint8)
        self.buffer[: len(rest)] = rest
        self.start, self.filled, self.offset = 0, len(rest), offset


class _Skipped(NamedTuple):
    """Record that was read without holding it."""

    size: int
    """Number of bytes."""
    lines: int
    """Line feeds in it."""
    line_end: int | None
    """Position of its first line feed; None if it has none."""
    rest: Bytes | None
    """Bytes after it that were read; None at the end of the file."""


def _move_to(stream: ByteStream, path: str, offset: int) -> None:
    """Move a stream from its first byte to an offset; a compressed file is read up to it."""
    if offset and not is_compressed(path):
        stream.seek(offset)
        return
    window = np.empty(WINDOW_BYTES, np.uint8)
    while offset and (count := stream.readinto(window[:offset].data)):
        offset -= count

# SPDX-License-Identifier: Apache-2.0
r"""Split byte streams into chunks of whole lines, for readers of JSON Lines and CSV.

Lines end in ``\n`` only: U+2028, U+0085, vertical tabs and form feeds belong to the text. A part of a file owns the
lines that *begin* in it, so adjacent parts neither share nor miss a line.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.errors import CorruptFileError, OversizeRowError
from curator_df.io.streams.file_stream import ByteStream, is_compressed

Bytes = npt.NDArray[np.uint8]
NEWLINE = 10
WINDOW_BYTES = 1 << 18
"""Bytes processed in one numpy call: the mask of 256 KiB stays in the cache (3 GB/s) and is not a copy of the chunk."""
FEW_LINES = 512
"""Maximum number of line ends of such a window that are searched for one by one."""
STEP_BYTES = 1 << 22
"""Maximum number of bytes by which the buffer of a long line grows at once."""
UTF8_BOM = b"\xef\xbb\xbf"
SPACE = 32


@dataclass(frozen=True)
class Part:
    """Lines of one file that belong to an input split."""

    file: int
    """Number of the file in the listing."""
    path: str
    """Path or URL of the file."""
    start: int
    """First byte at which an owned line may begin."""
    stop: int | None
    """End of the bytes at which owned lines may begin; None for the end of a compressed file."""


@dataclass(frozen=True)
class Segment:
    """Position of the bytes of one file in a chunk."""

    file: int
    """Number of the file in the listing."""
    position: int
    """First byte in the chunk."""
    offset: int
    """Offset of that byte in the decompressed file, at which a line begins."""


class Chunk:
    """Whole lines, of one or more files, in one buffer."""

    def __init__(self, data: Bytes, segments: list[Segment]) -> None:
        self.segments = segments
        self._data: Bytes | None = data

    def take(self) -> Bytes:
        """Return the buffer and release it, so that only the caller determines its lifetime."""
        data, self._data = self._data, None
        if data is None:
            raise RuntimeError(
                "a piece of the input was taken twice from the buffer that held it. This is a defect in curator_df; please "
                "report it with this traceback"
            )
        return data


class OwnedLines:
    """Lines of a stream that begin in ``[start, stop)``, as bytes."""

    def __init__(self, stream: ByteStream, part: Part) -> None:
        self._stream, self._part = stream, part
        self._pending: Bytes = np.empty(0, np.uint8)
        self.offset = part.start
        """Offset in the file of the next byte."""
        self._done = False
        if part.start:
            stream.seek(part.start - 1)
            self._skip_line()

    def _skip_line(self) -> None:
        """Skip the rest of the line that begins before this part, but never beyond the part's end."""
        self.offset -= 1
        last = self._part.stop
        buffer = np.empty(WINDOW_BYTES, np.uint8)
        while last is None or self.offset < last - 1:
            read = self._stream.readinto(buffer.data)
            found = first_newline(buffer[:read])
            if not read:
                break
            if found is not None:
                self.offset += found + 1
                self._pending = buffer[found + 1 : read]
                self._done = last is not None and self.offset >= last
                return
            self.offset += read
        self._done = True

    def readinto(self, view: Bytes) -> int:
        """Fill the beginning of ``view`` with bytes of owned lines; return their number, 0 at the end."""
        if self._done:
            return 0
        stop = self._part.stop
        if stop is None or self.offset < stop:
            view = view if stop is None else view[: stop - self.offset]
            count = self._fill(view)
            self._done = stop is not None and self.offset + count >= stop and bool(view[count - 1] == NEWLINE)
            if not count and stop is not None:
                raise CorruptFileError(
                    f"{self._part.path!r} ends at byte {self.offset:,}, but had at least {stop:,} bytes when it was listed: "
                    "it was truncated or replaced. Call read_jsonl again, and write to a new output folder"
                )
        else:
            # The last owned line continues after stop: use only the bytes up to its end.
            count = self._fill(view[:WINDOW_BYTES])
            end = first_newline(view[:count])
            self._done = end is not None or not count
            count = count if end is None else end + 1
        self.offset += count
        return count

    def give_back(self, rest: Bytes) -> None:
        """Return the last bytes that were read, so that they are read again."""
        if len(rest):
            self._pending = np.concatenate([rest, self._pending])
            self.offset -= len(rest)
            self._done = False

    def _fill(self, view: Bytes) -> int:
        if not len(self._pending):
            return self._stream.readinto(view.data)
        count = min(len(self._pending), len(view))
        view[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count


def first_newline(data: Bytes) -> int | None:
    r"""Return the position of the first ``\n``, or None."""
    for start in range(0, len(data), WINDOW_BYTES):
        found = data[start : start + WINDOW_BYTES].tobytes().find(b"\n")
        if found >= 0:
            return start + found
    return None


def last_newline(data: Bytes) -> int | None:
    r"""Return the position of the last ``\n``, or None."""
    for stop in range(len(data), 0, -WINDOW_BYTES):
        start = max(0, stop - WINDOW_BYTES)
        found = data[start:stop].tobytes().rfind(b"\n")
        if found >= 0:
            return start + found
    return None


def newline_positions(data: Bytes, most: int) -> npt.NDArray[np.int64]:
    r"""Return the positions of the first ``most`` of the ``\n``, or of all of them if there are fewer."""
    found, missing = [], most
    for start in range(0, len(data), WINDOW_BYTES):
        places = _newlines_of_window(data[start : start + WINDOW_BYTES])[:missing] + start
        found.append(places)
        missing -= len(places)
        if not missing:
            break
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _newlines_of_window(window: Bytes) -> npt.NDArray[np.int64]:
    """Search for one after the other (10 GB/s for long lines), or test all bytes if lines are short (4 GB/s)."""
    raw, found = window.tobytes(), []
    at = raw.find(b"\n")
    while at >= 0:
        found.append(at)
        if len(found) == FEW_LINES:
            return np.flatnonzero(window == NEWLINE)
        at = raw.find(b"\n", at + 1)
    return np.array(found, np.int64)


def count_newlines(data: Bytes) -> int:
    r"""Count the ``\n``."""
    starts = range(0, len(data), WINDOW_BYTES)
    return sum(int(np.count_nonzero(data[start : start + WINDOW_BYTES] == NEWLINE)) for start in starts)


def read_chunks(
    parts: Iterable[Part],
    open_part: Any,
    *,
    block_bytes: int,
    largest_row_bytes: int | None,
    on_long_row: Callable[[OversizeRowError], None] | None = None,
) -> Generator[Chunk, None, None]:
    r"""Stream the lines of file parts as chunks of about ``block_bytes``.

    Parameters
    ----------
    parts : iterable of Part
        In input order; a chunk continues from one file to the next.
    open_part : callable
        Function from a path to a context manager of a `ByteStream`.
    block_bytes : int
        Bytes of a chunk. A longer line is a separate chunk.
    largest_row_bytes : int, optional
        Maximum size of a line. A longer one is not held: its length is found by reading on.
    on_long_row : callable, optional
        Function that receives the error of a longer line, which is then skipped; without it the error is raised.

    Yields
    ------
    Chunk
        Whole lines; every line ends in ``\n``, even the last one of a file.

    Raises
    ------
    OversizeRowError
        If a line is longer than ``largest_row_bytes``.
    """
    gathered = _Gathered(max(1, block_bytes))
    for part in parts:
        with open_part(part.path) as stream:
            lines = OwnedLines(stream, part)
            gathered.begin(part, lines.offset)
            while True:
                while gathered.is_full:
                    yield from gathered.cut()
                    if gathered.is_full:
                        too_long = _oversize(gathered, lines, part, open_part, largest_row_bytes)
                        if too_long is None:
                            gathered.grow()
                        elif on_long_row is None:
                            raise too_long
                        else:
                            on_long_row(too_long)
                            gathered.restart(part, lines.offset)
                if not gathered.read(lines):
                    break
            gathered.end_line()
    while gathered.is_grown:
        yield from gathered.cut()
    yield from gathered.finish()


def count_lines(path: str, open_part: Any, start: int, stop: int) -> int:
    """Count the line ends in ``[start, stop)`` of a file, in a few hundred KB of memory."""
    buffer = np.empty(WINDOW_BYTES, np.uint8)
    count = 0
    with open_part(path) as stream:
        position = 0
        if start and not is_compressed(path):
            stream.seek(start)
            position = start
        while position < stop:
            read = stream.readinto(buffer[: stop - position].data)
            if not read:
                break
            count += count_newlines(buffer[max(0, start - position) : read])
            position += read
    return count


class _Gathered:
    """Buffer that fills up with lines."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._buffer: Bytes = np.empty(block_bytes, np.uint8)
        self._searched = 0
        self._segments: list[Segment] = []
        self.filled = 0
        """Number of bytes gathered; the first of them begins a line."""
        self.is_grown = False
        """Whether the first line is longer than a block."""

    @property
    def is_full(self) -> bool:
        return self.filled >= len(self._buffer)

    def begin(self, part: Part, offset: int) -> None:
        """Record that the next bytes are those of another file."""
        self._segments.append(Segment(part.file, self.filled, offset))

    def read(self, lines: OwnedLines) -> int:
        """Read on; return the number of bytes read."""
        offset = lines.offset
        view = self._buffer[self.filled :]
        count = lines.readinto(view)
        if offset == 0 and view[:count][:3].tobytes() == UTF8_BOM:
            view[:3] = SPACE  # white space: the line still begins at offset 0
        self.filled += count
        return count

    def cut(self) -> Iterator[Chunk]:
        """Yield the complete lines gathered, or only the first one if it is longer than a block."""
        search = first_newline if self.is_grown else last_newline
        found = search(self._buffer[self._searched : self.filled])
        if found is None:
            self._searched = self.filled
            return
        end = self._searched + found + 1
        chunk = Chunk(self._buffer[:end], [item for item in self._segments if item.position < end])
        # While the chunk is processed, only the beginning of the next line is held here.
        rest = self._buffer[end : self.filled].copy()
        self._buffer, self.filled, self._searched, self.is_grown = rest, len(rest), 0, False
        self._segments = _after(self._segments, end)
        yield chunk
        del chunk
        self._buffer = np.empty(max(self._block_bytes, len(rest)), np.uint8)
        self._buffer[: len(rest)] = rest

    def grow(self) -> None:
        """Enlarge the buffer for a line that fills it."""
        self.is_grown = True
        # realloc moves the pages of a large buffer instead of copying them.
        self._buffer.resize(len(self._buffer) + min(self._block_bytes, STEP_BYTES), refcheck=False)

    def restart(self, part: Part, offset: int) -> None:
        """Discard the line that fills the buffer; the next bytes are those after it."""
        self._buffer = np.empty(self._block_bytes, np.uint8)
        self._segments, self.filled, self._searched, self.is_grown = [], 0, 0, False
        self.begin(part, offset)

    def end_line(self) -> None:
        """Add a line end to the last line of a file that lacks one."""
        if self.filled and self._buffer[self.filled - 1] != NEWLINE:
            if self.is_full:
                self._buffer.resize(self.filled + 1, refcheck=False)
            self._buffer[self.filled] = NEWLINE
            self.filled += 1

    def finish(self) -> Iterator[Chunk]:
        """Yield the remaining lines."""
        if self.filled:
            data, self._buffer = self._buffer[: self.filled], np.empty(0, np.uint8)
            chunk = Chunk(data, self._segments)
            del data
            yield chunk


def _after(segments: list[Segment], end: int) -> list[Segment]:
    """Return the segments after the first ``end`` bytes."""
    stops = [item.position for item in segments[1:]] + [None]
    return [
        Segment(item.file, max(0, item.position - end), item.offset + max(0, end - item.position))
        for item, stop in zip(segments, stops, strict=True)
        if stop is None or stop > end
    ]


def _oversize(
    gathered: _Gathered, lines: OwnedLines, part: Part, open_part: Any, largest_row_bytes: int | None
) -> OversizeRowError | None:
    """Return the error if the line that fills the buffer is already too long, after reading to its end without holding it."""
    if largest_row_bytes is None or gathered.filled <= largest_row_bytes:
        return None
    offset, row_bytes = lines.offset - gathered.filled, gathered.filled
    scratch = np.empty(WINDOW_BYTES, np.uint8)
    while read := lines.readinto(scratch):
        end = first_newline(scratch[:read])
        row_bytes += read if end is None else end
        if end is not None:
            lines.give_back(scratch[end + 1 : read])
            break
    return oversize_error(part.path, open_part, offset, row_bytes, largest_row_bytes)


def oversize_error(path: str, open_part: Any, offset: int, row_bytes: int, largest_row_bytes: int) -> OversizeRowError:
    """Make the error for a line that is too long."""
    line = count_lines(path, open_part, 0, offset) + 1
    error = OversizeRowError(
        f"{path!r}, line {line:,} (byte {offset:,}): the row has {row_bytes:,} bytes, but only {largest_row_bytes:,} fit "
        "into the memory budget. Use a larger memory=, or remove the row from the file"
    )
    error.path, error.line, error.offset, error.row_bytes = path, line, offset, row_bytes
    return error

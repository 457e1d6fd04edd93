# SPDX-License-Identifier: Apache-2.0
"""Convert chunks of JSON lines to blocks: scan, parse, quarantine bad lines, add row IDs, convert."""

from __future__ import annotations

import bisect
import collections
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pandas as pd
import pyarrow as pa

from curator_df.core.columns import leaf_columns
from curator_df.core.ranges.source import OFFSET_BITS, BadRow, RowChoice
from curator_df.errors import OversizeRowError, ParameterError
from curator_df.io.formats import why_no_row
from curator_df.io.frames import LARGEST_OFFSET, in_one_piece, to_block, with_source
from curator_df.io.jsonl.lines import (
    NEWLINE,
    WINDOW_BYTES,
    Bytes,
    Chunk,
    Segment,
    count_lines,
    count_newlines,
    newline_positions,
    oversize_error,
)
from curator_df.io.jsonl.lossy_numbers import lossy_rows
from curator_df.io.jsonl.parse import (
    LARGEST_LINE_BYTES,
    LONG_BLANK,
    NO_ROW,
    PARSE_BYTES,
    Failure,
    failing_lines,
    longest_of,
    try_parse,
    try_parse_rows,
)
from curator_df.io.jsonl.scan import Lines, scan_lines
from curator_df.kernels.text.json_texts import ESCAPES, HEX_DIGITS, ROOM, take_texts

LEAST_BYTES = PARSE_BYTES
"""Minimum bytes of lines for this method: numba, which it needs, is not loaded for a few."""
LOOKED_AT = 16
"""Number of lines from which the longest text is determined."""
MANY_TEXTS = 16
"""Columns of text from which on the longest is found by parsing these lines once, not by taking each column out of them."""
MOST_PARSED_BYTES = 8_000_000
"""Bytes of these lines up to which that is done: Python's objects may take several times as much."""
CANDIDATES = 3
"""Columns that may be the longest in bytes among those with most characters: one of these may have four bytes."""
LEAST_SHARE = 0.5
"""Minimum share of the bytes of the lines; the rest must fit into the remaining bytes."""


class TextField:
    """Field that is most of the lines of one input split, if any; determined on first use."""

    def __init__(self) -> None:
        self._name: str | None = None
        self._is_known = False

    def parse(
        self, data: Bytes, lines: Lines, schema: pa.Schema, *, ignore_unknown: bool, as_text: Sequence[str] = ()
    ) -> pa.Table | None:
        """Parse lines into a table like `try_parse`, or return None, so that the caller uses `try_parse`.

        Parameters
        ----------
        data : ndarray of uint8
            The chunk. Bytes that are not in ``lines`` are not read.
        lines : Lines
            Lines that begin with ``{`` and end with ``}``, in valid UTF-8.
        schema : pyarrow.Schema
            Columns and types of the result.
        ignore_unknown : bool
            Whether to ignore fields that are not in the schema.
        as_text : sequence of str
            Text columns in which numbers and booleans are read literally.

        Notes
        -----
        Rows: all. Peak extra memory: 1.5 x chunk (the texts, and twice the rest of the lines). Computes: no.
        """
        size = int((lines.stops - lines.starts).sum())
        if size < LEAST_BYTES:
            return None
        if not self._is_known:
            self._name, self._is_known = _longest(data, lines, schema), True
        if self._name is None or (taken := _Taken.of(data, lines, size, self._name)) is None:
            return None
        table = try_parse_rows(
            taken.rest, len(lines), taken.longest_rest, schema, ignore_unknown=ignore_unknown, as_text=as_text
        )
        return None if isinstance(table, str) else taken.put_into(table, self._name)


class _Taken:
    """Texts of a field, and the rest of the lines."""

    def __init__(self, texts: Bytes, offsets: npt.NDArray[np.int64], count: int, rest: Bytes, longest: int) -> None:
        self.texts, self.offsets, self.count, self.rest, self.longest_rest = texts, offsets, count, rest, longest

    @classmethod
    def of(cls, data: Bytes, lines: Lines, size: int, name: str) -> _Taken | None:
        """Extract the texts from lines of ``size`` bytes together."""
        texts, rest = np.empty(size + ROOM, np.uint8), np.empty(int(size * (1 - LEAST_SHARE)) + ROOM, np.uint8)
        offsets = np.empty(len(lines) + 1, np.int64)
        field = np.frombuffer(name.encode(), np.uint8)
        count, rest_bytes, longest = take_texts(
            data, lines.starts, lines.stops, field, ESCAPES, HEX_DIGITS, texts, offsets, rest
        )
        return cls(texts, offsets, count, rest[:rest_bytes], longest) if count >= 0 else None

    def put_into(self, table: pa.Table, name: str) -> pa.Table | None:
        """Replace the empty texts that the parser found; return None if it found others."""
        place = table.schema.names.index(name)
        found = table.column(place).combine_chunks()
        if len(found) - found.null_count != self.count:
            return None
        valid = found.buffers()[0] if found.null_count else None
        buffers = [valid, pa.py_buffer(self.offsets), pa.py_buffer(self.texts[: self.offsets[-1]])]
        texts = pa.Array.from_buffers(pa.large_string(), len(found), buffers, found.null_count)
        return table.set_column(place, table.schema.field(place), texts)


def _longest(data: Bytes, lines: Lines, schema: pa.Schema) -> str | None:
    """Return the text that has most of the bytes of the first lines, if there is one."""
    first = Lines(*(of_lines[:LOOKED_AT] for of_lines in (lines.starts, lines.stops, lines.ordinals)))
    size = int((first.stops - first.starts).sum())
    names = [field.name for field in schema if field.type == pa.large_string()]
    if len(names) > MANY_TEXTS and size <= MOST_PARSED_BYTES:
        names = [name for name in _longest_parsed(data, first) if name in set(names)]
    largest, found = LEAST_SHARE * size, None
    for name in names:
        taken = _Taken.of(data, first, size, name)
        if taken is not None and taken.offsets[-1] > largest:
            largest, found = taken.offsets[-1], name
    return found


def _longest_parsed(data: Bytes, lines: Lines) -> list[str]:
    """Return the field that has most of the text of lines, by parsing them: that takes as long for many fields as for one."""
    sizes: collections.Counter[str] = collections.Counter()
    for start, stop in zip(lines.starts.tolist(), lines.stops.tolist(), strict=True):
        try:
            row = orjson.loads(data[start:stop].tobytes())
        except orjson.JSONDecodeError:  # as for NaN, which other lines may be without
            continue
        sizes.update({name: len(value) for name, value in row.items() if isinstance(value, str)})
    return [name for name, _ in sizes.most_common(CANDIDATES)]


MOST_FILES = 256
"""Maximum number of files whose positions are remembered; the oldest is forgotten first."""

_known: dict[tuple[str, int], tuple[list[int], list[int]]] = {}
_lock = threading.Lock()


def note_lines(path: str, stamp: int, offset: int, lines: int) -> None:
    """Remember that ``lines`` line ends precede an offset, at which a line begins."""
    with _lock:
        if (path, stamp) not in _known and len(_known) >= MOST_FILES:
            del _known[next(iter(_known))]
        offsets, counts = _known.setdefault((path, stamp), ([], []))
        place = bisect.bisect_left(offsets, offset)
        if place == len(offsets) or offsets[place] != offset:
            offsets.insert(place, offset)
            counts.insert(place, lines)


def lines_before(path: str, stamp: int, offset: int, open_part: Any) -> int:
    """Return how many line ends precede an offset, reading only from the nearest known position.

    Parameters
    ----------
    path : str
        Path of the file.
    stamp : int
        Stamp of the file in the listing: a changed file is counted again.
    offset : int
        Offset in the decompressed file.
    open_part : callable
        Function from a path to a context manager of a `ByteStream`.
    """
    start, lines = 0, 0
    with _lock:
        offsets, counts = _known.get((path, stamp), ([], []))
        place = bisect.bisect_right(offsets, offset) - 1
        if place >= 0:
            start, lines = offsets[place], counts[place]
    if start < offset:
        lines += count_lines(path, open_part, start, offset)
        note_lines(path, stamp, offset, lines)
    return lines


LINE_BYTES = 48
"""Bytes held for each line while its bounds and row ID are determined."""
VALUE_BYTES = 9
"""Bytes held for each value in addition to its text: an offset or a number, and a bit."""
LINES_AT_ONCE = 4096
"""Number of lines whose positions are held as Python numbers (72 bytes a line) at once."""
MOST_COPIED_SHARE = 0.25
"""Maximum share of the lines of a block, in bytes, that are copied to be parsed if the others are left out."""
RETURN = 13
"""Carriage return: white space in JSON, and a line end only to pyarrow.json."""
LINES_FACTOR = 1
"""Maximum memory for the lines of a block in addition to their text, as a multiple of the block."""


@dataclass(frozen=True)
class ChunkReader:
    """Converter of the chunks of one input split to blocks."""

    source: Any
    """Source, a `JsonlSource`."""
    largest_row_bytes: int | None
    """Maximum bytes of a line; a longer one raises."""
    on_bad_row: Callable[[BadRow], None] | None
    """Function that receives rows that cannot be read; without it they raise."""
    on_long_row: Callable[[OversizeRowError], None] | None = None
    """Function that receives the errors of longer lines, which are then skipped; without it they raise."""
    wanted: RowChoice | None = None
    """Choice of the rows to read, by their row IDs; other lines are not parsed."""
    text_field: TextField = field(default_factory=TextField)
    """Extractor of the text that is most of the lines."""

    def blocks(self, chunk: Chunk, block_bytes: int) -> Iterator[pd.DataFrame]:
        """Make the blocks of a chunk: one, unless its lines are so short that their overhead exceeds their text."""
        segments = chunk.segments
        most_lines = max(1, LINES_FACTOR * block_bytes // self._line_bytes(segments[0].file))
        data = chunk.take()
        start, end = 0, len(data)
        while start < end:
            line_ends = newline_positions(data[start:], most_lines)
            stop = start + int(line_ends[-1]) + 1
            held = [line_ends, data[start:stop]]
            del line_ends
            if stop == end:
                del data  # only the last part determines the lifetime of the buffer
            block = self._block(held, segments_between(segments, start, stop))
            if len(block):
                yield block
            del block
            start = stop

    def _line_bytes(self, file: int) -> int:
        """Return the bytes held for each line in addition to its text; ``source_file`` alone can exceed short lines."""
        source = self.source
        path_bytes = len(source.listing.paths[file]) if {*source.source_columns} - {"source_line"} else 0
        values = self._values + len(source.source_columns)
        return LINE_BYTES + VALUE_BYTES * values + path_bytes

    @functools.cached_property
    def _values(self) -> int:
        """Number of values that every line has, whether they are null or not: those of the fields of nested columns, too."""
        return sum(map(leaf_columns, self.source.schema.types))

    def _block(self, held: list[Any], segments: list[Segment]) -> pd.DataFrame:
        """Make the block of a part of a chunk, the last element of ``held``, after the positions of its line ends."""
        data = held.pop()
        lines, no_rows = scan_lines(data, held.pop())
        _break_blanks(data, lines)
        place = _Places(self.source, segments, data)
        too_long = self._long_lines(lines, place)
        for number in no_rows:
            if number not in too_long:
                self._bad_line(data, lines, number, NO_ROW, place)
        has_row = np.ones(len(lines), np.bool_)
        has_row[[*too_long, *no_rows]] = False
        if self.wanted is not None:
            has_row[has_row] = self.wanted(place.addresses(lines)[0][has_row])
        table, lines = self._parse(data, lines, has_row, place)
        table, lines = self._without_lossy(data, table, lines, place)
        addresses, files = place.addresses(lines)
        numbers = place.line_numbers(lines) if "source_line" in self.source.source_columns else None
        del data
        place.forget()
        columns = table.columns
        del table
        table = in_one_piece(self.source.schema, columns)
        if self.source.source_columns:
            table = with_source(table, self.source.source_columns, files, numbers, self.source.listing)
        return to_block(table, addresses)

    def _parse(
        self, data: Bytes, lines: Lines, has_row: npt.NDArray[np.bool_], place: _Places
    ) -> tuple[pa.Table, Lines]:
        schema, unknown, as_text = self.source.schema, self.source.selects, self.source.as_text
        others = None
        if not has_row.all():
            others, lines = lines.keep(~has_row), lines.keep(has_row)
        table = self.text_field.parse(data, lines, schema, ignore_unknown=unknown, as_text=as_text)
        if table is not None:
            return table, lines
        if others is not None:
            found = self._parse_few(data, lines)
            if found is not None:
                return found, lines
            _blank(data, others)
        found = try_parse(data, lines, schema, ignore_unknown=unknown, as_text=as_text)
        if not isinstance(found, str):
            return found, lines
        for halves_all in (False, True):
            is_good = np.ones(len(lines), np.bool_)
            failing = failing_lines(data, lines, schema, ignore_unknown=unknown, as_text=as_text, halves_all=halves_all)
            for number, failure in failing:
                self._bad_line(data, lines, number, failure, place)
                is_good[number] = False
            _blank(data, lines.keep(~is_good))
            lines = lines.keep(is_good)
            found = try_parse(data, lines, schema, ignore_unknown=unknown, as_text=as_text)
            if not isinstance(found, str):
                return found, lines
        raise pa.ArrowInvalid(found)

    def _parse_few(self, data: Bytes, lines: Lines) -> pa.Table | None:
        """Parse a copy of the lines, so that the parser does not scan the others; None if most are parsed, or one cannot be."""
        if int((lines.stops - lines.starts).sum()) > MOST_COPIED_SHARE * len(data):
            return None
        schema, unknown, as_text = self.source.schema, self.source.selects, self.source.as_text
        longest = longest_of(lines)
        found = try_parse_rows(
            _joined(data, lines), len(lines), longest, schema, ignore_unknown=unknown, as_text=as_text
        )
        return None if isinstance(found, str) else found

    def _without_lossy(self, data: Bytes, table: pa.Table, lines: Lines, place: _Places) -> tuple[pa.Table, Lines]:
        """Drop rows with a number that its type cannot hold, after reporting them."""
        is_good: npt.NDArray[np.bool_] | None = None
        for number, reason, column in lossy_rows(table, data, lines, self.source.inferred):
            self._bad_line(data, lines, number, Failure("type", reason, column), place)
            is_good = np.ones(len(lines), np.bool_) if is_good is None else is_good
            is_good[number] = False
        return (table, lines) if is_good is None else (table.filter(pa.array(is_good)), lines.keep(is_good))

    def _bad_line(self, data: Bytes, lines: Lines, number: int, failure: Failure, place: _Places) -> None:
        path, line, offset = place.of(lines, number)
        raw = data[lines.starts[number] : lines.stops[number]].tobytes()
        is_vague = failure.reason.rstrip(".") == "The document is empty" or raw.lstrip().startswith(b"{'")
        if failure == NO_ROW or (failure.kind == "syntax" and is_vague):  # the parser's words say nothing of such lines
            failure = Failure("syntax", why_no_row(raw, path, is_first=not offset))
        row = BadRow(path, line, offset, failure.reason, raw)
        if self.on_bad_row is None:
            raise self.source.failure_error(row, failure)
        self.on_bad_row(row)

    def _long_lines(self, lines: Lines, place: _Places) -> list[int]:
        """Return the numbers of lines that are too long, after reporting them."""
        limit = min(self.largest_row_bytes or LARGEST_LINE_BYTES, LARGEST_LINE_BYTES)
        lengths = lines.stops - lines.starts
        if not len(lengths) or lengths.max() <= limit:
            return []
        too_long: list[int] = np.flatnonzero(lengths > limit).tolist()
        for number in too_long:
            path, _, offset = place.of(lines, number)
            error = oversize_error(path, self.source.open_part, offset, int(lengths[number]), limit)
            if self.on_long_row is None:
                raise error
            self.on_long_row(error)
        return too_long


class _Places:
    """Positions of the lines of a chunk in their files."""

    def __init__(self, source: Any, segments: list[Segment], data: Bytes) -> None:
        self._source, self._segments, self._data = source, segments, data
        self._positions = np.array([segment.position for segment in segments], np.int64)
        self._files = np.array([segment.file for segment in segments], np.int64)
        self._offsets = np.array([segment.offset for segment in segments], np.int64)

    def forget(self) -> None:
        """Release the chunk's bytes."""
        self._data = np.empty(0, np.uint8)

    def addresses(self, lines: Lines) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the row ID and the file number of each line."""
        segment = np.searchsorted(self._positions, lines.starts, side="right") - 1
        offsets = lines.starts - self._positions[segment] + self._offsets[segment]
        if len(offsets) and offsets.max() >= LARGEST_OFFSET:
            path = self._source.listing.paths[self._files[-1]]
            raise ParameterError(
                f"{path!r} has more than the maximum of {LARGEST_OFFSET:,} decompressed bytes. Split the file"
            )
        files = self._files[segment]
        return (files << OFFSET_BITS) + offsets, files

    def line_numbers(self, lines: Lines) -> npt.NDArray[np.int64]:
        """Return the number of each line in its file, from 1."""
        segment = np.searchsorted(self._positions, lines.starts, side="right") - 1
        before = self._newlines_before
        bases = np.array([self._lines_before(number) for number in range(len(self._positions))], np.int64)
        self._note(len(bases) - 1, len(self._data), int(bases[-1] + before[-1] - before[-2]))
        return lines.ordinals - before[segment] + bases[segment] + 1

    def of(self, lines: Lines, number: int) -> tuple[str, int, int]:
        """Return path, line number from 1 and byte offset of one line."""
        start = int(lines.starts[number])
        segment = int(np.searchsorted(self._positions, start, side="right")) - 1
        line = self._lines_before(segment) + int(lines.ordinals[number] - self._newlines_before[segment]) + 1
        offset = int(self._offsets[segment]) + start - int(self._positions[segment])
        return self._source.listing.paths[self._files[segment]], line, offset

    @functools.cached_property
    def _newlines_before(self) -> npt.NDArray[np.int64]:
        """Count the line ends before each segment, and in total."""
        bounds = [*self._positions.tolist(), len(self._data)]
        counts = [count_newlines(self._data[start:stop]) for start, stop in itertools.pairwise(bounds)]
        return np.concatenate(([0], np.cumsum(counts)))

    def _lines_before(self, segment: int) -> int:
        offset = int(self._offsets[segment])
        if not offset:
            return 0
        listing, file = self._source.listing, self._files[segment]
        return lines_before(listing.paths[file], int(listing.stamps[file]), offset, self._source.open_part)

    def _note(self, segment: int, stop: int, lines: int) -> None:
        listing, file = self._source.listing, self._files[segment]
        offset = int(self._offsets[segment]) + stop - int(self._positions[segment])
        note_lines(listing.paths[file], int(listing.stamps[file]), offset, lines)


def segments_between(segments: list[Segment], start: int, stop: int) -> list[Segment]:
    """Return the segments of a part of a chunk, with positions counted from its start."""
    ends = [segment.position for segment in segments[1:]] + [stop]
    return [
        Segment(item.file, max(0, item.position - start), item.offset + max(0, start - item.position))
        for item, end in zip(segments, ends, strict=True)
        if end > start and item.position < stop
    ] or segments[:1]


def _break_blanks(data: Bytes, lines: Lines) -> None:
    """Insert carriage returns into long white space between lines, because pyarrow.json ends no block within a run of spaces."""
    bounds = np.concatenate(([0], lines.stops)), np.concatenate((lines.starts, [len(data)]))
    for place in np.flatnonzero(bounds[1] - bounds[0] > LONG_BLANK).tolist():
        for start in range(bounds[0][place], bounds[1][place], WINDOW_BYTES):
            window = data[start : min(start + WINDOW_BYTES, bounds[1][place])]
            window[window != NEWLINE] = RETURN


def _joined(data: Bytes, lines: Lines) -> Bytes:
    """Copy lines, each with a line end."""
    raw, pieces = data.data, list[Any]()
    for low in range(0, len(lines), LINES_AT_ONCE):
        some = slice(low, low + LINES_AT_ONCE)
        pairs = zip(lines.starts[some].tolist(), lines.stops[some].tolist(), strict=True)
        pieces.append(b"".join([part for start, stop in pairs for part in (raw[start:stop], b"\n")]))
    return np.frombuffer(b"".join(pieces), np.uint8)


def _blank(data: Bytes, lines: Lines) -> None:
    """Blank out lines that must not produce a row."""
    for low in range(0, len(lines), LINES_AT_ONCE):
        some = slice(low, low + LINES_AT_ONCE)
        for start, stop in zip(lines.starts[some].tolist(), lines.stops[some].tolist(), strict=True):
            data[start:stop] = RETURN

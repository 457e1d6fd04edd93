# SPDX-License-Identifier: Apache-2.0
"""Lines of JSON that are mostly one text: it is extracted first, and `pyarrow.json` parses the rest of the lines.

The result is the same table, in a third of the time, and without a copy of the text in between. Anything not clearly valid is
left to `io.jsonl.parse` alone, which also describes the errors.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from curator_df.io.jsonl.lines import Bytes
from curator_df.io.jsonl.parse import PARSE_BYTES, try_parse_rows
from curator_df.io.jsonl.scan import Lines
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

# SPDX-License-Identifier: Apache-2.0
"""Parse lines of JSON into an Arrow table of a known schema, and find the lines that prevent it.

`pyarrow.json` reads batches of about 1 MB from the chunk, so its own copies stay small; a 32 MB chunk of prose needs
1.95 times its bytes in this way, and 2.9 times when it is parsed in one piece.
"""

from __future__ import annotations

import json
import re
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.json

from curator_df.errors import SchemaError
from curator_df.io.formats import control_character, levels_of_fields
from curator_df.io.jsonl.lines import Bytes
from curator_df.io.jsonl.scan import Lines
from curator_df.io.jsonl.schema import shorten

WINDOW_BYTES = 1 << 14
"""Bytes searched at once for the beginning of a line."""
GROWTH = 1.4
"""Maximum growth of a line: 7 bytes from ``"":1,`` in the worst case, as far as it can still be parsed."""
_SPACES = rb"[ \t\r]*"
_SCALAR = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false"
_NOTHING = memoryview(b"")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


class ScalarsAsText:
    """Lines of JSON as a file in which the scalars of some fields of each line are strings; they are copied on reading.

    Parameters
    ----------
    data : ndarray of uint8
        Lines in valid UTF-8.
    names : sequence of str
        Fields of the line itself, not of objects in it.
    """

    closed = False

    def __init__(self, data: Bytes, names: Sequence[str]) -> None:
        spelled = {re.escape(way.encode()) for name in names for way in _spellings(name)}
        name = b"|".join(sorted(spelled))
        field = re.compile(rb'"(?:%s)"%s:%s(%s)(?=%s[,}])' % (name, _SPACES, _SPACES, _SCALAR, _SPACES))
        self._parts = _quoted(data.data, field)
        self._part = _NOTHING

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer than ``size`` only at the end."""
        taken: list[memoryview] = []
        while size and (self._part or self._next_part()):
            taken.append(self._part[:size])
            self._part = self._part[size:]
            size -= len(taken[-1])
        return b"".join(taken)

    def _next_part(self) -> bool:
        self._part = next(self._parts, _NOTHING)
        return bool(self._part)


def _quoted(data: memoryview, field: re.Pattern[bytes]) -> Iterator[memoryview]:
    """Yield all bytes in parts, none of which is empty."""
    done, brackets = 0, _Brackets(data)
    for found in field.finditer(data):
        if brackets.open_at(found.start()) == 1:
            start, stop = found.span(1)
            yield data[done:start]
            yield memoryview(b'"%s"' % data[start:stop])
            done = stop
    if done < len(data):
        yield data[done:]


class _Brackets:
    """Counter of brackets from left to right."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._counted_to = self._open = 0

    def open_at(self, at: int) -> int:
        """Return the number of open brackets of the line at a position outside strings, after the previous one."""
        begins = self._line_start(at)
        if begins > self._counted_to:
            self._counted_to = begins
            self._open = 0
        between = _STRING.sub(b"", self._data[self._counted_to : at])
        self._open += between.count(b"{") + between.count(b"[") - between.count(b"}") - between.count(b"]")
        self._counted_to = at
        return self._open

    def _line_start(self, at: int) -> int:
        """Return the start of the line, or the last position at which brackets were counted if that is later."""
        while at > self._counted_to:
            window = max(self._counted_to, at - WINDOW_BYTES)
            if (end := self._data[window:at].tobytes().rfind(b"\n")) >= 0:
                return window + end + 1
            at = window
        return at


def _spellings(name: str) -> tuple[str, str]:
    """Return the spellings of a name in quotation marks, with and without escapes for non-ASCII characters."""
    return json.dumps(name)[1:-1], json.dumps(name, ensure_ascii=False)[1:-1]


PARSE_BYTES = 1 << 20
"""Bytes that pyarrow.json parses at once, or the longest line if that is longer."""
COPIED_BYTES = 1 << 17
"""Bytes parsed at once if they are copied while they are read: Arrow reads up to 32 times as many ahead."""
LONG_BLANK = COPIED_BYTES // 2
"""Maximum bytes of white space between lines: pyarrow.json ends no block within a run of spaces."""
LARGEST_LINE_BYTES = (1 << 31) - (1 << 16)
"""Maximum bytes of a line: pyarrow.json counts the bytes that it parses at once in 32 bits."""
RELEASE_SECONDS = 1.0
"""Seconds to wait for Arrow to release parsed bytes."""
NOT_AN_OBJECT = "it is not one JSON object on one line"
REASON_CHARACTERS = 200
_POSITION = re.compile(r"^JSON parse error: | in row \d+$")


@dataclass(frozen=True)
class Failure:
    """Reason why a line has no row."""

    kind: Literal["syntax", "type", "unknown"]
    """Kind of failure: the JSON is broken; a value does not fit its column; a field is not in the schema; or it nests too deep
    to be read."""
    reason: str
    """Reason in words."""
    column: str = ""
    """Name of the column or field concerned."""


NO_ROW = Failure("syntax", NOT_AN_OBJECT)
"""Failure of a line that is not one JSON object; `formats.why_no_row` finds a more specific reason."""


def longest_of(lines: Lines) -> int:
    """Return the length of the longest line in bytes."""
    return int((lines.stops - lines.starts).max()) if len(lines) else 0


def require_possible(given: Mapping[str, pa.DataType]) -> None:
    """Raise `SchemaError` for a type that no value of JSON can be converted to."""
    for name, kind in given.items():
        options = pyarrow.json.ParseOptions(explicit_schema=pa.schema([pa.field("a", kind)]))
        try:
            pyarrow.json.read_json(pa.BufferReader(b"{}\n"), parse_options=options)
        except pa.ArrowNotImplementedError:
            raise SchemaError(
                f"read_jsonl: dtype={{{name!r}: '{kind}'}} is not possible, because values of JSON cannot be read as that type. "
                "Use a type such as 'string', 'int64', 'float32' or pyarrow.list_(pyarrow.int64()), and convert the column later"
            ) from None


def _parse_rows(
    data: Bytes, rows: int, longest: int, schema: pa.Schema, *, ignore_unknown: bool, as_text: Sequence[str]
) -> pa.Table:
    if not rows:
        return schema.empty_table()
    # The view lives until pyarrow lets go of the bytes, which `del` at the end does not tell.
    view, freed = data[:], threading.Event()
    watch = weakref.ref(view, lambda _: freed.set())
    file, parse_bytes = pa.BufferReader(pa.py_buffer(view)), PARSE_BYTES
    if as_text:
        file, parse_bytes = pa.PythonFile(ScalarsAsText(view, as_text), mode="r"), COPIED_BYTES
        longest = int(longest * GROWTH)
    # pyarrow refuses a row that is longer than its block. With threads, it would parse several blocks ahead.
    reader = pyarrow.json.open_json(
        file,
        read_options=pyarrow.json.ReadOptions(
            use_threads=False, block_size=min(max(parse_bytes, longest + LONG_BLANK + 2), LARGEST_LINE_BYTES + 2)
        ),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore" if ignore_unknown else "error"
        ),
    )
    batches, found = [], 0
    for batch in reader:
        batches.append(batch)
        found += len(batch)
        if found > rows:
            break
    del reader, file, view
    # Arrow's reading thread may release the bytes only after the last batch: two chunks could be held until then.
    if watch() is not None:
        freed.wait(RELEASE_SECONDS)
    if found != rows:
        raise pa.ArrowInvalid(NOT_AN_OBJECT)
    return pa.Table.from_batches(batches, schema)


def try_parse(
    data: Bytes, lines: Lines, schema: pa.Schema, *, ignore_unknown: bool, as_text: Sequence[str] = ()
) -> pa.Table | str:
    """Parse lines into a table of exactly this schema, one row a line, or return in words why they cannot be parsed.

    Parameters
    ----------
    data : ndarray of uint8
        The chunk. Bytes that are not in ``lines`` must be blank.
    lines : Lines
        Lines that begin with ``{`` and end with ``}``, in valid UTF-8: others can crash pyarrow.
    schema : pyarrow.Schema
        Columns and types of the result.
    ignore_unknown : bool
        Whether to ignore fields that are not in the schema, instead of failing.
    as_text : sequence of str
        Text columns in which numbers and booleans are read literally.

    Notes
    -----
    Rows: all. Peak extra memory: 1.0 x chunk (the table). Computes: no.
    """
    return try_parse_rows(data, len(lines), longest_of(lines), schema, ignore_unknown=ignore_unknown, as_text=as_text)


def try_parse_rows(
    data: Bytes, rows: int, longest: int, schema: pa.Schema, *, ignore_unknown: bool, as_text: Sequence[str] = ()
) -> pa.Table | str:
    """Parse ``rows`` lines, the longest of ``longest`` bytes, or return in words why they cannot be parsed."""
    found: pa.Table | str = ""
    as_text = [name for name in as_text if name in schema.names]
    # Most lines have text in text columns: numbers are searched for only in lines that cannot be parsed unchanged.
    for names in ((), as_text) if as_text else ((),):
        # The exception ends here: while it is handled, its frames hold the batches parsed before it.
        try:
            return _parse_rows(data, rows, longest, schema, ignore_unknown=ignore_unknown, as_text=names)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
            found = _POSITION.sub("", str(exc))[:REASON_CHARACTERS].rstrip(".")
    return found


def failing_lines(
    data: Bytes,
    lines: Lines,
    schema: pa.Schema,
    *,
    ignore_unknown: bool,
    as_text: Sequence[str] = (),
    halves_all: bool = False,
) -> Iterator[tuple[int, Failure]]:
    """Yield the lines that cannot be parsed, in order, with the reason.

    The chunk is halved down to single lines, or to parts in which only unknown fields are wrong: these are read line by
    line, without a parser of all columns for each. With ``halves_all`` the parser itself finds each line, even if it fails for a
    reason that Python's parser does not see.
    """
    sees_fields = not (ignore_unknown or halves_all) and not any(_hides_fields(column.type) for column in schema)
    pending = [(0, len(lines))]
    while pending:
        low, high = pending.pop()
        part = Lines(lines.starts[low:high] - lines.starts[low], lines.stops[low:high] - lines.starts[low],
                     lines.ordinals[low:high])  # fmt: skip
        text = data[lines.starts[low] : lines.stops[high - 1]]
        if not isinstance(try_parse(text, part, schema, ignore_unknown=ignore_unknown, as_text=as_text), str):
            continue
        if high - low == 1:
            yield low, _explain(text, schema, ignore_unknown=ignore_unknown, as_text=as_text)
        elif sees_fields and not isinstance(try_parse(text, part, schema, ignore_unknown=True, as_text=as_text), str):
            for number, failure in _lines_with_unknown(text, part, schema, as_text):
                yield low + number, failure
        else:
            middle = (low + high) // 2
            pending += [(middle, high), (low, middle)]


def _explain(text: Bytes, schema: pa.Schema, *, ignore_unknown: bool, as_text: Sequence[str]) -> Failure:
    """Find out why a single line cannot be parsed: with no column, then with half of the columns, and so on down to one."""
    line = Lines(np.zeros(1, np.int64), np.array([len(text)], np.int64), np.zeros(1, np.int64))
    failure = try_parse(text, line, pa.schema([]), ignore_unknown=True)
    if isinstance(failure, str):
        return Failure("syntax", control_character(text.tobytes()) or failure)
    columns, failure = list(schema), try_parse(text, line, schema, ignore_unknown=True, as_text=as_text)
    while isinstance(failure, str) and columns:
        if len(columns) == 1:
            name, twice = columns[0].name, "specified twice" in failure
            return Failure("syntax" if twice else "type", f"column {shorten(name)!r}: {failure}", name)
        first, columns = columns[: len(columns) // 2], columns[len(columns) // 2 :]
        found = try_parse(text, line, pa.schema(first), ignore_unknown=True, as_text=as_text)
        columns = first if isinstance(found, str) else columns
        failure = (
            found
            if isinstance(found, str)
            else try_parse(text, line, pa.schema(columns), ignore_unknown=True, as_text=as_text)
        )
    if ignore_unknown:
        return Failure("syntax", "it cannot be parsed")
    unknown: list[str] = []
    # pyarrow reads any depth of brackets, and spellings of NaN that Python does not.
    with suppress(ValueError, RecursionError):
        unknown = _unknown_field(json.loads(text.tobytes(), parse_int=float), _types(schema))
    if not unknown:
        return _unknown_among(text.tobytes(), schema)
    return _unknown_named(unknown)


def _unknown_among(raw: bytes, schema: pa.Schema) -> Failure:
    """Return the first field of a line that the schema does not have, without recursion into lists and objects."""
    unknown = next((name for name in levels_of_fields(raw) if name not in schema.names), None)
    words = "a field inside a column" if unknown is None else f"the field {shorten(unknown)!r}"
    return Failure("unknown", f"{words} is not among the columns", unknown or "")


def _lines_with_unknown(
    data: Bytes, lines: Lines, schema: pa.Schema, as_text: Sequence[str]
) -> Iterator[tuple[int, Failure]]:
    """Yield the lines that have a field that is not a column, in which nothing else is wrong."""
    names = _types(schema)
    for number in range(len(lines)):
        text = data[lines.starts[number] : lines.stops[number]]
        try:
            unknown = _unknown_field(json.loads(text.tobytes(), parse_int=float), names)
        except (
            ValueError,
            RecursionError,
        ):  # pyarrow reads any depth of brackets, and spellings of NaN that Python does not
            line = Lines(np.zeros(1, np.int64), np.array([len(text)], np.int64), np.zeros(1, np.int64))
            if isinstance(try_parse(text, line, schema, ignore_unknown=False, as_text=as_text), str):
                yield number, _explain(text, schema, ignore_unknown=False, as_text=as_text)
            continue
        if unknown:
            yield number, _unknown_named(unknown)


def _unknown_named(unknown: list[str]) -> Failure:
    return Failure("unknown", f"the field {shorten('.'.join(unknown))!r} is not among the columns", unknown[0])


def _types(columns: Any) -> dict[str, pa.DataType]:
    """Return the types of columns, or of the fields of an object, by name."""
    return {column.name: column.type for column in columns}


def _hides_fields(kind: pa.DataType) -> bool:
    """Return whether values of a type may have fields that `_unknown_field` does not reach: objects in lists of lists."""
    if pa.types.is_struct(kind):
        return any(_hides_fields(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = kind.value_type
        return _hides_fields(inner) if pa.types.is_struct(inner) else pa.types.is_nested(inner)
    return bool(pa.types.is_nested(kind))


def _unknown_field(value: Any, names: Mapping[str, pa.DataType]) -> list[str]:
    """Return the names that lead to the first field that is not among the names."""
    for name, item in value.items():
        if name not in names:
            return [str(name)]
        for inner in item if isinstance(item, list) else [item]:
            kind = names[name].value_type if isinstance(item, list) else names[name]
            if isinstance(inner, dict) and pa.types.is_struct(kind):
                below = _unknown_field(inner, _types(kind))
                if below:
                    return [str(name), *below]
    return []

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
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.json

from curator_df.io.lines import Bytes
from curator_df.io.scalars_as_text import GROWTH, ScalarsAsText
from curator_df.io.scan import Lines
from curator_df.io.schema import MOST_LEVELS, shorten

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
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}:]')
_POSITION = re.compile(r"^JSON parse error: | in row \d+$")


@dataclass(frozen=True)
class Failure:
    """Reason why a line has no row."""

    kind: Literal["syntax", "type", "unknown", "deep"]
    """Kind of failure: the JSON is broken; a value does not fit its column; a field is not in the schema; or it nests too deep
    to be read."""
    reason: str
    """Reason in words."""
    column: str = ""
    """Name of the column or field concerned."""


NO_ROW = Failure("syntax", NOT_AN_OBJECT)
"""Failure of a line that is not one JSON object; `formats.why_no_row` finds a more specific reason."""


def parse_lines(
    data: Bytes, lines: Lines, schema: pa.Schema, *, ignore_unknown: bool, as_text: Sequence[str] = ()
) -> pa.Table:
    """Parse lines into a table of exactly this schema, one row a line.

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

    Raises
    ------
    pyarrow.ArrowInvalid
        If a line is broken, does not fit the schema, or has more than one object.

    Notes
    -----
    Rows: all. Peak extra memory: 1.0 x chunk (the table). Computes: no.
    """
    found = try_parse(data, lines, schema, ignore_unknown=ignore_unknown, as_text=as_text)
    if isinstance(found, str):
        raise pa.ArrowInvalid(found)
    return found


def longest_of(lines: Lines) -> int:
    """Return the length of the longest line in bytes."""
    return int((lines.stops - lines.starts).max()) if len(lines) else 0


def _parse_rows(
    data: Bytes, rows: int, longest: int, schema: pa.Schema, *, ignore_unknown: bool, as_text: Sequence[str]
) -> pa.Table:
    if not rows:
        return schema.empty_table()
    view, freed = data[:], threading.Event()
    watch = weakref.ref(view, lambda _: freed.set())
    file, parse_bytes = pa.BufferReader(pa.py_buffer(view)), PARSE_BYTES
    if as_text:
        file, parse_bytes = pa.PythonFile(ScalarsAsText(view, as_text), mode="r"), COPIED_BYTES
        longest = int(longest * GROWTH)
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
    """Parse lines like `parse_lines`, or return in words why they cannot be parsed."""
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
    data: Bytes, lines: Lines, schema: pa.Schema, *, ignore_unknown: bool, as_text: Sequence[str] = ()
) -> Iterator[tuple[int, Failure]]:
    """Yield the lines that cannot be parsed, in order, with the reason: the chunk is halved down to single lines."""
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
        else:
            middle = (low + high) // 2
            pending += [(middle, high), (low, middle)]


def _explain(text: Bytes, schema: pa.Schema, *, ignore_unknown: bool, as_text: Sequence[str]) -> Failure:
    """Find out why a single line cannot be parsed: with no column, then with each column alone."""
    line = Lines(np.zeros(1, np.int64), np.array([len(text)], np.int64), np.zeros(1, np.int64))
    failure = try_parse(text, line, pa.schema([]), ignore_unknown=True)
    if isinstance(failure, str):
        return Failure("syntax", failure)
    for column in schema:
        failure = try_parse(text, line, pa.schema([column]), ignore_unknown=True, as_text=as_text)
        if isinstance(failure, str):
            twice = "specified twice" in failure
            return Failure("syntax" if twice else "type", f"column {shorten(column.name)!r}: {failure}", column.name)
    if ignore_unknown:
        return Failure("syntax", "it cannot be parsed")
    unknown: list[str] = []
    # pyarrow reads any depth of brackets, and spellings of NaN that Python does not.
    with suppress(ValueError, RecursionError):
        unknown = _unknown_field(json.loads(text.tobytes(), parse_int=float), schema)
    if not unknown:
        return _unknown_among(text.tobytes(), schema)
    return Failure("unknown", f"the field {shorten('.'.join(unknown))!r} is not among the columns", unknown[0])


def _unknown_among(raw: bytes, schema: pa.Schema) -> Failure:
    """Return the first field of a line that the schema does not have, without recursion into lists and objects."""
    depth = deepest = 0
    last: bytes = b""
    unknown: str | None = None
    for token in _TOKEN.findall(raw):
        if token in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif token in b"}]":
            depth -= 1
        elif token == b":" and depth == 1 and unknown is None:
            name = json.loads(last)
            unknown = None if name in schema.names else name
        last = token
    words = "a field inside a column" if unknown is None else f"the field {shorten(unknown)!r}"
    if deepest > MOST_LEVELS:
        return Failure(
            "deep", f"{words} is not among the columns, and the row nests {deepest:,} levels deep", unknown or ""
        )
    return Failure("unknown", f"{words} is not among the columns", unknown or "")


def _unknown_field(value: Any, schema: Any) -> list[str]:
    """Return the names that lead to the first field that the schema does not have."""
    names = {column.name: column.type for column in schema}
    for name, item in value.items():
        if name not in names:
            return [str(name)]
        for inner in item if isinstance(item, list) else [item]:
            kind = names[name].value_type if isinstance(item, list) else names[name]
            if isinstance(inner, dict) and pa.types.is_struct(kind):
                below = _unknown_field(inner, list(kind))
                if below:
                    return [str(name), *below]
    return []

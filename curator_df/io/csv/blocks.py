# SPDX-License-Identifier: Apache-2.0
"""Convert records of CSV to blocks: names from the header, types, quarantine of bad records, row IDs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.arguments import listed
from curator_df.core.columns import did_you_mean_column
from curator_df.core.ranges.source import OFFSET_BITS, BadRow, RowChoice
from curator_df.errors import BadRowError, ColumnError, OversizeRowError, ParameterError, SchemaError
from curator_df.io.bad_rows import bad_places, is_valid_text
from curator_df.io.csv.columns import Fault, converted, mask_of, parse
from curator_df.io.csv.records import OPEN, TEXT_AFTER_QUOTE, UTF8_BOM, Dialect, RecordReader, Records, TooLong
from curator_df.io.formats import HEAD_BYTES, begins_as_json, latin_1, other_format, wide_encoding
from curator_df.io.frames import LARGEST_OFFSET, in_one_piece, to_block, with_source
from curator_df.io.jsonl.lines import Bytes, count_newlines, newline_positions
from curator_df.io.jsonl.parse import LARGEST_LINE_BYTES
from curator_df.io.jsonl.schema import shorten
from curator_df.memory.sizes import show_count

RECORD_BYTES = 64
"""Bytes held for each record while its bounds, faults and row ID are determined."""
VALUE_BYTES = 18
"""Bytes held for each value in addition to its text: offsets as text, and a number with its bit."""
SHOWN_BYTES = 80
REASONS = {
    OPEN: "the quotation mark of a field never closes",
    TEXT_AFTER_QUOTE: "text follows the closing quotation mark of a field",
}
REPEATED = "it repeats the names of all fields in their order, like a header, as after joining files"
Integers = npt.NDArray[np.int64]


class CsvBlocks:
    """Reader that makes blocks of the files of one input split; small files share a block.

    Parameters
    ----------
    source : CsvSource
        Source of the files.
    block_bytes : int
        Approximate bytes of a block.
    largest_row_bytes : int, optional
        Maximum bytes of a record.
    on_bad_row : callable, optional
        Function that receives rows that cannot be read; without it they raise.
    on_long_row : callable, optional
        Function that receives the errors of longer records, which are then skipped; without it they raise.
    wanted : RowChoice, optional
        Choice of the rows to read, by their row IDs; other records are skipped.
    """

    def __init__(
        self,
        source: Any,
        *,
        block_bytes: int,
        largest_row_bytes: int | None,
        on_bad_row: Callable[[BadRow], None] | None,
        on_long_row: Callable[[OversizeRowError], None] | None,
        wanted: RowChoice | None,
    ) -> None:
        self._source, self._block_bytes, self._largest = source, block_bytes, largest_row_bytes
        self._on_bad_row, self._on_long_row, self._wanted = on_bad_row, on_long_row, wanted
        values = len(source.schema) + len(source.source_columns)
        self._most_records = max(block_bytes // (RECORD_BYTES + VALUE_BYTES * values), 1)
        self._held: list[tuple[pa.Table, Integers, Integers | None]] = []
        self._held_bytes = self._held_rows = 0

    def of_file(self, file: int, trailing: list[BadRow]) -> Iterator[pd.DataFrame]:
        """Yield the blocks that a file fills; its last rows wait for those of the next file, or for `rest`."""
        source, names, first = self._source, None, 0

        def open_file() -> Any:
            trailing.clear()  # a file that is read again reports it again
            return source.open_file(file, trailing if source.quarantines else None)

        pieces = RecordReader(
            source.files[file],
            open_file,
            source.dialect,
            block_bytes=self._block_bytes,
            most_records=self._most_records,
            largest_row_bytes=self._largest,
        ).pieces()
        try:
            for piece in pieces:
                if isinstance(piece, TooLong):
                    self._refuse(file, piece, is_header=names is None and source.names is None)
                    continue
                if names is None:
                    names, first = fields_of(source, file, piece)
                    if first > len(piece.fields):  # only blank lines so far
                        names = None
                        continue
                    self._require_known(file, names)
                if self._held and self._held_bytes + len(piece.data) > self._block_bytes:
                    yield self._block()
                self._add(file, names, piece, first)
                first = 0
                del piece
                if self._held_bytes > self._block_bytes // 2 or self._held_rows >= self._most_records:
                    yield self._block()
        except (BadRowError, SchemaError) as exc:
            pieces.throw(exc)  # into the code that holds the file open: if the file changed, that is the error
            raise

    def rest(self) -> Iterator[pd.DataFrame]:
        """Yield a block of the rows that wait."""
        if self._held:
            yield self._block()

    def _block(self) -> pd.DataFrame:
        source, held = self._source, self._held
        self._held, self._held_bytes, self._held_rows = [], 0, 0
        addresses = np.concatenate([one for _, one, _ in held])
        lines = np.concatenate([one for _, _, one in held if one is not None]) if held[0][2] is not None else None
        tables = [table for table, _, _ in held]
        held.clear()
        columns = [
            pa.chunked_array([chunk for table in tables for chunk in table.column(place).chunks], field.type)
            for place, field in enumerate(source.schema)
        ]
        tables.clear()
        table = in_one_piece(source.schema, columns)
        if source.source_columns:
            files = addresses >> OFFSET_BITS
            table = with_source(table, source.source_columns, files, lines, source.listing)
        return to_block(table, addresses)

    def _add(self, file: int, names: tuple[str, ...], piece: Records, first: int) -> None:
        """Convert the records of a piece, from the number ``first`` on but for repeated headers, and hold their rows."""
        source, places = self._source, _Places(self._source.files[file], piece)
        offsets = piece.offset + piece.starts[:-1]
        if len(offsets) and offsets[-1] >= LARGEST_OFFSET:
            raise ParameterError(
                f"{source.files[file]!r} has more than the maximum of {LARGEST_OFFSET:,} decompressed bytes. Split the file"
            )
        addresses = (file << OFFSET_BITS) + offsets
        asked = np.arange(len(piece.fields)) >= first
        if self._wanted is not None:
            asked[asked] = self._wanted(addresses[asked])
        limit = min(self._largest or LARGEST_LINE_BYTES, LARGEST_LINE_BYTES)
        for number in np.flatnonzero(asked & (np.diff(piece.starts) > limit)).tolist():
            asked[number] = False
            self._refuse(file, places.too_long(number), is_header=False)
        faults = _faults(piece, len(names), asked)
        keep = asked & is_whole(piece, len(names))
        keep[list(faults)] = False
        rows = np.flatnonzero(keep)
        columns: list[pa.ChunkedArray] = []
        if len(rows):
            wanted = [name for name in source.schema.names if name in names] or list(names[:1])
            text = parse(*_bytes_of(piece, keep), names, wanted, source.dialect)
            if len(text) != len(rows):
                raise RuntimeError(
                    f"{places.path!r}: curator_df found {show_count(len(rows), 'record')} in a part of the file, but "
                    f"pyarrow found {len(text):,}. This is a defect in curator_df; please report it with the file"
                )
            repeats = rows[repeats_of(names, text, source.dialect)]
            if len(repeats) and text.num_columns < len(names):
                repeats = _whole_repeats(piece, repeats, names, source.dialect)
            faults |= {row: Fault(row, REPEATED, "") for row in repeats.tolist()}
            columns = [self._column(text, field, rows, faults) for field in source.schema]
            del text
        for row in sorted(faults):
            self._bad_row(places, row, faults[row])
        is_good = np.ones(len(rows), np.bool_)
        is_good[np.searchsorted(rows, [row for row in faults if keep[row]])] = False
        if not is_good.any():
            return
        table = pa.Table.from_arrays(columns, schema=source.schema) if columns else pa.table({})
        if not is_good.all():
            table, rows = table.filter(pa.array(is_good)), rows[is_good]
        numbers = places.lines()[rows] if "source_line" in source.source_columns else None
        self._held.append((table, addresses[rows], numbers))
        self._held_bytes += max(table.nbytes, 8 * len(rows))
        self._held_rows += len(rows)

    def _column(self, text: pa.Table, field: pa.Field, rows: Integers, faults: dict[int, Fault]) -> pa.ChunkedArray:
        if text.schema.get_field_index(field.name) < 0:
            return pa.chunked_array([pa.nulls(len(text), field.type)])
        column, wrong = converted(text[field.name], field.name, field.type, is_given=field.name in self._source.given)
        for fault in wrong:
            faults.setdefault(int(rows[fault.row]), fault)
        return column

    def _require_known(self, file: int, names: tuple[str, ...]) -> None:
        """Raise `SchemaError` if a header has a field that is not a column, unless columns were chosen."""
        source = self._source
        known = set(source.schema.names)
        unknown = [] if source.selects else [name for name in names if name not in known]
        if unknown:
            hint = did_you_mean_column(unknown, source.schema.names)
            raise SchemaError(
                f"{source.files[file]!r}: the header has {listed(map(shorten, unknown))}, which the first files do not have"
                f"{hint or '.'} To read {shorten(unknown[0])!r}, add dtype={{{shorten(unknown[0])!r}: ...}}. To ignore "
                "such fields, name the columns to read with columns="
            )

    def _bad_row(self, places: _Places, number: int, fault: Fault) -> None:
        row = places.bad_row(number, fault.reason)
        if self._on_bad_row is not None:
            self._on_bad_row(row)
            return
        where = f"{row.path!r}, line {row.line:,} (byte {row.offset:,})"
        shown = f"It begins {row.raw[:SHOWN_BYTES]!r}."
        if fault.column and fault.column not in self._source.given:
            raise SchemaError(
                f"{where}: {fault.reason}. The type was inferred from the first rows of the files. {shown} Set it with "
                f"dtype={{{shorten(fault.column)!r}: ...}}, leave the column out with columns=, or quarantine such rows with "
                "on_bad_rows='quarantine'"
            )
        raise BadRowError(f"{where}: {fault.reason}. {shown} Quarantine such rows with on_bad_rows='quarantine'")

    def _refuse(self, file: int, long: TooLong, *, is_header: bool) -> None:
        path, limit = self._source.files[file], min(self._largest or LARGEST_LINE_BYTES, LARGEST_LINE_BYTES)
        error = OversizeRowError(
            f"{path!r}, line {long.lines + 1:,} (byte {long.offset:,}): the row has {long.size:,} bytes, but only {limit:,} fit "
            "into the memory budget. Use a larger memory=, or remove the row from the file. If the row is longer than it should "
            "be, check quote="
        )
        error.path, error.line, error.offset, error.row_bytes = path, long.lines + 1, long.offset, long.size
        if self._on_long_row is None or is_header:
            raise error
        self._on_long_row(error)


class _Places:
    """Lines and offsets of the records of a piece."""

    def __init__(self, path: str, piece: Records) -> None:
        self.path, self._piece = path, piece

    def lines(self) -> Integers:
        """Return the line at which each record begins, from 1."""
        found = newline_positions(self._piece.data, len(self._piece.data))
        return self._piece.lines + 1 + np.searchsorted(found, self._piece.starts[:-1]).astype(np.int64)

    def bad_row(self, number: int, reason: str) -> BadRow:
        """Return a record as a bad row."""
        offset, lines, _ = self.too_long(number)
        return BadRow(self.path, lines + 1, offset, reason, record_bytes(self._piece, number))

    def too_long(self, number: int) -> TooLong:
        """Return a record as one that is too long."""
        piece, start = self._piece, int(self._piece.starts[number])
        lines = piece.lines + count_newlines(piece.data[:start])
        return TooLong(piece.offset + start, lines, int(piece.starts[number + 1]) - start)


def record_bytes(piece: Records, number: int) -> bytes:
    """Return the bytes of a record without its line end."""
    raw = piece.data[piece.starts[number] : piece.starts[number + 1]].tobytes()
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def fields_of(source: Any, file: int, piece: Records) -> tuple[tuple[str, ...], int]:
    """Return the names of the fields of a file from its first piece, and the number of its first row.

    The number is larger than that of the records if the piece has only blank lines.

    Raises
    ------
    BadRowError
        If the file is not CSV, or its header is damaged.
    ColumnError
        If the header has a name twice.
    """
    path = source.files[file]
    _require_text(path, piece.data[:HEAD_BYTES].tobytes())
    if source.names is not None:
        return source.names, 0
    rows = np.flatnonzero(~_blanks(piece))
    if not len(rows):
        return (), len(piece.fields) + 1
    header, places = int(rows[0]), _Places(path, piece)
    row = places.bad_row(header, "")
    where = f"{path!r}, line {row.line:,} (byte {row.offset:,})"
    raw = _header_text(path, where, row.raw, REASONS.get(int(piece.faults[header]), ""))
    names = tuple(_values(raw.encode(), int(piece.fields[header]), source.dialect))
    twice, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise ColumnError(
            f"{where}: the header has the name {shorten(twice)!r} twice. If the file has no header, name its fields with names="
        )
    return names, header + 1


def _header_text(path: str, where: str, raw: bytes, fault: str) -> str:
    """Return a header as text, or raise `BadRowError`."""
    if begins_as_json(raw):
        raise BadRowError(f"{path!r}, byte 0: the file is JSON (by its first bytes); read JSON Lines with read_jsonl")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text, fault = "", f"it is not UTF-8. {latin_1('csv')}"
    if "\0" in text:
        fault = "it has NUL bytes, which a crash while it was written leaves behind"
    if fault:
        raise BadRowError(
            f"{where}: this is the header, and {fault}. It begins {raw[:SHOWN_BYTES]!r}. Repair the header"
        )
    return text


def repeats_of(names: Sequence[str], text: pa.Table, dialect: Dialect) -> Integers:
    """Return the rows whose values are the names of their fields, as headers in files that were joined.

    Parameters
    ----------
    names : sequence of str
        Names of all fields. A single one can be a value.
    text : pyarrow.Table
        Text of some or all fields, by name.
    dialect : Dialect
        Form of the file.
    """
    alike = np.full(len(text), len(names) > 1)
    for name, values in zip(text.column_names, text.columns, strict=True):
        if not alike.any():
            break
        quote = dialect.quote or ""
        spelled = (name, f"\ufeff{name}", f"\ufeff{quote}{name}{quote}") if name == names[0] else (name,)
        # An empty field is null unless it is quoted.
        found = (pc.fill_null(pc.equal(values, each), fill_value=not each) for each in spelled)
        alike &= np.any([mask_of(each) for each in found], axis=0)
    return np.flatnonzero(alike)


def _whole_repeats(piece: Records, numbers: Integers, names: Sequence[str], dialect: Dialect) -> Integers:
    """Return which of some records have the names of all fields as their values."""
    longest = len("\ufeff\r\n".encode()) + sum(2 * len(name.encode()) + len('"",') for name in names)
    is_near = np.zeros(len(piece.fields), np.bool_)
    is_near[numbers] = np.diff(piece.starts)[numbers] <= longest
    if not is_near.any():
        return numbers[:0]
    text = parse(*_bytes_of(piece, is_near), names, names, dialect)
    return np.flatnonzero(is_near)[repeats_of(names, text, dialect)]


def _values(record: bytes, fields: int, dialect: Dialect) -> list[str]:
    """Return the fields of a record as text; a byte order mark before it is left out."""
    data = np.frombuffer(record.removeprefix(UTF8_BOM) + b"\n", np.uint8)
    places = [str(place) for place in range(fields)]
    return [column[0].as_py() or "" for column in parse(data, len(data), places, places, dialect).columns]


def is_whole(piece: Records, count: int) -> npt.NDArray[np.bool_]:
    """Return which records have as many fields as the header and no fault."""
    whole: npt.NDArray[np.bool_] = (piece.fields == count) & (piece.faults == 0) & ~_blanks(piece)
    return whole


def _blanks(piece: Records) -> npt.NDArray[np.bool_]:
    """Return which records have only a line end."""
    lengths = np.diff(piece.starts)
    first = piece.data[piece.starts[:-1]]
    blank: npt.NDArray[np.bool_] = (lengths <= 2) & ((first == ord("\n")) | (first == ord("\r")))
    return blank


def _faults(piece: Records, count: int, asked: npt.NDArray[np.bool_]) -> dict[int, Fault]:
    """Return the records that cannot be rows, whatever their values are."""
    faults: dict[int, Fault] = {}
    wrong = asked & ~_blanks(piece) & ((piece.fields != count) | (piece.faults != 0))
    for number in np.flatnonzero(wrong).tolist():
        found = show_count(int(piece.fields[number]), "field")
        reason = REASONS.get(int(piece.faults[number]), f"it has {found}, but the header has {count:,}")
        faults[number] = Fault(number, reason, "")
    buffers = [None, pa.py_buffer(piece.starts), pa.py_buffer(piece.data)]
    texts = pa.Array.from_buffers(pa.large_string(), len(piece.fields), buffers)
    if not is_valid_text(texts):
        for number, reason in bad_places(pa.chunked_array([texts])):
            if asked[number]:
                faults.setdefault(number, Fault(number, f"it has {reason}. {latin_1('csv')}", ""))
    return faults


def _bytes_of(piece: Records, keep: npt.NDArray[np.bool_]) -> tuple[Bytes, int]:
    """Return the bytes of some records, and the length of the longest."""
    longest = int(np.diff(piece.starts)[keep].max())
    edges = np.flatnonzero(np.diff(np.concatenate(([False], keep, [False])))).reshape(-1, 2)
    runs = [piece.data[piece.starts[start] : piece.starts[stop]] for start, stop in edges.tolist()]
    return runs[0] if len(runs) == 1 else np.concatenate(runs), longest


def _require_text(path: str, head: bytes) -> None:
    """Raise `BadRowError` for a file that does not begin like text in UTF-8."""
    found = other_format(head.removeprefix(UTF8_BOM), path, kind="csv")
    if found is None and (encoding := wide_encoding(head)) is not None:
        found = f"{encoding} by its first bytes; convert it to UTF-8 (iconv -f {encoding.lower()} -t utf-8)"
    if found is not None:
        raise BadRowError(f"{path!r}, byte 0: the file is {found}")

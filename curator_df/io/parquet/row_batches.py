# SPDX-License-Identifier: Apache-2.0
"""Read the rows of a Parquet file in small batches, independent of its row groups and dictionaries, and check its pages.

Two things make rows decode to far more than their row group has bytes: a text that the dictionary holds once and the
rows a million times, and rows that are a thousand times longer than the mean. Columns of the first kind are read as
dictionaries and decoded in steps of a few rows; of others few rows are read at once, and joined if they are short.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curator_df.errors import CorruptFileError, OversizePageError
from curator_df.io.listing import Listing
from curator_df.io.parquet.footers import (
    Chunk,
    column_chunks,
    damage_of_column,
    open_parquet,
    without_arrow_schema,
)
from curator_df.io.streams.file_stream import open_file
from curator_df.memory.sizes import show_count

SMALL_BYTES = 2_000_000
"""Page size up to which pages are part of the memory of any task."""
PAGES_FACTOR = 2
"""Memory multiplier while a page of text is decoded: the page, memory reserved for as many bytes of values, and at its end the
next page. Measured (pyarrow 26): 200 MB for the one page of 100 MB of a row group, 78 MB for pages of 26 MB."""
SAMPLED_FILES = 16
"""Number of files whose first row group is examined when a table is read: the largest ones."""
OTHER_FILES = 1.25
"""Factor by which the plan exceeds the pages found in these files, because other files may have somewhat larger pages."""
ROOM_FACTOR = 3
"""Number of bytes reserved for each byte by which rows may be longer than a block; fewer than the copies of a row in a task."""
HEADER_BYTES = 65_536
"""Maximum size of a page's header, with its statistics."""
_INT32, _STRUCT = 5, 12


@dataclass(frozen=True)
class LargePage:
    """Largest page found in a column of a row group."""

    column: str
    """Name of the column in the table."""
    page_bytes: int
    """Decompressed size."""
    needed_bytes: int
    """Bytes held while the page is read."""


def sampled_pages(listing: Listing, names: Sequence[str]) -> dict[str, int]:
    """Return the memory held while pages of each of these columns are read, for large pages, as found in some files.

    Returns
    -------
    dict of str to int
        Bytes by column of the table.
    """
    found: dict[str, int] = {}
    for number in np.argsort(-listing.sizes, kind="stable")[:SAMPLED_FILES].tolist():
        with open_parquet(listing, number) as file:
            if not file.metadata.num_row_groups:
                continue
            with damage_of_column(listing.paths[number], file, 0, names):
                chunks = column_chunks(file, 0, names)
        for page in large_pages(listing, number, chunks):
            needed = int(OTHER_FILES * page.needed_bytes)
            found[page.column] = max(found.get(page.column, 0), needed)
    return found


def require_room(
    listing: Listing, number: int, first: int, chunks: Sequence[Chunk], room_bytes: int, *, look: bool = False
) -> None:
    """Raise `OversizePageError` if pages of a row group need more than the available memory.

    Parameters
    ----------
    listing : Listing
        All files.
    number : int
        Number of the file.
    first : int
        Number of the first row of the row group.
    chunks : sequence of Chunk
        Column chunks of the row group that are read.
    room_bytes : int
        Bytes that their pages may need together.
    look : bool
        Whether to examine all pages of the row group, if the file is local, and not only the first of each column.
    """
    pages = large_pages(listing, number, chunks, look=look)
    needed = sum(page.needed_bytes for page in pages)
    if needed <= room_bytes:
        return
    largest = max(pages, key=lambda page: page.needed_bytes)
    raise OversizePageError.of(
        listing.paths[number],
        first,
        largest.column,
        largest.page_bytes,
        needed_bytes=needed,
        row_bytes=-(-needed // ROOM_FACTOR),
    )


def large_pages(listing: Listing, number: int, chunks: Sequence[Chunk], *, look: bool = False) -> list[LargePage]:
    """Return the largest page of each column chunk whose pages are large."""
    path = listing.paths[number]
    looked_at = [chunk for chunk in chunks if look or chunk.metadata.total_uncompressed_size > SMALL_BYTES]
    if not looked_at:
        return []
    with open_file(path, listing.storage_options, listed=listing.listed(path)) as file:
        found = []
        for name, _, chunk in looked_at:
            sizes = _all_sizes(file, chunk) if look and path.startswith("/") else _first_sizes(file, chunk)
            largest = max(sizes, default=0)
            if largest > SMALL_BYTES:
                if largest > chunk.total_uncompressed_size:
                    raise CorruptFileError(
                        f"{path!r} is damaged: a page of the column {name!r} has {largest:,} bytes by its header, but the "
                        f"footer gives {chunk.total_uncompressed_size:,} for all its pages. Download it again, or leave "
                        "it out"
                    )
                # The last page of a chunk has no successor.
                needed = largest + min(PAGES_FACTOR * largest, chunk.total_uncompressed_size)
                found.append(LargePage(name, largest, needed))
    return found


def _first_sizes(file: Any, chunk: Any) -> Iterator[int]:
    """Yield the decompressed bytes of the dictionary, if there is one, and of the first page."""
    for offset in {chunk.dictionary_page_offset, chunk.data_page_offset} - {None}:
        file.seek(max(offset, 0))  # a damaged footer may have any number
        sizes = _sizes(file.read(32))
        if sizes is not None:
            yield sizes[0]


def _all_sizes(file: Any, chunk: Any) -> Iterator[int]:
    """Yield the decompressed bytes of all pages, up to the first header that cannot be parsed."""
    offset = max(chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset, 0)
    stop = offset + chunk.total_compressed_size
    while offset < stop:
        file.seek(offset)
        data = file.read(min(HEADER_BYTES, stop - offset))
        sizes, length = _sizes(data), _length(data)
        if sizes is None or length is None or sizes[1] < 0:
            return
        yield sizes[0]
        offset += length + sizes[1]


def _sizes(data: bytes) -> tuple[int, int] | None:
    """Return the decompressed and the compressed size of the page with this header; None if it is not a header."""
    place, numbers = 0, []
    try:
        for _ in range(3):  # the page's type comes first
            if data[place] != (1 << 4) | _INT32:  # the next field, a whole number
                return None
            number, place = _varint(data, place + 1)
            numbers.append((number >> 1) ^ -(number & 1))
    except IndexError:
        return None
    return numbers[1], numbers[2]


def _length(data: bytes) -> int | None:
    """Return the size of the header at the beginning of these bytes; None if it is longer or not a header."""
    try:
        return _after(data, 0, _STRUCT)
    except (IndexError, ValueError, RecursionError):
        return None


def _after(data: bytes, place: int, kind: int) -> int:
    """Return the end of a value of Thrift's compact protocol."""
    if kind in (1, 2):  # a boolean, which is in the field's type
        return place
    if kind == 3:
        return place + 1
    if kind in (4, _INT32, 6):
        return _varint(data, place)[1]
    if kind == 7:
        return place + 8
    if kind == 8:
        size, place = _varint(data, place)
        return place + size
    if kind == _STRUCT:
        while (field := data[place]) != 0:
            place += 1
            if not field >> 4:  # the field's number does not follow the previous one, and is explicit
                place = _varint(data, place)[1]
            place = _after(data, place, field & 15)
        return place + 1
    raise ValueError(f"a page header of the Parquet file has the unknown type {kind}, so the file is damaged")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a whole number of seven bits a byte, and its end."""
    number = shift = 0
    while True:
        byte = data[place]
        place, number, shift = place + 1, number | (byte & 127) << shift, shift + 7
        if byte < 128:
            return number, place


BATCH_ROWS = 256
"""Maximum number of rows passed on at once: 880 MB/s of prose, as fast as more of them; 16 rows 540 MB/s."""
STEP_ROWS = 128
"""Maximum number of rows read at once, before their length is known. Compared with 256 (CPU seconds, 185 MB of prose, noisy
machine): 0.41 and 0.36 with blocks of 32 MB, and 0.67 and 0.42 with blocks of 4 MB, where `STEP_BYTES` makes steps of 16."""
STEP_BYTES = 250_000
"""Bytes of a block per row of a step: rows of this length add up to one block, not to more."""
LONG_ROW_BYTES = 256
"""Mean row length from which on steps are passed on unchanged, in one table."""
SHARE = 8
"""Number of batches in a block, at least."""
INDEX_BYTES = 3
"""Maximum bytes of a dictionary index; a column with more has values outside its dictionary."""
DICTIONARY_HEADER_BYTES = 4096
"""Additional bytes for the headers of such a column's pages."""


def rows_between(
    listing: Listing,
    number: int,
    file: pq.ParquetFile,
    names: list[str],
    start: int,
    stop: int,
    block_bytes: int,
    ask: Callable[[int, Sequence[Chunk], bool], None],
) -> Iterator[tuple[int, Any]]:
    """Yield the rows of one file from ``start`` to ``stop`` in small batches, with the number of the first row.

    Columns may be dictionaries. Decoded, a batch has about an eighth of ``block_bytes`` at most, or is one row. ``ask`` is
    called with the first row and the chunks of each row group before it is read, and again if memory runs out in it, and
    may raise. Fewer rows than the footer says, or more, are an error.
    """
    row = 0
    for group in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if row + rows > start and row < stop:
            position = row
            with damage_of_column(listing.paths[number], file, group, names):
                chunks = column_chunks(file, group, names)
                ask(row, chunks, False)
                with _reader(listing, number, file, group, names, chunks, block_bytes) as reader:
                    batches = _plain_if_not_utf8(listing, number, file, reader, group, names, block_bytes)
                    for batch in _with_reason(batches, row, chunks, ask):
                        low, high = max(start - position, 0), min(stop - position, len(batch))
                        if low < high:
                            yield from _decodable(position + low, batch.slice(low, high - low), block_bytes // SHARE)
                        position += len(batch)
                        if position >= stop:
                            break
                if position < min(row + rows, stop) or position > row + rows:
                    raise OSError(
                        f"the footer of this Parquet file gives {show_count(rows, 'row')}, but its pages have "
                        f"{position - row:,}, so the file is damaged"
                    )
        row += rows


def _plain_if_not_utf8(
    listing: Listing,
    number: int,
    file: pq.ParquetFile,
    reader: pq.ParquetFile,
    group: int,
    names: list[str],
    block_bytes: int,
) -> Iterator[Any]:
    """Yield the batches of a row group; with dictionaries as plain text if one is not UTF-8, so that it is a bad row.

    pyarrow checks texts, and raises, only where it converts a dictionary: inside a list, or to indices of 64 bits.
    """
    read = 0
    try:
        for batch in _batches(reader, group, names, block_bytes):
            read += len(batch)
            yield batch
            del batch
    except (pa.ArrowInvalid, OSError) as exc:
        if "UTF8" not in str(exc):
            raise
    else:
        return
    coded = [name for name in names if _has_dictionary(file.schema_arrow.field(name).type)]
    with open_parquet(listing, number, names=names, metadata=without_arrow_schema(file.metadata)) as plain:
        for batch in _batches(_Sides(file, plain, coded) if coded else file, group, names, block_bytes):
            if read < len(batch):
                yield batch.slice(read)
            read = max(read - len(batch), 0)
            del batch


@dataclass(frozen=True)
class _Sides:
    """Parquet file some of whose columns are read through another reader, which does not decode dictionaries of Arrow."""

    file: pq.ParquetFile
    """Reader of most columns."""
    plain: pq.ParquetFile
    """Reader of the others."""
    coded: Sequence[str]
    """Names of the others."""

    @property
    def metadata(self) -> pq.FileMetaData:
        """Footer of the file."""
        return self.file.metadata

    def iter_batches(
        self, rows: int, *, row_groups: Sequence[int], columns: Sequence[str], use_threads: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns of both readers, which have as many rows each."""
        own = [name for name in columns if name not in self.coded]
        coded = [name for name in columns if name in self.coded]
        sides = [self.plain.iter_batches(rows, row_groups=row_groups, columns=coded, use_threads=use_threads)]
        if own:
            sides.append(self.file.iter_batches(rows, row_groups=row_groups, columns=own, use_threads=use_threads))
        for parts in zip(*sides, strict=True):
            found = {name: part.column(name) for part in parts for name in part.schema.names}
            yield pa.RecordBatch.from_arrays([found[name] for name in columns], names=list(columns))


def _with_reason(
    batches: Iterator[Any],
    first: int,
    chunks: Sequence[Chunk],
    ask: Callable[[int, Sequence[Chunk], bool], None],
) -> Iterator[Any]:
    """Yield batches; if memory runs out while one is read, call ``ask``, which raises a better error if it has one."""
    while True:
        try:
            batch = next(batches, None)
        except MemoryError:
            ask(first, chunks, True)
            raise
        if batch is None:
            return
        yield batch
        del batch


def parts_of(table: pa.Table, block_bytes: int) -> Iterator[pa.Table]:
    """Halve a table until each part fits a block or is one row."""
    if table.nbytes <= block_bytes or len(table) <= 1:
        yield table
        return
    half = len(table) // 2
    yield from parts_of(table.slice(0, half), block_bytes)
    yield from parts_of(table.slice(half), block_bytes)


def _batches(file: pq.ParquetFile | _Sides, group: int, names: list[str], block_bytes: int) -> Iterator[Any]:
    """Read a row group in steps of a few rows, and join them while they are few and short."""
    metadata = file.metadata.row_group(group)
    most_bytes = block_bytes // SHARE
    step = max(
        1, min(STEP_ROWS, block_bytes // STEP_BYTES, most_bytes * metadata.num_rows // max(1, metadata.total_byte_size))
    )
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    coded: bool | None = None
    for batch in file.iter_batches(step, row_groups=[group], columns=names, use_threads=False):
        coded = any(_is_coded_text(kind) for kind in batch.schema.types) if coded is None else coded
        if coded:
            yield batch  # joining would merge the dictionaries each time
            continue
        batch_bytes = batch.nbytes
        if held and (held_rows >= BATCH_ROWS or held_bytes + batch_bytes > most_bytes):
            yield _joined(held, held_bytes, held_rows)
            held_rows = held_bytes = 0
        held.append(batch)
        held_rows, held_bytes = held_rows + len(batch), held_bytes + batch_bytes
        del batch
    if held:
        yield _joined(held, held_bytes, held_rows)


def _joined(held: list[pa.RecordBatch], size_bytes: int, rows: int) -> Any:
    """Join batches to one batch or table; ``held`` is emptied."""
    # Long rows are not copied; for short ones each piece would cost more than its content.
    joined = pa.Table.from_batches(held) if size_bytes > LONG_ROW_BYTES * rows else pa.concat_batches(held)
    held.clear()
    return joined


def _decodable(first: int, batch: Any, most_bytes: int) -> Iterator[tuple[int, Any]]:
    """Split a batch so that the texts of its dictionaries add up to at most ``most_bytes``."""
    coded = [column for column in batch.columns if _is_coded_text(column.type)]
    if not coded:
        yield first, batch
        return
    lengths = np.zeros(len(batch), np.int64)
    for column in coded:
        of_values = pc.binary_length(column.dictionary)
        lengths += pc.fill_null(of_values.take(column.indices), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    start = 0
    while start < len(batch):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most_bytes, side="right")))
        yield first + start, batch.slice(start, stop - start)
        start = stop


def _has_dictionary(kind: pa.DataType) -> bool:
    inner = (kind.field(place).type for place in range(kind.num_fields))
    return bool(pa.types.is_dictionary(kind) or any(_has_dictionary(each) for each in inner))


def _is_coded_text(kind: pa.DataType) -> bool:
    if not pa.types.is_dictionary(kind):
        return False
    value = kind.value_type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(value) for test in tests)


@contextlib.contextmanager
def _reader(
    listing: Listing,
    number: int,
    file: pq.ParquetFile,
    group: int,
    names: list[str],
    chunks: Sequence[Chunk],
    block_bytes: int,
) -> Iterator[pq.ParquetFile]:
    """Return the file, opened again if repeated texts of a dictionary would fill a batch."""
    most_bytes = block_bytes // (SHARE * BATCH_ROWS)
    suspects = _dictionaries(file, chunks, most_bytes)
    if not suspects:
        yield file
        return
    with open_parquet(listing, number, names=names, dictionaries=suspects, metadata=file.metadata) as coded:
        row = next(coded.iter_batches(1, row_groups=[group], columns=suspects, use_threads=False), None)
        long = [] if row is None else [name for name in suspects if _longest(row.column(name)) > most_bytes]
        del row
        if long == suspects:
            yield coded
            return
    if not long:
        yield file
        return
    with open_parquet(listing, number, names=names, dictionaries=long, metadata=file.metadata) as coded:
        yield coded


def _dictionaries(file: pq.ParquetFile, chunks: Sequence[Chunk], most_bytes: int) -> list[str]:
    """Return the columns whose texts are all in a dictionary, and of which one may be that long."""
    return [
        name
        for name, place, chunk in chunks
        if chunk.total_uncompressed_size > most_bytes
        and chunk.physical_type == "BYTE_ARRAY"
        and chunk.path_in_schema == name
        and file.schema.column(place).max_repetition_level == 0
        and chunk.has_dictionary_page
        and _is_all_coded(chunk)
    ]


def _is_all_coded(column: Any) -> bool:
    """Return whether a writer kept the dictionary; reading other data as a dictionary takes ten times as long."""
    offsets = (column.dictionary_page_offset, column.data_page_offset)
    pages_bytes = column.total_compressed_size - (offsets[1] - offsets[0])
    return bool(pages_bytes <= INDEX_BYTES * column.num_values + DICTIONARY_HEADER_BYTES)


def _longest(column: pa.Array) -> int:
    if not _is_coded_text(column.type):
        return 0
    return int(pc.max(pc.binary_length(column.dictionary)).as_py() or 0)

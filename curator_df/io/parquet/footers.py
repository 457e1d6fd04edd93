# SPDX-License-Identifier: Apache-2.0
"""Parquet footers: the common schema of many files, the positions of their row groups, and errors for damaged ones."""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curator_df.core.ranges.source import OFFSET_BITS
from curator_df.core.runner.progress import with_progress_lines
from curator_df.errors import CorruptFileError, CuratorError, SchemaError
from curator_df.io.formats import HEAD_BYTES, why_not_parquet
from curator_df.io.jsonl.schema import TEXT
from curator_df.io.listing import Listing
from curator_df.io.streams.file_stream import open_file
from curator_df.memory.sizes import show_count

ALL_FOOTERS = 64
"""Number of files up to which every footer is read first; for more files, `SPREAD_FOOTERS` of them are."""
SPREAD_FOOTERS = 16
READ_BYTES = 1 << 18
"""Bytes of a column read at once."""
BUFFERS_BYTES = 64_000_000
"""Bytes of all columns read together: with more than 244 columns, less of each is read at once."""
LEAST_READ_BYTES = 4096
READ_ROWS = 128
"""Rows of a column read at once to check whether it is damaged."""
MAGIC = b"PAR1"
"""First and last bytes of a Parquet file."""
PIECE_BYTES = 1 << 20
"""Bytes of a file searched at once for the end of another one."""


class Chunk(NamedTuple):
    """Column chunk of a row group: the values of one leaf column."""

    column: str
    """Column of the table that the chunk belongs to."""
    place: int
    """Number of the leaf column, from 0."""
    metadata: Any
    """Metadata of the chunk, a `pyarrow.parquet.ColumnChunkMetaData`."""


@contextmanager
def open_parquet(
    listing: Listing,
    number: int,
    *,
    names: Sequence[str] | None = None,
    dictionaries: Sequence[str] = (),
    metadata: pq.FileMetaData | None = None,
) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; damage found now or later raises `CorruptFileError`.

    Parameters
    ----------
    listing : Listing
        All files.
    number : int
        Number of the file.
    names : sequence of str, optional
        Columns of the table that are read; without them only the footer.
    dictionaries : sequence of str
        Columns of text to read as dictionaries.
    metadata : pyarrow.parquet.FileMetaData, optional
        Footer, if it was read before.
    """
    path = listing.paths[number]
    with open_file(path, listing.storage_options, listed=listing.listed(path)) as file, damage_of(path):
        if metadata is None:
            metadata = _opened(file, path, None, READ_BYTES).metadata
            _check_footer(metadata)
            require_one_file(file, path, metadata)
        chunks = len(leaves(metadata.schema, names)) if names else 1
        buffer_bytes = max(min(READ_BYTES, BUFFERS_BYTES // max(chunks, 1)), LEAST_READ_BYTES)
        yield _opened(file, path, metadata, buffer_bytes, dictionaries)


NO_END = ("magic bytes", "minimum file footer", "file size is 0 bytes")
"""Words of pyarrow's errors for a file that does not end as a Parquet file does."""


def _opened(
    file: Any, path: str, metadata: pq.FileMetaData | None, buffer_bytes: int, dictionaries: Sequence[str] = ()
) -> pq.ParquetFile:
    try:
        # Pre-buffering would read the column chunks of whole row groups before the first batch.
        return pq.ParquetFile(
            file,
            metadata=metadata,
            read_dictionary=list(dictionaries),
            pre_buffer=False,
            buffer_size=buffer_bytes,
            page_checksum_verification=True,
        )
    except pa.ArrowNotImplementedError as exc:
        wide = " or ".join(repr(name) for name in _of_16_bytes(file))
        raise SchemaError(
            f"{path!r} has a column of a type that pyarrow {pa.__version__} cannot read"
            f"{f' (of its columns, {wide} has 16 bytes a value)' if wide else ''}: {exc}. Write the file again with another "
            "type for it, such as a decimal or a string, or leave the file out"
        ) from exc
    except pa.ArrowInvalid as exc:
        if any(words in str(exc) for words in NO_END):
            file.seek(0)
            if why := why_not_parquet(file.read(HEAD_BYTES)):
                raise CorruptFileError(f"{path!r} {why}") from exc
        raise


def _of_16_bytes(file: Any) -> list[str]:
    """Return the columns that may hold numbers of 128 bits, in a file that pyarrow cannot open because of their type."""
    reader = pq.core.ParquetReader()
    with suppress(pa.ArrowException):
        reader.open(file)  # it reads the footer before it refuses the types
    schema = None if reader.metadata is None else reader.metadata.schema
    columns = [] if schema is None else [schema.column(place) for place in range(len(schema))]
    return [
        column.path
        for column in columns
        if column.length == 16 and str(column.logical_type.type) in ("NONE", "UNKNOWN")
    ]


def without_arrow_schema(metadata: pq.FileMetaData) -> pq.FileMetaData:
    """Return a footer without the schema that Arrow stored in it, which says what is read as a dictionary."""
    written = io.BytesIO()
    metadata.write_metadata_file(written)
    renamed = written.getvalue().replace(b"ARROW:schema", b"arrow:schema")  # of the same length, so that it stays valid
    return pq.read_metadata(io.BytesIO(renamed))


@contextmanager
def damage_of(path: str, where: str = "") -> Iterator[None]:
    """Convert pyarrow's exceptions for a file to `CorruptFileError`; ``where`` describes a part of the file."""
    try:
        yield
    except (CuratorError, MemoryError, pa.ArrowCancelled):
        raise
    except pa.ArrowNotImplementedError as exc:
        raise CorruptFileError(
            f"{path!r}{where} uses a feature of Parquet that pyarrow {pa.__version__} cannot read: {exc}. Write the file "
            "again without it, or leave out the file, or the column with columns="
        ) from exc
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:
        way_out = "Download it again, or leave it out"
        if "crypt" in str(exc):
            way_out = (
                "If it is encrypted, write it again without encryption, or choose other columns with columns=; otherwise "
                "download it again, or leave it out"
            )
        if "too deeply nested" in str(exc):
            way_out = "Write it again with columns that have fewer levels, or leave it out"
        said = " ".join(str(exc).split()).rstrip(".")  # on one line
        raise CorruptFileError(f"{path!r}{where} is not a readable Parquet file: {said}. {way_out}") from exc


@contextmanager
def damage_of_column(path: str, file: pq.ParquetFile, group: int, names: Sequence[str]) -> Iterator[None]:
    """Convert pyarrow's exceptions for a row group to `CorruptFileError` with the column, if one is the cause."""
    try:
        yield
    except (CuratorError, MemoryError, pa.ArrowCancelled):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        where = f", row group {group}"
        column = next((name for name in names if _is_damaged(file, group, name)), None)
        with damage_of(path, where if column is None else f"{where}, column {column!r},"):
            raise


def _is_damaged(file: pq.ParquetFile, group: int, name: str) -> bool:
    """Return whether a column of a row group cannot be read, or does not have the number of rows in the footer."""
    try:
        batches = file.iter_batches(READ_ROWS, row_groups=[group], columns=[name], use_threads=False)
        rows = sum(len(batch) for batch in batches)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:
        if isinstance(exc, (CuratorError, MemoryError)):
            raise
        return True
    return bool(rows != file.metadata.row_group(group).num_rows)


def _check_footer(metadata: pq.FileMetaData) -> None:
    """Raise ``OSError`` if the numbers of a footer contradict each other: rows would be lost, or read twice."""
    rows = 0
    for place in range(metadata.num_row_groups):
        group = metadata.row_group(place)
        if group.num_columns != metadata.num_columns:
            raise OSError(
                f"the footer of this Parquet file gives {show_count(metadata.num_columns, 'column')}, but row group {place} "
                f"has {group.num_columns:,}, so the file is damaged"
            )
        if group.num_rows < 0:
            raise OSError(
                f"the footer of this Parquet file gives {show_count(group.num_rows, 'row')} for row group {place}, so the "
                "file is damaged"
            )
        rows += group.num_rows
    if rows != metadata.num_rows:
        raise OSError(
            f"the footer of this Parquet file gives {show_count(metadata.num_rows, 'row')}, but its row groups add up to "
            f"{rows:,}, so the file is damaged"
        )
    if rows > 1 << OFFSET_BITS:
        raise OSError(
            f"the footer of this Parquet file gives {show_count(rows, 'row')}, but curator_df reads at most "
            f"{1 << OFFSET_BITS:,} rows of a file. Write the rows to several files"
        )


def require_one_file(file: Any, path: str, metadata: pq.FileMetaData) -> None:
    """Raise `CorruptFileError` for Parquet files that were joined byte by byte.

    The footer at the end describes the last of them alone, with positions that count from its own beginning: the pages of
    another file would be read in their place. As many bytes as the other files have are then missing before the footer.

    Parameters
    ----------
    file : file object
        The file, opened for random access.
    path : str
        Its path, for the error.
    metadata : pyarrow.parquet.FileMetaData
        Its footer.
    """
    end_of_pages = max(_end_of_pages(metadata), len(MAGIC))
    unexplained = (
        file.seek(0, os.SEEK_END) - 8 - metadata.serialized_size - end_of_pages
    )  # else page indexes and Bloom filters
    for place in range(0, unexplained, PIECE_BYTES):
        file.seek(place)
        piece = file.read(min(PIECE_BYTES, unexplained - place - len(MAGIC)) + 2 * len(MAGIC))
        for found in re.finditer(MAGIC + MAGIC, piece):
            end = place + found.start() + len(MAGIC)
            if _ends_with_footer(file, end):
                raise CorruptFileError(
                    f"{path!r} has several Parquet files, joined byte by byte: the first one ends after {end:,} bytes. Only the "
                    "footer of the last one counts, so rows of the others would be lost. Pass the files one by one, or write "
                    f"them to one file with pyarrow. To get the first one back: head -c {end} joined.parquet > first.parquet"
                )


def _end_of_pages(metadata: pq.FileMetaData) -> int:
    """Return where the last pages end, which are those of the last column, or the end of the file if that is unknown."""
    if not (metadata.num_row_groups and metadata.num_columns):
        return len(MAGIC)
    group, column = metadata.num_row_groups - 1, metadata.num_columns - 1
    with suppress(pa.ArrowException, OSError):  # encrypted or damaged, which matters only if the column is read
        _check_chunks(metadata, group, [metadata.schema.column(column).path])
        chunk = metadata.row_group(group).column(column)
        first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
        return int(min(first, chunk.data_page_offset) + chunk.total_compressed_size)
    return 1 << 62


def _ends_with_footer(file: Any, end: int) -> bool:
    """Return whether the part of a file before some position ends with the footer of a Parquet file."""
    file.seek(max(end - 8, 0))
    footer_bytes = int.from_bytes(file.read(4), "little")
    if footer_bytes > end - 12:
        return False
    file.seek(end - 8 - footer_bytes)
    try:
        pq.read_metadata(pa.BufferReader(MAGIC + file.read(footer_bytes + 8)))
    except (pa.ArrowException, OSError):
        return False
    return True


class _PageWantedError(Exception):
    """Signal that the reader of a row group accepts the footer, and requests the first page."""


class _NoPages(io.RawIOBase):
    """Large file object that stops any attempt to read from it."""

    def __init__(self) -> None:
        super().__init__()
        self._place = 0

    def read(self, size: int = -1) -> NoReturn:
        raise _PageWantedError(size)

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        self._place = place + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: 1 << 62}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def column_chunks(file: pq.ParquetFile, group: int, names: Sequence[str]) -> list[Chunk]:
    """Return the column chunks of a row group that belong to some columns of the table.

    pyarrow's ``RowGroupMetaData.column()`` crashes the process if the footer of a chunk is damaged or encrypted, since it
    does not translate C++ exceptions. Its reader raises them, so the reader checks the chunks first; it reads no
    page for that.
    """
    if not names:
        return []
    _check_chunks(file.metadata, group, names)
    metadata = file.metadata.row_group(group)
    return [Chunk(name, place, metadata.column(place)) for place, name in leaves(file.schema, names)]


def _check_chunks(metadata: pq.FileMetaData, group: int, names: Sequence[str]) -> None:
    """Raise the error of pyarrow's reader for a damaged or encrypted column chunk, without reading a page."""
    reader = pq.ParquetFile(pa.PythonFile(_NoPages(), mode="r"), metadata=metadata, pre_buffer=False, buffer_size=1)
    with suppress(_PageWantedError):
        next(reader.iter_batches(1, row_groups=[group], columns=list(names), use_threads=False), None)


def leaves(schema: pq.ParquetSchema, names: Sequence[str]) -> list[tuple[int, str]]:
    """Return the number of each leaf column of some columns of the table, and the column that it belongs to."""
    wanted, found = set(names), []
    for place in range(len(schema)):
        path = schema.column(place).path
        if path in wanted:
            found.append((place, path))
            continue
        parts = path.split(".")
        column = next((name for size in range(1, len(parts)) if (name := ".".join(parts[:size])) in wanted), None)
        if column is not None:
            found.append((place, column))
    return found


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a Parquet column in blocks.

    Dictionaries are decoded, text has 64-bit offsets, and inside lists, structs and maps an extension type (UUID, JSON) is
    the type that stores it, since neither pandas nor Arrow's own functions accept it there.

    Examples
    --------
    >>> plain_type(pa.struct([("id", pa.uuid()), ("text", pa.string_view())]))
    StructType(struct<id: fixed_size_binary[16], text: string>)
    """
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return TEXT
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if isinstance(kind, pa.BaseExtensionType) and not kind.storage_type.num_fields:
        return kind
    return _inner_type(kind)


def _inner_type(kind: pa.DataType, *, is_final: bool = False) -> pa.DataType:
    """Return the type that values inside a column have in blocks, before or after all files have been read."""

    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(_inner_type(field.type, is_final=is_final))

    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _inner_type(kind.storage_type, is_final=is_final)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _inner_type(kind.value_type, is_final=is_final)
    if not kind.num_fields:
        # Text for values that are always null: pyarrow 26 joins lists of structs with nulls to an invalid array.
        as_text = {"string_view"} | ({"null"} if is_final else set())
        return pa.string() if str(kind) in as_text else pa.binary() if types.is_binary_view(kind) else kind
    if types.is_map(kind):
        return pa.map_(inner(kind.key_field), inner(kind.item_field), keys_sorted=kind.keys_sorted)
    fields = [inner(kind.field(place)) for place in range(kind.num_fields)]
    if types.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    return _NESTED[str(kind).partition("<")[0]](fields)


# Views are kept, because pyarrow 26 casts one to a list as an invalid array.
_NESTED: dict[str, Callable[[list[pa.Field]], pa.DataType]] = {
    "struct": pa.struct,
    "list": lambda fields: pa.list_(fields[0]),
    "large_list": lambda fields: pa.large_list(fields[0]),
    "list_view": lambda fields: pa.list_view(fields[0]),
    "large_list_view": lambda fields: pa.large_list_view(fields[0]),
}


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a file's schema in the form of blocks."""
    return pa.schema([pa.field(item.name, plain_type(item.type)) for item in schema])


def widened(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that holds values of both without loss; raise ``TypeError`` if there is none."""
    fields = [pa.schema([pa.field("column", kind)]) for kind in (one, other)]
    try:
        kind = pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid) as exc:
        raise TypeError(f"{one} and {other}") from exc
    if _rounds_decimals(one, kind) or _rounds_decimals(other, kind):
        raise TypeError(f"{one} and {other}")
    return plain_type(kind)


def _rounds_decimals(kind: pa.DataType, widened_to: pa.DataType) -> bool:
    """Return whether decimals of a type, or inside of it, would become floats, which Arrow rounds without a check."""
    if pa.types.is_decimal(kind):
        return bool(pa.types.is_floating(widened_to))
    for place in range(kind.num_fields):
        field = kind.field(place)
        found = widened_to.get_field_index(field.name) if pa.types.is_struct(kind) else place  # -1: two of that name
        if _rounds_decimals(field.type, widened_to.field(place if found < 0 else found).type):
            return True
    return False


@with_progress_lines("reading the schemas of the input files")
def find_schema(
    listing: Listing, given: Mapping[str, pa.DataType], wanted: Container[str] | None = None
) -> tuple[pa.Schema, dict[str, int]]:
    """Unify the schemas of the first and of spread files, or of all when they are few.

    ``wanted`` has the columns to read; the types of others do not matter, and those of the first file are returned.

    Returns
    -------
    pyarrow.Schema
        Columns of blocks.
    dict of str to int
        File number from which the type of each column came.
    """
    count = len(listing) if len(listing) <= ALL_FOOTERS else SPREAD_FOOTERS
    types: dict[str, pa.DataType] = {}
    origins: dict[str, int] = {}
    for number in np.unique(np.linspace(0, len(listing) - 1, count).astype(np.int64)).tolist():
        with open_parquet(listing, number) as file:
            schema = plain_schema(file.schema_arrow)
        (twice, times), *_ = [*Counter(schema.names).most_common(1), ("", 0)]
        if times > 1:
            raise SchemaError(
                f"{listing.paths[number]!r} has {times} columns named {twice!r}, but a table can have only one. Write the file "
                "again with other names"
            )
        for item in schema:
            if wanted is not None and item.name not in wanted:
                types.setdefault(item.name, item.type)
                origins.setdefault(item.name, number)
                continue
            require_unlike_names(listing, number, item)
            before = types.get(item.name, pa.null())
            kind = given.get(item.name) or item.type
            try:
                types[item.name] = widened(before, kind)
            except TypeError as exc:
                raise type_change(listing, item.name, before, origins.get(item.name, 0), kind, number) from exc
            if not types[item.name].equals(before) or item.name not in origins:
                origins[item.name] = number
    for name, kind in given.items():
        types.setdefault(name, kind)
    # A column that is null in every file keeps its type.
    final = {
        name: _inner_type(kind, is_final=True) if kind.num_fields and name not in given else kind
        for name, kind in types.items()
    }
    return pa.schema(list(final.items())), origins


def require_unlike_names(listing: Listing, number: int, field: pa.Field) -> None:
    """Raise `SchemaError` for a column whose objects have two fields of one name: Python objects would show one of them."""
    if (twice := _twice_inside(field.type)) is not None:
        raise SchemaError(
            f"{listing.paths[number]!r} has a column {field.name!r} whose objects have two fields named {twice!r}, but an "
            "object can have only one. Leave the column out with columns=, or write the file again with other names"
        )


def _twice_inside(kind: pa.DataType) -> str | None:
    """Return the name that two fields of an object, in a type at any depth, share; None if there is none."""
    fields = [kind.field(place) for place in range(kind.num_fields)]
    if pa.types.is_struct(kind) and len({field.name for field in fields}) < len(fields):
        return str(Counter(field.name for field in fields).most_common(1)[0][0])
    return next((found for field in fields if (found := _twice_inside(field.type)) is not None), None)


def type_change(
    listing: Listing, name: str, before: pa.DataType, first: int, kind: pa.DataType, number: int
) -> SchemaError:
    """Make the error for a column whose type changes between files."""
    return SchemaError(
        f"the column {name!r} has the type {before} in {listing.paths[first]!r} and {kind} in {listing.paths[number]!r}. Choose "
        f"one with dtype={{{name!r}: ...}}, or leave it out with columns="
    )


@with_progress_lines("reading the footers of the input files")
def row_groups(listing: Listing, numbers: list[int]) -> tuple[Any, Any, Any]:
    """Return file number, rows and decoded bytes of every row group of some files.

    Returns
    -------
    tuple of ndarray of int64
        One value for each row group, in order.
    """
    with ThreadPoolExecutor(8) as threads:
        tables = list(threads.map(lambda number: _row_groups(listing, number), numbers))
    files = np.repeat(np.array(numbers, np.int64), [len(table) for table in tables])
    joined = np.concatenate(tables) if tables else np.empty((0, 2), np.int64)
    return files, joined[:, 0], joined[:, 1]


def _row_groups(listing: Listing, number: int) -> Any:
    with open_parquet(listing, number) as file:
        metadata = file.metadata
        groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
        return np.array([(group.num_rows, group.total_byte_size) for group in groups], np.int64).reshape(-1, 2)

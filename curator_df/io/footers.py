# SPDX-License-Identifier: Apache-2.0
"""Parquet footers: the schema of many files from a few of them, and where their row groups lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curator_df.errors import CorruptFileError, CuratorError, SchemaError
from curator_df.io.listing import Listing
from curator_df.io.schema import TEXT
from curator_df.io.streams import open_file

ALL_FOOTERS = 64
"""Up to so many files every footer is read at the door; of more files, `SPREAD_FOOTERS` of them."""
SPREAD_FOOTERS = 16
READ_BYTES = 1 << 18
"""Bytes of a column read at once."""


@contextmanager
def open_parquet(
    listing: Listing, number: int, *, dictionaries: Sequence[str] = (), metadata: pq.FileMetaData | None = None
) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; damage found now or later raises `CorruptFileError`.

    Parameters
    ----------
    listing : Listing
        All files.
    number : int
        Number of the file.
    dictionaries : sequence of str
        Columns of text to read as dictionaries.
    metadata : pyarrow.parquet.FileMetaData, optional
        The footer, if it was read before.
    """
    path = listing.paths[number]
    with open_file(path, listing.storage_options, listed=listing.listed(path)) as file:
        try:
            yield pq.ParquetFile(
                file,
                metadata=metadata,
                read_dictionary=list(dictionaries),
                pre_buffer=False,
                buffer_size=READ_BYTES,
            )
        except (pa.ArrowInvalid, pa.ArrowSerializationError, OSError) as exc:
            if isinstance(exc, (CuratorError, MemoryError)):
                raise
            raise CorruptFileError(
                f"{path!r} is not a readable Parquet file: {exc}. Fetch it again, or leave it out"
            ) from exc


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a Parquet column in blocks: dictionaries decoded, text with 64-bit offsets."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return TEXT
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a file's schema as blocks have it."""
    return pa.schema([pa.field(item.name, plain_type(item.type)) for item in schema])


def widened(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that holds values of both without loss; raise ``TypeError`` when there is none."""
    fields = [pa.schema([pa.field("column", kind)]) for kind in (one, other)]
    try:
        kind = pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid) as exc:
        raise TypeError(f"{one} and {other}") from exc
    return plain_type(kind)


def find_schema(listing: Listing, given: Mapping[str, pa.DataType]) -> tuple[pa.Schema, dict[str, int]]:
    """Unify the schemas of the first and of spread files, or of all when they are few.

    Returns
    -------
    pyarrow.Schema
        Columns as they are in blocks.
    dict of str to int
        File number from which the type of each column came.
    """
    count = len(listing) if len(listing) <= ALL_FOOTERS else SPREAD_FOOTERS
    types: dict[str, pa.DataType] = {}
    origins: dict[str, int] = {}
    for number in np.unique(np.linspace(0, len(listing) - 1, count).astype(np.int64)).tolist():
        with open_parquet(listing, number) as file:
            schema = plain_schema(file.schema_arrow)
        twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if twice is not None:
            raise SchemaError(
                f"{listing.paths[number]!r} has {schema.names.count(twice)} columns named {twice!r}, and a table can have "
                "one; write the file again with other names"
            )
        for item in schema:
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
    # A column that is null in every file stays what it is.
    return pa.schema(list(types.items())), origins


def type_change(
    listing: Listing, name: str, before: pa.DataType, first: int, kind: pa.DataType, number: int
) -> SchemaError:
    """Make the error for a column whose type changes between files."""
    return SchemaError(
        f"the column {name!r} holds {before} in {listing.paths[first]!r} and {kind} in {listing.paths[number]!r}; say "
        f"which it is to be with dtype={{{name!r}: ...}}, or leave it out with columns="
    )


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

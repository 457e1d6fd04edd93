# SPDX-License-Identifier: Apache-2.0
"""Convert Arrow tables to the DataFrames of blocks: exact types, strings without a copy, row IDs in the index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.core.columns import did_you_mean_column
from curator_df.core.host_blocks import empty_pandas_block, pandas_block
from curator_df.core.ranges.source import ADDRESS, OFFSET_BITS
from curator_df.errors import ColumnError, ParameterError, SchemaError
from curator_df.files.storage import shown_path
from curator_df.io.folder_columns import SOURCE_COLUMNS, folder_values
from curator_df.io.listing import Listing

FEW_BYTES = 64
"""Number of bytes by which buffers may exceed the used part, without the last offset."""
MOST_COLUMNS = 20_000
"""Maximum number of columns of a table: each takes about 0.2 ms and 10 kB regardless of its content, for every block and in
every step."""
LARGEST_OFFSET = 1 << OFFSET_BITS
MOST_FILES = 1 << (63 - OFFSET_BITS)


def to_block(table: pa.Table, addresses: npt.NDArray[np.int64]) -> pd.DataFrame:
    """Make a block of a table with contiguous columns, without copying.

    Parameters
    ----------
    table : pyarrow.Table
        Columns of the block.
    addresses : ndarray of int64
        Row ID of each row.

    Returns
    -------
    pandas.DataFrame
        Block with an index named ``address``.
    """
    index = pd.Index(addresses, dtype="int64", name=ADDRESS)
    if not table.num_columns:
        return pd.DataFrame(index=index)
    block = pandas_block(table)
    block.index = index
    return block


def empty_block(schema: pa.Schema) -> pd.DataFrame:
    """Return a block without rows."""
    index = pd.Index(np.empty(0, np.int64), name=ADDRESS)
    if not schema.names:
        return pd.DataFrame(index=index)
    block = empty_pandas_block(schema)
    block.index = index
    return block


def in_one_piece(schema: pa.Schema, columns: list[pa.ChunkedArray]) -> pa.Table:
    """Join the pieces of each column, one column after the other, so that only one of them is held twice.

    ``columns`` is emptied; the caller must not hold other references to them.
    """
    columns.reverse()
    joined = []
    while columns:
        column = columns.pop()
        is_whole = column.num_chunks == 1 and column.get_total_buffer_size() - column.nbytes <= FEW_BYTES
        joined.append(column.chunk(0) if is_whole else column.combine_chunks())
        del column
    return pa.Table.from_arrays(joined, schema=schema) if joined else schema.empty_table()


def with_source(
    table: pa.Table,
    wanted: Sequence[str],
    files: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int64] | None,
    listing: Listing,
) -> pa.Table:
    """Add ``source_file``, ``source_line`` and columns in the names of folders to a table.

    Parameters
    ----------
    table : pyarrow.Table
        Rows of a block.
    wanted : sequence of str
        Names of the columns to add, including those in folder names (`folder_columns`).
    files : ndarray of int64
        File number of each row, in ascending order.
    numbers : ndarray of int64, optional
        Line (or row) number of each row, from 1; needed for ``source_line``.
    listing : Listing
        All files.
    """
    added: dict[str, pa.Array] = {}
    if "source_file" in wanted:
        first, last = (int(files[0]), int(files[-1])) if len(files) else (0, -1)
        names = pa.array([shown_path(path) for path in listing.paths[first : last + 1]], pa.large_string())
        added["source_file"] = names.take(pa.array(files - first))
    if "source_line" in wanted:
        added["source_line"] = pa.array(numbers, pa.int64())
    for name in [name for name in wanted if name not in SOURCE_COLUMNS]:
        first, last = (int(files[0]), int(files[-1])) if len(files) else (0, -1)
        added[name] = folder_values(listing.paths[first : last + 1], name).take(pa.array(files - first))
    columns = [*table.columns, *(added[name] for name in wanted)]
    return pa.Table.from_arrays(columns, names=[*table.schema.names, *wanted])


def with_source_fields(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return a schema with the columns that `with_source` adds."""
    for name in names:
        schema = schema.append(pa.field(name, SOURCE_COLUMNS.get(name, pa.large_string())))
    return schema


def schema_with_source(schema: pa.Schema, add_source: bool, reader: str) -> pa.Schema:
    """Return the schema of blocks; raise if columns of the files would be overwritten."""
    if not add_source:
        return schema
    clashing = [name for name in SOURCE_COLUMNS if name in schema.names]
    if clashing:
        raise ColumnError(
            f"{reader}: add_source=True would overwrite the column {clashing[0]!r} of the files. Leave that column out with "
            "columns="
        )
    return pa.schema([*schema, *(pa.field(name, kind) for name, kind in SOURCE_COLUMNS.items())])


def chosen_columns(
    schema: pa.Schema, columns: Any, reader: str, way_out: str = "", *, are_all: bool = True
) -> list[str]:
    """Check the user's ``columns`` against the schema of the files, which may have more columns unless ``are_all``."""
    chosen = list(schema.names if columns is None else [columns] if isinstance(columns, str) else columns)
    names = set(schema.names)
    missing = [name for name in chosen if name not in names]
    if missing:
        listed = ", ".join(repr(name) for name in schema.names)
        they_have = f"They have: {listed}" if listed else "They have no columns"
        hint = did_you_mean_column(missing[:1], schema.names)
        raise ColumnError(
            f"{reader}: columns= has {missing[0]!r}, which is not in the files{hint or '.'} {they_have}{way_out}"
        )
    if len(chosen) > MOST_COLUMNS:
        raise SchemaError(
            f"{reader}: the files have {'' if are_all else 'at least '}{len(chosen):,} columns, but a table can have "
            f"{MOST_COLUMNS:,}. Choose some with columns="
        )
    if len(set(chosen)) != len(chosen):
        raise ParameterError(f"{reader}: columns= has a column twice: {chosen}. Name each column once")
    return chosen


def check_address_space(listing: Listing, reader: str) -> None:
    """Raise if the input is too large for row IDs."""
    if len(listing) > MOST_FILES:
        raise ParameterError(
            f"{reader}: the input has {len(listing):,} files, but a table can have {MOST_FILES:,}. Read it as several tables"
        )
    if len(listing) and listing.sizes.max() > LARGEST_OFFSET:
        path = listing.paths[int(listing.sizes.argmax())]
        raise ParameterError(
            f"{reader}: {path!r} has {listing.sizes.max():,} bytes, but a file can have at most {LARGEST_OFFSET:,} bytes. "
            "Split the file"
        )

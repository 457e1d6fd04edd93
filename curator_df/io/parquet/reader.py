# SPDX-License-Identifier: Apache-2.0
"""Parquet files as a lazy table: `read_parquet`, and its source.

Row groups are streamed in batches of a few rows, so that a row group of any size, or a text that its dictionary holds
once and its rows a million times, costs no more than a block (`curator_df.io.parquet.row_batches`). A page of a column is held
whole while it is read: the plan includes large pages, as far as some files show them, and each row group is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.arguments import choose
from curator_df.core.backend import Backend
from curator_df.core.columns import column_bytes, leaf_columns
from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.source import OFFSET_BITS, BadRow, Range, Ranges, RowChoice
from curator_df.errors import OversizeRowError, SchemaError
from curator_df.io import cut
from curator_df.io.bad_rows import WarnOfBadRows, has_text, without_bad_texts
from curator_df.io.device_transfer import require_gpu
from curator_df.io.folder_columns import split_folder_columns
from curator_df.io.frames import (
    LARGEST_OFFSET,
    check_address_space,
    chosen_columns,
    empty_block,
    in_one_piece,
    schema_with_source,
    to_block,
    with_source,
    with_source_fields,
)
from curator_df.io.jsonl.lossy_numbers import becomes_infinite, holds_floats
from curator_df.io.jsonl.reader import OnBadRows
from curator_df.io.jsonl.schema import Dtypes, requested_types
from curator_df.io.listing import Listing, Paths, list_files
from curator_df.io.parquet.footers import (
    Chunk,
    find_schema,
    open_parquet,
    plain_schema,
    require_unlike_names,
    row_groups,
    type_change,
    widened,
)
from curator_df.io.parquet.row_batches import (
    PAGES_FACTOR,
    ROOM_FACTOR,
    SMALL_BYTES,
    parts_of,
    require_room,
    rows_between,
    sampled_pages,
)
from curator_df.io.partitions import block_bytes_of, from_source
from curator_df.kernels.rows.keep_rows import keep_rows


def without_long_rows(
    table: pa.Table,
    path: str,
    first: int,
    largest_row_bytes: int | None,
    on_long_row: Callable[[OversizeRowError], None] | None,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield a table in the parts between rows that are too long, each with the number of its first row.

    Parameters
    ----------
    table : pyarrow.Table
        Consecutive rows of a file.
    path : str
        The file.
    first : int
        Number of the first row in it, from 0.
    largest_row_bytes : int, optional
        Maximum bytes of a row.
    on_long_row : callable, optional
        Function that receives the error of a longer row; without it the error is raised.
    """
    start = 0
    if largest_row_bytes is not None and table.nbytes > largest_row_bytes:
        for place in range(len(table)):
            row_bytes = table.slice(place, 1).nbytes
            if row_bytes <= largest_row_bytes:
                continue
            error = _error(path, first + place, row_bytes, largest_row_bytes)
            if on_long_row is None:
                raise error
            on_long_row(error)
            if place > start:
                yield first + start, table.slice(start, place - start)
            start = place + 1
    if start < len(table):
        yield first + start, table.slice(start)


def _error(path: str, row: int, row_bytes: int, largest_row_bytes: int) -> OversizeRowError:
    error = OversizeRowError(
        f"{path!r}, row {row + 1:,}: the row has {row_bytes:,} bytes, but only {largest_row_bytes:,} fit into the memory "
        "budget. Use a larger memory=, or remove the row from the file"
    )
    error.path, error.line, error.offset, error.row_bytes = path, row + 1, row, row_bytes
    return error


SUFFIXES = (".parquet", ".parq", ".pq")
"""Required endings of files found in a directory."""
MOST_FOOTERS = 1000
"""Number of files larger than an input split up to which they are split by their footers; with more, each is one input split."""
COUNTED_FOOTERS = 16
"""Number of footers, spread over the input, from which its rows are estimated."""
MOST_PIECES = 4
"""Maximum number of input splits of one row group: each decodes the rows before it to skip them."""
READER_FACTOR = 2.5
"""Memory multiplier of the reader, per byte of the block. Measured in a fresh process (VmHWM, 32 MB blocks, system
memory pool, zstd prose): 2.2; the batches of a block are held until they are joined."""


@dataclass(frozen=True)
class ParquetSource:
    """Source of rows in Parquet files, for the runner. Made by `read_parquet`."""

    listing: Listing
    """Files of the input."""
    schema: pa.Schema
    """Columns read from the files, in order."""
    selects: bool
    """Whether columns were chosen: others are then ignored. Otherwise a new column is an error."""
    source_columns: tuple[str, ...]
    """Names of the columns to add: ``source_file``, ``source_line``, and columns in folder names."""
    quarantines: bool
    """Whether rows with text that is not UTF-8 are quarantined instead of raising."""
    given: tuple[str, ...]
    """Columns whose type the user gave: values of every file are converted."""
    origins: Mapping[str, int]
    """File number from which the type of a column was taken."""
    pages: Mapping[str, int]
    """Columns with large pages, with the bytes held while these are read."""
    checked: pa.Schema
    """Text columns to check even if others are selected, so that every pass quarantines the same rows."""
    made_by: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Input and parameters of the operator that wrote the files for this table alone, shown in the same error as ``asked``."""

    @property
    def files(self) -> Sequence[str]:
        """Paths or URLs, in input order."""
        return self.listing.paths

    @property
    def meta(self) -> pd.DataFrame:
        """Empty block with the columns and dtypes of every block."""
        return empty_block(with_source_fields(self.schema, self.source_columns))

    @property
    def asked(self) -> Mapping[str, Any]:
        """Parameters of the reader, shown in an error if they differ from those of the run to resume."""
        columns = {f"column {field.name!r}": str(field.type) for field in self.schema}
        return {**self.made_by, **columns, "add_source": self.source_columns}

    @property
    def fingerprint(self) -> str:
        """Digest of the listing and of the columns read from it."""
        return fingerprint("parquet", self.listing.fingerprint, str(self.schema), self.selects, self.source_columns)

    @property
    def input_bytes(self) -> int:
        """Size of all files on disk."""
        return self.listing.total_bytes

    @property
    def text_bytes(self) -> int:
        """Approximate decompressed size of all files, without reading them."""
        return int(self.listing.total_bytes * cut.COMPRESSION_RATIO)

    def about_rows(self) -> int | None:
        """Return the approximate number of rows, from the footers of up to `COUNTED_FOOTERS` files."""
        numbers = np.unique(np.linspace(0, len(self.listing) - 1, COUNTED_FOOTERS).astype(np.int64))
        _, rows, _ = row_groups(self.listing, numbers.tolist())
        return int(rows.sum() * self.listing.total_bytes / max(int(self.listing.sizes[numbers].sum()), 1))

    @property
    def reader_factor(self) -> float:
        """Peak bytes held while a block is made, the block included, as a multiple of its ``block_bytes``."""
        return READER_FACTOR

    @property
    def reader_fixed_bytes(self) -> int:
        """Bytes of a task in addition to blocks and their columns: large pages, and decoders of columns that are only checked."""
        reads, kept = (sum(map(leaf_columns, schema.types)) for schema in (self._reads, self.schema))
        return self._page_bytes + column_bytes(reads) - column_bytes(kept)

    @property
    def _page_bytes(self) -> int:
        return sum(self.pages.get(name, 0) for name in self._reads.names)

    @property
    def _reads(self) -> pa.Schema:
        """Columns that are read: those of blocks, and those that are only checked."""
        names = set(self.schema.names)
        return pa.schema([*self.schema, *(field for field in self.checked if field.name not in names)])

    def cut(self, piece_bytes: int) -> Ranges:
        """Cut the input into input splits of about ``piece_bytes`` decoded bytes, by file sizes and footers alone."""
        cut.check_piece(piece_bytes)
        costs = np.maximum(self.listing.sizes * cut.COMPRESSION_RATIO, cut.SMALLEST_FILE_BYTES)
        large = np.flatnonzero(costs >= piece_bytes)
        if len(large) > MOST_FOOTERS:
            large = large[:0]
        files, rows, decoded = row_groups(self.listing, large.tolist())
        whole = np.setdiff1d(np.arange(len(self.listing)), large)
        units = np.concatenate([files, whole])
        order = np.argsort(units, kind="stable")
        lengths = np.concatenate([rows, np.full(len(whole), LARGEST_OFFSET)])
        pieces = np.concatenate(
            [np.clip(np.minimum(-(-decoded // piece_bytes), rows), 1, MOST_PIECES), np.ones(len(whole), np.int64)]
        )
        costs = np.concatenate([decoded, costs[whole]])
        begins = np.concatenate([_rows_before(files, rows), np.zeros(len(whole), np.int64)])[order]
        table = cut.cut_units(lengths[order], pieces[order], costs[order], piece_bytes).table
        first, start, last, stop = table.T
        owners = units[order]
        return Ranges(np.stack([owners[first], begins[first] + start, owners[last], begins[last] + stop], axis=1))

    def cut_files(self, files_per_range: int) -> Ranges:
        """Cut the input into input splits of ``files_per_range`` whole files."""
        return cut.cut_files(np.full(len(self.listing), LARGEST_OFFSET), files_per_range)

    def select(self, columns: Sequence[str]) -> ParquetSource:
        """Return this source with only these columns."""
        chosen = [name for name in columns if name not in self.source_columns]
        return replace(
            self,
            schema=pa.schema([self.schema.field(name) for name in chosen]),
            selects=True,
            source_columns=tuple(name for name in columns if name in self.source_columns),
        )

    def blocks(
        self,
        piece: Range,
        *,
        block_bytes: int,
        largest_row_bytes: int | None = None,
        on_bad_row: Callable[[BadRow], None] | None = None,
        on_long_row: Callable[[OversizeRowError], None] | None = None,
        wanted: RowChoice | None = None,
    ) -> Iterator[pd.DataFrame]:
        """Stream an input split as blocks of about ``block_bytes``; see `Source.blocks`.

        Notes
        -----
        Rows: all (or all that are wanted) but bad ones. Peak extra memory: ``reader_factor`` x block. Computes: no.
        """
        warning = WarnOfBadRows(has_lines=False) if self.quarantines and on_bad_row is None else None
        on_bad = (on_bad_row or warning) if self.quarantines else None
        held: list[tuple[int, int, pa.Table]] = []
        held_bytes = 0
        for file, row, table in self._batches(piece, block_bytes, largest_row_bytes, on_bad, on_long_row):
            if held and held_bytes + table.nbytes > block_bytes:
                yield _only(self._block(held), wanted)
                held_bytes = 0
            held.append((file, row, table))
            held_bytes += table.nbytes
            del table
        if held:
            yield _only(self._block(held), wanted)
        if warning is not None:
            warning.warn()

    def _block(self, held: list[tuple[int, int, pa.Table]]) -> pd.DataFrame:
        """Join batches into a block; ``held`` is emptied."""
        lengths = np.array([len(table) for _, _, table in held], np.int64)
        files = np.repeat(np.array([file for file, _, _ in held], np.int64), lengths)
        shift = np.array([row for _, row, _ in held], np.int64) - (np.cumsum(lengths) - lengths)
        rows = np.arange(int(lengths.sum())) + np.repeat(shift, lengths)
        tables = [table for _, _, table in held]
        held.clear()
        columns = pa.concat_tables(tables).columns
        tables.clear()
        table = in_one_piece(self.schema, columns)
        if self.source_columns:
            table = with_source(table, self.source_columns, files, rows + 1, self.listing)
        return to_block(table, (files << OFFSET_BITS) + rows)

    def _batches(
        self,
        piece: Range,
        block_bytes: int,
        largest_row_bytes: int | None,
        on_bad_row: Callable[[BadRow], None] | None,
        on_long_row: Callable[[OversizeRowError], None] | None,
    ) -> Iterator[tuple[int, int, pa.Table]]:
        """Yield file number, number of the first row, and rows, at most a block in each step."""
        for number in range(piece.first_file, piece.last_file + 1):
            start = piece.start if number == piece.first_file else 0
            stop = piece.stop if number == piece.last_file else LARGEST_OFFSET
            with open_parquet(self.listing, number, names=self._reads.names) as file:
                names = self._check_schema(plain_schema(file.schema_arrow), number)
                ask = self._page_check(number, block_bytes, largest_row_bytes)
                for first, batch in rows_between(self.listing, number, file, names, start, stop, block_bytes, ask):
                    for row, rows in self._good_rows(number, first, batch, largest_row_bytes, on_bad_row, on_long_row):
                        place = row
                        for part in parts_of(rows, block_bytes):
                            yield number, place, part
                            place += len(part)

    def _good_rows(
        self,
        number: int,
        first: int,
        batch: Any,
        largest_row_bytes: int | None,
        on_bad_row: Callable[[BadRow], None] | None,
        on_long_row: Callable[[OversizeRowError], None] | None,
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield a batch with the columns of blocks, without bad and long rows, each part with the number of its first row."""
        path, names = self.listing.paths[number], self.schema.names
        for start, rows in without_bad_texts(self._conform(batch, number), path, first, on_bad_row):
            chosen = rows if len(rows.columns) == len(names) else rows.select(names)
            yield from without_long_rows(chosen, path, start, largest_row_bytes, on_long_row)

    def _page_check(
        self, number: int, block_bytes: int, largest_row_bytes: int | None
    ) -> Callable[[int, Sequence[Chunk], bool], None]:
        """Return a function that raises if the pages of a row group need more memory than a task has."""
        planned = max(self._page_bytes, PAGES_FACTOR * SMALL_BYTES)

        def ask(first: int, chunks: Sequence[Chunk], failed: bool) -> None:
            if largest_row_bytes is None:
                return  # there is no limit
            room = planned + (0 if failed else ROOM_FACTOR * max(largest_row_bytes - block_bytes, 0))
            require_room(self.listing, number, first, chunks, room, look=failed)

        return ask

    def _check_schema(self, found: pa.Schema, number: int) -> list[str]:
        """Return the columns to read from one file; raise if it is incompatible with the schema."""
        expected = {field.name: field.type for field in self._reads}
        for item in found:
            if item.name not in expected:
                if not self.selects:
                    raise SchemaError(
                        f"{self.listing.paths[number]!r} has the column {item.name!r} ({item.type}), which the files "
                        f"read first do not have. To read it, add dtype={{{item.name!r}: ...}}. To ignore such "
                        "columns, name those to read with columns="
                    )
                continue
            require_unlike_names(self.listing, number, item)
            kind = expected[item.name]
            if item.name in self.given or kind.equals(item.type):
                continue
            try:
                fits = widened(item.type, kind).equals(kind)
            except TypeError:
                fits = False
            if not fits:
                origin = self.origins.get(item.name, 0)
                raise type_change(self.listing, item.name, kind, origin, item.type, number)
        names = set(found.names)
        return [name for name in expected if name in names]

    def _conform(self, batch: Any, number: int) -> pa.Table:
        """Return a batch with the columns and types to read."""
        schema, columns = self._reads, []
        places = {name: place for place, name in enumerate(batch.schema.names)}
        for item in schema:
            if item.name not in places:
                columns.append(pa.nulls(len(batch), item.type))
                continue
            column = batch.column(places[item.name])
            try:
                columns.append(column if column.type.equals(item.type) else _cast(column, item.type))
            except pa.ArrowNotImplementedError as exc:
                raise SchemaError(
                    f"{self.listing.paths[number]!r}: the column {item.name!r} has the type {column.type}, not convertible "
                    f"to {item.type}: {exc}. Leave it out with columns=, or write the file again with another type"
                ) from exc
            except pa.ArrowInvalid as exc:
                raise SchemaError(
                    f"{self.listing.paths[number]!r}: the column {item.name!r} has the type {column.type}, but a value "
                    f"does not fit {item.type}: {exc}. Set another type with dtype={{{item.name!r}: ...}}"
                ) from exc
        if not columns:
            return pa.table({"": pa.nulls(len(batch))}).select([])
        return pa.Table.from_arrays(columns, schema=schema)


def _cast(column: Any, kind: pa.DataType) -> Any:
    # Bytes that are not UTF-8 make a bad row, not a column of another type.
    cast = column.cast(options=pc.CastOptions(kind, allow_invalid_utf8=True))
    is_rounded = pa.types.is_decimal(kind) and pa.types.is_floating(column.type)  # Arrow checks all other numbers
    if is_rounded and not cast.cast(column.type).equals(column):
        raise pa.ArrowInvalid("digits after the point would be lost")
    if holds_floats(kind, 32) and becomes_infinite(column, cast):
        raise pa.ArrowInvalid("a number is beyond its largest one")
    return cast


def read_parquet(
    paths: Paths,
    *,
    columns: Sequence[str] | str | None = None,
    dtype: Dtypes | None = None,
    blocksize: int | str | None = None,
    files_per_partition: int | None = None,
    add_source: bool = False,
    on_bad_rows: OnBadRows = "raise",
    backend: Backend = "pandas",
    storage_options: Mapping[str, Any] | None = None,
) -> dd.DataFrame:
    """Read Parquet files as a lazy table.

    Parameters
    ----------
    paths : str, path or list of them
        Files, directories, globs or fsspec URLs. Folders below
        them with names such as ``lang=en`` become text columns, unless the files have such a column.
    columns : list of str, optional
        Columns to read; others are ignored. Default: all.
    dtype : mapping of str to str or pyarrow.DataType, optional
        Types to convert columns to. Also adds columns that the files inspected first do not have. A value that does not fit
        (such as a number beyond the largest one of a smaller float type) is a `SchemaError`; only decimals under a float
        type become the nearest float.
    blocksize : int or str, optional
        Approximate decoded bytes of a Dask partition, such as ``"256MB"``.
    files_per_partition : int, optional
        Files per Dask partition, instead of a size.
    add_source : bool
        Add ``source_file`` (text) and ``source_line`` (int64, the row number from 1).
    on_bad_rows : {"raise", "quarantine"}
        What to do with a row whose text is not UTF-8: raise an error that names file, row and column, or skip and report
        it. With ``"quarantine"`` all text columns are read and checked, also where a chain uses only others.
    backend : {"pandas", "cudf"}
        Where to put the blocks that are read: ``"cudf"`` adds a `to_backend` step and needs a GPU.
    storage_options : mapping, optional
        Options for the fsspec file system of URLs.

    Returns
    -------
    dask.dataframe.DataFrame
        Text is ``string[pyarrow]``, numbers are ``Int64`` and the like, the rest is `pandas.ArrowDtype`, with
        dictionaries decoded. The index ``address`` (int64) is the file number times 2^40 plus the row number.

    Raises
    ------
    InputError
        Nothing matches an entry of ``paths``.
    InputChangedError
        While reading: a file was changed, appended to or replaced after it was listed.
    CorruptFileError
        A file is truncated or not a Parquet file.
    BadRowError
        A text is not UTF-8, and ``on_bad_rows="raise"``.
    SchemaError
        A column has incompatible types in the files.
    ColumnError
        ``columns`` names a missing column, or the files have a ``source_file`` or ``source_line`` of their own.
    ParameterError
        An argument is invalid.
    UnsupportedBackendError
        ``backend="cudf"`` where there is no GPU.
    MissingExtraError
        ``backend="cudf"`` without the gpu extra.

    See Also
    --------
    read_jsonl, read_csv, write_parquet

    Notes
    -----
    Rows: all but bad ones. Columns: as in the footers, or as named; with ``add_source``, ``source_file`` and
    ``source_line``.
    Backends: pandas; cudf with ``backend="cudf"``. Peak extra memory: 2.5 x block. Computes: no; it reads the footers
    of up to 64 files, or of 16 of them, evenly spread, if there are more, and of the 16 largest, and those of files larger
    than a partition.

    The peak is higher for rows of very uneven length (31 MB with blocks of 4 MB, 500 KB rows after short ones), and by up
    to three times the size of a page of more than 2 MB, because pyarrow decompresses a page whole. The first pages of the
    16 largest files are checked, and the plan includes them. A row group with larger ones is read when its task runs
    exclusively; if that is not enough, `OversizePageError` names the memory needed.

    Examples
    --------
    >>> import pathlib, tempfile, pandas as pd
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.parquet"
    >>> pd.DataFrame({"id": [1, 2], "text": ["one", "two"]}).to_parquet(path)
    >>> read_parquet(path, columns=["text"]).compute()
            text
    address
    0        one
    1        two
    """
    require_gpu("read_parquet", backend)
    choose("read_parquet", "on_bad_rows", on_bad_rows, OnBadRows)
    listing = list_files(paths, suffixes=SUFFIXES, storage_options=storage_options)
    return table_of(
        "read_parquet",
        listing,
        columns=columns,
        dtype=dtype,
        blocksize=blocksize,
        files_per_partition=files_per_partition,
        add_source=add_source,
        on_bad_rows=on_bad_rows,
        backend=backend,
    )


def table_of(
    operator: str,
    listing: Listing,
    *,
    columns: Sequence[str] | str | None,
    dtype: Dtypes | None,
    blocksize: int | str | None,
    files_per_partition: int | None,
    add_source: bool,
    on_bad_rows: OnBadRows,
    backend: Backend,
    in_folders: tuple[str, ...] | None = None,
) -> dd.DataFrame:
    """Return the table of listed files; ``in_folders`` are its columns in folder names, by default those that all files have."""
    block_bytes = block_bytes_of(operator, blocksize, files_per_partition, listing.total_bytes)
    check_address_space(listing, operator)
    given = requested_types(dtype)
    wanted = None if columns is None else frozenset([columns] if isinstance(columns, str) else columns)
    schema, origins = find_schema(listing, given, wanted)
    selects = columns is not None
    columns, in_folders = split_folder_columns(listing, schema.names, columns, in_folders)
    chosen = chosen_columns(schema, columns, operator)
    schema = pa.schema([schema.field(name) for name in chosen])
    quarantines = on_bad_rows == "quarantine"
    source = ParquetSource(
        listing=listing,
        schema=schema,
        selects=selects,
        source_columns=(*in_folders, *schema_with_source(schema, add_source, operator).names[len(schema) :]),
        quarantines=quarantines,
        given=tuple(given),
        origins=origins,
        pages=sampled_pages(listing, chosen),
        checked=pa.schema([field for field in schema if quarantines and has_text(field.type)]),
    )
    ranges = source.cut(block_bytes) if files_per_partition is None else source.cut_files(files_per_partition)
    return from_source(source, ranges, block_bytes=block_bytes, explicit=blocksize is not None, backend=backend)


def _rows_before(files: Any, rows: Any) -> Any:
    """Return for each row group the number of rows of its file before it."""
    before = np.cumsum(rows) - rows
    firsts = np.searchsorted(files, files, side="left")
    return before - before[firsts] if len(rows) else before


def _only(block: pd.DataFrame, wanted: RowChoice | None) -> pd.DataFrame:
    """Return the chosen rows of a block, whose row IDs ascend."""
    return block if wanted is None else keep_rows(block, wanted(block.index.to_numpy()))

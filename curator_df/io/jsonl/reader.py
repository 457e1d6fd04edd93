# SPDX-License-Identifier: Apache-2.0
"""JSON Lines as a lazy table: `read_jsonl`, and its source.

`scan` and `parse` decide what a line contains, `schema` what a column contains, and `lines` where lines begin.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.arguments import choose
from curator_df.core.backend import Backend
from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.source import BadRow, Range, Ranges, RowChoice
from curator_df.core.runner.progress import with_progress_lines
from curator_df.errors import BadRowError, OversizeRowError, SchemaError
from curator_df.io import cut
from curator_df.io.bad_rows import WarnOfBadRows, collect_trailing, report
from curator_df.io.device_transfer import require_gpu
from curator_df.io.folder_columns import split_folder_columns
from curator_df.io.formats import COMPRESSED_SUFFIXES, MOST_LEVELS, levels_of_fields, why_no_row, wide_encoding
from curator_df.io.frames import (
    check_address_space,
    chosen_columns,
    empty_block,
    schema_with_source,
    with_source_fields,
)
from curator_df.io.jsonl.blocks import ChunkReader
from curator_df.io.jsonl.lines import UTF8_BOM, Part, read_chunks
from curator_df.io.jsonl.parse import Failure, require_possible
from curator_df.io.jsonl.schema import (
    TEXT,
    Dtypes,
    block_type,
    infer,
    requested_types,
    rows_of,
    shorten,
    warn_of_near_names,
)
from curator_df.io.listing import Listing, Paths, list_files
from curator_df.io.partitions import block_bytes_of, from_source
from curator_df.io.streams.file_stream import ByteStream, is_compressed, open_bytes
from curator_df.kernels.compiling.kernel_sets import JSON_LINES
from curator_df.memory.sizes import show_count

OnBadRows = Literal["raise", "quarantine"]
SUFFIXES = tuple(
    plain + packed for plain in (".jsonl", ".ndjson", ".json", ".jsonlines") for packed in ("", *COMPRESSED_SUFFIXES)
)
"""Required endings of files found in a directory."""
HEAD_FILES = 16
"""Number of files whose first lines are read to determine the columns."""
HEAD_BYTES = 1_000_000
"""Number of decompressed bytes read from each."""
READER_FACTOR = 3.1
r"""Memory multiplier of the reader, per byte of the block's text. Measured in a fresh process (VmHWM, 32 MB blocks,
system memory pool): prose 2.0 (one file and gzip; 16 files 1.3), one-letter words in rows of 70 bytes 2.5, CJK as
\uXXXX 1.5, rows ``{}`` 1.9 and with ``add_source`` 2.4. A row longer than a block is parsed in one piece and needs
most, in its own bytes: 200 MB of ASCII 2.9, of CJK 3.0, of CJK as \uXXXX 2.0, with emoji 3.0. (orjson and then Arrow:
3.0, 2.7, 2.3, 5.5: it is not used, so that every row is read by the same rules.)"""
SHOWN_BYTES = 80
NEWLINE = b"\n"


@dataclass(frozen=True)
class JsonlSource:
    """Source of JSON lines in files, for the runner. Made by `read_jsonl`."""

    listing: Listing
    """Files of the input."""
    schema: pa.Schema
    """Columns read from the files, in order."""
    selects: bool
    """Whether columns were chosen: other fields are then ignored. Otherwise a new field is an error."""
    source_columns: tuple[str, ...]
    """Names of the columns to add: ``source_file``, ``source_line``, and columns in folder names."""
    quarantines: bool
    """Whether bad rows are quarantined instead of raising."""
    given: tuple[str, ...]
    """Columns whose type the user gave."""
    origins: Mapping[str, int]
    """File number from which the type of a column was taken."""

    @property
    def files(self) -> Sequence[str]:
        """Paths or URLs, in input order."""
        return self.listing.paths

    @property
    def compiled(self) -> tuple[str, ...]:
        """Names of the compiled functions that read the lines."""
        return JSON_LINES

    @property
    def meta(self) -> pd.DataFrame:
        """Empty block with the columns and dtypes of every block."""
        return empty_block(with_source_fields(self.schema, self.source_columns))

    @property
    def as_text(self) -> tuple[str, ...]:
        """Columns in which numbers and booleans are read as text: those with the requested type text."""
        return tuple(field.name for field in self.schema if field.name in self.given and field.type == TEXT)

    @property
    def asked(self) -> Mapping[str, Any]:
        """Parameters of the reader, shown in an error if they differ from those of the run to resume."""
        columns = {f"column {field.name!r}": str(field.type) for field in self.schema}
        on_bad_rows = "quarantine" if self.quarantines else "raise"
        return {**columns, "add_source": self.source_columns, "dtype": self.as_text, "on_bad_rows": on_bad_rows}

    @property
    def inferred(self) -> frozenset[str]:
        """Columns whose type was inferred from the first lines."""
        return frozenset(self.schema.names) - frozenset(self.given)

    @property
    def fingerprint(self) -> str:
        """Digest of the listing and of the columns read from it."""
        return fingerprint(
            "jsonl",
            self.listing.fingerprint,
            str(self.schema),
            self.as_text,
            self.selects,
            self.source_columns,
            self.quarantines,
        )

    @property
    def input_bytes(self) -> int:
        """Size of all files on disk."""
        return self.listing.total_bytes

    @property
    def text_bytes(self) -> int:
        """Approximate decompressed size of all files, without reading them."""
        factors = np.where(_compressed(self.listing.paths), cut.COMPRESSION_RATIO, 1)
        return int((self.listing.sizes * factors).sum())

    def why_no_columns(self) -> str:
        """Explain why no columns were found; the first lines of the files are read again."""
        return why_no_columns(self.listing, quarantines=self.quarantines)

    def about_rows(self) -> int | None:
        """Return None: lines are counted by reading them."""
        return None

    @property
    def reader_factor(self) -> float:
        """Memory multiplier: peak bytes while a block is made, the block included, as a multiple of its ``block_bytes``."""
        return READER_FACTOR

    @property
    def reader_fixed_bytes(self) -> int:
        """Bytes held in addition to blocks, always 0."""
        return 0

    def cut(self, piece_bytes: int) -> Ranges:
        """Cut the input into input splits of about ``piece_bytes`` decompressed bytes, by file sizes alone."""
        return cut.cut_bytes(self.listing.sizes, _compressed(self.listing.paths), piece_bytes)

    def cut_files(self, files_per_range: int) -> Ranges:
        """Cut the input into input splits of ``files_per_range`` whole files."""
        return cut.cut_files(self.listing.sizes, files_per_range)

    def select(self, columns: Sequence[str]) -> JsonlSource:
        """Return this source with only these columns; other fields are then ignored."""
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
        warning = WarnOfBadRows() if self.quarantines and on_bad_row is None else None
        reader = ChunkReader(
            source=self,
            largest_row_bytes=largest_row_bytes,
            on_bad_row=(on_bad_row or warning) if self.quarantines else None,
            on_long_row=on_long_row,
            wanted=wanted,
        )
        trailing: list[BadRow] = []
        chunks = read_chunks(
            self._parts(piece),
            functools.partial(self.open_part, trailing=trailing) if self.quarantines else self.open_part,
            block_bytes=block_bytes,
            largest_row_bytes=largest_row_bytes,
            on_long_row=on_long_row,
        )
        try:
            for chunk in chunks:
                yield from reader.blocks(chunk, block_bytes)
        except (BadRowError, SchemaError) as exc:
            chunks.throw(exc)  # into the code that holds the file open: if the file changed, that is the error
            raise
        report(trailing, reader.on_bad_row)
        if warning is not None:
            warning.warn()

    def open_part(self, path: str, trailing: list[BadRow] | None = None) -> AbstractContextManager[ByteStream]:
        """Open one of the files as decompressed bytes; ``trailing`` takes data that follows the compressed data."""
        return open_bytes(
            path,
            self.listing.storage_options,
            listed=self.listing.listed(path),
            on_trailing=None if trailing is None else collect_trailing(path, trailing),
        )

    def failure_error(self, row: BadRow, failure: Failure) -> Exception:
        """Make the error for a line without a row."""
        where = f"{row.path!r}, line {row.line:,} (byte {row.offset:,})"
        shown = f"It begins {row.raw[:SHOWN_BYTES]!r}."
        levels = {} if failure.kind == "syntax" else levels_of_fields(row.raw)
        deepest = levels.get(failure.column, 0) if failure.column else max(levels.values(), default=0)
        if deepest > MOST_LEVELS:  # which no type can hold
            is_new = failure.kind == "unknown"
            column = shorten(failure.column)
            reason = f"{failure.reason}, and has a" if is_new else f"the column {column!r} has a"
            error = BadRowError if failure.column in self.given else SchemaError
            return error(
                f"{where}: {reason} value that nests {deepest:,} levels deep, but a column can have {MOST_LEVELS}. {shown} "
                "Leave it out by choosing other columns with columns=, or quarantine such rows with on_bad_rows='quarantine'"
            )
        if failure.kind == "unknown":
            return SchemaError(
                f"{where}: {failure.reason}, which come from the first lines of up to {HEAD_FILES} files. {shown} "
                f"Add it with dtype={{{shorten(failure.column)!r}: ...}}, or choose the columns to read with columns=; other "
                "fields are then ignored"
            )
        if failure.kind == "type" and failure.column not in self.given and failure.column in self.origins:
            origin = self.listing.paths[self.origins[failure.column]]
            return SchemaError(
                f"{where}: {failure.reason}. The type was inferred from {origin!r}. {shown} Set it with "
                f"dtype={{{shorten(failure.column)!r}: ...}}, leave the column out with columns=, or quarantine such rows with "
                "on_bad_rows='quarantine'"
            )
        return BadRowError(
            f"{where}: {failure.reason.rstrip('.')}. {shown} Quarantine such rows with on_bad_rows='quarantine'"
        )

    def _parts(self, piece: Range) -> Iterator[Part]:
        paths = self.listing.paths
        for file in range(piece.first_file, piece.last_file + 1):
            start = piece.start if file == piece.first_file else 0
            if is_compressed(paths[file]):
                yield Part(file, paths[file], 0, None)
            else:
                stop = piece.stop if file == piece.last_file else int(self.listing.sizes[file])
                yield Part(file, paths[file], start, stop)


def read_jsonl(
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
    r"""Read JSON Lines files as a lazy table.

    Parameters
    ----------
    paths : str, path or list of them
        Files, directories, globs or fsspec URLs; ``.gz``, ``.zst``, ``.bz2`` and ``.xz`` are decompressed.
        Folders below them with names such as ``lang=en`` become text columns, unless the files have such a column.
    columns : list of str, optional
        Columns to read; other fields are ignored. Default: every field in the first lines of up to 16 files.
    dtype : mapping of str to str or pyarrow.DataType, optional
        Types of columns, instead of the inferred ones. Also adds columns that the first lines do not have. Under
        ``"string"`` numbers and booleans are read literally: ``{"id": 5}`` and ``{"id": "b5"}`` are compatible.
        Any other value of another JSON type is a bad row. Under ``"float64"`` whole numbers beyond 2^53 are rounded.
    blocksize : int or str, optional
        Approximate decompressed bytes of a Dask partition, such as ``"256MB"``. A compressed file is never split.
    files_per_partition : int, optional
        Files per Dask partition, instead of a size.
    add_source : bool
        Add ``source_file`` (text) and ``source_line`` (int64, from 1).
    on_bad_rows : {"raise", "quarantine"}
        What to do with a line that cannot be read as a row, or with other data that follows the compressed data of a file:
        raise an error that names file, line and byte, or skip and report it. A value that does not fit its column (such
        as a number beyond the largest one of its float type), or a field that is not a column, also makes a bad row. If
        the first lines of a file have several types in a column, ``"quarantine"`` takes the type of most of them (of the
        first in a tie), and the others are bad rows; files that disagree are a `SchemaError` either way.
    backend : {"pandas", "cudf"}
        Where to put the blocks that are read: ``"cudf"`` adds a `to_backend` step and needs a GPU.
    storage_options : mapping, optional
        Options for the fsspec file system of URLs.

    Returns
    -------
    dask.dataframe.DataFrame
        Text is ``string[pyarrow]``, numbers are ``Int64`` and the like, the rest is `pandas.ArrowDtype`. The index
        ``address`` (int64) is the file number times 2^40 plus the byte at which the line begins.

    Raises
    ------
    InputError
        Nothing matches an entry of ``paths``.
    InputChangedError
        While reading: a file was changed, appended to or replaced after it was listed.
    SchemaError
        A column has incompatible types in the first lines of the files.
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
    read_parquet, read_csv, write_jsonl

    Notes
    -----
    Rows: all. Columns: as found in the first lines of the files, or as named; with ``add_source``, ``source_file`` and
    ``source_line``. Backends: pandas; cudf with ``backend="cudf"``. Peak extra memory: 3.1 x block. Computes: no; it
    reads the first 1 MB of up to 16 files.

    Fields inside objects are checked like columns, but unknown ones are ignored when ``columns`` is given. A whole
    number that a column of float64 cannot hold exactly makes a bad row, unless ``dtype`` requests that type. NaN and
    Infinity, which are not JSON, are accepted. A column whose values nest more than 100 levels deep is an error.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.jsonl"
    >>> _ = path.write_text('{"id": 1, "text": "one"}\n{"id": 2, "text": "two"}\n')
    >>> read_jsonl(path).compute()
            id text
    address
    0        1  one
    25       2  two
    """
    require_gpu("read_jsonl", backend)
    choose("read_jsonl", "on_bad_rows", on_bad_rows, OnBadRows)
    listing = list_files(paths, suffixes=SUFFIXES, storage_options=storage_options)
    block_bytes = block_bytes_of("read_jsonl", blocksize, files_per_partition, listing.total_bytes)
    check_address_space(listing, "read_jsonl")
    given = requested_types(dtype)
    require_possible(given)
    schema, origins = find_schema(
        listing,
        given,
        None if columns is None else list(_as_list(columns)),
        quarantines=on_bad_rows == "quarantine",
    )
    selects = columns is not None
    columns, in_folders = split_folder_columns(listing, schema.names, columns)
    later = ". If a column occurs only in later rows, set its type with dtype=, such as dtype={'score': 'float64'}"
    if not schema.names and columns:
        later = f", because {why_no_columns(listing, quarantines=on_bad_rows == 'quarantine')}{later}"
    chosen = chosen_columns(schema, columns, "read_jsonl", later, are_all=_heads_are_all(listing))
    schema = pa.schema([schema.field(name) for name in chosen])
    source = JsonlSource(
        listing=listing,
        schema=schema,
        selects=selects,
        source_columns=(*in_folders, *schema_with_source(schema, add_source, "read_jsonl").names[len(schema) :]),
        quarantines=on_bad_rows == "quarantine",
        given=tuple(given),
        origins=origins,
    )
    ranges = source.cut(block_bytes) if files_per_partition is None else source.cut_files(files_per_partition)
    return from_source(
        source,
        ranges,
        block_bytes=block_bytes,
        explicit=blocksize is not None,
        backend=backend,
        in_parts=files_per_partition is None,
    )


@with_progress_lines("reading the schemas of the input files")
def find_schema(
    listing: Listing, given: Mapping[str, pa.DataType], columns: Sequence[str] | None, *, quarantines: bool = False
) -> tuple[pa.Schema, dict[str, int]]:
    """Find the columns and their types from the first lines of files spread over the listing.

    Nothing is read if the user gave the type of every column to be read.

    Returns
    -------
    pyarrow.Schema
        Columns of blocks.
    dict of str to int
        File number from which the type of each column came.
    """
    if columns is not None and set(columns) <= set(given):
        return pa.schema([(name, given[name]) for name in columns]), {}
    heads = _heads(listing, quarantines=quarantines)
    rows = _rows(heads)
    if not any(found for _, found in rows) and not (quarantines and given):
        _refuse_other_formats(listing, heads)
    _require_names(listing, rows, heads, given)
    wanted = None if columns is None else set(columns)
    types, origins = infer(rows, given, lambda number: listing.paths[number], wanted, quarantines=quarantines)
    warn_of_near_names("read_jsonl", given, types)
    for name, kind in given.items():
        types.setdefault(name, kind)
    fields = [(name, kind if name in given else block_type(kind)) for name, kind in types.items()]
    return pa.schema(fields), origins


def _require_names(
    listing: Listing,
    rows: Sequence[tuple[int, list[tuple[int, dict[str, Any]]]]],
    heads: Sequence[tuple[int, bytes]],
    given: Mapping[str, pa.DataType],
) -> None:
    """Raise if the first row of a file is so long that its first field was not read completely, and no other row helps."""
    if given or any(row for _, found in rows for _, row in found):
        return
    for number, head in heads:
        if len(head) == HEAD_BYTES and NEWLINE not in head and head.lstrip().startswith(b"{"):
            raise SchemaError(
                f"{listing.paths[number]!r}, line 1 (byte 0): no field of the row is complete within the first "
                f"{HEAD_BYTES:,} bytes. It begins {head[:SHOWN_BYTES]!r}. Set the columns to read with columns= and their "
                "types with dtype="
            )


def why_no_columns(listing: Listing, *, quarantines: bool = False) -> str:
    """Explain why no columns are found in files: they have no rows, or rows without fields."""
    heads = _heads(listing, quarantines=quarantines)
    if any(found for _, found in _rows(heads)):
        return f"the first rows of {show_count(len(listing), 'file')} are objects without fields"
    looked_at = "" if len(heads) == len(listing) else f" (the first lines of {len(heads):,} were read)"
    return f"no rows were found in {show_count(len(listing), 'file')}{looked_at}"


def _heads(listing: Listing, *, quarantines: bool) -> list[tuple[int, bytes]]:
    """Return the first bytes of files spread over the listing, each after the number of its file."""
    numbers = np.unique(np.linspace(0, len(listing) - 1, min(HEAD_FILES, len(listing))).astype(np.int64))
    return [(number, _head(listing, number, quarantines)) for number in numbers.tolist()]


def _heads_are_all(listing: Listing) -> bool:
    """Tell whether the first bytes of some files are all bytes of all files."""
    is_small = len(listing) <= HEAD_FILES and not (len(listing) and listing.sizes.max() > HEAD_BYTES)
    return is_small and not any(is_compressed(path) for path in listing.paths)


def _rows(heads: Sequence[tuple[int, bytes]]) -> list[tuple[int, list[tuple[int, dict[str, Any]]]]]:
    return [(number, rows_of(head, whole=len(head) < HEAD_BYTES)) for number, head in heads]


def _head(listing: Listing, number: int, quarantines: bool) -> bytes:
    buffer, filled = bytearray(HEAD_BYTES), 0
    path = listing.paths[number]
    on_trailing = collect_trailing(path, []) if quarantines else None  # it is reported where the rows are read
    with open_bytes(path, listing.storage_options, listed=listing.listed(path), on_trailing=on_trailing) as stream:
        while filled < HEAD_BYTES and (read := stream.readinto(memoryview(buffer)[filled:])):
            filled += read
    return bytes(buffer[:filled])


def _refuse_other_formats(listing: Listing, heads: Sequence[tuple[int, bytes]]) -> None:
    """Raise if the files are not blank, but contain no row; blank files are an empty table."""
    for number, head in heads:
        text = head.removeprefix(UTF8_BOM).lstrip()
        if text:
            skipped = head[: len(head) - len(text)]
            first = (text if wide_encoding(text[:SHOWN_BYTES]) else text.partition(b"\n")[0]).removesuffix(b"\r")
            reason = why_no_row(first, listing.paths[number], is_first=True)
            raise BadRowError(
                f"{listing.paths[number]!r}, line {skipped.count(NEWLINE) + 1:,} (byte {len(skipped):,}): {reason}. It "
                f"begins {first[:SHOWN_BYTES]!r}. No valid row was found at the start of {show_count(len(heads), 'file')}. "
                "read_jsonl needs one JSON object on each line: correct the input, or use the reader of its format"
            )


def _as_list(columns: Sequence[str] | str) -> Sequence[str]:
    return [columns] if isinstance(columns, str) else columns


@functools.lru_cache(maxsize=8)
def _compressed(paths: tuple[str, ...]) -> Any:
    return np.fromiter((is_compressed(path) for path in paths), np.bool_, len(paths))

# SPDX-License-Identifier: Apache-2.0
"""CSV and other delimited text as a lazy table: `read_csv`, and its source."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.arguments import choose, strings_of
from curator_df.core.backend import Backend
from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.source import BadRow, Range, Ranges, RowChoice
from curator_df.core.runner.progress import with_progress_lines
from curator_df.errors import OversizeRowError, ParameterError, SchemaError, outside_level
from curator_df.io import cut
from curator_df.io.bad_rows import WarnOfBadRows, collect_trailing, report
from curator_df.io.csv.blocks import CsvBlocks, fields_of, is_whole, record_bytes, repeats_of
from curator_df.io.csv.columns import infer_types, parse, require_possible
from curator_df.io.csv.records import Dialect, RecordReader, TooLong
from curator_df.io.device_transfer import require_gpu
from curator_df.io.folder_columns import split_folder_columns
from curator_df.io.formats import COMPRESSED_SUFFIXES
from curator_df.io.frames import (
    check_address_space,
    chosen_columns,
    empty_block,
    schema_with_source,
    with_source_fields,
)
from curator_df.io.jsonl.reader import HEAD_FILES, OnBadRows
from curator_df.io.jsonl.schema import HEAD_ROWS, TEXT, Dtypes, requested_types, require_text, warn_of_near_names
from curator_df.io.listing import Listing, Paths, list_files
from curator_df.io.partitions import block_bytes_of, from_source
from curator_df.io.streams.file_stream import is_compressed, open_bytes
from curator_df.kernels.compiling.kernel_sets import CSV_RECORDS
from curator_df.memory.sizes import show_count

SUFFIXES = tuple(plain + packed for plain in (".csv", ".tsv", ".tab") for packed in ("", *COMPRESSED_SUFFIXES))
"""Required endings of files found in a directory."""
READER_FACTOR = 4.0
"""Memory multiplier of the reader, per byte of the block's text. Measured (tests/io/test_reader_memory.py)."""
HEAD_BLOCK_BYTES = 1_000_000
"""Bytes of a file that are read to determine the columns, unless its first records are longer."""
LONGEST_HEAD_BYTES = 64_000_000
"""Longest of the first records that is read for that."""


@dataclass(frozen=True)
class CsvSource:
    """Source of records in CSV files, for the runner. Made by `read_csv`."""

    listing: Listing
    """Files of the input."""
    schema: pa.Schema
    """Columns read from the files, in order."""
    dialect: Dialect
    """Form of the files."""
    names: tuple[str, ...] | None
    """Names of the fields, if the files have no header."""
    selects: bool
    """Whether columns were chosen: other fields are then ignored. Otherwise a new field is an error."""
    source_columns: tuple[str, ...]
    """Names of the columns to add: ``source_file``, ``source_line``, and columns in folder names."""
    quarantines: bool
    """Whether bad rows are quarantined instead of raising."""
    given: tuple[str, ...]
    """Columns whose type the user gave."""
    reader_factor: float = READER_FACTOR
    """Peak bytes held while a block is made, the block included, as a multiple of its ``block_bytes``."""
    reader_fixed_bytes: int = 0
    """Bytes held in addition to blocks, always 0."""

    @property
    def files(self) -> Sequence[str]:
        """Paths or URLs, in input order."""
        return self.listing.paths

    @property
    def compiled(self) -> tuple[str, ...]:
        """Names of the compiled functions that read the records."""
        return CSV_RECORDS

    @property
    def meta(self) -> pd.DataFrame:
        """Empty block with the columns and dtypes of every block."""
        return empty_block(with_source_fields(self.schema, self.source_columns))

    @property
    def asked(self) -> Mapping[str, Any]:
        """Parameters of the reader, shown in an error if they differ from those of the run to resume."""
        columns = {f"column {field.name!r}": str(field.type) for field in self.schema}
        on_bad_rows = "quarantine" if self.quarantines else "raise"
        form = {"delimiter": self.dialect.delimiter, "quote": self.dialect.quote, "names": self.names}
        return {**columns, **form, "add_source": self.source_columns, "on_bad_rows": on_bad_rows}

    @property
    def fingerprint(self) -> str:
        """Digest of the listing and of the columns read from it."""
        asked = (str(self.schema), self.dialect, self.names, self.selects, self.source_columns, self.quarantines)
        given = tuple(name for name in self.schema.names if name in self.given)
        return fingerprint("csv", self.listing.fingerprint, *asked, given)

    @property
    def input_bytes(self) -> int:
        """Size of all files on disk."""
        return self.listing.total_bytes

    @property
    def text_bytes(self) -> int:
        """Approximate decompressed size of all files, without reading them."""
        return int(self._about_bytes().sum())

    def why_no_columns(self) -> str:
        """Explain why no columns were found."""
        return f"no header was found in {show_count(len(self.listing), 'file')}"

    def about_rows(self) -> int | None:
        """Return None: records are counted by reading them."""
        return None

    def cut(self, piece_bytes: int) -> Ranges:
        """Cut the input into input splits of whole files, of about ``piece_bytes`` decompressed bytes or of one file."""
        cut.check_piece(piece_bytes)
        costs = np.maximum(self._about_bytes(), cut.SMALLEST_FILE_BYTES)
        return cut.cut_units(self.listing.sizes, np.ones(len(costs), np.int64), costs, piece_bytes)

    def cut_files(self, files_per_range: int) -> Ranges:
        """Cut the input into input splits of ``files_per_range`` whole files."""
        return cut.cut_files(self.listing.sizes, files_per_range)

    def select(self, columns: Sequence[str]) -> CsvSource:
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
        aside = (on_bad_row or warning) if self.quarantines else None
        blocks = CsvBlocks(
            self,
            block_bytes=block_bytes,
            largest_row_bytes=largest_row_bytes,
            on_bad_row=aside,
            on_long_row=on_long_row,
            wanted=wanted,
        )
        trailing: list[BadRow] = []
        for file in range(piece.first_file, piece.last_file + 1):
            yield from blocks.of_file(file, trailing)
            report(trailing, aside)
            trailing.clear()
        yield from blocks.rest()
        if warning is not None:
            warning.warn()

    def is_whole_file(self, file: int) -> bool:  # noqa: ARG002 - every file
        """Return whether a file can only be read from its beginning: True, because a line end may be in quotes."""
        return True

    def open_file(self, file: int, trailing: list[BadRow] | None = None) -> Any:
        """Open one of the files as decompressed bytes; ``trailing`` takes data that follows the compressed data."""
        path = self.listing.paths[file]
        return open_bytes(
            path,
            self.listing.storage_options,
            listed=self.listing.listed(path),
            on_trailing=None if trailing is None else collect_trailing(path, trailing),
        )

    def _about_bytes(self) -> npt.NDArray[np.int64]:
        packed = np.fromiter((is_compressed(path) for path in self.files), np.bool_, len(self.listing))
        return np.where(packed, self.listing.sizes * cut.COMPRESSION_RATIO, self.listing.sizes)


def read_csv(
    paths: Paths,
    *,
    delimiter: str = ",",
    quote: str | None = '"',
    names: Sequence[str] | None = None,
    columns: Sequence[str] | str | None = None,
    dtype: Dtypes | None = None,
    blocksize: int | str | None = None,
    files_per_partition: int | None = None,
    add_source: bool = False,
    on_bad_rows: OnBadRows = "raise",
    backend: Backend = "pandas",
    storage_options: Mapping[str, Any] | None = None,
) -> dd.DataFrame:
    r"""Read CSV files, or text with another delimiter, as a lazy table.

    Parameters
    ----------
    paths : str, path or list of them
        Files, directories, globs or fsspec URLs; ``.gz``, ``.zst``, ``.bz2`` and ``.xz`` are decompressed.
        Folders below them with names such as ``lang=en`` become text columns, unless the files have such a column.
    delimiter : str, default ","
        Character between two fields; ``"\t"`` for TSV.
    quote : str or None, default '"'
        Quotation mark around fields that contain the delimiter, line ends or quotation marks, which are then doubled
        (RFC 4180). None: no field is quoted, and quotation marks are text.
    names : list of str, optional
        Names of the fields in files without a header. By default the first record of each file is its header; the
        fields of different files may be in different orders.
    columns : list of str, optional
        Columns to read; other fields are ignored. Default: every field of the headers of up to 16 files.
    dtype : mapping of str to str or pyarrow.DataType, optional
        Types of columns, instead of the inferred ones. Also adds columns that the first files do not have, which are
        null where a file lacks them.
    blocksize : int or str, optional
        Approximate decompressed bytes of a Dask partition, such as ``"256MB"``.
    files_per_partition : int, optional
        Files per Dask partition, instead of a size.
    add_source : bool
        Add ``source_file`` (text) and ``source_line`` (int64, from 1: the line at which the record begins).
    on_bad_rows : {"raise", "quarantine"}
        What to do with a record that cannot be read as a row, or with other data that follows the compressed data of a
        file: raise an error that names file, line and byte, or skip and report it. Bad rows have another number of
        fields than the header, a value that does not fit its column (such as a number beyond the largest one of its float
        type), text after a closing quotation mark, text that is not UTF-8, or a quotation mark that never closes; or they
        repeat the names of all fields (if there are several) in their order, as in joined files.
    backend : {"pandas", "cudf"}
        Where to put the blocks that are read: ``"cudf"`` adds a `to_backend` step and needs a GPU.
    storage_options : mapping, optional
        Options for the fsspec file system of URLs.

    Returns
    -------
    dask.dataframe.DataFrame
        Text is ``string[pyarrow]``, numbers are ``Int64`` and the like, the rest is `pandas.ArrowDtype`. The index
        ``address`` (int64) is the file number times 2^40 plus the byte at which the record begins.

    Raises
    ------
    InputError
        Nothing matches an entry of ``paths``.
    InputChangedError
        While reading: a file was changed, appended to or replaced after it was listed.
    SchemaError
        A header has a field that is not a column, or ``dtype`` has a type that text cannot be converted to.
    ColumnError
        A header has a name twice, ``columns`` names a missing column, or the files have a ``source_file`` of their own.
    BadRowError
        A file is not CSV, or while reading: a record is a bad row.
    ParameterError
        An argument is invalid.
    UnsupportedBackendError
        ``backend="cudf"`` where there is no GPU.
    MissingExtraError
        ``backend="cudf"`` without the gpu extra.

    See Also
    --------
    read_jsonl, read_parquet, read_text_files

    Notes
    -----
    Rows: all. Columns: as found in the headers, or as named; with ``add_source``, ``source_file`` and ``source_line``.
    Backends: pandas; cudf with ``backend="cudf"``. Peak extra memory: 4.0 x block. Computes: no; it reads the first 1 MB
    of up to 16 files.

    A file is never split, because a line end may be in quotes: pass several files to use several workers.
    Fields of a column are ``int64`` (or ``uint64``), ``float64`` or ``bool`` if all of its values in the first rows are
    spelled as in JSON (``true`` and ``True`` alike), otherwise text: ``007`` and dates stay text. A later value that does
    not fit makes a bad row, also a whole number that float64 cannot hold exactly, unless ``dtype`` requests the type. An
    empty field is null; ``""`` in a text column is an empty text. Blank lines are skipped, and so is a UTF-8 byte order
    mark. A quotation mark opens a field only at its beginning; if it never closes, its line is a bad row, and reading goes
    on with the next line.

    References
    ----------
    .. [1] RFC 4180, Common Format and MIME Type for Comma-Separated Values (CSV) Files, 2005

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_text('id,text\n1,one\n2,"two, with\na line end"\n')
    >>> read_csv(path).compute()
             id                    text
    address
    8         1                     one
    14        2  two, with\na line end
    """
    operator = "read_csv"
    require_gpu(operator, backend)
    choose(operator, "on_bad_rows", on_bad_rows, OnBadRows)
    dialect = _dialect(delimiter, quote)
    listing = list_files(paths, suffixes=SUFFIXES, storage_options=storage_options)
    block_bytes = block_bytes_of(operator, blocksize, files_per_partition, listing.total_bytes)
    check_address_space(listing, operator)
    given = requested_types(dtype)
    require_possible(given)
    source = CsvSource(
        listing=listing,
        schema=pa.schema([]),
        dialect=dialect,
        names=None if names is None else _names(strings_of(operator, "names", names)),
        selects=columns is not None,
        source_columns=(),
        quarantines=on_bad_rows == "quarantine",
        given=tuple(given),
    )
    schema = _find_schema(source, given)
    columns, in_folders = split_folder_columns(listing, schema.names, columns)
    later = ". If a column occurs only in later files, set its type with dtype=, such as dtype={'score': 'float64'}"
    chosen = chosen_columns(schema, columns, operator, later)
    schema = pa.schema([schema.field(name) for name in chosen])
    added = schema_with_source(schema, add_source, operator).names[len(schema) :]
    source = replace(source, schema=schema, source_columns=(*in_folders, *added))
    ranges = source.cut(block_bytes) if files_per_partition is None else source.cut_files(files_per_partition)
    return from_source(
        source,
        ranges,
        block_bytes=block_bytes,
        explicit=blocksize is not None,
        backend=backend,
        in_parts=files_per_partition is None,
    )


def _dialect(delimiter: Any, quote: Any) -> Dialect:
    for name, value in (("delimiter", delimiter), ("quote", quote)):
        if name == "quote" and value is None:
            continue
        if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n":
            raise ParameterError(
                f"read_csv: {name}={value!r} must be one ASCII character other than a line end, such as "
                + ("delimiter='\\t' for TSV" if name == "delimiter" else "quote='\"', or None if no field is quoted")
            )
    if delimiter == quote:
        raise ParameterError(f"read_csv: delimiter and quote are both {quote!r}. Use two different characters")
    return Dialect(delimiter, quote)


def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or len(set(names)) < len(names):
        raise ParameterError(
            f"read_csv: names={list(names)!r} must have one name for each field of the files, without repeats. Correct the "
            "list"
        )
    require_text("read_csv: names", names)
    return names


@with_progress_lines("reading the schemas of the input files")
def _find_schema(source: CsvSource, given: Mapping[str, pa.DataType]) -> pa.Schema:
    """Find the columns and their types from the headers and first rows of files spread over the listing."""
    listing = source.listing
    numbers = np.unique(np.linspace(0, len(listing) - 1, min(HEAD_FILES, len(listing))).astype(np.int64))
    heads = [head for number in numbers.tolist() if (head := _head(source, number)) is not None]
    types = infer_types(heads, given)
    warn_of_near_names("read_csv", given, types)
    if source.names is None:
        _warn_of_delimiter(source.dialect.delimiter, list(types))
    return pa.schema([*types.items(), *((name, kind) for name, kind in given.items() if name not in types)])


def _warn_of_delimiter(delimiter: str, names: Sequence[str]) -> None:
    """Warn if the header is a single field that seems to consist of fields with another delimiter."""
    other = next((each for each in "\t;|," if len(names) == 1 and each in names[0]), None)
    if other is not None and other != delimiter:
        warnings.warn(
            f"read_csv: the header has the single field {names[0]!r}, because it does not contain delimiter={delimiter!r}. If "
            f"fields are separated by {other!r}, set delimiter={other!r}",
            UserWarning,
            stacklevel=outside_level(),
        )


def _head(source: CsvSource, file: int) -> pa.Table | None:
    """Return the first rows of a file as text; None if it has no header."""
    path = source.files[file]
    reader = RecordReader(
        path,
        lambda: source.open_file(file, [] if source.quarantines else None),
        source.dialect,
        block_bytes=HEAD_BLOCK_BYTES,
        most_records=HEAD_ROWS + 1,
        largest_row_bytes=LONGEST_HEAD_BYTES,
    )
    names, rows = source.names, list[bytes]()
    for piece in reader.pieces():
        first = 0
        if isinstance(piece, TooLong):
            if names is not None:
                break
            raise SchemaError(
                f"{path!r}, line {piece.lines + 1:,} (byte {piece.offset:,}): the first record is longer than "
                f"{LONGEST_HEAD_BYTES:,} bytes, so no columns were found. Check delimiter= and quote="
            )
        if names is None or not piece.offset:
            names, first = fields_of(source, file, piece)
        numbers = np.flatnonzero(is_whole(piece, len(names)))
        rows += [record_bytes(piece, number) for number in numbers[numbers >= first].tolist()]
        if piece.offset + len(piece.data) >= HEAD_BLOCK_BYTES or len(rows) >= HEAD_ROWS:
            break
        names = names or None  # only blank lines so far
    if names is None:
        return None
    data = b"".join(row + b"\n" for row in rows[:HEAD_ROWS]).decode("utf-8", "replace").encode()
    if not data:
        return pa.table({name: pa.array([], TEXT) for name in names})
    head = parse(np.frombuffer(data, np.uint8), len(data), names, names, source.dialect)
    repeats = repeats_of(names, head, source.dialect)
    return head.take(pa.array(np.setdiff1d(np.arange(len(head)), repeats))) if len(repeats) else head

# SPDX-License-Identifier: Apache-2.0
"""Write blocks of an input split to files of a target size, in one folder or in one for each value of a column.

Names are stable: ``part-<split>-<file>.<suffix>``, below ``column=value/`` when partitioned (Hive style). Blocks wait
until they fill a row group; in partitioned output the fullest is written first, so that the waiting data stays bounded.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.arguments import strings_of
from curator_df.core.columns import has_unknown_categories, is_text, require_columns
from curator_df.core.fingerprint import fingerprint
from curator_df.core.host_blocks import host_block
from curator_df.errors import ParameterError, RowCountError, SchemaError
from curator_df.files.scratch import scratch_directory
from curator_df.files.storage import FileRecord, Folder, NewFile, disk_errors
from curator_df.files.write_only import WriteOnly
from curator_df.io.folder_columns import HIVE_NULL, SOURCE_COLUMNS
from curator_df.memory.sizes import show_count

COPY_BYTES = 1 << 20


class SpooledFile(WriteOnly):
    """Local file that is written to a `NewFile` when it is sealed."""

    def __init__(self, file: NewFile) -> None:
        self.file = file
        """Target file."""
        self._local = tempfile.TemporaryFile(dir=scratch_directory())  # noqa: SIM115 - closed when it is sealed

    def write(self, content: Any) -> int:
        """Append bytes."""
        view = memoryview(content).cast("B")
        if self._local.closed:  # pyarrow always ends a file when its writer is garbage-collected
            return len(view)
        with disk_errors(Folder(scratch_directory())):
            self._local.write(view)
        self.size_bytes += len(view)
        return len(view)

    def seal(self) -> None:
        """Copy the file to the store, and release the local disk."""
        self._local.seek(0)
        while content := self._local.read(COPY_BYTES):
            self.file.write(content)
        self.discard()
        self.file.seal()

    def discard(self) -> None:
        """Release the local disk."""
        self._local.close()


MOST_OPEN_FILES = 64
"""Maximum number of open files of partitioned output; beyond it, the file with the least waiting data is finished, and
continued in another file."""
LONGEST_FOLDER_NAME = 255
FEW_COLUMNS = 100
"""Number of columns up to which the type of each is requested from Arrow."""
_ROW = "__row_number__"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_SECONDS = 86_400
_LARGEST_YEAR = 9999


class TableWriter(Protocol):
    """Writer of tables to one open file."""

    def write(self, table: pa.Table) -> None:
        """Append a table."""

    def close(self) -> None:
        """Write the end of the file."""


class Format(Protocol):
    """File format with its settings."""

    @property
    def suffix(self) -> str:
        """End of the file name, without the first dot."""

    @property
    def writer_factor(self) -> float:
        """Peak extra bytes of writing a table as a multiple of the table's."""

    def open(self, file: NewFile, schema: pa.Schema) -> TableWriter:
        """Start a file."""


@dataclass(frozen=True)
class FileSink:
    """Files of one format in a folder."""

    folder: Folder
    """Folder of the files."""
    format: Any
    """Format of the files, a `Format`."""
    target_file_bytes: int
    """Size at which a file is finished."""
    partition_on: tuple[str, ...] = ()
    """Columns whose values become folders."""
    buffer_bytes: int = 32_000_000
    """Bytes that wait for a row group."""

    @property
    def fingerprint(self) -> str:
        """Digest of everything that shapes the files."""
        cdc = ["cdc"] if getattr(self.format, "cdc", False) else []
        return fingerprint(self.format.suffix, self.format.compression, self.target_file_bytes, self.partition_on, *cdc)

    @property
    def writer_factor(self) -> float:
        """Peak extra bytes of writing a block as a multiple of the block's."""
        return float(self.format.writer_factor) + (1.0 if self.partition_on else 0.0)

    @property
    def example(self) -> str:
        """Name of a file that could be written."""
        return (
            "".join(f"{_quoted(column)}=value/" for column in self.partition_on)
            + f"part-000000-000.{self.format.suffix}"
        )

    def open(self, number: int, meta: Any, buffer_bytes: int) -> RangeFiles:
        """Start the files of an input split."""
        return RangeFiles(self, number, arrow_schema(meta), min(buffer_bytes, self.buffer_bytes))

    def write_empty(self, meta: Any) -> list[FileRecord]:
        """Write one file without rows, so that the columns of an empty output can be read."""
        files = RangeFiles(self, 0, arrow_schema(meta), 0)
        files.touch()
        return files.commit()

    def owns(self, name: str) -> int | None:
        """Return the input split that a file belongs to, or None for a name of another program."""
        *folders, last = name.split("/")
        found = re.fullmatch(r"part-(\d{6,})-\d{3,}\." + re.escape(self.format.suffix), last)
        expected = [f"{_quoted(column)}=" for column in self.partition_on]
        ours = len(folders) == len(expected) and all(f.startswith(e) for f, e in zip(folders, expected, strict=True))
        if found and (ours or not folders):  # an empty file is not in the folder of a value
            return int(found[1])
        quarantined = re.fullmatch(r"_quarantine/part-(\d{6,})\.jsonl", name)
        return int(quarantined[1]) if quarantined else None


@dataclass
class _Growing:
    """File of an input split while it grows."""

    file: NewFile | SpooledFile
    writer: TableWriter
    waiting: list[pa.Table] = field(default_factory=list)
    waiting_bytes: int = 0
    rows: int = 0

    def flush(self) -> None:
        if self.waiting:
            table = pa.concat_tables(self.waiting)
            self.waiting, self.waiting_bytes = [], 0
            self.writer.write(table)
            self.rows += len(table)


class RangeFiles:
    """Writer of one input split. Nothing is visible before `commit`."""

    def __init__(self, sink: FileSink, number: int, schema: pa.Schema, buffer_bytes: int) -> None:
        self._sink, self._number, self._buffer_bytes = sink, number, buffer_bytes
        self._schema = schema
        self._file_schema = pa.schema([f for f in schema if f.name not in sink.partition_on])
        self._stack = contextlib.ExitStack()
        self._growing: dict[str, _Growing] = {}
        self._finished: list[tuple[NewFile, int]] = []
        self._files_in: dict[str, int] = {}
        self._rows = 0

    def append(self, block: Any) -> None:
        """Write the next block."""
        if len(block) == 0:
            return
        self._rows += len(block)
        table = to_table(block, self._schema)
        with disk_errors(self._sink.folder):
            for folder, part in self._parts(table):
                growing = self._file(folder)
                growing.waiting.append(part)
                growing.waiting_bytes += part.nbytes
            self._make_room()

    def touch(self) -> None:
        """Start a file even without rows."""
        self._file("")

    def commit(self) -> list[FileRecord]:
        """Make all files durable and visible."""
        with disk_errors(self._sink.folder):
            for folder in list(self._growing):
                self._finish(folder)
            written = sum(rows for _, rows in self._finished)
            if written != self._rows:
                raise RowCountError(
                    f"input split {self._number}: {show_count(self._rows, 'row')} should be in the files, but they have "
                    f"{written:,}. This is a defect in curator_df; please report it"
                )
            return [file.commit(rows) for file, rows in self._finished]

    @property
    def summary(self) -> dict[str, int]:
        """Return no further counts, only the files."""
        return {}

    def discard(self) -> None:
        """Discard everything that was not committed."""
        self._growing.clear()
        self._stack.close()

    def _parts(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        if not self._sink.partition_on:
            yield "", table
            return
        columns = list(self._sink.partition_on)
        # Select by row numbers, not by comparing with each value: 0.0 equals -0.0, so rows of both would be written twice.
        # Use positions as names, because pyarrow interprets a name with dots as a path.
        places = [str(place) for place in range(len(columns))]
        numbered = table.select(columns).rename_columns(places).append_column(_ROW, pa.array(np.arange(len(table))))
        # With threads, Arrow does not keep the order of groups, and a repeated run must write the same files.
        groups = numbered.group_by(places, use_threads=False).aggregate([(_ROW, "list")])
        keys = [python_values(groups[place]) for place in places]
        rest = table.select(self._file_schema.names)
        for values, rows in zip(zip(*keys, strict=True), groups[f"{_ROW}_list"], strict=True):
            yield folder_name(dict(zip(columns, values, strict=True))), rest.take(rows.values)

    def _file(self, folder: str) -> _Growing:
        if folder not in self._growing:
            if len(self._growing) >= MOST_OPEN_FILES:
                self._finish(min(self._growing, key=lambda name: self._growing[name].waiting_bytes))
            part = self._files_in.get(folder, 0)
            self._files_in[folder] = part + 1
            name = f"{folder}part-{self._number:06d}-{part:03d}.{self._sink.format.suffix}"
            new = self._stack.enter_context(self._sink.folder.create(name))
            file: NewFile | SpooledFile = new
            if self._sink.partition_on and not self._sink.folder.is_local:
                file = SpooledFile(new)
                self._stack.callback(file.discard)
            self._growing[folder] = _Growing(file, self._sink.format.open(file, self._file_schema))
        return self._growing[folder]

    def _make_room(self) -> None:
        while sum(growing.waiting_bytes for growing in self._growing.values()) >= max(self._buffer_bytes, 1):
            folder = max(self._growing, key=lambda name: self._growing[name].waiting_bytes)
            self._growing[folder].flush()
            if self._growing[folder].file.size_bytes >= self._sink.target_file_bytes:
                self._finish(folder)

    def _finish(self, folder: str) -> None:
        growing = self._growing.pop(folder)
        growing.flush()
        growing.writer.close()
        growing.file.seal()
        file = growing.file.file if isinstance(growing.file, SpooledFile) else growing.file
        self._finished.append((file, growing.rows))


def arrow_schema(meta: Any) -> pa.Schema:
    """Return the Arrow schema of a block, without pandas' metadata (which breaks reading nested columns back).

    Categories that Dask does not know yet become text: the blocks may have others, and more than the type of the codes allows.
    """
    schema = _schema_by_dtypes(meta)
    if schema is None:
        schema = pa.Schema.from_pandas(meta, preserve_index=False).remove_metadata()
    fields = [
        f.with_type(pa.large_string()) if pa.types.is_string(f.type) or pa.types.is_null(f.type) else f for f in schema
    ]
    if any(pa.types.is_dictionary(f.type) for f in fields):
        unknown = map(has_unknown_categories, meta.dtypes)
        fields = [f.with_type(pa.large_string()) if one else f for f, one in zip(fields, unknown, strict=True)]
    return pa.schema(fields)


def _schema_by_dtypes(meta: Any) -> pa.Schema | None:
    """Return the schema of a block from one column of each dtype; None if that does not tell: Arrow takes 1 ms a column."""
    names, dtypes = list(meta.columns), list(meta.dtypes)
    if len(names) <= FEW_COLUMNS or len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        return None
    if any(isinstance(dtype, np.dtype) and dtype.hasobject for dtype in dtypes):  # the values tell
        return None
    distinct = {id(dtype): (dtype, place) for place, dtype in enumerate(dtypes)}  # hashing a pandas dtype takes 10 us
    place_of = dict(distinct.values())
    known = pa.Schema.from_pandas(meta.iloc[:, list(place_of.values())], preserve_index=False)
    types = dict(zip(place_of, known.types, strict=True))
    type_of = {number: types[dtype] for number, (dtype, _) in distinct.items()}
    return pa.schema([(name, type_of[id(dtype)]) for name, dtype in zip(names, dtypes, strict=True)])


def to_table(block: Any, schema: pa.Schema) -> pa.Table:
    """Convert a block to an Arrow table of exactly this schema; text is not copied."""
    try:
        if len(schema) > FEW_COLUMNS and list(block.columns) == schema.names:
            return pa.Table.from_arrays(_columns_of(block, schema), schema=schema)
        return pa.Table.from_pandas(block, schema=schema, preserve_index=False, nthreads=1).replace_schema_metadata(
            None
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError, KeyError) as exc:
        columns = ", ".join(f"{name}: {dtype}" for name, dtype in block.dtypes.items())
        raise SchemaError(
            f"a step returned other columns than it declared ({exc}). It returned {columns}; expected were "
            f"{', '.join(f'{f.name}: {f.type}' for f in schema)}. {_advice(block, schema)}"
        ) from exc


def _advice(block: Any, schema: pa.Schema) -> str:
    """Return what to do about a block with other columns than announced."""
    for name, dtype in block.dtypes.items():
        if (
            isinstance(dtype, pd.CategoricalDtype)
            and not is_text(dtype)
            and pa.types.is_large_string(schema.field(name).type)
        ):
            return (
                f"The categories of {name!r} were not known before the run, so they were taken for text. Leave out "
                f"astype('category'), or pass it the categories: pandas.CategoricalDtype({dtype.categories[:2].tolist()})"
            )
    return "Let the function of map_partitions return the columns and types of its meta="


def _columns_of(block: Any, schema: pa.Schema) -> list[Any]:
    """Return the columns of a wide block in Arrow: `pyarrow.Table.from_pandas` takes nine times as long, 0.5 s for 10,000."""
    columns = []
    for place, (values, kind) in enumerate(zip(block._iter_column_arrays(), schema.types, strict=True)):
        is_plain = isinstance(values, np.ndarray) or hasattr(values, "__arrow_array__")
        columns.append(pa.array(values if is_plain else block.iloc[:, place], kind, from_pandas=True))
    return columns


def require_partition_columns(df: Any, operator: str, partition_on: str | list[str] | None) -> tuple[str, ...]:
    """Check the columns to partition on and return them."""
    columns = () if partition_on is None else strings_of(operator, "partition_on", partition_on)
    if partition_on is not None and not columns:
        raise ParameterError(f"{operator}: partition_on={partition_on!r} has no column. Choose one, or leave it out")
    require_columns(df, operator, *columns)
    if columns and len(columns) == len(df.columns):
        raise ParameterError(
            f"{operator}: partition_on has all columns, so the files would have none. Leave out at least one"
        )
    for column in columns:
        if (reason := _no_folder(column)) is not None:
            raise ParameterError(
                f"{operator}: partition_on={column!r} cannot name folders: {reason}. Rename the column, as in "
                f"df.rename(columns={{{column!r}: 'partition'}})"
            )
        kind = arrow_schema(host_block(df._meta[[column]])).field(0).type
        if kind.num_fields or isinstance(kind, pa.BaseExtensionType):
            raise SchemaError(
                f"{operator}: partition_on={column!r} cannot be used for the names of folders, because the column holds "
                f"{kind}. Use a column of text, numbers, booleans or dates"
            )
    return columns


def _no_folder(column: str) -> str | None:
    """Return why a reader would not find a column in folder names; None if it would."""
    if column.startswith((".", "_")) or not column:
        return "readers skip folders whose names begin with '.', '_' or '='"
    if column in SOURCE_COLUMNS:
        return f"readers add their own column {column!r} with add_source=True"
    if len(_quoted(column)) + len("=") + len(HIVE_NULL) > LONGEST_FOLDER_NAME:
        return f"a folder name can have {LONGEST_FOLDER_NAME} bytes, but the column name has {len(_quoted(column))}"
    return None


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python objects, with text of ISO 8601 for times that Python's own types cannot hold.

    Python has the years 1 to 9999, durations of up to 999,999,999 days, and times of whole microseconds.
    """
    if not _has_nanosecond_times(column.type):
        try:
            return list(column.to_pylist())
        except (OverflowError, ValueError):
            return [_value(scalar) for chunk in column.chunks for scalar in chunk]
    return [_value(scalar) for chunk in column.chunks for scalar in chunk]


def _has_nanosecond_times(kind: pa.DataType) -> bool:
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    if pa.types.is_dictionary(kind):
        inner.append(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        inner.append(kind.storage_type)
    return kind == pa.time64("ns") or any(map(_has_nanosecond_times, inner))


def _value(scalar: pa.Scalar) -> Any:
    """Return a value as `pyarrow.Scalar.as_py` does, with text in the place of values that it cannot return exactly."""
    if not scalar.is_valid:
        return None
    if pa.types.is_nested(scalar.type) or isinstance(scalar, (pa.ExtensionScalar, pa.DictionaryScalar)):
        return _inner(scalar)
    if scalar.type == pa.time64("ns") and scalar.value % 1000:
        return _clock(*divmod(scalar.value, 10**9), digits=9)
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return _exact(scalar)


def _inner(scalar: pa.Scalar) -> Any:
    if isinstance(scalar, pa.MapScalar):
        return [(_value(key), _value(item)) for key, item in zip(*scalar.values.flatten(), strict=True)]
    if isinstance(scalar, pa.StructScalar):
        return {name: _value(item) for name, item in scalar.items()}
    if pa.types.is_nested(scalar.type):
        return [_value(item) for item in scalar.values]
    return _value(scalar.value)


def _exact(scalar: pa.Scalar) -> str:
    """Write a time that Python's types cannot hold; an instant with a time zone is written in UTC."""
    kind, number = scalar.type, scalar.value
    if pa.types.is_date(kind):
        return _signed(np.datetime64(number if kind == pa.date32() else number // (_DAY_SECONDS * 1000), "D"))
    seconds, fraction = divmod(number, _PER_SECOND[kind.unit])
    fraction, digits = fraction * 10**9 // _PER_SECOND[kind.unit], 9 if kind.unit == "ns" else 6
    if pa.types.is_duration(kind):
        days, seconds = divmod(seconds, _DAY_SECONDS)
        return f"{days} days, {_clock(seconds, fraction, digits=digits).removeprefix('0')}"
    days, seconds = divmod(seconds, _DAY_SECONDS)
    zone = "" if kind.tz is None else "+00:00"
    return f"{_signed(np.datetime64(days, 'D'))}T{_clock(seconds, fraction, digits=digits)}{zone}"


def _signed(day: np.datetime64) -> str:
    """Write a day with the sign that ISO 8601 wants before a year of more than four digits."""
    year, rest = str(day).rsplit("-", 2)[0], str(day)[-6:]
    sign = "-" if int(year) < 0 else "+" if int(year) > _LARGEST_YEAR else ""
    return f"{sign}{abs(int(year)):04d}{rest}"


def _clock(seconds: int, nanoseconds: int, *, digits: int) -> str:
    minutes, second = divmod(seconds, 60)
    fraction = f".{nanoseconds:09d}"[: digits + 1] if nanoseconds else ""
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}{fraction}"


def folder_name(row: dict[str, Any]) -> str:
    """Return ``column=value/...``; characters that a file system or a reader could misread are percent-encoded."""
    name = ""
    for column, value in row.items():
        # "." and ".." are safe for quote() but not as folder names; here they always follow "column=".
        folder = f"{_quoted(column)}={_value_name(value)}"
        if len(folder) > LONGEST_FOLDER_NAME:
            raise ParameterError(
                f"partition_on={column!r} has a value of {len(str(value)):,} characters ({str(value)[:40]!r}...), too long "
                "for a folder name. Partition on a column with few, short values"
            )
        name += folder + "/"
    return name


def _value_name(value: Any) -> str:
    if value is None:
        return HIVE_NULL
    text = urllib.parse.quote(str(value), safe=" ")
    return text.replace("_", "%5F", 1) if text == HIVE_NULL else text  # this text is not a null


def _quoted(column: str) -> str:
    return urllib.parse.quote(column, safe="")

# SPDX-License-Identifier: Apache-2.0
"""Formats of output files, Parquet and JSON Lines, and the sinks that write them to the folders that a user gave."""

from __future__ import annotations

import datetime as dt
import decimal
import inspect
import os
import zlib
from dataclasses import dataclass
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from curator_df.arguments import choose, has_no_bytes
from curator_df.core.planning.lowering import lower
from curator_df.errors import MissingExtraError, ParameterError
from curator_df.extras import pip_install
from curator_df.files.hub import refuse_hub_output
from curator_df.files.storage import Folder, NewFile
from curator_df.io.output.files import FileSink, python_values, require_partition_columns
from curator_df.io.output.writable import require_rejects, require_writable
from curator_df.memory.sizes import read_size

ParquetCompression = Literal["zstd", "snappy", "lz4", "gzip", "none"]
JsonlCompression = Literal["none", "gzip", "zstd"]
TARGET_FILE_BYTES = 256_000_000
"""Bytes on disk at which a file is finished."""
ROWS_A_LOOK = 64
"""Number of rows after which the Parquet writer checks whether a page has 1 MB. A page is read whole (`io.parquet.pages`).
Compared with pyarrow's 1,024: 0.47 and 0.65 CPU seconds for texts of 25 kB, 0.29 and 0.25 for two million short ones."""
ROWS_AT_A_TIME_BYTES = 1_000_000
"""Bytes of a table that are Python objects in each step of the JSON Lines writer."""


@dataclass(frozen=True)
class ParquetFormat:
    """Parquet format with its codec."""

    compression: str
    """Codec."""
    suffix: str = "parquet"
    """End of the file name."""
    writer_factor: float = 1.5
    """Peak extra bytes as a multiple of the table's: encoded pages and the compressed column chunks of a row group."""
    cdc: bool = False
    """Whether pages end where the content says so."""

    def open(self, file: NewFile, schema: pa.Schema) -> _ParquetWriter:
        """Start a file."""
        return _ParquetWriter(file, schema, self.compression, cdc=self.cdc)


class _ParquetWriter:
    def __init__(self, file: NewFile, schema: pa.Schema, compression: str, *, cdc: bool) -> None:
        # Text hardly repeats, so a dictionary would be built (and held) for nothing before the encoder falls back.
        texts = [f.name for f in schema if pa.types.is_large_string(f.type)]
        others = [f.name for f in schema if f.name not in texts]
        self._writer = pq.ParquetWriter(
            file,
            schema,
            compression=compression,
            use_dictionary=others or False,
            write_statistics=others or False,
            write_batch_size=ROWS_A_LOOK,
            **({"use_content_defined_chunking": True} if cdc else {}),
        )

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=max(len(table), 1))

    def close(self) -> None:
        self._writer.close()


@dataclass(frozen=True)
class JsonlFormat:
    """JSON Lines format with its compression."""

    compression: str
    """Compression: ``none``, ``gzip`` or ``zstd``."""
    writer_factor: float = 1.0
    """Peak extra bytes as a multiple of the table's."""

    @property
    def suffix(self) -> str:
        """End of the file name."""
        return "jsonl" + {"none": "", "gzip": ".gz", "zstd": ".zst"}[self.compression]

    def open(self, file: NewFile, schema: pa.Schema) -> _JsonlWriter:  # noqa: ARG002 - the format's interface
        """Start a file."""
        return _JsonlWriter(file, self.compression)


class _JsonlWriter:
    def __init__(self, file: NewFile, compression: str) -> None:
        self._file = file
        self._compressor: Any = None
        if compression == "gzip":
            self._compressor = zlib.compressobj(6, wbits=31)
        elif compression == "zstd":
            self._compressor = zstandard.ZstdCompressor(level=3).compressobj()

    def write(self, table: pa.Table) -> None:
        rows_at_a_time = max(1, int(len(table) * ROWS_AT_A_TIME_BYTES / max(table.nbytes, 1)))
        for start in range(0, len(table), rows_at_a_time):
            rows = _json_rows(table.slice(start, rows_at_a_time))
            text = b"".join(orjson.dumps(row, default=_as_text, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
            self._file.write(text if self._compressor is None else self._compressor.compress(text))

    def close(self) -> None:
        if self._compressor is not None:
            self._file.write(self._compressor.flush())


def _json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as Python objects that orjson takes with `_as_text`."""
    columns = [python_values(column) for column in table.columns]
    return [dict(zip(table.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _as_text(value: Any) -> str:
    """Return values that JSON does not have as text; bytes have no unique text, and were refused before."""
    if isinstance(value, dt.datetime):  # nanoseconds are a pandas.Timestamp, which orjson does not accept
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, dt.timedelta)):
        return str(value)
    raise TypeError(f"JSON Lines cannot hold {type(value).__name__}. Leave the column out or write Parquet")


def _has_nanosecond_times(kind: pa.DataType) -> bool:
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return kind == pa.time64("ns") or any(map(_has_nanosecond_times, inner))


def parquet_format(operator: str, compression: str, cdc: bool) -> ParquetFormat:
    """Check the options of Parquet files, and return the format."""
    choose(operator, "compression", compression, ParquetCompression)
    if not isinstance(cdc, bool):
        raise ParameterError(f"{operator}: cdc={cdc!r} must be True or False")
    if cdc and "use_content_defined_chunking" not in inspect.signature(pq.ParquetWriter.__init__).parameters:
        raise MissingExtraError(
            f"{operator}: cdc=True needs pyarrow 21 or newer, but pyarrow {pa.__version__} is installed. Install it with: "
            f"{pip_install()} 'pyarrow>=21'"
        )
    return ParquetFormat(compression, cdc=cdc)


def file_sink(
    df: Any,
    operator: str,
    path: str | os.PathLike[str],
    file_format: Any,
    target_file_size: str | int,
    partition_on: str | list[str] | None,
    storage_options: dict[str, Any] | None,
) -> FileSink:
    """Check an output's arguments, and return the sink."""
    columns = require_partition_columns(df, operator, partition_on)
    require_writable(df, operator, file_format.suffix)
    target_bytes = read_size("target_file_size", target_file_size)
    return FileSink(folder_at(path, storage_options), file_format, target_bytes, columns)


def rejects_sink(
    df: Any, operator: str, path: str | os.PathLike[str] | None, storage_options: dict[str, Any] | None
) -> FileSink | None:
    """Return the sink of removed rows, if they are written."""
    if path is None:
        return None
    require_rejects(lower(df).source.meta, operator)
    return FileSink(folder_at(path, storage_options), ParquetFormat("zstd"), TARGET_FILE_BYTES)


def folder_at(path: str | os.PathLike[str], storage_options: dict[str, Any] | None) -> Folder:
    """Return the folder that a user gave."""
    if hasattr(path, "dtypes"):
        raise ParameterError(
            f"a table ({type(path).__name__}) was given where an output folder is needed. Pass the path of a folder. To write a "
            "table to the Hugging Face hub, use write_parquet(df, 'hf://datasets/name/data')"
        )
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(name, str) or not name or "\0" in name or has_no_bytes(name):
        raise ParameterError(
            f"{path!r} is not a valid output folder. Use a str or os.PathLike that is not empty and has only valid characters"
        )
    refuse_hub_output(name)
    if name.lower().startswith(("http://", "https://")):
        raise ParameterError(
            f"{name!r} cannot be written to: HTTP has no folders of files. Use a local folder or an object store"
        )
    return Folder(name.rstrip("/") or "/", storage_options or {})

# SPDX-License-Identifier: Apache-2.0
"""Write a curated table: `write_parquet` and `write_jsonl` run the chain within the budget and return a receipt."""

from __future__ import annotations

import datetime as dt
import decimal
import inspect
import os
import zlib
from dataclasses import dataclass
from typing import Any, Literal

import dask.dataframe as dd
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from curator_df.arguments import choose
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.journal import OnExisting
from curator_df.core.receipts.receipt import Receipt
from curator_df.core.runner.run import run
from curator_df.core.tasks.task import OnError, OnOom
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


def write_parquet(
    df: dd.DataFrame,
    path: str | os.PathLike[str],
    *,
    compression: ParquetCompression = "zstd",
    cdc: bool = False,
    target_file_size: str | int = TARGET_FILE_BYTES,
    partition_on: str | list[str] | None = None,
    rejects: str | os.PathLike[str] | None = None,
    workdir: str | os.PathLike[str] | None = None,
    on_existing: OnExisting = "raise",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    storage_options: dict[str, Any] | None = None,
) -> Receipt:
    """Run a chain and write its rows to Parquet files.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A chain that begins with `read_jsonl` or `read_parquet`.
    path : str or path
        Folder, or an fsspec URL.
    compression : {"zstd", "snappy", "lz4", "gzip", "none"}
        Codec of the column chunks.
    cdc : bool, default False
        Let pages end where the content says so (content-defined chunking), so that two versions of a table have most
        bytes in common, and the Hugging Face hub sends and stores only the rest (`push_to_hub`). Needs pyarrow 21 or newer.
    target_file_size : str or int
        A file is closed once it reaches this size on disk.
    partition_on : str or list of str, optional
        Columns whose values become folders (``lang=en/``); they are not in the files.
    rejects : str or path, optional
        Folder for the removed rows, as Parquet: the columns as they were read, and ``reject_step``, ``reject_reason``,
        ``reject_rule``, ``reject_value``, ``reject_threshold``, ``reject_file``, ``reject_offset``,
        ``reject_matched_file``, ``reject_matched_offset`` (``docs/operators.md#rejects``). A separate folder,
        outside the output; ``on_existing`` applies to it too.
    workdir : str or path, optional
        Folder (or URL) visible to all workers, for the temporary files of drops; by default below the output folder.
        They are deleted at the end.
    on_existing : {"raise", "resume", "overwrite"}
        What to do if the folder is not empty: raise an error; continue an interrupted run (with any memory, workers or
        block size); or delete what a run wrote there and start again.
    on_error : {"raise", "quarantine"}
        What to do when a step fails on a row, because a function of yours raises or `remove_html` takes too long: stop, or
        quarantine the row in ``_quarantine/`` and count it.
    on_oom : {"retry", "raise"}
        What to do when memory runs out or a worker dies: retry with blocks of half the size, down to one row, and
        quarantine in ``_quarantine/`` the rows that do not fit even alone (with a warning and a note in the receipt);
        or stop with the error.
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    Receipt
        A receipt: rows, bytes, seconds and memory of each step, and why rows were dropped.

    Raises
    ------
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    OutputExistsError
        If the folder holds something and ``on_existing="raise"``.
    ParameterError
        If output, rejects and input overlap, or the folder cannot be created.
    MissingExtraError
        If ``cdc=True`` and pyarrow is older than 21.
    NoClusterError
        If no cluster is running.

    See Also
    --------
    write_jsonl, write_many, write_by, explain, read_receipt

    Notes
    -----
    Rows: all, in input order over the files' names. Columns: all. Peak extra memory: 1.5 x block; with ``partition_on``
    2.5 x block. Computes: yes.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/").pipe(cdf.drop_exact_duplicates)  # doctest: +SKIP
    >>> receipt = cdf.write_parquet(docs, "clean/", rejects="rejects/", on_existing="resume")  # doctest: +SKIP
    """
    file_format = parquet_format("write_parquet", compression, cdc)
    sink = file_sink(df, "write_parquet", path, file_format, target_file_size, partition_on, storage_options)
    return run(
        df,
        sink,
        rejects=rejects_sink(df, "write_parquet", rejects, storage_options),
        workdir=None if workdir is None else folder_at(workdir, storage_options),
        on_existing=on_existing,
        on_error=on_error,
        on_oom=on_oom,
    )


def write_jsonl(
    df: dd.DataFrame,
    path: str | os.PathLike[str],
    *,
    compression: JsonlCompression = "none",
    target_file_size: str | int = TARGET_FILE_BYTES,
    partition_on: str | list[str] | None = None,
    rejects: str | os.PathLike[str] | None = None,
    workdir: str | os.PathLike[str] | None = None,
    on_existing: OnExisting = "raise",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    storage_options: dict[str, Any] | None = None,
) -> Receipt:
    """Run a chain and write its rows to JSON Lines files.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A chain that begins with `read_jsonl` or `read_parquet`.
    path : str or path
        Folder, or an fsspec URL.
    compression : {"none", "gzip", "zstd"}
        Compression of the files.
    target_file_size : str or int
        A file is closed once it reaches this size on disk.
    partition_on : str or list of str, optional
        Columns whose values become folders (``lang=en/``); they are not in the files.
    rejects : str or path, optional
        Folder for the dropped rows, as Parquet; see `write_parquet`.
    workdir : str or path, optional
        Folder for the temporary files of drops; see `write_parquet`.
    on_existing : {"raise", "resume", "overwrite"}
        What to do if the folder is not empty; see `write_parquet`.
    on_error : {"raise", "quarantine"}
        What to do when a step fails on a row; see `write_parquet`.
    on_oom : {"retry", "raise"}
        What to do when memory runs out; see `write_parquet`.
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    Receipt
        A receipt: rows, bytes, seconds and memory of each step, and why rows were dropped.

    Raises
    ------
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    OutputExistsError
        If the folder holds something and ``on_existing="raise"``.
    ParameterError
        If output, rejects and input overlap, or the folder cannot be created.
    NoClusterError
        If no cluster is running.

    See Also
    --------
    write_parquet, write_many, read_jsonl

    Notes
    -----
    Rows: all, in input order over the files' names. Columns: all. Peak extra memory: 1.0 x block; with ``partition_on``
    2.0 x block. Computes: yes.

    Null is written as ``null``, and so are NaN and the infinities, which JSON does not have. Dates and
    times are strings of ISO 8601 (a year beyond 9999 has a sign, as in ``+10000-01-01``, and the time of such an instant is
    UTC); decimals and durations are strings.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/").pipe(cdf.normalize_unicode)  # doctest: +SKIP
    >>> receipt = cdf.write_jsonl(docs, "clean/", compression="zstd", rejects="rejects/")  # doctest: +SKIP
    """
    choose("write_jsonl", "compression", compression, JsonlCompression)
    sink = file_sink(df, "write_jsonl", path, JsonlFormat(compression), target_file_size, partition_on, storage_options)
    return run(
        df,
        sink,
        rejects=rejects_sink(df, "write_jsonl", rejects, storage_options),
        workdir=None if workdir is None else folder_at(workdir, storage_options),
        on_existing=on_existing,
        on_error=on_error,
        on_oom=on_oom,
    )


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
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(name, str) or not name or "\0" in name:
        raise ParameterError(
            f"{path!r} is not a folder to write to. Use a str or os.PathLike, not empty and without NUL"
        )
    refuse_hub_output(name)
    return Folder(name.rstrip("/") or "/", storage_options or {})

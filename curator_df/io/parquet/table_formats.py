# SPDX-License-Identifier: Apache-2.0
"""Delta and Iceberg tables as lazy tables: `read_delta` and `read_iceberg`.

A version of such a table is a list of Parquet files, which never change. The list is read here, and `read_parquet` reads the
files. What a list of files does not say is refused: rows that are deleted in other files, and columns with other names in the
files than in the table. See ``docs/decisions/0051-table-formats.md``, also for Lance.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import dask.dataframe as dd
import pyarrow as pa

from curator_df.arguments import choose, path_of, require_integer
from curator_df.core.backend import Backend
from curator_df.errors import InputError, ParameterError, type_and_text
from curator_df.extras import require_package
from curator_df.io.device_transfer import require_gpu
from curator_df.io.folder_columns import values_in
from curator_df.io.jsonl.reader import OnBadRows
from curator_df.io.listing import list_files
from curator_df.io.parquet.reader import table_of

_PLAIN_FEATURES = {"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "variantType"}
"""Features of a Delta table for readers with which a version is still a list of Parquet files, or of which use is checked."""
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_TRACE = "\n   0: "
"""Beginning of the trace that errors of deltalake end with."""


def read_delta(
    table: str | os.PathLike[str],
    *,
    version: int | None = None,
    columns: Sequence[str] | str | None = None,
    blocksize: int | str | None = None,
    files_per_partition: int | None = None,
    add_source: bool = False,
    on_bad_rows: OnBadRows = "raise",
    backend: Backend = "pandas",
    storage_options: Mapping[str, Any] | None = None,
    table_options: Mapping[str, str] | None = None,
) -> dd.DataFrame:
    """Read a version of a Delta table as a lazy table.

    Parameters
    ----------
    table : str or path
        Folder or URL of the table.
    version : int, optional
        Version to read. Default: the latest one when the function is called. To resume a run after the table has changed,
        name the version that the run began with.
    columns, blocksize, files_per_partition, add_source, on_bad_rows, backend
        As in `read_parquet`.
    storage_options : mapping, optional
        Options for the fsspec file system of the data files.
    table_options : mapping, optional
        Options of the package deltalake for the table's log, which is not read by fsspec.

    Returns
    -------
    dask.dataframe.DataFrame
        The rows of the version, as `read_parquet` returns those of its files. Partition columns are text.

    Raises
    ------
    InputError
        If the table or the version does not exist, or the version has deleted rows in its files, renamed columns, or another
        feature that a list of files does not express.
    ParameterError
        If ``version`` is below 0.
    MissingExtraError
        If the package deltalake is not installed.

    See Also
    --------
    read_parquet, read_iceberg

    Notes
    -----
    Rows: all but bad ones. Columns: those of the table, or as named; with ``add_source``, ``source_file`` and
    ``source_line``. Backends: pandas; cudf with ``backend="cudf"``. Peak extra memory: 2.5 x block. Computes: no; it reads
    the table's log, and footers as `read_parquet` does.

    The files of the version are in the plan in the order of their paths. The index is the file's number and the row's, as
    in `read_parquet`.

    Examples
    --------
    >>> docs = cdf.read_delta("corpus/", version=12, columns=["text"])  # doctest: +SKIP
    """
    require_gpu("read_delta", backend)
    choose("read_delta", "on_bad_rows", on_bad_rows, OnBadRows)
    if version is not None:
        require_integer("read_delta", "version", version)
        if version < 0:
            raise ParameterError(
                f"read_delta: version={version} must be 0 or more. Leave it out to read the latest version"
            )
    require_package("read_delta", "deltalake", "delta")
    deltalake: Any = importlib.import_module("deltalake")
    place = path_of("read_delta", "table", table)
    try:
        opened = deltalake.DeltaTable(place, version=version, storage_options=dict(table_options or {}) or None)
        problem = _beyond_files_of_delta(opened)
        actions = pa.table(opened.get_add_actions(flatten=True))
        schema, partitions = pa.schema(opened.schema().to_arrow()), list(opened.metadata().partition_columns)
        files = sorted(map(_plain_path(opened.table_uri), opened.file_uris()))
    except (
        deltalake.exceptions.DeltaError,
        deltalake.exceptions.DeltaProtocolError,
        OSError,
        OverflowError,
        ValueError,
    ) as exc:
        raise InputError(
            f"read_delta: {place!r} cannot be read as a Delta table: {_said(exc)}. Check the path and the "
            "credentials, and that the table is complete"
        ) from exc
    if problem:
        raise InputError(f"read_delta: version {opened.version()} of {place!r} cannot be read: {problem}")
    _require_folder_names(place, actions, partitions)
    listing = list_files(
        _some(files, f"read_delta: version {opened.version()} of {place!r}"), storage_options=storage_options
    )
    return table_of(
        "read_delta",
        listing,
        columns=columns,
        dtype={field.name: field.type for field in schema if field.name not in partitions},
        blocksize=blocksize,
        files_per_partition=files_per_partition,
        add_source=add_source,
        on_bad_rows=on_bad_rows,
        backend=backend,
        in_folders=tuple(partitions),
    )


def _said(exc: Exception) -> str:
    """Return the words of an error of another library on one line, without colors and the trace that some add."""
    words = _COLOR.sub("", type_and_text(exc)).partition(_TRACE)[0]
    return " ".join(words.split()).rstrip(".")


def _plain_path(table: str) -> Callable[[str], str]:
    """Return a function of addresses of a Delta table's files: deltalake escapes the folder of a local table, and no more."""
    folder = table.removeprefix("file://")
    is_local = folder != table
    return lambda file: unquote(folder) + file.removeprefix(folder) if is_local and file.startswith(folder) else file


def _beyond_files_of_delta(table: Any) -> str:
    """Return what a version is more than a list of Parquet files; empty if it is not."""
    features = set(table.protocol().reader_features or ())
    renames = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    if renames or "columnMapping" in features:
        return "its files have other names of columns than the table (columnMapping). Write the table again without it"
    if odd := sorted(features - _PLAIN_FEATURES):
        return f"it uses {', '.join(odd)}, which read_delta does not support. Write the table again without it"
    if "deletionVectors" in features and any(len(batch) for batch in table.deletion_vectors()):
        return "its files have deleted rows (deletion vectors). Rewrite it first: OPTIMIZE, or REORG TABLE ... APPLY (PURGE)"
    return ""


def _require_folder_names(place: str, actions: pa.Table, partitions: Sequence[str]) -> None:
    """Raise `InputError` unless the folders of all files have the values of the partition columns."""
    files = actions.column("path").to_pylist()
    in_paths = [values_in(unquote(file)) for file in files] if partitions else []
    for name in partitions:
        values = actions.column(f"partition.{name}")
        if pa.types.is_timestamp(values.type):  # a path does not say that it is UTC
            values = values.cast(pa.timestamp(values.type.unit))
        for file, in_path, value in zip(files, in_paths, values, strict=True):
            if not _says(in_path.get(name, ""), value):
                raise InputError(
                    f"read_delta: in the table {place!r}, the value of the partition column {name!r} is {value.as_py()!r} for "
                    f"the file {file!r}, but its path has no folder that says so, and curator_df reads these values from "
                    "paths. Write the table again, so that each file lies in the folder of its values"
                )


def _says(text: str | None, value: pa.Scalar) -> bool:
    """Return whether a text in a path says a value, such as 2026-01-01 00:00:00 for a timestamp of that day."""
    try:
        return bool(pa.scalar(text, pa.string()).cast(value.type).equals(value))
    except pa.ArrowInvalid:
        return False


def read_iceberg(
    table: str | os.PathLike[str] | Any,
    *,
    snapshot: int | None = None,
    columns: Sequence[str] | str | None = None,
    blocksize: int | str | None = None,
    files_per_partition: int | None = None,
    add_source: bool = False,
    on_bad_rows: OnBadRows = "raise",
    backend: Backend = "pandas",
    storage_options: Mapping[str, Any] | None = None,
    table_options: Mapping[str, str] | None = None,
) -> dd.DataFrame:
    """Read a snapshot of an Iceberg table as a lazy table.

    Parameters
    ----------
    table : str, path or pyiceberg.table.Table
        Path or URL of a metadata file (``.metadata.json``), or a table that a catalog of pyiceberg loaded.
    snapshot : int, optional
        ID of the snapshot to read. Default: the current one. To resume a run after the table has changed, name the one
        that the run began with.
    columns, blocksize, files_per_partition, add_source, on_bad_rows, backend
        As in `read_parquet`.
    storage_options : mapping, optional
        Options for the fsspec file system of the data files.
    table_options : mapping, optional
        Properties of pyiceberg for reading the metadata.

    Returns
    -------
    dask.dataframe.DataFrame
        The rows of the snapshot, as `read_parquet` returns those of its files.

    Raises
    ------
    InputError
        If the table or the snapshot does not exist, or has deleted rows, renamed columns, default values, or files that are
        not Parquet.
    ParameterError
        If ``table`` is neither a table nor a path.
    MissingExtraError
        If the package pyiceberg is not installed.

    See Also
    --------
    read_parquet, read_delta

    Notes
    -----
    Rows: all but bad ones. Columns: those of the table, or as named; with ``add_source``, ``source_file`` and
    ``source_line``. Backends: pandas; cudf with ``backend="cudf"``. Peak extra memory: 2.5 x block. Computes: no; it reads
    the table's metadata and manifests, and footers as `read_parquet` does.

    The files of the snapshot are in the plan in the order of their paths. The index is the file's number and the row's, as
    in `read_parquet`.

    Examples
    --------
    >>> docs = cdf.read_iceberg("warehouse/db/docs/metadata/00012.metadata.json")  # doctest: +SKIP
    """
    require_gpu("read_iceberg", backend)
    choose("read_iceberg", "on_bad_rows", on_bad_rows, OnBadRows)
    if snapshot is not None:
        require_integer("read_iceberg", "snapshot", snapshot)
    require_package("read_iceberg", "pyiceberg", "iceberg")
    tables: Any = importlib.import_module("pyiceberg.table")
    arrow: Any = importlib.import_module("pyiceberg.io.pyarrow")
    if not isinstance(table, str | os.PathLike) and not hasattr(table, "scan"):
        raise ParameterError(
            f"read_iceberg: table={table!r} must be a table of pyiceberg, or the path (or URL) of a metadata file, not "
            f"{type(table).__name__}"
        )
    is_path = isinstance(table, str | os.PathLike)
    place = path_of("read_iceberg", "table", table) if is_path else str(getattr(table, "metadata_location", table))
    try:
        found: Any = tables.StaticTable.from_metadata(place, dict(table_options or {})) if is_path else table
        scan = found.scan(snapshot_id=snapshot)
        tasks, schema = list(scan.plan_files()), scan.projection()
        types = {field.name: field.type for field in arrow.schema_to_pyarrow(schema)}
    except (MemoryError, ImportError):
        raise
    except (
        Exception
    ) as exc:  # pyiceberg lets pass what its parsers raise about damaged files: EOFError, IndexError, ...
        raise InputError(
            f"read_iceberg: {place!r} cannot be read as an Iceberg table: {_said(exc)}. Check the path and the "
            "credentials, and that the table is complete"
        ) from exc
    _require_plain_iceberg(place, found, schema, tasks)
    files = sorted(re.sub("^file:/+", "/", task.file.file_path) for task in tasks)
    listing = list_files(_some(files, f"read_iceberg: {place!r}"), storage_options=storage_options)
    return table_of(
        "read_iceberg",
        listing,
        columns=list(types) if columns is None else columns,  # files still have columns that the table lacks
        dtype=types,
        blocksize=blocksize,
        files_per_partition=files_per_partition,
        add_source=add_source,
        on_bad_rows=on_bad_rows,
        backend=backend,
        in_folders=(),
    )


def _require_plain_iceberg(place: str, table: Any, schema: Any, tasks: Iterable[Any]) -> None:
    """Raise `InputError` if a snapshot is more than a list of Parquet files with the columns of the table."""
    names = {(number, each.find_column_name(number)) for each in table.schemas().values() for number in each.field_ids}
    fields, problem = dict(names), ""
    is_imported = "schema.name-mapping.default" in table.properties and any(
        str(field.transform) == "identity" for spec in table.specs().values() for field in spec.fields
    )
    if len(fields) < len(names) or len({name for _, name in names}) < len(names):
        problem = "columns were renamed, or dropped and added again under the same name"
    elif any(getattr(field, "initial_default", None) is not None for field in schema.fields):
        problem = "columns have default values"
    elif is_imported:
        problem = "its files were imported, so their partition columns may be only in the table's metadata"
    elif any(task.delete_files for task in tasks):
        problem = "rows of its files are deleted by other files. Rewrite it first: rewrite_data_files of Spark"
    elif odd := next((task.file.file_format for task in tasks if "PARQUET" not in str(task.file.file_format)), None):
        problem = f"it has files of the format {odd}"
    if problem:
        raise InputError(f"read_iceberg: {place!r} cannot be read: {problem}")


def _some(files: list[str], what: str) -> list[str]:
    if not files:
        raise InputError(f"{what} has no rows. Choose another one")
    return files

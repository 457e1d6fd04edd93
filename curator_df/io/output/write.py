# SPDX-License-Identifier: Apache-2.0
"""Write a curated table within the budget: `write_parquet`, `write_jsonl`, and `write_by` for one table per value of a column."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.arguments import choose
from curator_df.core.columns import require_columns
from curator_df.core.host_blocks import block_dtype, host_block
from curator_df.core.planning.first_steps import Reuse
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.journal import OnExisting
from curator_df.core.ranges.price import Price
from curator_df.core.runner.run import run
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.errors import SchemaError
from curator_df.files.storage import Folder
from curator_df.io.folder_columns import HIVE_NULL
from curator_df.io.output.files import arrow_schema
from curator_df.io.output.formats import (
    TARGET_FILE_BYTES,
    JsonlCompression,
    JsonlFormat,
    ParquetCompression,
    file_sink,
    folder_at,
    parquet_format,
    rejects_sink,
)
from curator_df.io.output.hub_output import dataset_at, write_dataset
from curator_df.io.parquet.reader import read_parquet
from curator_df.receipts.receipt import Receipt
from curator_df.suggestions import suggests_names

CONSTANT_PEAK_FACTOR = 1.0
"""Memory multiplier of restoring the column, assumed: 16 bytes a row and the value, for rows of 50 bytes and values of 30."""


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
    card: bool | None = None,
    on_existing: OnExisting = "raise",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    reuse: Reuse = "auto",
    storage_options: dict[str, Any] | None = None,
) -> Receipt:
    """Run a chain and write its rows to Parquet files.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    path : str or path
        Folder, or an fsspec URL; or a dataset of the Hugging Face hub, such as ``"hf://datasets/organization/name"``.
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
        They are deleted at the end. The files of a dataset of the hub wait there, in a folder ``hub-organization-name``,
        until they are published; by default in the current folder.
    card : bool, optional
        Only for a dataset of the hub: whether to write its dataset card; see `push_to_hub`. True by default.
    on_existing : {"raise", "resume", "overwrite"}
        What to do if the folder is not empty: raise an error; continue an interrupted run (with any memory, workers or
        block size); or delete what a run wrote there and start again. For a dataset of the hub, its split ``train``.
    on_error : {"raise", "quarantine"}
        What to do when a step fails on a row, because a function of yours raises or `remove_html` takes too long: stop, or
        quarantine the row in ``_quarantine/`` and count it.
    on_oom : {"retry", "raise"}
        What to do when memory runs out or a worker dies: retry with blocks of half the size, down to one row, and
        quarantine in ``_quarantine/`` the rows that do not fit even alone (with a warning and a note in the receipt);
        or stop with the error.
    reuse : {"auto", "always", "never"}
        Whether the rows after the first steps of a chain are stored in temporary files for the passes of a later drop, so
        that these steps run once instead of in each pass: if the first parts of a large input show that it saves time and
        the disk has room; always; or never. The rows are the same.
    storage_options : dict, optional
        fsspec options; for a dataset of the hub its ``token`` and ``endpoint``.

    Returns
    -------
    Receipt
        A receipt: rows, bytes, seconds and memory of each step, and why rows were dropped. For a dataset of the hub,
        ``settings["published"]`` is the address of the commit.

    Raises
    ------
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    OutputExistsError
        If the folder holds something and ``on_existing="raise"``; or if the dataset has other files of the split.
    ParameterError
        If output, rejects and input overlap, the folder cannot be created, or ``card`` is given for a folder.
    MissingExtraError
        If ``cdc=True`` and pyarrow is older than 21; or, for a dataset of the hub, if huggingface_hub is not installed.
    RemoteFileError
        If the hub refuses the token, or cannot be reached.
    NoClusterError
        If no cluster is running.

    See Also
    --------
    write_jsonl, write_many, write_by, push_to_hub, explain, read_receipt

    Notes
    -----
    Rows: all, in input order over the files' names. Columns: all. Peak extra memory: 1.5 x block; with ``partition_on``
    2.5 x block. Computes: yes.

    A dataset of the hub is created as a private one if it does not exist. Files are written to a local folder first, become
    visible together in a commit, and are then deleted; the journal and the receipt stay there. After an interruption, repeat
    the call with ``on_existing="resume"``.

    Examples
    --------
    >>> docs = cdf.read_jsonl("corpus/").pipe(cdf.drop_exact_duplicates)  # doctest: +SKIP
    >>> receipt = cdf.write_parquet(docs, "clean/", rejects="rejects/", on_existing="resume")  # doctest: +SKIP
    """
    file_format = parquet_format("write_parquet", compression, cdc)
    place = dataset_at("write_parquet", path, workdir, card)
    where, options = (path, storage_options) if place is None else (place.folder.root, None)
    sink = file_sink(df, "write_parquet", where, file_format, target_file_size, partition_on, options)
    rejected = rejects_sink(df, "write_parquet", rejects, options)
    arguments: dict[str, Any] = {
        "rejects": rejected,
        "workdir": None if workdir is None else folder_at(workdir, options),
        "on_existing": on_existing,
        "on_error": on_error,
        "on_oom": on_oom,
        "reuse": reuse,
    }
    if place is None:
        return run(df, sink, **arguments)
    return write_dataset(df, place, sink, card=card is not False, storage_options=storage_options, **arguments)


def write_jsonl(
    df: dd.DataFrame,
    path: str | os.PathLike[str],
    *,
    compression: JsonlCompression = "none",
    target_file_size: str | int = TARGET_FILE_BYTES,
    partition_on: str | list[str] | None = None,
    rejects: str | os.PathLike[str] | None = None,
    workdir: str | os.PathLike[str] | None = None,
    card: bool | None = None,
    on_existing: OnExisting = "raise",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    reuse: Reuse = "auto",
    storage_options: dict[str, Any] | None = None,
) -> Receipt:
    """Run a chain and write its rows to JSON Lines files.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    path : str or path
        Folder, or an fsspec URL; or a dataset of the Hugging Face hub, such as ``"hf://datasets/organization/name"``.
    compression : {"none", "gzip", "zstd"}
        Compression of the files.
    target_file_size : str or int
        A file is closed once it reaches this size on disk.
    partition_on : str or list of str, optional
        Columns whose values become folders (``lang=en/``); they are not in the files.
    rejects : str or path, optional
        Folder for the dropped rows, as Parquet; see `write_parquet`.
    workdir : str or path, optional
        Folder for the temporary files of drops, and for the files of a dataset of the hub; see `write_parquet`.
    card : bool, optional
        Only for a dataset of the hub: whether to write its dataset card. True by default.
    on_existing : {"raise", "resume", "overwrite"}
        What to do if the folder is not empty; see `write_parquet`.
    on_error : {"raise", "quarantine"}
        What to do when a step fails on a row; see `write_parquet`.
    on_oom : {"retry", "raise"}
        What to do when memory runs out; see `write_parquet`.
    reuse : {"auto", "always", "never"}
        Whether the first steps run once for all passes of a later drop; see `write_parquet`.
    storage_options : dict, optional
        fsspec options; for a dataset of the hub its ``token`` and ``endpoint``.

    Returns
    -------
    Receipt
        A receipt: rows, bytes, seconds and memory of each step, and why rows were dropped. For a dataset of the hub,
        ``settings["published"]`` is the address of the commit.

    Raises
    ------
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    OutputExistsError
        If the folder holds something and ``on_existing="raise"``; or if the dataset has other files of the split.
    ParameterError
        If output, rejects and input overlap, the folder cannot be created, or ``card`` is given for a folder.
    MissingExtraError
        If the output is a dataset of the hub and the package huggingface_hub is not installed.
    RemoteFileError
        If the hub refuses the token, or cannot be reached.
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
    place = dataset_at("write_jsonl", path, workdir, card)
    where, options = (path, storage_options) if place is None else (place.folder.root, None)
    sink = file_sink(df, "write_jsonl", where, JsonlFormat(compression), target_file_size, partition_on, options)
    rejected = rejects_sink(df, "write_jsonl", rejects, options)
    arguments: dict[str, Any] = {
        "rejects": rejected,
        "workdir": None if workdir is None else folder_at(workdir, options),
        "on_existing": on_existing,
        "on_error": on_error,
        "on_oom": on_oom,
        "reuse": reuse,
    }
    if place is None:
        return run(df, sink, **arguments)
    return write_dataset(df, place, sink, card=card is not False, storage_options=storage_options, **arguments)


@suggests_names
@dataclass(frozen=True)
class TablesByValue(Mapping[Any, Any]):
    """Tables by value of a column: a mapping that reads a table back when it is accessed.

    See Also
    --------
    write_by, read_parquet
    """

    receipt: Receipt
    """The receipt of the run."""
    column: str
    """The column that the table was split by."""
    rows: Mapping[Any, int]
    """Number of rows of each value, in descending order; None is the value of rows without one."""
    _home: Folder = field(repr=False)
    _folders: Mapping[Any, str] = field(repr=False)
    _meta: Any = field(repr=False)

    def __getitem__(self, value: Any) -> Any:
        """Return the table of one value: lazy, with the columns of the table that was split."""
        path = f"{self._home.url}/{self._folders[value]}"
        rest = read_parquet(path, storage_options=self._home.options or None)
        dtype = block_dtype(_kind(self._meta, self.column))
        meta = rest._meta.assign(**{self.column: pd.array([], dtype=dtype)})[list(self._meta.columns)]
        parameters = {"column": self.column, "value": value, "meta": meta}
        return map_blocks(
            rest, BlockKernel("write_by", _with_value, parameters, price=Price(CONSTANT_PEAK_FACTOR)), meta=meta
        )

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def write_by(
    df: dd.DataFrame,
    path: str | os.PathLike[str],
    *,
    partition_on: str,
    compression: ParquetCompression = "zstd",
    cdc: bool = False,
    target_file_size: str | int = TARGET_FILE_BYTES,
    rejects: str | os.PathLike[str] | None = None,
    workdir: str | os.PathLike[str] | None = None,
    on_existing: OnExisting = "raise",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    reuse: Reuse = "auto",
    storage_options: dict[str, Any] | None = None,
) -> TablesByValue:
    """Write a table to one folder for each value of a column, in one pass, and return the table of each value.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    path : str or path
        Parent folder of the folders of values (``lang=en/``), or an fsspec URL. The column is not in the files; pyarrow
        and Spark restore it when they read ``path``.
    partition_on : str
        Column of text, integers, booleans or dates, with few and short values: each input split makes one file
        for every value that it contains.
    compression : {"zstd", "snappy", "lz4", "gzip", "none"}
        Codec of the column chunks.
    cdc : bool, default False
        Let pages end where the content says so; see `write_parquet`.
    target_file_size : str or int
        A file is closed once it reaches this size on disk.
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
    reuse : {"auto", "always", "never"}
        Whether the first steps run once for all passes of a later drop; see `write_parquet`.
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    TablesByValue
        A mapping from each value of ``partition_on`` (None: rows without one) to its table, read back from Parquet; ``.rows``
        counts, ``.receipt``. Tables are lazy, with the rows in input order and the columns of ``df``. ``tables.rows``
        has the number of rows of each value, ``tables.receipt`` the receipt.

    Raises
    ------
    ColumnError
        If ``df`` does not have the column.
    SchemaError
        If the column has another type, such as lists or floats.
    BudgetError
        If the plan does not fit the budget; nothing has been started.
    OutputExistsError
        If the folder is not empty and ``on_existing="raise"``.
    NoClusterError
        If no cluster is running.

    See Also
    --------
    write_parquet, write_many

    Notes
    -----
    Rows: all. Columns: all. Peak extra memory: 2.5 x block. Computes: yes.

    Values that cannot be folder names are percent-encoded.

    Examples
    --------
    >>> tables = cdf.write_by(docs, "by_lang/", partition_on="lang")  # doctest: +SKIP
    >>> dict(tables.rows)  # doctest: +SKIP
    {'en': 812, 'de': 113, None: 4}
    >>> german = tables["de"].pipe(cdf.keep_where, "score > 3")  # doctest: +SKIP
    """
    require_columns(df, "write_by", partition_on)
    meta = host_block(df._meta)  # what is written, wherever the blocks are
    kind = _kind(meta, partition_on)
    if not _can_be_folders(kind):
        raise SchemaError(
            f"write_by: the column {partition_on!r} holds {kind}, but must hold text, whole numbers, booleans or dates. Convert "
            f"it to text: df.assign({partition_on}=df[{partition_on!r}].astype('string[pyarrow]'))"
        )
    folder_of_all = folder_at(path, storage_options)
    receipt = write_parquet(
        df,
        path,
        compression=compression,
        cdc=cdc,
        target_file_size=target_file_size,
        partition_on=partition_on,
        rejects=rejects,
        workdir=workdir,
        on_existing=on_existing,
        on_error=on_error,
        on_oom=on_oom,
        reuse=reuse,
        storage_options=storage_options,
    )
    most_first = sorted(receipt.rows_by_folder.items(), key=lambda item: (-item[1], item[0]))
    folders = {_value_of(folder, kind): folder for folder, _ in most_first}
    rows = {value: receipt.rows_by_folder[folder] for value, folder in folders.items()}
    return TablesByValue(receipt, partition_on, rows, folder_of_all, folders, meta)


def _with_value(block: Any, *, column: str, value: Any, meta: Any) -> Any:
    """Kernel of the tables of a `TablesByValue`: put the column back that all their rows have in common."""
    constant = pd.array([value], dtype=meta.dtypes[column]).take(np.zeros(len(block), dtype=np.int64))
    return block.assign(**{column: constant})[list(meta.columns)]


def _kind(meta: Any, column: str) -> pa.DataType:
    return arrow_schema(meta).field(column).type


def _can_be_folders(kind: pa.DataType) -> bool:
    # Not floats: 0.0 and -0.0 are one key and two folders, and NaN is a key that is never found.
    tests = (pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)
    return any(test(kind) for test in tests)


def _value_of(folder: str, kind: pa.DataType) -> Any:
    """Return the value in a folder name."""
    name = folder.partition("=")[2]
    if name == HIVE_NULL:
        return None
    return pa.array([urllib.parse.unquote(name)]).cast(kind)[0].as_py()

# SPDX-License-Identifier: Apache-2.0
"""Write a table to one table for each value of a column, in one pass: `write_by`."""

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

from curator_df.core.columns import require_columns
from curator_df.core.host_blocks import block_dtype, host_block
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.journal import OnExisting
from curator_df.core.ranges.price import Price
from curator_df.core.receipts.receipt import Receipt
from curator_df.core.tasks.task import OnError, OnOom
from curator_df.errors import SchemaError
from curator_df.files.storage import Folder
from curator_df.io.folder_columns import HIVE_NULL
from curator_df.io.output.files import arrow_schema
from curator_df.io.output.formats import TARGET_FILE_BYTES, ParquetCompression, folder_at
from curator_df.io.output.write import write_parquet
from curator_df.io.parquet.reader import read_parquet
from curator_df.suggestions import suggests_names

CONSTANT_PEAK_FACTOR = 1.0
"""Memory multiplier of restoring the column, assumed: 16 bytes a row and the value, for rows of 50 bytes and values of 30."""


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
    column: str,
    compression: ParquetCompression = "zstd",
    cdc: bool = False,
    target_file_size: str | int = TARGET_FILE_BYTES,
    rejects: str | os.PathLike[str] | None = None,
    workdir: str | os.PathLike[str] | None = None,
    on_existing: OnExisting = "raise",
    on_error: OnError = "raise",
    on_oom: OnOom = "retry",
    storage_options: dict[str, Any] | None = None,
) -> TablesByValue:
    """Write a table to one folder for each value of a column, in one pass, and return the table of each value.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A chain that begins with `read_jsonl` or `read_parquet`.
    path : str or path
        Parent folder of the folders of values (``lang=en/``), or an fsspec URL. The column is not in the files; pyarrow
        and Spark restore it when they read ``path``.
    column : str
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
    storage_options : dict, optional
        fsspec options.

    Returns
    -------
    TablesByValue
        A mapping from each value of ``column`` (None: rows without one) to its table, read back from Parquet; ``.rows``
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
    >>> tables = cdf.write_by(docs, "by_lang/", column="lang")  # doctest: +SKIP
    >>> dict(tables.rows)  # doctest: +SKIP
    {'en': 812, 'de': 113, None: 4}
    >>> german = tables["de"].pipe(cdf.keep_where, "score > 3")  # doctest: +SKIP
    """
    require_columns(df, "write_by", column)
    meta = host_block(df._meta)  # what is written, wherever the blocks are
    kind = _kind(meta, column)
    if not _can_be_folders(kind):
        raise SchemaError(
            f"write_by: the column {column!r} holds {kind}; write_by takes text, whole numbers, truth values or "
            f"dates. Make text of it: df.assign({column}=df[{column!r}].astype('string[pyarrow]'))"
        )
    folder_of_all = folder_at(path, storage_options)
    receipt = write_parquet(
        df,
        path,
        compression=compression,
        cdc=cdc,
        target_file_size=target_file_size,
        partition_on=column,
        rejects=rejects,
        workdir=workdir,
        on_existing=on_existing,
        on_error=on_error,
        on_oom=on_oom,
        storage_options=storage_options,
    )
    most_first = sorted(receipt.rows_by_folder.items(), key=lambda item: (-item[1], item[0]))
    folders = {_value_of(folder, kind): folder for folder, _ in most_first}
    rows = {value: receipt.rows_by_folder[folder] for value, folder in folders.items()}
    return TablesByValue(receipt, column, rows, folder_of_all, folders, meta)


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

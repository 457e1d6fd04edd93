# SPDX-License-Identifier: Apache-2.0
"""Counts of each block of a table, stored by a run and read again: what `describe` and `describe_domains` add up."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from dask.dataframe.dask_expr import new_collection

from curator_df.core.columns import require_columns
from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.branches import without_folders
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.runner.session import current_session
from curator_df.errors import ParameterError, SchemaError
from curator_df.files.hub import refuse_hub_output
from curator_df.files.storage import Folder
from curator_df.io.output.checkpoint import checkpoint
from curator_df.io.streams.file_stream import open_file

BATCH_ROWS = 65_536
"""Number of counts that are read together."""

Batches = Callable[..., Iterator[pa.Table]]
"""Function that reads the counts of all blocks again; its argument, if any, is the number of counts in a batch."""


def count_blocks(
    table: Any, kernel: BlockKernel, columns: Iterable[str | None], meta: pd.DataFrame, workdir: Any, options: Any
) -> Batches:
    """Count the blocks of a table.

    Parameters
    ----------
    table : dask.dataframe.DataFrame or pandas.DataFrame
        The table. A Dask table is counted by a run, which stores the counts in a subfolder of ``workdir``: the same call
        finds them again, complete or interrupted.
    kernel : BlockKernel
        Makes counts, rows of ``meta``, from a block.
    columns : iterable of str or None
        Columns of the table that the kernel reads.
    meta : pandas.DataFrame
        Empty table of counts.
    workdir : str, path or None
        Folder (or URL) visible to all workers. Defaults to the cluster's ``workdir``.
    options : dict, optional
        fsspec options for ``workdir``.

    Returns
    -------
    callable
        Function that reads the counts of all blocks, in batches; it can be called again.
    """
    if isinstance(table, pd.DataFrame):
        counted = pa.Table.from_pandas(kernel.run(table).block, preserve_index=False)
        return lambda rows=0: iter([counted])  # noqa: ARG005 - they are in memory
    table = new_collection(without_folders(table.expr))  # only an output appends to an index
    partial = map_blocks(table[[name for name in dict.fromkeys(columns) if name is not None]], kernel, meta=meta)
    program = lower(partial, spools=True)
    parent = workdir if workdir is not None else current_session().workdir
    if parent is None:
        raise ParameterError(
            f"{kernel.name} needs workdir=, because the workers of the cluster that you connected to may be on other "
            "machines. Set it to a folder or URL that all of them can read and write"
        )
    refuse_hub_output(os.fspath(parent))
    name = f"{kernel.name}-{fingerprint(program.source.fingerprint, program.fingerprint)[:16]}"
    home = Folder(f"{os.fspath(parent).rstrip('/')}/{name}", options or {})
    checkpoint(partial, home.url, storage_options=options)
    return functools.partial(_stored, home)


def require_token_column(table: Any, operator: str, token_column: str) -> None:
    """Raise an error unless ``token_column`` is a column of integers."""
    require_columns(table, operator, token_column)
    if getattr(table.dtypes[token_column], "kind", "O") not in "iu":
        raise SchemaError(
            f"{operator}: token_column={token_column!r} must be a column of integers, but it holds {table.dtypes[token_column]}. "
            "Name the column of add_token_count, or convert it with astype('Int64')"
        )


def _stored(home: Folder, rows: int = BATCH_ROWS) -> Iterator[pa.Table]:
    """Read the counts of all blocks from Parquet files."""
    import pyarrow.parquet as pq

    for name in home.names():
        if name.startswith("part-") and name.endswith(".parquet"):
            with open_file(f"{home.url}/{name}", home.options) as file:
                parquet = pq.ParquetFile(file, page_checksum_verification=True)
                for batch in parquet.iter_batches(rows):
                    yield pa.Table.from_batches([batch])

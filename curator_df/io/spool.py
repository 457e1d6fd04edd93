# SPDX-License-Identifier: Apache-2.0
"""Working files for what a run cannot stream: rows in memory, tables of Dask's own readers, sorts, merges.

Dask computes such a table, and each of its partitions is written to a Parquet file in the working folder of the cluster. The run
then streams these files like any other input. An index with a name becomes a column. The files are kept until the cluster closes,
so that a second run reuses them.
"""

from __future__ import annotations

import functools
import uuid
from typing import Any

import dask
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr.io import FromPandas

from curator_df.core.backend import is_on_device
from curator_df.core.files.storage import Folder, disk_errors
from curator_df.core.planning.dask_steps import require_no_dependence_on_blocks
from curator_df.core.planning.program import add_spooler, remove_spooler
from curator_df.core.ranges.source import ADDRESS
from curator_df.core.runner.session import Session
from curator_df.errors import SchemaError, UnsupportedBackendError
from curator_df.io.parquet import read_parquet

SPOOL_FOLDER = "spool"
"""Below the working folder of the cluster."""
GROUP_BYTES = 8_000_000
"""About the bytes of a row group: a run reads one at a time."""


class Spool:
    """The working files of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tables: dict[str, Any] = {}

    @functools.cached_property
    def folder(self) -> Folder:
        """Where the files are."""
        return self._session.working(SPOOL_FOLDER)

    def table(self, expression: Any) -> Any:
        """Return the table of an expression, read back from working files that are written first if they are not there."""
        name = str(expression._name)
        if name not in self._tables:
            self._tables[name] = self._written(expression, name)
        return self._tables[name]

    def close(self) -> None:
        """Stop spooling, and delete the files."""
        remove_spooler(self.table)
        self._tables.clear()
        if "folder" in vars(self):
            self.folder.delete_tree("")

    def _written(self, expression: Any, name: str) -> Any:
        require_no_dependence_on_blocks(expression)
        if is_on_device(expression._meta):
            raise UnsupportedBackendError(
                "this table is computed by Dask on a GPU, and only tables on the host are written to working files. Write it to "
                "Parquet with dask-cudf, and read it with curator_df.read_parquet"
            )
        self._session.require_ready()
        folder = self.folder.below(f"{name}-{uuid.uuid4().hex[:8]}")
        parts = new_collection(_with_objects(expression)).to_delayed()
        written = [dask.delayed(_write_part)(part, number, folder) for number, part in enumerate(parts)]
        dask.compute(*written)
        return read_parquet(folder.url, storage_options=dict(folder.options) or None)


def _with_objects(expression: Any) -> Any:
    """Return an expression whose tables of pandas keep lists and dicts, which Dask would turn into their ``str()``."""
    for node in expression.walk():
        if isinstance(node, FromPandas) and node.operand("pyarrow_strings_enabled"):
            kept = node.substitute_parameters({"pyarrow_strings_enabled": False})
            return _with_objects(expression.substitute(node, kept))
    return expression


def spool_on(session: Session) -> Spool | None:
    """Write what runs on this session cannot stream to its working folder, where it has one."""
    if session.workdir is None:
        return None
    spool = Spool(session)
    add_spooler(spool.table)
    return spool


def _write_part(block: pd.DataFrame, number: int, folder: Folder) -> None:
    """Write one partition as a Parquet file; one without rows only if it is the first, for the columns."""
    if not len(block) and number:
        return
    if any(
        name not in (None, ADDRESS) for name in block.index.names
    ):  # made by set_index or groupby: values of the user's
        block = block.reset_index()
    if not all(isinstance(column, str) for column in block.columns):
        raise SchemaError(f"columns must be named by text, and this table has {list(block.columns)}. Rename them first")
    try:
        table = pa.Table.from_pandas(block, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as exc:
        raise SchemaError(
            f"partition {number} of a table that Dask computed cannot be written to Parquet: {exc}"
        ) from exc
    rows = max(1, len(block) * GROUP_BYTES // max(table.nbytes, 1))
    with disk_errors(folder), folder.create(f"part-{number:06d}.parquet") as file:
        pq.write_table(table, file, compression="zstd", compression_level=1, row_group_size=rows)
        file.commit(len(block))

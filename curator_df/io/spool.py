# SPDX-License-Identifier: Apache-2.0
"""Working files for tables that a run cannot stream: rows in memory, tables of Dask's own readers, sorts, merges.

Dask computes such a table, and each of its partitions is written to a Parquet file in the working folder of the cluster. The run
then streams these files like any other input. An index with a name becomes a column. The files are kept until the cluster closes,
so that a second run reuses them.
"""

from __future__ import annotations

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
"""Folder below the working folder of the cluster."""
GROUP_BYTES = 8_000_000
"""Approximate bytes of a row group, the unit that a run reads."""


class Spool:
    """Working files of a session."""

    def __init__(self, session: Session, folder: Folder) -> None:
        self._session, self._folder = session, folder
        self._tables: dict[str, Any] = {}

    def table(self, expression: Any) -> Any:
        """Return the table of an expression, read back from working files, which are written first if they do not exist."""
        name = str(expression._name)
        if name not in self._tables:
            self._tables[name] = self._written(expression, name)
        return self._tables[name]

    def close(self) -> None:
        """Stop spooling, and delete the files."""
        remove_spooler(self.table)
        self._tables.clear()
        self._folder.delete_tree("")

    def _written(self, expression: Any, name: str) -> Any:
        require_no_dependence_on_blocks(expression)
        if is_on_device(expression._meta):
            raise UnsupportedBackendError(
                "this table is computed by Dask on a GPU, but working files need tables on the host. Write it to "
                "Parquet with dask-cudf, and read it with curator_df.read_parquet"
            )
        self._session.require_ready()
        folder = self._folder.below(f"{name}-{uuid.uuid4().hex[:8]}")
        parts = new_collection(_with_objects(expression)).to_delayed()
        written = [dask.delayed(_write_part)(part, number, folder) for number, part in enumerate(parts)]
        dask.compute(*written)
        return read_parquet(folder.url, storage_options=dict(folder.options) or None)


def _with_objects(expression: Any) -> Any:
    """Return an expression whose pandas tables keep lists and dicts, which Dask would convert with ``str()``."""
    for node in expression.walk():
        if isinstance(node, FromPandas) and node.operand("pyarrow_strings_enabled"):
            kept = node.substitute_parameters({"pyarrow_strings_enabled": False})
            return _with_objects(expression.substitute(node, kept))
    return expression


def spool_on(session: Session) -> Spool | None:
    """Write tables that runs of this session cannot stream to its working folder, if it has one."""
    if session.workdir is None:
        return None
    spool = Spool(session, Folder(session.workdir, is_durable=False).below(SPOOL_FOLDER))
    add_spooler(spool.table)
    return spool


def _write_part(block: pd.DataFrame, number: int, folder: Folder) -> None:
    """Write one partition as a Parquet file; an empty one only if it is the first, for the columns."""
    if not len(block) and number:
        return
    if any(
        name not in (None, ADDRESS) for name in block.index.names
    ):  # index made by set_index or groupby, with the user's values
        block = block.reset_index()
    if not all(isinstance(column, str) for column in block.columns):
        raise SchemaError(f"column names must be text, but this table has {list(block.columns)}. Rename them first")
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

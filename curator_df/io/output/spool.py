# SPDX-License-Identifier: Apache-2.0
"""Working files for tables that a run cannot stream: rows in memory, tables of Dask's own readers, sorts, merges.

Dask computes such a table, and each of its partitions is written to a Parquet file in the working folder of the cluster. The run
then streams these files like any other input. An index with a name becomes a column. The files are kept until the cluster closes,
so that a second run reuses them.
"""

from __future__ import annotations

import errno
import functools
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._expr import MapPartitions
from dask.dataframe.dask_expr.io import FromMap, FromPandas
from dask.sizeof import sizeof

from curator_df.core.backend import is_on_device
from curator_df.core.cleaning_up import clean_up
from curator_df.core.columns import is_text
from curator_df.core.planning.dask_steps import require_no_dependence_on_blocks, streams, title
from curator_df.core.planning.lowering import (
    ReadPartition,
    add_spooler,
    current_spooler,
    foreign_part,
    lower,
    origin_of,
    remove_spooler,
)
from curator_df.core.planning.row_estimate import estimate_rows
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.deferred_step import DeferredStep
from curator_df.core.ranges.set_up import SetUp
from curator_df.core.ranges.source import ADDRESS, Ranges
from curator_df.core.runner.run import range_bytes
from curator_df.core.runner.session import Session
from curator_df.errors import DiskFullError, SchemaError, UnsupportedBackendError
from curator_df.files.storage import FileRecord, Folder
from curator_df.files.working_files import SPOOL_FOLDER, part_name
from curator_df.io.frames import LARGEST_OFFSET
from curator_df.io.output.writable import require_types
from curator_df.io.parquet.reader import ParquetSource, read_parquet
from curator_df.io.partitions import from_source
from curator_df.memory.sizes import show_size, show_sizes

GROUP_BYTES = 8_000_000
"""Approximate bytes of a row group, the unit that a run reads."""
DISK_SHARE = 0.5
"""Bytes of a file as a share of those of its rows in memory, where they are not known yet.

Measured (``benchmarks/interactive.py --working-files``): 0.28 for 290 MB of documents, 0.23 for a million rows of numbers
and IDs. The rest is room for data that compresses less.
"""
SETTLE_SECONDS = 20.0
"""Longest wait for tasks that still write when one has failed, before their files are deleted."""
INDEX_FOLDER = "_index"
"""The index of each partition, which a look gives back to its rows. Readers skip the name."""
KEEP_ROWS = frozenset(
    (
        *("AsType", "Assign", "ColumnsSetter", "Concat", "Fillna", "Projection", "RearrangeByColumn", "RenameFrame"),
        *("Repartition", "RepartitionDivisions", "RepartitionToFewer", "RepartitionToMore", "ResetIndex", "SetIndex"),
        *("SetIndexBlockwise", "SetPartition", "Shuffle", "SortValues"),
    )
)
"""Dask's operations whose result is about as large as what they read, so that a lack of disk can be reported beforehand."""
CHANGE_ROWS = frozenset(
    ("DeferredStep", "DropnaFrame", "ExplodeFrame", "Filter", "LocUnknown", "MapPartitions", "Query")
)
"""Class names of Dask's operations of single blocks after which a table may have other rows."""


@dataclass(frozen=True)
class PartitionIndex:
    """The index that the rows of each partition had before they were written."""

    folder: Folder
    """Folder of the working files."""

    def __call__(self, number: int, addresses: Any) -> pd.Index:
        """Return the index of some rows of a partition, by their addresses."""
        with self.folder.filesystem.open(self.folder.path(part_name(number, INDEX_FOLDER)), "rb") as file:
            index = pq.read_table(file, page_checksum_verification=True).to_pandas().index
        taken: pd.Index = index.take(np.asarray(addresses) & (LARGEST_OFFSET - 1))
        return taken


@dataclass(frozen=True)
class Spooled:
    """A table that was written to working files."""

    table: Any
    """The table read back, with the partitions that it had."""
    index: PartitionIndex
    """The index that the rows had."""
    folder: Folder
    """Where the files are."""
    files: tuple[FileRecord, ...]
    """Files that were written."""
    operations: tuple[str, ...]
    """Operations of Dask that made the rows, first ones first."""

    @property
    def bytes(self) -> int:
        """Bytes on disk."""
        return sum(file.size_bytes for file in self.files)


class Spool:
    """Working files of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tables: dict[str, Spooled] = {}

    @functools.cached_property
    def folder(self) -> Folder:
        """Where the files are."""
        return self._session.working(SPOOL_FOLDER)

    @property
    def planned_folder(self) -> Folder:
        """Where the files are, or would be, below the folder of the user: without making a folder."""
        return self._session.working(SPOOL_FOLDER, make=False)

    def spooled(self, expression: Any) -> Spooled:
        """Return the table of an expression, read back from working files, which are written first if they do not exist."""
        known = self.known(expression)
        if known is None:
            known = self._tables[str(expression._name)] = self._written(expression, str(expression._name))
        return known

    def known(self, expression: Any) -> Spooled | None:
        """Return the table of an expression if its working files are there and whole."""
        known = self._tables.get(str(expression._name))
        if known is not None and not known.folder.holds(known.files):
            self.forget(expression)
            return None
        return known

    def forget(self, expression: Any) -> int:
        """Delete the working files of an expression; return their bytes."""
        known = self._tables.pop(str(expression._name), None)
        if known is None:
            return 0
        freed = sum(known.folder.sizes().values())
        known.folder.delete_tree("")
        return freed

    def computed(self, files: Sequence[str]) -> Sequence[str]:
        """Return the operations of Dask that made the rows of some files; none if these are not working files."""
        read = {file.rpartition("/")[0] for file in files}
        tables = [known for known in self._tables.values() if known.folder.url in read]
        return tuple(dict.fromkeys(operation for known in tables for operation in known.operations))

    def close(self) -> None:
        """Stop spooling, and delete the files."""
        remove_spooler(self)
        self._tables.clear()
        if "folder" in vars(self):
            self.folder.delete_tree("")

    def _written(self, expression: Any, name: str) -> Spooled:
        require_no_dependence_on_blocks(expression)
        if is_on_device(expression._meta):
            raise UnsupportedBackendError(
                "this table is computed by Dask on a GPU, but the temporary files of curator_df can only hold tables in "
                "host memory. Write it to Parquet with dask-cudf, and read it with curator_df.read_parquet"
            )
        self._session.require_ready()
        folder = self.folder.below(f"{name}-{uuid.uuid4().hex[:8]}")
        require_space(expression, self.folder)
        parts = new_collection(_with_objects(expression)).to_delayed()
        tasks = [dask.delayed(_write_part)(part, number, folder) for number, part in enumerate(parts)]
        try:
            written = dask.compute(*tasks)
        except BaseException as exc:
            clean_up(exc, self._settle, lambda: folder.delete_tree(""))
            raise
        table = _read_back(folder, [rows for rows, _ in written])
        files = tuple(file for _, of_part in written for file in of_part)
        return Spooled(table, PartitionIndex(folder), folder, files, _operations(expression))

    def _settle(self) -> None:
        """Wait until no task writes any more: one that ends later would leave its file."""
        processing = getattr(self._session.client, "processing", None)
        give_up = time.monotonic() + SETTLE_SECONDS
        while processing is not None and self._session.client.status == "running" and time.monotonic() < give_up:
            if not any(_write_part.__name__ in str(key) for keys in processing().values() for key in keys):
                return
            time.sleep(0.1)


def _operations(expression: Any) -> tuple[str, ...]:
    """Return the names of the operations of an expression that need several blocks or may remove rows, first ones first."""
    nodes = [node for node in expression.walk() if node.ndim == 2 and node.dependencies()]
    named = [node for node in nodes if not streams(node) or type(node).__name__ in CHANGE_ROWS]
    return tuple(dict.fromkeys(_operator(node) or title(node) for node in reversed(named)))


def _operator(node: Any) -> str:
    """Return the name of the operator of ours that an expression applies; empty for others."""
    function = node.operand("func") if isinstance(node, MapPartitions) else None
    return str(function.name) if isinstance(function, BlockKernel | SetUp) else ""


def _read_back(folder: Folder, rows: Sequence[int]) -> Any:
    """Return the table of working files with a partition for each of those that were written, also where it has no rows."""
    table = read_parquet(folder.url, storage_options=dict(folder.options) or None)
    reader = origin_of(table)
    ranges, file = [], 0
    for number, count in enumerate(rows):
        if count or not number:
            ranges.append((file, 0, file, count))
            file += 1
        else:
            ranges.append((file - 1, LARGEST_OFFSET - 1, file - 1, LARGEST_OFFSET - 1))
    kept = Ranges(np.array(ranges, dtype=np.int64))
    return from_source(reader.source, kept, block_bytes=reader.block_bytes, explicit=False)


@dataclass(frozen=True)
class ExpectedFiles(ParquetSource):
    """Working files that Dask has not written yet, for plans: without rows, but with an estimate of their size."""

    expected_bytes: int = 0
    """Bytes of the rows in memory."""
    expected_rows: int = 0
    """Number of the rows."""

    @property
    def input_bytes(self) -> int:
        """Estimated size of the files on disk."""
        return int(self.expected_bytes * DISK_SHARE)

    @property
    def text_bytes(self) -> int:
        """Estimated size of the rows in memory."""
        return self.expected_bytes

    def about_rows(self) -> int | None:
        """Return the estimated number of rows."""
        return self.expected_rows

    def cut(self, piece_bytes: int) -> Ranges:
        """Cut the expected rows into input splits of about ``piece_bytes``."""
        splits = min(-(-self.expected_bytes // piece_bytes), self.expected_rows)
        ends = np.linspace(0, self.expected_rows, splits + 1).astype(np.int64)
        file = np.zeros(splits, np.int64)
        return Ranges(np.stack([file, ends[:-1], file, ends[1:]], axis=1))

    def blocks(self, *_: Any, **__: Any) -> Iterator[pd.DataFrame]:
        """Yield no block."""
        yield from ()


def stand_in(expression: Any, folder: Folder) -> Any:
    """Return a table for plans, with the columns that an expression has when it is written, and its size where that is known."""
    meta = expression._meta
    texts = {name: "string" for name, kind in meta.dtypes.items() if pd.api.types.is_object_dtype(kind)}
    _write_part(meta.astype(texts), 0, folder)
    table, rows_bytes, rows = read_parquet(folder.url), about_bytes(expression), about_rows(expression)
    if not rows_bytes or not rows:
        return table
    reader = origin_of(table)
    given = {each.name: getattr(reader.source, each.name) for each in fields(ParquetSource)}
    source = ExpectedFiles(**given, expected_bytes=rows_bytes, expected_rows=rows)
    return from_source(source, source.cut(range_bytes(source)), block_bytes=reader.block_bytes, explicit=False)


def stored_names(df: Any) -> list[str]:
    """Return the columns that a table has after it was read back from working files, or its own if it needs none."""
    meta = df._meta
    has_index = any(name not in (None, ADDRESS) for name in meta.index.names)
    is_foreign = foreign_part(df.expr) is not None
    return list((meta.reset_index() if has_index and is_foreign else meta).columns)


def is_spooled(df: Any) -> bool:
    """Return whether Dask must compute a part of a table into working files before a run can stream the table."""
    return current_spooler() is not None and foreign_part(df.expr) is not None


def known_meta(df: Any) -> Any:
    """Return the columns that a table has in a run, if they are known before Dask computes what a run cannot stream.

    Columns whose types only the rows tell have Arrow's null type, which goes with any other.
    """
    if foreign_part(df.expr) is None:
        return lower(df).meta
    expression = _with_objects(df.expr)
    meta = expression._meta
    if any(name not in (None, ADDRESS) for name in meta.index.names):
        meta = meta.reset_index()
    # Dask's merges, for example, announce whole numbers and return fractions where a row has no match.
    keeps = all(type(node).__name__ in KEEP_ROWS or not node.dependencies() for node in expression.walk())
    kinds = zip(meta.columns, meta.dtypes, strict=True)
    return pd.DataFrame(
        {name: pd.Series([], dtype=dtype if _is_certain(dtype, keeps) else _UNKNOWN) for name, dtype in kinds}
    )


_UNKNOWN = pd.ArrowDtype(pa.null())


def _is_certain(dtype: Any, keeps: bool) -> bool:
    """Return whether the rows of a working file have this type: those of objects, categories and times may have another.

    So may plain whole numbers and truth values, unless the operations of Dask keep the rows that they read.
    """
    if isinstance(dtype, np.dtype):
        return (keeps and dtype.kind in "biu") or dtype in (np.float32, np.float64)
    if isinstance(dtype, pd.CategoricalDtype | pd.SparseDtype):
        return False
    return is_text(dtype) or getattr(dtype, "kind", "O") in "biuf"


def pending_steps(df: Any) -> list[str]:
    """Return the names of the steps that need all rows, from first to last, after the part that Dask must compute."""
    part = foreign_part(df.expr)
    before = set() if part is None else {node._name for node in part.walk()}
    nodes = [node for node in df.expr.walk() if isinstance(node, DeferredStep) and node._name not in before]
    return [node.operand("func").name for node in reversed(nodes)]


def about_bytes(expression: Any) -> int | None:
    """Return about the bytes of rows that an expression reads, in memory; None where Dask's reader does not tell."""
    total = 0
    for leaf in {node._name: node for node in expression.walk() if not node.dependencies()}.values():
        if isinstance(leaf, FromPandas):
            total += int(sizeof(leaf.operand("frame")._data))
        elif isinstance(leaf, FromMap) and isinstance(leaf.operand("func"), ReadPartition):
            total += int(leaf.operand("func").source.text_bytes)
        else:
            return None
    return total


def about_rows(expression: Any) -> int | None:
    """Return about the number of rows that an expression reads; None where Dask's reader does not tell.

    A merge is taken to have the rows of its larger table.
    """
    counts = []
    for leaf in {node._name: node for node in expression.walk() if not node.dependencies()}.values():
        if isinstance(leaf, FromPandas):
            counts.append(len(leaf.operand("frame")._data))
        elif isinstance(leaf, FromMap) and isinstance(leaf.operand("func"), ReadPartition):
            source = leaf.operand("func").source
            counts.append(estimate_rows(source, source.cut(range_bytes(source))))
        else:
            return None
    return max(counts) if any("Merge" in type(node).__name__ for node in expression.walk()) else sum(counts)


def has_rows(df: Any) -> bool:
    """Return whether a table may have rows: one that is made of tables in memory without rows has none."""
    leaves = [node for node in df.expr.walk() if not node.dependencies()]
    return not all(isinstance(leaf, FromPandas) and not len(leaf.operand("frame")._data) for leaf in leaves)


def about_disk_bytes(expression: Any) -> int | None:
    """Return about the bytes of the working files of an expression, None where that is not known."""
    rows_bytes = about_bytes(expression)
    return None if rows_bytes is None else int(rows_bytes * DISK_SHARE)


def require_space(expression: Any, folder: Folder) -> None:
    """Raise `DiskFullError` if there is no room for a table that comes out about as large as it goes in."""
    needed, free = about_disk_bytes(expression), folder.free_bytes()
    if needed is None or free is None or free >= needed:
        return
    if all(type(node).__name__ in KEEP_ROWS or not node.dependencies() for node in expression.walk()):
        need, has = show_sizes(needed, free)
        raise DiskFullError(
            f"A run cannot process {title(expression)} block by block, so Dask would first compute it into temporary files "
            f"of about {need}, but only {has} are free in {folder.url}.\nNothing was started. Free "
            "some space, or start the cluster with workdir= on a larger disk."
        )


@contextmanager
def _spool_errors(folder: Folder) -> Iterator[None]:
    """Turn "no space left" into an error that says where, and that nothing stays."""
    try:
        yield
    except OSError as exc:
        if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _no_space(folder) from exc


def _no_space(folder: Folder) -> DiskFullError:
    free = folder.free_bytes()
    known = "" if free is None else f" ({show_size(free)} free)"
    return DiskFullError(
        f"No space is left in {folder.url}{known} for the temporary files of a table that Dask computes. Those that "
        "were written have been deleted.\nFree some space, or start the cluster with workdir= on a larger disk."
    )


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
    spool = Spool(session)
    add_spooler(spool)
    return spool


def _write_part(block: pd.DataFrame, number: int, folder: Folder) -> tuple[int, list[FileRecord]]:
    """Write one partition as a Parquet file, and its index; one without rows only if it is the first, for the columns."""
    if not len(block) and number:
        return 0, []
    index = pd.DataFrame(index=block.index)
    if any(
        name not in (None, ADDRESS) for name in block.index.names
    ):  # index made by set_index or groupby, with the user's values
        block = block.reset_index()
    if not all(isinstance(column, str) for column in block.columns):
        raise SchemaError(f"column names must be text, but this table has {list(block.columns)}. Rename them first")
    try:
        table, kept = (
            pa.Table.from_pandas(block, preserve_index=False),
            pa.Table.from_pandas(index, preserve_index=True),
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as exc:
        raise SchemaError(
            f"partition {number} of a table that Dask computed cannot be written to Parquet: {exc}. Convert the column with "
            "astype(), or leave it out"
        ) from exc
    require_types(table.schema, "a table that Dask computed", is_parquet=True, way_out=", or convert it")
    free = folder.free_bytes()
    if free is not None and free < (table.nbytes + kept.nbytes) * DISK_SHARE:
        raise _no_space(folder)
    rows = max(1, len(block) * GROUP_BYTES // max(table.nbytes, 1))
    files = []
    for name, what in ((part_name(number, INDEX_FOLDER), kept), (part_name(number), table)):
        with _spool_errors(folder), folder.create(name) as file:
            options = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}
            pq.write_table(what, file, row_group_size=rows, **options)
            files.append(file.commit(len(block)))
    return len(block), files

# SPDX-License-Identifier: Apache-2.0
"""The table that every ``find_`` operator returns: a row for each member of a group, which of them stays, what each matched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.source import OFFSET_BITS, Range
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.dedup.table.id_pass import GroupRows, Matches
from curator_df.dedup.table.id_sink import IdReader
from curator_df.exchange.dropped_rows import Found
from curator_df.exchange.drops import read_drops
from curator_df.exchange.exchange import DROP_WORDS
from curator_df.exchange.keys import KeptRows
from curator_df.files.sorted_rows import RowsUpTo, with_values
from curator_df.files.storage import FileRecord, Folder
from curator_df.io.output.files import FileSink

COLUMNS: dict[str, Any] = {
    "address": "Int64",
    "file": "string[pyarrow]",
    "offset": "Int64",
    "group": "Int64",
    "group_size": "Int64",
    "kept": "boolean",
    "matched_address": "Int64",
    "matched_file": "string[pyarrow]",
    "matched_offset": "Int64",
}
"""Columns of every table, before the similarity."""
MERGE_BYTES = 2_000_000
"""Held to read the members of a group of ranges, and as much for each other thing that is read along with them."""


@dataclass(frozen=True)
class GroupTable:
    """Description of how a table of groups is made."""

    matches: Callable[[Any, int], Matches]
    """``matches(found, group)``: its rows."""
    id_column: str | None = None
    """Column of the input that names its rows."""
    id_dtype: Any = None
    """Type of its values: text or integers."""
    against: KeptRows | None = None
    """Another table, to whose rows addresses point that come after those of the input."""
    measure: str = "jaccard"
    """Name of the column that says how similar a row and the one it matched are."""
    by_eps: bool = False
    """Whether it has groups for several distances; then rows have no ids."""

    @property
    def columns(self) -> dict[str, Any]:
        """Dtype of each column."""
        first = {} if self.id_column is None else {"id": self.id_dtype, "matched_id": self.id_dtype}
        if self.by_eps:
            first["eps"] = "Float64"
        return {**first, **COLUMNS, self.measure: "Float64"}

    @property
    def meta(self) -> pd.DataFrame:
        """No rows."""
        return pd.DataFrame({name: pd.array([], dtype=dtype) for name, dtype in self.columns.items()})


@dataclass(frozen=True)
class TableJob:
    """Everything about the table that is the same for all its files."""

    found: Found
    """Groups that were found."""
    sink: FileSink
    """Where the table goes."""
    paths: tuple[str, ...]
    """The input's files, and those of another table."""
    table: GroupTable
    """Columns and format of the table."""
    ids_folder: Folder
    """Where `ids` are."""
    ids: tuple[FileRecord, ...] = ()
    """Result of `id_pass.take_ids`."""


def table_pieces(found: Found) -> list[Range]:
    """Return a piece for each file of the table: a group of ranges of the input."""
    groups = found.groups
    count = -(-(len(groups.starts) - groups.kept) // groups.per_group)
    return [Range(number, 0, 0, 0, 0) for number in range(count)]


def run_table(job_bytes: bytes, attempt: Attempt) -> Manifest:
    """Write one file of the table."""

    def write(manifest: Manifest) -> None:
        job: TableJob = cloudpickle.loads(job_bytes)
        writer = job.sink.open(attempt.piece.number, job.table.meta, attempt.block_bytes)
        try:
            for block in _frames(job, attempt.piece.number):
                writer.append(block)
                manifest.rows_written += len(block)
            manifest.files = writer.commit()
        finally:
            writer.discard()

    return run_guarded(attempt, write)


def exact_matches(found: Found, group: int) -> Matches:
    """Yield the rows of groups of equal rows: each matched the one that stays, which itself matched none.

    If none stays, each matched the first one, which matched the second.
    """
    if found.keeps_none:
        yield from _matches_without_kept(found, group)
        return
    for members in found.member_rows(group, memory_bytes=MERGE_BYTES):
        survivors = members[:, 1]
        yield GroupRows(members, survivors, np.where(survivors == members[:, 0], np.nan, 1.0))


def _matches_without_kept(found: Found, group: int) -> Matches:
    first, each = group * found.groups.per_group, found.groups.per_group
    numbers = range(first, min(first + each, len(found.groups.starts)))
    drops = (
        rows.view(np.uint64)
        for number in numbers
        for rows in read_drops(found.exchange, number, found.files, memory_bytes=MERGE_BYTES)
    )
    missing = "a member of a group is not among its dropped rows. This is a defect in curator_df; please report it"
    members = found.member_rows(group, memory_bytes=MERGE_BYTES)
    for rows, dropped in with_values(members, RowsUpTo(drops, DROP_WORDS), missing):
        yield GroupRows(rows, dropped[:, 1].copy(), np.ones(len(rows)))


def _frames(job: TableJob, group: int) -> Iterator[pd.DataFrame]:
    paths = pd.array(list(job.paths), dtype=COLUMNS["file"])
    table, reader = job.table, None
    if table.id_column is not None:
        reader = IdReader(job.ids_folder, job.ids, group, memory_bytes=MERGE_BYTES)
    for rows in table.matches(job.found, group):
        if reader is None:
            yield _frame(rows, paths, job)
            continue
        for part, ids, matched_ids in reader.ids(rows.members, rows.matched):
            some = GroupRows(rows.members[part], rows.matched[part], rows.similarities[part])
            frame = _frame(some, paths, job)
            for name, values in (("matched_id", matched_ids), ("id", ids)):
                frame.insert(0, name, pd.array(_as_text(values), dtype="string[pyarrow]").astype(table.id_dtype))
            yield frame


def _as_text(values: Any) -> Any:
    import pyarrow as pa

    return pa.chunked_array([values.cast(pa.large_string())])


def _frame(rows: GroupRows, paths: Any, job: TableJob) -> pd.DataFrame:
    addresses, groups, sizes = (rows.members[:, word].astype(np.int64) for word in range(3))
    matched, similarities = rows.matched.astype(np.int64), rows.similarities
    columns: dict[str, Any] = (
        {} if rows.eps is None else {"eps": pd.array(np.full(len(addresses), rows.eps), dtype="Float64")}
    )
    columns |= _address_columns("", addresses, paths)
    columns["group"] = pd.array(groups, dtype="Int64")
    columns["group_size"] = pd.array(sizes, dtype="Int64")
    columns["kept"] = pd.array((addresses == groups) & (not job.found.keeps_none), dtype="boolean")
    columns |= _address_columns("matched_", matched, paths, matched == addresses)
    columns[job.table.measure] = pd.arrays.FloatingArray(np.nan_to_num(similarities), np.isnan(similarities))
    return pd.DataFrame(columns)


def _address_columns(
    prefix: str, addresses: npt.NDArray[np.int64], paths: Any, is_none: npt.NDArray[np.bool_] | None = None
) -> dict[str, Any]:
    """Return the three columns that say which row an address is."""
    absent = np.zeros(len(addresses), dtype=np.bool_) if is_none is None else is_none
    files = np.where(absent, -1, addresses >> OFFSET_BITS)
    return {
        f"{prefix}address": pd.arrays.IntegerArray(addresses, absent),
        f"{prefix}file": paths.take(files, allow_fill=True),
        f"{prefix}offset": pd.arrays.IntegerArray(addresses & ((1 << OFFSET_BITS) - 1), absent.copy()),
    }

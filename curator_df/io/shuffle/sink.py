# SPDX-License-Identifier: Apache-2.0
"""Sink of the first pass of a shuffle: repeated or omitted rows, with their position in the random order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.core.columns import has_no_type
from curator_df.core.fingerprint import fingerprint
from curator_df.core.host_blocks import empty_pandas_block
from curator_df.core.ranges.sink import StageSink
from curator_df.errors import ParameterError
from curator_df.files.storage import FileRecord, Folder, NewFile
from curator_df.io.output.files import arrow_schema, to_table
from curator_df.io.shuffle.files import KEY, BatchWriter
from curator_df.kernels.rows.row_shuffle import order_keys, times_taken

ROWS = "rows"
"""Folder of the files."""
MOST_SIZE = 1 << 40
"""Maximum value of a column that is added up: more than any text has tokens, and little enough that sums of 64 bits hold."""


@dataclass(frozen=True)
class Taken:
    """Selection of rows, and how often each is taken."""

    seed: int
    """Seed of the order and of the selection."""
    table: str = ""
    """Name of the table, which distinguishes equal row IDs of several tables."""
    epochs: float | Mapping[Any, float] = 1.0
    """Number of times a row is taken, possibly for each value of ``column``."""
    column: str | None = None
    """Column that selects the value in ``epochs``; or one that is added with the name of the table."""

    @property
    def adds(self) -> bool:
        """Whether the column is added."""
        return self.column is not None and not isinstance(self.epochs, Mapping)

    @property
    def kinds(self) -> int:
        """Number of kinds of rows."""
        return len(self.epochs) if isinstance(self.epochs, Mapping) else 1

    def counts(
        self, block: Any, addresses: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64] | None]:
        """Return how often each row of a block is taken, and the number of its kind; None if there is one kind only.

        Raises
        ------
        ParameterError
            If the column has a value that ``epochs`` lacks.
        """
        if not isinstance(self.epochs, Mapping):
            return times_taken(addresses, self.epochs, self.seed, self.table), None
        kinds = kinds_of(block, str(self.column), tuple(self.epochs))
        epochs = np.array(list(self.epochs.values()), dtype=np.float64)
        return times_taken(addresses, epochs[kinds], self.seed, self.table), kinds


def kinds_of(block: Any, column: str, names: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return the position of each row's value of a column among ``names``.

    Raises
    ------
    ParameterError
        If the column has another value.
    """
    codes, values = pd.factorize(block[column], use_na_sentinel=False)
    places = {name: place for place, name in enumerate(names)}
    found = [None if pd.isna(value) else value for value in values.tolist()]
    unknown = [value for value in found if value not in places]
    if unknown:
        raise ParameterError(
            f"blend: the column {column!r} has the value {unknown[0]!r}, which is not in epochs= or weights=. These have "
            f"{', '.join(map(repr, names))}. Add a number for the value (0 leaves its rows out)"
        )
    return np.array([places[value] for value in found], dtype=np.int64)[codes]


def row_sizes(block: Any, column: str | None) -> npt.NDArray[np.int64]:
    """Return the value of a column of whole numbers for each row, with 0 for null; 1 for each row without a column.

    Raises
    ------
    ParameterError
        If a value of the column is negative, or too large to be added up.
    """
    return np.ones(len(block), dtype=np.int64) if column is None else _whole_numbers(block[column], column)


def sums_of(sizes: npt.NDArray[np.int64], kinds: npt.NDArray[np.int64] | None, count: int) -> npt.NDArray[np.int64]:
    """Return the sum of the sizes of the rows of each kind; without ``kinds`` all rows are of the first of ``count``."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, np.zeros(len(sizes), dtype=np.int64) if kinds is None else kinds, sizes)
    return sums


def _whole_numbers(column: Any, name: str) -> npt.NDArray[np.int64]:
    """Return the values of a column, with 0 for null."""
    values = column.fillna(0).to_numpy()
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if low < 0 or high > MOST_SIZE:
        wrong = low if low < 0 else high
        raise ParameterError(
            f"blend: the column {name!r} has the value {wrong:,}, but token_column= needs numbers of tokens from 0 to "
            f"{MOST_SIZE:,}. Use the column of add_token_count"
        )
    return np.asarray(values, dtype=np.int64)


@dataclass(frozen=True)
class ShuffleSink(StageSink):
    """Sink of the rows of one table, split into buckets."""

    folder: Folder
    """Folder of the files."""
    taken: Taken
    """Selection and order of the rows."""
    bits: int
    """Logarithm (base 2) of the number of buckets."""
    sizes: str | None = None
    """Column that is added up over the taken rows for the receipt; None to count them. It does not change the files."""
    writer_factor: float = 2.5
    """Memory multiplier of the writer: its rows in order, and a row of its size while it is written."""

    @property
    def fingerprint(self) -> str:
        """Digest of the selection, order and columns."""
        return fingerprint("shuffle", self.taken, self.bits)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeRows:  # noqa: ARG002 - the interface of a sink
        """Start the file of an input split."""
        return _RangeRows(self, number, meta)


def stored_schema(meta: Any, taken: Taken) -> pa.Schema:
    """Return the columns after a shuffle: dictionaries decoded, the name of the table last."""
    fields = [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in arrow_schema(meta)]
    fields = [f.with_type(pa.large_string()) if _is_text(f.type) else f for f in fields]
    return pa.schema([*fields, pa.field(taken.column, pa.large_string())] if taken.adds else fields)


def tables_alike(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables, with the columns of each in the order of the first table; columns of only nulls take a type."""
    order = list(next(iter(tables.values())).columns)
    same = {name: set(df.columns) == set(order) and list(df.columns) != order for name, df in tables.items()}
    ordered = {name: df[order] if same[name] else df for name, df in tables.items()}
    untyped = {name: [each for each, dtype in df.dtypes.items() if has_no_type(dtype)] for name, df in ordered.items()}
    if not any(untyped.values()):
        return ordered
    types: dict[Any, Any] = {}
    for name, df in ordered.items():
        dtypes = empty_pandas_block(stored_schema(df._meta, Taken(0))).dtypes
        types = {each: dtype for each, dtype in dtypes.items() if each not in untyped[name]} | types
    known = {name: {each: types[each] for each in names if each in types} for name, names in untyped.items()}
    return {name: df.astype(known[name]) if known[name] else df for name, df in ordered.items()}


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_null(kind))


def keyed_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a batch."""
    return pa.schema([pa.field(KEY, pa.uint64()), *schema])


class _RangeRows:
    def __init__(self, sink: ShuffleSink, number: int, meta: Any) -> None:
        self._taken, self._column = sink.taken, sink.sizes
        self._sizes = np.zeros(sink.taken.kinds, dtype=np.int64)
        self._block_schema, self._schema = arrow_schema(meta), keyed_schema(stored_schema(meta, sink.taken))
        self._file = NewFile(sink.folder, f"{ROWS}/part-{number:06d}.batches")
        self._writer = BatchWriter(self._file, 64 - sink.bits, 1 << sink.bits)

    def append(self, block: Any) -> None:
        addresses = block.index.to_numpy().astype(np.int64)
        counts, kinds = self._taken.counts(block, addresses)
        self._sizes += sums_of(row_sizes(block, self._column) * counts, kinds, len(self._sizes))
        table = to_table(block, self._block_schema)
        for copy in range(int(counts.max(initial=0))):
            rows = np.flatnonzero(counts > copy)
            keys = order_keys(addresses[rows], self._taken.seed, self._taken.table, copy)
            order = np.argsort(keys, kind="stable")
            self._writer.append(self._keyed(table.take(pa.array(rows[order])), keys[order]))

    def _keyed(self, table: pa.Table, keys: npt.NDArray[np.uint64]) -> pa.RecordBatch:
        columns = [pa.array(keys)]
        for column, field in zip(table.columns, list(self._schema)[1:], strict=False):
            columns.append(column.combine_chunks().cast(field.type))
        if self._taken.adds:
            columns.append(pa.repeat(self._taken.table, len(keys)).cast(pa.large_string()))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def commit(self) -> list[FileRecord]:
        self._writer.finish()
        return [self._file.commit(self._writer.rows)]

    @property
    def summary(self) -> dict[str, int]:
        return {str(place): int(size) for place, size in enumerate(self._sizes)}

    def discard(self) -> None:
        self._file.discard()

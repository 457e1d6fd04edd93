# SPDX-License-Identifier: Apache-2.0
"""Second pass of a shuffle: buckets of rows, read in order, block by block for buckets of any size.

Anything larger than a block is split by the next bits of the keys into files of the scratch directory, and each of these is read
like a bucket, so that at most a block is held, even if a row is a thousand times larger than the others.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.core.ranges.source import OFFSET_BITS, BadRow, Range, Ranges, RowChoice
from curator_df.errors import OversizeRowError
from curator_df.files.scratch import scratch_directory
from curator_df.files.storage import FileRecord, Folder, disk_errors
from curator_df.io.frames import empty_block, to_block
from curator_df.io.shuffle.files import Batch, BatchWriter, batches_at, batches_of, sorted_rows
from curator_df.io.shuffle.sink import keyed_schema
from curator_df.kernels.rows.keep_rows import keep_rows

SPLIT_BITS = 4
"""Logarithm (base 2) of the number of files into which anything larger than a block is split in each step."""
READER_FACTOR = 3.2
"""Memory multiplier of the reader, per byte of the block: its batches as read, joined, and in order."""
LongRows = Callable[[OversizeRowError], None] | None


@dataclass(frozen=True)
class Stored:
    """Files of the first pass for one table."""

    folder: Folder
    """Folder of the files."""
    files: tuple[FileRecord, ...]
    """File of each input split, in order."""


@dataclass(frozen=True)
class ShuffledSource:
    """Source of rows in random order, for the runner. An input split is a bucket, which is a file to the runner."""

    identity: str
    """Digest of the input and the parameters of the shuffle."""
    schema: pa.Schema
    """Columns of the rows."""
    bits: int
    """Logarithm (base 2) of the number of buckets."""
    text_bytes: int
    """Approximate bytes of all rows."""
    stored: tuple[Stored, ...] = ()
    """Files to read; empty while only a plan is requested."""
    columns: tuple[str, ...] | None = None
    """Columns that are read; by default all."""
    quarantines: bool = False
    """Whether bad rows are quarantined; False, because all rows were read before."""
    reader_factor: float = READER_FACTOR
    """Peak bytes held while a block is made, the block included, as a multiple of its ``block_bytes``."""
    reader_fixed_bytes: int = 0
    """Bytes held in addition to blocks, always 0."""
    asked: Mapping[str, Any] = field(default_factory=dict, metadata={"identity": False}, repr=False)
    """Input and parameters of the shuffle, shown in an error if they differ from those of the run to resume."""

    @property
    def files(self) -> Sequence[str]:
        """Names of the buckets, in order."""
        return [f"bucket {number:,} of {1 << self.bits:,}" for number in range(1 << self.bits)]

    @property
    def meta(self) -> pd.DataFrame:
        """Empty block with the columns and dtypes of every block."""
        return empty_block(
            self.schema if self.columns is None else self._chosen(keyed_schema(self.schema).empty_table()).schema
        )

    @property
    def fingerprint(self) -> str:
        """Digest of the input and of the order."""
        return self.identity

    @property
    def input_bytes(self) -> int:
        """Approximate bytes of all rows."""
        return self.text_bytes

    def about_rows(self) -> int | None:
        """Return the number of rows."""
        return sum(file.rows for stored in self.stored for file in stored.files)

    def cut(self, piece_bytes: int) -> Ranges:  # noqa: ARG002 - a bucket is an input split
        """Return an input split for each bucket."""
        numbers = np.arange(1 << self.bits, dtype=np.int64)
        return Ranges(np.stack([numbers, np.zeros_like(numbers), numbers, np.ones_like(numbers)], axis=1))

    def select(self, columns: Sequence[str]) -> ShuffledSource:
        """Return this source with only these columns."""
        return replace(self, columns=tuple(columns))

    def blocks(
        self,
        piece: Range,
        *,
        block_bytes: int,
        largest_row_bytes: int | None = None,
        on_bad_row: Callable[[BadRow], None] | None = None,
        on_long_row: LongRows = None,
        wanted: RowChoice | None = None,
    ) -> Iterator[pd.DataFrame]:
        """Stream buckets as blocks of at most ``block_bytes``, or of one row; see `Source.blocks`.

        Notes
        -----
        Rows: all. Peak extra memory: ``reader_factor`` x block. Computes: no.
        """
        del on_bad_row
        for bucket in range(piece.first_file, piece.last_file + 1):
            batches = [
                batch
                for stored in self.stored
                for file in stored.files
                for batch in batches_of(stored.folder, file, bucket, 1 << self.bits)
            ]
            reader = InOrder(keyed_schema(self.schema), block_bytes, largest_row_bytes, on_long_row)
            address = bucket << OFFSET_BITS
            for table in reader.tables(batches, 64 - self.bits):
                addresses = np.arange(address, address + len(table), dtype=np.int64)
                address += len(table)
                block = to_block(self._chosen(table), addresses)
                yield block if wanted is None else keep_rows(block, wanted(addresses))
                del block, table

    def _chosen(self, table: pa.Table) -> pa.Table:
        names = self.schema.names if self.columns is None else list(self.columns)
        return table.select(
            [1 + self.schema.names.index(name) for name in names]
        )  # a column may have the name of the key

    def __dask_tokenize__(self) -> Any:
        """Identify the value for Dask without walking it."""
        return ("curator_df.ShuffledSource", self.identity, self.columns, len(self.stored))


@dataclass(frozen=True)
class InOrder:
    """Reader of the rows of batches in order of their keys."""

    schema: pa.Schema
    block_bytes: int
    largest_row_bytes: int | None
    on_long_row: LongRows

    def tables(self, batches: Sequence[Batch], bits: int) -> Iterator[pa.Table]:
        """Yield the rows; at most ``bits`` bits of their keys differ."""
        batches = [batch for batch in batches if not self._is_too_long(batch)]
        rows = sum(batch.rows for batch in batches)
        if sum(batch.row_bytes for batch in batches) > self.block_bytes and rows > 1 and bits > 0:
            yield from self._split(batches, bits)
        elif batches:
            yield sorted_rows([batch.read(self.schema) for batch in batches])

    def _split(self, batches: Sequence[Batch], bits: int) -> Iterator[pa.Table]:
        """Split the batches by the next bits of the keys, and yield the rows of each part."""
        now = min(SPLIT_BITS, bits)
        scratch = scratch_directory()
        with disk_errors(Folder(scratch)):
            folder = Folder(tempfile.mkdtemp(prefix="curator-df-shuffle-", dir=scratch))
        try:
            with open(folder.path("rows"), "wb") as file, disk_errors(folder):
                writer = BatchWriter(file, bits - now, 1 << now)
                for batch in batches:
                    writer.append(batch.read(self.schema))
            entries = writer.entries()
            for part in range(1 << now):
                yield from self.tables(list(batches_at(folder, "rows", entries[entries["bucket"] == part])), bits - now)
        finally:
            shutil.rmtree(folder.root, ignore_errors=True)

    def _is_too_long(self, batch: Batch) -> bool:
        limit = self.largest_row_bytes
        if limit is None or batch.rows > 1 or batch.row_bytes <= limit:
            return False
        path = batch.folder.path(batch.name)
        error = OversizeRowError(
            f"a row to be shuffled has {batch.row_bytes:,} bytes, but only {limit:,} fit into the memory budget (it is in "
            f"{path!r}, byte {batch.offset:,}). Use a larger memory=, or drop such rows first"
        )
        error.path, error.line, error.offset, error.row_bytes = path, 1, batch.offset, batch.row_bytes
        if self.on_long_row is None:
            raise error
        self.on_long_row(error)
        return True

# SPDX-License-Identifier: Apache-2.0
"""Files between the two passes of a shuffle: rows with their position in the random order, split into buckets of that order.

A bucket is a part of the order: all keys with the same first bits. A file holds batches of rows (Arrow, sorted by key, each of
one bucket), then an entry for each batch, sorted by bucket, then for each bucket the number of its first entry. So the batches of
one bucket are found with three reads, independent of the rest of the file.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curator_df.errors import CorruptFileError
from curator_df.files.slice_file import read_ranges, wrong
from curator_df.files.storage import FileRecord, Folder

KEY = "__order__"
"""First column of every batch: uint64."""
BATCH_BYTES = 1_000_000
"""Maximum bytes of a batch, unless it is one row."""
BLOCK_BYTES = 4_000_000
"""Size of the blocks that are written, for an estimate of the number of batches."""
COLUMN_BYTES, HEAD_BYTES = 150, 350
"""Bytes of a batch for each column (its description, and padding of its buffers), and for itself with its entry."""
_ENTRY = np.dtype(
    [("bucket", "<i8"), ("offset", "<i8"), ("size", "<i8"), ("rows", "<i8"), ("row_bytes", "<i8"), ("checksum", "<u8")]
)


@dataclass(frozen=True)
class Batch:
    """Position of a batch of rows."""

    folder: Folder
    """Folder of the file."""
    name: str
    """Name of the file."""
    offset: int
    """First byte of the batch."""
    size_bytes: int
    """Size of the batch in the file."""
    rows: int
    """Number of rows."""
    row_bytes: int
    """Size of the rows in memory."""
    checksum: int
    """Checksum (CRC-32) of its bytes."""

    def read(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows, the key in the first column.

        Raises
        ------
        CorruptFileError
            If the bytes differ from those that were written.
        """
        (content,) = read_ranges(self.folder, [(self.name, self.offset, self.offset + self.size_bytes)])
        if zlib.crc32(content) != self.checksum:
            raise _damaged(self.folder.path(self.name), wrong("batch", self.offset))
        return pa.ipc.read_record_batch(pa.py_buffer(content), schema)


class BatchWriter:
    """Writer that appends batches to an open file.

    Parameters
    ----------
    file : file object
        File with ``write`` and ``tell``.
    shift : int
        Number of bits by which keys are shifted to the right for the number of a bucket.
    buckets : int
        Number of buckets, a power of two: the number of a bucket is taken modulo it.
    """

    def __init__(self, file: Any, shift: int, buckets: int) -> None:
        self.file, self._shift, self._buckets = file, shift, buckets
        self._entries: list[tuple[int, ...]] = []
        self.rows = 0

    def append(self, rows: pa.RecordBatch) -> None:
        """Append rows sorted by key; each bucket's share becomes separate batches."""
        buckets = self._buckets_of(rows.column(0).to_numpy())
        cuts = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(rows)]
        for start, stop in itertools.pairwise(cuts):
            for piece in _pieces(rows.slice(start, stop - start)):
                content = piece.serialize()
                place = (int(buckets[start]), self.file.tell(), content.size)
                self._entries.append((*place, len(piece), piece.nbytes, zlib.crc32(content)))
                self.file.write(content)
        self.rows += len(rows)

    def entries(self) -> npt.NDArray[Any]:
        """Return an entry for each batch, sorted by bucket."""
        found = np.array(self._entries, dtype=_ENTRY)
        return found[np.argsort(found["bucket"], kind="stable")]

    def finish(self) -> None:
        """Write the end of the file."""
        entries = self.entries()
        starts = np.searchsorted(entries["bucket"], np.arange(self._buckets + 1)).astype("<i8")
        self.file.write(entries.tobytes())
        self.file.write(starts.tobytes())

    def _buckets_of(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        if self._shift >= 64:  # one bucket: numpy cannot shift so far
            return np.zeros(len(keys), dtype=np.int64)
        return ((keys >> np.uint64(self._shift)) & np.uint64(self._buckets - 1)).astype(np.int64)


def batches_bytes(rows: int, row_bytes: float, columns: int, *, files: int, buckets: int) -> int:
    """Return about the bytes of files of batches, with keys.

    Parameters
    ----------
    rows : int
        Number of rows in all files.
    row_bytes : float
        Mean bytes of a row in memory, without its key.
    columns : int
        Number of columns, with the key.
    files, buckets : int
        Numbers of files and of buckets.

    Examples
    --------
    >>> batches_bytes(1_000, 92, 2, files=1, buckets=1), batches_bytes(1_000, 92, 2, files=1, buckets=64)
    (101316, 142770)
    """
    size = int(rows * (row_bytes + 8))
    batches = min(rows, (size // BLOCK_BYTES + files) * buckets + size // BATCH_BYTES) + files
    return size + batches * (HEAD_BYTES + COLUMN_BYTES * columns) + files * 8 * (buckets + 1)


def batches_of(folder: Folder, file: FileRecord, bucket: int, buckets: int) -> list[Batch]:
    """Return the batches of one bucket in a file that `BatchWriter.finish` ended.

    Raises
    ------
    CorruptFileError
        If the file is missing or truncated.
    """
    name, starts = file.name, file.size_bytes - 8 * (buckets + 1)
    wanted = (starts + 8 * bucket, starts + 8 * (bucket + 2)), (file.size_bytes - 8, file.size_bytes)
    read = read_ranges(folder, [(name, *bounds) for bounds in wanted])
    (first, stop), (last,) = (np.frombuffer(content, dtype="<i8").tolist() for content in read)
    if not 0 <= first <= stop <= last <= starts // _ENTRY.itemsize:
        raise _damaged(folder.path(name), "its last bytes do not locate the batches")
    if first == stop:
        return []
    size = _ENTRY.itemsize
    bounds = (starts - size * (last - first), starts - size * (last - stop))
    entries = np.frombuffer(read_ranges(folder, [(name, *bounds)])[0], dtype=_ENTRY)
    return list(batches_at(folder, name, entries))


def batches_at(folder: Folder, name: str, entries: npt.NDArray[Any]) -> Iterator[Batch]:
    """Yield the batches of entries."""
    for _, *place in entries.tolist():
        yield Batch(folder, name, *place)


def sorted_rows(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return the rows of batches in order of their keys; equal keys keep the order of the batches."""
    table = pa.Table.from_batches(batches)
    return table.take(pa.array(np.argsort(table.column(0).to_numpy(), kind="stable"))).combine_chunks()


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a batch until each part is small or one row."""
    if len(rows) <= 1 or rows.nbytes <= BATCH_BYTES:
        yield rows
        return
    half = len(rows) // 2
    yield from _pieces(rows.slice(0, half))
    yield from _pieces(rows.slice(half))


def _damaged(path: str, what: str) -> CorruptFileError:
    return CorruptFileError(f"{path} is damaged: {what}. Run again with on_existing='overwrite'")

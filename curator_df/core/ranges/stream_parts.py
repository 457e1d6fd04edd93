# SPDX-License-Identifier: Apache-2.0
"""Parts of an input split that can only be read from its beginning, such as a compressed file, for Dask's own operations.

A partition of such a file would be all of it. Its first block is read directly, which is all that ``head`` needs. Whoever asks
for a later part reads the whole split once, block by block, and leaves the blocks in a file from which each part is then read.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import json
import os
import pickle
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from distributed import get_worker

from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.source import OFFSET_BITS, Range, Ranges, Source
from curator_df.errors import CorruptFileError, DiskFullError
from curator_df.files.storage import Folder
from curator_df.memory.sizes import show_size, show_sizes

PARTS_FOLDER = "parts"
"""Below the working folder of the cluster, or of the worker."""
PARTED_FROM = 1.5
"""Blocks that a split must have to be read in parts."""
DISK_SHARE = 0.5
"""Bytes of a compressed input file as a share of those of its file of blocks: twice the input must be free.

Measured (``benchmarks/interactive.py --working-files``) for 290 MB of documents in a gzip file of 79 MB: the file of blocks
had 0.99 of its size, and 0.28 of the size of the rows. The rest is room for inputs that zstd compresses less.
"""
CODEC = "zstd"
MOST_CUTS = 16
"""Parts into which a block can be cut where there are fewer blocks than parts: the number of parts comes from a size that is
estimated. Dask's operations on neighboring rows, and many functions of users, fail on a part without rows."""
FEW_PARTS = 8
"""Number of parts up to which a file may turn out to have one block only; with more, the first part looks at no second block."""


@dataclass(frozen=True)
class Parts:
    """Division of the input splits of a table into partitions."""

    table: npt.NDArray[np.int64]
    """Shape (partitions, 3): number of the split, number of the part in it, and how many parts it has."""

    def __len__(self) -> int:
        return len(self.table)

    @classmethod
    def of(cls, ranges: Ranges, parts: npt.NDArray[np.int64]) -> Parts:
        """Return the partitions of splits, given the number of parts of each."""
        split = np.repeat(np.arange(len(ranges)), parts)
        part = np.arange(len(split)) - np.repeat(np.cumsum(parts) - parts, parts)
        return cls(np.stack([split, part, parts[split]], axis=1))


@dataclass(frozen=True)
class PartSource:
    """A source whose input splits are the parts of those of another one. It has the other's fields but for these."""

    source: Source
    """The other source."""
    whole: Source
    """Source with all columns, which are those of the files of blocks."""
    ranges: Ranges
    """Input splits of the source."""
    parts: Parts
    """Division of the input splits into partitions."""
    block_bytes: int
    """About the decompressed bytes of a part."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "source":
            raise AttributeError(name)
        return getattr(self.source, name)

    def select(self, columns: Any) -> PartSource:
        """Return the same source reading only these columns."""
        return PartSource(self.source.select(columns), self.whole, self.ranges, self.parts, self.block_bytes)

    def blocks(self, piece: Range, *, block_bytes: int, **options: Any) -> Iterator[Any]:
        """Stream one part; see `Source.blocks`."""
        split, part, count = (int(value) for value in self.parts.table[piece.number])
        if count == 1:
            yield from self.source.blocks(self.ranges[split], block_bytes=block_bytes, **options)
            return
        columns, wanted = list(self.source.meta.columns), options.get("wanted")
        for block in self.of_split(split).part(part, count):
            chosen = block[columns]
            yield chosen if wanted is None else chosen[wanted(chosen.index.to_numpy())]

    def of_split(self, number: int) -> SplitBlocks:
        """Return the blocks of one split."""
        return SplitBlocks(self.whole, self.ranges[number], self.block_bytes)

    def cut_parts(self) -> Ranges:
        """Return a range for each part; the files of blocks of the session's own process tell where they begin."""
        rows, starts = [], {}
        for number, (split, part, count) in enumerate(self.parts.table.tolist()):
            piece = self.ranges[split]
            if count == 1:
                rows.append(self.ranges.table[split].tolist())
                continue
            if split not in starts:
                starts[split] = self.of_split(split).starts(count)
            first = starts[split][part]
            rows.append([first >> OFFSET_BITS, first & ((1 << OFFSET_BITS) - 1), piece.last_file, number])
        return Ranges(np.array(rows, dtype=np.int64).reshape(-1, 4))


@dataclass(frozen=True)
class StoredBlock:
    """Where a block of a split lies in the file of its blocks."""

    start: int
    size: int
    """Compressed bytes."""
    checksum: int
    """CRC-32 of the compressed bytes."""
    plain_bytes: int
    """Bytes once they are decompressed."""
    marks: list[tuple[int, int]]
    """Rows at which the block can be cut, each with its address; the first is its beginning."""


@dataclass(frozen=True)
class SplitBlocks:
    """The blocks of one split, in a file of their own."""

    source: Source
    """Where the split is."""
    piece: Range
    """Number of the partition."""
    block_bytes: int
    """About the decompressed bytes of a block."""

    def part(self, number: int, count: int) -> Iterator[Any]:
        """Yield the blocks of one part of ``count``."""
        if number == 0:
            blocks = self.source.blocks(self.piece, block_bytes=self.block_bytes)
            first = next(blocks, None)
            if first is not None:
                is_only = count <= FEW_PARTS and next(blocks, None) is None
                yield first.iloc[slice(*_rows(_marks(first), len(first), 0, count))] if is_only else first
            return
        folder, index = self._written()
        for place, piece, pieces in _places(number, count, len(index)):
            block = _read(folder, self._name, index[place])
            yield block.iloc[slice(*_rows(index[place].marks, len(block), piece, pieces))] if pieces > 1 else block

    def starts(self, count: int) -> list[int]:
        """Return the least address of each part; one without blocks begins where the next begins."""
        _, index = self._written()
        starts = [(self.piece.last_file << OFFSET_BITS) + (1 << OFFSET_BITS) - 1] * (count + 1)
        for number in reversed(range(count)):
            places = _places(number, count, len(index))
            if places:
                place, piece, pieces = places[0]
                marks = index[place].marks
                starts[number] = marks[len(marks) * piece // pieces][1]
            else:
                starts[number] = starts[number + 1]
        return [(self.piece.first_file << OFFSET_BITS) + self.piece.start, *starts[1:-1]]

    @property
    def _name(self) -> str:
        table = [self.piece.first_file, self.piece.start, self.piece.last_file, self.piece.stop, self.block_bytes]
        return fingerprint(self.source.fingerprint, table)[:24]

    def _written(self) -> tuple[Folder, list[StoredBlock]]:
        """Return the folder and the index of the blocks; they are written by the first that asks, and others wait."""
        folder = parts_folder()
        name = f"{self._name}.json"
        if not folder.exists(name):
            with _locked(folder, self._name):
                if not folder.exists(name):
                    self._write(folder)
        return folder, [StoredBlock(**entry) for entry in json.loads(folder.read(name))]

    def _write(self, folder: Folder) -> None:
        free, needed = folder.free_bytes(), int((self.piece.stop - self.piece.start) / DISK_SHARE)
        path = self.source.files[self.piece.first_file]
        if free is not None and free < needed:
            need, has = show_sizes(needed, free)
            raise DiskFullError(
                f"To read {path!r} in parts, curator_df stores its rows in a temporary file of about {need}, "
                f"but only {has} are free in {folder.url}.\nNothing was written. Free some space, or start the "
                "cluster with workdir= on a larger disk."
            )
        index: list[StoredBlock] = []
        start = 0
        try:
            with folder.create(f"{self._name}.blocks") as file:
                for block in self.source.blocks(self.piece, block_bytes=self.block_bytes):
                    content = pickle.dumps(block, protocol=5)
                    packed = pa.compress(content, codec=CODEC, asbytes=True)
                    file.write(packed)
                    if len(block):
                        checksum, marks = zlib.crc32(packed), _marks(block)
                        index.append(StoredBlock(start, len(packed), checksum, len(content), marks))
                    start += len(packed)
                    del block, content, packed
                file.commit()
            folder.write(f"{self._name}.json", json.dumps([asdict(entry) for entry in index]).encode())
        except OSError as exc:
            if exc.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            free = folder.free_bytes() or 0
            raise DiskFullError(
                f"No space is left in {folder.url} ({show_size(free)} free) for a temporary file with the rows of {path!r}. "
                "The incomplete file was deleted.\nFree some space, or start the cluster with workdir= on a larger disk."
            ) from exc


def _places(number: int, count: int, blocks: int) -> list[tuple[int, int, int]]:
    """Return the blocks of one part, each with the number of its piece, and of how many.

    The first part has one block, the others have about as many as each other; where there are fewer, they have pieces of one.

    Examples
    --------
    >>> [_places(number, 3, 6) for number in range(3)]
    [[(0, 0, 1)], [(1, 0, 1), (2, 0, 1)], [(3, 0, 1), (4, 0, 1), (5, 0, 1)]]
    >>> [_places(number, 4, 3) for number in range(4)]
    [[(0, 0, 1)], [(1, 0, 2)], [(1, 1, 2)], [(2, 0, 1)]]
    >>> [_places(number, 2, 1) for number in range(2)]
    [[(0, 0, 2)], [(0, 1, 2)]]
    """
    if blocks == 1 and count <= FEW_PARTS:
        return [(0, number, count)]
    if number == 0:
        return [(0, 0, 1)][:blocks]
    rest, parts = max(blocks - 1, 0), count - 1
    if rest >= parts or not rest:
        return [(place, 0, 1) for place in range(1 + (number - 1) * rest // parts, 1 + number * rest // parts)]
    block = (number - 1) * rest // parts
    first, after = -(-block * parts // rest), -(-(block + 1) * parts // rest)
    return [(1 + block, number - 1 - first, after - first)]


def _marks(block: Any) -> list[tuple[int, int]]:
    """Return the places in a block where it can be cut, each with its address; the first is its beginning."""
    count = min(len(block), MOST_CUTS)
    rows = [number * len(block) // count for number in range(count)]
    return [(row, int(block.index[row])) for row in rows]


def _rows(marks: Sequence[Sequence[int]], rows: int, piece: int, pieces: int) -> tuple[int, int]:
    """Return the first row of a piece of a block, and the one after its last.

    Examples
    --------
    >>> marks = [[0, 100], [5, 105], [10, 110], [15, 115]]
    >>> [_rows(marks, 20, piece, 3) for piece in range(3)]
    [(0, 5), (5, 10), (10, 20)]
    """
    first, after = len(marks) * piece // pieces, len(marks) * (piece + 1) // pieces
    return (marks[first][0] if first < len(marks) else rows, marks[after][0] if after < len(marks) else rows)


def _read(folder: Folder, name: str, stored: StoredBlock) -> Any:
    path = folder.path(f"{name}.blocks")
    with folder.filesystem.open(path, "rb") as file:
        file.seek(stored.start)
        packed = file.read(stored.size)
    if zlib.crc32(packed) != stored.checksum:
        raise CorruptFileError(
            f"{path!r}, a temporary file of the cluster, is damaged. Close the cluster, start it again, and repeat the "
            "computation"
        )
    return pickle.loads(pa.decompress(packed, decompressed_size=stored.plain_bytes, codec=CODEC))  # noqa: S301 - written here


def parts_folder() -> Folder:
    """Return where this process keeps parts: a folder of all workers of a session, of this worker, or of this process."""
    try:
        worker = get_worker()
    except ValueError:
        return Folder(_of_process(os.getpid()), is_durable=False)
    shared = next((plugin.parts for plugin in worker.plugins.values() if getattr(plugin, "parts", None)), None)
    return Folder(shared or f"{worker.local_directory}/{PARTS_FOLDER}", is_durable=False)


@functools.cache
def _of_process(pid: int) -> str:  # noqa: ARG001 - a forked child has one of its own
    made = tempfile.TemporaryDirectory(prefix="curator-df-parts-")
    _held.append(made)
    return made.name


_held: list[Any] = []
"""Temporary folders, which go with this process."""


@contextmanager
def _locked(folder: Folder, name: str) -> Iterator[None]:
    """Hold a lock of all processes of this machine, as far as the file system has locks."""
    Path(folder.root).mkdir(parents=True, exist_ok=True)
    with open(folder.path(f"{name}.lock"), "w") as lock:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield

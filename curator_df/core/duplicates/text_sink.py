# SPDX-License-Identifier: Apache-2.0
"""The end of the second pass of a near-duplicate drop: the texts that are to be compared, and where each of them lies."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.exchange.barrier import LEAST_KEY_BYTES
from curator_df.core.exchange.near_barrier import EDGE_WORDS, NearBarrier
from curator_df.core.exchange.range_groups import RangeGroups
from curator_df.core.files.row_sort import RowSorter, merge_slices
from curator_df.core.files.slice_file import open_slices
from curator_df.core.files.sorted_rows import RowsUpTo
from curator_df.core.files.storage import FileRecord, Folder, NewFile
from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.range_action import changed_rows
from curator_df.core.ranges.sink import StageSink

LOCATION_WORDS = 4
"""Addresses of a pair, the smaller first; side (top bit) and offset of one text; its CRC-32 and length in 32 bits each."""
MOST_WANTED = 100_000
"""Edges of a range beyond which all of its rows are read: their addresses would take more than 2 MB."""
SIDE_BIT = np.uint64(1 << 63)
_LENGTH_BITS = np.uint64(32)


@dataclass(frozen=True)
class TextSink(StageSink):
    """The end of the second pass: texts that are to be compared."""

    folder: Folder
    """Where they go."""
    barrier: NearBarrier
    """Whose pairs these are."""
    groups: RangeGroups
    """Of the ranges."""
    pairs: tuple[FileRecord, ...]
    """A file for each group, with a slice for each of its ranges: edges in both directions."""
    first_range: int = 0
    """What is added to the number of a range."""
    first_address: int = 0
    """What is added to an address."""
    writer_factor: float = 1.5
    """Peak extra bytes as a multiple of the block's."""

    @property
    def fingerprint(self) -> str:
        """Digest of what is written."""
        return fingerprint(self.barrier)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeTexts:  # noqa: ARG002 - the face of a sink
        """Start the files of a range."""
        return _RangeTexts(self, self.first_range + number, max(buffer_bytes // 4, LEAST_KEY_BYTES))

    def wanted(self, number: int) -> npt.NDArray[np.int64] | None:
        """Return the addresses of the rows of a range that have an edge, ascending; None where they are too many to hold."""
        found = wanted_rows(self.folder, self.pairs, self.groups, self.first_range + number)
        return None if found is None else found - self.first_address


def wanted_rows(
    folder: Folder, files: Sequence[FileRecord], groups: RangeGroups, number: int
) -> npt.NDArray[np.int64] | None:
    """Return the first words of the rows of a range, each once, ascending; None where they are too many to hold."""
    group, place = divmod(number, groups.per_group)
    slices = open_slices(folder, files[group : group + 1], place)
    if sum(piece.rows for piece in slices) > MOST_WANTED:
        return None
    rows = [np.unique(piece[:, 0].view(np.int64)) for piece in merge_slices(slices, memory_bytes=LEAST_KEY_BYTES)]
    return np.unique(np.concatenate(rows)) if rows else np.empty(0, dtype=np.int64)


def texts_name(number: int) -> str:
    """Return the name of the file that holds the texts of a range."""
    return f"texts/part-{number:06d}.texts"


class _RangeTexts:
    def __init__(self, sink: TextSink, number: int, memory_bytes: int) -> None:
        self._barrier, self._number, self._first_address = sink.barrier, number, sink.first_address
        group, place = divmod(number, sink.groups.per_group)
        slices = open_slices(sink.folder, sink.pairs[group : group + 1], place)
        self._edges = RowsUpTo(merge_slices(slices, memory_bytes=memory_bytes), EDGE_WORDS)
        self._file = NewFile(sink.folder, texts_name(number))
        name = f"locations/part-{number:06d}.slices"
        self._sorter = RowSorter(
            sink.folder, name, words=LOCATION_WORDS, bounds=sink.groups.bounds, memory_bytes=memory_bytes
        )
        self._last = (-1, np.uint64(0), np.uint64(0))
        self._rows = self._texts = self._missed = 0

    def append(self, block: Any) -> None:
        addresses = block.index.to_numpy() + self._first_address
        self._rows += len(block)
        if not len(block):
            return
        for piece in self._edges.take(int(addresses[-1])):
            self._take(block, addresses, piece)

    def _take(self, block: Any, addresses: npt.NDArray[np.int64], edges: Any) -> None:
        rows, which = np.unique(edges[:, 0].view(np.int64), return_inverse=True)
        places = np.searchsorted(addresses, rows)
        if (addresses[places] != rows).any():
            self._missed += 1
            return
        located = np.empty((len(rows), 2), dtype=np.uint64)
        known = int(rows[0] == self._last[0])  # a row whose edges began in the piece before
        located[:known] = self._last[1:]
        if known < len(rows):
            located[known:] = self._write(self._barrier.texts(block, places[known:], **self._barrier.parameters))
        self._last = (int(rows[-1]), located[-1, 0], located[-1, 1])
        self._sorter.append(location_rows(edges, located[which]))

    def _write(self, texts: Any) -> Any:
        self._texts += len(texts)
        return write_texts(self._file, texts)

    def commit(self) -> list[FileRecord]:
        if self._missed + self._edges.rest():
            raise changed_rows("drop_near_duplicates", self._number, self._rows, self._rows, ", but other addresses")
        return [self._file.commit(self._texts), self._sorter.commit()]

    def discard(self) -> None:
        self._file.discard()
        self._sorter.discard()

    @property
    def summary(self) -> dict[str, int]:
        return {"spilled_bytes": self._sorter.spilled_bytes}


def write_texts(file: NewFile, texts: Any) -> Any:
    """Append texts (large_string or large_binary) to a file; return offset, and CRC-32 with length, of each."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64, count=texts.offset + len(texts) + 1)[texts.offset :]
    view = memoryview(data if data is not None else b"")[int(ends[0]) : int(ends[-1])]
    located = np.empty((len(texts), 2), dtype=np.uint64)
    located[:, 0] = (ends[:-1] - ends[0] + file.tell()).view(np.uint64)
    relative = (ends - ends[0]).tolist()
    sums = [zlib.crc32(view[start:stop]) for start, stop in itertools.pairwise(relative)]
    lengths = np.diff(ends).view(np.uint64)
    located[:, 1] = (np.array(sums, dtype=np.uint64) << _LENGTH_BITS) | lengths
    file.write(view)
    return located


def location_rows(edges: Any, located: Any) -> Any:
    """Return a row for each edge that says where the text of its first row lies."""
    first, second = edges[:, 0], edges[:, 1]
    rows = np.empty((len(edges), LOCATION_WORDS), dtype=np.uint64)
    rows[:, 0], rows[:, 1] = np.minimum(first, second), np.maximum(first, second)
    rows[:, 2] = located[:, 0] | np.where(first > second, SIDE_BIT, np.uint64(0))
    rows[:, 3] = located[:, 1]
    return rows

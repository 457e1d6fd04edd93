# SPDX-License-Identifier: Apache-2.0
"""Sink of the second pass of a near-duplicate removal: the texts to compare, and the position of each."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.fingerprint import fingerprint
from curator_df.dedup.near.frequent_files import CountsWriter
from curator_df.dedup.near.settings import EDGE_WORDS, IN_CROWD, NearSettings
from curator_df.dedup.table.requested_rows import RangeAnswers, RequestedRowsSink
from curator_df.exchange.keys import LEAST_KEY_BYTES
from curator_df.files.slice_file import SliceWriter
from curator_df.files.storage import FileRecord, NewFile

LOCATION_WORDS = 4
"""Words of a location: addresses of a pair, the smaller first; side (top bit) and offset of one text; its CRC-32 and length."""
PLACE_WORDS = 3
"""Words of a place: address of a row, offset of its text, CRC-32 and length of the text."""
SIDE_BIT = np.uint64(1 << 63)
CROWD_BIT = np.uint64(1 << 62)
"""Bit next to the side that is set if the row is in a crowd and the other row is its anchor."""
_LENGTH_BITS = np.uint64(32)
_NO_ADDRESS = np.uint64((1 << 64) - 1)


@dataclass(frozen=True)
class TextSink(RequestedRowsSink):
    """Sink of the second pass, for the texts to compare. The requests are edges, in both directions."""

    pending: NearSettings = field(kw_only=True)
    """Deferred operation that the pairs belong to."""
    passing: FileRecord | None = None
    """File of the cells whose shingles are counted exactly, in all rows; None to count none."""

    def wanted(self, number: int) -> npt.NDArray[np.int64] | None:
        """Return the addresses of the requested rows of a range; None for all."""
        return super().wanted(number) if self.passing is None else None

    @property
    def fingerprint(self) -> str:
        """Digest of the settings that determine the content."""
        return fingerprint(self.pending)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeTexts:  # noqa: ARG002 - the face of a sink
        """Create the files of a range."""
        return _RangeTexts(self, self.first_range + number, max(buffer_bytes // 4, LEAST_KEY_BYTES))


def texts_name(number: int) -> str:
    """Return the name of the file with the texts of a range."""
    return f"texts/part-{number:06d}.texts"


class _RangeTexts(RangeAnswers):
    def __init__(self, sink: TextSink, number: int, memory_bytes: int) -> None:
        super().__init__(
            sink,
            number,
            memory_bytes,
            asked_words=EDGE_WORDS,
            answer_words=LOCATION_WORDS,
            texts_name=texts_name(number),
            slices_name=f"locations/part-{number:06d}.slices",
            step="drop_near_duplicates",
        )
        self._pending = sink.pending
        self._last = (_NO_ADDRESS, np.uint64(0), np.uint64(0))
        self._texts = 0
        self._place_file = NewFile(sink.folder, f"places/part-{number:06d}.slices")
        self._places = SliceWriter(self._place_file, PLACE_WORDS, np.zeros(1, dtype=np.uint64))
        self._counts: CountsWriter | None = None
        if sink.passing is not None:
            scheme = sink.pending.scheme
            self._counts = CountsWriter(sink.folder, number, sink.groups, scheme, sink.passing, memory_bytes)

    def append(self, block: Any) -> None:
        if self._counts is not None:
            self._counts.append(block[self._pending.text])
        super().append(block)

    def _answer(self, block: Any, places: npt.NDArray[np.int64], asked: Any) -> None:
        """Write the text of each row once, and its position for each of the row's edges."""
        rows, first, which = np.unique(asked[:, 0], return_index=True, return_inverse=True)
        located = np.empty((len(rows), 2), dtype=np.uint64)
        known = int(rows[0] == self._last[0])  # the edges of this row began in the previous piece
        located[:known] = self._last[1:]
        if known < len(rows):
            texts = self._pending.texts(block, places[first[known:]])
            self._texts += len(texts)
            located[known:] = write_texts(self._file, texts)
            self._places.append(np.column_stack([rows[known:], located[known:]]))
        self._last = (rows[-1], located[-1, 0], located[-1, 1])
        self._sorter.append(location_rows(asked, located[which]))

    def _answered(self) -> int:
        return self._texts

    def commit(self) -> list[FileRecord]:
        files = super().commit()
        self._places.finish()
        files.append(self._place_file.commit(self._texts))
        return files if self._counts is None else [*files, self._counts.commit()]

    def discard(self) -> None:
        super().discard()
        self._place_file.discard()
        if self._counts is not None:
            self._counts.discard()


def write_texts(file: NewFile, texts: Any) -> Any:
    """Append texts (large_string or large_binary) to a file; return the offset, and the CRC-32 with the length, of each."""
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
    """Return a row for each edge with the position of its first row's text."""
    first, second = edges[:, 0], edges[:, 1]
    rows = np.empty((len(edges), LOCATION_WORDS), dtype=np.uint64)
    rows[:, 0], rows[:, 1] = np.minimum(first, second), np.maximum(first, second)
    rows[:, 2] = located[:, 0] | np.where(first > second, SIDE_BIT, np.uint64(0))
    rows[:, 2] |= np.where(edges[:, 2] == IN_CROWD, CROWD_BIT, np.uint64(0))
    rows[:, 3] = located[:, 1]
    return rows

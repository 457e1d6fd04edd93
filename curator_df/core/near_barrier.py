# SPDX-License-Identifier: Apache-2.0
"""A pending drop of near duplicates: what its two passes over the text leave on disk.

The first pass writes a key row for each row and band, and one for its content, into the files of an `Exchange`; the second
one the texts that are to be compared, and where each of them lies. What is made of these is in `core.near_stages`.
"""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from curator_df.core.barrier import CHECKSUM_MASK, LEAST_KEY_BYTES, DropRows, Found, Keys, key_checksum
from curator_df.core.exchange import Exchange, Keep, KeyWriter, drop_bounds, hash_bounds, ranks
from curator_df.core.fingerprint import fingerprint
from curator_df.core.range_action import RangeAction, changed_rows
from curator_df.core.row_sort import RowSorter, merge_slices
from curator_df.core.sink import StageSink
from curator_df.core.slice_file import open_slices
from curator_df.core.storage import FileRecord, Folder, NewFile

ROWS_AT_A_TIME = 4096
"""Rows of a block that are sketched at a time: band hashes and keys of more would be held for nothing."""
EDGE_WORDS = 3
"""Address of a row, address of another, bits of their similarity (a float64; NaN while it is not known)."""
LOCATION_WORDS = 4
"""Addresses of a pair, the smaller first; side (top bit) and offset of one text; its CRC-32 and length in 32 bits each."""
RANK_WORDS = 2
"""Address, rank."""
MOST_WANTED = 100_000
"""Edges of a range beyond which all of its rows are read: their addresses would take more than 2 MB."""
SIDE_BIT = np.uint64(1 << 63)
_LENGTH_BITS = np.uint64(32)


@dataclass(frozen=True)
class NearBarrier:
    """Rows with similar texts, of which one stays. The functions are module-level; core knows nothing of what they do."""

    bands: Callable[..., tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]]
    """``bands(block, **parameters)`` returns band hashes, shape (rows, bands), and which rows have any."""
    contents: Callable[..., Keys]
    """``contents(block, **parameters)`` returns 128-bit hashes of the texts as they are compared, and what survivors are
    chosen by."""
    checks: Callable[..., Keys]
    """``checks(block, **parameters)`` returns hashes, cheaper ones, by which the last pass knows the rows of the first."""
    texts: Callable[..., Any] = field(metadata={"identity": False})
    """``texts(block, rows, **parameters)`` returns a pyarrow large_string array."""
    similarities: Callable[..., npt.NDArray[np.float64]]
    """``similarities(texts, pairs, memory_bytes, **parameters)`` for pairs of places in ``texts``."""
    components: Callable[..., npt.NDArray[np.int64]] = field(metadata={"identity": False})
    """``components(ids, batches)`` returns the smallest vertex of the component of each of the ascending ``ids``."""
    parameters: Mapping[str, Any]
    """Keyword arguments of the functions."""
    num_bands: int
    """Bands of a row."""
    anchors: int
    """Rows of a bucket with which the others are compared."""
    verify: float | None
    """Least similarity of a pair that is joined; None joins all that share a bucket with an anchor."""
    keep: Keep
    """Which row of a group stays."""
    reason: str
    """Why the others go, as the receipt says."""
    keep_rows: Callable[[Any, npt.NDArray[np.bool_]], Any] = field(metadata={"identity": False})
    """The rows of a block for which a mask is True."""
    bands_per_iteration: int | None = field(default=None, metadata={"identity": False})
    """Bands whose buckets are compared before their pairs are merged with those known; None: from the budget."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """As in `core.barrier.Barrier`."""
    columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """All that the functions look at; the text column comes first."""
    of_parts: ClassVar[bool] = False
    """Keys are of whole rows."""

    @property
    def ranks_rows(self) -> bool:
        """Whether survivors are chosen by a value."""
        return self.keep in ("largest", "smallest")

    def of(self, block: Any) -> Keys:
        """Return the keys by which the last pass knows the rows of the first."""
        return self.checks(block, **self.parameters)

    def find(self, runner: Any, before: Any, step: Any) -> Found:
        """Run the stages that this waits for."""
        from curator_df.core.near_stages import NearStages

        return NearStages(runner, before, step, self).run()

    def resolved(self, found: Found) -> RangeAction:
        """Return what drops the rows in the last pass."""
        return DropRows(self, found)


def band_words(hashes: npt.NDArray[np.uint64], band: int, kinds: int) -> npt.NDArray[np.uint64]:
    """Return first words of keys: those of a band lie between two of ``kinds`` evenly spread bounds (`hash_bounds`).

    Examples
    --------
    >>> [hex(word) for word in band_words(np.array([0, 5], dtype=np.uint64), 1, 2)]
    ['0x8000000000000000', '0x8000000000000005']
    """
    width = np.uint64((1 << 64) // kinds - 1)
    words: npt.NDArray[np.uint64] = hash_bounds(kinds)[band] + hashes % width
    return words


@dataclass(frozen=True)
class NearKeySink(StageSink):
    """The end of the first pass."""

    exchange: Exchange
    """Where the keys go, and into how many hash ranges: a multiple of the bands and one."""
    barrier: NearBarrier
    """What is taken from a block."""
    writer_factor: float = 1.5
    """Peak extra bytes as a multiple of the block's."""

    @property
    def folder(self) -> Folder:
        """Where the files go."""
        return self.exchange.folder

    @property
    def fingerprint(self) -> str:
        """Digest of what is written."""
        return fingerprint(self.barrier)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeKeys:  # noqa: ARG002 - the face of a sink
        """Start the files of a range."""
        return _RangeKeys(self, number, max(buffer_bytes, LEAST_KEY_BYTES))


class _RangeKeys:
    def __init__(self, sink: NearKeySink, number: int, memory_bytes: int) -> None:
        self._barrier = sink.barrier
        self._kinds = sink.barrier.num_bands + 1
        # Whichever row is to stay, keys of bands are ordered by address.
        first = dataclasses.replace(sink.exchange, keep="first")
        self._writer = KeyWriter(first, number, memory_bytes=memory_bytes)
        self._ranks: RowSorter | None = None
        if sink.barrier.ranks_rows:
            name = f"ranks/part-{number:06d}.slices"
            least = np.zeros(1, dtype=np.uint64)
            self._ranks = RowSorter(sink.folder, name, words=RANK_WORDS, bounds=least, memory_bytes=memory_bytes // 4)
        self._checksum = 0
        self._without = 0

    def append(self, block: Any) -> None:
        for start in range(0, len(block), ROWS_AT_A_TIME):
            self._append(block.iloc[start : start + ROWS_AT_A_TIME])

    def _append(self, block: Any) -> None:
        barrier, addresses = self._barrier, block.index.to_numpy()
        self._checksum = (self._checksum + key_checksum(barrier.of(block).hashes, addresses)) & CHECKSUM_MASK
        keys = barrier.contents(block, **barrier.parameters)
        rows = keys.hashes.copy()
        rows[:, 0] = band_words(rows[:, 0], barrier.num_bands, self._kinds)
        self._writer.append(rows, addresses)
        hashes, compared = barrier.bands(block, **barrier.parameters)
        self._without += len(block) - int(compared.sum())
        rows, addresses_compared = np.empty((int(compared.sum()), 2), dtype=np.uint64), addresses[compared]
        rows[:, 1] = keys.hashes[compared, 0]
        for band in range(barrier.num_bands):
            rows[:, 0] = band_words(hashes[compared, band], band, self._kinds)
            self._writer.append(rows, addresses_compared)
        if self._ranks is not None and keys.values is not None:
            ranked = ranks(keys.values, barrier.keep, keys.missing)
            self._ranks.append(np.stack([addresses.view(np.uint64), ranked], axis=1))

    def commit(self) -> list[FileRecord]:
        files = [self._writer.commit()]
        return files if self._ranks is None else [*files, self._ranks.commit()]

    def discard(self) -> None:
        self._writer.discard()
        if self._ranks is not None:
            self._ranks.discard()

    @property
    def summary(self) -> dict[str, int]:
        return {
            "key_checksum": self._checksum,
            "spilled_bytes": self._writer.spilled_bytes,
            "without_shingles": self._without,
        }


@dataclass(frozen=True)
class NearGroups:
    """How ranges are grouped for the tasks after the first pass."""

    starts: npt.NDArray[np.int64] = field(repr=False)
    """Shape (ranges,): least address of each range."""
    per_group: int
    """Consecutive ranges of a group."""

    def __len__(self) -> int:
        return (len(self.starts) + self.per_group - 1) // self.per_group

    @property
    def bounds(self) -> npt.NDArray[np.uint64]:
        """Least address of each group, for files with a slice for each."""
        return drop_bounds(self.starts[:: self.per_group])

    def range_bounds(self, group: int) -> npt.NDArray[np.uint64]:
        """Least address of each range of a group, for a file with a slice for each."""
        first = group * self.per_group
        return drop_bounds(self.starts[first : first + self.per_group])


@dataclass(frozen=True)
class TextSink(StageSink):
    """The end of the second pass: texts that are to be compared."""

    folder: Folder
    """Where they go."""
    barrier: NearBarrier
    """Whose pairs these are."""
    groups: NearGroups
    """Of the ranges."""
    pairs: tuple[FileRecord, ...]
    """A file for each group, with a slice for each of its ranges: edges in both directions."""
    writer_factor: float = 1.5
    """Peak extra bytes as a multiple of the block's."""

    @property
    def fingerprint(self) -> str:
        """Digest of what is written."""
        return fingerprint(self.barrier)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeTexts:  # noqa: ARG002 - the face of a sink
        """Start the files of a range."""
        return _RangeTexts(self, number, max(buffer_bytes // 4, LEAST_KEY_BYTES))

    def wanted(self, number: int) -> npt.NDArray[np.int64] | None:
        """Return the addresses of the rows of a range that have an edge, ascending; None where they are too many to hold."""
        group, place = divmod(number, self.groups.per_group)
        slices = open_slices(self.folder, self.pairs[group : group + 1], place)
        if sum(piece.rows for piece in slices) > MOST_WANTED:
            return None
        rows = [np.unique(piece[:, 0].view(np.int64)) for piece in merge_slices(slices, memory_bytes=LEAST_KEY_BYTES)]
        return np.unique(np.concatenate(rows)) if rows else np.empty(0, dtype=np.int64)


def texts_name(number: int) -> str:
    """Return the name of the file that holds the texts of a range."""
    return f"texts/part-{number:06d}.texts"


class _RangeTexts:
    def __init__(self, sink: TextSink, number: int, memory_bytes: int) -> None:
        self._barrier, self._number = sink.barrier, number
        group, place = divmod(number, sink.groups.per_group)
        slices = open_slices(sink.folder, sink.pairs[group : group + 1], place)
        self._pieces: Iterator[Any] = merge_slices(slices, memory_bytes=memory_bytes)
        self._waiting: Any = np.empty((0, EDGE_WORDS), dtype=np.uint64)
        self._file = NewFile(sink.folder, texts_name(number))
        name = f"locations/part-{number:06d}.slices"
        self._sorter = RowSorter(
            sink.folder, name, words=LOCATION_WORDS, bounds=sink.groups.bounds, memory_bytes=memory_bytes
        )
        self._last = (-1, np.uint64(0), np.uint64(0))
        self._rows = self._texts = self._missed = 0

    def append(self, block: Any) -> None:
        addresses = block.index.to_numpy()
        self._rows += len(block)
        if not len(block):
            return
        for piece in self._up_to(int(addresses[-1])):
            self._take(block, addresses, piece)

    def _up_to(self, last: int) -> Iterator[Any]:
        """Yield the edges of rows up to an address."""
        while True:
            stop = int(np.searchsorted(self._waiting[:, 0], np.uint64(last), side="right"))
            piece, self._waiting = self._waiting[:stop], self._waiting[stop:]
            if stop:
                yield piece
            if len(self._waiting):
                return
            following = next(self._pieces, None)
            if following is None:
                return
            self._waiting = following.copy()

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
        """Append texts to the file; return offset, and CRC-32 with length, of each."""
        _, offsets, data = texts.buffers()
        ends = np.frombuffer(offsets, dtype=np.int64, count=texts.offset + len(texts) + 1)[texts.offset :]
        view = memoryview(data if data is not None else b"")[int(ends[0]) : int(ends[-1])]
        located = np.empty((len(texts), 2), dtype=np.uint64)
        located[:, 0] = (ends[:-1] - ends[0] + self._file.tell()).view(np.uint64)
        relative = (ends - ends[0]).tolist()
        sums = [zlib.crc32(view[start:stop]) for start, stop in itertools.pairwise(relative)]
        lengths = np.diff(ends).view(np.uint64)
        located[:, 1] = (np.array(sums, dtype=np.uint64) << _LENGTH_BITS) | lengths
        self._file.write(view)
        self._texts += len(texts)
        return located

    def commit(self) -> list[FileRecord]:
        missed = self._missed + len(self._waiting) + sum(len(piece) for piece in self._pieces)
        if missed:
            raise changed_rows("drop_near_duplicates", self._number, self._rows, self._rows, ", but other addresses")
        return [self._file.commit(self._texts), self._sorter.commit()]

    def discard(self) -> None:
        self._file.discard()
        self._sorter.discard()

    @property
    def summary(self) -> dict[str, int]:
        return {"spilled_bytes": self._sorter.spilled_bytes}


def location_rows(edges: Any, located: Any) -> Any:
    """Return a row for each edge that says where the text of its first row lies."""
    first, second = edges[:, 0], edges[:, 1]
    rows = np.empty((len(edges), LOCATION_WORDS), dtype=np.uint64)
    rows[:, 0], rows[:, 1] = np.minimum(first, second), np.maximum(first, second)
    rows[:, 2] = located[:, 0] | np.where(first > second, SIDE_BIT, np.uint64(0))
    rows[:, 3] = located[:, 1]
    return rows


def split_files(manifests: Sequence[Mapping[str, Any]], folder: str) -> tuple[FileRecord, ...]:
    """Return the files of some tasks that lie in a sub-folder, in the order of the tasks."""
    return tuple(file for done in manifests for file in done["files"] if file.name.startswith(f"{folder}/"))

# SPDX-License-Identifier: Apache-2.0
"""Keys of the first pass of a drop of near duplicates: one for each row and band, and one for its content."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.sink import StageSink
from curator_df.dedup.near.frequent_files import CellsWriter
from curator_df.dedup.near.settings import NearSettings
from curator_df.exchange.exchange import Exchange, KeyWriter, hash_bounds, ranks
from curator_df.exchange.keys import CHECKSUM_MASK, LEAST_KEY_BYTES, key_checksum
from curator_df.files.row_sort import RowSorter
from curator_df.files.storage import FileRecord, Folder
from curator_df.kernels.rows.either_backend import rows_where
from curator_df.kernels.rows.key_tables import SLOTS, RepeatedRows

ROWS_AT_A_TIME = 4096
"""Number of rows of a block whose MinHash signatures are computed together, which limits the memory for band hashes and keys."""
RANK_WORDS = 2
"""Words of a rank: address, rank."""
ROW_BIT = np.uint64(1 << 63)
"""Bit of the second word of a band's key that is set for rows of the table, so that kept signatures come first in a bucket."""


def band_words(hashes: npt.NDArray[np.uint64], band: int, kinds: int) -> npt.NDArray[np.uint64]:
    """Return the first words of keys; those of a band lie between two of ``kinds`` evenly spread bounds (`hash_bounds`).

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
    """Sink of the first pass."""

    exchange: Exchange
    """Exchange of the keys; its number of hash ranges is a multiple of the number of bands plus one."""
    pending: NearSettings
    """Deferred operation, which computes the keys of a block."""
    first_range: int = 0
    """Offset that is added to the number of a range."""
    first_address: int = 0
    """Offset that is added to an address; more than 0 for kept signatures."""
    writer_factor: float = 1.5
    """Peak extra memory as a multiple of the block's bytes."""

    @property
    def folder(self) -> Folder:
        """Folder of the files."""
        return self.exchange.folder

    @property
    def fingerprint(self) -> str:
        """Digest of the settings that determine the content."""
        return fingerprint(self.pending)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeKeys:  # noqa: ARG002 - the face of a sink
        """Create the files of a range."""
        return _RangeKeys(self, self.first_range + number, max(buffer_bytes, LEAST_KEY_BYTES))


class _RangeKeys:
    def __init__(self, sink: NearKeySink, number: int, memory_bytes: int) -> None:
        self._pending = sink.pending
        self._kinds = sink.pending.num_bands + 1
        self._first_address = sink.first_address
        self._row_bit = np.uint64(0) if sink.first_address else ROW_BIT
        # Whichever row is kept, keys of bands are ordered by address.
        first = dataclasses.replace(sink.exchange, keep="first")
        self._writer = KeyWriter(first, number, memory_bytes=memory_bytes)
        self._ranks: RowSorter | None = None
        if sink.pending.ranks_rows:
            name = f"ranks/part-{number:06d}.slices"
            least = np.zeros(1, dtype=np.uint64)
            self._ranks = RowSorter(sink.folder, name, words=RANK_WORDS, bounds=least, memory_bytes=memory_bytes // 4)
        self._cells: CellsWriter | None = None
        if sink.pending.ignore_common is not None:
            self._cells = CellsWriter(sink.folder, number, sink.pending.scheme)
        self._repeated, self._have_bands = RepeatedRows(), np.zeros(SLOTS, dtype=np.bool_)
        self._checksum = 0
        self._without = 0

    def append(self, block: Any) -> None:
        for start in range(0, len(block), ROWS_AT_A_TIME):
            self._append(block.iloc[start : start + ROWS_AT_A_TIME])

    def _append(self, block: Any) -> None:
        pending, addresses = self._pending, block.index.to_numpy() + self._first_address
        if self._cells is not None:
            self._cells.append(block[pending.text])
        keys = pending.contents(block)
        self._checksum = (self._checksum + key_checksum(keys.hashes, addresses)) & CHECKSUM_MASK
        hashes, signed, compared = self._bands(block, keys.hashes)
        rows = pending.same(keys.hashes, compared).copy()
        rows[:, 0] = band_words(rows[:, 0], pending.num_bands, self._kinds)
        self._writer.append(rows, addresses)
        self._without += len(block) - int(compared.sum())
        rows = np.empty((len(signed), 2), dtype=np.uint64)
        rows[:, 1] = keys.hashes[signed, 0] >> np.uint64(1) | self._row_bit
        for band in range(pending.num_bands):
            rows[:, 0] = band_words(hashes[:, band], band, self._kinds)
            self._writer.append(rows, addresses[signed])
        if self._ranks is not None and keys.values is not None:
            ranked = ranks(keys.values, pending.keep, keys.missing)
            self._ranks.append(np.stack([addresses.view(np.uint64), ranked], axis=1))

    def _bands(self, block: Any, contents: npt.NDArray[np.uint64]) -> tuple[Any, Any, Any]:
        """Return the band hashes of rows, shape (some rows, bands), the positions of these, and which rows of all have any.

        A bucket counts rows with the same text once, as the first of them; so the keys of later ones are left out where they
        are known to be repeated.
        """
        first, slots = self._repeated.rows, contents[:, 1] % np.uint64(SLOTS)
        earlier = self._repeated.find(contents) - first
        is_first = earlier == np.arange(len(earlier))
        places = np.flatnonzero(is_first)
        hashes, compared = self._pending.bands(rows_where(block[list(self._pending.columns)], is_first))
        have_any = self._have_bands[slots]
        have_any[places] = compared
        inside = earlier >= 0
        have_any[inside] = have_any[earlier[inside]]
        self._have_bands[slots[places]] = compared
        return hashes[compared], places[compared], have_any

    def commit(self) -> list[FileRecord]:
        files = [self._writer.commit()]
        files += [] if self._ranks is None else [self._ranks.commit()]
        return files if self._cells is None else [*files, self._cells.commit()]

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

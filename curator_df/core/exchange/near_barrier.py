# SPDX-License-Identifier: Apache-2.0
"""Deferred removal of near-duplicates: the data that its two passes over the text write to disk.

The first pass writes one key row for each row and band, and one for its content, into the files of an `Exchange`. The second
writes the texts to compare and the position of each. `core.duplicates.near_stages` processes these files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from curator_df.core.exchange.barrier import CHECKSUM_MASK, LEAST_KEY_BYTES, DropRows, Found, Keys, key_checksum
from curator_df.core.exchange.exchange import Exchange, Keep, KeyWriter, hash_bounds, ranks
from curator_df.core.files.row_sort import RowSorter
from curator_df.core.files.storage import FileRecord, Folder
from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.range_action import RangeAction
from curator_df.core.ranges.sink import StageSink
from curator_df.core.ranges.source import Ranges

ROWS_AT_A_TIME = 4096
"""Number of rows of a block whose MinHash signatures are computed together, which limits the memory for band hashes and keys."""
EDGE_WORDS = 3
"""Words of an edge: address of a row, address of another, bits of their similarity (a float64; NaN while unknown)."""
RANK_WORDS = 2
"""Words of a rank: address, rank."""
ROW_BIT = np.uint64(1 << 63)
"""Bit of the second word of a band's key that is set for rows of the table, so that kept signatures come first in a bucket."""


@dataclass(frozen=True)
class KeptSignatures:
    """Signatures of rows in another table, with which the rows of a table are compared; none of these rows is dropped."""

    program: Any = field(metadata={"identity": False})
    """Program (`core.planning.program.Program`) that ends with the signatures."""
    ranges: Ranges = field(metadata={"identity": False})
    """Ranges of its input."""
    column: str
    """Column of the signatures."""
    first_address: int
    """Offset that is added to the address of each row, beyond all addresses of the table."""
    identity: str
    """Digest of the program and its input."""


@dataclass(frozen=True)
class NearBarrier:
    """Deferred removal of rows with similar texts, except for one of each group. Its functions are module-level."""

    bands: Callable[..., tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]]
    """Function ``bands(block, **parameters)``: returns band hashes, shape (rows, bands), and which rows have any."""
    contents: Callable[..., Keys]
    """Function ``contents(block, **parameters)``: returns 128-bit hashes of the texts, and values to choose kept rows by."""
    same: Callable[..., npt.NDArray[np.uint64]]
    """Function ``same(hashes, have_shingles, **parameters)``: returns hashes; rows with equal ones are joined uncompared."""
    checks: Callable[..., Keys]
    """Function ``checks(block, **parameters)``: returns these hashes alone, by which the last pass recognizes the rows."""
    texts: Callable[..., Any] = field(metadata={"identity": False})
    """Function ``texts(block, rows, **parameters)``: returns a pyarrow large_string or large_binary array."""
    similarities: Callable[..., npt.NDArray[np.float64]]
    """Function ``similarities(texts, are_kept, pairs, memory_bytes, **parameters)`` for pairs of indices into ``texts``;
    ``are_kept`` marks those that are kept signatures.
    """
    components: Callable[..., npt.NDArray[np.int64]] = field(metadata={"identity": False})
    """Function ``components(ids, batches)``: returns the smallest vertex of the component of each of the ascending ``ids``."""
    parameters: Mapping[str, Any]
    """Keyword arguments of the functions."""
    num_bands: int
    """Number of bands of a row."""
    anchors: int
    """Number of first rows of a bucket with which the others are compared."""
    verify: float | None
    """Minimum similarity of a joined pair; None joins all rows that share a bucket with an anchor."""
    keep: Keep
    """Row of a group to keep."""
    reason: str
    """Drop reason of the other rows, for the receipt."""
    keep_rows: Callable[[Any, npt.NDArray[np.bool_]], Any] = field(metadata={"identity": False})
    """Function that returns the rows of a block for which a mask is True."""
    bands_per_iteration: int | None = field(default=None, metadata={"identity": False})
    """Number of bands compared before their pairs are merged with the known ones; None derives it from the budget."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """Folder that stores the completed stage, as in `core.exchange.barrier.Barrier`."""
    columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Columns that ``bands`` and ``contents`` read."""
    text_columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Columns that ``texts`` reads."""
    against: KeptSignatures | None = None
    """Kept signatures that the rows are compared with, in addition to each other."""
    measure: str = field(default="", metadata={"identity": False})
    """Name of the similarity, for rejects."""
    of_parts: ClassVar[bool] = False
    """False, because the keys are those of whole rows."""

    @property
    def rule(self) -> str:
        """Condition for two rows to match, as rejects name it."""
        return "the same band" if self.verify is None else f"{self.measure} >= {self.verify:g}"

    @property
    def threshold(self) -> float | None:
        """Minimum similarity of two rows."""
        return self.verify

    @property
    def other_files(self) -> Sequence[str]:
        """Files of kept signatures, which follow those of the table; empty if stored results are read without their program."""
        program = None if self.against is None else self.against.program
        return () if program is None else tuple(program.source.files)

    @property
    def for_kept(self) -> NearBarrier:
        """Return a copy for the rows of ``against``."""
        column = "" if self.against is None else self.against.column
        parameters = {**self.parameters, "text": None, "ranked_by": None, "signatures": column}
        columns = (column,)
        return dataclasses.replace(self, parameters=parameters, keep="first", columns=columns, text_columns=columns)

    @property
    def ranks_rows(self) -> bool:
        """Whether the kept rows are chosen by a value."""
        return self.keep in ("largest", "smallest")

    def of(self, block: Any) -> Keys:
        """Return the keys by which the last pass recognizes the rows of the first."""
        return self.checks(block, **self.parameters)

    def find(self, runner: Any, before: Any, step: Any) -> Found:
        """Run the stages that this operation waits for."""
        from curator_df.core.duplicates.near_stages import NearStages

        return NearStages(runner, before, step, self).run()

    def resolved(self, found: Found) -> RangeAction:
        """Return the action that drops the rows in the last pass."""
        return DropRows(self, found)


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
    barrier: NearBarrier
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
        return fingerprint(self.barrier)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeKeys:  # noqa: ARG002 - the face of a sink
        """Create the files of a range."""
        return _RangeKeys(self, self.first_range + number, max(buffer_bytes, LEAST_KEY_BYTES))


class _RangeKeys:
    def __init__(self, sink: NearKeySink, number: int, memory_bytes: int) -> None:
        self._barrier = sink.barrier
        self._kinds = sink.barrier.num_bands + 1
        self._first_address = sink.first_address
        self._row_bit = np.uint64(0) if sink.first_address else ROW_BIT
        # Whichever row is kept, keys of bands are ordered by address.
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
        barrier, addresses = self._barrier, block.index.to_numpy() + self._first_address
        keys = barrier.contents(block, **barrier.parameters)
        self._checksum = (self._checksum + key_checksum(keys.hashes, addresses)) & CHECKSUM_MASK
        hashes, compared = barrier.bands(block, **barrier.parameters)
        rows = barrier.same(keys.hashes, compared, **barrier.parameters).copy()
        rows[:, 0] = band_words(rows[:, 0], barrier.num_bands, self._kinds)
        self._writer.append(rows, addresses)
        self._without += len(block) - int(compared.sum())
        rows, addresses_compared = np.empty((int(compared.sum()), 2), dtype=np.uint64), addresses[compared]
        rows[:, 1] = keys.hashes[compared, 0] >> np.uint64(1) | self._row_bit
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

# SPDX-License-Identifier: Apache-2.0
"""Removal of rows that needs the keys of all rows first: the deferred operation, and its resolved form.

A drop is lazy: a kernel that carries a `Barrier` and refuses to be computed block by block. The runner hashes the keys of
all rows in a separate pass (`core.runner.stages`), and replaces the deferred kernel with `DropRows` for the last pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from curator_df.core.exchange.drops import DropReader
from curator_df.core.exchange.exchange import Exchange, Keep, KeyWriter
from curator_df.core.exchange.range_groups import RangeGroups
from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import merge_slices
from curator_df.core.files.slice_file import open_slices
from curator_df.core.files.sorted_rows import RowsUpTo
from curator_df.core.files.storage import FileRecord, Folder
from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.blocks import Outcome
from curator_df.core.ranges.range_action import OfRange, RangeAction, changed_rows
from curator_df.core.ranges.sink import RangeWriter, StageSink

LEAST_KEY_BYTES = 2_000_000
"""Minimum memory for sorting keys in a task, in bytes."""
KEY_WRITER_FACTOR = 1.5
"""Peak extra memory of hashing and sorting keys as a multiple of the block's bytes: 56 bytes a row, rows of at least 40 bytes."""
DROP_READER_BYTES = 4_000_000
"""Memory for reading the drops of a range, in bytes."""
MATCH_WORDS = 3
"""Words of a match: address of the row, address of the matched row, bits of their similarity (a float64; NaN if unknown)."""
CHECKSUM_MASK = (1 << 64) - 1
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Keys(NamedTuple):
    """Keys that a barrier takes from a block."""

    hashes: npt.NDArray[np.uint64]
    """Array of shape (rows, 2)."""
    values: npt.NDArray[Any] | None = None
    """Array of shape (rows,) with the values by which the kept rows are chosen."""
    missing: npt.NDArray[np.bool_] | None = None
    """Array of shape (rows,), True where that value is null."""


@dataclass(frozen=True)
class Barrier:
    """Deferred removal of rows with the same key, except for one of each group."""

    keys: Callable[..., Keys]
    """Module-level function: ``keys(block, **parameters)``."""
    parameters: Mapping[str, Any]
    """Keyword arguments of ``keys``."""
    keep: Keep
    """Row of a group to keep."""
    reason: str
    """Drop reason of the other rows, for the receipt."""
    keep_rows: Callable[[Any, npt.NDArray[np.bool_]], Any] = field(metadata={"identity": False})
    """Module-level function that returns the rows of a block for which a mask is True."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """Folder that stores the completed stage; None stores it with the run's temporary files, which are deleted."""

    columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Columns that ``keys`` reads."""
    of_parts: ClassVar[bool] = False
    """False, because the keys are those of whole rows."""
    rule: ClassVar[str] = ""
    """Condition for two rows to match, as rejects name it; empty if they are equal."""
    threshold: ClassVar[float | None] = None
    """Minimum similarity of two rows."""
    other_files: ClassVar[Sequence[str]] = ()
    """Files of another table that rows are compared with; they are numbered after those of the input."""

    def of(self, block: Any) -> Keys:
        """Return the keys of a block."""
        return self.keys(block, **self.parameters)

    def feed(self, block: Any, writer: KeyWriter) -> int:
        """Pass the keys of a block to a writer; return their checksum."""
        keys, addresses = self.of(block), block.index.to_numpy()
        writer.append(keys.hashes, addresses, keys.values, keys.missing)
        return key_checksum(keys.hashes, addresses)

    def open_keys(self, exchange: Exchange, number: int, memory_bytes: int) -> RangeKeys:
        """Create the key file of a range."""
        return RangeKeys(self, exchange, number, memory_bytes)

    def find(self, runner: Any, before: Any, step: Any) -> Found:
        """Run the stages that this operation waits for (``runner`` is a `stages.StageRunner`)."""
        found: Found = runner.find_drops(before, step, self)
        return found

    def resolved(self, found: Found) -> RangeAction:
        """Return the action that drops the rows in the last pass."""
        return DropRows(self, found)


def key_checksum(hashes: npt.NDArray[np.uint64], places: npt.NDArray[np.int64]) -> int:
    """Return a checksum of keys with their hash and address (or place), which does not depend on the division into blocks."""
    with np.errstate(over="ignore"):
        mixed = (hashes[:, 0] ^ (places.view(np.uint64) * _MIX)) * _MIX
        return int(mixed.sum(dtype=np.uint64))


@dataclass(frozen=True)
class KeySink(StageSink):
    """Sink of the first pass, which writes keys instead of text."""

    exchange: Exchange
    """Exchange of the keys: its folder and the number of hash ranges."""
    barrier: Any
    """Deferred operation: a `Barrier`, a `part_barrier.PartBarrier`, or another object with the same interface."""
    writer_factor: float = KEY_WRITER_FACTOR
    """Peak extra memory as a multiple of the block's bytes."""

    @property
    def folder(self) -> Folder:
        """Folder of the files."""
        return self.exchange.folder

    @property
    def fingerprint(self) -> str:
        """Digest of the settings that determine the content."""
        return fingerprint(self.barrier)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> RangeWriter:  # noqa: ARG002 - the face of a sink
        """Create the key file of a range."""
        writer: RangeWriter = self.barrier.open_keys(self.exchange, number, max(buffer_bytes, LEAST_KEY_BYTES))
        return writer


class RangeKeys:
    """Writer of the keys of one range."""

    def __init__(self, barrier: Any, exchange: Exchange, number: int, memory_bytes: int) -> None:
        self._barrier = barrier
        self._writer = KeyWriter(exchange, number, memory_bytes=memory_bytes)
        self._checksum = 0

    def append(self, block: Any) -> None:
        """Write the keys of the next block."""
        self._checksum = (self._checksum + self._barrier.feed(block, self._writer)) & CHECKSUM_MASK

    def commit(self) -> list[FileRecord]:
        """Make the file durable and visible."""
        return [self._writer.commit()]

    def discard(self) -> None:
        """Discard everything that was not committed."""
        self._writer.discard()

    @property
    def summary(self) -> dict[str, int]:
        """Return the figures of the range for the journal."""
        return {"key_checksum": self._checksum, "spilled_bytes": self._writer.spilled_bytes}


@dataclass(frozen=True)
class Found:
    """Result of the stages of a deferred operation, for the last pass."""

    exchange: Exchange
    """Exchange with the drops."""
    files: tuple[FileRecord, ...]
    """Files of the drops."""
    rows: npt.NDArray[np.int64] = field(repr=False)
    """Array of shape (ranges,): rows of each range in the first pass."""
    checksums: npt.NDArray[np.uint64] = field(repr=False)
    """Array of shape (ranges,): `key_checksum` of each range."""
    groups: RangeGroups = field(kw_only=True)
    """Groups of the ranges, by which a table of groups is split."""
    members: tuple[FileRecord, ...] = field(kw_only=True, default=())
    """Files of (address, kept row, rows of the group) for all rows in groups of two or more, if needed for a table."""

    def member_rows(self, group: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield the members whose addresses are in a group of ranges, in order."""
        slices = open_slices(self.exchange.folder, self.members, group)
        return merge_slices(slices, memory_bytes=memory_bytes)

    def matched_rows(self, number: int, *, memory_bytes: int) -> Iterator[Rows] | None:  # noqa: ARG002 - of other kinds
        """Return (address, address of the matched row, bits of their similarity) for the rows of a range, in order.

        None means that each dropped row matched the kept row, which the drops name already, and is equal to it.
        """
        return None

    def require_same(self, step: str, number: int, rows: int, checksum: int, missed: int) -> None:
        """Raise an error unless a range had the same rows with the same keys as in the first pass."""
        if (rows, checksum, missed) != (int(self.rows[number]), int(self.checksums[number]), 0):
            raise changed_rows(step, number, int(self.rows[number]), rows, ", or other keys")


@dataclass(frozen=True)
class DropRows(RangeAction):
    """Resolved form of a deferred removal in the last pass: the addresses of the rows to drop, range by range."""

    follows_addresses: ClassVar[bool] = True
    barrier: Any
    """Deferred `Barrier` or `near_barrier.NearBarrier`; its keys prove that the rows are those of the first pass."""
    found: Found
    """Result with the rows to drop."""

    def of_range(self, number: int) -> OfRange:
        """Return the object that drops the rows of one range, once."""
        return RangeDrops(self, number)


class RangeDrops:
    """Removal of the rows of one range, block by block, with a check that they are the rows of the first pass."""

    def __init__(self, drops: DropRows, number: int) -> None:
        self._barrier, self._found, self._number = drops.barrier, drops.found, number
        self._reader = DropReader(drops.found.exchange, number, drops.found.files, memory_bytes=DROP_READER_BYTES)
        self._matches: RowsUpTo | None = None
        self._rows = self._checksum = 0

    def run(self, block: Any) -> Outcome:
        """Return the kept rows."""
        addresses = block.index.to_numpy()
        self._rows += len(block)
        self._checksum = (self._checksum + key_checksum(self._barrier.of(block).hashes, addresses)) & CHECKSUM_MASK
        going = self._reader.drops(addresses)
        count = int(going.sum())
        if not count:
            return Outcome(block)
        return Outcome(
            self._barrier.keep_rows(block, ~going),
            {self._barrier.reason: count},
            rejects=lambda: (self._barrier.keep_rows(block, going), self._reasons(addresses[going])),
        )

    def _reasons(self, going: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Return the columns that rejects show for some dropped rows; called for each block in turn, or never."""
        barrier, count = self._barrier, len(going)
        said = {"reason": [barrier.reason] * count, "matched": self._reader.staying, "other_files": barrier.other_files}
        if self._matches is None:
            matches = self._found.matched_rows(self._number, memory_bytes=DROP_READER_BYTES)
            if matches is None:
                return said
            self._matches = RowsUpTo(matches, MATCH_WORDS)
        rows = np.concatenate(list(self._matches.take(int(going[-1]))))
        rows = rows[np.searchsorted(rows[:, 0], going.view(np.uint64))]
        if (rows[:, 0].view(np.int64) != going).any():
            raise ValueError("the matches do not belong to the dropped rows; this is a defect in curator_df")
        said |= {"rule": [barrier.rule] * count, "threshold": [barrier.threshold] * count}
        return said | {"matched": rows[:, 1].astype(np.int64), "value": rows[:, 2].copy().view(np.float64)}

    def finish(self, step: str) -> None:
        """Raise an error unless the range had the same rows with the same keys as in the first pass."""
        self._found.require_same(step, self._number, self._rows, self._checksum, self._reader.finish())

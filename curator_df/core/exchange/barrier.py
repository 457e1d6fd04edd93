# SPDX-License-Identifier: Apache-2.0
"""Drops that need every row's key before the first row can go: what a pending one is, and what it becomes.

A drop is lazy: a kernel that carries a `Barrier` and refuses to be computed block by block. The runner hashes the keys of
all rows in a pass of its own (`core.runner.stages`), and puts `DropRows` in the place of the pending kernel for the last pass.
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
"""Least memory for sorting keys in a task."""
KEY_WRITER_FACTOR = 1.5
"""Peak extra bytes of hashing and sorting keys as a multiple of the block's: 56 bytes a row, rows of 40 bytes or more."""
DROP_READER_BYTES = 4_000_000
"""Memory for reading the drops of a range."""
MATCH_WORDS = 3
"""Of what a row matched: its address, that of the other row, bits of their similarity (a float64; NaN: not known)."""
CHECKSUM_MASK = (1 << 64) - 1
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Keys(NamedTuple):
    """What a barrier takes from a block."""

    hashes: npt.NDArray[np.uint64]
    """Shape (rows, 2)."""
    values: npt.NDArray[Any] | None = None
    """Shape (rows,): what survivors are chosen by."""
    missing: npt.NDArray[np.bool_] | None = None
    """Shape (rows,): where that value is null."""


@dataclass(frozen=True)
class Barrier:
    """Rows with the same key, of which one stays."""

    keys: Callable[..., Keys]
    """Module-level function: ``keys(block, **parameters)``."""
    parameters: Mapping[str, Any]
    """Keyword arguments of ``keys``."""
    keep: Keep
    """Which row of a group stays."""
    reason: str
    """Why the others go, as the receipt says."""
    keep_rows: Callable[[Any, npt.NDArray[np.bool_]], Any] = field(metadata={"identity": False})
    """Module-level function: the rows of a block for which a mask is True."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """Where the stage is kept when it is complete; by default with a run's temporary files, and deleted with them."""

    columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """All that ``keys`` looks at."""
    of_parts: ClassVar[bool] = False
    """Keys are of whole rows."""
    rule: ClassVar[str] = ""
    """What makes two rows alike, as rejects name it; empty where they are equal."""
    threshold: ClassVar[float | None] = None
    """Least similarity of two rows."""
    other_files: ClassVar[Sequence[str]] = ()
    """Files after those of the input, of rows of another table that rows are compared with."""

    def of(self, block: Any) -> Keys:
        """Return the keys of a block."""
        return self.keys(block, **self.parameters)

    def feed(self, block: Any, writer: KeyWriter) -> int:
        """Give the keys of a block to a writer; return their checksum."""
        keys, addresses = self.of(block), block.index.to_numpy()
        writer.append(keys.hashes, addresses, keys.values, keys.missing)
        return key_checksum(keys.hashes, addresses)

    def open_keys(self, exchange: Exchange, number: int, memory_bytes: int) -> RangeKeys:
        """Start the key file of a range."""
        return RangeKeys(self, exchange, number, memory_bytes)

    def find(self, runner: Any, before: Any, step: Any) -> Found:
        """Run the stages that this waits for (``runner`` is a `stages.StageRunner`)."""
        found: Found = runner.find_drops(before, step, self)
        return found

    def resolved(self, found: Found) -> RangeAction:
        """Return what drops the rows in the last pass."""
        return DropRows(self, found)


def key_checksum(hashes: npt.NDArray[np.uint64], places: npt.NDArray[np.int64]) -> int:
    """Return a sum over keys of hash and address (or place), the same in whatever blocks they come."""
    with np.errstate(over="ignore"):
        mixed = (hashes[:, 0] ^ (places.view(np.uint64) * _MIX)) * _MIX
        return int(mixed.sum(dtype=np.uint64))


@dataclass(frozen=True)
class KeySink(StageSink):
    """The end of the first pass: keys, not text."""

    exchange: Exchange
    """Where they go, and into how many hash ranges."""
    barrier: Any
    """What is taken from a block: a `Barrier`, a `part_barrier.PartBarrier`, or what else has their face."""
    writer_factor: float = KEY_WRITER_FACTOR
    """Peak extra bytes as a multiple of the block's."""

    @property
    def folder(self) -> Folder:
        """Where the files go."""
        return self.exchange.folder

    @property
    def fingerprint(self) -> str:
        """Digest of what is written."""
        return fingerprint(self.barrier)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> RangeWriter:  # noqa: ARG002 - the face of a sink
        """Start the key file of a range."""
        writer: RangeWriter = self.barrier.open_keys(self.exchange, number, max(buffer_bytes, LEAST_KEY_BYTES))
        return writer


class RangeKeys:
    """Writes the keys of one range."""

    def __init__(self, barrier: Any, exchange: Exchange, number: int, memory_bytes: int) -> None:
        self._barrier = barrier
        self._writer = KeyWriter(exchange, number, memory_bytes=memory_bytes)
        self._checksum = 0

    def append(self, block: Any) -> None:
        """Take the keys of the next block."""
        self._checksum = (self._checksum + self._barrier.feed(block, self._writer)) & CHECKSUM_MASK

    def commit(self) -> list[FileRecord]:
        """Make the file durable and visible."""
        return [self._writer.commit()]

    def discard(self) -> None:
        """Drop what was not committed."""
        self._writer.discard()

    @property
    def summary(self) -> dict[str, int]:
        """What the journal keeps of the range."""
        return {"key_checksum": self._checksum, "spilled_bytes": self._writer.spilled_bytes}


@dataclass(frozen=True)
class Found:
    """What the stages of a pending drop left for the last pass."""

    exchange: Exchange
    """Where the drops are."""
    files: tuple[FileRecord, ...]
    """The drops."""
    rows: npt.NDArray[np.int64] = field(repr=False)
    """Shape (ranges,): rows of each range in the first pass."""
    checksums: npt.NDArray[np.uint64] = field(repr=False)
    """Shape (ranges,): their `key_checksum`."""
    groups: RangeGroups = field(kw_only=True)
    """Of the ranges: how a table of groups is cut."""
    members: tuple[FileRecord, ...] = field(kw_only=True, default=())
    """(address, survivor, rows of the group) of all rows of groups of two or more, where they are kept for a table."""

    def member_rows(self, group: int, *, memory_bytes: int) -> Iterator[Rows]:
        """Yield the members whose addresses are in a group of ranges, in order."""
        slices = open_slices(self.exchange.folder, self.members, group)
        return merge_slices(slices, memory_bytes=memory_bytes)

    def matched_rows(self, number: int, *, memory_bytes: int) -> Iterator[Rows] | None:  # noqa: ARG002 - of other kinds
        """Return (address, address of the row it matched, bits of their similarity) of the rows of a range, in order.

        None where a row that goes matched the one that stays, which the drops name already, and is equal to it.
        """
        return None

    def require_same(self, step: str, number: int, rows: int, checksum: int, missed: int) -> None:
        """Raise unless a range had the same rows with the same keys as in the first pass."""
        if (rows, checksum, missed) != (int(self.rows[number]), int(self.checksums[number]), 0):
            raise changed_rows(step, number, int(self.rows[number]), rows, ", or other keys")


@dataclass(frozen=True)
class DropRows(RangeAction):
    """What a pending drop is in the last pass: the addresses that go, range by range."""

    follows_addresses: ClassVar[bool] = True
    barrier: Any
    """A `Barrier` or a `near_barrier.NearBarrier`, for the keys, to see that they are those of the first pass."""
    found: Found
    """What goes."""

    def of_range(self, number: int) -> OfRange:
        """Return what drops the rows of one range, once."""
        return RangeDrops(self, number)


class RangeDrops:
    """Drops the rows of one range, block by block, and checks that they are the rows of the first pass."""

    def __init__(self, drops: DropRows, number: int) -> None:
        self._barrier, self._found, self._number = drops.barrier, drops.found, number
        self._reader = DropReader(drops.found.exchange, number, drops.found.files, memory_bytes=DROP_READER_BYTES)
        self._matches: RowsUpTo | None = None
        self._rows = self._checksum = 0

    def run(self, block: Any) -> Outcome:
        """Return the rows that stay."""
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
        """Return what rejects say of some rows that go; called for each block in turn, or never."""
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
            raise ValueError("rows that go and what they matched are of different rows; this is a defect in curator_df")
        said |= {"rule": [barrier.rule] * count, "threshold": [barrier.threshold] * count}
        return said | {"matched": rows[:, 1].astype(np.int64), "value": rows[:, 2].copy().view(np.float64)}

    def finish(self, step: str) -> None:
        """Raise unless the range had the same rows with the same keys as in the first pass."""
        self._found.require_same(step, self._number, self._rows, self._checksum, self._reader.finish())

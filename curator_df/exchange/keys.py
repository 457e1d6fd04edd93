# SPDX-License-Identifier: Apache-2.0
"""Keys of rows: what a pass takes from its blocks, and the sink that writes them into the files of an exchange."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from curator_df.core.fingerprint import fingerprint
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.program import DiskNeed, Pending, PendingPass, Program, StageStart
from curator_df.core.planning.row_estimate import estimate_kept
from curator_df.core.ranges.sink import RangeWriter, StageSink
from curator_df.core.ranges.source import OFFSET_BITS, Ranges, range_starts
from curator_df.core.runner.run import range_bytes
from curator_df.exchange.exchange import Exchange, Finds, KeyWriter
from curator_df.exchange.exchange_plan import ExchangePlan, project_exchange
from curator_df.exchange.range_groups import RangeGroups, ranges_per_group
from curator_df.files.storage import FileRecord, Folder

LEAST_KEY_BYTES = 2_000_000
"""Minimum memory for sorting keys in a task, in bytes."""
KEY_WRITER_FACTOR = 1.5
"""Peak extra memory of hashing and sorting keys as a multiple of the block's bytes: 56 bytes a row, rows of at least 40 bytes."""

CHECKSUM_MASK = (1 << 64) - 1
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Keys(NamedTuple):
    """Keys that a deferred operation takes from a block."""

    hashes: npt.NDArray[np.uint64]
    """Array of shape (rows, 2)."""
    values: npt.NDArray[Any] | None = None
    """Array of shape (rows,) with the values by which the kept rows are chosen."""
    missing: npt.NDArray[np.bool_] | None = None
    """Array of shape (rows,), True where that value is null."""


@dataclass(frozen=True)
class KeptRows:
    """Rows of another table, with which the rows of a table are compared; none of them is dropped."""

    program: Any = field(metadata={"identity": False})
    """Program (`core.planning.program.Program`) that ends with what they are compared by."""
    ranges: Ranges = field(metadata={"identity": False})
    """Ranges of its input."""
    column: str
    """Column of stored signatures or keys; empty if the rows are compared by other columns."""
    first_address: int
    """Offset that is added to the row ID of each row, beyond all row IDs of the table."""
    identity: str
    """Digest of the program and its input."""

    @classmethod
    def of(cls, table: Any, column: str, first_address: int) -> KeptRows:
        """Return all rows of a table of Dask, compared by its columns."""
        program = lower(table, spools=True)
        ranges = program.source.cut(range_bytes(program.source))
        return cls(program, ranges, column, first_address, fingerprint(program.source.fingerprint, program.fingerprint))


def address_after(df: Any) -> int:
    """Return an address beyond those of the rows of a table, for those of another table."""
    return len(lower(df, spools=True).source.files) << OFFSET_BITS


class Keyed(Pending):
    """Deferred operation that sends keys of its rows through an exchange: rows with equal keys meet."""

    keep: Any
    """Row of a group to keep, an `exchange.Keep`."""
    of_parts: ClassVar[bool] = False
    """Whether the keys are those of parts of rows."""
    max_documents: int | None = None
    """Number of rows up to which a part may occur without being dropped; None: a part that occurs twice is dropped."""
    finds: Finds = "drops"
    """Kind of result that the reducers of its exchange write."""

    @property
    def pass_title(self) -> str:
        """Title of its pass over rows."""
        return "keys"

    def about_keys(self, before: Program, ranges: Ranges) -> int:
        """Return the approximate number of its keys."""
        return estimate_kept(before, ranges, of_parts=self.of_parts)

    def drop_starts(self, ranges: Ranges) -> npt.NDArray[np.int64]:
        """Return the smallest first word of the drops of each range: by default, an address."""
        return range_starts(ranges)

    def plan_exchange(self, start: StageStart) -> ExchangePlan:
        """Estimate the exchange of its keys.

        Raises
        ------
        BudgetError
            If a task needs more memory than it has.
        """
        rows, map_files = self.about_keys(start.before, start.ranges), len(start.ranges)
        if (against := self.against) is not None and against.program is not None:
            rows += self.for_kept.about_keys(against.program, against.ranges)
            map_files += len(against.ranges)
        return self.exchange_of(rows, start, map_files)

    def exchange_of(self, rows: int, start: StageStart, map_files: int | None = None) -> ExchangePlan:
        """Estimate an exchange of this number of keys, from one file for each input split by default."""
        layout = start.layout
        starts = self.drop_starts(start.ranges)
        return project_exchange(
            rows,
            keep=self.keep,
            map_files=len(start.ranges) if map_files is None else map_files,
            work_bytes=layout.thread_bytes,
            tasks_at_a_time=layout.workers * layout.threads,
            of_parts=self.of_parts,
            finds=self.finds,
            member_slices=len(RangeGroups(starts, ranges_per_group(len(starts)))) if self.keeps_members else 0,
        )

    def disk_need(self, name: str, start: StageStart) -> DiskNeed | None:
        """Return the disk space for the exchange of its keys."""
        return self.plan_exchange(start).need(name)

    against: KeptRows | None = None
    """Rows of another table; rows with the same keys are dropped."""

    @property
    def for_kept(self) -> Any:
        """A copy that takes the keys of the rows of ``against``."""
        return self

    @property
    def keeps_members(self) -> bool:
        """Whether the members of groups of two or more are written, in addition to the rows to drop."""
        return False

    @property
    @abc.abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Columns that the keys are made of."""

    @abc.abstractmethod
    def open_keys(self, exchange: Exchange, number: int, memory_bytes: int) -> Any:
        """Create the writer of the keys of a range, a `RangeWriter` whose summary has their ``key_checksum``."""

    def open_kept(self, exchange: Exchange, number: int, memory_bytes: int) -> Any:
        """Create that writer for a range of the rows of another table."""
        return RangeKeys(self, exchange, number, memory_bytes, exchange.first_kept or 0)

    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return the pass that hashes keys, and the one over the rows of another table."""
        found = [PendingPass(f"keys for {name}, then merge them", "hash and sort keys", KEY_WRITER_FACTOR)]
        if self.against is not None and self.against.program is not None:
            of_other = self.against.program
            found.append(PendingPass(f"kept keys for {name}", "hash and sort keys", KEY_WRITER_FACTOR, of_other))
        return found


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
    pending: Any
    """Deferred operation: a `KeyDrop`, a `PartDrop`, or another object with the same interface."""
    first_range: int = 0
    """Offset that is added to the number of a range; more than 0 for rows of another table."""
    writer_factor: float = KEY_WRITER_FACTOR
    """Peak extra memory as a multiple of the block's bytes."""

    @property
    def folder(self) -> Folder:
        """Folder of the files."""
        return self.exchange.folder

    @property
    def fingerprint(self) -> str:
        """Digest of the settings that determine the content."""
        return fingerprint(self.pending)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> RangeWriter:  # noqa: ARG002 - the face of a sink
        """Create the key file of a range."""
        opened = self.pending.open_kept if self.first_range else self.pending.open_keys
        writer: RangeWriter = opened(self.exchange, self.first_range + number, max(buffer_bytes, LEAST_KEY_BYTES))
        return writer


class RangeKeys:
    """Writer of the keys of one range; ``first_address`` is added to the row IDs of another table."""

    def __init__(
        self, pending: Any, exchange: Exchange, number: int, memory_bytes: int, first_address: int = 0
    ) -> None:
        self._pending, self._first_address = pending, first_address
        self._writer = KeyWriter(exchange, number, memory_bytes=memory_bytes, are_kept=first_address > 0)
        self._checksum = 0

    def append(self, block: Any) -> None:
        """Write the keys of the next block."""
        if self._first_address:
            block = block.set_axis(block.index + self._first_address)
        self._checksum = (self._checksum + self._pending.feed(block, self._writer)) & CHECKSUM_MASK

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

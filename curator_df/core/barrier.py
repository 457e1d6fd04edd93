# SPDX-License-Identifier: Apache-2.0
"""Drops that need every row's key before the first row can go: what a pending one is, and what it becomes.

A drop is lazy: a kernel that carries a `Barrier` and refuses to be computed block by block. The runner hashes the keys of
all rows in a pass of its own (`core.stages`), and puts `DropRows` in the place of the pending kernel for the last pass.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from curator_df.core.backend import integer_column
from curator_df.core.blocks import Outcome
from curator_df.core.drops import DropReader
from curator_df.core.exchange import Exchange, Keep, KeyWriter
from curator_df.core.fingerprint import fingerprint
from curator_df.core.storage import FileRecord, Folder
from curator_df.errors import RowCountError

LEAST_KEY_BYTES = 2_000_000
"""Least memory for sorting keys in a task."""
KEY_WRITER_FACTOR = 1.5
"""Peak extra bytes of hashing and sorting keys as a multiple of the block's: 56 bytes a row, rows of 40 bytes or more."""
DROP_READER_BYTES = 4_000_000
"""Memory for reading the drops of a range."""
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

    def of(self, block: Any) -> Keys:
        """Return the keys of a block."""
        return self.keys(block, **self.parameters)


@dataclass(frozen=True)
class RowCount:
    """Consecutive numbers for rows, which need the number of rows in all ranges before."""

    into: str
    """Name of the column."""
    start: int
    """Number of the first row."""


@dataclass(frozen=True)
class CountSink:
    """The end of a pass that only counts rows."""

    folder: Folder
    """Where the journal is."""
    writer_factor: float = 0.0
    """Nothing is held."""
    fingerprint: str = "count"
    """Nothing is written."""

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _NoFile:  # noqa: ARG002 - the face of a sink
        """Start a range."""
        return _NoFile()

    def write_empty(self, meta: Any) -> list[FileRecord]:  # noqa: ARG002 - the face of a sink
        """Write nothing."""
        return []

    def owns(self, name: str) -> int | None:  # noqa: ARG002 - the face of a sink
        """Return None: there are no files."""
        return None


class _NoFile:
    """The runner counts what it appends."""

    summary: ClassVar[dict[str, int]] = {}

    def append(self, block: Any) -> None:
        pass

    def commit(self) -> list[FileRecord]:
        return []

    def discard(self) -> None:
        pass


def key_checksum(keys: Keys, addresses: npt.NDArray[np.int64]) -> int:
    """Return a sum over rows of key and address, the same in whatever blocks they come."""
    with np.errstate(over="ignore"):
        mixed = (keys.hashes[:, 0] ^ (addresses.view(np.uint64) * _MIX)) * _MIX
        return int(mixed.sum(dtype=np.uint64))


@dataclass(frozen=True)
class KeySink:
    """The end of the first pass: keys, not text."""

    exchange: Exchange
    """Where they go, and into how many hash ranges."""
    barrier: Barrier
    """What is taken from a block."""
    writer_factor: float = KEY_WRITER_FACTOR
    """Peak extra bytes as a multiple of the block's."""

    @property
    def folder(self) -> Folder:
        """Where the files go."""
        return self.exchange.folder

    @property
    def fingerprint(self) -> str:
        """Digest of what is written."""
        return fingerprint(self.barrier.keys, self.barrier.parameters, self.barrier.keep)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeKeys:  # noqa: ARG002 - the face of a sink
        """Start the key file of a range."""
        return _RangeKeys(self, number, max(buffer_bytes, LEAST_KEY_BYTES))

    def write_empty(self, meta: Any) -> list[FileRecord]:  # noqa: ARG002 - the face of a sink
        """Write nothing: each range has a file, with keys or without."""
        return []

    def owns(self, name: str) -> int | None:  # noqa: ARG002 - the face of a sink
        """Return None: the folder is deleted as a whole."""
        return None


class _RangeKeys:
    def __init__(self, sink: KeySink, number: int, memory_bytes: int) -> None:
        self._barrier = sink.barrier
        self._writer = KeyWriter(sink.exchange, number, memory_bytes=memory_bytes)
        self._checksum = 0

    def append(self, block: Any) -> None:
        keys, addresses = self._barrier.of(block), block.index.to_numpy()
        self._checksum = (self._checksum + key_checksum(keys, addresses)) & 0xFFFFFFFFFFFFFFFF
        self._writer.append(keys.hashes, addresses, keys.values, keys.missing)

    def commit(self) -> list[FileRecord]:
        return [self._writer.commit()]

    def discard(self) -> None:
        self._writer.discard()

    @property
    def summary(self) -> dict[str, int]:
        return {"key_checksum": self._checksum, "spilled_bytes": self._writer.spilled_bytes}


class OfRange(Protocol):
    """What a `RangeAction` does to one range, block by block."""

    def run(self, block: Any) -> Outcome:
        """Take the next block."""

    def finish(self, step: str) -> None:
        """Raise unless the range was the one that was prepared for."""


class RangeAction(abc.ABC):
    """What a pending step is in the last pass: it knows what belongs to each range."""

    barrier: Barrier | RowCount
    """What it waited for."""

    @abc.abstractmethod
    def of_range(self, number: int) -> OfRange:
        """Return what runs on one range, once."""


@dataclass(frozen=True)
class DropRows(RangeAction):
    """What a pending drop is in the last pass: the addresses that go, range by range."""

    barrier: Barrier
    """For the keys, to see that they are those of the first pass."""
    exchange: Exchange
    """Where the drops are."""
    files: tuple[FileRecord, ...]
    """The drops."""
    rows: npt.NDArray[np.int64] = field(repr=False)
    """Shape (ranges,): rows of each range in the first pass."""
    checksums: npt.NDArray[np.uint64] = field(repr=False)
    """Shape (ranges,): their `key_checksum`."""

    def of_range(self, number: int) -> OfRange:
        """Return what drops the rows of one range, once."""
        return RangeDrops(self, number)


class RangeDrops:
    """Drops the rows of one range, block by block, and checks that they are the rows of the first pass."""

    def __init__(self, drops: DropRows, number: int) -> None:
        self._drops, self._number = drops, number
        self._reader = DropReader(drops.exchange, number, drops.files, memory_bytes=DROP_READER_BYTES)
        self._rows = self._checksum = 0

    def run(self, block: Any) -> Outcome:
        """Return the rows that stay."""
        addresses = block.index.to_numpy()
        self._rows += len(block)
        self._checksum = (self._checksum + key_checksum(self._drops.barrier.of(block), addresses)) & 0xFFFFFFFFFFFFFFFF
        going = self._reader.drops(addresses)
        count = int(going.sum())
        barrier = self._drops.barrier
        return Outcome(barrier.keep_rows(block, ~going), {barrier.reason: count}) if count else Outcome(block)

    def finish(self, step: str) -> None:
        """Raise unless the range had the same rows with the same keys as in the first pass."""
        rows, checksum = int(self._drops.rows[self._number]), int(self._drops.checksums[self._number])
        missed = self._reader.finish()
        if (self._rows, self._checksum, missed) != (rows, checksum, 0):
            raise _changed(step, self._number, rows, self._rows, ", or other keys")


@dataclass(frozen=True)
class NumberRows(RangeAction):
    """What pending row numbers are in the last pass."""

    barrier: RowCount
    """The column."""
    rows: npt.NDArray[np.int64] = field(repr=False)
    """Shape (ranges,): rows of each range in the first pass."""

    def of_range(self, number: int) -> OfRange:
        """Return what numbers the rows of one range, once."""
        return _RangeNumbers(self, number)


class _RangeNumbers:
    def __init__(self, action: NumberRows, number: int) -> None:
        self._into, self._number, self._expected = action.barrier.into, number, int(action.rows[number])
        self._first = self._next = action.barrier.start + int(action.rows[:number].sum())

    def run(self, block: Any) -> Outcome:
        numbers = np.arange(self._next, self._next + len(block))
        self._next += len(block)
        return Outcome(block.assign(**{self._into: integer_column(block, numbers)}))

    def finish(self, step: str) -> None:
        if self._next - self._first != self._expected:
            raise _changed(step, self._number, self._expected, self._next - self._first, "")


def _changed(step: str, number: int, before: int, now: int, more: str) -> RowCountError:
    return RowCountError(
        f"what comes before {step!r} is not the same each time it runs: range {number} had {before:,} rows in the first "
        f"pass and {now:,} in the last{more}. A step before it depends on chance, time or state; make it a function of the "
        "row (seed it by the row's id)"
    )

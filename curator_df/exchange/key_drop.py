# SPDX-License-Identifier: Apache-2.0
"""Pending drops of rows, or of parts of texts, with the same key, except for the one of each group that is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from curator_df.core.planning.program import PendingPass, Program, SideOutput, Step
from curator_df.core.ranges.blocks import Outcome
from curator_df.core.ranges.range_action import OfRange, RangeAction
from curator_df.core.runner.passes import stage_identity
from curator_df.exchange.dropped_rows import DROP_READER_BYTES, DropRows, Found
from curator_df.exchange.drops import read_drops
from curator_df.exchange.exchange import DROP_WORDS, Exchange, Keep, KeyWriter
from curator_df.exchange.in_order import InOrder, KeepFirst, OrderedKeys, decisions_name, ordered_keys
from curator_df.exchange.key_stages import KeyStages
from curator_df.exchange.keys import CHECKSUM_MASK, KeptRows, Keyed, Keys, RangeKeys, key_checksum
from curator_df.files.sorted_rows import RowsUpTo
from curator_df.files.storage import Folder

Integers = npt.NDArray[np.int64]
Going = Iterator[tuple[Integers, Integers]]
"""Row position in the block and number of the part for each removed part, in order, in pieces."""
MOST_PARTS = 1 << 20
"""Number of parts of a row up to which each part has a unique place; beyond it, places may collide, which is unlikely."""


class PartKeys(NamedTuple):
    """Some of the parts of a block's rows, in order."""

    hashes: npt.NDArray[np.uint64]
    """Array of shape (parts, 2)."""
    rows: Integers
    """Array of shape (parts,): position of the row in the block."""
    ordinals: Integers
    """Array of shape (parts,): number of the part in its row."""


@dataclass(frozen=True)
class PartDrop(Keyed):
    """Deferred removal of parts of rows with the same key, except for one of each group."""

    parts: Callable[..., Iterator[PartKeys]]
    """Module-level function: ``parts(block, **parameters)``."""
    remove: Callable[..., Outcome]
    """Module-level function: ``remove(block, going, **parameters)`` returns the rows without the removed parts."""
    parameters: Mapping[str, Any]
    """Keyword arguments of both functions."""
    keep: Literal["first", "last", "none"]
    """Part of a group to keep."""
    max_documents: int | None = None
    """Number of rows up to which a part may occur without being dropped; None: a part that occurs twice is dropped."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """Folder that stores the completed stage, as in `exchange.key_drop.KeyDrop`."""
    columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Columns that ``parts`` reads."""
    of_parts: ClassVar[bool] = True
    """True, because the keys are those of parts of rows."""

    def feed(self, block: Any, writer: KeyWriter) -> int:
        """Pass the keys of a block to a writer; return their checksum."""
        checksum, addresses = 0, block.index.to_numpy()
        for parts in self.parts(block, **self.parameters):
            writer.append(parts.hashes, addresses[parts.rows], parts=parts.ordinals)
            checksum += key_checksum(parts.hashes, _places(addresses, parts))
        return checksum

    def open_keys(self, exchange: Exchange, number: int, memory_bytes: int) -> RangeKeys:
        """Create the key file of a range."""
        return RangeKeys(self, exchange, number, memory_bytes)

    def prepare(self, runner: Any, before: Program, step: Step) -> Found:
        """Exchange the keys of all parts."""
        return KeyStages(runner, before, step, self).run()

    def resolved(self, prepared: Found) -> RangeAction:
        """Return the action that removes the parts in the last pass."""
        return DropParts(self, prepared)


def _places(addresses: Integers, parts: PartKeys) -> Integers:
    return addresses[parts.rows] * MOST_PARTS + parts.ordinals


@dataclass(frozen=True)
class DropParts(RangeAction):
    """Resolved form of a deferred removal of parts in the last pass."""

    follows_addresses: ClassVar[bool] = True
    pending: PartDrop
    """Deferred operation; it removes the parts, and its keys prove that they are those of the first pass."""
    found: Found
    """Result with the parts to remove."""

    def of_range(self, number: int) -> OfRange:
        """Return the object that removes the parts of one range, once."""
        return _RangeParts(self, number)


class _RangeParts:
    def __init__(self, drops: DropParts, number: int) -> None:
        self._pending, self._found, self._number = drops.pending, drops.found, number
        going = read_drops(drops.found.exchange, number, drops.found.files, memory_bytes=DROP_READER_BYTES)
        self._drops = RowsUpTo((piece.view(np.uint64) for piece in going), DROP_WORDS)
        self._rows = self._checksum = self._missed = 0

    def run(self, block: Any) -> Outcome:
        addresses, pending = block.index.to_numpy(), self._pending
        self._rows += len(block)
        for parts in pending.parts(block, **pending.parameters):
            found = key_checksum(parts.hashes, _places(addresses, parts))
            self._checksum = (self._checksum + found) & CHECKSUM_MASK
        return pending.remove(block, self._going(addresses), **pending.parameters)

    def _going(self, addresses: Integers) -> Going:
        """Yield the parts of a block to remove. A row that is missing in this pass is counted and skipped."""
        if not len(addresses):
            return
        for piece in self._drops.take(int(addresses[-1])):
            parts = piece.view(np.int64)
            rows = np.searchsorted(addresses, parts[:, 0])
            came = addresses[rows] == parts[:, 0]
            self._missed += int((~came).sum())
            yield rows[came], parts[came, 1]

    def finish(self, step: str) -> None:
        self._missed += self._drops.rest()
        self._found.require_same(step, self._number, self._rows, self._checksum, self._missed)


@dataclass(frozen=True)
class KeyDrop(Keyed):
    """Deferred removal of rows with the same key, except for the one of each group that is kept."""

    keys: Callable[..., Keys]
    """Module-level function: ``keys(block, **parameters)``."""
    parameters: Mapping[str, Any]
    """Keyword arguments of ``keys``."""
    keep: Keep
    """Row of a group to keep."""
    reason: str
    """Drop reason of the other rows, for the receipt."""
    home: Folder | None = field(default=None, metadata={"identity": False})
    """Folder that stores the completed stage; None stores it with the run's temporary files, which are deleted."""

    columns: tuple[str, ...] = field(default=(), metadata={"identity": False})
    """Columns that ``keys`` reads."""
    count_into: str | None = field(default=None, metadata={"identity": False})
    """New column with the number of rows that each kept row stands for; None for no column."""
    rule: ClassVar[str] = ""
    """Condition for two rows to match, as rejects name it; empty if they are equal."""
    threshold: ClassVar[float | None] = None
    """Minimum similarity of two rows."""
    against: KeptRows | None = None
    """Rows of another table; rows with the same keys are dropped."""
    kept_keys: Callable[..., Keys] | None = None
    """Module-level function: ``kept_keys(block, **kept_parameters)`` returns the keys of the rows of ``against``."""
    kept_parameters: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``kept_keys``."""
    side_output: SideOutput | None = field(default=None, metadata={"identity": False})
    """Folder for the keys of the kept rows; None for no folder."""
    index: Any = field(default=None, metadata={"identity": False})
    """Index whose documents the rows are compared with (`ops.duplicates.index_runs.IndexUse`); None for none."""

    ordered: InOrder | None = field(default=None, metadata={"identity": False})
    """Room in which it is decided in input order during the last pass; None for an exchange of all keys before it."""

    def in_order(self, rows: int, most_held_bytes: int) -> KeyDrop | None:
        """Return a copy that is decided in input order during the last pass; None if it needs more than the first rows."""
        others = (self.home, self.count_into, self.against, self.side_output, self.index)
        if self.keep != "first" or any(each is not None for each in others):
            return None
        return dataclasses.replace(self, ordered=InOrder.of_rows(rows, most_held_bytes))

    def passes(self, name: str) -> Sequence[PendingPass]:
        """Return no pass if it is decided in input order, else those of the exchange."""
        return super().passes(name) if self.ordered is None else ()

    @property
    def other_files(self) -> Sequence[str]:
        """Files of the other table, which are numbered after those of the input."""
        return () if self.against is None else tuple(self.against.program.source.files)

    @property
    def for_kept(self) -> KeyDrop:
        """A copy that takes the keys of the rows of ``against``."""
        keys, parameters = self.kept_keys or self.keys, self.kept_parameters
        return dataclasses.replace(self, keys=keys, parameters=parameters, columns=(), against=None)

    @property
    def last_pass(self) -> Mapping[str, Any]:
        """The column of counts, if there is one."""
        return {} if self.count_into is None else {"count_into": self.count_into}

    @property
    def keeps_members(self) -> bool:
        """Whether the members of groups are written: for a table, and to count them."""
        return self.home is not None or self.count_into is not None

    @property
    def more_of_stage(self) -> tuple[Any, ...]:
        """A stage for a table always has the members; another one differs by them."""
        return ("members",) if self.keeps_members and self.home is None else ()

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

    def prepare(self, runner: Any, before: Program, step: Step) -> Found | OrderedKeys:
        """Exchange the keys of all rows, or only open the folder for the decisions of the last pass."""
        if self.ordered is not None:
            return ordered_keys(runner, before, step, self.ordered)
        decisions = decisions_name(step, stage_identity(before, step))
        if runner.has_temporary(decisions):  # an earlier call began in one pass
            runner.note_temporary(decisions)
        return KeyStages(runner, before, step, self).run()

    def resolved(self, prepared: Found | OrderedKeys) -> RangeAction:
        """Return the action that drops the rows in the last pass."""
        return KeepFirst(self, prepared) if isinstance(prepared, OrderedKeys) else DropRows(self, prepared)

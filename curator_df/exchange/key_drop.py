# SPDX-License-Identifier: Apache-2.0
"""Pending drop of rows with the same key, except for one of each group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from curator_df.core.files.storage import Folder
from curator_df.core.planning.program import Program, Step
from curator_df.core.ranges.range_action import RangeAction
from curator_df.exchange.dropped_rows import DropRows, Found
from curator_df.exchange.exchange import Exchange, Keep, KeyWriter
from curator_df.exchange.key_stages import KeyStages
from curator_df.exchange.keys import Keyed, Keys, RangeKeys, key_checksum


@dataclass(frozen=True)
class KeyDrop(Keyed):
    """Deferred removal of rows with the same key, except for one of each group."""

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

    def prepare(self, runner: Any, before: Program, step: Step) -> Found:
        """Exchange the keys of all rows."""
        return KeyStages(runner, before, step, self).run()

    def resolved(self, prepared: Found) -> RangeAction:
        """Return the action that drops the rows in the last pass."""
        return DropRows(self, prepared)

# SPDX-License-Identifier: Apache-2.0
"""Stored rows that a task reads instead of the input, because the first steps of its run were done in an earlier pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from curator_df.core.ranges.quarantine import QuarantineFile, quarantine_name
from curator_df.core.ranges.source import Range, RowChoice
from curator_df.core.ranges.stored_blocks import StoredBlocks
from curator_df.files.storage import Folder

COPY_BYTES = 1_000_000
"""Bytes of each read while a file is copied."""


@dataclass(frozen=True)
class StoredPrefix:
    """Rows that passed the first steps, and for the last pass those that did not."""

    passed: StoredBlocks
    """Rows that passed the steps."""
    rejects: StoredBlocks | None = None
    """Rows that the steps removed, as rejects; None for a pass whose outputs do not need them."""
    quarantine: Folder | None = None
    """Folder with the rows that were quarantined; None for a pass before the last one."""

    def blocks(
        self, piece: Range, block_bytes: int, largest_row_bytes: int | None, wanted: RowChoice | None
    ) -> Iterator[Any]:
        """Yield the rows of a range that passed the steps; see `StoredBlocks.blocks`."""
        return self.passed.blocks(piece, block_bytes=block_bytes, largest_row_bytes=largest_row_bytes, wanted=wanted)

    def copy_removed(self, piece: Range, block_bytes: int, quarantine: QuarantineFile, rejects: Any) -> None:
        """Copy what the steps removed from a range to an output's files; ``rejects`` is its writer, or None."""
        if rejects is not None and self.rejects is not None:
            for block in self.rejects.blocks(piece, block_bytes=block_bytes):
                rejects.append(block)
        name = quarantine_name(piece.number)
        if self.quarantine is not None and self.quarantine.exists(name):
            with self.quarantine.filesystem.open(self.quarantine.path(name), "rb") as file:
                while content := file.read(COPY_BYTES):
                    quarantine.copy(content)

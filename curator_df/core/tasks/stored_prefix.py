# SPDX-License-Identifier: Apache-2.0
"""Stored rows that a task reads instead of the input, because the first steps of its run were done in an earlier pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from curator_df.core.ranges.quarantine import QuarantineFile
from curator_df.core.ranges.source import Range, RowChoice
from curator_df.core.ranges.stored_blocks import PIECE_BYTES, StoredBlocks, StoredFiles
from curator_df.errors import OversizeRowError


@dataclass(frozen=True)
class StoredPrefix:
    """Rows that passed the first steps, and for the last pass those that did not."""

    steps: int
    """Number of steps that the rows have passed."""
    passed: StoredBlocks
    """Rows that passed the steps."""
    rejects: StoredBlocks | None = None
    """Rows that the steps removed, as rejects; None for a pass whose outputs do not need them."""
    quarantined: StoredFiles | None = None
    """Rows that were quarantined; None for a pass before the last one."""

    def blocks(
        self,
        piece: Range,
        files: Sequence[str],
        *,
        block_bytes: int,
        largest_row_bytes: int,
        on_long_row: Callable[[OversizeRowError], None] | None,
        wanted: RowChoice | None,
    ) -> Iterator[Any]:
        """Yield the rows of a range that passed the steps; see `StoredBlocks.blocks`."""
        return self.passed.blocks(
            piece,
            files,
            block_bytes=block_bytes,
            largest_row_bytes=largest_row_bytes,
            on_long_row=on_long_row,
            wanted=wanted,
        )

    def copy_removed(
        self,
        piece: Range,
        files: Sequence[str],
        *,
        block_bytes: int,
        largest_row_bytes: int | None,
        quarantine: QuarantineFile,
        rejects: Any,
    ) -> None:
        """Copy what the steps removed from a range to an output's files; ``rejects`` is its writer, or None.

        Raises
        ------
        OversizeRowError
            If a removed row is longer than ``largest_row_bytes``.
        """
        if rejects is not None and self.rejects is not None:
            removed = self.rejects.blocks(piece, files, block_bytes=block_bytes, largest_row_bytes=largest_row_bytes)
            for block in removed:
                rejects.append(block)
        if self.quarantined is not None and self.quarantined.has(piece.number):
            with self.quarantined.open(piece.number) as file:
                while content := file.read(PIECE_BYTES):
                    quarantine.copy(content)

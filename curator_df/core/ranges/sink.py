# SPDX-License-Identifier: Apache-2.0
"""What the end of a chain looks like to the runner: blocks in, whole files out, range by range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from curator_df.core.files.storage import FileRecord, Folder


class RangeWriter(Protocol):
    """Writes the blocks of one range. Nothing is visible before `commit`."""

    def append(self, block: Any) -> None:
        """Take the next block."""

    def commit(self) -> list[FileRecord]:
        """Make all files of the range durable and visible."""

    @property
    def summary(self) -> dict[str, int]:
        """What else is to be journaled about the range, after `commit`."""

    def discard(self) -> None:
        """Drop what was not committed; does nothing after `commit`."""


class Sink(Protocol):
    """A kind of output. Picklable and small: it travels to every worker."""

    @property
    def folder(self) -> Folder:
        """Where the files go."""

    @property
    def fingerprint(self) -> str:
        """Digest of everything that shapes the files, but not of memory or workers."""

    @property
    def writer_factor(self) -> float:
        """Peak extra bytes of `RangeWriter.append` as a multiple of the block's bytes."""

    @property
    def example(self) -> str:
        """Name of a file that may be written, to see whether a reader would take it; empty where nobody reads the folder."""

    def open(self, number: int, meta: Any, buffer_bytes: int) -> RangeWriter:
        """Start the files of range ``number``, whose blocks look like ``meta``; hold at most ``buffer_bytes`` between two."""

    def write_empty(self, meta: Any) -> list[FileRecord]:
        """Write what an output without a single row looks like (its columns)."""

    def owns(self, name: str) -> int | None:
        """Return the number of the range that a file name belongs to, None if it is not of our making."""


class StageSink:
    """What the ends of passes before the last one have in common: their files are for the next stage, and go with it."""

    uses_addresses: ClassVar[bool] = True
    """Whether it tells rows apart by their address."""
    wanted: Callable[[int], npt.NDArray[np.int64] | None] | None = None
    """Returns the addresses, ascending, of the rows of a range that are wanted, or None for all; by default all are."""
    example: ClassVar[str] = ""
    """No reader looks for the files."""

    def write_empty(self, meta: Any) -> list[FileRecord]:  # noqa: ARG002 - the face of a sink
        """Write nothing: no stage looks for the columns of an input without a row."""
        return []

    def owns(self, name: str) -> int | None:  # noqa: ARG002 - the face of a sink
        """Return None: the folder is deleted as a whole."""
        return None

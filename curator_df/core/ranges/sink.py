# SPDX-License-Identifier: Apache-2.0
"""Interface of a sink, the end of a chain: it receives blocks and writes complete files, range by range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from curator_df.files.storage import FileRecord, Folder


class RangeWriter(Protocol):
    """Writer of the blocks of one range. Nothing is visible before `commit`."""

    def append(self, block: Any) -> None:
        """Write the next block."""

    def commit(self) -> list[FileRecord]:
        """Make all files of the range durable and visible."""

    @property
    def summary(self) -> dict[str, int]:
        """Additional figures about the range for the journal, after `commit`."""

    def discard(self) -> None:
        """Discard everything that was not committed; do nothing after `commit`."""


class Sink(Protocol):
    """Kind of output. Picklable and small, because it is sent to every worker."""

    @property
    def folder(self) -> Folder:
        """Folder of the files."""

    @property
    def fingerprint(self) -> str:
        """Digest of everything that determines the files, except memory and workers."""

    @property
    def writer_factor(self) -> float:
        """Peak extra memory of `RangeWriter.append` as a multiple of the block's bytes."""

    @property
    def example(self) -> str:
        """Name of a file that may be written, to check whether a reader would read it; empty if the folder is not read."""

    def open(self, number: int, meta: Any, buffer_bytes: int) -> RangeWriter:
        """Create the files of range ``number``, whose blocks have the columns of ``meta``; buffer at most ``buffer_bytes``."""

    def write_empty(self, meta: Any) -> list[FileRecord]:
        """Write an output without rows, only with its columns."""

    def owns(self, name: str) -> int | None:
        """Return the number of the range that a file name belongs to; None if the sink did not write it."""


class StageSink:
    """Common base of the sinks of passes before the last one: their files are for the next stage, and are deleted with it."""

    uses_addresses: ClassVar[bool] = True
    """Whether it identifies rows by their address."""
    wanted: Callable[[int], npt.NDArray[np.int64] | None] | None = None
    """Function that returns the ascending addresses of the required rows of a range, or None for all; by default all."""
    example: ClassVar[str] = ""
    """Empty, because no reader looks for the files."""

    def write_empty(self, meta: Any) -> list[FileRecord]:  # noqa: ARG002 - the face of a sink
        """Write nothing: no stage needs the columns of an input without rows."""
        return []

    def owns(self, name: str) -> int | None:  # noqa: ARG002 - the face of a sink
        """Return None: the folder is deleted as a whole."""
        return None

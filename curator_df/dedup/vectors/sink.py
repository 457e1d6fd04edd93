# SPDX-License-Identifier: Apache-2.0
"""Sink of the first pass of a drop of similar vectors: a file of vectors for each range, in order of address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from curator_df.core.files.slice_file import SliceWriter
from curator_df.core.files.storage import FileRecord, Folder, NewFile
from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.sink import StageSink
from curator_df.dedup.vectors.settings import (
    FIRST_NOT_FINITE,
    NOT_FINITE,
    UNUSABLE,
    VECTOR_HEAD,
    VECTOR_WRITER_FACTOR,
    VectorSettings,
)
from curator_df.dedup.vectors.vector_math import to_words
from curator_df.exchange.exchange import ranks
from curator_df.exchange.keys import CHECKSUM_MASK, key_checksum

ROWS_AT_A_TIME = 2048
"""Number of rows of a block whose vectors are copied together."""


@dataclass(frozen=True)
class VectorSink(StageSink):
    """Sink of the first pass: a file of vectors for each range."""

    folder: Folder
    """Folder of the files."""
    pending: VectorSettings
    """Deferred operation, which takes the vectors from a block."""
    writer_factor: float = VECTOR_WRITER_FACTOR
    """Peak extra memory as a multiple of the block's bytes."""

    @property
    def fingerprint(self) -> str:
        """Digest of the settings that determine the content."""
        return fingerprint(self.pending)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeVectors:  # noqa: ARG002 - the face of a sink
        """Create the file of a range."""
        return _RangeVectors(self, number)


class _RangeVectors:
    def __init__(self, sink: VectorSink, number: int) -> None:
        self._pending = sink.pending
        self._file = NewFile(sink.folder, f"vectors/part-{number:06d}.slices")
        self._writer = SliceWriter(self._file, VECTOR_HEAD + sink.pending.words, np.zeros(1, dtype=np.uint64))
        self._checksum = self._rows = self._vectors = 0
        self._unusable = dict.fromkeys(UNUSABLE, 0)
        self._first_not_finite: int | None = None

    def append(self, block: Any) -> None:
        for start in range(0, len(block), ROWS_AT_A_TIME):
            self._append(block.iloc[start : start + ROWS_AT_A_TIME])

    def _append(self, block: Any) -> None:
        pending, addresses = self._pending, block.index.to_numpy()
        self._checksum = (self._checksum + key_checksum(pending.of(block).hashes, addresses)) & CHECKSUM_MASK
        taken = pending.take(block, **pending.parameters)
        rows = np.zeros((len(taken.vectors), VECTOR_HEAD + pending.words), dtype=np.uint64)
        rows[:, 0] = addresses[taken.valid].view(np.uint64)
        if pending.ranking is not None and taken.values is not None:
            rows[:, 1] = ranks(taken.values, pending.ranking, taken.missing)[taken.valid]
        rows[:, VECTOR_HEAD:] = to_words(taken.vectors)
        self._writer.append(rows)
        self._rows += len(block)
        self._vectors += len(rows)
        for cause, found in taken.unusable.items():
            self._unusable[cause] += int(found.sum())
            if cause == NOT_FINITE and self._first_not_finite is None and found.any():
                self._first_not_finite = int(addresses[found.argmax()])

    def commit(self) -> list[FileRecord]:
        self._writer.finish()
        return [self._file.commit(self._vectors)]

    def discard(self) -> None:
        self._file.discard()

    @property
    def summary(self) -> dict[str, int]:
        first = {} if self._first_not_finite is None else {FIRST_NOT_FINITE: self._first_not_finite}
        return {"key_checksum": self._checksum, "vectors": self._vectors, **self._unusable, **first}

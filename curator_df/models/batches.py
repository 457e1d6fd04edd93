# SPDX-License-Identifier: Apache-2.0
"""Batches of documents of like length that fit: as many as a number of padded tokens holds, fewer when memory runs out."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curator_df.core.limits import release_free_memory
from curator_df.core.out_of_memory import is_out_of_memory

GROW_AFTER = 32
"""Batches that went well before a larger one is tried again; twice as many after each failure."""
MOST_PATIENCE = 4096
GROWTH = 1.25


@dataclass
class BatchCounts:
    """What became of the documents of a block."""

    documents: int = 0
    """Given to the model."""
    tokens: int = 0
    """Of these."""
    padding_tokens: int = 0
    """Beside them, to make the documents of a batch equally long."""
    batches: int = 0
    """That went well."""
    batches_halved: int = 0
    """That did not fit into memory."""
    waited_milliseconds: int = 0
    """Until other tasks of the worker left room for the model (`curator_df.resources`)."""


class BatchSize:
    """How many padded tokens a batch of one model may have in this process; shared by its threads."""

    def __init__(self, most_tokens: int, most_rows: int | None = None, row_tokens: int = 0) -> None:
        self.tokens = most_tokens
        """Of the next batch, at most; of them ``row_tokens`` stand for what each document takes besides."""
        self._most_tokens, self._most_rows, self._row_tokens = most_tokens, most_rows, row_tokens
        self._went_well, self._patience = 0, GROW_AFTER
        self._lock = threading.Lock()

    def rows(self, length: int) -> int:
        """Return how many documents of up to ``length`` tokens are a batch: one at least.

        Examples
        --------
        >>> size = BatchSize(1_000)
        >>> size.rows(100), size.rows(3_000), BatchSize(1_000, most_rows=4).rows(100)
        (10, 1, 4)
        >>> BatchSize(1_000, row_tokens=25).rows(100)
        8
        """
        rows = max(self.tokens // max(length + self._row_tokens, 1), 1)
        return rows if self._most_rows is None else min(rows, self._most_rows)

    def failed(self, rows: int, length: int) -> None:
        """Note that memory ran out: from now on half of that."""
        with self._lock:
            self.tokens = max(min(self.tokens, rows * (length + self._row_tokens) // 2), 1)
            self._went_well, self._patience = 0, min(2 * self._patience, MOST_PATIENCE)

    def succeeded(self) -> None:
        """Note that a batch went well; now and then that lets the next ones be larger."""
        with self._lock:
            self._went_well += 1
            if self.tokens < self._most_tokens and self._went_well >= self._patience:
                self.tokens = min(int(self.tokens * GROWTH) + 1, self._most_tokens)
                self._went_well = 0


def run_batches(
    lengths: npt.NDArray[np.int64],
    size: BatchSize,
    forward: Callable[[npt.NDArray[np.int64]], None],
    counts: BatchCounts,
) -> None:
    """Give documents to a model, longest first, in batches that fit.

    Parameters
    ----------
    lengths : ndarray of int64, shape (documents,)
        Tokens of each.
    size : BatchSize
        Of the batches.
    forward : callable
        Takes the places of the documents of a batch, and keeps what it makes of them.
    counts : BatchCounts
        Counted up.

    Raises
    ------
    MemoryError
        Or what the model raised, if memory runs out on a single document.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        length = int(lengths[order[start]])
        places = order[start : start + size.rows(length)]
        if not _went_well(forward, places):
            size.failed(len(places), length)
            counts.batches_halved += 1
            continue
        size.succeeded()
        tokens = int(lengths[places].sum())
        counts.documents += len(places)
        counts.tokens += tokens
        counts.padding_tokens += len(places) * length - tokens
        counts.batches += 1
        start += len(places)


def _went_well(forward: Callable[[npt.NDArray[np.int64]], None], places: npt.NDArray[np.int64]) -> bool:
    try:
        forward(places)
    except Exception as exc:
        if len(places) == 1 or not is_out_of_memory(exc):
            raise
        traceback.clear_frames(exc.__traceback__)  # they hold what the layers had made
    else:
        return True
    release_free_memory()
    return False


def windows(sizes: npt.NDArray[np.int64], most: int) -> Iterator[slice]:
    """Yield consecutive rows whose sizes add up to at most ``most``; a larger one is alone.

    Examples
    --------
    >>> list(windows(np.array([3, 3, 9, 1]), 6))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + most, side="right")), start + 1)
        yield slice(start, stop)
        start = stop

# SPDX-License-Identifier: Apache-2.0
"""Batches of documents of similar length that fit: as many as a number of padded tokens allows, fewer when memory runs out.

If the best number is to be measured (`SizeTrial`), several sizes up to the planned one are tried in turn at first.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.memory.limits import release_free_memory
from curator_df.models.batch_size_tuning import SizeTrial
from curator_df.receipts.model_figures import COMPUTED_IN, SETTLED, TRIED_MICROSECONDS, TRIED_TOKENS

GROW_AFTER = 32
"""Number of successful batches before a larger one is tried again; doubled after each failure."""
MOST_PATIENCE = 4096
GROWTH = 1.25


@dataclass
class BatchCounts:
    """Counts for the documents of a block."""

    documents: int = 0
    """Documents passed to the model."""
    tokens: int = 0
    """Tokens of these documents."""
    padding_tokens: int = 0
    """Additional padding tokens that make the documents of a batch equally long."""
    batches: int = 0
    """Successful batches."""
    batches_halved: int = 0
    """Batches that did not fit into memory."""
    waited_milliseconds: int = 0
    """Milliseconds of waiting until other tasks of the worker released the model (`curator_df.resources`)."""
    trials: Counter[str] = field(default_factory=Counter)
    """Counters of batch sizes tried: tokens and microseconds of each, and the chosen size."""
    computed_in: str | None = None
    """Number format of the computation, for a model with a selectable one."""
    peaks: dict[str, int] = field(default_factory=dict)
    """Peak bytes held (`curator_df.models.devices.peaks`)."""

    def counters(self) -> dict[str, int]:
        """Return the counters, which are summed over all blocks."""
        counted = {name: number for name, number in vars(self).items() if isinstance(number, int)} | dict(self.trials)
        return counted if self.computed_in is None else counted | {f"{COMPUTED_IN}{self.computed_in}": self.batches}


class BatchSize:
    """Number of padded tokens that a batch of one model may have in this process; shared by its threads."""

    def __init__(
        self,
        most_tokens: int,
        most_rows: int | None = None,
        row_tokens: int = 0,
        trial: SizeTrial | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.clock = clock
        """Clock that times the batches of a trial, in seconds."""
        self.tokens = most_tokens
        """Maximum padded tokens of the next batch; each document counts ``row_tokens`` more than its own."""
        self._most_tokens, self._most_rows, self._row_tokens = most_tokens, most_rows, row_tokens
        self._went_well, self._patience = 0, GROW_AFTER
        self._trial = None if trial is None or trial.is_done else trial
        self._lock = threading.Lock()

    def turn(self) -> int | None:
        """Return the size to try next, while there is a trial."""
        with self._lock:
            return None if self._trial is None else self._trial.turn()

    def rows(self, length: int, tokens: int | None = None) -> int:
        """Return how many documents of up to ``length`` tokens fit a batch of ``tokens`` (default: current size); at least 1.

        Examples
        --------
        >>> size = BatchSize(1_000)
        >>> size.rows(100), size.rows(3_000), BatchSize(1_000, most_rows=4).rows(100)
        (10, 1, 4)
        >>> BatchSize(1_000, row_tokens=25).rows(100)
        8
        """
        rows = max((tokens or self.tokens) // max(length + self._row_tokens, 1), 1)
        return rows if self._most_rows is None else min(rows, self._most_rows)

    def failed(self, rows: int, length: int, counts: BatchCounts) -> None:
        """Record that memory ran out: from now on, use half the size."""
        with self._lock:
            self.tokens = max(min(self.tokens, rows * (length + self._row_tokens) // 2), 1)
            self._went_well, self._patience = 0, min(2 * self._patience, MOST_PATIENCE)
            if self._trial is not None:
                self._trial.leave_out(self.tokens)
                self._settle(counts)

    def succeeded(self) -> None:
        """Record a successful batch; now and then this allows larger batches."""
        with self._lock:
            self._went_well += 1
            if self.tokens < self._most_tokens and self._went_well >= self._patience:
                self.tokens = min(int(self.tokens * GROWTH) + 1, self._most_tokens)
                self._went_well = 0

    def note(self, turn: int, tokens: int, seconds: float, counts: BatchCounts, *, is_full: bool) -> None:
        """Record the time of a batch of the tried size."""
        with self._lock:
            if self._trial is None:
                return
            if not is_full:
                self._trial.take_back(turn)
                return
            self._trial.note(turn, tokens, seconds)
            counts.trials[f"{TRIED_TOKENS}{turn}"] += tokens
            counts.trials[f"{TRIED_MICROSECONDS}{turn}"] += round(1e6 * seconds)
            self._settle(counts)

    def _settle(self, counts: BatchCounts) -> None:
        """Adopt the fastest size, once it is known."""
        trial = self._trial
        if trial is None or not trial.is_done:
            return
        self._trial, best = None, trial.best()
        if best is None:
            return
        counts.trials[f"{SETTLED}{best}"] += 1
        self.tokens = min(self.tokens, best)
        if best < trial.sizes[0]:  # a larger one was slower; after memory ran out, larger ones are tried again
            self._most_tokens = best


def row_batches(most: int) -> BatchSize:
    """Return sizes in documents, for models without tokens: lengths are then 0, and documents keep their order.

    Examples
    --------
    >>> size, counts = row_batches(100), BatchCounts()
    >>> size.failed(100, 0, counts)
    >>> size.rows(0)
    50
    """
    return BatchSize(most, most, row_tokens=1)


def run_batches(
    lengths: npt.NDArray[np.int64],
    size: BatchSize,
    forward: Callable[[npt.NDArray[np.int64]], None],
    counts: BatchCounts,
) -> None:
    """Pass documents to a model, longest first, in batches that fit.

    Parameters
    ----------
    lengths : ndarray of int64, shape (documents,)
        Number of tokens of each document.
    size : BatchSize
        Size of the batches.
    forward : callable
        Function of the positions of the documents of a batch; it stores the results.
    counts : BatchCounts
        Counts, which are increased.

    Raises
    ------
    MemoryError
        If memory runs out on a single document; the model's own exception is raised.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        length = int(lengths[order[start]])
        turn = size.turn()
        rows = size.rows(length, turn)
        places = order[start : start + rows]
        started = size.clock()
        if not _went_well(forward, places):
            size.failed(len(places), length, counts)
            counts.batches_halved += 1
            continue
        size.succeeded()
        tokens = int(lengths[places].sum())
        if turn is not None:
            size.note(turn, tokens, size.clock() - started, counts, is_full=len(places) == rows)
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
        traceback.clear_frames(exc.__traceback__)  # they hold the results of the layers
    else:
        return True
    release_free_memory()
    return False


def windows(sizes: npt.NDArray[np.int64], most: int) -> Iterator[slice]:
    """Yield consecutive rows whose sizes add up to at most ``most``; a larger row is yielded alone.

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

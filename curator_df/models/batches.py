# SPDX-License-Identifier: Apache-2.0
"""Batches of documents of like length that fit: as many as a number of padded tokens holds, fewer when memory runs out.

Where the number is to be found (`SizeTrial`), some of those up to the planned one take turns at first.
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

from curator_df.core.memory.limits import release_free_memory
from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.core.receipts.model_figures import COMPUTED_IN, SETTLED, TRIED_MICROSECONDS, TRIED_TOKENS
from curator_df.models.size_trial import SizeTrial

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
    trials: Counter[str] = field(default_factory=Counter)
    """Of the sizes of batches that took turns: the tokens of each, its microseconds, and which was taken."""
    computed_in: str | None = None
    """In which numbers, of a model that computes in those it is asked for."""
    peaks: dict[str, int] = field(default_factory=dict)
    """The most that was held, in bytes (`curator_df.models.devices.peaks`)."""

    def counters(self) -> dict[str, int]:
        """Return what is added up over all blocks."""
        counted = {name: number for name, number in vars(self).items() if isinstance(number, int)} | dict(self.trials)
        return counted if self.computed_in is None else counted | {f"{COMPUTED_IN}{self.computed_in}": self.batches}


class BatchSize:
    """How many padded tokens a batch of one model may have in this process; shared by its threads."""

    def __init__(
        self,
        most_tokens: int,
        most_rows: int | None = None,
        row_tokens: int = 0,
        trial: SizeTrial | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.clock = clock
        """What batches of a trial are timed by, in seconds."""
        self.tokens = most_tokens
        """Of the next batch, at most; of them ``row_tokens`` stand for what each document takes besides."""
        self._most_tokens, self._most_rows, self._row_tokens = most_tokens, most_rows, row_tokens
        self._went_well, self._patience = 0, GROW_AFTER
        self._trial = None if trial is None or trial.is_done else trial
        self._lock = threading.Lock()

    def turn(self) -> int | None:
        """Return the size whose turn it is, while some take turns."""
        with self._lock:
            return None if self._trial is None else self._trial.turn()

    def rows(self, length: int, tokens: int | None = None) -> int:
        """Return how many documents of up to ``length`` tokens are a batch, of that size if one is named: one at least.

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
        """Note that memory ran out: from now on half of that."""
        with self._lock:
            self.tokens = max(min(self.tokens, rows * (length + self._row_tokens) // 2), 1)
            self._went_well, self._patience = 0, min(2 * self._patience, MOST_PATIENCE)
            if self._trial is not None:
                self._trial.leave_out(self.tokens)
                self._settle(counts)

    def succeeded(self) -> None:
        """Note that a batch went well; now and then that lets the next ones be larger."""
        with self._lock:
            self._went_well += 1
            if self.tokens < self._most_tokens and self._went_well >= self._patience:
                self.tokens = min(int(self.tokens * GROWTH) + 1, self._most_tokens)
                self._went_well = 0

    def note(self, turn: int, tokens: int, seconds: float, counts: BatchCounts, *, is_full: bool) -> None:
        """Note how long a batch of the size whose turn it was took."""
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
        """Take the fastest size, once that is known."""
        trial = self._trial
        if trial is None or not trial.is_done:
            return
        self._trial, best = None, trial.best()
        if best is None:
            return
        counts.trials[f"{SETTLED}{best}"] += 1
        self.tokens = min(self.tokens, best)
        if best < trial.sizes[0]:  # a larger one was slower; where memory ran out, larger ones are tried again
            self._most_tokens = best


def row_batches(most: int) -> BatchSize:
    """Return sizes in documents, for what has no tokens: lengths are then 0, and documents keep their order.

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

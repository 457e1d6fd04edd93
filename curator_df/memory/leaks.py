# SPDX-License-Identifier: Apache-2.0
"""Detection of memory leaks in workers, from the trend of the memory in use after each task, not from its peaks.

A floor is taken after each task. Other threads may run then, so the minimum of a few floors counts; before one of
these, Arrow's pool and malloc have returned their unused pages (`freed_pages`). A leak continues; a cache fills up and stays.
While it fills, the two cannot be distinguished, so a worker may first grow by much more if no step was found to leave memory
behind.
"""

from __future__ import annotations

import collections
import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curator_df.memory.freed_pages import ENDS_EACH
from curator_df.memory.limits import release_free_memory
from curator_df.memory.sizes import show_count, show_size
from curator_df.memory.system import status_bytes

LEAST_WINDOWS = 12
"""Minimum number of windows before a leak is reported."""
MOST_WINDOWS = 60
"""Maximum number of windows considered, the latest ones; a test over all would grow with the square of the tasks."""
FALSE_ALARMS = 1e-4
"""Probability, at each check, that a worker without a trend is reported as leaking (Mann-Kendall, one-sided). Successive
floors are not independent, so the growth must also be large enough.
"""
LATE_FALSE_ALARMS = 0.02
"""Probability for the later half of the windows alone: without a trend there, it was a cache that filled up."""
LEAST_GROWTH_BYTES = 32_000_000
"""Minimum growth that justifies a restart, in bytes."""
LEAST_GROWTH_SHARE = 0.1
"""Minimum growth as a fraction of the working memory of a worker."""
CLEAR_GROWTH = 8.0
"""Minimum growth as a multiple of the scatter about the trend: random floors also rise a little by chance."""
MUCH_GROWTH_SHARE = 0.5
"""Fraction of a worker's working memory by which it must grow before the next check, if no step was found to leak."""
PROBE_CALLS = 8
PROBE_CLEAR_BYTES = 4_000_000
"""Bytes for each of the first two calls from which on a step is not called again. What a probe leaves behind is missing from the
worker, which may have to be restarted.
"""
PROBE_LEFT_BYTES = 32_000
"""Bytes per call of the probe above which a step is named."""


@dataclass(frozen=True)
class Leak:
    """Worker whose memory in use grows with each task."""

    worker: str
    """Host and process ID."""
    tasks: int
    """Number of tasks considered."""
    growth_bytes: int
    """Growth since the first of them, in bytes."""
    task_bytes: int
    """Growth per task in bytes: a robust slope (Theil-Sen)."""
    again: bool = False
    """Whether it was reported before, was not restarted, and continued to grow."""

    def __str__(self) -> str:
        return (
            f"worker {self.worker} uses {self.growth_bytes / 1e6:,.0f} MB more than {show_count(self.tasks, 'task')} ago, "
            f"{self.task_bytes / 1e6:,.2f} MB for each task, after free memory was returned to the system"
        )


@dataclass
class LeakReceipt:
    """Worker whose memory in use grew with each task."""

    worker: str
    """Host and process ID."""
    tasks: int
    """Number of tasks over which it was observed."""
    growth_bytes: int
    """Growth over these tasks in bytes, after free memory was returned to the system."""
    task_bytes: int
    """Growth per task in bytes."""
    step: str
    """Step that leaves the most memory behind when it is called repeatedly; empty if none was found."""
    left_bytes: int
    """Bytes that a call of that step leaves behind on a block of 1 MB."""
    recycled: bool
    """Whether the worker was restarted."""
    given_back_bytes: int = 0
    """Bytes freed by returning free pages once more when no task was running."""
    again: bool = False
    """Whether it was reported before, was not restarted, and continued to grow."""

    @property
    def only_kept(self) -> bool:
        """Whether returning pages freed half of the growth: then Arrow's pool or malloc kept it, and no step leaks."""
        return self.given_back_bytes >= self.growth_bytes / 2

    def __str__(self) -> str:
        held = (
            f"worker {self.worker} used {show_size(self.growth_bytes)} more memory after {show_count(self.tasks, 'task')}, "
            f"{show_size(self.task_bytes)} per task; returning free pages freed {show_size(self.given_back_bytes)}"
        )
        if self.only_kept:
            return f"{held}, so it is not a leak"
        unseen = "no step was found to leave memory behind"
        if not self.step and not self.again:
            return f"{held}; {unseen}, so it may be a cache that is filling up. The worker is checked again if it grows much more"
        named = f"{self.step} leaves {show_size(self.left_bytes)} behind at each block" if self.step else unseen
        goes_on = ", and it continued to grow" if self.again else ""
        then = (
            "the worker was restarted, no work was lost"
            if self.recycled
            else "the worker was not restarted, because it has no nanny"
        )
        return f"{held}; {named}{goes_on}; {then}"


class LeakWatch:
    """Monitor that takes a floor after each task of each worker."""

    def __init__(self, work_bytes: int, threads: int) -> None:
        self._least = max(LEAST_GROWTH_BYTES, int(LEAST_GROWTH_SHARE * work_bytes))
        self._much = int(MUCH_GROWTH_SHARE * work_bytes)
        self._window = 1 if threads == 1 else ENDS_EACH * threads
        self._floors: dict[str, list[int]] = {}
        self._minima: dict[str, list[int]] = {}
        self._waits: dict[str, int] = {}
        self._held: dict[str, collections.deque[int]] = {}
        self._first: dict[str, int] = {}
        self._tasks: collections.Counter[str] = collections.Counter()

    def add(self, worker: str, floor_bytes: int, idle_bytes: int = 0) -> Leak | None:
        """Take a floor; return the leak when a window is full and its worker leaks, or is full.

        ``idle_bytes`` are what the worker held before its first task, where that is known.
        """
        self._tasks[worker] += 1
        if idle_bytes:
            held = self._held.setdefault(worker, collections.deque(maxlen=self._window))
            held.append(floor_bytes - idle_bytes)
            if len(held) == self._window:
                grown_bytes = min(held) - self._first.setdefault(worker, min(held))
                if grown_bytes > self._much:
                    return self._full(worker, grown_bytes)
        floors = self._floors.setdefault(worker, [])
        floors.append(floor_bytes)
        if len(floors) < self._window:
            return None
        minima = self._minima.setdefault(worker, [])
        minima.append(min(floors))
        del minima[:-MOST_WINDOWS]
        floors.clear()
        return None if minima[-1] < self._waits.get(worker, 0) else self._leak(worker, minima)

    def hold(self, worker: str, held_bytes: int) -> bool:
        """Note what a worker on which no task runs holds of earlier tasks; return whether that is much."""
        self._held[worker] = collections.deque([held_bytes], maxlen=self._window)
        return held_bytes > self._much

    def forget(self, worker: str) -> None:
        """Restart the observation of a restarted worker."""
        self._floors.pop(worker, None)
        self._minima.pop(worker, None)
        self._waits.pop(worker, None)
        self._held.pop(worker, None)
        self._first.pop(worker, None)
        self._tasks.pop(worker, None)

    def fullest(self, worker: str = "") -> Leak | None:
        """Return what a worker holds of earlier tasks, or the fullest of all; None if that is little, or nobody knows."""
        held = {name: min(each) for name, each in self._held.items() if worker in ("", name) and each}
        found = max(held, key=lambda name: held[name], default="")
        return self._full(found, held[found]) if found and held[found] >= self._least else None

    def _full(self, worker: str, held_bytes: int) -> Leak:
        return Leak(worker, self._tasks[worker], held_bytes, held_bytes // max(1, self._tasks[worker]), again=True)

    def wait(self, worker: str) -> None:
        """Check a reported worker again only when it has grown by much more: a cache is full before that."""
        if minima := self._minima.get(worker):
            self._waits[worker] = minima[-1] + self._much

    def _leak(self, worker: str, minima: Sequence[int]) -> Leak | None:
        windows = len(minima)
        if windows < LEAST_WINDOWS or minima[-1] - minima[0] < self._least:
            return None
        if trend_probability(minima) > FALSE_ALARMS or trend_probability(minima[windows // 2 :]) > LATE_FALSE_ALARMS:
            return None
        slope = theil_sen(minima)
        growth_bytes = int(slope * (windows - 1))
        if growth_bytes < max(self._least, CLEAR_GROWTH * _scatter(minima, slope)):
            return None
        return Leak(worker, windows * self._window, growth_bytes, int(slope / self._window), worker in self._waits)


def trend_probability(values: Sequence[float]) -> float:
    """Return the probability that values without a trend rise as much as these (Mann-Kendall, normal approximation).

    Examples
    --------
    >>> trend_probability(range(20)) < 1e-6, round(trend_probability([1, 2] * 10), 1)
    (True, 0.4)
    """
    array = np.asarray(values, dtype=float)
    count = len(array)
    later, earlier = np.triu_indices(count, 1)[::-1]
    score = float(np.sign(array[later] - array[earlier]).sum())
    _, ties = np.unique(array, return_counts=True)
    variance = (count * (count - 1) * (2 * count + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if variance <= 0 or score <= 0:
        return 1.0
    return 0.5 * math.erfc((score - 1) / math.sqrt(2 * variance))


def theil_sen(values: Sequence[float]) -> float:
    """Return the median of the slopes between all pairs of values.

    Examples
    --------
    >>> theil_sen([0, 1, 2, 300, 4, 5])
    1.0
    """
    array = np.asarray(values, dtype=float)
    later, earlier = np.triu_indices(len(array), 1)[::-1]
    return float(np.median((array[later] - array[earlier]) / (later - earlier)))


def _scatter(values: Sequence[float], slope: float) -> float:
    """Return the spread about a line of that slope, as the standard deviation equivalent to its median deviation."""
    rest = np.asarray(values, dtype=float) - slope * np.arange(len(values))
    return 1.4826 * float(np.median(np.abs(rest - np.median(rest))))


def left_by(calls: Sequence[tuple[str, Callable[[], Any]]]) -> dict[str, int]:
    """Return, by name, the bytes that a call leaves behind on average over `PROBE_CALLS`, or over fewer if these are many."""
    left: dict[str, int] = {}
    for name, call in calls:
        before, done, first_bytes = _floor(), 0, 0
        with contextlib.suppress(MemoryError):  # a worker may be almost full; the calls before that tell as much
            call()
            first_bytes, before = _floor() - before, _floor()
            for _ in range(PROBE_CALLS):
                call()
                done += 1
                if first_bytes >= PROBE_CLEAR_BYTES and _floor() - before >= PROBE_CLEAR_BYTES * done:
                    break
        each = (_floor() - before) // max(done, 1)
        if each > PROBE_LEFT_BYTES:
            left[name] = each
    return left


def _floor() -> int:
    release_free_memory()
    return status_bytes("RssAnon")

# SPDX-License-Identifier: Apache-2.0
"""How many tasks a worker has at a time where a step's work is done elsewhere, by a GPU or a server: chosen while they run.

While a task's block is there its thread uses no CPU. With as many tasks as threads CPUs stand idle then, or the GPU does while
all of them clean. One more task for each call that there may be at a time keeps both at work, if that is what takes the time.
What is won follows from the chain, the texts and the machine, so it is measured: so many tasks at a time, then one more in each
worker, as long as more text comes back in a second. The plan (`core.planning.plan`) has room for
all of them, and the rows do not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from curator_df.core.planning.program import Step
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.manifest import Manifest

LEAST_SHARE = 0.1
"""Of a task's time in steps that work elsewhere, from which one more task is tried."""
LEAST_GAIN = 1.05
"""Text a second with one more task in each worker, as a multiple of that without it, from which it stays."""
LEAST_BLOCK_BYTES = 4_000_000
"""Blocks are not made smaller than this to have room for more tasks than threads."""
FEWEST_TASKS = 3
"""A level is judged by no fewer."""


def works_elsewhere(step: Step) -> bool:
    """Tell whether a GPU or a server does a step's work, so that its thread uses no CPU meanwhile."""
    return step.resources.of_gpu or (isinstance(step.action, BlockKernel) and step.action.works_elsewhere)


@dataclass
class Level:
    """What tasks took while so many were in flight."""

    seen: int = 0
    """Tasks that came back; the first of them began in other circumstances, and do not count."""
    taken: int = 0
    """Tasks that count."""
    text_bytes: int = 0
    """Of blocks that came to their first step."""
    seconds: float = 0.0
    """Their wall seconds in the worker."""
    elsewhere_seconds: float = 0.0
    """Of these, in steps that work elsewhere."""

    def rate(self, at_a_time: int) -> float:
        """Return bytes of text a second: what is in flight, divided by the time it stays there."""
        return at_a_time * self.text_bytes / max(self.seconds, 1e-9)


class Balance:
    """Chooses how many tasks each worker has beside those of its threads, from 0 up to what the plan has room for."""

    def __init__(self, names: Sequence[str], *, workers: int, threads: int, most: int) -> None:
        self.beside = 0
        """Tasks of each worker beside those that have its threads, from now on."""
        self._workers, self._threads, self._most = workers, threads, most
        self._names = _listed(names)
        self._levels = [Level()]
        self._found = ""

    def __str__(self) -> str:
        tasks = self._threads + self.beside
        at_a_time = f"{tasks} task{'s' * (tasks > 1)} at a time in each worker of {self._threads} thread"
        at_a_time += "s" * (self._threads > 1)
        return f"{at_a_time}: {self._found or 'too few ranges came back to try one more beside ' + self._names}"

    def add(self, beside: int, manifest: Manifest) -> bool:
        """Take a finished task, which began with so many beside; tell whether that settled something."""
        if self._found or beside != self.beside or not manifest.steps:
            return False
        level, at_a_time = self._levels[-1], self._at_a_time(beside)
        level.seen += 1
        if level.seen <= at_a_time:
            return False
        level.taken += 1
        level.text_bytes += manifest.steps[0].bytes_in
        level.seconds += manifest.seconds
        level.elsewhere_seconds += manifest.elsewhere_seconds
        if level.taken < max(at_a_time, FEWEST_TASKS):
            return False
        self._judge()
        return True

    def _at_a_time(self, beside: int) -> int:
        return self._workers * (self._threads + beside)

    def _judge(self) -> None:
        share = self._levels[0].elsewhere_seconds / max(self._levels[0].seconds, 1e-9)
        rates = [level.rate(self._at_a_time(place)) for place, level in enumerate(self._levels)]
        if share < LEAST_SHARE:
            self._found = f"{self._names} took {share:.0%} of the time of a task, so one more wins nothing"
            return
        seen = ", ".join(f"{rate / 1e6:.3g} MB/s with {self._threads + n}" for n, rate in enumerate(rates))
        why = f"{seen}; {self._names} took {share:.0%} of the time of a task, elsewhere"
        if self.beside and rates[-1] < LEAST_GAIN * rates[-2]:
            self.beside -= 1
        elif self.beside < self._most:
            self.beside += 1
            self._levels.append(Level())
            return
        self._found = why


def tasks_planned(names: Sequence[str], threads: int, beside: int) -> str:
    """Say for how many tasks at a time a plan has room where steps work elsewhere."""
    if not beside:
        return f"{_listed(names)}: a GPU or a server works, but there is no room for more tasks than threads"
    most = f"from {threads} to {threads + beside} tasks at a time in each worker, as is measured while they run"
    return f"{_listed(names)}: a GPU or a server works, so {most}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(names))

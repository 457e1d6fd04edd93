# SPDX-License-Identifier: Apache-2.0
"""How many tasks a worker has at a time where that is more than it has threads: chosen while they run.

Where a step's work is done elsewhere, by a GPU or a server, the thread of its task uses no CPU meanwhile. With as many tasks as
threads CPUs stand idle then, or the GPU does while all of them clean. And a worker with a GPU has one thread, whatever CPUs it
has (`Layout.spare_cpus`): with one task at a time the GPU would wait for one CPU to clean. What more tasks win follows from the
chain, the texts and the machine, so it is measured: so many tasks at a time, then twice as many in each worker, as long as more
text comes back in a second. The plan (`core.planning.plan`) has room for all of them, and the rows do not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from curator_df.core.planning.program import Step
from curator_df.core.ranges.blocks import BlockKernel
from curator_df.core.ranges.manifest import Manifest

LEAST_SHARE = 0.1
"""Of a task's time in steps that work elsewhere, from which more tasks than CPUs are tried."""
LEAST_GAIN = 1.05
"""Text a second with more tasks in each worker, as a multiple of that without them, from which they stay."""
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

    beside: int = 0
    """Tasks of each worker beside those that have its threads."""
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
    """Chooses how many tasks each worker has beside those of its threads, from 0 up to what the plan has room for.

    Parameters
    ----------
    names : sequence of str
        Steps that work elsewhere.
    workers, threads : int
        Worker processes, and the threads of each.
    most : int
        Tasks of each worker beside those of its threads, at most.
    spare_cpus : int
        CPUs of each worker beside those of its threads.
    """

    def __init__(self, names: Sequence[str], *, workers: int, threads: int, most: int, spare_cpus: int = 0) -> None:
        self._workers, self._threads, self._spare_cpus = workers, threads, spare_cpus
        self._most = most if names else min(most, spare_cpus)
        self._names = _listed(names)
        self._levels = [Level()]
        self._found = ""

    @property
    def beside(self) -> int:
        """Tasks of each worker beside those that have its threads, from now on."""
        return self._levels[-1].beside

    def __str__(self) -> str:
        tasks = self._threads + self.beside
        at_a_time = f"{tasks} task{'s' * (tasks > 1)} at a time in each worker of {self._threads} thread"
        at_a_time += "s" * (self._threads > 1)
        at_a_time += f" and {self._spare_cpus} more CPUs" * bool(self._spare_cpus)
        return f"{at_a_time}: {self._found or 'too few ranges came back to try more at a time'}"

    def add(self, beside: int, manifest: Manifest) -> bool:
        """Take a finished task, which began with so many beside; tell whether that settled something."""
        if self._found or beside != self.beside or not manifest.steps:
            return False
        level = self._levels[-1]
        at_a_time = self._at_a_time(level)
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

    def _at_a_time(self, level: Level) -> int:
        return self._workers * (self._threads + level.beside)

    def _judge(self) -> None:
        last, tasks = self._levels[-1], self._threads + self.beside
        share = last.elsewhere_seconds / max(last.seconds, 1e-9)
        rates = [level.rate(self._at_a_time(level)) for level in self._levels]
        seen = ", ".join(
            f"{rate / 1e6:.3g} MB/s with {self._threads + level.beside}"
            for level, rate in zip(self._levels, rates, strict=True)
        )
        self._found = seen + f"; {self._names} took {share:.0%} of the time of a task, elsewhere" * bool(self._names)
        if self.beside and rates[-1] < LEAST_GAIN * rates[-2]:
            self._levels.pop()
        elif self._names and self.beside >= self._spare_cpus and share < LEAST_SHARE:
            self._found += ", so more tasks than CPUs win nothing"
        elif self.beside < self._most:
            # To as many as there are CPUs first: only beyond them do tasks need a step that works elsewhere.
            upto = self._spare_cpus if self.beside < self._spare_cpus else self._most
            self._levels.append(Level(min(tasks + self.beside, upto, self._most)))
            self._found = ""


def tasks_planned(names: Sequence[str], threads: int, beside: int, spare_cpus: int = 0) -> str:
    """Say for how many tasks at a time a plan has room where there may be more than threads."""
    why = f"{_listed(names)}: a GPU or a server works" if names else "blocks stay on the host"
    why += f", and each worker has {spare_cpus} more CPUs" * bool(spare_cpus)
    if not beside:
        return f"{why}, but there is no room for more tasks than threads"
    return (
        f"{why}, so from {threads} to {threads + beside} tasks at a time in each worker, as is measured while they run"
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(names))

# SPDX-License-Identifier: Apache-2.0
"""Choice of the number of concurrent tasks of a worker, if it may exceed the number of its threads, while they run.

If a GPU or a server does a step's work, the thread of its task uses no CPU in the meantime. With as many tasks as threads,
CPUs are then idle, or the GPU is idle while all tasks clean text. A worker with a GPU has one thread, whatever its number of CPUs
(`Layout.spare_cpus`): with one concurrent task, the GPU would wait for one CPU to clean. The gain from more tasks depends on the
chain, the texts and the machine, so it is measured: the number of tasks is doubled as long as more text is processed per
second. The plan (`core.planning.plan`) has room for all of them, and the rows do not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from curator_df.core.planning.program import Step
from curator_df.core.ranges.manifest import Manifest

LEAST_SHARE = 0.1
"""Minimum fraction of a task's time in steps that work elsewhere for which more tasks than CPUs are tried."""
LEAST_GAIN = 1.05
"""Minimum ratio of the throughput with more tasks to that without, for which the additional tasks stay."""
LEAST_BLOCK_BYTES = 4_000_000
"""Block size in bytes below which blocks are not reduced to make room for more tasks than threads."""
FEWEST_TASKS = 3
"""Minimum number of tasks by which a level is judged."""


def is_offloaded(step: Step) -> bool:
    """Return whether a GPU or a server does a step's work, so that its thread uses no CPU in the meantime."""
    return step.price.resources.of_gpu or step.action.is_offloaded


@dataclass
class Level:
    """Measurements of tasks for one number of concurrent tasks."""

    extra_tasks: int = 0
    """Additional tasks of each worker, beyond those of its threads."""
    seen: int = 0
    """Number of finished tasks; the first ones started under other conditions and do not count."""
    taken: int = 0
    """Number of tasks that count."""
    text_bytes: int = 0
    """Bytes of the blocks that entered their first step."""
    seconds: float = 0.0
    """Wall time of the tasks in the worker, in seconds."""
    elsewhere_seconds: float = 0.0
    """Part of it in steps that work elsewhere, in seconds."""

    def rate(self, at_a_time: int) -> float:
        """Return the throughput in bytes of text per second: the bytes in progress, divided by their duration."""
        return at_a_time * self.text_bytes / max(self.seconds, 1e-9)


class ConcurrencyTuner:
    """Controller of the number of additional tasks of each worker, from 0 up to the number that the plan has room for.

    Parameters
    ----------
    names : sequence of str
        Steps that work elsewhere.
    workers, threads : int
        Number of worker processes, and of threads of each.
    most : int
        Maximum number of additional tasks of each worker, beyond those of its threads.
    spare_cpus : int
        CPUs of each worker in addition to those of its threads.
    """

    def __init__(self, names: Sequence[str], *, workers: int, threads: int, most: int, spare_cpus: int = 0) -> None:
        self._workers, self._threads, self._spare_cpus = workers, threads, spare_cpus
        self._most = most if names else min(most, spare_cpus)
        self._names = _listed(names)
        self._levels = [Level()]
        self._found = ""

    @property
    def extra_tasks(self) -> int:
        """Number of additional tasks of each worker from now on, beyond those of its threads."""
        return self._levels[-1].extra_tasks

    def __str__(self) -> str:
        tasks = self._threads + self.extra_tasks
        at_a_time = f"{tasks} task{'s' * (tasks > 1)} run concurrently in each worker of {self._threads} thread"
        at_a_time += "s" * (self._threads > 1)
        at_a_time += f" and {self._spare_cpus} more CPUs" * bool(self._spare_cpus)
        return f"{at_a_time}: {self._found or 'too few input splits have finished to try more tasks'}"

    def add(self, extra_tasks: int, manifest: Manifest) -> bool:
        """Add a finished task that started with this number of additional tasks; return whether that settled a level."""
        if self._found or extra_tasks != self.extra_tasks or not manifest.steps:
            return False
        level = self._levels[-1]
        at_a_time = self._at_a_time(level)
        level.seen += 1
        if level.seen <= at_a_time:
            return False
        level.taken += 1
        # The first steps may have run in an earlier pass, whose records lack bytes in a resumed run.
        level.text_bytes += next((step.bytes_in for step in manifest.steps if step.bytes_in), 0)
        level.seconds += manifest.seconds
        level.elsewhere_seconds += manifest.elsewhere_seconds
        if level.taken < max(at_a_time, FEWEST_TASKS):
            return False
        self._judge()
        return True

    def _at_a_time(self, level: Level) -> int:
        return self._workers * (self._threads + level.extra_tasks)

    def _judge(self) -> None:
        last, tasks = self._levels[-1], self._threads + self.extra_tasks
        share = last.elsewhere_seconds / max(last.seconds, 1e-9)
        rates = [level.rate(self._at_a_time(level)) for level in self._levels]
        seen = ", ".join(
            f"{rate / 1e6:.3g} MB/s with {self._threads + level.extra_tasks}"
            for level, rate in zip(self._levels, rates, strict=True)
        )
        self._found = seen + f"; {self._names} took {share:.0%} of the time of a task, on a GPU or server" * bool(
            self._names
        )
        if self.extra_tasks and rates[-1] < LEAST_GAIN * rates[-2]:
            self._levels.pop()
        elif self._names and self.extra_tasks >= self._spare_cpus and share < LEAST_SHARE:
            self._found += ", so more tasks than CPUs would not help"
        elif self.extra_tasks < self._most:
            # First up to the number of CPUs: only beyond that do tasks need a step that works elsewhere.
            upto = self._spare_cpus if self.extra_tasks < self._spare_cpus else self._most
            self._levels.append(Level(min(tasks + self.extra_tasks, upto, self._most)))
            self._found = ""


def tasks_planned(names: Sequence[str], threads: int, extra_tasks: int, spare_cpus: int = 0) -> str:
    """Return a description of the number of concurrent tasks that a plan has room for, if it may exceed the number of threads."""
    why = f"{_listed(names)}: a GPU or a server does the work" if names else "blocks stay on the host"
    why += f", and each worker has {spare_cpus} more CPUs" * bool(spare_cpus)
    if not extra_tasks:
        return f"{why}, but the budget leaves no room for more tasks than threads"
    most = threads + extra_tasks
    return f"{why}, so from {threads} to {most} tasks run concurrently in each worker, as measured during the run"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(names))

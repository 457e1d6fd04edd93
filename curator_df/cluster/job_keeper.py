# SPDX-License-Identifier: Apache-2.0
"""Keep the requested number of jobs of a batch system: replace ended jobs, submit more for work, and end idle ones.

Dask's own ``adapt`` counts worker processes, so it never detects that a job of several has ended, nor that one ended before
its worker connected; and it ends a job in which one process is idle while another works.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import re
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from distributed import Status

from curator_df.cluster.batch import JobRequest
from curator_df.core.runner.session import WORKER_START_SECONDS

ANSWER_SECONDS = 30.0
"""Seconds after which a command counts as not answering."""


@dataclass(frozen=True)
class Question:
    """Query for jobs of a batch system, and the format of its answer."""

    command: tuple[str, ...]
    """Command to run, with the jobs' numbers at the end if it accepts any."""
    joined_by: str | None
    """Separator of the numbers within one word; None for a word each, empty if all jobs are listed."""
    row: re.Pattern[str]
    """Pattern of a job's number and state in a line of the answer."""
    ended: re.Pattern[str]
    """Pattern of the states of jobs that will not run (again)."""
    unknown: re.Pattern[str]
    """Pattern of the message for a forgotten number, with which the command fails."""


SLURM_ENDED = "BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|REVOKED|TIMEOUT"
QUESTIONS = {
    "slurm": Question(
        ("squeue", "--noheader", "--states=all", "--format=%A %T", "--jobs"),
        joined_by=",",
        row=re.compile(r"^(\d+) (\w+)", re.MULTILINE),
        ended=re.compile(SLURM_ENDED),
        unknown=re.compile("Invalid job id"),
    ),
    # Job ID, name, user, time, state, queue.
    "pbs": Question(
        ("qstat",),
        joined_by=None,
        row=re.compile(r"^(\d+)\S* .*\s(\w)\s+\S+\s*$", re.MULTILINE),
        ended=re.compile("[CFX]"),
        unknown=re.compile("Unknown Job Id|Job has finished"),
    ),
    # JOBID USER STAT QUEUE ...
    "lsf": Question(
        ("bjobs", "-w"),
        joined_by=None,
        row=re.compile(r"^(\d+)\s+\S+\s+(\w+)", re.MULTILINE),
        ended=re.compile("DONE|EXIT"),
        unknown=re.compile("is not found"),
    ),
    # job-ID prior name user state ...: all jobs of the user that have not ended. A job that could not be started (its folder or
    # its shell is not on the node) is kept in error, Eqw, until somebody clears it; one with a d is being deleted.
    "sge": Question(
        ("qstat",),
        joined_by="",
        row=re.compile(r"^\s*(\d+)\s+\S+\s+\S+\s+\S+\s+(\w+)", re.MULTILINE),
        ended=re.compile(r"\w*[Ed]\w*"),
        unknown=re.compile("do not exist"),
    ),
}


def ended_jobs(system: str, numbers: Collection[str]) -> dict[str, str]:
    """Return which of these jobs have ended, with their states; empty if the batch system does not answer.

    Parameters
    ----------
    system : str
        The batch system, one of `curator_df.cluster.batch.BatchSystem`.
    numbers : collection of str
        Numbers of the jobs.

    Returns
    -------
    dict of str to str
        State of each job, in the batch system's terms; empty for a forgotten one.
    """
    question = QUESTIONS[system]
    named = (
        list(numbers) if question.joined_by is None else [question.joined_by.join(numbers)] * bool(question.joined_by)
    )
    try:
        answer = subprocess.run(
            [*question.command, *named], capture_output=True, text=True, check=False, timeout=ANSWER_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    if answer.returncode and not question.unknown.search(answer.stderr):
        return {}
    states = dict(question.row.findall(answer.stdout))
    ended = {number: states.get(number, "") for number in numbers}
    return {number: state for number, state in ended.items() if not state or question.ended.fullmatch(state)}


LOG = logging.getLogger("curator_df.cluster")
LOOK_SECONDS = 2.0
"""Seconds between two checks of the number of jobs."""
LOOKS_BEFORE_END = 15
"""Number of consecutive checks with too many jobs before one is ended: half a minute."""
ASK_SECONDS = 15.0
"""Seconds between two queries for jobs without a worker, and between their submission and the first query."""
LEAST_WAIT_SECONDS, MOST_WAIT_SECONDS = 5.0, 300.0
"""Minimum and maximum seconds without a submission after a job ended before its worker connected; doubled for each consecutive
one."""
MOST_FRUITLESS = 5
"""Number of consecutive jobs that end before a worker connects until a warning is logged."""


class JobKeeper:
    """Submits jobs and monitors them, in the thread of the cluster's event loop."""

    def __init__(self, cluster: Any, request: JobRequest) -> None:
        self._cluster, self._request = cluster, request
        self._numbers = itertools.count()
        self._seen_at: dict[str, float] = {}  # when a job was submitted, or last had a worker
        self._came: set[str] = set()  # jobs that have had a worker
        self._states: dict[str, str] = {}  # states of ended jobs, from the last query
        self._ask_from = self._send_from = self._fruitless_at = -math.inf
        self._fruitless = self._looks_with_too_many = 0
        self._refusal = ""
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.problem = ""
        """Reason why no job has brought a worker, after several in a row; otherwise empty."""

    async def start(self) -> None:
        """Submit the minimum number of jobs, and monitor them from now on.

        Raises
        ------
        RuntimeError
            If the batch system refuses a job; the message has its output.
        """
        self._add(self._request.least_jobs)
        await self._cluster._correct_state()
        self._task = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Stop monitoring. A check in progress is completed: a job that is just being submitted could not be ended."""
        self._stopped.set()
        if self._task is not None:
            await self._task

    async def _keep(self) -> None:
        while not self._stopped.is_set() and self._cluster.status == Status.running:
            try:
                await self._look(time.monotonic())
            except Exception as exc:  # noqa: BLE001 - jobs must be monitored further, whatever one check raised
                LOG.warning("a check of the jobs failed: %r", exc)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), LOOK_SECONDS)

    async def _look(self, now: float) -> None:
        workers = self._workers()
        if not self._came.issuperset(workers):
            self._fruitless, self.problem = 0, ""
        self._came.update(workers)
        self._seen_at.update(dict.fromkeys(workers, now))
        gone = await self._gone(now)
        self._count_fruitless([job for job in gone if job not in self._came], now)
        self._forget(gone)
        await self._scale(now)

    def _workers(self) -> dict[str, list[Any]]:
        """Return the scheduler's workers of each job, without jobs that have none."""
        workers: dict[str, list[Any]] = {}
        for worker in self._cluster.scheduler.workers.values():
            # If a job has several workers, each name ends with a number.
            name = str(worker.name)
            job = name if name in self._cluster.worker_spec else name.rpartition("-")[0]
            if job in self._cluster.worker_spec:
                workers.setdefault(job, []).append(worker)
        return workers

    async def _gone(self, now: float) -> list[str]:
        """Return the jobs that have ended, were refused, or whose workers have been away for long."""
        workers, there = self._workers(), self._cluster.workers
        quiet = {job: now - self._seen_at[job] for job in self._cluster.worker_spec if job not in workers}
        numbers = {job: there[job].job_id for job in quiet if job in there and there[job].job_id}
        asked = {number: job for job, number in numbers.items() if quiet[job] >= ASK_SECONDS}
        ended: set[str] = set()
        if asked and now >= self._ask_from:
            self._ask_from = now + ASK_SECONDS
            states = await asyncio.to_thread(ended_jobs, self._request.system, asked)
            self._states = {asked[number]: state for number, state in states.items()}
            ended = self._states.keys() - self._workers().keys()
        # A nanny may restart workers. Otherwise they are gone for good, even if the batch system does not report it.
        lost = {job for job in self._came.intersection(quiet) if quiet[job] >= WORKER_START_SECONDS}
        # Dask itself ends a job with one worker 15 s after that worker, and removes it from `workers`.
        return [job for job in quiet if job in ended | lost or job not in numbers]

    def _count_fruitless(self, jobs: list[str], now: float) -> None:
        """Wait longer each time jobs end before a worker connects; jobs that were submitted together count once."""
        if not any(self._seen_at[job] > self._fruitless_at for job in jobs):
            return
        self._fruitless_at, self._fruitless = now, self._fruitless + 1
        self._send_from = now + min(LEAST_WAIT_SECONDS * 2 ** (self._fruitless - 1), MOST_WAIT_SECONDS)
        if self._fruitless < MOST_FRUITLESS:
            return
        numbers = {job: there.job_id for job in jobs if (there := self._cluster.workers.get(job)) and there.job_id}
        system, folder = self._request.system, self._request.job_directory
        self.problem = f"Jobs of {system} failed to start a worker {self._fruitless} times in a row: "
        if numbers:
            job, number = numbers.popitem()
            state = f" (state in {system}: {self._states[job]})" if self._states.get(job) else ""
            self.problem += f"job {number} ended before a worker of it had connected{state}. "
            self.problem += f"The output of the jobs is in {folder}"
        else:
            self.problem += f"the batch system refused them with\n{self._refusal}"
        wait_seconds = self._send_from - now
        LOG.warning("%s\nThe next job is submitted in %.0f s. Connected workers continue", self.problem, wait_seconds)

    async def _scale(self, now: float) -> None:
        """Submit or end jobs, until there are as many as requested."""
        too_many = len(self._cluster.worker_spec) - self._wanted_jobs()
        self._looks_with_too_many = self._looks_with_too_many + 1 if too_many > 0 else 0
        if self._looks_with_too_many >= LOOKS_BEFORE_END:
            await self._end(self._idle_jobs()[:too_many])
        if too_many < 0 and now >= self._send_from:
            self._add(-too_many)
        if self._cluster.worker_spec.keys() != self._cluster.workers.keys():
            try:
                await self._cluster._correct_state()
            except (RuntimeError, ValueError, OSError) as exc:
                self._refusal = str(exc)  # the job has no number: the next check finds it gone

    def _wanted_jobs(self) -> int:
        least, most = self._request.least_jobs, self._request.most_jobs
        if least == most:
            return most
        workers = self._cluster.scheduler.adaptive_target()
        return int(min(max(-(-workers // self._request.layout.node_workers), least), most))

    def _idle_jobs(self) -> list[str]:
        """Return jobs that still wait in the queue, the latest first, and then those with only idle workers."""
        workers = self._workers()
        waiting = [job for job in self._cluster.worker_spec if job not in workers]
        return waiting[::-1] + [job for job in workers if not any(worker.processing for worker in workers[job])]

    async def _end(self, jobs: list[str]) -> None:
        workers = self._workers()
        names = [worker.name for job in jobs for worker in workers.get(job, ())]
        if names:
            await self._cluster.scheduler.retire_workers(names=names, close_workers=True)
        self._forget(jobs)

    def _add(self, number: int) -> None:
        # A new name for each: Dask still ends the job of a worker's name 15 s after the worker left.
        for _ in range(number):
            job = self._cluster._new_worker_name(next(self._numbers))
            self._cluster.worker_spec[job] = self._cluster.new_spec
            self._seen_at[job] = time.monotonic()

    def _forget(self, jobs: list[str]) -> None:
        """Remove jobs from the requested ones; `_correct_state` cancels them."""
        for job in jobs:
            del self._cluster.worker_spec[job], self._seen_at[job]
            self._came.discard(job)

# SPDX-License-Identifier: Apache-2.0
"""What a job on a batch system (Slurm, PBS, LSF, SGE) asks for, computed from a budget for each job; no job is sent here."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from curator_df.cluster.settings import PRELOAD, as_exports, worker_environment, worker_memory_limit, worker_settings
from curator_df.core.budget import Layout, choose_layout, least_with_workers
from curator_df.core.sizes import read_size, show_size
from curator_df.errors import BudgetError, ParameterError

BatchSystem = Literal["slurm", "pbs", "lsf", "sge"]
"""Batch systems that jobs can be sent to."""
CLUSTERS = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster", "sge": "SGECluster"}
"""Their classes in dask-jobqueue."""
WALLTIME = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
LEAVE_SHARE, MOST_LEAVE_SECONDS = 0.1, 300
"""A worker leaves before its job's time is up: by a tenth of it, at most 5 minutes, and by as much again at random, so that
workers do not leave all at once."""
LEAST_WALLTIME_SECONDS = 120
JOB_SPILL_DIRECTORY = "${TMPDIR:-/tmp}"
"""The job's own disk, as the shell of the job sees it."""


@dataclass(frozen=True)
class JobRequest:
    """What each job is to be, and how many there are."""

    system: BatchSystem
    """Where jobs are sent."""
    layout: Layout
    """Processes, threads and bytes; ``allowed_bytes`` and ``cpus`` are those of one job."""
    least_jobs: int
    """Jobs that there are at least."""
    most_jobs: int
    """Jobs that there are at most."""
    queue: str | None
    """Partition or queue."""
    account: str | None
    """Account or project that is charged."""
    walltime_seconds: int
    """How long a job may run."""
    directives: tuple[str, ...]
    """Further lines for the head of the script, without their prefix."""
    prologue: tuple[str, ...]
    """Lines of shell that run in the job before the worker."""
    interface: str | None
    """Network interface of scheduler and workers."""
    spill_directory: str
    """Where workers spill to, as the job's shell sees it."""
    job_directory: str
    """Folder that all nodes see, for the jobs' logs and for temporary credentials."""
    python: str
    """Python on the nodes."""

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of dask-jobqueue's class."""
        layout = self.layout
        # In MiB, where dask-jobqueue would round up to the next GiB.
        exact = {"job_mem": f"{-(-layout.allowed_bytes // (1 << 20))}M"} if self.system == "slurm" else {}
        return {
            **exact,
            "cores": layout.cpus,
            "processes": layout.node_workers,
            "memory": f"{layout.allowed_bytes}B",
            "queue": self.queue,
            "account" if self.system in {"slurm", "pbs"} else "project": self.account,
            "walltime": self._walltime(),
            "interface": self.interface,
            "local_directory": f'"{self.spill_directory}"',
            "log_directory": self.job_directory,
            "shared_temp_directory": self.job_directory,
            "python": shlex.quote(self.python),
            "job_name": "curator-df",
            "job_extra_directives": list(self.directives),
            "job_script_prologue": self._prologue(),
            "worker_extra_args": self._worker_arguments(),
        }

    def _prologue(self) -> list[str]:
        exports = as_exports(worker_settings(), worker_environment(self.layout))
        # A node may have another CPU than the machine that sends the job: kernels are compiled for it before a worker's
        # limit is set, and loaded from numba's cache by all later jobs.
        warm = f"{shlex.quote(self.python)} -m curator_df.kernels.warm"
        return [*self.prologue, *exports, warm]

    def _worker_arguments(self) -> list[str]:
        # Of two --memory-limit the last one counts: dask-jobqueue's own is the job's memory, this one leaves room beside it.
        limit = ["--memory-limit", f"{worker_memory_limit(self.layout)}B"]
        dashboard = ["--dashboard-address", "127.0.0.1:0"]
        return [*limit, "--preload", PRELOAD, *dashboard, *lifetime(self.walltime_seconds)]

    def _walltime(self) -> str:
        minutes, seconds = divmod(self.walltime_seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}" if self.system == "lsf" else f"{hours}:{minutes:02}:{seconds:02}"


def lifetime(walltime_seconds: int) -> list[str]:
    """Return the options with which a worker leaves in time before its job is ended.

    Examples
    --------
    >>> lifetime(4 * 3600)
    ['--lifetime', '13800s', '--lifetime-stagger', '300s']
    """
    leave = min(int(walltime_seconds * LEAVE_SHARE), MOST_LEAVE_SECONDS)
    return ["--lifetime", f"{walltime_seconds - 2 * leave}s", "--lifetime-stagger", f"{leave}s"]


def read_walltime(walltime: str) -> int:
    """Turn ``"HH:MM:SS"`` or ``"D-HH:MM:SS"`` into seconds.

    Examples
    --------
    >>> read_walltime("1-02:00:00")
    93600
    """
    found = WALLTIME.fullmatch(walltime)
    if found is None:
        raise ParameterError(f"walltime={walltime!r} is not a time; write it like '04:00:00' or '1-00:00:00'")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total < LEAST_WALLTIME_SECONDS:
        raise ParameterError(
            f"walltime={walltime!r} is less than {LEAST_WALLTIME_SECONDS} s: a job would end before its worker has worked"
        )
    return total


def job_layout(memory: str | int, cpus: int, most_jobs: int) -> Layout:
    """Choose the processes and threads of each job from its budget."""
    allowed_bytes = read_size("memory", memory)
    if allowed_bytes < (least_bytes := least_with_workers()):
        raise BudgetError(
            f"memory={show_size(allowed_bytes)} of a job is under the floor of {show_size(least_bytes)}: a nanny and one "
            f"worker process with its smallest task; allow at least memory={least_bytes:_}"
        )
    one = choose_layout(allowed_bytes, cpus=cpus)
    return Layout(
        one.allowed_bytes,
        in_process=False,
        workers=one.workers * most_jobs,
        threads=one.threads,
        cpus=cpus,
        reserved_bytes=one.reserved_bytes,
        work_bytes=one.work_bytes,
        reason=one.reason,
        nodes=most_jobs,
    )


def read_jobs(jobs: int | tuple[int, int]) -> tuple[int, int]:
    """Turn a number of jobs, or the least and the most, into both."""
    least, most = (jobs, jobs) if isinstance(jobs, int) else jobs
    if not 0 <= least <= most or most < 1:
        raise ParameterError(f"jobs={jobs!r} must be a number from 1 on, or (least, most) with 0 <= least <= most")
    return least, most


def request_jobs(
    system: BatchSystem,
    *,
    memory: str | int,
    cpus: int,
    jobs: int | tuple[int, int],
    walltime: str,
    spill_directory: str | os.PathLike[str] | None,
    job_directory: str | os.PathLike[str],
    python: str | None,
    directives: Sequence[str],
    prologue: Sequence[str],
    **names: str | None,
) -> JobRequest:
    """Check what a user asks for, and compute what follows from it; ``names`` are queue, account and interface."""
    if system not in get_args(BatchSystem):
        raise ParameterError(f"system={system!r} is not one of {', '.join(map(repr, get_args(BatchSystem)))}")
    if system == "sge" and not directives:
        raise ParameterError(
            "SGE has no name of its own for a job's memory: say with directives= how your site asks for it, "
            f"such as directives=['-l m_mem_free={read_size('memory', memory) // 1_000_000}M']"
        )
    least_jobs, most_jobs = read_jobs(jobs)
    return JobRequest(
        system,
        job_layout(memory, cpus, most_jobs),
        least_jobs,
        most_jobs,
        walltime_seconds=read_walltime(walltime),
        directives=tuple(directives),
        prologue=tuple(prologue),
        spill_directory=JOB_SPILL_DIRECTORY if spill_directory is None else os.fspath(spill_directory),
        job_directory=os.path.abspath(os.fspath(job_directory)),
        python=sys.executable if python is None else python,
        queue=names["queue"],
        account=names["account"],
        interface=names["interface"],
    )

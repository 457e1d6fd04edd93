# SPDX-License-Identifier: Apache-2.0
"""Request of a job on a batch system (Slurm, PBS, LSF, SGE), computed from the budget of each job; no job is submitted here."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dask

from curator_df.arguments import absolute, choose, path_of
from curator_df.cluster.cuda import gpu_options
from curator_df.cluster.preload import WORK_BYTES_VARIABLE
from curator_df.cluster.settings import PRELOAD, as_exports, worker_environment, worker_memory_limit, worker_settings
from curator_df.errors import BudgetError, ParameterError
from curator_df.memory.budget import Layout, choose_layout, layout_of_workers, least_with_workers
from curator_df.memory.sizes import read_size, show_size, show_sizes, size_to_type

BatchSystem = Literal["slurm", "pbs", "lsf", "sge"]
"""Batch systems to which jobs can be submitted."""
WALLTIME = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
LEAVE_SHARE, MOST_LEAVE_SECONDS = 0.1, 300
"""Share, and maximum seconds, by which a worker leaves before its job's time is up; the same again is added at random, so that
workers do not leave all at once."""
LEAST_WALLTIME_SECONDS = 120
SGE_MEMORY = re.compile("mem|ram", re.IGNORECASE)
"""Pattern of resource names that are memory, such as ``h_vmem``, ``m_mem_free`` and ``ram``; each site has its own."""
SGE_NO_GPU = re.compile("mem|ram|rt$|cpu$", re.IGNORECASE)
"""Pattern of resource names that cannot be GPUs: memory, ``h_rt`` and ``s_rt``, ``h_cpu``."""
GPU_DIRECTIVES = {"slurm": "--gres=gpu:{}", "lsf": '-gpu "num={}"'}
"""Directives that request GPUs; PBS has them in its ``select``, and each SGE site has its own name."""
SLURM_OWN_MEMORY = re.compile(r"--(mem|mem-per-cpu|mem-per-gpu|exclusive)(?![\w-])", re.IGNORECASE)
"""Options of sbatch that request memory, or a node; --mem-bind= requests none."""
SLURM_MEMORY = re.compile(r"--(mem|mem-per-cpu|mem-per-gpu)(?:[= ]\s*(\d+)([KMGT]?)B?)?$", re.IGNORECASE)
"""Directive that requests memory from Slurm, in MiB if no unit is given."""
JOB_SHELL = "-S /bin/bash"
"""Directive that makes PBS and SGE run the script in bash: they use the user's or the queue's shell, not its first line."""
JOB_SPILL_DIRECTORY = "${TMPDIR:-/tmp}"
"""Local disk of the job, in the syntax of its shell."""


@dataclass(frozen=True)
class JobRequest:
    """Request of each job, and the number of jobs."""

    system: BatchSystem
    """Batch system."""
    layout: Layout
    """Processes, threads and bytes; ``allowed_bytes`` and ``cpus`` are those of one job."""
    least_jobs: int
    """Minimum number of jobs."""
    most_jobs: int
    """Maximum number of jobs."""
    queue: str | None
    """Partition or queue."""
    account: str | None
    """Account or project that is charged."""
    walltime_seconds: int
    """Maximum run time of a job."""
    directives: tuple[str, ...]
    """Further lines for the head of the script, without their prefix."""
    prologue: tuple[str, ...]
    """Shell lines that run in the job before the worker."""
    interface: str | None
    """Network interface of scheduler and workers."""
    spill_directory: str
    """Folder to which workers spill, in the syntax of the job's shell."""
    job_directory: str
    """Folder visible to all nodes, for the jobs' logs and for temporary credentials."""
    python: str
    """Python on the nodes."""
    gpus: int = 0
    """GPUs of each job, with a worker process for each."""

    @property
    def _megabytes(self) -> int:
        """Memory of each job in MiB, rounded up, which batch systems call MB."""
        return -(-self.layout.allowed_bytes // (1 << 20))

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of dask-jobqueue's class."""
        layout = self.layout
        # In MiB, because dask-jobqueue would round up to the next GiB.
        exact: dict[str, Any] = {"job_mem": f"{self._megabytes}M"} if self.system == "slurm" else {}
        if self.system == "slurm" and names_memory(self.directives):
            # The configuration of dask-jobqueue, which the argument replaces, may have other lines.
            exact["job_directives_skip"] = ["--mem=", *dask.config.get("jobqueue.slurm.job-directives-skip", ())]
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
            "job_extra_directives": self._directives(),
            "job_script_prologue": self._prologue(),
            "worker_extra_args": self._worker_arguments(),
            **({"worker_command": "dask_cuda.cli"} if self.gpus else {}),
            **({"resource_spec": self._pbs_resources()} if self.gpus and self.system == "pbs" else {}),
        }

    def _directives(self) -> list[str]:
        asked = GPU_DIRECTIVES.get(self.system, "") if self.gpus else ""
        lines = [*([asked.format(self.gpus)] if asked else []), *self._reservation(), *self.directives]
        return [JOB_SHELL, *lines] if self.system in {"pbs", "sge"} else lines  # of two -S, the last one counts

    def _reservation(self) -> list[str]:
        """Return the LSF reservation of the job's memory: ``-M``, which is all that dask-jobqueue requests, is only a limit."""
        if self.system != "lsf" or any("rusage[" in directive for directive in self.directives):
            return []
        # With its unit, because without one ``-M`` may be in KB while this is in MB.
        return [f'-R "rusage[mem={self._megabytes}MB]"']

    def _pbs_resources(self) -> str:
        return f"select=1:ncpus={self.layout.cpus}:mem={self._megabytes}MB:ngpus={self.gpus}"

    def _prologue(self) -> list[str]:
        settings, environment = worker_settings(self.layout), worker_environment(self.layout)
        if self.gpus:
            del environment[WORK_BYTES_VARIABLE]  # CUDA maps address space that a data limit would count
            settings |= lifetime_settings(self.walltime_seconds)
        return [*self.prologue, *as_exports(settings, environment)]

    def _worker_arguments(self) -> list[str]:
        # The last --memory-limit counts: dask-jobqueue's own is the job's memory; this one leaves space for other processes.
        limit = ["--memory-limit", f"{worker_memory_limit(self.layout)}B"]
        common = [*limit, "--preload", PRELOAD, "--dashboard-address", "127.0.0.1:0"]
        if self.gpus:  # the last --nthreads counts too
            return [*common, "--nthreads", "1", *gpu_options(self.layout.device_bytes)]
        return [*common, *lifetime(self.walltime_seconds)]

    def _walltime(self) -> str:
        if self.system == "lsf":  # in whole minutes, rounded up
            hours, minutes = divmod(-(-self.walltime_seconds // 60), 60)
            return f"{hours}:{minutes:02}"
        minutes, seconds = divmod(self.walltime_seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}"


def lifetime(walltime_seconds: int) -> list[str]:
    """Return the options with which a worker leaves before its job is killed.

    Examples
    --------
    >>> lifetime(4 * 3600)
    ['--lifetime', '13800s', '--lifetime-stagger', '300s']
    """
    lasts, stagger = lifetime_settings(walltime_seconds).values()
    return ["--lifetime", lasts, "--lifetime-stagger", stagger]


def lifetime_settings(walltime_seconds: int) -> dict[str, str]:
    """Return `lifetime` as Dask's settings, for dask-cuda's worker, which has no such options.

    Examples
    --------
    >>> lifetime_settings(3600)
    {'distributed.worker.lifetime.duration': '3000s', 'distributed.worker.lifetime.stagger': '300s'}
    """
    leave = min(int(walltime_seconds * LEAVE_SHARE), MOST_LEAVE_SECONDS)
    return {
        "distributed.worker.lifetime.duration": f"{walltime_seconds - 2 * leave}s",
        "distributed.worker.lifetime.stagger": f"{leave}s",
    }


def read_walltime(walltime: str) -> int:
    """Convert ``"HH:MM:SS"`` or ``"D-HH:MM:SS"`` to seconds.

    Examples
    --------
    >>> read_walltime("1-02:00:00")
    93600
    """
    found = WALLTIME.fullmatch(walltime) if isinstance(walltime, str) else None
    if found is None:
        raise ParameterError(f"walltime={walltime!r} is not a time. Write it as in '04:00:00' or '1-00:00:00'")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total < LEAST_WALLTIME_SECONDS:
        raise ParameterError(
            f"walltime={walltime!r} is less than the minimum of {LEAST_WALLTIME_SECONDS} s, so a worker would end before it "
            "had done any work. Use a longer walltime="
        )
    return total


def job_layout(memory: str | int, cpus: int, most_jobs: int) -> Layout:
    """Choose the processes and threads of each job from its budget."""
    allowed_bytes = read_size("memory", memory)
    if allowed_bytes < (least_bytes := least_with_workers()):
        asked, least = show_sizes(allowed_bytes, least_bytes)
        raise BudgetError(
            f"memory={asked} for each job is below the minimum of {least}: a job must hold a worker process, its smallest "
            f"task, and the nanny (Dask's process that watches the worker). Use at least memory={size_to_type(least_bytes)}"
        )
    one = choose_layout(allowed_bytes, cpus=cpus)
    return dataclasses.replace(one, workers=one.workers * most_jobs, nodes=most_jobs)


def gpu_job_layout(
    memory: str | int, cpus: int, most_jobs: int, *, gpus: int, device_memory: str | int | None
) -> Layout:
    """Return the layout of jobs with a worker process of one thread for each of their GPUs.

    The nodes' GPUs are not visible on this machine, so ``device_memory`` is required.
    """
    if device_memory is None:
        raise ParameterError(
            f"gpus={gpus} needs device_memory=, the GPU memory that may be allocated on each GPU, because the GPUs of the "
            "nodes are not visible on this machine. Set it to about 80% of a GPU's memory, such as device_memory='64GB' "
            "for 80 GB, which leaves space for CUDA itself"
        )
    if cpus < gpus:
        raise ParameterError(
            f"gpus={gpus}, but cpus={cpus}: a job needs a worker process with a CPU for each GPU. Use cpus={gpus} or more"
        )
    one = layout_of_workers(read_size("memory", memory), gpus, reason="one for each GPU of a job")
    return dataclasses.replace(
        one,
        workers=gpus * most_jobs,
        cpus=cpus,
        nodes=most_jobs,
        shares_work=False,
        device_bytes=read_size("device_memory", device_memory),
        spare_cpus=cpus // gpus - one.threads,
    )


def read_gpus_of_job(gpus: int, device_memory: str | int | None) -> int:
    """Check the number of GPUs of each job."""
    if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0:
        raise ParameterError(f"gpus={gpus!r} must be the number of GPUs of each job, 0 or more")
    if not gpus and device_memory is not None:
        raise ParameterError(
            "device_memory= needs GPUs, but gpus=0 requests none. Set gpus=, the number of GPUs of each job"
        )
    return gpus


def read_jobs(jobs: int | tuple[int, int]) -> tuple[int, int]:
    """Convert a number of jobs, or the minimum and the maximum, to both."""
    numbers = jobs if isinstance(jobs, tuple | list) else (jobs, jobs)
    are_numbers = len(numbers) == 2 and all(isinstance(number, int) for number in numbers)
    if not are_numbers or not 0 <= numbers[0] <= numbers[1] or numbers[1] < 1:
        raise ParameterError(
            f"jobs={jobs!r} must be the number of jobs, 1 or more, or (minimum, maximum), such as jobs=(1, 10)"
        )
    return numbers[0], numbers[1]


def names_memory(directives: Sequence[str]) -> bool:
    """Return whether directives request memory from Slurm in another way than by ``--mem=``, which some sites refuse.

    Examples
    --------
    >>> names_memory(["--mem-per-cpu=4000M"]), names_memory(["--exclusive"]), names_memory(["--constraint=avx2"])
    (True, True, False)
    """
    return any(SLURM_OWN_MEMORY.match(directive.strip()) for directive in directives)


def check_slurm(allowed_bytes: int, cpus: int, gpus: int, directives: Sequence[str]) -> None:
    """Check that the memory that directives request from Slurm is at least the budget of a job."""
    for directive in directives:
        found = SLURM_MEMORY.match(directive.strip())
        if found is None or found[2] is None or int(found[2]) == 0:  # 0: all memory of the node
            continue
        number = {"mem": 1, "mem-per-cpu": cpus, "mem-per-gpu": gpus}[found[1].lower()]
        asked_bytes = int(found[2]) * number << {"K": 10, "": 20, "M": 20, "G": 30, "T": 40}[found[3].upper()]
        if asked_bytes < allowed_bytes:
            least = -(-allowed_bytes // (max(number, 1) << 20))
            raise ParameterError(
                f"directives={[directive]} requests {show_size(asked_bytes)} in total from Slurm, less than "
                f"memory={show_size(allowed_bytes)!r} of a job. Use --{found[1]}={least}M or a smaller memory="
            )


def check_sge(allowed_bytes: int, cpus: int, gpus: int, directives: Sequence[str]) -> None:
    """Check that a job for SGE requests memory, CPUs and GPUs by the names of its site, which dask-jobqueue does not."""
    options = [directive.split() for directive in directives]
    asked = [name for option in options if option[:1] == ["-l"] for name in "".join(option[1:]).split(",")]
    has_memory = any(SGE_MEMORY.search(name.partition("=")[0]) for name in asked)
    has_cpus = cpus == 1 or any(option[:1] == ["-pe"] for option in options)
    has_gpus = not gpus or any(not SGE_NO_GPU.search(name.partition("=")[0]) for name in asked)
    if has_memory and has_cpus and has_gpus:
        return
    example = [f"-l mem_free={-(-allowed_bytes // (cpus << 20))}M", *[f"-pe smp {cpus}"] * (cpus > 1)]
    example += [f"-l gpu={gpus}"] * bool(gpus)
    raise ParameterError(
        f"SGE has no standard way to request memory, GPUs, or cpus={cpus} on one node (a parallel environment). Request them "
        f"with directives= as your site does, for example directives={example}. Most sites count memory per slot"
    )


def _lines(name: str, lines: Sequence[str]) -> tuple[str, ...]:
    if isinstance(lines, str) or not all(isinstance(line, str) for line in lines):
        raise ParameterError(f"{name}={lines!r} must be a list of lines, for example {name}=[{str(lines)!r}]")
    return tuple(lines)


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
    gpus: int = 0,
    device_memory: str | int | None = None,
    **names: str | None,
) -> JobRequest:
    """Check the user's request, and compute everything that follows; ``names`` are queue, account and interface."""
    choose("job_cluster", "system", system, BatchSystem)
    if isinstance(cpus, bool) or not isinstance(cpus, int) or cpus < 1:
        raise ParameterError(f"cpus={cpus!r} must be the number of CPUs of each job, 1 or more")
    directives, prologue = _lines("directives", directives), _lines("prologue", prologue)
    gpus = read_gpus_of_job(gpus, device_memory)
    if system == "slurm":
        check_slurm(read_size("memory", memory), cpus, gpus, directives)
    if system == "sge":
        check_sge(read_size("memory", memory), cpus, gpus, directives)
    least_jobs, most_jobs = read_jobs(jobs)
    if gpus:
        layout = gpu_job_layout(memory, cpus, most_jobs, gpus=gpus, device_memory=device_memory)
    else:
        layout = job_layout(memory, cpus, most_jobs)
    return JobRequest(
        system,
        layout,
        least_jobs,
        most_jobs,
        walltime_seconds=read_walltime(walltime),
        directives=directives,
        prologue=prologue,
        spill_directory=JOB_SPILL_DIRECTORY
        if spill_directory is None
        else path_of("job_cluster", "spill_directory", spill_directory),
        job_directory=absolute(path_of("job_cluster", "job_directory", job_directory)),
        python=sys.executable if python is None else path_of("job_cluster", "python", python),
        queue=names["queue"],
        account=names["account"],
        interface=names["interface"],
        gpus=gpus,
    )

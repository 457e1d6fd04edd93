# SPDX-License-Identifier: Apache-2.0
"""Cluster whose workers are jobs of a batch system, each of which keeps a budget; through dask-jobqueue.

The scheduler is in this process. Jobs that end (cancelled, preempted, out of time) are replaced (`job_keeper`); their
unfinished input splits run again elsewhere.
"""

from __future__ import annotations

import html
import importlib
import inspect
import os
import re
import shlex
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import dask
import psutil
from distributed import Status
from distributed.security import Security
from distributed.utils import get_ip

from curator_df.arguments import path_of, require_number
from curator_df.cluster.batch import BatchSystem, JobRequest, request_jobs
from curator_df.cluster.clock_jump import watch_streams
from curator_df.cluster.compiling import NodeCompiler
from curator_df.cluster.job_keeper import JobKeeper
from curator_df.cluster.settings import SilentLogs
from curator_df.cluster.spill_folder import SpillFolder, WorkingFolder
from curator_df.cluster.surroundings import refuse_cluster_beside_threads
from curator_df.cluster.transport import as_security
from curator_df.cluster.worker_devices import verified_devices
from curator_df.cluster.worker_processes import ClosingClient, close_client, closing_unfinished
from curator_df.core.calls import unknown_keyword
from curator_df.core.cleaning_up import clean_up, undoing
from curator_df.core.runner.events import Event, TaskEnded
from curator_df.core.runner.interrupts import ends_silently
from curator_df.core.runner.session import Session, close_session, open_session
from curator_df.errors import NoClusterError, ParameterError
from curator_df.extras import require_package
from curator_df.interactive.operations import keep_budget_of_dask
from curator_df.io.output.spool import spool_on
from curator_df.memory.sizes import show_count, show_size
from curator_df.suggestions import suggests_names

CLUSTERS = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster", "sge": "SGECluster"}
"""Classes of dask-jobqueue by batch system."""
TAKEN_JOB = re.compile(r"^Your job (\d+) .*has been submitted", re.MULTILINE)
"""Message of SGE for an accepted job."""


def cluster_class(system: str) -> Any:
    """Import dask-jobqueue and return its class of clusters for a batch system; Ctrl-C keeps its effect (`ends_silently`).

    Raises
    ------
    ParameterError
        If the import fails, as it does outside the main thread.
    """
    handler = signal.getsignal(signal.SIGINT)
    if ends_silently(handler):  # the user had imported it before
        handler = signal.default_int_handler
    try:
        found = getattr(importlib.import_module("dask_jobqueue"), CLUSTERS[system])
    except ValueError as exc:  # it sets the handler while it is imported
        raise ParameterError(
            f"dask-jobqueue cannot be imported in this thread: {exc}. Create the cluster in the main thread, or import "
            "dask_jobqueue there first"
        ) from exc
    if threading.current_thread() is threading.main_thread() and ends_silently(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, handler)
    return found


def require_commands(system: str, job_class: Any) -> None:
    """Raise `NoClusterError` if the commands that submit and end jobs are not on this machine."""
    commands = [shlex.split(command)[0] for command in (job_class.submit_command, job_class.cancel_command)]
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        raise NoClusterError(
            f"{' and '.join(missing)} cannot be found on this machine, so no {system} job can be submitted. Run this on a "
            "login node, or where the commands of the batch system are on PATH"
        )


def withdrawing(job_class: Any) -> Any:
    """Return dask-jobqueue's class of a job that leaves the queue if its submission fails.

    SGE's ``qsub`` fails with a warning, for example that a user may not use any queue, but accepts the job.
    """

    class WithdrawnJob(job_class):  # type: ignore[misc]
        async def _submit_job(self, script: str) -> Any:
            try:
                return await super()._submit_job(script)
            except RuntimeError as exc:
                if taken := TAKEN_JOB.search(str(exc)):
                    await self._close_job(taken[1], self.cancel_command)
                raise

    return WithdrawnJob


POLL_SECONDS = 0.2


@suggests_names
class JobCluster:
    """Cluster whose workers are jobs of a batch system. Call `start` or use a ``with`` statement; `close` ends its jobs.

    See Also
    --------
    slurm_cluster, job_cluster
    """

    def __init__(
        self, request: JobRequest, security: Security | None, *, queue_timeout_seconds: float, workdir: str | None
    ) -> None:
        self.request, self.layout = request, request.layout
        self._queue_timeout = queue_timeout_seconds
        try:
            Path(request.job_directory).mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise ParameterError(
                f"job_directory={request.job_directory!r} cannot be created: {exc}. Set job_directory= to a folder that you "
                "can write to and that the nodes see"
            ) from exc
        # One address that the nodes can reach, not all of this machine's.
        listen = {} if request.interface is not None else {"host": get_ip()}
        made = cluster_class(request.system)
        with undoing() as undo:
            undo.callback(SilentLogs().end)
            scratch = SpillFolder(tempfile.gettempdir())  # of the scheduler, which would leave its own behind
            undo.callback(scratch.delete)
            # An ended job says little about its input split, so it may run three times, Dask's default.
            settings = {"distributed.scheduler.allowed-failures": 3, "temporary-directory": scratch.path}
            with dask.config.set(settings), closing_unfinished():
                self._jobs = made(
                    **request.arguments(),
                    job_cls=withdrawing(made.job_cls),
                    security=security,
                    scheduler_options={"dashboard_address": "127.0.0.1:0", **listen},
                    silence_logs="critical",
                )
            undo.callback(self._delete_credentials)
            undo.callback(self._close_jobs)
            self.client = ClosingClient(self._jobs, set_as_default=True)
            undo.callback(close_client, self.client)
            watch_streams(self.client, self._jobs)
            self._keeper = JobKeeper(self._jobs, request)
            undo.callback(self._stop_keeper)
            self._session = Session(
                self.client,
                self.layout,
                limits_data=not request.gpus,
                workdir=workdir,
                compile=NodeCompiler(self.client),
                workless_seconds=queue_timeout_seconds,
                unstarted=f"no job was submitted to {request.system} yet. Use the cluster in a with statement, or call its "
                "start()",
            )
            undo.callback(close_session, self._session)
            self._session.at_close = keep_budget_of_dask(
                self._session,
                owns_workers=True,
                spool_on=spool_on,
                working=None if workdir is None else WorkingFolder(workdir),
            )
            open_session(self._session)
            self._undo = undo.pop_all()

    @property
    def job_script(self) -> str:
        """Script of each job, as submitted; only the name of the worker differs."""
        return str(self._jobs.job_script())

    @property
    def dashboard_link(self) -> str:
        """Address of Dask's dashboard, on this machine only."""
        # Dask would show this machine's address, although the dashboard is bound to the loopback interface.
        return re.sub("//[^:/]+", "//127.0.0.1", str(self._jobs.dashboard_link))

    def start(self) -> Self:
        """Submit the jobs, and wait for the first worker (not with ``jobs=(0, ...)``, which submits jobs when there is work).

        Raises
        ------
        NoClusterError
            If the commands of the batch system are not on this machine, it refuses the job (the message has its output), no job
            has started after ``queue_timeout_seconds`` seconds, or several in a row have ended before a worker connected.
        BudgetError
            If the first workers share a GPU or have none, or one smaller than ``device_memory``.

        Notes
        -----
        After an error, and after Ctrl-C, no job stays in the queue, and the cluster is closed.
        """
        try:
            self._submit()
        except BaseException as exc:
            clean_up(exc, self.close)
            raise
        return self

    def _submit(self) -> None:
        request = self.request
        require_commands(request.system, type(self._jobs).job_cls)
        try:
            self._jobs.sync(self._keeper.start)
        except (OSError, RuntimeError) as exc:
            raise NoClusterError(
                f"{request.system} refused the job. Correct the settings that it names below, then start the cluster "
                f"again.\n{exc}\nThe script was:\n{self.job_script}"
            ) from exc
        self._session.unstarted = ""
        if not request.least_jobs:
            self._session.watchers.extend([self._verify_first_devices] * bool(request.gpus))
            return
        self._wait_for_worker()
        if request.gpus:
            verified_devices(self.client, self.layout.device_bytes)

    def _verify_first_devices(self, event: Event) -> None:
        """Check the GPUs after the first task, if no worker could be checked before; an error ends the run."""
        if not isinstance(event, TaskEnded) or not self.client.nthreads():
            return
        try:
            verified_devices(self.client, self.layout.device_bytes)
        except OSError:
            return  # a worker left: check again after the next task
        self._session.watchers.remove(self._verify_first_devices)

    def _wait_for_worker(self) -> None:
        deadline = time.monotonic() + self._queue_timeout
        while not self.client.nthreads():
            if problem := self._keeper.problem:
                raise NoClusterError(problem)
            if time.monotonic() > deadline:
                raise NoClusterError(
                    f"no {self.request.system} job has started a worker within "
                    f"queue_timeout_seconds={self._queue_timeout:.0f} s. Read the jobs' logs in "
                    f"{self.request.job_directory}. If the jobs still wait in the queue, set a larger "
                    "queue_timeout_seconds="
                )
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """End the jobs, and disconnect from the scheduler."""
        self._undo.close()

    def _stop_keeper(self) -> None:
        if self._jobs.status == Status.running:
            self._jobs.sync(self._keeper.stop)

    def _close_jobs(self) -> None:
        for job in list(self._jobs._created):
            job.status = Status.closed  # dask-jobqueue (0.9) never sets this, but Dask asserts it once jobs are ended
        self._jobs.close()

    def _delete_credentials(self) -> None:
        for name, credentials in vars(self._jobs).items():
            if name.startswith("_job_") and hasattr(credentials, "close"):
                credentials.close()  # deletes the file, which Dask leaves until garbage collection

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        clean_up(exc, self.close)

    def _lines(self) -> list[tuple[str, str]]:
        request, layout = self.request, self.layout
        least = f"{request.least_jobs} to " if request.least_jobs < request.most_jobs else ""
        processes = f"{show_count(layout.node_workers, 'worker process')} x {show_count(layout.threads, 'thread')}"
        return [
            ("jobs", f"{least}{request.most_jobs} of {request.system}, {show_size(layout.allowed_bytes)} for each"),
            ("layout", f"{processes} in a job, {show_size(layout.work_bytes)} of working memory for each process"),
            *(
                [("gpus", f"{request.gpus} per job, {show_size(layout.device_bytes)} each; cuDF spills")]
                * bool(request.gpus)
            ),
            ("why", layout.reason),
            ("scheduler", str(self._jobs.scheduler_address)),
            ("dashboard", self.dashboard_link),
            ("logs", request.job_directory),
        ]

    def __repr__(self) -> str:
        lines = "\n".join(f"{name:<10} {value}" for name, value in self._lines())
        return f"{lines}\nscript of each job:\n{self.job_script}"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._lines()
        )
        return f"<table>{rows}</table><pre>{html.escape(self.job_script)}</pre>"


def job_cluster(
    system: BatchSystem,
    *,
    memory: str | int,
    cpus: int,
    gpus: int = 0,
    device_memory: str | int | None = None,
    jobs: int | tuple[int, int] = 1,
    walltime: str = "01:00:00",
    queue: str | None = None,
    account: str | None = None,
    interface: str | None = None,
    security: bool | Security = True,
    spill_directory: str | os.PathLike[str] | None = None,
    job_directory: str | os.PathLike[str] = "curator-df-jobs",
    workdir: str | os.PathLike[str] | None = None,
    directives: Sequence[str] = (),
    prologue: Sequence[str] = (),
    python: str | None = None,
    queue_timeout_seconds: float = 3600.0,
) -> JobCluster:
    """Create a cluster whose workers are jobs of a batch system, each of which keeps ``memory``.

    Parameters
    ----------
    system : {"slurm", "pbs", "lsf", "sge"}
        The batch system.
    memory : str or int
        Bytes for each job, for all its processes; the job requests this much. ``"16GB"`` is 16 x 10^9.
    cpus : int
        CPUs of each job. Memory and CPUs determine the processes and threads, as with `start_cluster`.
    gpus : int
        GPUs of each job; each gets a dask-cuda worker process with one thread.
    device_memory : str or int, optional
        Bytes that may be allocated on each GPU (by RMM; CUDA's own context is not included). Required with ``gpus``.
    jobs : int or (int, int)
        Number of jobs; or the minimum and maximum, between which the number adapts to the work.
    walltime : str
        Maximum run time of a job, ``"HH:MM:SS"`` or ``"D-HH:MM:SS"``. Workers leave before it is over, not all at once,
        and other jobs are submitted.
    queue : str, optional
        Partition or queue; defaults to that of the batch system.
    account : str, optional
        Account or project to charge.
    interface : str, optional
        Network interface of scheduler and workers, such as ``"ib0"``. By default the scheduler listens on this
        machine's address, and workers on all of theirs.
    security : bool or distributed.Security
        TLS between client, scheduler and workers, with newly created credentials or your own. False: whoever can reach
        the scheduler can run code as you.
    spill_directory : path, optional
        Folder on the nodes for spilling; ``$VARIABLES`` are expanded in the job. ``${TMPDIR:-/tmp}`` by default.
    job_directory : path
        Folder visible to all nodes: for the logs of the jobs, and for credentials while the cluster is open. It is created.
    workdir : str or path, optional
        Folder (or URL) visible to all nodes, for the results of ``find_`` operators.
    directives : sequence of str
        Additional job options, such as ``"--constraint=avx2"``. For SGE they request its memory, and several CPUs.
    prologue : sequence of str
        Shell lines to run before the worker, such as ``"module load python"``.
    python : str, optional
        Python on the nodes; this one by default. It must have this package, in the same version.
    queue_timeout_seconds : float
        Seconds to wait for the first job, and for another one if none is left in the middle of a run.

    Returns
    -------
    JobCluster
        A cluster whose workers are jobs of Slurm, PBS, LSF or SGE, each of which keeps the budget. Nothing is submitted
        yet. It displays the script of its jobs. ``with`` or ``start()`` submits them.

    Raises
    ------
    BudgetError
        If ``memory`` is too little for one worker process, or for one for each GPU; or if a cluster in threads of this
        process is open, whose limit of memory the scheduler of this one would share.
    ParameterError
        If an argument is invalid, or ``gpus`` is given without ``device_memory``.
    MissingExtraError
        If dask-jobqueue is not installed.
    NoClusterError
        From ``start()`` and ``with``, if the batch system refuses the job or starts none in time.

    See Also
    --------
    slurm_cluster, start_cluster, connect

    Notes
    -----
    Computes: no. See ``docs/clusters.md``.

    Input, output and ``workdir`` must be visible to all nodes.

    Examples
    --------
    ::

        with cdf.job_cluster("pbs", memory="16GB", cpus=4, jobs=(1, 20), queue="batch") as cluster:
            receipt = cdf.write_parquet(docs, "/shared/clean/")
    """
    require_package("job_cluster", "dask_jobqueue", "jobqueue")
    if interface is not None and interface not in (known := sorted(psutil.net_if_addrs())):
        raise ParameterError(
            f"interface={interface!r} is not an interface of this machine. Use one of: {', '.join(known)}"
        )
    request = request_jobs(
        system,
        memory=memory,
        cpus=cpus,
        gpus=gpus,
        device_memory=device_memory,
        jobs=jobs,
        walltime=walltime,
        spill_directory=spill_directory,
        job_directory=job_directory,
        python=python,
        directives=directives,
        prologue=prologue,
        queue=queue,
        account=account,
        interface=interface,
    )
    shared = None if workdir is None else path_of("job_cluster", "workdir", workdir)
    require_number("job_cluster", "queue_timeout_seconds", queue_timeout_seconds)
    refuse_cluster_beside_threads()
    return JobCluster(request, as_security(security), queue_timeout_seconds=queue_timeout_seconds, workdir=shared)


def slurm_cluster(
    *,
    memory: str | int,
    cpus: int,
    gpus: int = 0,
    device_memory: str | int | None = None,
    jobs: int | tuple[int, int] = 1,
    walltime: str = "01:00:00",
    partition: str | None = None,
    account: str | None = None,
    **options: Any,
) -> JobCluster:
    """Create a cluster whose workers are Slurm jobs, each of which keeps ``memory``: `job_cluster` with Slurm's terms.

    Parameters
    ----------
    memory : str or int
        Bytes for each job, for all its processes (``--mem``).
    cpus : int
        CPUs of each job (``--cpus-per-task``).
    gpus : int
        GPUs of each job (``--gres=gpu:``).
    device_memory : str or int, optional
        Bytes that may be allocated on each GPU. Required with ``gpus``.
    jobs : int or (int, int)
        Number of jobs; or the minimum and maximum, between which the number adapts to the work.
    walltime : str
        Maximum run time of a job, ``"HH:MM:SS"`` or ``"D-HH:MM:SS"`` (``--time``).
    partition : str, optional
        Partition (``--partition``).
    account : str, optional
        Account to charge (``--account``).
    **options
        Other arguments of `job_cluster`.

    Returns
    -------
    JobCluster
        A cluster whose workers are Slurm jobs, each of which keeps the budget. Nothing is submitted yet. It displays
        the script of its jobs. ``with`` or ``start()`` submits them.

    See Also
    --------
    job_cluster, start_cluster, connect

    Notes
    -----
    Computes: no. See ``docs/clusters.md``.

    Examples
    --------
    ::

        with cdf.slurm_cluster(memory="16GB", cpus=4, jobs=(1, 20), walltime="04:00:00", partition="cpu"):
            receipt = cdf.write_parquet(docs, "/shared/clean/")
    """
    if "queue" in options:
        raise ParameterError("slurm_cluster has no parameter queue=. Name the partition of Slurm with partition=")
    known = inspect.signature(job_cluster).parameters.keys() - {"system"}
    if "system" in options:
        raise TypeError(
            "slurm_cluster has no parameter 'system', because its jobs always go to Slurm. For another system, use "
            "job_cluster(system, ...)"
        )
    if unknown := [name for name in options if name not in known]:
        raise TypeError(unknown_keyword(job_cluster, unknown[0]))
    return job_cluster(
        "slurm",
        memory=memory,
        cpus=cpus,
        gpus=gpus,
        device_memory=device_memory,
        jobs=jobs,
        walltime=walltime,
        queue=partition,
        account=account,
        **options,
    )

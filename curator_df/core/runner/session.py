# SPDX-License-Identifier: Apache-2.0
"""Running cluster with its budget, as the runner sees it, and the process that measures the peak.

`curator_df.cluster` starts clusters and registers a `Session` for each; `current_session` returns the latest open one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import multiprocessing.process
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask

from curator_df.core.runner.events import Event
from curator_df.core.runner.lost_scheduler import AGAIN, require_open
from curator_df.core.tasks.worker_limits import WorkerLimits
from curator_df.errors import NoClusterError, outside_level
from curator_df.files.storage import Folder
from curator_df.memory import counted_memory, guard, system
from curator_df.memory.budget import CLIENT_GROWTH_BYTES, Layout
from curator_df.memory.limits import lower_data_limit, release_free_memory
from curator_df.memory.process_cache import clear_outside_runs
from curator_df.memory.system import status_bytes
from curator_df.memory.wall import Wall

if TYPE_CHECKING:
    from curator_df.core.runner.recycling import Recycling

LOG = logging.getLogger("curator_df.runner")
WORKER_START_SECONDS = 120.0
"""Time in seconds that a run continues without any worker, if workers are processes that a nanny restarts."""


@dataclass(frozen=True)
class Patience:
    """Waiting times of a run for a cluster that does not respond."""

    watch_seconds: float = 2.0
    """Interval in seconds at which a silent cluster is checked for workers."""
    revive_seconds: tuple[float, ...] = (10.0, 30.0, 60.0, 90.0)
    """Times in seconds without any worker after which new ones are started, unless some are starting."""
    stop_seconds: float = 20.0
    """Maximum wait in seconds of a run that stops early for its tasks, which end at their next block."""


_open_sessions: list[Session] = []
_first_process: list[int] = []
"""The process that opened the first session; in a forked child, that of the parent."""
_planned: ContextVar[Session | None] = ContextVar("planned", default=None)
_warned: list[bool] = []
"""Not empty when `warn_without_budget` has warned since the latest session opened."""


class PeakSampler:
    """A process that samples this process tree every 50 ms, itself not counted.

    Parameters
    ----------
    exact : bool
        Whether all of the tree is read at every sample.
    guarding : tuple of (str, int, int), optional
        The folder of a wall, what all processes may hold, and what a worker may hold over what it holds when it is idle: the
        process is also the guard of this wall (`curator_df.memory.guard`).
    """

    def __init__(self, *, exact: bool = False, guarding: tuple[str, int, int] | None = None) -> None:
        # -S and -E: no site-packages, so that it starts in 20 ms and stays at 9 MB. With psutil it needs them.
        command = [
            sys.executable,
            *(() if system.PORTABLE else ("-S", "-E")),
            str(Path(counted_memory.__file__ if guarding is None else guard.__file__)),
            str(os.getpid()),
        ]
        if guarding is not None:
            folder, wall_bytes, exclusive_bytes = guarding
            command += [str(wall_bytes), str(exclusive_bytes), folder]
        elif exact:
            command.append("--exact")
        self._command, self._is_closed = command, False
        self._process = self._start()
        self._asked = 0
        self._asking = threading.Lock()  # used by the runner and by watchers that serve or show figures

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    @property
    def pid(self) -> int:
        """Process ID of the sampler."""
        return self._process.pid

    def take(self) -> int:
        """Return the peak bytes since the last call, and restart the measurement."""
        return self._ask("reset")

    def seen(self) -> int:
        """Return the peak bytes since the last `take`."""
        return self._ask("peak")

    def now(self) -> int:
        """Return the bytes of the last sample."""
        return self._ask("now")

    def trace(self) -> list[tuple[float, int]]:
        """Return pairs of seconds since the last `take` and the peak bytes up to then, in at most 400 equal steps."""
        step, *points = (self._line("trace") or "0").split()
        return [(round((number + 1) * float(step), 3), int(point)) for number, point in enumerate(points)]

    def close(self) -> None:
        """Stop the process."""
        with self._asking:
            self._is_closed = True
            self._let_go()

    def _let_go(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # it was killed with a question unread
                    pipe.close()
        self._process.wait(timeout=5)

    def _ask(self, command: str) -> int:
        return int(self._line(command) or 0)

    def _line(self, command: str) -> str:
        """Return an answer; a process that ended meanwhile is replaced, and the new one is asked. Empty after `close`."""
        return self._answer(command) or self._answer(command)

    def _answer(self, command: str) -> str:
        with self._asking:
            if self._is_closed:
                return ""
            if self._process.poll() is not None:
                # Killed by somebody: without a guard, nothing would keep what steps start within the budget.
                LOG.warning("process %d, which guards the memory budget, was killed; another takes its place", self.pid)
                self._let_go()
                self._process = self._start()
            if self._process.stdin is None or self._process.stdout is None:
                return ""
            # Questions are numbered: after Ctrl-C between a question and its answer, that answer is still unread.
            self._asked += 1
            self._process.stdin.write(f"{command} {self._asked}\n")
            self._process.stdin.flush()
            while line := self._process.stdout.readline():
                number, _, answer = line.partition(" ")
                if number == str(self._asked):
                    return answer
            return ""


@dataclass
class Session:
    """Running cluster with a known memory budget."""

    client: Any
    """Client of Dask. A run uses only the part of it that `curator_df.core.cluster_client.ClusterClient` defines."""
    layout: Layout
    """Processes, threads and memory."""
    limits_data: bool
    """Whether curator_df has set a hard data limit in the worker processes, which an exclusive task may raise."""
    sampler: PeakSampler | None = None
    """Sampler of the process tree, if all workers are on this node."""
    wall: Wall | None = None
    """Guard of the budget of all processes, where all workers are on this node."""
    workdir: str | None = None
    """Default folder for the results of ``find_`` operators, accessible to all workers."""
    working_folder: Callable[..., str] | None = None
    """Returns the folder for working files of looks and of tables that Dask computes, made at the first call; None: ``workdir``.
    With ``make=False``, returns the folder above it if it was not made."""
    compile: Callable[[Sequence[str]], object] | None = None
    """Compiles kernels, given their names, for workers that may not compile them."""
    revive: Callable[[], object] | None = None
    """Function that starts replacements for workers that are permanently gone."""
    workless_seconds: float = WORKER_START_SECONDS
    """Time in seconds that a run continues without any worker before it raises an error; jobs may wait in a queue."""
    patience: Patience = Patience()
    """Waiting times of a run for silent workers."""
    recycling: Recycling | None = None
    """Restarts of workers after a given use, if requested."""
    gpus: tuple[str, ...] = ()
    """GPUs of the workers in NVML's numbering; empty if they are on other machines."""
    unstarted: str = ""
    """Reason why no run can begin yet: the cluster was created, but not started. `explain` works nevertheless."""
    worker_limits: WorkerLimits | None = None
    """Limits that each worker must keep to run a task, if others start the workers and new ones may join."""
    verify: Callable[[], object] | None = None
    """Function that checks the workers before each run, and raises an error if they do not keep the budget."""
    client_bytes: int | None = None
    """Private resident bytes of this process when the session opened, if they are part of the budget."""
    client_limit: Callable[[], int] | None = None
    """Returns the bytes that the budget of a connection leaves to this process; None where no budget was named."""
    process: int = field(default_factory=os.getpid)
    """ID of the process that started it. A forked child lacks the threads that communicate with the cluster."""
    watchers: list[Callable[[Event], object]] = field(default_factory=list)
    """Functions that are called with each event of a run, in the thread of the run."""
    looks: Any = None
    """Passes of tables that were looked at (`deferred.Looks`), which a run takes over."""
    at_close: Callable[[], object] | None = None
    """Function that is called when the session closes, while its client still runs."""
    _limits_are_lowered: bool = False
    """Whether the workers' hard limits are below those of the layout, because of this process's memory."""

    @property
    def is_started_here(self) -> bool:
        """Whether `start_cluster` started the cluster on this node, so that its scheduler has no tasks of others."""
        return self.wall is not None

    def weigh_client(self) -> Layout:
        """Return the layout, minus the memory that this process has used since the session opened, for instance for a table.

        Workers release the objects that a ``.compute()`` or ``.head()`` has left; its imported packages count from now on.
        """
        if self.client.status == "running":
            for stays in self.client.run(clear_outside_runs, on_error="ignore").values():
                if stays:
                    self.keep(stays)
        if self.client_bytes is not None:
            layout = self.layout
            own = self.client_bytes + CLIENT_GROWTH_BYTES
            if layout.in_process:  # if workers are threads of this process, it is counted as theirs
                own += sum(kept_bytes for _, kept_bytes in layout.kept)
            if status_bytes("RssAnon") > own:
                release_free_memory()
            self.layout = layout.with_client_bytes(max(0, status_bytes("RssAnon") - own))
            self.lower_limits(0)
        return self.layout

    def lower_limits(self, result_bytes: int) -> None:
        """Lower the hard limits of the workers by the memory of this process, and by a result that it is about to receive."""
        taken_bytes = self.layout.client_bytes + result_bytes
        if self.limits_data and not self.layout.in_process and (taken_bytes or self._limits_are_lowered):
            self.client.run(lower_data_limit, taken_bytes // self.layout.node_workers, on_error="ignore")
            self._limits_are_lowered = bool(taken_bytes)

    def require_ready(self) -> None:
        """Raise `NoClusterError` if the cluster was created, but not started; `BudgetError` if its workers break the budget."""
        if self.unstarted:
            raise NoClusterError(self.unstarted)
        require_open(self.client, AGAIN)
        if self.verify is not None:
            self.verify()

    def keep(self, libraries: Mapping[str, int]) -> None:
        """Register the packages that a run has left in the workers: plans of later runs make room for them."""
        kept = {**dict(self.layout.kept), **libraries}
        self.layout = dataclasses.replace(self.layout, kept=tuple(sorted(kept.items())))

    def working(self, name: str, *, make: bool = True) -> Folder:
        """Return a folder for working files, which go with the cluster; only where there is a ``workdir``. Plans make none."""
        home = self.workdir if self.working_folder is None else self.working_folder(make=make)
        return Folder(str(home), is_durable=False).below(name)

    def emit(self, event: Event) -> None:
        """Pass an event to the watchers."""
        for watcher in list(self.watchers):
            watcher(event)


def prepare_kernels(session: Session, parts: Iterable[Any]) -> None:
    """Compile what sources and actions call (``compiled``, names of kernels), so that no worker has to."""
    kernels = dict.fromkeys(kernel for part in parts for kernel in getattr(part, "compiled", ()))
    if session.compile is not None:
        session.compile(tuple(kernels))


def open_session(session: Session) -> None:
    """Make a session the current one."""
    if dask.config.get("scheduler", None) is _refuse_to_compute:
        del dask.config.config["scheduler"]
    _open_sessions.append(session)
    _first_process.append(session.process)
    del _first_process[1:]
    _warned.clear()


def close_session(session: Session) -> None:
    """Remove a session; the one opened before it becomes current again."""
    if session in _open_sessions:
        _open_sessions.remove(session)
    if session.at_close is not None and session.process == os.getpid():  # in a forked child, the files are the parent's
        session.at_close()
        session.at_close = None


@contextlib.contextmanager
def planned_with(session: Session) -> Iterator[None]:
    """Let calls in this block plan for a session that is not open."""
    token = _planned.set(session)
    try:
        yield
    finally:
        _planned.reset(token)


def current_session() -> Session:
    """Return the latest open session, or the one that a plan is made for."""
    if (planned := _planned.get()) is not None:
        return planned
    if not _open_sessions:
        raise NoClusterError(
            "no cluster is running, so there is no memory budget. Put this code inside `with "
            "curator_df.start_cluster(memory='4GB'):`, or call curator_df.connect(client) to use a running cluster"
        )
    if _open_sessions[-1].process != os.getpid():
        raise _of_another_process(_open_sessions[-1].process)
    return _open_sessions[-1]


def refuse_after_fork() -> None:
    """Raise `NoClusterError` in a child that was forked after a cluster was started, also if that one is closed.

    Dask's threads exist only in the parent, but the child's copy of its pools takes them for alive, and waits for them.
    """
    if _first_process and _first_process[0] != os.getpid():
        raise _of_another_process(_first_process[0])


def has_session() -> bool:
    """Return whether a session of this process is open."""
    return any(session.process == os.getpid() for session in _open_sessions)


def has_session_in_process() -> bool:
    """Return whether an open session does its work in threads of this process, whose memory is limited for it."""
    return any(session.process == os.getpid() and session.layout.in_process for session in _open_sessions)


def warn_without_budget() -> None:
    """Warn, once until the next cluster starts, that Dask is about to compute a table of ours without a memory limit."""
    if _open_sessions or _warned or _planned.get() is not None:
        return
    _warned.append(True)
    warnings.warn(
        "No curator_df cluster is running, so Dask computes this table in the current process without a memory limit. To set "
        "one, start a cluster before you compute: cluster = curator_df.start_cluster(memory='4GB').",
        stacklevel=outside_level(),
    )


def _of_another_process(started: int) -> NoClusterError:
    return NoClusterError(
        f"The cluster was started by process {started:,}, and this is process {os.getpid():,}, a child that was forked from it. "
        "The threads that communicate with the cluster exist only in the first. Read, compute and write there, or start a "
        "cluster in a child that multiprocessing starts with the method 'spawn'"
    )


def _refuse_to_compute(*_: Any, **__: Any) -> Any:
    raise _of_another_process(_open_sessions[-1].process if _open_sessions else os.getppid())


def _after_fork() -> None:
    """Prevent a process that was forked from that of a cluster from waiting for threads that it lacks."""
    if not _open_sessions:
        return
    from distributed import client
    from distributed.deploy.spec import SpecCluster

    # The objects that Dask closes when a process ends, and its client, belong to the other process.
    client._global_clients.clear()
    getattr(multiprocessing.process, "_children", set()).clear()
    SpecCluster._instances.clear()
    dask.config.config["scheduler"] = _refuse_to_compute  # `set` takes a lock, which another thread may have had


os.register_at_fork(after_in_child=_after_fork)

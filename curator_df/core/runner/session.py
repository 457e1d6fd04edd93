# SPDX-License-Identifier: Apache-2.0
"""The running cluster with its budget, as the runner sees it; and the process that measures the peak.

`curator_df.cluster` starts clusters and puts a `Session` here; `current_session` finds the latest that is open.
"""

from __future__ import annotations

import dataclasses
import multiprocessing.process
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask

from curator_df.core.files.storage import Folder
from curator_df.core.memory import guard, peak
from curator_df.core.memory.budget import CLIENT_GROWTH_BYTES, Layout
from curator_df.core.memory.held import release_bare
from curator_df.core.memory.limits import lower_data_limit, release_free_memory, status_bytes
from curator_df.core.memory.wall import Wall
from curator_df.core.runner.events import Event
from curator_df.core.tasks.worker_limits import WorkerLimits
from curator_df.errors import NoClusterError, is_library

if TYPE_CHECKING:
    from curator_df.core.runner.recycling import Recycling

WORKER_START_SECONDS = 120.0
"""How long a run goes on without any worker, where workers are processes that a nanny starts again."""


@dataclass(frozen=True)
class Patience:
    """How long a run waits for a cluster that tells it nothing."""

    watch_seconds: float = 2.0
    """How often a silent cluster is asked whether it still has workers."""
    revive_seconds: tuple[float, ...] = (10.0, 30.0, 60.0, 90.0)
    """After this long without any worker new ones are started, unless some are starting."""
    stop_seconds: float = 20.0
    """How long a run that ends early waits for its tasks, which end at their next block."""


_open_sessions: list[Session] = []
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
        process is also the guard of this wall (`curator_df.core.memory.guard`).
    """

    def __init__(self, *, exact: bool = False, guarding: tuple[str, int, int] | None = None) -> None:
        # -S and -E: no site-packages, so that it starts in 20 ms and stays at 9 MB.
        command = [
            sys.executable,
            "-S",
            "-E",
            str(Path(peak.__file__ if guarding is None else guard.__file__)),
            str(os.getpid()),
        ]
        if guarding is not None:
            folder, wall_bytes, exclusive_bytes = guarding
            command += [str(wall_bytes), str(exclusive_bytes), folder]
        elif exact:
            command.append("--exact")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._asked = 0
        self._asking = threading.Lock()  # the runner asks, and whoever serves or shows figures

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def take(self) -> int:
        """Return the most bytes seen since the last call, and start anew."""
        return self._ask("reset")

    def seen(self) -> int:
        """Return the most bytes seen since the last `take`."""
        return self._ask("peak")

    def now(self) -> int:
        """Return the bytes of the last sample."""
        return self._ask("now")

    def trace(self) -> list[tuple[float, int]]:
        """Return seconds since the last `take` and the most bytes seen up to then, in at most 400 equal steps."""
        step, *points = (self._line("trace") or "0").split()
        return [(round((number + 1) * float(step), 3), int(point)) for number, point in enumerate(points)]

    def close(self) -> None:
        """End the process."""
        with self._asking:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process.wait(timeout=5)

    def _ask(self, command: str) -> int:
        return int(self._line(command) or 0)

    def _line(self, command: str) -> str:
        with self._asking:
            if self._process.poll() is not None or self._process.stdin is None or self._process.stdout is None:
                return ""
            # Numbered: where Ctrl-C came between a question and its answer, that answer is still to be read.
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
    """A running cluster whose memory is known."""

    client: Any
    """Dask's client. A run uses no more of it than `curator_df.core.cluster_client.ClusterClient` has."""
    layout: Layout
    """Processes, threads and bytes."""
    limits_data: bool
    """Whether the worker processes have a hard data limit of ours (and an exclusive task may raise it)."""
    sampler: PeakSampler | None = None
    """Measures the tree, where all workers are on this node."""
    wall: Wall | None = None
    """What ends whatever passes the number, where all workers are on this node."""
    workdir: str | None = None
    """Where ``find_`` operators leave their results by default; all workers see it."""
    working_folder: Callable[[], str] | None = None
    """Returns the folder for what looks and tables of Dask write, made when it is first asked for; None: ``workdir``."""
    compile: Callable[[Sequence[str]], object] | None = None
    """Compiles kernels, given their names, for workers that may not compile them."""
    revive: Callable[[], object] | None = None
    """Starts workers in the place of those that are gone for good."""
    workless_seconds: float = WORKER_START_SECONDS
    """How long a run goes on without any worker before it ends with an error; jobs may wait in a queue."""
    patience: Patience = Patience()
    """How long a run waits for workers that are silent."""
    recycling: Recycling | None = None
    """Starts workers again after so much, where that was asked for."""
    gpus: tuple[str, ...] = ()
    """GPUs that the workers have, as NVML counts them; none where they are on other machines."""
    unstarted: str = ""
    """Why no run can begin yet: the cluster was made, and not started. `explain` works all the same."""
    worker_limits: WorkerLimits | None = None
    """What each worker must keep for a task to run on it, where workers are not ours and others may come."""
    verify: Callable[[], object] | None = None
    """Looks at the workers before each run, and raises if they do not keep the budget."""
    client_bytes: int | None = None
    """Private resident bytes of this process when the session opened, where they are part of the budget."""
    process: int = field(default_factory=os.getpid)
    """Number of the process that started it. One that is forked from it has no threads that could talk to the cluster."""
    watchers: list[Callable[[Event], object]] = field(default_factory=list)
    """Called with what happens in a run, in the thread that runs it."""
    looks: Any = None
    """Passes of tables that were looked at (`deferred.Looks`), which a run takes over."""
    at_close: Callable[[], object] | None = None
    """Called when the session closes, while its client still runs."""
    _limits_are_lowered: bool = False
    """Whether the workers' hard limits are lower than the layout says, because of what this process holds."""

    def weigh_client(self) -> Layout:
        """Return the layout, with less for work by what this process has taken since the session opened, such as a table.

        Workers let go of what a ``.compute()`` or ``.head()`` has left there; the packages that it imported count from now on.
        """
        if self.client.status == "running":
            for stays in self.client.run(release_bare, on_error="ignore").values():
                if stays:
                    self.keep(stays)
        if self.client_bytes is not None:
            layout = self.layout
            own = self.client_bytes + CLIENT_GROWTH_BYTES
            if layout.in_process:  # where workers are threads of this process, it is counted as theirs
                own += sum(kept_bytes for _, kept_bytes in layout.kept)
            if status_bytes("RssAnon") > own:
                release_free_memory()
            self.layout = layout.beside(max(0, status_bytes("RssAnon") - own))
            self.lower_limits(0)
        return self.layout

    def lower_limits(self, result_bytes: int) -> None:
        """Lower the hard limits of the workers by what this process has taken, and by a result that it is about to take."""
        taken_bytes = self.layout.client_bytes + result_bytes
        if self.limits_data and not self.layout.in_process and (taken_bytes or self._limits_are_lowered):
            self.client.run(lower_data_limit, taken_bytes // self.layout.node_workers, on_error="ignore")
            self._limits_are_lowered = bool(taken_bytes)

    def require_ready(self) -> None:
        """Raise `NoClusterError` if the cluster was made, and not started; `BudgetError` if its workers break the budget."""
        if self.unstarted:
            raise NoClusterError(self.unstarted)
        if self.verify is not None:
            self.verify()

    def keep(self, libraries: Mapping[str, int]) -> None:
        """Note which packages a run has left in the workers: plans of later runs have room for them."""
        kept = {**dict(self.layout.kept), **libraries}
        self.layout = dataclasses.replace(self.layout, kept=tuple(sorted(kept.items())))

    def working(self, name: str) -> Folder:
        """Return a folder for working files, which go with the cluster; only where there is a ``workdir``."""
        home = self.workdir if self.working_folder is None else self.working_folder()
        return Folder(str(home), is_durable=False).below(name)

    def tell(self, event: Event) -> None:
        """Tell the watchers of something that happened."""
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
    _warned.clear()


def close_session(session: Session) -> None:
    """Take a session away; the one opened before it is current again."""
    if session in _open_sessions:
        _open_sessions.remove(session)
    if session.at_close is not None and session.process == os.getpid():  # in a forked child, the files are the parent's
        session.at_close()
        session.at_close = None


def current_session() -> Session:
    """Return the latest open session."""
    if not _open_sessions:
        raise NoClusterError(
            "no cluster is running, so there is no budget to keep. Start one: "
            "with curator_df.start_cluster(memory='4GB'): ... (or curator_df.connect(client) for a running one)"
        )
    if _open_sessions[-1].process != os.getpid():
        raise _of_another_process(_open_sessions[-1].process)
    return _open_sessions[-1]


def has_session() -> bool:
    """Tell whether a session of this process is open."""
    return any(session.process == os.getpid() for session in _open_sessions)


def warn_without_budget() -> None:
    """Warn, once until the next cluster starts, that Dask is about to compute a table of ours without a memory limit."""
    if _open_sessions or _warned:
        return
    _warned.append(True)
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and is_library(frame.f_code.co_filename):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(
        "No curator_df cluster is running, so Dask computes this table in the current process without a memory limit. To set "
        "one, start a cluster before you compute: cluster = curator_df.start_cluster(memory='4GB').",
        stacklevel=depth,
    )


def _of_another_process(started: int) -> NoClusterError:
    return NoClusterError(
        f"The cluster was started by process {started:,}, and this is process {os.getpid():,}, a child that was forked from it. "
        "The threads that talk to the cluster exist in the first one only. Read, compute and write there, or start a cluster in "
        "the child, best in one that multiprocessing starts with the method 'spawn'"
    )


def _refuse_to_compute(*_: Any, **__: Any) -> Any:
    raise _of_another_process(_open_sessions[-1].process if _open_sessions else os.getppid())


def _after_fork() -> None:
    """Keep a process that was forked from that of a cluster from waiting for threads that it does not have."""
    if not _open_sessions:
        return
    from distributed import client
    from distributed.deploy.spec import SpecCluster

    # What Dask closes when a process ends, and the client that it computes with: those of the other process.
    client._global_clients.clear()
    getattr(multiprocessing.process, "_children", set()).clear()
    SpecCluster._instances.clear()
    dask.config.config["scheduler"] = _refuse_to_compute  # `set` takes a lock, which another thread may have had


os.register_at_fork(after_in_child=_after_fork)

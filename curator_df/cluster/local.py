# SPDX-License-Identifier: Apache-2.0
"""Cluster on this machine whose layout, limits and thresholds follow from one number of bytes.

Everything is bound to the loopback interface. Each worker process gets a hard data limit (`curator_df.cluster.preload`);
Dask's own thresholds are just above it, so that an allocation fails, and the block is halved, before a nanny kills the worker.
"""

from __future__ import annotations

import copy
import html
import importlib
import logging
import multiprocessing
import os
import re
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.util import Finalize
from typing import Any, Literal, Self

import dask
from distributed import wait
from distributed.security import Security

from curator_df.cluster.beside_start import make_beside_start
from curator_df.cluster.cgroups import CGROUP_VARIABLE, MemoryCgroup
from curator_df.cluster.clock_jump import watch_streams
from curator_df.cluster.compiling import compile_kernels
from curator_df.cluster.cuda import Devices, choose_devices, describe_gpus, gpu_layout, start_gpu_workers
from curator_df.cluster.dashboard import dashboard_at, open_at_first_visit, without_pages_of_workers
from curator_df.cluster.preload import KERNEL_BYTES, WORK_BYTES_VARIABLE, prepare_process, tighten_limit
from curator_df.cluster.settings import (
    LOG_MESSAGES,
    PRELOAD,
    SilentLogs,
    worker_environment,
    worker_memory_limit,
    worker_settings,
)
from curator_df.cluster.spill_folder import SpillFolder, WorkingFolder, new_spill_folder, spill_room
from curator_df.cluster.surroundings import (
    MAIN_GUARD,
    Held,
    fits,
    in_brackets,
    loopback_host,
    measure_held,
    prepare_surroundings,
    refuse_second_cluster,
    require_address_space,
    require_importable_program,
    require_room,
    require_threads,
    smaller_layout,
    start_failure,
)
from curator_df.cluster.transport import UCX_REMARK, as_security, protocol_arguments, require_processes_for
from curator_df.cluster.worker_processes import (
    BoundedClient,
    BoundedCluster,
    EndingNanny,
    StartDeadline,
    close_client,
    close_or_kill,
    is_starting,
    replace_workers,
    suppressed_end_of_loop,
    wait_for_workers,
)
from curator_df.core.cleaning_up import clean_up, undoing
from curator_df.core.runner.recycling import RecycleAfter, Recycling, read_recycle_after, require_processes
from curator_df.core.runner.session import (
    PeakSampler,
    Session,
    close_session,
    has_session,
    open_session,
    refuse_after_fork,
)
from curator_df.errors import CuratorError, NoClusterError, ParameterError
from curator_df.files.working_files import FOUND_FOLDER
from curator_df.memory.budget import (
    CLIENT_GROWTH_BYTES,
    CLIENT_PRIVATE_BYTES,
    Baseline,
    Layout,
    choose_layout,
    parse_memory,
    worker_rss_bytes,
)
from curator_df.memory.counted_memory import children_bytes
from curator_df.memory.limits import release_free_memory
from curator_df.memory.sizes import show_size
from curator_df.memory.small_input import WHY_ASKED, WHY_THREADS, small_input
from curator_df.memory.system import data_limit, set_data_limit, status_bytes
from curator_df.memory.wall import WALL_VARIABLE, Wall, leave_wall, stand_in
from curator_df.suggestions import suggests_names

CLIENT_THREADS = 8
"""Number of threads in process for whose stacks (address space, hardly touched) the limit leaves space."""
MOST_STARTS = 4
"""Maximum number of times that workers are started, each time in a smaller layout, until their memory fits."""


@suggests_names
class Cluster:
    """Cluster on this machine that keeps a budget. Use it in a ``with`` statement, or call `close`.

    See Also
    --------
    start_cluster, connect
    """

    def __init__(
        self,
        layout: Layout,
        spill: SpillFolder,
        spill_bytes: int,
        dashboard: Any,
        workdir: str,
        *,
        host: str,
        choose: Callable[[Baseline], Layout],
        recycle_after: RecycleAfter | None,
        comm: dict[str, Any],
        devices: Devices | None,
        gpus: str,
    ) -> None:
        self.layout = layout
        self._spill, self._spill_bytes = spill, spill_bytes
        self._comm, self._devices, self._gpus, self._host = comm, devices, gpus, host
        self._own_limit: tuple[int, int] | None = None
        self._cgroup: MemoryCgroup | None = None
        self._pid = os.getpid()
        self._at_exit: Finalize | None = None
        self._local: Any = None
        self.client: Any = None
        self._deadline = StartDeadline()
        self._later_bytes = 0
        with undoing() as undo:
            undo.callback(SilentLogs().end)
            undo.callback(spill.delete)
            self._wall = Wall(f"{spill.path}/wall", layout.memory_argument)
            undo.callback(self._wall.close)
            undo.callback(self._leave_cgroup)
            undo.callback(self._stop)
            self._start_until_it_fits(dashboard, workdir, recycle_after, choose)
            if self.layout.in_process:
                undo.callback(leave_wall)
                stand_in(self._wall.folder, is_users=True)
            undo.callback(self._end_session)
            self._open_session(WorkingFolder(workdir) if not workdir.startswith(f"{spill.path}/") else None)
            self._undo = undo.pop_all()
        if multiprocessing.parent_process() is not None:
            # When multiprocessing ends a child, it waits for the workers, without calling Dask's exit handlers.
            self._at_exit = Finalize(None, self.close, exitpriority=100)

    def _start_until_it_fits(
        self, dashboard: Any, workdir: str, recycle_after: RecycleAfter | None, choose: Callable[[Baseline], Layout]
    ) -> None:
        for starts in range(1, MOST_STARTS + 1):
            self._start(dashboard, workdir, recycle_after)
            held = self._prepare()
            if fits(self.layout, held) or starts == MOST_STARTS:
                require_room(self.layout, held)
                break
            smaller = smaller_layout(self.layout, held, choose)
            self._stop()
            self._deadline.renew()
            self.layout = smaller
        self._deadline.lift()

    def _open_session(self, working: WorkingFolder | None) -> None:
        guarding = (self._wall.folder, self.layout.wall_bytes, self.layout.exclusive_bytes)
        self._session.sampler = PeakSampler(guarding=guarding)
        # By name: they import the engine and Dask's tables, which a start need not wait for (decision 0036).
        self._session.at_close = importlib.import_module("curator_df.interactive.operations").keep_budget_of_dask(
            self._session,
            owns_workers=True,
            spool_on=importlib.import_module("curator_df.io.output.spool").spool_on,
            working=working,
        )
        open_session(self._session)

    def _end_session(self) -> None:
        try:
            close_session(self._session)
        finally:
            if self._session.sampler is not None:
                self._session.sampler.close()
                self._session.sampler = None

    def _leave_cgroup(self) -> None:
        if self._cgroup is not None:
            self._cgroup.close()

    def _start(self, dashboard: Any, workdir: str, recycle_after: RecycleAfter | None) -> None:
        layout = self.layout
        if layout.in_process:
            self._start_in_process(dashboard)
        else:
            self._start_workers(dashboard)
        self._deadline.renew()
        with dask.config.set({"distributed.admin.low-level-log-length": LOG_MESSAGES}):  # for its connection too
            self.client = BoundedClient(self._local, deadline=self._deadline)
        watch_streams(self.client, self._local)
        self._session = Session(
            self.client,
            layout,
            limits_data=self._devices is None,
            wall=self._wall,
            workdir=workdir,
            revive=self._revive,
            # Workers are idle then: what they may take for work is free.
            compile=partial(compile_kernels, room_bytes=layout.allowed_bytes - layout.reserved_bytes),
            recycling=None if recycle_after is None else Recycling(recycle_after, layout.workers),
            gpus=() if self._devices is None else self._devices.names,
        )

    def _start_workers(self, dashboard: Any) -> None:
        layout = self.layout
        environment = worker_environment(layout, self._wall)
        for name in (WALL_VARIABLE, CGROUP_VARIABLE):
            os.environ.pop(name, None)  # nannies leave that of an earlier cluster in this process
        self._cgroup = self._cgroup or MemoryCgroup.make(layout.allowed_bytes)
        if self._cgroup is not None:
            self._wall.says = (
                f"the kernel, in the cgroup {self._cgroup.path}, and a guard process that reports what was killed"
            )
            environment[CGROUP_VARIABLE] = f"{layout.exclusive_bytes + worker_rss_bytes()} {self._cgroup.path}"
        if self._devices is not None:
            del environment[WORK_BYTES_VARIABLE]
            os.environ.pop(WORK_BYTES_VARIABLE, None)  # nannies leave that of an earlier cluster in this process
        with dask.config.set(_settings(layout, self._spill.path, self._spill_bytes // layout.workers, environment)):
            # Nannies share Dask's own dictionary and would start lost workers again, later, without these settings.
            config = copy.deepcopy(dask.config.config)
            if self._devices is not None:
                self._local = start_gpu_workers(
                    layout,
                    self._devices,
                    spill_directory=self._spill.path,
                    host=self._host,
                    dashboard=dashboard,
                    config=config,
                    comm=self._comm,
                )
                wait_for_workers(self._local, layout.workers)
                return
            self._local = BoundedCluster(
                deadline=self._deadline,
                n_workers=0,
                threads_per_worker=layout.threads,
                processes=True,
                worker_class=EndingNanny,
                memory_limit=worker_memory_limit(layout),
                host=in_brackets(self._host),
                dashboard_address=dashboard,
                scheduler_kwargs={"dashboard_address": dashboard or dashboard_at(self._host, 0), "dashboard": False},
                worker_dashboard_address=dashboard_at(self._host, 0),
                local_directory=self._spill.path,
                preload=[PRELOAD],
                preload_nanny=[PRELOAD],
                env=environment,
                config=config,
                silence_logs=logging.CRITICAL,
                **self._comm,
            )
            without_pages_of_workers(self._local).scale(layout.workers)
            # The client imports the rest while its workers start: both take more than a second of CPU (decision 0036).
            make_beside_start()
            import_rest()
            self._offer(dashboard)
            wait_for_workers(self._local, layout.workers, self._deadline)

    def _start_in_process(self, dashboard: Any) -> None:
        with dask.config.set(_settings(self.layout, self._spill.path, None, {})):
            self._local = BoundedCluster(
                deadline=self._deadline,
                n_workers=0,
                threads_per_worker=self.layout.threads,
                processes=False,
                # Dask would watch the resident memory of this process, of which the user's own tables are a part.
                memory_limit=0,
                dashboard_address=dashboard,
                scheduler_kwargs={"dashboard_address": dashboard or dashboard_at(self._host, 0), "dashboard": False},
                worker_dashboard_address=dashboard_at(self._host, 0),
                silence_logs=logging.CRITICAL,
            )
            without_pages_of_workers(self._local).scale(1)
            self._offer(dashboard)
            self._local.wait_for_workers(1)

    def _offer(self, dashboard: Any) -> None:
        """Offer the dashboard, if it has an address, and note the memory that a visit will take."""
        if dashboard is not None:
            self._later_bytes = open_at_first_visit(self._local, self._note_dashboard)

    def _note_dashboard(self) -> None:
        """Count what the dashboard took as reserved for it, and not as used by the program of the user."""
        if self._session.client_bytes is not None:
            self._session.client_bytes += self._later_bytes

    def _prepare(self) -> Held:
        """Set the limits of all processes, and return the memory they hold."""
        layout = self.layout
        make_beside_start()
        import_rest()
        if layout.in_process:
            prepare_process()
            self._own_limit = data_limit()
        naps = self.client.map(time.sleep, [0.05] * layout.workers * layout.threads, pure=False)
        wait(naps)  # so that every worker thread exists
        del naps
        if self._devices is None:
            # In this process the limit also applies to the client: journal, progress bars, threads that close the cluster.
            own = {"threads": CLIENT_THREADS, "later_bytes": self._later_bytes} if layout.in_process else {}
            self.client.run(tighten_limit, layout.work_bytes, **own)
        release_free_memory()
        require_threads()
        workers = () if layout.in_process else self.client.run(os.getpid).values()
        held = measure_held(workers, self._later_bytes).plus(KERNEL_BYTES)
        self._session.client_bytes = status_bytes("RssAnon")
        if layout.in_process:  # the whole baseline is for this process, which may grow into the unused part
            own_bytes = layout.reserved_bytes - layout.library_bytes
            self._session.client_bytes += max(0, own_bytes - held.total_bytes - CLIENT_GROWTH_BYTES)
        return held

    def _revive(self) -> None:
        """Make the cluster start missing workers, unless some are starting.

        On a loaded machine that may take long, and a nanny closed during that time would wait for its worker without a limit:
        the cluster could never start another worker.
        """
        if is_starting(self._local):
            return
        replace_workers(self._local, self.layout.workers)

    @property
    def dashboard_link(self) -> str:
        """Address of Dask's dashboard, on this machine only."""
        # In process, Dask would show this machine's address, although the dashboard is bound to the loopback interface.
        return re.sub("//[^/]*?:(?=[0-9]+/)", f"//{in_brackets(self._host)}:", str(self._local.dashboard_link))

    def close(self) -> None:
        """Stop the workers and delete their spilled data. In a process that was forked from this one, do nothing."""
        if self._pid != os.getpid():
            return
        if self._at_exit is not None:
            self._at_exit.cancel()
            self._at_exit = None
        self._undo.close()

    def _stop(self) -> None:
        with ExitStack() as undo:
            if self._own_limit is not None:
                undo.callback(set_data_limit, *self._own_limit)
                self._own_limit = None
            if self._local is not None:
                undo.callback(close_or_kill, self._local, self._deadline.close_seconds)
            if self.client is not None:
                with suppressed_end_of_loop(), suppress(TimeoutError):
                    close_client(self.client, timeout=self._deadline.close_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        clean_up(exc, self.close)

    def _lines(self) -> list[tuple[str, str]]:
        layout = self.layout
        of_processes = [
            *([("security", "TLS")] if self._comm.get("security") is not None else []),
            *([("protocol", UCX_REMARK)] if "protocol" in self._comm else []),
            ("spill", f"{self._spill.path}, at most {show_size(self._spill_bytes)}"),
        ]
        is_open = self.client is not None and self.client.status == "running"
        return [
            *([] if is_open else [("status", "closed; start another cluster to run more")]),
            ("memory", f"{show_size(layout.allowed_bytes)} for all processes together"),
            ("layout", f"{layout.shape}, {show_size(layout.work_bytes)} of working memory for each process"),
            ("why", layout.reason),
            ("wall", self._wall.says),
            *([("gpus", self._gpus)] if self._gpus else []),
            *([] if layout.in_process else of_processes),
        ]

    def __repr__(self) -> str:
        lines = [*self._lines(), ("dashboard", self.dashboard_link)]
        return "\n".join(f"{name:<10} {value}" for name, value in lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._lines()
        )
        link = html.escape(self.dashboard_link)
        return f"<table>{rows}<tr><th style='text-align:left'>dashboard</th><td><a href='{link}'>{link}</a></td></tr></table>"


def start_cluster(
    *,
    memory: str | int | None = None,
    cpus: int | None = None,
    processes: bool = True,
    gpus: int | Literal["auto"] = 0,
    device_memory: str | int | None = None,
    security: bool | Security = False,
    protocol: Literal["tcp", "ucx"] = "tcp",
    spill_directory: str | os.PathLike[str] | None = None,
    spill_limit: str | int | None = None,
    workdir: str | os.PathLike[str] | None = None,
    dashboard_port: int | None = 0,
    recycle_after: str | int | None = None,
) -> Cluster:
    """Start workers on this machine that together never use more than ``memory``.

    Parameters
    ----------
    memory : str or int, optional
        Budget of the whole process tree: this process, scheduler, nannies and workers; ``"4GB"`` is 4 x 10^9.
        Defaults to 60% of the memory of the machine or its cgroup.
    cpus : int, optional
        Maximum number of concurrent threads; defaults to all usable CPUs. With GPUs there is one for each GPU
        where blocks are on GPUs; while blocks stay on the host, a worker may use its share of these CPUs.
    processes : bool
        Whether workers may be processes, if the budget has room for them. False runs all tasks in threads of this process:
        they start in less than half the time, but take turns at what Python itself does, and a crash in a step ends
        your program.
    gpus : int or "auto"
        GPUs to use, with one worker process for each; ``"auto"`` uses all GPUs, or the CPU if there is none, and the
        cluster says which. See ``docs/gpu.md`` for what runs on them.
    device_memory : str or int, optional
        Bytes that may be allocated on each GPU (by RMM; CUDA's own context is not included). Defaults to 80% of the
        smallest.
    security : bool or distributed.Security
        TLS between client, scheduler and workers: True creates credentials that expire with the cluster. Nothing
        listens beyond 127.0.0.1 (``::1`` where the machine has only IPv6) either way.
    protocol : "tcp" or "ucx"
        Protocol between client, scheduler and workers. UCX (the ``ucx`` extra) uses NVLink between GPUs that have it. It
        listens on all networks of this machine and has no TLS. No operator sends blocks between workers, so this is for
        your own computations on the cluster.
    spill_directory : path, optional
        Where workers spill data that does not fit in memory. A subfolder is created there and deleted at the end, or at
        the next start if this process is killed. Defaults to the system's temporary directory.
    spill_limit : str or int, optional
        Maximum disk for spilling; defaults to half of the free space there.
    workdir : str or path, optional
        Folder (or URL) for the results of ``find_`` operators; defaults to one that is deleted at the end.
    dashboard_port : int or None
        Port of Dask's dashboard on 127.0.0.1; 0 picks a free one, None disables the dashboard.
    recycle_after : str or int, optional
        Restart each worker after a number of tasks (``1000``), after a time (``"2h"``), or when it holds this much more
        than after its first task (``"500MB"``). Workers restart one after the other, when no task runs, so no work is lost.
        By default a worker is restarted only if it is found to leak, which happens with any setting.

    Returns
    -------
    Cluster
        A cluster on this machine that keeps the budget. Use it in a ``with`` statement. It displays itself in a
        notebook, with a link to the dashboard.

    Raises
    ------
    BudgetError
        If ``memory`` is below the minimum, more than the machine has, or less than this process leaves available; or if
        ``device_memory`` is more than a GPU has.
    ParameterError
        If ``gpus`` exceeds the number of GPUs; if ``protocol`` is not installed, or has no TLS; or if an argument needs worker
        processes, but there are none.
    NoClusterError
        If the worker processes do not start, for example in a script without ``if __name__ == "__main__":``.

    See Also
    --------
    connect, slurm_cluster, explain

    Notes
    -----
    Computes: no. See ``docs/memory.md#layouts``.

    The layout depends on the budget, unless ``processes=False``: worker processes if each thread gets 320 MB, below that
    one process with several threads, below that threads of this process.

    Examples
    --------
    >>> with cdf.start_cluster(memory="4GB") as cluster:  # doctest: +SKIP
    ...     receipt = cdf.write_parquet(cdf.read_jsonl("corpus/"), "clean/")
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise NoClusterError(MAIN_GUARD)
    refuse_after_fork()
    prepare_surroundings()
    require_address_space()
    devices, comm = choose_devices(gpus, device_memory), protocol_arguments(protocol, as_security(security))
    why_threads = _why_threads(
        processes,
        {"gpus": devices and gpus, "protocol": None if protocol == "tcp" else protocol, "recycle_after": recycle_after},
    )
    if devices is not None:
        importlib.import_module("cudf")  # dask-cuda will import it; its memory in this process is measured now
    release_free_memory()
    held_bytes = max(0, status_bytes("RssAnon") - CLIENT_PRIVATE_BYTES)
    if not has_session():  # for a second cluster see `refuse_second_cluster`
        held_bytes += children_bytes(os.getpid())
    allowed_bytes, recycle = parse_memory(memory), read_recycle_after("start_cluster", recycle_after)

    def choose(baseline: Baseline | None) -> Layout:
        held = held_bytes if baseline is None else 0  # a measured baseline includes it
        if devices is None:
            layout = choose_layout(allowed_bytes, cpus=cpus, held_bytes=held, baseline=baseline, in_threads=why_threads)
        else:
            layout = gpu_layout(allowed_bytes, devices, held, cpus, baseline=baseline)
        require_processes_for(protocol, layout)
        require_processes(recycle, layout, held_bytes)
        return layout

    layout = choose(None)
    refuse_second_cluster(layout)
    if not layout.in_process:
        require_importable_program()
    parent, spill_bytes = spill_room(spill_directory, spill_limit)
    host = loopback_host(connects=not layout.in_process)
    dashboard = None if dashboard_port is None else dashboard_at(host, dashboard_port)
    spill = new_spill_folder(parent)
    found = f"{spill.path}/{FOUND_FOLDER}" if workdir is None else os.fspath(workdir)
    try:
        return Cluster(
            layout,
            spill,
            spill_bytes,
            dashboard,
            found,
            host=host,
            choose=choose,
            recycle_after=recycle,
            comm=comm,
            devices=devices,
            gpus=describe_gpus(gpus, devices),
        )
    except BaseException as exc:
        clean_up(exc, spill.delete)
        named = None if isinstance(exc, CuratorError) else start_failure(exc, parent)
        if named is None:
            raise
        raise named from exc


def _why_threads(processes: bool, needs: dict[str, Any]) -> str:
    """Return why tasks run in threads of this process although worker processes would fit; empty if they need not.

    ``needs`` has the arguments that need worker processes, if they are given.
    """
    if not isinstance(processes, bool):
        raise ParameterError(
            f"start_cluster: processes={processes!r} must be True or False. cpus= limits the number of concurrent tasks"
        )
    given = [f"{name}={value!r}" for name, value in needs.items() if value]
    if processes:
        return "" if given or not small_input.get() else WHY_THREADS
    if given:
        raise ParameterError(
            f"start_cluster: {given[0]} needs worker processes, and processes=False starts none. Leave out one of the two"
        )
    return WHY_ASKED


def import_rest() -> None:
    """Import what the client of a cluster needs: while the workers start, and before its memory is measured.

    This module imports only what starts a cluster.
    """
    package = importlib.import_module("curator_df")
    for name in package.__all__:
        getattr(package, name)


def _settings(layout: Layout, directory: str, spill_bytes: int | None, environment: dict[str, str]) -> dict[str, Any]:
    return {
        "temporary-directory": directory,  # a scheduler makes a folder there, and leaves it behind
        **worker_settings(layout, spill_bytes),
        "distributed.nanny.pre-spawn-environ": environment,
        "distributed.scheduler.allowed-failures": 1,
    }

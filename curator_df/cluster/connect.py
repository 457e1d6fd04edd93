# SPDX-License-Identifier: Apache-2.0
"""Use a running cluster, after checking that its workers' limits keep the budget."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator
from typing import Any, Self

import psutil
from distributed import Client
from distributed.comm.core import CommClosedError
from distributed.security import Security

from curator_df.arguments import path_of
from curator_df.cluster.clock_jump import watch_streams
from curator_df.cluster.compiling import NodeCompiler
from curator_df.cluster.connected_workers import ConnectedNanny, ConnectedWorker
from curator_df.cluster.spill_folder import WorkingFolder
from curator_df.cluster.worker_devices import verified_devices
from curator_df.cluster.worker_processes import ClosingClient, close_client, leave_nannies
from curator_df.core.cleaning_up import clean_up
from curator_df.core.runner.lost_scheduler import scheduler_lost
from curator_df.core.runner.recycling import RecycleAfter, Recycling, read_recycle_after
from curator_df.core.runner.session import Session, close_session, open_session
from curator_df.core.runner.shared_plugins import remove_left_behind, share_plugin
from curator_df.core.tasks.worker_limits import WorkerLimits
from curator_df.errors import BudgetError, NoClusterError, ParameterError
from curator_df.interactive.operations import keep_budget_of_dask
from curator_df.io.output.spool import spool_on
from curator_df.memory.budget import CLIENT_RESERVED_BYTES, MARGIN_FRACTION, Layout, worker_rss_bytes
from curator_df.memory.sizes import read_size, show_count, show_size, show_sizes
from curator_df.suggestions import suggests_names


@suggests_names
class Connection:
    """A connection to a running cluster that keeps the budget. Use it in a ``with`` statement, or call `close`.

    See Also
    --------
    connect, start_cluster
    """

    def __init__(
        self,
        client: Client,
        layout: Layout,
        *,
        owns_client: bool,
        workdir: str | None,
        recycle_after: RecycleAfter | None,
        limits: WorkerLimits,
        allowed_bytes: int | None,
        gpus: str,
    ) -> None:
        self.client, self.layout, self._gpus = client, layout, gpus
        self._limits, self._allowed_bytes = limits, allowed_bytes
        with contextlib.ExitStack() as undo:
            if owns_client:
                undo.callback(close_client, client)
            compiler = NodeCompiler(client)
            undo.callback(compiler.close)
            undo.callback(watch_streams(client))
            undo.callback(leave_nannies(client.cluster))
            remove_left_behind(client)
            with _naming_what_a_worker_lacks():
                undo.callback(share_plugin(client, ConnectedWorker(layout.work_bytes)))
                undo.callback(share_plugin(client, ConnectedNanny()))
            session = Session(
                client,
                layout,
                limits_data=False,
                workdir=workdir,
                recycling=None if recycle_after is None else Recycling(recycle_after, layout.workers),
                compile=compiler,
                worker_limits=limits,
                verify=self._verify,
                client_limit=None if allowed_bytes is None else self._client_limit,
            )
            undo.callback(close_session, session)
            session.at_close = keep_budget_of_dask(
                session,
                owns_workers=False,
                spool_on=spool_on,
                working=None if workdir is None else WorkingFolder(workdir),
            )
            open_session(session)
            self._undo = undo.pop_all()

    def _verify(self) -> None:
        """Raise `BudgetError` if new workers break the budget; between two runs there may be none."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"] if self.client.status == "running" else {}
        for address, worker in workers.items():
            if error := self._limits.broken_by(address, worker["memory_limit"], worker["nthreads"]):
                raise error
        if workers:
            verify_workers(workers, self._allowed_bytes)

    def _client_limit(self) -> int:
        """Return the bytes of the budget that the workers on this machine leave to this process."""
        here = {one.address for interface in psutil.net_if_addrs().values() for one in interface}
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return (self._allowed_bytes or 0) - sum(int(one["memory_limit"]) for one in workers if one["host"] in here)

    def close(self) -> None:
        """Disconnect from the cluster, which keeps running. Its workers get their own settings back with the last connection."""
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        clean_up(exc, self.close)

    def __repr__(self) -> str:
        if self.client.status != "running":
            return "a connection to a cluster, closed. Connect again to run more"
        workers, threads = show_count(self.layout.workers, "worker"), show_count(self.layout.threads, "thread")
        return (
            f"connected to {self.client.scheduler.address}: {workers} x {threads}, "
            f"{show_size(self.layout.work_bytes)} of working memory for each; {self.layout.reason}"
            f"{'; ' * bool(self._gpus)}{self._gpus}"
        )


def connect(
    client_or_address: Client | str | os.PathLike[str],
    *,
    memory: str | int | None = None,
    device_memory: str | int | None = None,
    workdir: str | os.PathLike[str] | None = None,
    security: Security | None = None,
    recycle_after: str | int | None = None,
) -> Connection:
    """Use a running cluster for the following runs, after checking its workers' memory limits.

    Parameters
    ----------
    client_or_address : distributed.Client, str or path
        A client, a scheduler's address such as ``"tcp://127.0.0.1:8786"``, or the file written by
        ``dask scheduler --scheduler-file`` (its name ends in ``.json``).
    memory : str or int, optional
        Budget of each node: the sum of its workers' limits, plus the client on this machine's node. By default
        the workers' own limits are used.
    device_memory : str or int, optional
        Bytes that may be allocated on each GPU: every worker has its own GPU, where RMM allocates no more. By default
        RMM's own limits are used. Workers without a GPU or a limit have no GPU memory that a plan can count on, and the
        connection says why.
    workdir : str or path, optional
        Folder (or URL) visible to all workers, for the results of ``find_`` operators.
    security : distributed.Security, optional
        Certificates that the scheduler was started with, if its address begins with ``tls://``.
    recycle_after : str or int, optional
        When to restart each worker, as in `start_cluster`.

    Returns
    -------
    Connection
        A running cluster, after its workers' limits were checked. Use it in a ``with`` statement.

    Raises
    ------
    BudgetError
        If a worker has no memory limit, or too small a one, or the limits of a node exceed ``memory``. The message
        names the worker. Likewise with ``device_memory``, if a worker does not keep it, shares its GPU or spills in two
        ways.
    NoClusterError
        If the scheduler file does not exist, nothing answers, or the cluster has no worker.
    ParameterError
        If an argument has a wrong type, or workers are to be restarted, but one has no nanny.
    SchedulerLostError
        If the scheduler ends while the connection is made.

    See Also
    --------
    start_cluster, slurm_cluster

    Notes
    -----
    Computes: no.

    Examples
    --------
    >>> with cdf.connect("scheduler.json", memory="16GB") as cluster:  # doctest: +SKIP
    ...     receipt = cdf.write_parquet(cdf.read_jsonl("corpus/"), "clean/")
    """
    recycle = read_recycle_after("connect", recycle_after)
    found = None if workdir is None else path_of("connect", "workdir", workdir)
    device_bytes = None if device_memory is None else read_size("device_memory", device_memory)
    if not isinstance(client_or_address, str | os.PathLike | Client):
        raise ParameterError(
            f"connect: {client_or_address!r} is not a distributed.Client, an address (such as 'tcp://10.0.0.1:8786') or the "
            "path of a scheduler file that ends in .json. Pass one of these"
        )
    if security is not None and not isinstance(security, Security):
        raise ParameterError(
            f"connect: security={security!r} is not a distributed.Security. Pass one with the certificates that the scheduler "
            "was started with"
        )
    owns_client = isinstance(client_or_address, str | os.PathLike)
    client: Client = client_or_address
    if isinstance(client_or_address, str | os.PathLike):
        client = _client(client_or_address, security)
    with _naming_a_lost_scheduler(client):
        return _checked(client, owns_client, memory, device_bytes, found, recycle)


@contextlib.contextmanager
def _naming_what_a_worker_lacks() -> Iterator[None]:
    """Convert Dask's error for a worker that cannot load or set up a plugin, of which Dask passes on the text alone."""
    try:
        yield
    except Exception as exc:
        if type(exc) is not Exception:
            raise
        raise NoClusterError(
            f"a worker cannot run curator_df: {exc}. Correct that where the workers run, start them again, and connect again"
        ) from None


@contextlib.contextmanager
def _naming_a_lost_scheduler(client: Client) -> Iterator[None]:
    """Convert Dask's error for a scheduler that ends while a connection is made."""
    try:
        yield
    except CommClosedError as exc:
        raise scheduler_lost(client, "Check that the scheduler is running, and connect again") from exc


def _checked(
    client: Client,
    owns_client: bool,
    memory: str | int | None,
    device_bytes: int | None,
    workdir: str | None,
    recycle: RecycleAfter | None,
) -> Connection:
    """Return a connection to workers that keep the budget."""
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        allowed_bytes = None if memory is None else read_size("memory", memory)
        layout = verify_workers(workers, allowed_bytes)
        _require_nannies(workers, recycle)
        devices = verified_devices(client, device_bytes)
    except BaseException as exc:
        if owns_client:
            clean_up(exc, functools.partial(close_client, client))
        raise
    spare_cpus = max(devices.cpus - layout.threads, 0) if devices.device_bytes else 0
    layout = dataclasses.replace(layout, device_bytes=devices.device_bytes, spare_cpus=spare_cpus)
    return Connection(
        client,
        layout,
        owns_client=owns_client,
        workdir=workdir,
        recycle_after=recycle,
        limits=WorkerLimits(min(worker["memory_limit"] for worker in workers.values()), layout.threads),
        allowed_bytes=allowed_bytes,
        gpus=devices.said,
    )


def _require_nannies(workers: dict[str, dict[str, Any]], recycle_after: RecycleAfter | None) -> None:
    alone = next((address for address, worker in workers.items() if not worker.get("nanny")), None)
    if recycle_after is not None and alone is not None:
        raise ParameterError(
            f"connect: recycle_after={recycle_after.argument!r} restarts workers, but {alone} has no nanny, which is Dask's "
            "process that restarts a worker. Start the worker with --nanny, or leave recycle_after= out"
        )


def _client(address: str | os.PathLike[str], security: Security | None) -> Client:
    """Return a client of the scheduler at an address or in a scheduler file."""
    place = os.fspath(address)
    is_file = place.endswith(".json")
    if is_file and not os.path.exists(place):
        raise NoClusterError(
            f"the scheduler file {place} does not exist. Start the scheduler with dask scheduler --scheduler-file {place}, "
            "or correct the path"
        )
    where = {"scheduler_file": place} if is_file else {"address": place}
    try:
        return ClosingClient(**where, security=security)
    # Problems with an address, a file or certificates raise many types of errors.
    except (OSError, TypeError, ValueError, KeyError, RuntimeError, AssertionError) as exc:
        reason = str(exc) or "its answer is not that of a scheduler"
    raise NoClusterError(
        f"no scheduler could be reached at {place}: {reason.rstrip('.')}. Check the address, and that the scheduler is "
        "running"
    )


def verify_workers(workers: dict[str, dict[str, Any]], allowed_bytes: int | None) -> Layout:
    """Return the layout that follows from the workers' limits, or raise with the worker that breaks the budget."""
    if not workers:
        raise NoClusterError("the cluster has no workers yet. Wait for one with client.wait_for_workers(1)")
    nodes: dict[str, int] = {}
    for address, worker in workers.items():
        limit = worker["memory_limit"]
        if not limit:
            raise BudgetError(f"worker {address} has no memory limit. Start it with --memory-limit (or memory_limit=)")
        if limit <= worker_rss_bytes():
            has, need = show_sizes(limit, worker_rss_bytes())
            raise BudgetError(
                f"worker {address} has a memory limit of {has}, but the packages that it imports need {need}. Start it "
                "with a larger --memory-limit, or start fewer workers"
            )
        nodes[worker["host"]] = nodes.get(worker["host"], 0) + limit
    fullest = max(nodes, key=lambda host: nodes[host])
    if allowed_bytes is not None and nodes[fullest] + CLIENT_RESERVED_BYTES > allowed_bytes:
        on_node = {address: w["memory_limit"] for address, w in workers.items() if w["host"] == fullest}
        largest = max(on_node, key=lambda address: on_node[address])
        workers_there = "the worker" if len(on_node) == 1 else f"the {show_count(len(on_node), 'worker')}"
        raise BudgetError(
            f"the memory limits of {workers_there} on {fullest} add up to {show_size(nodes[fullest])}. With "
            f"{show_size(CLIENT_RESERVED_BYTES)} for the client, that is more than memory={show_size(allowed_bytes)}. The "
            f"largest limit is that of {largest} ({show_size(on_node[largest])}). Start fewer workers, give them a smaller "
            "--memory-limit, or connect with a larger memory="
        )
    return _layout(workers, nodes[fullest] + CLIENT_RESERVED_BYTES if allowed_bytes is None else allowed_bytes)


def _layout(workers: dict[str, dict[str, Any]], allowed_bytes: int) -> Layout:
    limit = min(worker["memory_limit"] for worker in workers.values())
    threads = max(worker["nthreads"] for worker in workers.values())
    most = max(collections.Counter(worker["host"] for worker in workers.values()).values())
    reserved_bytes = CLIENT_RESERVED_BYTES + most * worker_rss_bytes()
    return Layout(
        allowed_bytes,
        False,
        len(workers),
        threads,
        threads * most,
        reserved_bytes,
        work_bytes=int(limit * (1 - MARGIN_FRACTION)) - worker_rss_bytes(),
        reason=f"the smallest worker's limit is {show_size(limit)}",
        nodes=len(workers) // most,
        shares_work=False,  # this process cannot raise the limit of a worker
    )

# SPDX-License-Identifier: Apache-2.0
"""Serve the metrics of runs to Prometheus while they are active: `serve_metrics`."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from distributed import WorkerPlugin

from curator_df.core.ranges.current_step import threads_by_step
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.out_of_memory import Cause
from curator_df.core.ranges.step_counts import StepCounts
from curator_df.core.runner.events import (
    FINAL_STAGE,
    Event,
    Exchanged,
    Note,
    RunEnded,
    RunStarted,
    StageStarted,
    TaskEnded,
)
from curator_df.core.runner.session import Session, current_session
from curator_df.core.runner.shared_plugins import share_plugin
from curator_df.core.tasks.counts_by_step import counts_by_step
from curator_df.core.tasks.task import Job
from curator_df.errors import NoClusterError, ParameterError
from curator_df.extras import missing_extra
from curator_df.monitor.alerts import LOG
from curator_df.monitor.series import SeriesBook
from curator_df.monitor.targets import (
    LOOPBACK,
    TARGETS_FOLDER,
    TargetGroup,
    default_directory,
    delete_left_behind,
    scrape_targets,
    targets_path,
    write_targets,
)
from curator_df.monitor.workers import WorkerReading, read_worker
from curator_df.suggestions import suggests_names

OUTCOMES = ("finished", "failed", "interrupted")
STEP_COUNTERS = ("rows_in", "rows_out", "bytes_in", "bytes_out", "seconds")


class RunSeries:
    """Watcher of a `Session` that records metrics."""

    def __init__(self, session: Session) -> None:
        self.book = SeriesBook()
        self._failed = False
        self.book.set("curator_df_memory_allowed_bytes", session.layout.allowed_bytes)
        self.book.set("curator_df_workers_expected", session.layout.workers)
        self.book.set("curator_df_runs_active", 0)
        # Prometheus sees no increase in a series whose first value is 1, so alerts on it would be late by one.
        for outcome in OUTCOMES:
            self.book.add("curator_df_runs_total", 0, outcome)
        for cause in Cause:
            self.book.add("curator_df_retries_total", 0, cause)
        for reason in ("memory", "other"):
            self.book.add("curator_df_rows_quarantined_total", 0, reason)
        for name in ("rows_read", "rows_written", "output_bytes"):
            self.book.add(f"curator_df_{name}_total", 0)
        self.book.add("curator_df_leaks_total", 0, "")

    def __call__(self, event: Event) -> None:
        """Record an event of the runner; an error in this code does not end a run."""
        try:
            self._take(event)
        except Exception:  # noqa: BLE001 - logged once; the run matters more than its metrics
            if not self._failed:
                LOG.exception("metrics: %s could not be counted; the run continues", type(event).__name__)
            self._failed = True

    def _take(self, event: Event) -> None:
        match event:
            case TaskEnded():
                self._task(event)
            case StageStarted():
                self._stage(event)
            case Note(kind="retry"):
                self.book.add("curator_df_retries_total", 1, event.cause)
            case Note(kind="leak"):
                self.book.add("curator_df_leaks_total", 1, event.cause)
            case Exchanged():
                self._exchange(event)
            case RunStarted():
                self.book.add("curator_df_runs_active", 1)
                self.book.set("curator_df_run_start_timestamp_seconds", time.time())
                self.book.set("curator_df_progress_timestamp_seconds", time.time())
                self.book.set("curator_df_run_input_bytes", event.input_bytes)
                self.book.set("curator_df_memory_projected_bytes", event.projected_bytes)
            case RunEnded():
                self.book.add("curator_df_runs_active", -1)
                self.book.add("curator_df_runs_total", 1, event.outcome)

    def _stage(self, event: StageStarted) -> None:
        self.book.set("curator_df_stage_tasks", event.tasks, event.stage)
        self.book.set("curator_df_stage_tasks_done", event.done, event.stage)
        self.book.add("curator_df_tasks_total", 0, event.stage, "done")
        if isinstance(event.job, Job):
            for branch in event.job.fork.branches:
                names = ("read", *(step.name for step in branch.program.steps), "write")
                for place, name in enumerate(names):
                    for counter in STEP_COUNTERS:
                        self.book.add(f"curator_df_step_{counter}_total", 0, event.stage, _place(place), name)

    def _task(self, event: TaskEnded) -> None:
        manifest, stage = event.manifest, event.stage
        outcome: str = Cause.WORKER_LOST if manifest is None else manifest.outcome
        self.book.set("curator_df_progress_timestamp_seconds", time.time())
        self.book.add("curator_df_tasks_total", 1, stage, outcome)
        self.book.observe("curator_df_task_seconds", event.seconds, stage)
        if manifest is None or outcome != "done":
            step = "" if manifest is None else manifest.step
            self.book.add("curator_df_task_errors_total", 1, stage, step, outcome)
            return
        self.book.add("curator_df_stage_tasks_done", 1, stage)
        if isinstance(event.job, Job):
            for place, name, tally in counts_by_step(event.job, manifest):
                self._step(tally, stage, _place(place), name)
            if stage == FINAL_STAGE:
                self._rows(manifest)

    def _step(self, tally: StepCounts, *labels: str) -> None:
        for counter in STEP_COUNTERS:
            self.book.add(f"curator_df_step_{counter}_total", getattr(tally, counter), *labels)
        if any(tally.blocks_by_seconds):
            self.book.add_counts("curator_df_step_block_seconds", tally.blocks_by_seconds, tally.seconds, *labels)
        for reason, rows in tally.dropped.items():
            self.book.add("curator_df_step_rows_dropped_total", rows, *labels, reason)
        for name, number in tally.counters.items():
            self.book.add("curator_df_step_counted_total", number, *labels, name)
        for name, number in tally.peaks.items():
            self.book.raise_to("curator_df_step_peak_bytes", number, *labels, name)

    def _rows(self, manifest: Manifest) -> None:
        self.book.add("curator_df_rows_read_total", manifest.rows_read)
        for part in (manifest, *manifest.others):
            self.book.add("curator_df_rows_written_total", part.rows_written)
            self.book.add("curator_df_rows_quarantined_total", part.rows_out_of_memory, "memory")
            other = part.rows_quarantined - part.rows_out_of_memory
            self.book.add("curator_df_rows_quarantined_total", other, "other")
            self.book.add("curator_df_output_bytes_total", sum(file.size_bytes for file in part.files))

    def _exchange(self, event: Exchanged) -> None:
        said = event.receipt
        self.book.add("curator_df_exchange_keys_total", said.keys, said.step)
        for kind in ("key", "drop", "spilled"):
            self.book.add("curator_df_exchange_bytes_total", getattr(said, f"{kind}_bytes"), said.step, kind)
        self.book.add("curator_df_exchange_seconds_total", said.seconds, said.step)
        self.book.set("curator_df_exchange_skew_ratio", said.skew, said.step)


def _place(number: int) -> str:
    """Return the position of a step in its chain, so that labels sort in the order of the chain."""
    return f"{number:02d}"


PLUGIN = "curator-df-metrics"
OWN_BYTES = {"pss": "pss_bytes", "counted": "counted_bytes", "private": "uss_bytes", "arrow": "arrow_bytes"} | {
    "limit": "limit_bytes",
    "rmm": "rmm_bytes",
    "cudf_spilled": "cudf_spilled_bytes",
}
"""Part of a metric's name, with the corresponding figure of a `WorkerReading`."""


class WorkerSeries:
    """Collector that reads the worker only when its ``/metrics`` is scraped."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._steps: set[str] = set()

    def describe(self) -> list[Any]:
        """Return nothing, so that registering does not read the worker."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the metrics in the form that ``prometheus_client`` expects."""
        book = worker_book(read_worker(self._worker, with_gpus=True))
        working = threads_by_step()
        self._steps |= set(working)  # a step without threads is 0, not unknown
        for step in self._steps:
            book.set("curator_df_worker_step_threads", working.get(step, 0), step)
        return book.families()


class ServeWorkerSeries(WorkerPlugin):  # type: ignore[misc] # Dask takes only what derives from its class
    """Plugin that adds `WorkerSeries` to a worker, also after a nanny restarts it."""

    name = PLUGIN

    def setup(self, worker: Any) -> None:
        """Start to serve (called by Dask on the worker)."""
        try:
            from prometheus_client import REGISTRY
        except ImportError as exc:
            raise missing_extra(
                "serve_metrics, in the environment of the workers,", "prometheus_client", "monitor"
            ) from exc
        self._series = WorkerSeries(worker)
        REGISTRY.register(self._series)

    def teardown(self, worker: Any) -> None:  # noqa: ARG002 - the interface of a plugin
        """Stop serving (called by Dask on the worker)."""
        from prometheus_client import REGISTRY

        REGISTRY.unregister(self._series)


def worker_book(reading: WorkerReading) -> SeriesBook:
    """Return the metrics of one reading, without unknown values."""
    book = SeriesBook()
    for part, figure in OWN_BYTES.items():
        value = getattr(reading, figure)
        if value is not None:
            book.set(f"curator_df_worker_{part}_bytes", value)
    for gpu in reading.gpus:
        place = (reading.host, str(gpu.index))
        book.set("curator_df_gpu_memory_used_bytes", gpu.used_bytes, *place)
        book.set("curator_df_gpu_memory_total_bytes", gpu.total_bytes, *place)
        if gpu.utilization is not None:
            book.set("curator_df_gpu_utilization_ratio", gpu.utilization, *place)
    return book


TARGETS_SECONDS = 5.0
"""Seconds between two checks for workers that came or went."""
LAST_SCRAPE_SECONDS = 10.0
"""Seconds that the end waits for one more scrape, if Prometheus scrapes, so that it records how the last run ended."""
ANSWER_SECONDS = 0.2
"""Seconds allowed for an answer to a scrape that is still being sent by a background thread."""


@suggests_names
class MetricsServer:
    """Metrics server during a ``with`` block. Created by `serve_metrics`.

    See Also
    --------
    serve_metrics, monitor_memory
    """

    def __init__(self, session: Session, *, port: int, address: str, directory: Path) -> None:
        self._session, self._listen = session, (address, port)
        self._series = RunSeries(session)
        self._stop, self._scraped = threading.Event(), threading.Event()
        self._last_scrape: float | None = None
        self._server: Any = None
        self._threads: list[threading.Thread] = []
        self._withdraw: Callable[[], object] = int
        self._told: list[TargetGroup] = []
        self.targets = targets_path(directory)
        """File in which Prometheus finds this process, the scheduler and the workers."""

    @property
    def address(self) -> str:
        """Address at which this process serves its metrics, inside the ``with`` statement."""
        if self._server is None:
            raise ParameterError(
                "serve_metrics: metrics have an address only while they are served. Read it inside `with "
                "cdf.serve_metrics() as served:`"
            )
        return f"http://{self._served}/metrics"

    def __enter__(self) -> Self:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        address, port = self._listen
        try:
            self._server, thread = start_http_server(port, addr=address, registry=registry)
        except OSError as exc:
            raise ParameterError(
                f"serve_metrics: cannot listen at address={address!r}, port={port} ({exc}). Use port=0 to pick a free port."
            ) from exc
        self._threads = [thread, threading.Thread(target=self._follow, name="curator-df-targets", daemon=True)]
        try:
            self._withdraw = share_plugin(self._session.client, ServeWorkerSeries())
            self._write_targets()
        except BaseException:
            self._close()
            raise
        self._session.watchers.append(self._series)
        self._threads[1].start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._last_scrape is not None and time.monotonic() - self._last_scrape < 2 * LAST_SCRAPE_SECONDS:
                self._scraped.clear()
                if self._scraped.wait(LAST_SCRAPE_SECONDS):
                    time.sleep(ANSWER_SECONDS)
        finally:
            self._session.watchers.remove(self._series)
            self._stop.set()
            self._threads[1].join()
            self._close()

    def __repr__(self) -> str:
        if self._server is None:
            return "metrics not served yet; they are served inside `with cdf.serve_metrics():`"
        return f"metrics at {self.address}; Prometheus discovers this process and the workers through {self.targets}"

    def describe(self) -> list[Any]:
        """Return nothing: the metrics are not known before the first run."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield the metrics in the form that ``prometheus_client`` expects."""
        sampler = self._session.sampler
        if sampler is not None:
            self._series.book.set("curator_df_memory_held_bytes", sampler.now())
            self._series.book.set("curator_df_memory_peak_bytes", sampler.seen())
        yield from self._series.book.families()
        self._last_scrape = time.monotonic()
        self._scraped.set()

    @property
    def _served(self) -> str:
        address, _ = self._listen
        host = socket.gethostname() if address in ("", "0.0.0.0", "::") else address  # noqa: S104 - it is compared
        return f"{host}:{self._server.server_port}"

    def _follow(self) -> None:
        failed = False
        while not self._stop.wait(TARGETS_SECONDS):
            try:
                self._write_targets()
            except Exception:  # noqa: BLE001 - a closing cluster may raise anything
                if not failed:
                    LOG.exception("metrics: the targets could not be written to %s; it keeps trying", self.targets)
                failed = True

    def _write_targets(self) -> None:
        client = self._session.client
        if client.status != "running":
            return
        driver = f"{socket.gethostname()}:{os.getpid()}"
        groups = scrape_targets(driver, self._served, client.scheduler_info(n_workers=-1))
        # A process in another container with the same host name cannot see this process, and may have deleted the file.
        if groups != self._told or not self.targets.exists():
            write_targets(self.targets, groups)
            self._told = groups

    def _close(self) -> None:
        self.targets.unlink(missing_ok=True)
        self._withdraw()
        self._server.shutdown()
        self._server.server_close()
        self._threads[0].join()


def serve_metrics(
    cluster: Any = None,
    *,
    port: int = 0,
    address: str = LOOPBACK,
    directory: str | os.PathLike[str] | None = None,
) -> MetricsServer:
    """Serve the metrics of all runs to Prometheus while a block of code runs.

    Parameters
    ----------
    cluster : optional
        The object returned by `start_cluster` or `connect`; defaults to the current cluster.
    port : int
        Port of this process's metrics; 0 picks a free one.
    address : str
        Address to listen at; by default only this machine can read the metrics. The scheduler and the workers serve
        theirs at the addresses of Dask's dashboards, which `start_cluster` binds to this machine as well.
    directory : str or path, optional
        Folder of ``curator-df monitor up``. A file in its ``targets/`` announces this process, the scheduler and the
        workers to Prometheus, and is deleted at the end; files left there by killed processes of this host are deleted
        at once. Defaults to the folder of that command.

    Returns
    -------
    MetricsServer
        A server of metrics for Prometheus, and the file in which Prometheus finds it. Use it in a ``with`` statement;
        ``.address`` and ``.targets`` say where.

    Raises
    ------
    MissingExtraError
        If prometheus-client is not installed here or where the workers run.
    NoClusterError
        If no cluster is running, or ``cluster`` is not the current one.
    ParameterError
        If nothing can be served at ``address`` and ``port``, or ``directory`` cannot be written.

    See Also
    --------
    monitor_memory, start_cluster

    Notes
    -----
    Computes: no. See ``docs/monitoring.md#prometheus-and-grafana``.

    ``docs/monitoring.md`` lists the metrics. They are counted in this process as tasks finish. If Prometheus scrapes,
    the end of the block waits for one more scrape, 10 s at most, so that it records how the run ended.

    Examples
    --------
    >>> with cdf.start_cluster(memory="4GB") as cluster, cdf.serve_metrics(cluster):  # doctest: +SKIP
    ...     receipt = cdf.write_parquet(docs, "clean/")
    """
    session = current_session()
    if cluster is not None and getattr(cluster, "client", cluster) is not session.client:
        raise NoClusterError(
            f"serve_metrics: this {type(cluster).__name__} is not the cluster that is open. Pass the one that start_cluster "
            "or connect returned, while it is open"
        )
    try:
        import prometheus_client  # noqa: F401
    except ImportError as exc:
        raise missing_extra("serve_metrics", "prometheus_client", "monitor") from exc
    folder = default_directory() if directory is None else Path(directory)
    try:
        (folder / TARGETS_FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ParameterError(
            f"serve_metrics: directory={str(folder)!r} cannot be written ({exc}). Use another folder."
        ) from exc
    delete_left_behind(folder)
    return MetricsServer(session, port=port, address=address, directory=folder)

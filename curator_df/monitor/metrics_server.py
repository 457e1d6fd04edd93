# SPDX-License-Identifier: Apache-2.0
"""Serve the metrics of runs to Prometheus while they are active: `serve_metrics`."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from curator_df.core.extras import missing_extra
from curator_df.core.runner.session import Session, current_session
from curator_df.errors import NoClusterError, ParameterError
from curator_df.monitor.alerts import LOG
from curator_df.monitor.run_series import RunSeries
from curator_df.monitor.targets import (
    LOOPBACK,
    TARGETS_FOLDER,
    default_directory,
    delete_left_behind,
    scrape_targets,
    targets_path,
    write_targets,
)
from curator_df.monitor.worker_series import PLUGIN, ServeWorkerSeries

TARGETS_SECONDS = 5.0
"""Seconds between two checks for workers that came or went."""
LAST_SCRAPE_SECONDS = 10.0
"""Seconds that the end waits for one more scrape, if Prometheus scrapes, so that it records how the last run ended."""
ANSWER_SECONDS = 0.2
"""Seconds allowed for an answer to a scrape that is still being sent by a background thread."""


class MetricsServer:
    """Metrics server during a ``with`` block. Created by `serve_metrics`."""

    def __init__(self, session: Session, *, port: int, address: str, directory: Path) -> None:
        self._session, self._listen = session, (address, port)
        self._series = RunSeries(session)
        self._stop, self._scraped = threading.Event(), threading.Event()
        self._last_scrape: float | None = None
        self._server: Any = None
        self._threads: list[threading.Thread] = []
        self._told: list[dict[str, Any]] = []
        self.targets = targets_path(directory)
        """File in which Prometheus finds this process, the scheduler and the workers."""

    @property
    def address(self) -> str:
        """Address at which this process serves its metrics, inside the ``with`` statement."""
        if self._server is None:
            raise ParameterError(
                "serve_metrics: metrics have an address only inside `with cdf.serve_metrics() as served:`"
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
            self._session.client.register_plugin(ServeWorkerSeries())
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
        if self._session.client.status == "running":
            with contextlib.suppress(ValueError):  # registering it may have failed
                self._session.client.unregister_worker_plugin(PLUGIN)
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
            f"serve_metrics needs the open cluster that start_cluster or connect returned; got {type(cluster).__name__}"
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

# SPDX-License-Identifier: Apache-2.0
"""Sample client, scheduler, workers and GPUs while a block of code runs, and plot the samples: `monitor_memory`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import pandas as pd
import pyarrow as pa

from curator_df.core.runner.events import Event, Note
from curator_df.core.runner.session import Session, current_session, has_session
from curator_df.errors import NoClusterError, ParameterError
from curator_df.memory.gpus import GpuReading, read_gpus
from curator_df.memory.sizes import show_size
from curator_df.monitor.alerts import (
    BUDGET_SHARE,
    DEFAULT_RULES,
    GPU_SHARE,
    LOG,
    WORKER_SHARE,
    Alert,
    AlertBook,
    AlertRule,
)
from curator_df.monitor.processes import ProcessMemory, ProcessReader
from curator_df.monitor.workers import ProcessReading, WorkerReading, read_process, read_worker
from curator_df.receipts.figures import new_figure
from curator_df.suggestions import suggests_names

ANSWER_SECONDS = 5.0
"""Seconds to wait for the first answers; later answers are used when they arrive."""


@dataclass(frozen=True)
class Heard:
    """Latest answer of a worker."""

    reading: WorkerReading
    """Figures of the answer."""
    seconds: float
    """Time of the answer (monotonic clock)."""
    spill_rate: float | None = None
    """Bytes per second spilled since the previous answer."""


class WorkerPoll:
    """Poll in the event loop of a client. A worker is not asked again before it has answered."""

    def __init__(self, client: Any) -> None:
        self.scheduler: ProcessReading | None = None
        """Latest answer of the scheduler: asked once if it is on this machine, otherwise in every round."""
        self._client, self._host = client, socket.gethostname()
        self._heard: dict[str, Heard] = {}
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._round: concurrent.futures.Future[None] | None = None
        self._working: set[asyncio.Task[None]] = set()

    def heard(self) -> dict[str, Heard]:
        """Return the latest answer of each worker, by address."""
        return self._heard.copy()  # another thread adds answers

    def ask(self) -> None:
        """Ask all workers without an outstanding request. Only the first call waits for answers.

        Raises
        ------
        Exception
            The exception of the previous round.
        """
        if self._client.status != "running":
            return
        before = self._round
        if before is not None and not before.done():  # the scheduler itself does not answer
            return
        self._round = concurrent.futures.Future()
        self._client.loop.asyncio_loop.call_soon_threadsafe(self._begin, self._round, before is None)
        if before is None:
            concurrent.futures.wait([self._round], timeout=ANSWER_SECONDS)
        else:
            before.result()

    def close(self) -> None:
        """Stop waiting for answers."""
        if self._client.status == "running":
            self._client.loop.asyncio_loop.call_soon_threadsafe(self._forget)

    def _begin(self, told: concurrent.futures.Future[None], wait: bool) -> None:
        # This runs in the loop: a closing client may drop this call, and must not drop a coroutine that nobody awaits.
        task = asyncio.get_running_loop().create_task(self._ask_each(wait=wait))
        self._working.add(task)
        task.add_done_callback(functools.partial(self._end, told))

    def _end(self, told: concurrent.futures.Future[None], task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        if task.cancelled():
            told.cancel()
        elif (error := task.exception()) is not None:
            told.set_exception(error)
        else:
            told.set_result(None)

    async def _ask_each(self, *, wait: bool) -> None:
        if self.scheduler is None or self.scheduler.host != self._host:
            self.scheduler = await self._client._run_on_scheduler(read_process)
        known = await self._client.scheduler.ncores(workers=None)
        for address in set(known) - set(self._asked):
            self._asked[address] = asyncio.create_task(self._ask(address))
        for address in set(self._heard) - set(known):
            del self._heard[address]
        if wait and self._asked:
            await asyncio.wait(self._asked.values(), timeout=ANSWER_SECONDS)

    async def _ask(self, address: str) -> None:
        try:
            said = await self._client._run(read_worker, with_gpus=True, workers=[address], on_error="ignore")
            if address in said:
                self._heard[address] = _heard(said[address], self._heard.get(address))
        finally:
            self._asked.pop(address, None)

    def _forget(self) -> None:
        for task in (*self._working, *self._asked.values()):
            task.cancel()


def _heard(reading: WorkerReading, before: Heard | None) -> Heard:
    now = time.monotonic()
    if before is None:
        return Heard(reading, now)
    spilled = max(0, reading.spilled_bytes - before.reading.spilled_bytes)
    return Heard(reading, now, spilled / max(now - before.seconds, 1e-9))


COLUMNS = {
    "seconds": "float64",
    "time": "datetime64[us, UTC]",
    "kind": "str",
    "name": "str",
    "host": "str",
    "pid": "Int64",
    "rss_bytes": "Int64",
    "pss_bytes": "Int64",
    "uss_bytes": "Int64",
    "counted_bytes": "Int64",
    "arrow_bytes": "Int64",
    "managed_bytes": "Int64",
    "unmanaged_bytes": "Int64",
    "spilled_bytes": "Int64",
    "spill_bytes_per_second": "Float64",
    "limit_bytes": "Int64",
    "limited_bytes": "Int64",
    "is_paused": "boolean",
    "silent_seconds": "Float64",
    "gpu": "Int64",
    "gpu_used_bytes": "Int64",
    "gpu_total_bytes": "Int64",
    "gpu_utilization": "Float64",
    "rmm_bytes": "Int64",
    "cudf_spilled_bytes": "Int64",
    "allowed_bytes": "Int64",
}
"""Columns of `MemoryMonitor.to_frame`, with their types."""
WORKERS_SECONDS = 1.0
"""Seconds between two requests to a worker; processes on this machine are read at every sample."""
END_SECONDS = 10.0
"""Seconds that the end of the block waits for the sample being taken."""
MOST_ROWS = 200_000
"""Maximum number of rows kept (60 MB); beyond it, every second sample is dropped and the interval doubles."""


@suggests_names
class MemoryMonitor:
    """Thread that samples a cluster during a ``with`` block. Created by `monitor_memory`.

    See Also
    --------
    monitor_memory, serve_metrics
    """

    def __init__(
        self,
        client: Any,
        session: Session | None,
        *,
        interval_seconds: float,
        rules: Sequence[AlertRule],
        on_alert: Callable[[Alert], object] | None,
    ) -> None:
        self.allowed_bytes = None if session is None else session.layout.allowed_bytes
        self.events: list[tuple[float, str, str]] = []
        """Seconds, kind (``retry``) and text of each event that the runner reported during monitoring."""
        self._client, self._session, self._interval = client, session, interval_seconds
        # Nannies started by curator_df kill a worker by counted memory (`cluster.preload`), other nannies by resident memory.
        self._is_ours = session is not None and session.worker_limits is None
        self._book = AlertBook(rules, on_alert)
        self._samples: list[list[dict[str, Any]]] = []
        self._rows = 0
        self._readers: dict[int, ProcessReader] = {}
        self._poll = WorkerPoll(client)
        self._asked = -WORKERS_SECONDS
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="curator-df-monitor", daemon=True)
        self._host = socket.gethostname()
        self._started = 0.0

    @property
    def alerts(self) -> list[Alert]:
        """Alerts raised so far, in order."""
        return list(self._book.alerts)

    def to_frame(self) -> pd.DataFrame:
        """Return the samples so far.

        Returns
        -------
        pandas.DataFrame
            One row for each sample and process or GPU. ``kind`` is ``client``, ``scheduler`` (if it is a process of its
            own), ``worker``, ``gpu``, or ``gpu process``, which is the use of one GPU by one process. Bytes are
            ``Int64``; values that do not apply or are unknown are missing. ``rss_bytes`` counts shared pages in full,
            ``pss_bytes`` in part, ``uss_bytes`` not at all; ``counted_bytes`` are ``pss_bytes`` without clean pages of files,
            and what the budget counts. ``managed_bytes`` are results in memory that Dask knows of, ``unmanaged_bytes`` the
            rest of ``rss_bytes``. ``limited_bytes`` are the bytes of a worker that ``limit_bytes`` applies to: its
            ``counted_bytes`` if curator_df started it, its ``rss_bytes`` if somebody else did.
        """
        rows = [row for sample in list(self._samples) for row in sample]
        frame = pd.DataFrame(rows, columns=list(COLUMNS))
        return frame.astype(COLUMNS)

    def plot(self) -> Any:
        """Plot memory over time, with the limits and events.

        Returns
        -------
        matplotlib.figure.Figure
            All processes together against the memory budget; each worker against its limit; each GPU. Save it with
            ``figure.savefig("memory.png")``. Needs matplotlib (the monitor extra).
        """
        return draw_memory(self.to_frame(), self.events, self.alerts, self._book.rules)

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        if self._session is not None:
            self._session.watchers.append(self._note)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=END_SECONDS)
        self._poll.close()
        if self._session is not None:
            self._session.watchers.remove(self._note)

    def __repr__(self) -> str:
        seconds = self._samples[-1][0]["seconds"] if self._samples else 0.0
        return f"{len(self._samples):,} samples in {seconds:,.1f} s, {len(self.alerts)} alerts"

    def _note(self, event: Event) -> None:
        if isinstance(event, Note):
            self.events.append((time.monotonic() - self._started, event.kind, event.text))

    def _run(self) -> None:
        failed = False
        while True:
            began = time.monotonic()
            try:
                self._take()
            except Exception:  # noqa: BLE001 - a closing cluster may raise anything
                if not failed:  # once, not at every sample; the monitored work continues in any case
                    LOG.exception("the memory monitor could not take a sample; it keeps trying")
                failed = True
            if self._stop.wait(max(0.0, self._interval - (time.monotonic() - began))):
                return

    def _take(self) -> None:
        seconds = time.monotonic() - self._started
        if time.monotonic() - self._asked >= WORKERS_SECONDS:
            self._asked = time.monotonic()
            self._poll.ask()
        shared = {"seconds": seconds, "time": pd.Timestamp.now("UTC"), "allowed_bytes": self.allowed_bytes}
        rows = [{**dict.fromkeys(COLUMNS), **shared, **row} for row in self._sample()]
        self._book.look(seconds, rows)
        self._samples.append(rows)
        self._rows += len(rows)
        if self._rows > MOST_ROWS:
            self._samples = self._samples[::2]
            self._rows = sum(map(len, self._samples))
            self._interval *= 2

    def _sample(self) -> Iterator[dict[str, Any]]:
        own = {"pid": os.getpid(), "arrow_bytes": pa.total_allocated_bytes(), **self._held(os.getpid())}
        yield {"kind": "client", "name": "client", "host": self._host, **own}
        said = self._poll.scheduler
        if said is not None and (said.host, said.pid) != (self._host, os.getpid()):
            held = self._held(said.pid) if said.host == self._host else {}
            yield {"kind": "scheduler", "name": "scheduler", **asdict(said), **held}
        gpus: dict[str, tuple[GpuReading, ...]] = {self._host: read_gpus()}
        for heard in sorted(self._poll.heard().values(), key=lambda heard: heard.reading.name):
            row = self._worker_row(heard.reading, time.monotonic() - heard.seconds)
            yield {**row, "spill_bytes_per_second": heard.spill_rate}
            gpus.setdefault(heard.reading.host, heard.reading.gpus)
        for host, devices in gpus.items():
            for gpu in devices:
                yield from _gpu_rows(gpu, host)

    def _worker_row(self, reading: WorkerReading, silent_seconds: float) -> dict[str, Any]:
        values = {name: value for name, value in asdict(reading).items() if name in COLUMNS}
        if reading.host == self._host:
            values |= self._held(reading.pid)
        name = f"worker {reading.name}"
        values |= {
            "kind": "worker",
            "name": name,
            "unmanaged_bytes": max(0, values["rss_bytes"] - reading.managed_bytes),
            "limited_bytes": values["counted_bytes" if self._is_ours else "rss_bytes"],
        }
        return {**values, "silent_seconds": silent_seconds}

    def _held(self, pid: int) -> dict[str, int]:
        reader = self._readers.setdefault(pid, ProcessReader(pid))
        held = reader.read()
        if held is None:  # the process has just ended
            del self._readers[pid]
            return asdict(ProcessMemory(0, 0, 0, 0))
        return asdict(held)


def monitor_memory(
    cluster: Any = None,
    *,
    interval_seconds: float = 0.5,
    alert_rules: Sequence[AlertRule] = DEFAULT_RULES,
    on_alert: Callable[[Alert], object] | None = None,
) -> MemoryMonitor:
    """Sample the memory of every process and GPU of a cluster while a block of code runs.

    Parameters
    ----------
    cluster : optional
        The object returned by `start_cluster` or `connect`, or a `distributed.Client`; defaults to the current cluster.
    interval_seconds : float
        Time between samples. Processes on this machine are read in each sample; workers are asked once a second.
    alert_rules : sequence of AlertRule
        When to alert (`curator_df.monitor.alerts`). By default at 90% of the memory budget, of a worker's limit or of
        a GPU, or when a worker is paused, spills 50 MB/s, or has not answered for 30 s.
    on_alert : callable, optional
        Called with each `Alert`, in the monitor's thread. Alerts are also logged as warnings of ``curator_df.monitor``.

    Returns
    -------
    MemoryMonitor
        A monitor: samples of every process and GPU, a plot, and alerts. Use it in a ``with`` statement; then
        ``to_frame()``, ``plot()`` and ``alerts``.

    Raises
    ------
    NoClusterError
        If no cluster is given and none is running.
    ParameterError
        If ``interval_seconds`` is not positive.

    See Also
    --------
    serve_metrics, profile_memory

    Notes
    -----
    Rows: none. Peak extra memory: 300 bytes per row of `to_frame`, 60 MB at most, in this process. Computes: no. See
    ``docs/monitoring.md``.

    Examples
    --------
    >>> with cdf.start_cluster(memory="4GB") as cluster, cdf.monitor_memory(cluster) as monitor:  # doctest: +SKIP
    ...     receipt = cdf.write_parquet(docs, "clean/")
    >>> monitor.to_frame().groupby("name").counted_bytes.max()  # doctest: +SKIP
    >>> monitor.plot().savefig("memory.png")  # doctest: +SKIP
    """
    if interval_seconds <= 0:
        raise ParameterError(f"monitor_memory: interval_seconds={interval_seconds} must be greater than 0")
    session = current_session() if cluster is None or has_session() else None
    client = session.client if cluster is None and session is not None else getattr(cluster, "client", cluster)
    if not hasattr(client, "run_on_scheduler"):
        raise NoClusterError(
            f"monitor_memory: an object of the type {type(cluster).__name__} is not a cluster. Pass the cluster that "
            "start_cluster or connect returned, or a distributed.Client"
        )
    if session is not None and session.client is not client:
        session = None
    return MemoryMonitor(client, session, interval_seconds=interval_seconds, rules=alert_rules, on_alert=on_alert)


def _gpu_rows(gpu: GpuReading, host: str) -> Iterator[dict[str, Any]]:
    name = f"GPU {gpu.index}"
    yield {
        "kind": "gpu",
        "name": name,
        "host": host,
        "gpu": gpu.index,
        "gpu_used_bytes": gpu.used_bytes,
        "gpu_total_bytes": gpu.total_bytes,
        "gpu_utilization": gpu.utilization,
    }
    for pid, used_bytes in gpu.processes:
        process = {"kind": "gpu process", "name": f"{name} process {pid}", "host": host, "pid": pid}
        yield {**process, "gpu": gpu.index, "gpu_used_bytes": used_bytes}


ALLOWED, MARK, OTHERS = "#c0392b", "#7f8c8d", "#b0b7bd"
COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#bcbd22", "#17becf")
"""Colors of workers and GPUs, the same in every panel."""


def draw_memory(
    frame: pd.DataFrame,
    events: Sequence[tuple[float, str, str]],
    alerts: Sequence[Alert],
    rules: Sequence[AlertRule] = (),
) -> Any:
    """Draw a monitor's samples; see `MemoryMonitor.plot`.

    Parameters
    ----------
    frame : pandas.DataFrame
        Samples in the format of `MemoryMonitor.to_frame`.
    events : sequence of (float, str, str)
        Seconds, kind and text of each event.
    alerts : sequence of Alert
        Alerts, marked at the top of the first panel.
    rules : sequence of AlertRule
        Rules; those for a share are drawn as lines at the threshold.

    Returns
    -------
    matplotlib.figure.Figure
        One panel for all processes, one for the workers, and one for the GPUs if there are any.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    has_workers, has_gpus = (frame.kind == "worker").any(), (frame.kind == "gpu").any()
    panels = 1 + int(has_workers) + int(has_gpus)
    figure = new_figure(10, 0.6 + 2.7 * panels)
    axes = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
    shares = {rule.name: rule.threshold for rule in rules}
    _draw_tree(axes[0], frame, events, alerts)
    _draw_limit(axes[0], frame.allowed_bytes, "allowed", shares.get(BUDGET_SHARE))
    if has_workers:
        _draw_workers(axes[1], frame[frame.kind == "worker"])
        _draw_limit(axes[1], frame.limit_bytes, "limit", shares.get(WORKER_SHARE))
    if has_gpus:
        _draw_gpus(axes[-1], frame[frame.kind == "gpu"])
        _draw_limit(axes[-1], frame.gpu_total_bytes, "device", shares.get(GPU_SHARE))
    for panel in axes:
        panel.set_ylim(bottom=0)
        panel.yaxis.set_major_formatter(lambda value, _: show_size(int(value)) if value > 0 else "0")
        panel.grid(axis="y", color="#eeeeee")
        panel.spines[["top", "right"]].set_visible(False)
        if panel.get_legend_handles_labels()[1]:
            panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    axes[-1].set_xlabel("seconds")
    axes[-1].set_xlim(0, max(float(frame.seconds.max()), 1e-3) if len(frame) else 1.0)
    return figure


def _colors(names: Sequence[str]) -> dict[str, str]:
    """Return a color for each worker and GPU."""
    own = [name for name in names if name not in ("client", "scheduler")]
    return dict.fromkeys(names, OTHERS) | {name: COLORS[n % len(COLORS)] for n, name in enumerate(own)}


def _draw_limit(axes: Any, limits: pd.Series, name: str, share: float | None) -> None:
    """Draw the largest limit, and the share of it at which an alert is raised."""
    if limits.isna().all():
        return
    limit = int(limits.max())
    axes.axhline(limit, color=ALLOWED, linewidth=1.5, label=f"{name}, {show_size(limit)}")
    if share is not None:
        axes.axhline(share * limit, color=ALLOWED, linestyle=":", linewidth=1.2, label=f"alert at {share:.0%}")


def _draw_tree(
    axes: Any, frame: pd.DataFrame, events: Sequence[tuple[float, str, str]], alerts: Sequence[Alert]
) -> None:
    held = frame[frame.counted_bytes.notna()].drop_duplicates(["seconds", "host", "pid"])
    by_name = (
        held.pivot_table(index="seconds", columns="name", values="counted_bytes", aggfunc="sum").astype(float).fillna(0)
    )
    order = sorted(by_name.columns, key=lambda name: (name.startswith("worker"), name))
    colors = _colors(order)
    stacked = by_name[order].T.to_numpy()
    axes.stackplot(
        by_name.index, stacked, labels=order, colors=[colors[name] for name in order], alpha=0.8, linewidth=0
    )
    times = [seconds for seconds, kind, _ in events if kind == "retry"]
    if times:
        axes.vlines(
            times, 0, 1, transform=axes.get_xaxis_transform(), color=MARK, linewidth=0.8, label="input split retried"
        )
    if alerts:
        heights = [0.97] * len(alerts)
        axes.scatter(
            [alert.seconds for alert in alerts],
            heights,
            transform=axes.get_xaxis_transform(),
            marker="v",
            color=ALLOWED,
            label="alert",
            zorder=5,
        )
    axes.set_title("Memory of all processes", loc="left", fontsize="medium")


def _draw_workers(axes: Any, workers: pd.DataFrame) -> None:
    colors = _colors(sorted(set(workers.name)))
    for name, rows in workers.groupby("name", sort=True):
        color = colors[str(name)]
        axes.plot(rows.seconds, rows.limited_bytes.astype(float), label=name, color=color, linewidth=1.2)
        paused = rows[rows.is_paused.fillna(False)]
        if len(paused):
            axes.scatter(paused.seconds, paused.limited_bytes.astype(float), color=color, marker="s", s=14)
        if (rows.spilled_bytes.fillna(0) > 0).any():
            axes.plot(
                rows.seconds, rows.spilled_bytes.astype(float), color=color, linestyle=":", label=f"{name}, spilled"
            )
    if workers.is_paused.fillna(False).any():
        axes.scatter([], [], color=MARK, marker="s", s=14, label="paused")
    axes.set_title("Memory of each worker, as counted by its limit", loc="left", fontsize="medium")


def _draw_gpus(axes: Any, gpus: pd.DataFrame) -> None:
    for name, rows in gpus.groupby("name", sort=True):
        axes.plot(rows.seconds, rows.gpu_used_bytes.astype(float), label=name, linewidth=1.2)
    axes.set_title("Memory used on each GPU", loc="left", fontsize="medium")

# SPDX-License-Identifier: Apache-2.0
"""Metrics that only a worker can report, at its own ``/metrics`` next to Dask's: current steps, memory, GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distributed import WorkerPlugin

from curator_df.core.extras import missing_extra
from curator_df.core.ranges.current_step import threads_by_step
from curator_df.monitor.series import SeriesBook
from curator_df.monitor.workers import WorkerReading, read_worker

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

# SPDX-License-Identifier: Apache-2.0
"""Every metric that is served, as data, and the book that keeps their values until Prometheus asks.

Names and labels follow Prometheus: base units, a unit in the name, ``_total`` for what only grows. The table on the page
``docs/monitoring.md`` is made of what stands here.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from curator_df.core.ranges.step_tally import BLOCK_SECONDS

MOST_SERIES = 2_000
"""Of one metric; what comes beyond has the label value ``other``, since reasons and counters may be a user's own."""
OTHER = "other"
TASK_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Bounds of the histogram of tasks."""
STEP = ("stage", "place", "step")
"""A step by its name alone would not do: a chain may have the same operator twice."""


@dataclass(frozen=True)
class Metric:
    """One metric."""

    name: str
    """In full, as Prometheus shows it."""
    kind: Literal["counter", "gauge", "histogram"]
    """Of a histogram the series are ``_bucket``, ``_sum`` and ``_count``."""
    labels: tuple[str, ...]
    """Names of its labels."""
    unit: str
    """Of its values."""
    help: str
    """What it counts or measures."""
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets."""


DRIVER_METRICS = (
    Metric("curator_df_runs_total", "counter", ("outcome",), "runs", "Runs that ended: finished, failed, interrupted."),
    Metric("curator_df_runs_active", "gauge", (), "runs", "Runs that are going on."),
    Metric("curator_df_run_start_timestamp_seconds", "gauge", (), "seconds", "When the latest run began (Unix time)."),
    Metric(
        "curator_df_progress_timestamp_seconds",
        "gauge",
        (),
        "seconds",
        "When the latest run began or a task of it came back (Unix time).",
    ),
    Metric("curator_df_run_input_bytes", "gauge", (), "bytes", "Size of the latest run's input as it lies on disk."),
    Metric("curator_df_memory_allowed_bytes", "gauge", (), "bytes", "Memory allowed on a node."),
    Metric("curator_df_memory_projected_bytes", "gauge", (), "bytes", "Memory the latest run's plan says it needs."),
    Metric(
        "curator_df_memory_held_bytes",
        "gauge",
        (),
        "bytes",
        "Memory of all processes together now, without clean pages of files; only where start_cluster started them.",
    ),
    Metric(
        "curator_df_memory_peak_bytes",
        "gauge",
        (),
        "bytes",
        "Most of it since the latest run began, sampled every 50 ms.",
    ),
    Metric("curator_df_workers_expected", "gauge", (), "workers", "Workers that the layout asks for."),
    Metric("curator_df_stage_tasks", "gauge", ("stage",), "tasks", "Tasks of a stage in all."),
    Metric(
        "curator_df_stage_tasks_done",
        "gauge",
        ("stage",),
        "tasks",
        "Of these, finished, also by an earlier run that is resumed.",
    ),
    Metric(
        "curator_df_tasks_total",
        "counter",
        ("stage", "outcome"),
        "tasks",
        "Tasks that came back: done, memory, oversize, stopped, failed, worker lost.",
    ),
    Metric(
        "curator_df_task_errors_total",
        "counter",
        ("stage", "step", "outcome"),
        "tasks",
        "Of these, the ones that were not done, by the step in which they ended.",
    ),
    Metric(
        "curator_df_task_seconds",
        "histogram",
        ("stage",),
        "seconds",
        "From the submission of a task until it came back.",
        TASK_SECONDS,
    ),
    Metric(
        "curator_df_retries_total",
        "counter",
        ("cause",),
        "tasks",
        "Ranges that ran again: memory, worker lost, exclusive.",
    ),
    Metric("curator_df_leaks_total", "counter", ("step",), "workers", "Workers that held more after each task."),
    Metric("curator_df_step_rows_in_total", "counter", STEP, "rows", "Rows that came to a step."),
    Metric("curator_df_step_rows_out_total", "counter", STEP, "rows", "Rows that went on from it."),
    Metric("curator_df_step_bytes_in_total", "counter", STEP, "bytes", "Bytes of the blocks that came to an operator."),
    Metric("curator_df_step_bytes_out_total", "counter", STEP, "bytes", "Bytes of the blocks that went on from it."),
    Metric("curator_df_step_seconds_total", "counter", STEP, "seconds", "Time in a step, of all threads together."),
    Metric(
        "curator_df_step_block_seconds",
        "histogram",
        STEP,
        "seconds",
        "Time of an operator for one block.",
        BLOCK_SECONDS,
    ),
    Metric("curator_df_step_rows_dropped_total", "counter", (*STEP, "reason"), "rows", "Rows that a step took away."),
    Metric(
        "curator_df_step_counted_total",
        "counter",
        (*STEP, "counter"),
        "as counted",
        "What an operator counts, and what a kernel of yours returns in Outcome.counters.",
    ),
    Metric(
        "curator_df_step_peak_bytes",
        "gauge",
        (*STEP, "of"),
        "bytes",
        "Most that a step with a model held in one worker, of its GPU and of its process.",
    ),
    Metric("curator_df_rows_read_total", "counter", (), "rows", "Rows read by the last pass, bad ones included."),
    Metric("curator_df_rows_written_total", "counter", (), "rows", "Rows written, to all outputs together."),
    Metric(
        "curator_df_rows_quarantined_total",
        "counter",
        ("cause",),
        "rows",
        "Rows set aside: memory (they did not fit even alone), other.",
    ),
    Metric("curator_df_output_bytes_total", "counter", (), "bytes", "Size of the files written."),
    Metric("curator_df_exchange_keys_total", "counter", ("step",), "rows", "Rows compared with each other."),
    Metric(
        "curator_df_exchange_bytes_total",
        "counter",
        ("step", "kind"),
        "bytes",
        "Through temporary files: keys, drops, and what was spilled.",
    ),
    Metric("curator_df_exchange_seconds_total", "counter", ("step",), "seconds", "Wall time of a comparison."),
    Metric(
        "curator_df_exchange_skew_ratio",
        "gauge",
        ("step",),
        "ratio",
        "Keys of the largest hash range of the latest comparison, as a multiple of the mean.",
    ),
)
"""Served by the client's process."""

WORKER_METRICS = (
    Metric(
        "curator_df_worker_step_threads",
        "gauge",
        ("step",),
        "threads",
        "Threads that work on a step now; read and write are steps, a task that has none counts under its kind.",
    ),
    Metric("curator_df_worker_pss_bytes", "gauge", (), "bytes", "Memory, of shared pages the worker's share."),
    Metric(
        "curator_df_worker_counted_bytes",
        "gauge",
        (),
        "bytes",
        "Memory that the budget counts: the worker's share without clean pages of files.",
    ),
    Metric("curator_df_worker_private_bytes", "gauge", (), "bytes", "Memory, private pages only."),
    Metric("curator_df_worker_arrow_bytes", "gauge", (), "bytes", "Allocated from Arrow's memory pool."),
    Metric("curator_df_worker_limit_bytes", "gauge", (), "bytes", "Dask's limit for the worker, where it has one."),
    Metric("curator_df_worker_rmm_bytes", "gauge", (), "bytes", "Allocated by RMM, where its statistics are on."),
    Metric(
        "curator_df_worker_cudf_spilled_bytes",
        "gauge",
        (),
        "bytes",
        "What cuDF moved from the GPU to the worker's memory, where its spilling is on.",
    ),
    Metric("curator_df_gpu_memory_used_bytes", "gauge", ("host", "gpu"), "bytes", "Memory in use on a GPU, by NVML."),
    Metric("curator_df_gpu_memory_total_bytes", "gauge", ("host", "gpu"), "bytes", "Memory of the GPU."),
    Metric(
        "curator_df_gpu_utilization_ratio",
        "gauge",
        ("host", "gpu"),
        "ratio",
        "Share of NVML's last sample period in which a kernel ran.",
    ),
)
"""Served by each worker, beside Dask's own."""

METRICS = {metric.name: metric for metric in (*DRIVER_METRICS, *WORKER_METRICS)}
"""All of them, by name."""


class SeriesBook:
    """Values of metrics; any thread may write or read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[tuple[str, ...], float]] = {}
        self._counts: dict[str, dict[tuple[str, ...], list[int]]] = {}

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add to a counter; 0 makes its series begin before there is something to count."""
        with self._lock:
            values = self._values.setdefault(METRICS[name].name, {})
            labels = _within_limit(values, labels)
            values[labels] = values.get(labels, 0) + value

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            values = self._values.setdefault(METRICS[name].name, {})
            values[_within_limit(values, labels)] = value

    def raise_to(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge that is less; it keeps the most that was seen."""
        with self._lock:
            values = self._values.setdefault(METRICS[name].name, {})
            labels = _within_limit(values, labels)
            values[labels] = max(values.get(labels, 0), value)

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add one value to a histogram."""
        bounds = METRICS[name].bounds
        counts = [0] * (len(bounds) + 1)
        counts[bisect.bisect_left(bounds, value)] = 1
        self.add_counts(name, counts, value, *labels)

    def add_counts(self, name: str, counts: Sequence[int], total: float, *labels: str) -> None:
        """Add the counts of a histogram's buckets, each without those before it, and the sum of what was counted."""
        self.add(name, total, *labels)
        with self._lock:
            kept = self._counts.setdefault(name, {})
            labels = _within_limit(kept, labels)
            kept[labels] = [old + new for old, new in zip(kept.get(labels, [0] * len(counts)), counts, strict=True)]

    def value(self, name: str, *labels: str) -> float:
        """Return the value of one series (of a histogram its sum), 0 if there is none."""
        with self._lock:
            return self._values.get(METRICS[name].name, {}).get(labels, 0)

    def families(self) -> Iterator[Any]:
        """Yield the metrics that have values, as ``prometheus_client`` takes them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        with self._lock:
            values = {name: dict(series) for name, series in self._values.items()}
            counts = {
                name: {labels: list(kept) for labels, kept in series.items()} for name, series in self._counts.items()
            }
        for name, series in values.items():
            metric = METRICS[name]
            family_type = {
                "counter": CounterMetricFamily,
                "gauge": GaugeMetricFamily,
                "histogram": HistogramMetricFamily,
            }[metric.kind]
            family = family_type(name, metric.help, labels=metric.labels)
            for labels, value in series.items():
                if metric.kind == "histogram":
                    family.add_metric(labels, list(_buckets(metric.bounds, counts[name][labels])), value)
                else:
                    family.add_metric(labels, value)
            yield family


def _within_limit(series: dict[tuple[str, ...], Any], labels: tuple[str, ...]) -> tuple[str, ...]:
    return labels if labels in series or len(series) < MOST_SERIES else (OTHER,) * len(labels)


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yield the bound of each bucket with the count up to it."""
    total = 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        total += count
        yield bound, total

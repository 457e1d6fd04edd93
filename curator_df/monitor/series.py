# SPDX-License-Identifier: Apache-2.0
"""Definitions of the Prometheus metrics, and the store that keeps their values until Prometheus scrapes them.

Names and labels follow Prometheus: base units, a unit in the name, ``_total`` for values that only grow. A test compares the
table on the page ``docs/monitoring.md`` with them.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from curator_df.core.ranges.step_counts import BLOCK_SECONDS

MOST_SERIES = 2_000
"""Maximum number of series of a metric; further ones get the label value ``other``, since reasons and counters may be a user's
own."""
OTHER = "other"
TASK_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Bounds of the histogram of task seconds."""
STEP = ("stage", "place", "step")
"""Labels of a step; its name alone does not identify it, because a chain may have the same operator twice."""


@dataclass(frozen=True)
class Metric:
    """Metric, as Prometheus shows it."""

    name: str
    """Full name."""
    kind: Literal["counter", "gauge", "histogram"]
    """Kind of the metric; a histogram has the series ``_bucket``, ``_sum`` and ``_count``."""
    labels: tuple[str, ...]
    """Names of the labels."""
    unit: str
    """Unit of the values."""
    help: str
    """Description of the counted or measured quantity."""
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets."""


DRIVER_METRICS = (
    Metric(
        "curator_df_runs_total",
        "counter",
        ("outcome",),
        "runs",
        "Ended runs by outcome: finished, failed, interrupted.",
    ),
    Metric("curator_df_runs_active", "gauge", (), "runs", "Active runs."),
    Metric("curator_df_run_start_timestamp_seconds", "gauge", (), "seconds", "Start of the latest run (Unix time)."),
    Metric(
        "curator_df_progress_timestamp_seconds",
        "gauge",
        (),
        "seconds",
        "Start of the latest run, or end of its latest task (Unix time).",
    ),
    Metric("curator_df_run_input_bytes", "gauge", (), "bytes", "Size on disk of the latest run's input."),
    Metric("curator_df_memory_allowed_bytes", "gauge", (), "bytes", "Memory budget of a node."),
    Metric("curator_df_memory_projected_bytes", "gauge", (), "bytes", "Estimated peak memory of the latest run."),
    Metric(
        "curator_df_memory_held_bytes",
        "gauge",
        (),
        "bytes",
        "Current memory of all processes together, without clean file pages; only for clusters from start_cluster.",
    ),
    Metric(
        "curator_df_memory_peak_bytes",
        "gauge",
        (),
        "bytes",
        "Actual peak memory since the start of the latest run, sampled every 50 ms.",
    ),
    Metric("curator_df_workers_expected", "gauge", (), "workers", "Number of workers in the layout."),
    Metric("curator_df_stage_tasks", "gauge", ("stage",), "tasks", "Total number of tasks of a stage."),
    Metric(
        "curator_df_stage_tasks_done",
        "gauge",
        ("stage",),
        "tasks",
        "Finished tasks of a stage, including those of the earlier run that is resumed.",
    ),
    Metric(
        "curator_df_tasks_total",
        "counter",
        ("stage", "outcome"),
        "tasks",
        "Ended tasks by outcome: done, memory, oversize, stopped, failed, worker lost.",
    ),
    Metric(
        "curator_df_task_errors_total",
        "counter",
        ("stage", "step", "outcome"),
        "tasks",
        "Tasks that ended with another outcome than done, by the step in which they ended.",
    ),
    Metric(
        "curator_df_task_seconds",
        "histogram",
        ("stage",),
        "seconds",
        "Time from the submission of a task to its end.",
        TASK_SECONDS,
    ),
    Metric(
        "curator_df_retries_total",
        "counter",
        ("cause",),
        "tasks",
        "Retried input splits by cause: memory, worker lost, exclusive.",
    ),
    Metric("curator_df_leaks_total", "counter", ("step",), "workers", "Workers whose memory grew after each task."),
    Metric("curator_df_step_rows_in_total", "counter", STEP, "rows", "Rows into a step."),
    Metric("curator_df_step_rows_out_total", "counter", STEP, "rows", "Rows out of a step."),
    Metric("curator_df_step_bytes_in_total", "counter", STEP, "bytes", "Bytes of the blocks into an operator."),
    Metric("curator_df_step_bytes_out_total", "counter", STEP, "bytes", "Bytes of the blocks out of an operator."),
    Metric("curator_df_step_seconds_total", "counter", STEP, "seconds", "Time spent in a step, summed over threads."),
    Metric(
        "curator_df_step_block_seconds",
        "histogram",
        STEP,
        "seconds",
        "Time of an operator per block.",
        BLOCK_SECONDS,
    ),
    Metric("curator_df_step_rows_dropped_total", "counter", (*STEP, "reason"), "rows", "Rows that a step dropped."),
    Metric(
        "curator_df_step_counted_total",
        "counter",
        (*STEP, "counter"),
        "as counted",
        "Counters of an operator, and those that your kernels return in Outcome.counters.",
    ),
    Metric(
        "curator_df_step_peak_bytes",
        "gauge",
        (*STEP, "of"),
        "bytes",
        "Peak memory of a step with a model in one worker: on its GPU, and in its process.",
    ),
    Metric("curator_df_rows_read_total", "counter", (), "rows", "Rows read by the last pass, bad ones included."),
    Metric("curator_df_rows_written_total", "counter", (), "rows", "Rows written, to all outputs together."),
    Metric(
        "curator_df_rows_quarantined_total",
        "counter",
        ("cause",),
        "rows",
        "Quarantined rows by cause: memory (a row alone did not fit), other.",
    ),
    Metric("curator_df_output_bytes_total", "counter", (), "bytes", "Size of the files written."),
    Metric("curator_df_exchange_keys_total", "counter", ("step",), "rows", "Rows compared."),
    Metric(
        "curator_df_exchange_bytes_total",
        "counter",
        ("step", "kind"),
        "bytes",
        "Bytes of temporary files by kind: keys, drops, spilled.",
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
"""Metrics served by the client's process."""

WORKER_METRICS = (
    Metric(
        "curator_df_worker_step_threads",
        "gauge",
        ("step",),
        "threads",
        "Threads working on a step now. Read and write are steps; a task without steps counts under its kind.",
    ),
    Metric("curator_df_worker_pss_bytes", "gauge", (), "bytes", "Memory, with the worker's share of shared pages."),
    Metric(
        "curator_df_worker_counted_bytes",
        "gauge",
        (),
        "bytes",
        "Memory that the budget counts: the worker's share without clean file pages.",
    ),
    Metric("curator_df_worker_private_bytes", "gauge", (), "bytes", "Memory, private pages only."),
    Metric("curator_df_worker_arrow_bytes", "gauge", (), "bytes", "Memory allocated from Arrow's memory pool."),
    Metric("curator_df_worker_limit_bytes", "gauge", (), "bytes", "Dask's memory limit of the worker, if it has one."),
    Metric(
        "curator_df_worker_rmm_bytes", "gauge", (), "bytes", "Memory allocated by RMM, if its statistics are enabled."
    ),
    Metric(
        "curator_df_worker_cudf_spilled_bytes",
        "gauge",
        (),
        "bytes",
        "Memory that cuDF spilled from the GPU to the worker, if its spilling is enabled.",
    ),
    Metric(
        "curator_df_gpu_memory_used_bytes",
        "gauge",
        ("host", "gpu"),
        "bytes",
        "Memory used on a GPU, as reported by NVML.",
    ),
    Metric("curator_df_gpu_memory_total_bytes", "gauge", ("host", "gpu"), "bytes", "Total memory of a GPU."),
    Metric(
        "curator_df_gpu_utilization_ratio",
        "gauge",
        ("host", "gpu"),
        "ratio",
        "Fraction of NVML's last sample period in which a kernel ran.",
    ),
)
"""Metrics served by each worker, in addition to Dask's own."""

METRICS = {metric.name: metric for metric in (*DRIVER_METRICS, *WORKER_METRICS)}
"""All metrics, by name."""


class SeriesBook:
    """Values of metrics; any thread may write or read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[tuple[str, ...], float]] = {}
        self._counts: dict[str, dict[tuple[str, ...], list[int]]] = {}

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add to a counter; adding 0 starts its series before there is anything to count."""
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
        """Raise a gauge to a value, so that it keeps the maximum."""
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
        """Add counts of a histogram's buckets (not cumulative), and the sum of the observed values."""
        self.add(name, total, *labels)
        with self._lock:
            kept = self._counts.setdefault(name, {})
            labels = _within_limit(kept, labels)
            kept[labels] = [old + new for old, new in zip(kept.get(labels, [0] * len(counts)), counts, strict=True)]

    def value(self, name: str, *labels: str) -> float:
        """Return the value of one series (for a histogram, its sum), or 0 if it does not exist."""
        with self._lock:
            return self._values.get(METRICS[name].name, {}).get(labels, 0)

    def families(self) -> Iterator[Any]:
        """Yield the metrics that have values, in the form that ``prometheus_client`` expects."""
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
    """Yield the bound of each bucket with the cumulative count."""
    total = 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        total += count
        yield bound, total

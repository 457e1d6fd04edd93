# SPDX-License-Identifier: Apache-2.0
"""Alert rules for Prometheus, as data, with the thresholds of a receipt's advice (`core.receipts.advice`) where it has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from curator_df.core.receipts.advice import MANY_RETRIES, MUCH_SKEW

BUDGET_SHARE = 0.9
"""Default threshold of `curator_df.monitor.alerts.budget_share`."""
SPILL_BYTES_PER_SECOND = 50e6
"""Default threshold of `curator_df.monitor.alerts.spill_rate`."""
GPU_SHARE = 0.9
"""Default threshold of `curator_df.monitor.alerts.gpu_share`."""
STALLED_SECONDS = 900
"""Seconds without a finished task until a run counts as stalled. An input split takes seconds; row by row it may take minutes."""
QUARANTINED_SHARE = 0.01
DROPPED_SHARE = 0.95


@dataclass(frozen=True)
class PrometheusRule:
    """One alert."""

    name: str
    """Name of the alert in Prometheus."""
    expr: str
    """PromQL expression; the alert fires while it has a result."""
    holds: str
    """Time for which the expression must have a result before the alert fires, as a Prometheus duration."""
    severity: Literal["info", "warning", "critical"]
    """Label of the alert."""
    text: str
    """Condition in words."""
    why: str
    """Meaning of the alert, and what to do."""


def _increase(metric: str, labels: str = "") -> str:
    return f"sum by (driver) (increase({metric}{labels}[10m]))"


RULES = (
    PrometheusRule(
        "CuratorRunFailed",
        f'{_increase("curator_df_runs_total", """{outcome="failed"}""")} > 0',
        "0m",
        "critical",
        "a run ended with an error in the last 10 minutes",
        "The finished part of the output is kept. Run again with on_existing='resume' to continue.",
    ),
    PrometheusRule(
        "CuratorDriverGone",
        'up{role="driver"} == 0',
        "30s",
        "critical",
        "the process of a run no longer answers",
        "It was killed, or its machine failed (a normal end removes the targets). Run again with on_existing='resume'.",
    ),
    PrometheusRule(
        "CuratorRunStalled",
        f"(time() - curator_df_progress_timestamp_seconds > {STALLED_SECONDS}) and curator_df_runs_active > 0",
        "0m",
        "critical",
        f"a run is active, but no task has finished for {STALLED_SECONDS // 60} minutes",
        "A step hangs, or there are no workers. Check the panel of busy threads in each step.",
    ),
    PrometheusRule(
        "CuratorBudgetNearlyUsed",
        f"curator_df_memory_held_bytes / curator_df_memory_allowed_bytes > {BUDGET_SHARE}",
        "1m",
        "warning",
        f"all processes together use more than {BUDGET_SHARE:.0%} of the memory budget",
        "A step needs more memory than it declares (measure it with profile_memory), or other code in this process uses memory.",
    ),
    PrometheusRule(
        "CuratorBudgetExceeded",
        "curator_df_memory_peak_bytes > curator_df_memory_allowed_bytes",
        "0m",
        "critical",
        "the actual peak memory of the run exceeded the memory budget",
        "The budget was not kept. Please report this as a bug, with the receipt.",
    ),
    PrometheusRule(
        "CuratorPlanExceeded",
        "curator_df_memory_peak_bytes > curator_df_memory_projected_bytes",
        "0m",
        "warning",
        "the actual peak memory exceeded the estimated peak",
        "A step needs more memory than it declares. Measure your own functions with profile_memory.",
    ),
    PrometheusRule(
        "CuratorWorkersMissing",
        'sum by (driver) (dask_scheduler_workers{role="scheduler"}) < sum by (driver) (curator_df_workers_expected)',
        "2m",
        "warning",
        "fewer workers are connected than the layout needs",
        "A worker did not restart. Check its log, and the queue of the cluster.",
    ),
    PrometheusRule(
        "CuratorWorkerLost",
        f'{_increase("curator_df_retries_total", """{cause="worker lost"}""")} > 0',
        "0m",
        "warning",
        "an input split crashed its worker in the last 10 minutes",
        "Native code allocates too much memory or crashes. The input split is retried exclusively.",
    ),
    PrometheusRule(
        "CuratorWorkerPaused",
        'dask_scheduler_workers{role="scheduler", state="paused"} > 0',
        "1m",
        "warning",
        "a worker is paused because its memory is full",
        "Give the workers of the cluster more memory or fewer threads. This happens only on clusters used through connect().",
    ),
    PrometheusRule(
        "CuratorManyRetries",
        f"{_increase('curator_df_retries_total')} / {_increase('curator_df_tasks_total')} > {MANY_RETRIES}",
        "2m",
        "warning",
        f"more than {MANY_RETRIES:.0%} of the tasks of the last 10 minutes were retried",
        "Use a smaller blocksize= or more memory=.",
    ),
    PrometheusRule(
        "CuratorRowsOutOfMemory",
        f'{_increase("curator_df_rows_quarantined_total", """{cause="memory"}""")} > 0',
        "0m",
        "warning",
        "rows were quarantined in the last 10 minutes because one row alone did not fit in memory",
        "To include these rows, set a larger memory= and run again with on_existing='overwrite'.",
    ),
    PrometheusRule(
        "CuratorRowsQuarantined",
        f'{_increase("curator_df_rows_quarantined_total", """{cause="other"}""")} / {_increase("curator_df_rows_read_total")}'
        f" > {QUARANTINED_SHARE}",
        "1m",
        "warning",
        f"more than {QUARANTINED_SHARE:.0%} of the rows of the last 10 minutes were quarantined",
        "The rows cannot be read, or one of your functions raises on them. Check the quarantine reasons.",
    ),
    PrometheusRule(
        "CuratorNearlyAllDropped",
        f"1 - {_increase('curator_df_rows_written_total')} / {_increase('curator_df_rows_read_total')} > {DROPPED_SHARE}",
        "2m",
        "warning",
        f"more than {DROPPED_SHARE:.0%} of the rows of the last 10 minutes were dropped",
        "A filter may be misconfigured. Check the drop reasons.",
    ),
    PrometheusRule(
        "CuratorWorkerLeaks",
        "sum by (driver) (curator_df_leaks_total) > 0",
        "0m",
        "warning",
        "the memory of a worker grew after each task",
        "There may be a memory leak. The receipt names the step, if known, and reports whether the worker was restarted.",
    ),
    PrometheusRule(
        "CuratorSpilling",
        'rate(dask_worker_spill_bytes_total{role="worker", activity="disk-write"}[1m]) > '
        f"{SPILL_BYTES_PER_SECOND:.0f}",
        "1m",
        "warning",
        f"a worker writes more than {SPILL_BYTES_PER_SECOND / 1e6:.0f} MB per second to its spill directory",
        "curator_df's tasks return no data, so other code on the cluster keeps results in memory.",
    ),
    PrometheusRule(
        "CuratorGpuMemoryNearlyFull",
        "max by (driver, host, gpu) (curator_df_gpu_memory_used_bytes / curator_df_gpu_memory_total_bytes) > "
        f"{GPU_SHARE}",
        "1m",
        "warning",
        f"more than {GPU_SHARE:.0%} of a GPU's memory is in use",
        "An allocation may fail soon. Use a smaller blocksize=, or stop other programs on that GPU.",
    ),
    PrometheusRule(
        "CuratorHashSkew",
        f"curator_df_exchange_skew_ratio > {MUCH_SKEW}",
        "0m",
        "info",
        f"the largest hash range of a comparison had more than {MUCH_SKEW:g} times the mean number of keys",
        "Many rows have the same key. Remove identical texts first with drop_exact_duplicates.",
    ),
)


def rule_groups() -> dict[str, Any]:
    """Return the rules in the format of a Prometheus rule file."""
    return {"groups": [{"name": "curator-df", "rules": list(_rules())}]}


def _rules() -> Iterator[dict[str, Any]]:
    for rule in RULES:
        yield {
            "alert": rule.name,
            "expr": rule.expr,
            "for": rule.holds,
            "labels": {"severity": rule.severity},
            "annotations": {"summary": rule.text, "description": rule.why},
        }

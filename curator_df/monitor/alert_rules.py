# SPDX-License-Identifier: Apache-2.0
"""Alert rules for Prometheus, as data, with the thresholds of a receipt's advice (`core.receipts.advice`) where it has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from curator_df.core.receipts.advice import MANY_RETRIES, MUCH_SKEW

BUDGET_SHARE = 0.9
"""As `curator_df.monitor.alerts.budget_share`."""
SPILL_BYTES_PER_SECOND = 50e6
"""As `curator_df.monitor.alerts.spill_rate`."""
GPU_SHARE = 0.9
"""As `curator_df.monitor.alerts.gpu_share`."""
STALLED_SECONDS = 900
"""A range is a second of work; one that runs alone, row by row, may take minutes."""
QUARANTINED_SHARE = 0.01
DROPPED_SHARE = 0.95


@dataclass(frozen=True)
class PrometheusRule:
    """One alert."""

    name: str
    """In Prometheus."""
    expr: str
    """In PromQL; fires while it has a result."""
    holds: str
    """How long it must hold before it fires, as Prometheus writes durations."""
    severity: Literal["info", "warning", "critical"]
    """Label of the alert."""
    text: str
    """When it fires, in words."""
    why: str
    """What it means, and what to do."""


def _increase(metric: str, labels: str = "") -> str:
    return f"sum by (driver) (increase({metric}{labels}[10m]))"


RULES = (
    PrometheusRule(
        "CuratorRunFailed",
        f'{_increase("curator_df_runs_total", """{outcome="failed"}""")} > 0',
        "0m",
        "critical",
        "a run ended with an error in the last 10 minutes",
        "What is finished stays; on_existing='resume' goes on from there.",
    ),
    PrometheusRule(
        "CuratorDriverGone",
        'up{role="driver"} == 0',
        "30s",
        "critical",
        "the process that runs does not answer any more",
        "It was killed, or its machine is gone: a process that ends takes its targets away. Run again with on_existing='resume'.",
    ),
    PrometheusRule(
        "CuratorRunStalled",
        f"(time() - curator_df_progress_timestamp_seconds > {STALLED_SECONDS}) and curator_df_runs_active > 0",
        "0m",
        "critical",
        f"a run is going on and no task came back for {STALLED_SECONDS // 60} minutes",
        "A step hangs, or there are no workers: see the threads in each step.",
    ),
    PrometheusRule(
        "CuratorBudgetNearlyUsed",
        f"curator_df_memory_held_bytes / curator_df_memory_allowed_bytes > {BUDGET_SHARE}",
        "1m",
        "warning",
        f"all processes together hold more than {BUDGET_SHARE:.0%} of the memory allowed",
        "A step needs more than it states (profile_memory), or something else in this process grew.",
    ),
    PrometheusRule(
        "CuratorBudgetExceeded",
        "curator_df_memory_peak_bytes > curator_df_memory_allowed_bytes",
        "0m",
        "critical",
        "more than the memory allowed was held at some time of the run",
        "The promise was broken: please report it, with the receipt.",
    ),
    PrometheusRule(
        "CuratorPlanExceeded",
        "curator_df_memory_peak_bytes > curator_df_memory_projected_bytes",
        "0m",
        "warning",
        "more was held than the plan said",
        "A step needs more than it states; profile_memory measures a function of yours.",
    ),
    PrometheusRule(
        "CuratorWorkersMissing",
        'sum by (driver) (dask_scheduler_workers{role="scheduler"}) < sum by (driver) (curator_df_workers_expected)',
        "2m",
        "warning",
        "fewer workers than the layout asks for",
        "A worker does not come back: see its log, and the queue of the cluster.",
    ),
    PrometheusRule(
        "CuratorWorkerLost",
        f'{_increase("curator_df_retries_total", """{cause="worker lost"}""")} > 0',
        "0m",
        "warning",
        "a range ended its worker in the last 10 minutes",
        "Something allocates outside Python and Arrow, or crashes; the range runs again, alone.",
    ),
    PrometheusRule(
        "CuratorWorkerPaused",
        'dask_scheduler_workers{role="scheduler", state="paused"} > 0',
        "1m",
        "warning",
        "a worker takes no tasks because it is full",
        "On a cluster from connect: give workers more memory or fewer threads.",
    ),
    PrometheusRule(
        "CuratorManyRetries",
        f"{_increase('curator_df_retries_total')} / {_increase('curator_df_tasks_total')} > {MANY_RETRIES}",
        "2m",
        "warning",
        f"more than {MANY_RETRIES:.0%} of the tasks of the last 10 minutes ran again",
        "A smaller blocksize=, or more memory=, avoids that.",
    ),
    PrometheusRule(
        "CuratorRowsOutOfMemory",
        f'{_increase("curator_df_rows_quarantined_total", """{cause="memory"}""")} > 0',
        "0m",
        "warning",
        "rows were set aside in the last 10 minutes because they did not fit even alone",
        "To have them, allow more memory and run with on_existing='overwrite'.",
    ),
    PrometheusRule(
        "CuratorRowsQuarantined",
        f'{_increase("curator_df_rows_quarantined_total", """{cause="other"}""")} / {_increase("curator_df_rows_read_total")}'
        f" > {QUARANTINED_SHARE}",
        "1m",
        "warning",
        f"more than {QUARANTINED_SHARE:.0%} of the rows of the last 10 minutes were set aside",
        "They cannot be read, or a function of yours raises on them: look at their reasons.",
    ),
    PrometheusRule(
        "CuratorNearlyAllDropped",
        f"1 - {_increase('curator_df_rows_written_total')} / {_increase('curator_df_rows_read_total')} > {DROPPED_SHARE}",
        "2m",
        "warning",
        f"more than {DROPPED_SHARE:.0%} of the rows of the last 10 minutes were dropped",
        "A rule does what was not meant: see the drops by reason.",
    ),
    PrometheusRule(
        "CuratorWorkerLeaks",
        "sum by (driver) (curator_df_leaks_total) > 0",
        "0m",
        "warning",
        "a worker held more after each task",
        "The receipt says which step leaves memory behind, if any was seen to, and whether the worker was started again.",
    ),
    PrometheusRule(
        "CuratorSpilling",
        'rate(dask_worker_spill_bytes_total{role="worker", activity="disk-write"}[1m]) > '
        f"{SPILL_BYTES_PER_SECOND:.0f}",
        "1m",
        "warning",
        f"a worker writes more than {SPILL_BYTES_PER_SECOND / 1e6:.0f} MB a second to its spill directory",
        "Tasks of ours return no data, so something else on the cluster keeps results.",
    ),
    PrometheusRule(
        "CuratorGpuMemoryNearlyFull",
        "max by (driver, host, gpu) (curator_df_gpu_memory_used_bytes / curator_df_gpu_memory_total_bytes) > "
        f"{GPU_SHARE}",
        "1m",
        "warning",
        f"more than {GPU_SHARE:.0%} of a GPU's memory is in use",
        "An allocation may fail soon: a smaller blocksize=, or nothing else on that GPU.",
    ),
    PrometheusRule(
        "CuratorHashSkew",
        f"curator_df_exchange_skew_ratio > {MUCH_SKEW}",
        "0m",
        "info",
        f"the largest hash range of a comparison had more than {MUCH_SKEW:g} times the mean of keys",
        "Many rows have the same key; drop_exact_duplicates on the text first takes such rows away.",
    ),
)


def rule_groups() -> dict[str, Any]:
    """Return the rules as a rule file of Prometheus holds them."""
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

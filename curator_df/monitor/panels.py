# SPDX-License-Identifier: Apache-2.0
"""What the Grafana dashboard shows, as data: rows of panels, each with what it asks Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

D = 'driver=~"$driver"'
"""Every expression asks for the sessions that are chosen at the top of the dashboard."""
RATE = "[$__rate_interval]"
"""At least four scrapes, says Grafana."""


@dataclass(frozen=True)
class Query:
    """One expression of a panel."""

    expr: str
    """In PromQL, with Grafana's variables."""
    legend: str = ""
    """With labels as ``{{step}}``."""


@dataclass(frozen=True)
class Panel:
    """One picture."""

    title: str
    """What it shows."""
    unit: str
    """As Grafana names units."""
    queries: tuple[Query, ...]
    """At least one."""
    width: int = 8
    """Of the 24 columns of Grafana's grid."""
    kind: Literal["timeseries", "stat", "bargauge"] = "timeseries"
    """How it is drawn; ``bargauge`` shows the value at the end of the time that is looked at."""


def _last(metric: str, by: str, more: str = "") -> str:
    """Return the last value in the time that is looked at, so that a run that has ended is seen too."""
    return f"sum by ({by}) (last_over_time({metric}{{{D}{more}}}[$__range]))"


def _most(metric: str, by: str, more: str = "") -> str:
    """Return the largest value in that time."""
    return f"max by ({by}) (max_over_time({metric}{{{D}{more}}}[$__range]))"


def _rate(metric: str, by: str, more: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{D}{more}}}{RATE}))"


def _quantile(share: float, metric: str, by: str) -> str:
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', f'le, {by}')})"


_IN_LAST = ', stage="write"'
_DONE = _last("curator_df_stage_tasks_done", "driver", _IN_LAST)
_TASKS = _last("curator_df_stage_tasks", "driver", _IN_LAST)
_READ, _WRITTEN = _last("curator_df_rows_read_total", "driver"), _last("curator_df_rows_written_total", "driver")
_SCHEDULER, _WORKER = f'{{{D}, role="scheduler"}}', f'{{{D}, role="worker"}}'

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Run",
        (
            Panel("Runs going on", "short", (Query(f"sum by (driver) (curator_df_runs_active{{{D}}})"),), 3, "stat"),
            Panel("Last pass done", "percentunit", (Query(f"{_DONE} / {_TASKS}"),), 3, "stat"),
            Panel(
                "Time left",
                "s",
                (Query(f"({_TASKS} - {_DONE}) / {_rate('curator_df_tasks_total', 'driver', _IN_LAST)}"),),
                3,
                "stat",
            ),
            Panel("Rows read", "short", (Query(_READ),), 3, "stat"),
            Panel("Rows written", "short", (Query(_WRITTEN),), 3, "stat"),
            Panel("Share written", "percentunit", (Query(f"{_WRITTEN} / {_READ}"),), 3, "stat"),
            Panel(
                "Runs that ended",
                "short",
                (Query(_last("curator_df_runs_total", "outcome"), "{{outcome}}"),),
                6,
                "stat",
            ),
            Panel(
                "Rows a second",
                "rowsps",
                (
                    Query(_rate("curator_df_rows_read_total", "driver"), "read"),
                    Query(_rate("curator_df_rows_written_total", "driver"), "written"),
                ),
            ),
            Panel(
                "Share of each stage that is done",
                "percentunit",
                (
                    Query(
                        f"sum by (stage) (curator_df_stage_tasks_done{{{D}}}) / sum by (stage) "
                        f"(curator_df_stage_tasks{{{D}}})",
                        "{{stage}}",
                    ),
                ),
            ),
            Panel(
                "Bytes written a second", "Bps", (Query(_rate("curator_df_output_bytes_total", "driver"), "written"),)
            ),
        ),
    ),
    (
        "Memory",
        (
            Panel(
                "All processes against the budget",
                "bytes",
                (
                    Query(f"curator_df_memory_allowed_bytes{{{D}}}", "allowed"),
                    Query(f"curator_df_memory_projected_bytes{{{D}}}", "projected"),
                    Query(f"curator_df_memory_peak_bytes{{{D}}}", "peak"),
                    Query(f"curator_df_memory_held_bytes{{{D}}}", "held"),
                ),
                12,
            ),
            Panel(
                "Each worker",
                "bytes",
                (
                    Query(f"curator_df_worker_pss_bytes{_WORKER}", "{{worker}}"),
                    Query(f"curator_df_worker_private_bytes{_WORKER}", "{{worker}}, private"),
                    Query(f"curator_df_worker_arrow_bytes{_WORKER}", "{{worker}}, Arrow"),
                    Query(f"max by (driver) (curator_df_worker_limit_bytes{_WORKER})", "limit"),
                ),
                12,
            ),
            Panel(
                "Results on workers, by Dask",
                "bytes",
                (Query(f"sum by (type) (dask_worker_memory_bytes{_WORKER})", "{{type}}"),),
                12,
            ),
            Panel(
                "Spilling a second",
                "Bps",
                (Query(f"sum by (activity) (rate(dask_worker_spill_bytes_total{_WORKER}{RATE}))", "{{activity}}"),),
                12,
            ),
        ),
    ),
    (
        "Steps",
        (
            Panel(
                "Threads busy in each step",
                "short",
                (Query(_rate("curator_df_step_seconds_total", "place, step"), "{{place}} {{step}}"),),
            ),
            Panel(
                "Threads in each step now, as workers say",
                "short",
                (Query(f"sum by (step) (curator_df_worker_step_threads{_WORKER})", "{{step}}"),),
            ),
            Panel(
                "Seconds for one block, half of them and 95 %",
                "s",
                tuple(
                    Query(
                        _quantile(share, "curator_df_step_block_seconds", "place, step"),
                        f"{{{{place}}}} {{{{step}}}}, {share:.0%}",
                    )
                    for share in (0.5, 0.95)
                ),
            ),
            Panel(
                "Rows that came to each step of the last pass",
                "short",
                (Query(_last("curator_df_step_rows_in_total", "place, step", _IN_LAST), "{{place}} {{step}}"),),
                kind="bargauge",
            ),
            Panel(
                "Rows out of each step a second",
                "rowsps",
                (Query(_rate("curator_df_step_rows_out_total", "place, step"), "{{place}} {{step}}"),),
            ),
            Panel(
                "Bytes into and out of each step a second",
                "Bps",
                tuple(
                    Query(
                        _rate(f"curator_df_step_bytes_{way}_total", "place, step"), f"{{{{place}}}} {{{{step}}}}, {way}"
                    )
                    for way in ("in", "out")
                ),
            ),
        ),
    ),
    (
        "Drops and counters",
        (
            Panel(
                "Rows dropped, by reason",
                "short",
                (Query(_last("curator_df_step_rows_dropped_total", "step, reason", _IN_LAST), "{{step}}: {{reason}}"),),
                kind="bargauge",
            ),
            Panel(
                "Rows dropped a second",
                "rowsps",
                (Query(_rate("curator_df_step_rows_dropped_total", "reason", _IN_LAST), "{{reason}}"),),
            ),
            Panel(
                "What operators and your kernels counted",
                "short",
                (Query(_last("curator_df_step_counted_total", "step, counter", _IN_LAST), "{{step}}: {{counter}}"),),
                kind="bargauge",
            ),
            Panel(
                "Most that steps with a model held",
                "bytes",
                (Query(_most("curator_df_step_peak_bytes", "step, of", _IN_LAST), "{{step}}: {{of}}"),),
                kind="bargauge",
            ),
        ),
    ),
    (
        "Tasks and errors",
        (
            Panel(
                "Tasks a second, by outcome",
                "ops",
                (Query(_rate("curator_df_tasks_total", "outcome"), "{{outcome}}"),),
            ),
            Panel(
                "Seconds of a task, half of them and 95 %",
                "s",
                tuple(
                    Query(_quantile(share, "curator_df_task_seconds", "stage"), f"{{{{stage}}}}, {share:.0%}")
                    for share in (0.5, 0.95)
                ),
            ),
            Panel(
                "Tasks that were not done, by step",
                "short",
                (Query(_last("curator_df_task_errors_total", "step, outcome"), "{{step}}: {{outcome}}"),),
                kind="bargauge",
            ),
            Panel("Ranges run again", "short", (Query(_last("curator_df_retries_total", "cause"), "{{cause}}"),)),
            Panel(
                "Rows set aside",
                "short",
                (Query(_last("curator_df_rows_quarantined_total", "cause"), "{{cause}}"),),
            ),
            Panel("Workers that leaked", "short", (Query(_last("curator_df_leaks_total", "step"), "{{step}}"),)),
        ),
    ),
    (
        "Comparisons of all rows",
        (
            Panel(
                "Bytes through temporary files",
                "bytes",
                (Query(_last("curator_df_exchange_bytes_total", "step, kind"), "{{step}}: {{kind}}"),),
                kind="bargauge",
            ),
            Panel(
                "Rows compared",
                "short",
                (Query(_last("curator_df_exchange_keys_total", "step"), "{{step}}"),),
                4,
                "bargauge",
            ),
            Panel(
                "Seconds",
                "s",
                (Query(_last("curator_df_exchange_seconds_total", "step"), "{{step}}"),),
                4,
                "bargauge",
            ),
            Panel(
                "Largest hash range, times the mean",
                "short",
                (
                    Query(
                        f"max by (step) (last_over_time(curator_df_exchange_skew_ratio{{{D}}}[$__range]))", "{{step}}"
                    ),
                ),
                kind="bargauge",
            ),
        ),
    ),
    (
        "Workers",
        (
            Panel(
                "Workers",
                "short",
                (
                    Query(f"sum by (state) (dask_scheduler_workers{_SCHEDULER})", "{{state}}"),
                    Query(f"sum by (driver) (curator_df_workers_expected{{{D}}})", "expected"),
                ),
            ),
            Panel(
                "Tasks, by Dask", "short", (Query(f"sum by (state) (dask_scheduler_tasks{_SCHEDULER})", "{{state}}"),)
            ),
            Panel(
                "CPU of each worker",
                "short",
                (Query(f"rate(process_cpu_seconds_total{_WORKER}{RATE})", "{{worker}}"),),
            ),
            Panel("Latency to the scheduler", "s", (Query(f"dask_worker_latency_seconds{_WORKER}", "{{worker}}"),)),
            Panel(
                "Longest pause of the event loop",
                "s",
                (
                    Query(f"dask_worker_tick_duration_maximum_seconds{_WORKER}", "{{worker}}"),
                    Query(f"dask_scheduler_tick_duration_maximum_seconds{_SCHEDULER}", "scheduler"),
                ),
            ),
            Panel(
                "Between workers, a second",
                "Bps",
                (Query(f"rate(dask_worker_transfer_outgoing_bytes_total{_WORKER}{RATE})", "{{worker}}"),),
            ),
        ),
    ),
    (
        "GPUs",
        (
            Panel(
                "Memory in use",
                "bytes",
                (
                    Query(f"max by (host, gpu) (curator_df_gpu_memory_used_bytes{{{D}}})", "{{host}} {{gpu}}"),
                    Query(f"max by (host, gpu) (curator_df_gpu_memory_total_bytes{{{D}}})", "{{host}} {{gpu}}, in all"),
                ),
            ),
            Panel(
                "Utilization",
                "percentunit",
                (Query(f"max by (host, gpu) (curator_df_gpu_utilization_ratio{{{D}}})", "{{host}} {{gpu}}"),),
            ),
            Panel(
                "RMM, and what cuDF spilled",
                "bytes",
                (
                    Query(f"curator_df_worker_rmm_bytes{_WORKER}", "{{worker}}"),
                    Query(f"curator_df_worker_cudf_spilled_bytes{_WORKER}", "{{worker}}, spilled"),
                ),
            ),
        ),
    ),
)

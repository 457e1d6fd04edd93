# SPDX-License-Identifier: Apache-2.0
"""Generator of the Grafana dashboard that the package ships: ``python -m docs.generate_dashboard`` writes its JSON file.

A test fails if the file is not what this generator writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from curator_df.monitor.stack import DASHBOARD_FILE, DASHBOARD_UID, DATASOURCE
from curator_df.receipts.model_figures import TRIED_MICROSECONDS, TRIED_TOKENS

D = 'driver=~"$driver"'
"""Label filter of every expression: the sessions selected at the top of the dashboard."""
RATE = "[$__rate_interval]"
"""Range of a rate; Grafana chooses at least four scrapes."""
IN_LAST = ', stage="write"'
"""Label filter for the pass that writes."""
COUNTED = "curator_df_step_counted_total"
"""Metric of the counters of steps, by the label ``counter``."""


@dataclass(frozen=True)
class Query:
    """Expression of a panel."""

    expr: str
    """PromQL expression with Grafana's variables."""
    legend: str = ""
    """Legend, with labels in the form ``{{step}}``."""


@dataclass(frozen=True)
class Panel:
    """Panel of the dashboard."""

    title: str
    """Title of the panel."""
    unit: str
    """Unit, by Grafana's name for it."""
    queries: tuple[Query, ...]
    """Expressions, at least one."""
    width: int = 8
    """Width in columns, of the 24 of Grafana's grid."""
    kind: Literal["timeseries", "stat", "bargauge"] = "timeseries"
    """Type of the panel; ``bargauge`` shows the value at the end of the selected time range."""


def last(metric: str, by: str, more: str = "") -> str:
    """Return the last value in the selected time range, so that a run that has ended is also shown."""
    return f"sum by ({by}) (last_over_time({metric}{{{D}{more}}}[$__range]))"


def most(metric: str, by: str, more: str = "") -> str:
    """Return the largest value in the selected time range."""
    return f"max by ({by}) (max_over_time({metric}{{{D}{more}}}[$__range]))"


def rate(metric: str, by: str, more: str = "") -> str:
    """Return the increase per second."""
    return f"sum by ({by}) (rate({metric}{{{D}{more}}}{RATE}))"


def quantile(share: float, metric: str, by: str) -> str:
    """Return a quantile of a histogram."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'le, {by}')})"


def counter(name: str) -> str:
    """Return the label filter for a counter of steps."""
    return f', counter=~"{name}"'


def by_size(prefix: str) -> str:
    """Return the values of counters whose names end with a batch size, by that size."""
    counted = f"last_over_time({COUNTED}{{{D}{counter(f'{prefix}.+')}}}[$__range])"
    return f'sum by (step, size) (label_replace({counted}, "size", "$1", "counter", "{prefix}(.+)"))'


_DONE = last("curator_df_stage_tasks_done", "driver", IN_LAST)
_TASKS = last("curator_df_stage_tasks", "driver", IN_LAST)
_READ, _WRITTEN = last("curator_df_rows_read_total", "driver"), last("curator_df_rows_written_total", "driver")
_SCHEDULER, _WORKER = f'{{{D}, role="scheduler"}}', f'{{{D}, role="worker"}}'

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Run",
        (
            Panel("Active runs", "short", (Query(f"sum by (driver) (curator_df_runs_active{{{D}}})"),), 3, "stat"),
            Panel("Last pass, share done", "percentunit", (Query(f"{_DONE} / {_TASKS}"),), 3, "stat"),
            Panel(
                "Remaining time",
                "s",
                (Query(f"({_TASKS} - {_DONE}) / {rate('curator_df_tasks_total', 'driver', IN_LAST)}"),),
                3,
                "stat",
            ),
            Panel("Rows read", "short", (Query(_READ),), 3, "stat"),
            Panel("Rows written", "short", (Query(_WRITTEN),), 3, "stat"),
            Panel("Share written", "percentunit", (Query(f"{_WRITTEN} / {_READ}"),), 3, "stat"),
            Panel(
                "Runs that ended",
                "short",
                (Query(last("curator_df_runs_total", "outcome"), "{{outcome}}"),),
                6,
                "stat",
            ),
            Panel(
                "Rows per second",
                "rowsps",
                (
                    Query(rate("curator_df_rows_read_total", "driver"), "read"),
                    Query(rate("curator_df_rows_written_total", "driver"), "written"),
                ),
            ),
            Panel(
                "Share of each stage done",
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
                "Bytes written per second", "Bps", (Query(rate("curator_df_output_bytes_total", "driver"), "written"),)
            ),
        ),
    ),
    (
        "Memory",
        (
            Panel(
                "Memory of all processes and budget",
                "bytes",
                (
                    Query(f"curator_df_memory_allowed_bytes{{{D}}}", "budget"),
                    Query(f"curator_df_memory_projected_bytes{{{D}}}", "estimated peak"),
                    Query(f"curator_df_memory_peak_bytes{{{D}}}", "actual peak"),
                    Query(f"curator_df_memory_held_bytes{{{D}}}", "in use"),
                ),
                12,
            ),
            Panel(
                "Memory of each worker",
                "bytes",
                (
                    Query(f"curator_df_worker_counted_bytes{_WORKER}", "{{worker}}"),
                    Query(f"curator_df_worker_pss_bytes{_WORKER}", "{{worker}}, with pages of files"),
                    Query(f"curator_df_worker_private_bytes{_WORKER}", "{{worker}}, private"),
                    Query(f"curator_df_worker_arrow_bytes{_WORKER}", "{{worker}}, Arrow"),
                    Query(f"max by (driver) (curator_df_worker_limit_bytes{_WORKER})", "limit"),
                ),
                12,
            ),
            Panel(
                "Results on workers (Dask)",
                "bytes",
                (Query(f"sum by (type) (dask_worker_memory_bytes{_WORKER})", "{{type}}"),),
                12,
            ),
            Panel(
                "Spilled bytes per second",
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
                "Busy threads in each step",
                "short",
                (Query(rate("curator_df_step_seconds_total", "place, step"), "{{place}} {{step}}"),),
            ),
            Panel(
                "Current threads in each step, reported by workers",
                "short",
                (Query(f"sum by (step) (curator_df_worker_step_threads{_WORKER})", "{{step}}"),),
            ),
            Panel(
                "Seconds per block, median and 95th percentile",
                "s",
                tuple(
                    Query(
                        quantile(share, "curator_df_step_block_seconds", "place, step"),
                        f"{{{{place}}}} {{{{step}}}}, {share:.0%}",
                    )
                    for share in (0.5, 0.95)
                ),
            ),
            Panel(
                "Rows into each step of the last pass",
                "short",
                (Query(last("curator_df_step_rows_in_total", "place, step", IN_LAST), "{{place}} {{step}}"),),
                kind="bargauge",
            ),
            Panel(
                "Rows out of each step per second",
                "rowsps",
                (Query(rate("curator_df_step_rows_out_total", "place, step"), "{{place}} {{step}}"),),
            ),
            Panel(
                "Bytes into and out of each step per second",
                "Bps",
                tuple(
                    Query(
                        rate(f"curator_df_step_bytes_{way}_total", "place, step"), f"{{{{place}}}} {{{{step}}}}, {way}"
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
                (Query(last("curator_df_step_rows_dropped_total", "step, reason", IN_LAST), "{{step}}: {{reason}}"),),
                kind="bargauge",
            ),
            Panel(
                "Rows dropped per second",
                "rowsps",
                (Query(rate("curator_df_step_rows_dropped_total", "reason", IN_LAST), "{{reason}}"),),
            ),
            Panel(
                "Counters of operators and of your kernels",
                "short",
                (Query(last("curator_df_step_counted_total", "step, counter", IN_LAST), "{{step}}: {{counter}}"),),
                kind="bargauge",
            ),
        ),
    ),
    (
        "Models",
        (
            Panel(
                "Documents passed to models per second",
                "short",
                (Query(rate(COUNTED, "step", counter("documents")), "{{step}}"),),
            ),
            Panel(
                "Tokens passed to models per second, without padding",
                "short",
                (Query(rate(COUNTED, "step", counter("tokens")), "{{step}}"),),
            ),
            Panel(
                "Padding as a share of all tokens",
                "percentunit",
                (
                    Query(
                        f"{last(COUNTED, 'step', counter('padding_tokens'))} / "
                        f"{last(COUNTED, 'step', counter('tokens|padding_tokens'))}",
                        "{{step}}",
                    ),
                ),
            ),
            Panel(
                "Tokens per second, by batch size tried",
                "short",
                (Query(f"1e6 * {by_size(TRIED_TOKENS)} / {by_size(TRIED_MICROSECONDS)}", "{{step}}: {{size}}"),),
                kind="bargauge",
            ),
            Panel(
                "Batches that did not fit in memory",
                "short",
                (Query(last(COUNTED, "step", counter("batches_halved")), "{{step}}"),),
            ),
            Panel(
                "Peak memory of steps with a model",
                "bytes",
                (Query(most("curator_df_step_peak_bytes", "step, of", IN_LAST), "{{step}}: {{of}}"),),
                kind="bargauge",
            ),
        ),
    ),
    (
        "Tasks and errors",
        (
            Panel(
                "Tasks per second, by outcome",
                "ops",
                (Query(rate("curator_df_tasks_total", "outcome"), "{{outcome}}"),),
            ),
            Panel(
                "Seconds per task, median and 95th percentile",
                "s",
                tuple(
                    Query(quantile(share, "curator_df_task_seconds", "stage"), f"{{{{stage}}}}, {share:.0%}")
                    for share in (0.5, 0.95)
                ),
            ),
            Panel(
                "Unfinished tasks, by step",
                "short",
                (Query(last("curator_df_task_errors_total", "step, outcome"), "{{step}}: {{outcome}}"),),
                kind="bargauge",
            ),
            Panel("Retried input splits", "short", (Query(last("curator_df_retries_total", "cause"), "{{cause}}"),)),
            Panel(
                "Quarantined rows",
                "short",
                (Query(last("curator_df_rows_quarantined_total", "cause"), "{{cause}}"),),
            ),
            Panel("Workers that leaked", "short", (Query(last("curator_df_leaks_total", "step"), "{{step}}"),)),
        ),
    ),
    (
        "Comparisons of all rows",
        (
            Panel(
                "Bytes of temporary files",
                "bytes",
                (Query(last("curator_df_exchange_bytes_total", "step, kind"), "{{step}}: {{kind}}"),),
                kind="bargauge",
            ),
            Panel(
                "Rows compared",
                "short",
                (Query(last("curator_df_exchange_keys_total", "step"), "{{step}}"),),
                4,
                "bargauge",
            ),
            Panel(
                "Seconds",
                "s",
                (Query(last("curator_df_exchange_seconds_total", "step"), "{{step}}"),),
                4,
                "bargauge",
            ),
            Panel(
                "Largest hash range, as a multiple of the mean",
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
            Panel("Tasks (Dask)", "short", (Query(f"sum by (state) (dask_scheduler_tasks{_SCHEDULER})", "{{state}}"),)),
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
                "Bytes between workers per second",
                "Bps",
                (Query(f"rate(dask_worker_transfer_outgoing_bytes_total{_WORKER}{RATE})", "{{worker}}"),),
            ),
        ),
    ),
    (
        "GPUs",
        (
            Panel(
                "GPU memory in use",
                "bytes",
                (
                    Query(f"max by (host, gpu) (curator_df_gpu_memory_used_bytes{{{D}}})", "{{host}} {{gpu}}"),
                    Query(f"max by (host, gpu) (curator_df_gpu_memory_total_bytes{{{D}}})", "{{host}} {{gpu}}, total"),
                ),
            ),
            Panel(
                "Utilization",
                "percentunit",
                (Query(f"max by (host, gpu) (curator_df_gpu_utilization_ratio{{{D}}})", "{{host}} {{gpu}}"),),
            ),
            Panel(
                "RMM memory, and bytes spilled by cuDF",
                "bytes",
                (
                    Query(f"curator_df_worker_rmm_bytes{_WORKER}", "{{worker}}"),
                    Query(f"curator_df_worker_cudf_spilled_bytes{_WORKER}", "{{worker}}, spilled"),
                ),
            ),
        ),
    ),
)


SCHEMA_VERSION = 39
"""Version of the dashboard format, that of Grafana 11; later versions read it."""
COLUMNS = 24
"""Number of columns of Grafana's grid."""
HEIGHTS = {"stat": 4, "timeseries": 8, "bargauge": 8}


def dashboard() -> dict[str, Any]:
    """Return the dashboard in the format of a dashboard file."""
    return {
        "uid": DASHBOARD_UID,
        "title": "curator_df",
        "tags": ["curator-df"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "5s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_driver_variable()]},
        "panels": list(_placed()),
    }


def _driver_variable() -> dict[str, Any]:
    query = "label_values(curator_df_memory_allowed_bytes, driver)"
    return {
        "name": "driver",
        "label": "session",
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": "driver"},
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _placed() -> Iterator[dict[str, Any]]:
    """Yield the panels with their positions: left to right, wrapped into lines, below a heading for each row."""
    number = top = 0
    for title, panels in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": _at(0, top, COLUMNS, 1),
        }
        top, left, line = top + 1, 0, 0
        for panel in panels:
            if left + panel.width > COLUMNS:
                top, left, line = top + line, 0, 0
            number += 1
            height = HEIGHTS[panel.kind]
            yield {"id": number, "gridPos": _at(left, top, panel.width, height), **_drawn(panel)}
            left, line = left + panel.width, max(line, height)
        top += line


def _at(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _drawn(panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": DATASOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "instant": panel.kind != "timeseries",
            "range": panel.kind == "timeseries",
        }
        for place, query in enumerate(panel.queries)
    ]
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    if panel.kind != "timeseries":
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    if panel.kind == "bargauge":
        options |= {"orientation": "horizontal", "displayMode": "basic"}
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": options,
        "targets": targets,
    }


def dashboard_text() -> str:
    """Return the content of the dashboard file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    DASHBOARD_FILE.write_text(dashboard_text(), encoding="utf-8")

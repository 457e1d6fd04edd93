# SPDX-License-Identifier: Apache-2.0
"""Panel of the Grafana dashboard as data, and its Prometheus queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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

# SPDX-License-Identifier: Apache-2.0
"""A picture of the Grafana dashboard as data, and what it asks Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

D = 'driver=~"$driver"'
"""Every expression asks for the sessions that are chosen at the top of the dashboard."""
RATE = "[$__rate_interval]"
"""At least four scrapes, says Grafana."""
IN_LAST = ', stage="write"'
"""Chooses the pass that writes."""
COUNTED = "curator_df_step_counted_total"
"""What steps count, by the label ``counter``."""


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


def last(metric: str, by: str, more: str = "") -> str:
    """Return the last value in the time that is looked at, so that a run that has ended is seen too."""
    return f"sum by ({by}) (last_over_time({metric}{{{D}{more}}}[$__range]))"


def most(metric: str, by: str, more: str = "") -> str:
    """Return the largest value in that time."""
    return f"max by ({by}) (max_over_time({metric}{{{D}{more}}}[$__range]))"


def rate(metric: str, by: str, more: str = "") -> str:
    """Return what was added in a second."""
    return f"sum by ({by}) (rate({metric}{{{D}{more}}}{RATE}))"


def quantile(share: float, metric: str, by: str) -> str:
    """Return the value that so large a share of a histogram is below."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'le, {by}')})"


def counter(name: str) -> str:
    """Return what chooses a counter of steps."""
    return f', counter=~"{name}"'


def by_size(prefix: str) -> str:
    """Return what counters say that have the size of a batch at the end of their names."""
    counted = f"last_over_time({COUNTED}{{{D}{counter(f'{prefix}.+')}}}[$__range])"
    return f'sum by (step, size) (label_replace({counted}, "size", "$1", "counter", "{prefix}(.+)"))'

# SPDX-License-Identifier: Apache-2.0
"""Alert rules over one sample of all processes and GPUs. Each alert is raised once until its condition has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curator_df.memory.sizes import show_size
from curator_df.suggestions import suggests_names

LOG = logging.getLogger("curator_df.monitor")

REARM_SHARE = 0.95
"""Share of the threshold below which an alert ends, so that it can be raised again."""
BUDGET_SHARE, WORKER_SHARE, GPU_SHARE = "budget share", "worker share", "GPU share"
"""Names of the rules for a share of a limit, which a plot can draw."""


@suggests_names
@dataclass(frozen=True)
class Alert:
    """Violation of a rule, from its beginning.

    See Also
    --------
    serve_metrics, AlertRule
    """

    seconds: float
    """Seconds since the monitor started."""
    rule: str
    """Name of the rule."""
    subject: str
    """Process, GPU or ``cluster``."""
    value: float
    """Measured value, in the rule's unit."""
    threshold: float
    """Threshold of the rule."""
    message: str
    """Complete message."""

    def __str__(self) -> str:
        return f"{self.seconds:,.1f} s: {self.message}"


@suggests_names
@dataclass(frozen=True)
class AlertRule:
    """Measure by subject, and its threshold.

    See Also
    --------
    serve_metrics, Alert
    """

    name: str
    """Name in alerts and log lines."""
    measure: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, float]]
    """Function from the rows of one sample (as in `MemoryMonitor.to_frame`) to values by subject."""
    threshold: float
    """Value from which the rule alerts."""
    message: str
    """Message with ``{subject}``, ``{value}`` and ``{threshold}``; ``{size}`` is the value as bytes."""


def budget_share(share: float = 0.9) -> AlertRule:
    """Alert when all processes together use more than a share of the memory budget."""

    def measure(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        total, allowed = tree_bytes(rows), rows[0]["allowed_bytes"] if rows else None
        return {"cluster": total / allowed} if allowed else {}

    return AlertRule(BUDGET_SHARE, measure, share, "all processes together use {value:.0%} of the memory budget")


def worker_share(share: float = 0.9) -> AlertRule:
    """Alert when a worker uses more than a share of its memory limit; at 95% its nanny kills it."""

    def measure(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        return {
            row["name"]: row["limited_bytes"] / row["limit_bytes"]
            for row in rows
            if row["kind"] == "worker" and row["limit_bytes"] and row["limited_bytes"]
        }

    return AlertRule(
        WORKER_SHARE, measure, share, "{subject} uses {value:.0%} of its memory limit; at 95% it is killed"
    )


def worker_paused() -> AlertRule:
    """Alert when a worker is paused because its memory is full."""

    def measure(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        return {row["name"]: float(bool(row["is_paused"])) for row in rows if row["kind"] == "worker"}

    return AlertRule("paused", measure, 1.0, "{subject} is paused: its memory is full, so it starts no new tasks")


def spill_rate(bytes_per_second: float = 50e6) -> AlertRule:
    """Alert when a worker writes more than ``bytes_per_second`` to its spill directory."""

    def measure(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        rates = {row["name"]: row["spill_bytes_per_second"] for row in rows if row["kind"] == "worker"}
        return {name: rate for name, rate in rates.items() if rate is not None}

    return AlertRule("spill rate", measure, bytes_per_second, "{subject} spills {size} per second to disk")


def gpu_share(share: float = 0.9) -> AlertRule:
    """Alert when more than a share of a GPU's memory is in use."""

    def measure(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        return {r["name"]: r["gpu_used_bytes"] / r["gpu_total_bytes"] for r in rows if r["kind"] == "gpu"}

    return AlertRule(GPU_SHARE, measure, share, "{subject} uses {value:.0%} of its memory")


def worker_silent(seconds: float = 30.0) -> AlertRule:
    """Alert when a worker has not answered for ``seconds``: it hangs, or native code holds Python's lock."""

    def measure(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        return {row["name"]: row["silent_seconds"] for row in rows if row["kind"] == "worker"}

    return AlertRule("silent", measure, seconds, "{subject} has not answered for {value:,.0f} s")


DEFAULT_RULES = (budget_share(), worker_share(), worker_paused(), spill_rate(), gpu_share(), worker_silent())


class AlertBook:
    """Log of alerts; raises each alert once, until its value is well under the threshold again."""

    def __init__(self, rules: Sequence[AlertRule], on_alert: Callable[[Alert], object] | None) -> None:
        self.alerts: list[Alert] = []
        self.rules, self._on_alert = tuple(rules), on_alert
        self._raised: set[tuple[str, str]] = set()

    def look(self, seconds: float, rows: Sequence[Mapping[str, Any]]) -> None:
        """Evaluate the rules on the rows of one sample."""
        for rule in self.rules:
            for subject, value in rule.measure(rows).items():
                key = (rule.name, subject)
                if value >= rule.threshold and key not in self._raised:
                    self._raised.add(key)
                    self._raise(rule, subject, value, seconds)
                elif value < REARM_SHARE * rule.threshold:
                    self._raised.discard(key)

    def _raise(self, rule: AlertRule, subject: str, value: float, seconds: float) -> None:
        message = rule.message.format(
            subject=subject, value=value, threshold=rule.threshold, size=show_size(int(value)) if value >= 1 else ""
        )
        alert = Alert(seconds, rule.name, subject, value, rule.threshold, message)
        self.alerts.append(alert)
        LOG.warning("%s", message)
        if self._on_alert is not None:
            try:
                self._on_alert(alert)
            except Exception:
                LOG.exception("on_alert raised for the alert %r; the monitor continues", rule.name)


def tree_bytes(rows: Sequence[Mapping[str, Any]]) -> int:
    """Return the counted memory of all processes in one sample, counting each process once."""
    held = {(row["host"], row["pid"]): row["counted_bytes"] for row in rows if row["counted_bytes"] is not None}
    return sum(held.values())

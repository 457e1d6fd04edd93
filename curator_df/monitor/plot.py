# SPDX-License-Identifier: Apache-2.0
"""Plot of a monitored run: all processes against the budget, each worker against its limit, each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from curator_df.core.receipts.figures import new_figure
from curator_df.memory.sizes import show_size
from curator_df.monitor.alerts import BUDGET_SHARE, GPU_SHARE, WORKER_SHARE, Alert, AlertRule

ALLOWED, MARK, OTHERS = "#c0392b", "#7f8c8d", "#b0b7bd"
COLORS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#bcbd22", "#17becf")
"""Colors of workers and GPUs, the same in every panel."""


def draw_memory(
    frame: pd.DataFrame,
    events: Sequence[tuple[float, str, str]],
    alerts: Sequence[Alert],
    rules: Sequence[AlertRule] = (),
) -> Any:
    """Draw a monitor's samples; see `MemoryMonitor.plot`.

    Parameters
    ----------
    frame : pandas.DataFrame
        Samples in the format of `MemoryMonitor.to_frame`.
    events : sequence of (float, str, str)
        Seconds, kind and text of each event.
    alerts : sequence of Alert
        Alerts, marked at the top of the first panel.
    rules : sequence of AlertRule
        Rules; those for a share are drawn as lines at the threshold.

    Returns
    -------
    matplotlib.figure.Figure
        One panel for all processes, one for the workers, and one for the GPUs if there are any.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    has_workers, has_gpus = (frame.kind == "worker").any(), (frame.kind == "gpu").any()
    panels = 1 + int(has_workers) + int(has_gpus)
    figure = new_figure(10, 0.6 + 2.7 * panels)
    axes = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
    shares = {rule.name: rule.threshold for rule in rules}
    _draw_tree(axes[0], frame, events, alerts)
    _draw_limit(axes[0], frame.allowed_bytes, "allowed", shares.get(BUDGET_SHARE))
    if has_workers:
        _draw_workers(axes[1], frame[frame.kind == "worker"])
        _draw_limit(axes[1], frame.limit_bytes, "limit", shares.get(WORKER_SHARE))
    if has_gpus:
        _draw_gpus(axes[-1], frame[frame.kind == "gpu"])
        _draw_limit(axes[-1], frame.gpu_total_bytes, "device", shares.get(GPU_SHARE))
    for panel in axes:
        panel.set_ylim(bottom=0)
        panel.yaxis.set_major_formatter(lambda value, _: show_size(int(value)) if value > 0 else "0")
        panel.grid(axis="y", color="#eeeeee")
        panel.spines[["top", "right"]].set_visible(False)
        if panel.get_legend_handles_labels()[1]:
            panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    axes[-1].set_xlabel("seconds")
    axes[-1].set_xlim(0, max(float(frame.seconds.max()), 1e-3) if len(frame) else 1.0)
    return figure


def _colors(names: Sequence[str]) -> dict[str, str]:
    """Return a color for each worker and GPU."""
    own = [name for name in names if name not in ("client", "scheduler")]
    return dict.fromkeys(names, OTHERS) | {name: COLORS[n % len(COLORS)] for n, name in enumerate(own)}


def _draw_limit(axes: Any, limits: pd.Series, name: str, share: float | None) -> None:
    """Draw the largest limit, and the share of it at which an alert is raised."""
    if limits.isna().all():
        return
    limit = int(limits.max())
    axes.axhline(limit, color=ALLOWED, linewidth=1.5, label=f"{name}, {show_size(limit)}")
    if share is not None:
        axes.axhline(share * limit, color=ALLOWED, linestyle=":", linewidth=1.2, label=f"alert at {share:.0%}")


def _draw_tree(
    axes: Any, frame: pd.DataFrame, events: Sequence[tuple[float, str, str]], alerts: Sequence[Alert]
) -> None:
    held = frame[frame.counted_bytes.notna()].drop_duplicates(["seconds", "host", "pid"])
    by_name = (
        held.pivot_table(index="seconds", columns="name", values="counted_bytes", aggfunc="sum").astype(float).fillna(0)
    )
    order = sorted(by_name.columns, key=lambda name: (name.startswith("worker"), name))
    colors = _colors(order)
    stacked = by_name[order].T.to_numpy()
    axes.stackplot(
        by_name.index, stacked, labels=order, colors=[colors[name] for name in order], alpha=0.8, linewidth=0
    )
    times = [seconds for seconds, kind, _ in events if kind == "retry"]
    if times:
        axes.vlines(
            times, 0, 1, transform=axes.get_xaxis_transform(), color=MARK, linewidth=0.8, label="input split retried"
        )
    if alerts:
        heights = [0.97] * len(alerts)
        axes.scatter(
            [alert.seconds for alert in alerts],
            heights,
            transform=axes.get_xaxis_transform(),
            marker="v",
            color=ALLOWED,
            label="alert",
            zorder=5,
        )
    axes.set_title("Memory of all processes", loc="left", fontsize="medium")


def _draw_workers(axes: Any, workers: pd.DataFrame) -> None:
    colors = _colors(sorted(set(workers.name)))
    for name, rows in workers.groupby("name", sort=True):
        color = colors[str(name)]
        axes.plot(rows.seconds, rows.limited_bytes.astype(float), label=name, color=color, linewidth=1.2)
        paused = rows[rows.is_paused.fillna(False)]
        if len(paused):
            axes.scatter(paused.seconds, paused.limited_bytes.astype(float), color=color, marker="s", s=14)
        if (rows.spilled_bytes.fillna(0) > 0).any():
            axes.plot(
                rows.seconds, rows.spilled_bytes.astype(float), color=color, linestyle=":", label=f"{name}, spilled"
            )
    if workers.is_paused.fillna(False).any():
        axes.scatter([], [], color=MARK, marker="s", s=14, label="paused")
    axes.set_title("Memory of each worker, as counted by its limit", loc="left", fontsize="medium")


def _draw_gpus(axes: Any, gpus: pd.DataFrame) -> None:
    for name, rows in gpus.groupby("name", sort=True):
        axes.plot(rows.seconds, rows.gpu_used_bytes.astype(float), label=name, linewidth=1.2)
    axes.set_title("Memory used on each GPU", loc="left", fontsize="medium")

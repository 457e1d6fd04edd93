# SPDX-License-Identifier: Apache-2.0
"""Pictures of the rows that thresholds keep: of all metrics, and of one with a threshold to move."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from curator_df.core.receipts.figures import new_figure, png_of
from curator_df.ops.filters.rules import Keep
from curator_df.ops.filters.thresholds import ThresholdExplorer

COLUMNS = 2
BARS = 50
SHOWN = (0.005, 0.995)
"""Shares of the rows between which the values lie that are drawn; thresholds are always in the picture."""
WIDE = 100.0
"""Ratio of the largest to the smallest positive value from which on the axis is logarithmic."""
STEPS = 400


def thresholds_figure(explorer: ThresholdExplorer) -> Any:
    """Draw each metric; see `ThresholdExplorer.plot`."""
    lines = -(-len(explorer.metrics) // COLUMNS)
    figure = new_figure(6.2 * min(COLUMNS, len(explorer.metrics)), 2.6 * lines)
    panels = figure.subplots(lines, min(COLUMNS, len(explorer.metrics)), squeeze=False).ravel()
    for axes, metric in zip(panels, explorer.metrics, strict=False):
        rules = explorer.rules(metric)
        told = [
            f"{rule.keep} {rule.threshold:g} keeps {explorer.kept(metric, rule.threshold, rule.keep):.1%}"
            for rule in rules
        ]
        _draw(axes, explorer, metric, _keep(explorer, metric), None)
        axes.set_title("\n".join([metric, *told]), fontsize="medium")
    for axes in panels[len(explorer.metrics) :]:
        axes.set_visible(False)
    return figure


def moved_figure(explorer: ThresholdExplorer, metric: str, threshold: float, keep: Keep) -> Any:
    """Draw one metric with a threshold."""
    figure = new_figure(8, 3.4)
    axes = figure.subplots()
    _draw(axes, explorer, metric, keep, threshold)
    share = explorer.kept(metric, threshold, keep)
    axes.set_title(
        f"{metric} {keep} {threshold:g} keeps {share:.2%}, {round(share * explorer.rows):,} of {explorer.rows:,} rows"
    )
    return figure


def threshold_widget(explorer: ThresholdExplorer) -> Any:
    """Return widgets: which metric, which comparison, a threshold to move, and the picture."""
    import ipywidgets as widgets

    metric = widgets.Dropdown(options=explorer.metrics, description="metric")
    keep = widgets.Dropdown(options=get_args(Keep), description="keep if", value=_keep(explorer, explorer.metrics[0]))
    slider = widgets.FloatSlider(description="threshold", readout=False, continuous_update=False)
    exact = widgets.FloatText(layout=widgets.Layout(width="9em"))
    picture = widgets.Image(format="png")
    widgets.link((slider, "value"), (exact, "value"))
    choosing = False

    def draw(_: Any = None) -> None:
        if choosing:  # each control would draw on its way to the values of another metric
            return
        picture.value = png_of(moved_figure(explorer, metric.value, exact.value, keep.value))

    def choose_metric(_: Any = None) -> None:
        nonlocal choosing
        choosing = True
        low, high = _shown(explorer, metric.value)
        # The ends one by one, wide first: a slider refuses a least value above its greatest.
        slider.min, slider.max = min(slider.min, low), max(slider.max, high)
        slider.min, slider.max = low, high
        slider.step = (high - low) / STEPS
        rules = explorer.rules(metric.value)
        keep.value = _keep(explorer, metric.value)
        start = rules[0].threshold if rules else _at(explorer, metric.value, 0.1)
        slider.value = start if np.isfinite(start) else low
        choosing = False
        draw()

    choose_metric()
    metric.observe(choose_metric, names="value")
    for control in (keep, exact):
        control.observe(draw, names="value")
    return widgets.VBox([widgets.HBox([metric, keep]), widgets.HBox([slider, exact]), picture])


def _draw(axes: Any, explorer: ThresholdExplorer, metric: str, keep: Keep, threshold: float | None) -> None:
    values, counts = explorer.distribution(metric)
    low, high = _shown(explorer, metric)
    is_wide = low > 0 and high / low > WIDE
    if is_wide:
        axes.set_xscale("log")
    edges = _edges(values[(values >= low) & (values <= high)], low, high, is_wide=is_wide)
    heights, _ = np.histogram(values, edges, weights=counts)
    axes.stairs(heights, edges, fill=True, color="#9db8d2")
    axes.set_ylabel("rows")
    axes.spines["top"].set_visible(False)
    share = axes.twinx()
    at = np.geomspace(low, high, STEPS) if is_wide else np.linspace(low, high, STEPS)
    share.plot(at, explorer.shares_kept(metric, at, keep), color="#333333", linewidth=1.3)
    share.set_ylim(0, 1.02)
    share.set_ylabel(f"kept by {keep}")
    share.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    share.spines["top"].set_visible(False)
    for rule in explorer.rules(metric):
        axes.axvline(rule.threshold, color="#c0392b", linestyle="--", linewidth=1.2)
    if threshold is not None:
        axes.axvline(threshold, color="#c0392b", linewidth=2)
    axes.set_xlim(edges[0], edges[-1])


def _edges(values: npt.NDArray[np.float64], low: float, high: float, *, is_wide: bool) -> npt.NDArray[np.float64]:
    """Return the edges of bars: around each value where they are few, such as small whole numbers."""
    if 1 < len(values) <= BARS and not is_wide:
        middles = (values[1:] + values[:-1]) / 2
        return np.concatenate(
            (
                [min(low, values[0]) - (middles[0] - values[0])],
                middles,
                [max(high, values[-1]) + (values[-1] - middles[-1])],
            )
        )
    return np.geomspace(low, high, BARS + 1) if is_wide else np.linspace(low, high, BARS + 1)


def _shown(explorer: ThresholdExplorer, metric: str) -> tuple[float, float]:
    ends = [_at(explorer, metric, share) for share in SHOWN] + [rule.threshold for rule in explorer.rules(metric)]
    finite = [end for end in ends if np.isfinite(end)] or [0.0]
    low, high = min(finite), max(finite)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _at(explorer: ThresholdExplorer, metric: str, share: float) -> float:
    """Return the value that a share of the rows have or stay under."""
    values, counts = explorer.distribution(metric)
    if not len(values):
        return float("nan")
    return float(values[np.searchsorted(np.cumsum(counts), share * counts.sum())])


def _keep(explorer: ThresholdExplorer, metric: str) -> Keep:
    rules = explorer.rules(metric)
    return rules[0].keep if rules else ">="

# SPDX-License-Identifier: Apache-2.0
"""Count the rows that each threshold of a metric keeps: `explore_thresholds`, its numbers and its pictures.

Values are counted by their first 11 significant binary digits, so a metric of any range is a table of a few thousand counts,
and tables of blocks add up.
"""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.arguments import choose, strings_of
from curator_df.core.columns import require_found_columns, require_names, require_table
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ColumnError, ParameterError, SchemaError
from curator_df.kernels.metrics.catalog import METRICS
from curator_df.memory.sizes import show_count
from curator_df.ops.filters.published import profile_of
from curator_df.ops.filters.rules import Comparison, Profile, ProfileName, Rule
from curator_df.ops.host_only import require_host
from curator_df.receipts.figures import new_figure, png_of
from curator_df.suggestions import suggests_names

COUNTS = {"metric": np.int64, "bucket": np.int64, "rows": np.int64}
MISSING = np.iinfo(np.int64).max
"""Bucket of values that are null or NaN."""
CUT_BITS = 42
"""Number of bits that count of the 52 behind the leading one of a float64: values of a bucket differ by less than 0.1%."""
PEAK_FACTOR = 3.0
"""For each metric in turn. Measured (tracemalloc, 500,000 rows): 18 to 27 bytes a row, which is 2.6 x a column of Int8 with its
addresses, 1.5 x one of Int64, 0.4 x four of Float64."""
SPLIT_EVERY = 16


@suggests_names
@dataclass(frozen=True, repr=False)
class ThresholdExplorer:
    """Shows how many rows thresholds on metrics keep. Returned by `explore_thresholds`.

    It displays itself in a notebook: with ipywidgets as a picture with a movable threshold, without as a picture of all
    metrics.

    See Also
    --------
    explore_thresholds, keep_profile
    """

    metrics: tuple[str, ...]
    """Columns, in order."""
    rows: int
    """Rows of the table."""
    profile: Profile | None
    """Profile whose thresholds are drawn."""
    missing: Mapping[str, int]
    """Rows without a value, by metric. No threshold keeps them."""
    _values: Mapping[str, npt.NDArray[np.float64]] = field(repr=False)
    """Value of each bucket that has rows, ascending."""
    _counts: Mapping[str, npt.NDArray[np.int64]] = field(repr=False)

    def kept(self, metric: str, threshold: float, comparison: Comparison | None = None) -> float:
        """Return the share of all rows that a threshold keeps.

        Parameters
        ----------
        metric : str
            One of ``metrics``.
        threshold : float
            In the metric's unit.
        comparison : {">=", "<=", ">", "<"}, optional
            Comparison that is true for a kept row. Defaults to that of the profile's rule, if only one rule uses the
            metric; else ``>=``.

        Returns
        -------
        float
            From 0 to 1. Values that differ by less than 0.1% count as one; integers up to 2,048 are exact.

        Raises
        ------
        ParameterError
            If there is no such metric or comparison; the message lists them.
        """
        return float(
            self._shares_kept(metric, np.array([threshold], np.float64), self._comparison(metric, comparison))[0]
        )

    def _shares_kept(
        self, metric: str, thresholds: npt.NDArray[np.float64], comparison: Comparison
    ) -> npt.NDArray[np.float64]:
        """Return the result of `kept` for each of several thresholds, shape (thresholds,)."""
        upto = np.concatenate(([0], np.cumsum(self._counts[metric])))
        side: Literal["left", "right"] = "left" if comparison in (">=", "<") else "right"
        below = upto[np.searchsorted(self._values[metric], value_of(bucket_of(thresholds)), side=side)]
        kept = upto[-1] - below if comparison in (">=", ">") else below
        return np.asarray(kept / max(self.rows, 1))

    def to_frame(self) -> pd.DataFrame:
        """Return the counts.

        Returns
        -------
        pandas.DataFrame
            A row for each value (or values that differ by less than 0.1%) of each metric, ascending: ``metric``,
            ``value`` (the one nearest to 0), ``rows``, ``share_at_least`` and ``share_at_most``: the shares of all rows
            that ``>= value`` and ``<= value`` keep.
        """
        tables = []
        for name in self.metrics:
            counts = self._counts[name]
            up_to = np.cumsum(counts)
            columns = {
                "metric": pd.array([name] * len(counts), "string[pyarrow]"),
                "value": self._values[name],
                "rows": counts,
                "share_at_least": (counts.sum() - up_to + counts) / max(self.rows, 1),
                "share_at_most": up_to / max(self.rows, 1),
            }
            tables.append(pd.DataFrame(columns))
        return pd.concat(tables, ignore_index=True)

    def plot(self) -> Any:
        """Draw the histogram of each metric, the share that each threshold keeps, and the profile's thresholds.

        Returns
        -------
        matplotlib.figure.Figure
            Notebooks display it; ``figure.savefig("thresholds.png")`` saves it.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        """
        return thresholds_figure(self)

    def distribution(self, metric: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return the values of a metric, ascending, shape (buckets,), and the number of rows with each."""
        self._comparison(metric, None)
        return self._values[metric], self._counts[metric]

    def rules(self, metric: str) -> tuple[Rule, ...]:
        """Return the profile's rules on a metric."""
        return () if self.profile is None else tuple(rule for rule in self.profile.rules if rule.column == metric)

    def _comparison(self, metric: str, comparison: Comparison | None) -> Comparison:
        if metric not in self.metrics:
            raise ParameterError(f"metric={metric!r} was not explored. Use one of: {', '.join(self.metrics)}")
        if comparison is not None:
            choose("kept", "comparison", comparison, Comparison)
            return comparison
        rules = self.rules(metric)
        return rules[0].comparison if len(rules) == 1 else ">="

    def __repr__(self) -> str:
        lines = [f"thresholds of {len(self.metrics)} metrics over {show_count(self.rows, 'row')}"]
        for name in self.metrics:
            told = [f"{rule} keeps {self.kept(name, rule.threshold, rule.comparison):.1%}" for rule in self.rules(name)]
            lines.append("; ".join(told) or f"{name}: half of the rows have {_middle(self, name):g} or less")
        return "\n  ".join(lines)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return what a notebook shows: widgets while it runs, and a picture where it is only read."""
        bundle: dict[str, Any] = {"text/plain": repr(self)}
        if importlib.util.find_spec("matplotlib") is not None:
            bundle["image/png"] = base64.b64encode(png_of(self.plot())).decode("ascii")
            if importlib.util.find_spec("ipywidgets") is not None:
                bundle = threshold_widget(self)._repr_mimebundle_() | bundle
        return bundle


def explore_thresholds(
    df: dd.DataFrame | pd.DataFrame,
    profile: Profile | ProfileName | None = None,
    *,
    metrics: Sequence[str] | None = None,
) -> ThresholdExplorer:
    """Count how many rows each threshold on a metric keeps, and show it in a notebook.

    Parameters
    ----------
    df : dask.dataframe.DataFrame or pandas.DataFrame
        A table with columns of metrics, as made by `add_metrics`.
    profile : Profile or str, optional
        Profile whose thresholds are drawn, or the name of a published one.
    metrics : sequence of str, optional
        Columns of numbers. Default: the profile's metrics, or all catalog metrics in the table.

    Returns
    -------
    ThresholdExplorer
        Numbers, and a picture with a movable threshold. ``kept(metric, threshold)``, ``to_frame()`` and ``plot()``
        return the numbers and the picture. It displays itself in a notebook, with a movable threshold if ipywidgets is
        installed (the extras notebooks and monitor).

    Raises
    ------
    ColumnError
        If a metric is missing.
    ParameterError
        If there is no metric to explore.
    SchemaError
        If a column is not numeric.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    describe_drops, add_metrics, keep_profile

    Notes
    -----
    Rows: one for each value of a metric (``to_frame()``). Columns: ``metric``, ``value``, ``rows``, ``share_at_least``,
    ``share_at_most``. Peak extra memory: 3.0 x block. Computes: yes, on the active cluster or scheduler, all rows in
    one pass.

    Counts of a few thousand values per metric are transferred, for each 16 blocks. Values that differ by less than
    0.1% count as one; `describe_drops` counts a profile exactly.

    Examples
    --------
    >>> import pandas as pd
    >>> found = explore_thresholds(pd.DataFrame({"word_count": [3, 10, 40, 50, None]}))
    >>> found.kept("word_count", 40), found.kept("word_count", 40, "<")
    (0.4, 0.4)
    """
    profile = None if profile is None else profile_of("explore_thresholds", profile)
    if not isinstance(df, pd.DataFrame):
        require_table(df, "explore_thresholds")
    names = _explored(df, profile, metrics)
    frame = df[list(names)]
    if isinstance(df, pd.DataFrame):
        counts = count_values_block(frame, metrics=names)
    else:
        require_host(df._meta, "explore_thresholds")
        kernel = BlockKernel(
            "explore_thresholds", count_values_block, {"metrics": names}, price=Price(PEAK_FACTOR, is_measured=True)
        )
        blocks = map_blocks(frame, kernel, meta=_no_counts())
        counts = blocks.reduction(
            chunk=_added_up, aggregate=_added_up, meta=_no_counts(), split_every=SPLIT_EVERY
        ).compute()
    return _explorer(counts, names, profile)


def count_values_block(block: Any, *, metrics: tuple[str, ...]) -> pd.DataFrame:
    """Kernel of `explore_thresholds`: the rows in each bucket of each metric."""
    tables = [_no_counts()]
    for number, name in enumerate(metrics):
        values = block[name].to_numpy(dtype=np.float64, na_value=np.nan)
        buckets, rows = np.unique(bucket_of(values), return_counts=True)
        tables.append(pd.DataFrame({"metric": np.int64(number), "bucket": buckets, "rows": rows}))
    return pd.concat(tables, ignore_index=True)


def bucket_of(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the bucket of each value; buckets order as values do.

    Examples
    --------
    >>> bool(np.all(np.diff(bucket_of(np.array([-np.inf, -2.0, -1.0, 0.0, 0.001, 1.0, 2047.0, 2048.0, np.nan]))) > 0))
    True
    """
    buckets: npt.NDArray[np.int64] = np.abs(values).view(np.int64) >> CUT_BITS
    buckets[values < 0] *= -1
    buckets[np.isnan(values)] = MISSING
    return buckets


def value_of(buckets: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the value of each bucket that is nearest to 0.

    Examples
    --------
    >>> value_of(bucket_of(np.array([-2.0, 0.0, 0.1, 2047.0, 5001.0]))).round(4).tolist()
    [-2.0, 0.0, 0.1, 2047.0, 5000.0]
    """
    values: npt.NDArray[np.float64] = (np.abs(buckets) << CUT_BITS).view(np.float64)
    return np.copysign(values, buckets)


def _explored(df: Any, profile: Profile | None, metrics: Sequence[str] | None) -> tuple[str, ...]:
    if metrics is not None:
        names = tuple(dict.fromkeys(strings_of("explore_thresholds", "metrics", metrics)))
    elif profile is not None:
        names = profile.metrics
    else:
        names = tuple(name for name in df.columns if name in METRICS)
    if not names:
        require_found_columns(df, "explore_thresholds")
        raise ParameterError(
            "explore_thresholds found no metric in the table, which has: "
            f"{', '.join(map(str, df.columns))}. Make some with add_profile or add_metrics, or name columns of numbers with "
            "metrics="
        )
    missing = [name for name in names if name not in df.columns]
    if missing and metrics is None and profile is not None:
        raise ColumnError(
            f"explore_thresholds needs the metrics of the profile {profile.name!r} as columns, and the table lacks "
            f"{', '.join(missing)}. Add them first with add_profile(df, profile), then pass its result to explore_thresholds"
        )
    require_names(list(df.columns), "explore_thresholds", *names)
    for name in names:
        if not pd.api.types.is_numeric_dtype(df.dtypes[name]):
            raise SchemaError(
                f"explore_thresholds needs numbers in the column {name!r}, but it holds {df.dtypes[name]}. Name other "
                "columns with metrics=, or convert it"
            )
    return names


def _no_counts() -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in COUNTS.items()})


def _added_up(counts: Any) -> Any:
    return counts.groupby(["metric", "bucket"], as_index=False).sum()


def _explorer(counts: pd.DataFrame, names: tuple[str, ...], profile: Profile | None) -> ThresholdExplorer:
    values, rows, missing = {}, {}, {}
    for number, name in enumerate(names):
        own = counts[counts["metric"] == number].sort_values("bucket")
        is_missing = (own["bucket"] == MISSING).to_numpy()
        missing[name] = int(own["rows"][is_missing].sum())
        values[name] = value_of(own["bucket"][~is_missing].to_numpy(dtype=np.int64))
        rows[name] = own["rows"][~is_missing].to_numpy(dtype=np.int64)
    total = int(counts["rows"][counts["metric"] == 0].sum())
    return ThresholdExplorer(names, total, profile, missing, values, rows)


def _middle(explorer: ThresholdExplorer, metric: str) -> float:
    values, counts = explorer.distribution(metric)
    return float(values[np.searchsorted(np.cumsum(counts), counts.sum() / 2)]) if len(values) else float("nan")


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
            f"{rule.comparison} {rule.threshold:g} keeps {explorer.kept(metric, rule.threshold, rule.comparison):.1%}"
            for rule in rules
        ]
        _draw(axes, explorer, metric, _comparison(explorer, metric), None)
        axes.set_title("\n".join([metric, *told]), fontsize="medium")
    for axes in panels[len(explorer.metrics) :]:
        axes.set_visible(False)
    return figure


def moved_figure(explorer: ThresholdExplorer, metric: str, threshold: float, comparison: Comparison) -> Any:
    """Draw one metric with a threshold."""
    figure = new_figure(8, 3.4)
    axes = figure.subplots()
    _draw(axes, explorer, metric, comparison, threshold)
    share = explorer.kept(metric, threshold, comparison)
    axes.set_title(
        f"{metric} {comparison} {threshold:g} keeps {share:.2%}, {round(share * explorer.rows):,} of {explorer.rows:,} rows"
    )
    return figure


def threshold_widget(explorer: ThresholdExplorer) -> Any:
    """Return widgets: which metric, which comparison, a threshold to move, and the picture."""
    import ipywidgets as widgets

    metric = widgets.Dropdown(options=explorer.metrics, description="metric")
    of_rule = _comparison(explorer, explorer.metrics[0])
    comparison = widgets.Dropdown(options=get_args(Comparison), description="keep if", value=of_rule)
    slider = widgets.FloatSlider(description="threshold", readout=False, continuous_update=False)
    exact = widgets.FloatText(layout=widgets.Layout(width="9em"))
    picture = widgets.Image(format="png")
    widgets.link((slider, "value"), (exact, "value"))
    choosing = False

    def draw(_: Any = None) -> None:
        if choosing:  # each control would draw on its way to the values of another metric
            return
        picture.value = png_of(moved_figure(explorer, metric.value, exact.value, comparison.value))

    def choose_metric(_: Any = None) -> None:
        nonlocal choosing
        choosing = True
        low, high = _shown(explorer, metric.value)
        # The ends one by one, wide first: a slider refuses a least value above its greatest.
        slider.min, slider.max = min(slider.min, low), max(slider.max, high)
        slider.min, slider.max = low, high
        slider.step = (high - low) / STEPS
        rules = explorer.rules(metric.value)
        comparison.value = _comparison(explorer, metric.value)
        start = rules[0].threshold if rules else _at(explorer, metric.value, 0.1)
        slider.value = start if np.isfinite(start) else low
        choosing = False
        draw()

    choose_metric()
    metric.observe(choose_metric, names="value")
    for control in (comparison, exact):
        control.observe(draw, names="value")
    return widgets.VBox([widgets.HBox([metric, comparison]), widgets.HBox([slider, exact]), picture])


def _draw(axes: Any, explorer: ThresholdExplorer, metric: str, comparison: Comparison, threshold: float | None) -> None:
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
    share.plot(at, explorer._shares_kept(metric, at, comparison), color="#333333", linewidth=1.3)
    share.set_ylim(0, 1.02)
    share.set_ylabel(f"kept by {comparison}")
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


def _comparison(explorer: ThresholdExplorer, metric: str) -> Comparison:
    rules = explorer.rules(metric)
    return rules[0].comparison if rules else ">="

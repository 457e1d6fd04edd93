# SPDX-License-Identifier: Apache-2.0
"""Add text metrics as columns: `add_metrics`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import dask.dataframe as dd
import numpy as np

from curator_df.arguments import choose
from curator_df.core.backend import backend_of
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.kernels.device.support import require_device_metrics
from curator_df.kernels.metrics.catalog import (
    METRICS,
    Words,
    require_metrics,
    require_words,
    require_words_package,
    work_factor,
)
from curator_df.kernels.metrics.counts import STOP_WORDS
from curator_df.kernels.metrics.measure import measure, metric_kernels
from curator_df.ops.filters.device_blocks import with_device_metrics, with_device_price
from curator_df.ops.filters.profile import METRICS_PEAK_FACTOR, WORK_PEAK_FACTOR
from curator_df.ops.filters.rules import Profile
from curator_df.ops.filters.user_metrics import UserMetric, slow_path, user_factor, user_values
from curator_df.ops.filters.verdicts import metrics_meta, with_metrics


def add_metrics(
    df: dd.DataFrame, metrics: Profile | Sequence[str | UserMetric], *, text: str = "text", words: Words | None = None
) -> dd.DataFrame:
    """Add a column for each of the given text metrics.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    metrics : Profile or sequence of str or UserMetric
        Names of metrics (docs/profiles.md lists them) and user-defined metrics, or a profile: then the metrics that its
        rules use.
    text : str, default "text"
        The text column.
    words : {"whitespace", "datatrove", "icu"}, optional
        How to split texts into words: at white space, into the tokens of datatrove 0.10.0 for English, or into the
        words that ICU finds in any language. By default as the profile specifies, or at white space if names are given.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with the metrics as the last columns, under their names (``Int64`` or ``Float64``), null where the
        text is null.

    Raises
    ------
    ColumnError
        If the text column is missing, or the column of a metric already exists.
    MissingExtraError
        If words are split by ICU and icu4py is not installed.
    OperatorError
        When computing, if a user-defined metric returns anything but numbers.
    ParameterError
        If a name is not in the catalog (the message lists it), if its metric is not defined for these words, or if
        two metrics have the same name.
    UnsupportedBackendError
        If the blocks are cuDF blocks and a metric, or the words, have no GPU kernel (docs/gpu.md lists what has one).

    See Also
    --------
    add_profile, explore_thresholds, keep_profile

    Notes
    -----
    Rows: same. Columns: plus a column for each metric. Backends: pandas; cudf where every metric has a GPU kernel
    (``docs/gpu.md#cudf-blocks``). Peak extra memory: 0.9 x block for up to 10 metrics; at least 4.2 x block with those
    on repeated lines or n-grams, and more on datatrove's or ICU's words (``docs/profiles.md#words``); with a
    user-defined metric 5.2 x block plus the memory of its function, or 1.1 x block if it is computed from a block.
    Computes: no.

    Every 10 further metrics take another 0.9 x. With n-grams of datatrove's or ICU's words, or C4 sentences with
    datatrove's words, the peak is at least 10.2 x. Each user-defined metric takes another 0.2 x, and the peak is at
    least 5.2 x if one is computed from a document.

    All metrics of the catalog are counted in one reading of each text. Once they are stored, `keep_profile` and
    `describe_drops` take ``from_metrics=True``: trying another threshold then needs no pass over the text. The columns
    do not record which ``words`` they were counted with, so the profile must use the same.

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["to be or not", None]}), npartitions=1)
    >>> docs.pipe(add_metrics, ["word_count", "mean_word_length"]).compute()
               text  word_count  mean_word_length
    0  to be or not           4              2.25
    1          <NA>        <NA>              <NA>
    """
    added, own = _asked(metrics)
    names = tuple(name for name in added if name not in {metric.name for metric in own})
    require_metrics(names)
    if words is None:
        words = metrics.words if isinstance(metrics, Profile) else "whitespace"
    stop_words = metrics.stop_words if isinstance(metrics, Profile) else STOP_WORDS
    choose("add_metrics", "words", words, Words)
    require_words("add_metrics", names, words)
    require_words_package("add_metrics", words)
    require_text(df, "add_metrics", text)
    if backend_of(df._meta) == "cudf":
        require_device_metrics("add_metrics", added, words)
    refuse_columns(df, "add_metrics", *added, parameter=None)
    factor = max(METRICS_PEAK_FACTOR * -(-len(added) // 10), work_factor(names, words) + WORK_PEAK_FACTOR)
    kernel = BlockKernel(
        "add_metrics",
        add_metrics_block,
        {"metrics": added, "text": text, "words": words, "stop_words": stop_words, "own": own},
        price=with_device_price(Price(user_factor(factor, own), is_measured=True), names, stop_words),
        is_users=bool(own),
        slow_path=slow_path(own),
        compiled=metric_kernels(names, words, stop_words),
    )
    return map_blocks(df, kernel, meta=metrics_meta(df._meta, added))


def _asked(metrics: Profile | Sequence[str | UserMetric]) -> tuple[tuple[str, ...], tuple[UserMetric, ...]]:
    """Return the names of the columns, and those metrics that are the user's."""
    if isinstance(metrics, Profile):
        return metrics.made_metrics, metrics.user_metrics
    if isinstance(metrics, (str, UserMetric)):
        raise ParameterError(
            f"add_metrics needs a list of names, such as [{metrics!r}], or a Profile; found {metrics!r}"
        )
    if not isinstance(metrics, Collection) or isinstance(metrics, Mapping):
        raise ParameterError(f"add_metrics needs a list of names, or a Profile; found {metrics!r}")
    asked = tuple(dict.fromkeys(metrics))
    names = [metric.name if isinstance(metric, UserMetric) else metric for metric in asked]
    if len(set(names)) < len(names):
        raise ParameterError(
            f"add_metrics: two metrics have the same name: {', '.join(names)}. Rename one of your own, or name each metric "
            "once"
        )
    return tuple(names), tuple(metric for metric in asked if isinstance(metric, UserMetric))


def add_metrics_block(
    block: Any,
    *,
    metrics: tuple[str, ...],
    text: str,
    words: Words = "whitespace",
    stop_words: tuple[str, ...] = STOP_WORDS,
    own: tuple[UserMetric, ...] = (),
) -> Any:
    """Kernel of `add_metrics`; ``metrics`` are the columns in order, those of ``own`` among them."""
    if backend_of(block) == "cudf":
        return with_device_metrics(block, text, metrics, stop_words)
    columns: dict[str, Any] = {metric.name: user_values(block, metric, text) for metric in own}
    names = [name for name in metrics if name not in columns]
    columns |= {name: np.zeros(len(block), dtype=METRICS[name].dtype.lower()) for name in names}
    for measured in measure(block[text], names, words=words, stop_words=stop_words):
        for name in names:
            columns[name][measured.first_row : measured.first_row + measured.rows] = measured.values[name]
    missing = block[text].isna().to_numpy(dtype=bool)
    return with_metrics(block, columns, metrics, missing)

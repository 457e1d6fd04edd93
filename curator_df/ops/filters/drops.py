# SPDX-License-Identifier: Apache-2.0
"""Count the rows that each rule of a profile would drop, before any is dropped: `describe_drops`."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.compute as pc

from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.kernels.metrics.catalog import Words, work_factor
from curator_df.kernels.metrics.measure import metric_kernels
from curator_df.kernels.text.buffers import text_chunks
from curator_df.ops.filters.profile import WORK_PEAK_FACTOR
from curator_df.ops.filters.published import profile_of
from curator_df.ops.filters.rules import MISSING_METRIC, MISSING_TEXT, Profile, ProfileName
from curator_df.ops.filters.user_metrics import slow_path, user_factor
from curator_df.ops.filters.verdicts import first_broken, measured_rows, require_measurable
from curator_df.ops.host_only import require_host

COUNTED = ("rows_dropped", "rows_breaking", "characters_dropped", "characters_breaking", "rows", "characters")
PEAK_FACTOR = 0.3
"""Beside what the pass holds of the longest text: 2 + 8 bytes a row, of rows that may hold little else."""
SPLIT_EVERY = 16
"""Number of blocks whose counts are added up in one step, so that those of all blocks are never held."""


def describe_drops(
    df: dd.DataFrame,
    profile: Profile | ProfileName,
    *,
    words: Words | None = None,
    text: str = "text",
    from_metrics: bool = False,
) -> pd.DataFrame:
    """Count the rows that each rule of a profile would drop, in sequence (the funnel) and on its own.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    profile : Profile or str
        The rules: one of `curator_df.profiles` or its name, such as ``"datatrove_gopher_quality"``, or your own.
    words : {"whitespace", "datatrove", "icu"}, optional
        How to split texts into words, if not as the profile specifies. The profiles of datatrove and FineWeb have
        datatrove's words, and its verdicts; ``"whitespace"`` is 3 to 10 times as fast (``docs/profiles.md#words``).
    text : str, default "text"
        The text column.
    from_metrics : bool, default False
        Evaluate the rules on the columns added by `add_metrics`. Characters are then counted only if the table has the
        text too.

    Returns
    -------
    pandas.DataFrame
        A pandas table: the funnel, and each rule on its own. There is a row for each rule in order, after one for
        missing texts (and one for missing metrics, if any are), and one for the remainder. Columns: ``reason``,
        ``rule``; ``rows_dropped``: rows that break this rule and none before it; ``rows_breaking``: rows that break it;
        ``rows_left``: rows that break no rule up to this one; and the same three for ``characters`` (code points of the
        text), null if there is no text.

    Raises
    ------
    ColumnError
        If the text column, or with ``from_metrics`` a metric, is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.
    OperatorError
        If a user-defined metric returns anything but numbers.

    See Also
    --------
    keep_profile, explore_thresholds, preview

    Notes
    -----
    Rows: one for each rule. Columns: ``reason``, ``rule``; rows and characters dropped, breaking, left. Peak extra
    memory: 0.3 x block (assumed); 4.2 x block with rules on repeated lines or n-grams, 10.2 x block with rules on n-grams of
    datatrove's or ICU's words (``docs/profiles.md#words``), or on C4 sentences with datatrove's words. Computes: yes,
    on the active cluster or scheduler.

    Only a few numbers per rule are transferred, for each 16 blocks.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> from curator_df import Profile, Rule
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["to be or not to be", "no", "no # no", None]}), npartitions=1)
    >>> rules = (Rule("word_count", ">=", 3, "too_short"), Rule("hash_ratio", "<=", 0.1, "hashes"))
    >>> describe_drops(docs, Profile("ours", "1", "example", rules))[["reason", "rows_dropped", "rows_left"]]
             reason  rows_dropped  rows_left
    0  missing_text             1          3
    1     too_short             1          2
    2        hashes             1          1
    3          <NA>             0          1
    """
    profile = profile_of("describe_drops", profile, words, from_metrics=from_metrics)
    require_measurable(df, "describe_drops", profile, text, from_metrics=from_metrics)
    require_host(df._meta, "describe_drops")
    has_text = text in df.columns
    work = 0.0 if from_metrics else work_factor(profile.text_metrics, profile.words) + WORK_PEAK_FACTOR
    own = () if from_metrics else profile.user_metrics
    kernel = BlockKernel(
        "describe_drops",
        count_drops_block,
        {"profile": profile, "text": text, "from_metrics": from_metrics},
        price=Price(user_factor(max(PEAK_FACTOR, work), own), is_measured=False),
        is_users=bool(own),
        slow_path=slow_path(own),
        compiled=() if from_metrics else metric_kernels(profile.text_metrics, profile.words, profile.stop_words),
    )
    counts = map_blocks(df, kernel, meta=_no_counts())
    summed = counts.reduction(
        chunk=_added_up, aggregate=_added_up, meta=_no_counts(), split_every=SPLIT_EVERY
    ).compute()
    return _funnel(summed, profile, has_text=has_text)


def count_drops_block(block: Any, *, profile: Profile, text: str, from_metrics: bool) -> pd.DataFrame:
    """Kernel of `describe_drops`: a row of `COUNTED` for each rule, one for missing texts and one for missing metrics."""
    require_host(block, "describe_drops")
    lengths = _lengths(block[text]) if text in block.columns else np.zeros(len(block), dtype=np.int64)
    counts = np.zeros((len(profile.rules) + 2, len(COUNTED)), dtype=np.int64)
    for measured in measured_rows(block, profile, text, from_metrics=from_metrics):
        characters, codes = lengths[measured.rows], first_broken(measured, profile)
        missing = (measured.without_text, measured.lacks)
        valid = ~(measured.without_text | measured.lacks)
        for position, rule in enumerate(profile.rules):
            breaking = rule.breaks(measured.values.values[rule.column]) & valid
            counts[position, :4] += _pairs(codes == position, breaking, characters)
        for place, rows in enumerate(missing, start=len(profile.rules)):
            counts[place, :4] += _pairs(rows, rows, characters)
        counts[:, 4] += len(codes)
        counts[:, 5] += characters.sum()
    return pd.DataFrame(counts, columns=list(COUNTED))


def _pairs(dropped: npt.NDArray[Any], breaking: npt.NDArray[Any], characters: npt.NDArray[Any]) -> tuple[int, ...]:
    return int(dropped.sum()), int(breaking.sum()), int(characters[dropped].sum()), int(characters[breaking].sum())


def _lengths(texts: pd.Series) -> npt.NDArray[np.int64]:
    """Return the code points of each text, 0 for null."""
    lengths = pc.fill_null(pc.utf8_length(text_chunks(texts)), 0)
    return np.asarray(lengths, dtype=np.int64)


def _no_counts() -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=np.int64) for name in COUNTED})


def _added_up(counts: Any) -> Any:
    """Add up rows of the same index."""
    return counts.groupby(level=0).sum()


def _funnel(counts: pd.DataFrame, profile: Profile, *, has_text: bool) -> pd.DataFrame:
    rules = len(profile.rules)
    if counts.empty:
        counts = pd.DataFrame(np.zeros((rules + 2, len(COUNTED)), dtype=np.int64), columns=list(COUNTED))
    # Metrics are rarely missing where there is a text: their row is shown only if there are such rows.
    missing = {MISSING_TEXT: rules} | ({MISSING_METRIC: rules + 1} if counts["rows_dropped"].loc[rules + 1] else {})
    counts = counts.loc[[*missing.values(), *range(rules)]].reset_index(drop=True)
    table = pd.DataFrame(
        {
            "reason": pd.array([*missing, *profile.reasons, None], "string[pyarrow]"),
            "rule": pd.array([*[None] * len(missing), *map(str, profile.rules), None], "string[pyarrow]"),
        }
    )
    for unit in ("rows", "characters"):
        total = int(counts[unit].iloc[0])
        dropped = [*counts[f"{unit}_dropped"], 0]
        columns = {
            f"{unit}_dropped": dropped,
            f"{unit}_breaking": [*counts[f"{unit}_breaking"], 0],
            f"{unit}_left": total - np.cumsum(dropped),
        }
        known = unit == "rows" or has_text
        for name, values in columns.items():
            table[name] = pd.Series(values if known else [None] * len(table), dtype="Int64")
    return table

# SPDX-License-Identifier: Apache-2.0
"""Apply a profile of rules to a text column: `keep_profile` filters, `add_profile` only says what would go and why.

One compiled pass over each text makes every metric that the profile needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.core.backend import require_backend
from curator_df.core.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.columns import refuse_columns, require_text
from curator_df.errors import ParameterError
from curator_df.kernels.buffers import repeated_texts
from curator_df.kernels.keep_rows import keep_rows
from curator_df.kernels.measure import Measured, compiled_groups, measure
from curator_df.kernels.metrics import METRICS, work_factor
from curator_df.ops.rules import MISSING_TEXT, Profile

PASSES = -1
"""Code of a row that no rule drops. Other codes are positions in the profile's rules; missing text is one past them."""

# Measured (benchmarks/kernel_memory.py, 32 MB of text, nearly every row kept): 1.00 on prose, one-letter words,
# CJK and one huge row, 1.02 on rows of 100 bytes. With metrics 2.34 on rows of 100 bytes: the columns cost 130 bytes a
# row, so that shorter texts cost more than this factor says. add_profile: 0.00 and, on rows of 100 bytes, 1.22.
KEEP_PEAK_FACTOR = 1.2
METRICS_PEAK_FACTOR = 1.3
"""For every 10 columns of metrics, or fewer."""
ADD_PEAK_FACTOR = 0.1
WORK_PEAK_FACTOR = 0.2
"""Beside what the pass holds of the longest text (`work_factor`). Its tables are gone before rows are copied."""


def keep_profile(df: Any, profile: Profile, *, text: str = "text", add_metrics: bool = False) -> Any:
    """Keep the rows whose text passes every rule of a profile.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    profile : Profile
        Rules, such as those of `curator_df.profiles`.
    text : str, default "text"
        Column of the text.
    add_metrics : bool, default False
        Add a column for each metric that the profile uses (``Int64`` or ``Float64``).

    Returns
    -------
    dask.dataframe.DataFrame
        The rows that pass, in order, index kept. A row whose text is null is dropped as ``missing_text``.

    Raises
    ------
    ColumnError
        If the text column is missing, or a metric's column is there already.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    Notes
    -----
    Rows: subset. Peak extra memory: 1.2 x block, with ``add_metrics`` 1.3 x more for every 10 metrics; at least 4.2 x if a
    rule is on repeated lines or n-grams. Computes: no.

    A dropped row is counted under the reason of the first rule that it breaks.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> from curator_df.ops.rules import Profile, Rule
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["to be or not to be", "no", None]}), npartitions=1)
    >>> profile = Profile("ours", "1", "example", (Rule("word_count", ">=", 3, "too_short"),))
    >>> docs.pipe(keep_profile, profile, add_metrics=True).compute()
                     text  word_count
    0  to be or not to be           6
    """
    _require(df, "keep_profile", profile, text)
    if add_metrics:
        refuse_columns(df, "keep_profile", *profile.metrics)
    parameters = {"profile": profile, "text": text, "add_metrics": add_metrics}
    factor = _peak_factor(KEEP_PEAK_FACTOR, profile, add_metrics=add_metrics)
    compiled = compiled_groups(profile.metrics)
    kernel = BlockKernel(
        "keep_profile", keep_profile_block, parameters, factor, peak_is_measured=True, compiled=compiled
    )
    return map_blocks(df, kernel, meta=_with_metrics(df._meta, profile) if add_metrics else df._meta)


def add_profile(
    df: Any, profile: Profile, *, text: str = "text", reason: str = "reason", add_metrics: bool = True
) -> Any:
    """Add the reason for which a profile would drop each row, and the metrics that it looks at.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    profile : Profile
        Rules, such as those of `curator_df.profiles`.
    text : str, default "text"
        Column of the text.
    reason : str, default "reason"
        Name of the new column of reasons: null for a row that passes.
    add_metrics : bool, default True
        Add a column for each metric that the profile uses (``Int64`` or ``Float64``), null where the text is null.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with the new columns at the end.

    Raises
    ------
    ColumnError
        If the text column is missing, or a new column is there already.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    Notes
    -----
    Rows: same. Peak extra memory: 0.2 x block, with metrics 1.4 x for up to 10 and 1.3 x more for every 10 others; at least
    4.2 x if a rule is on repeated lines or n-grams. Computes: no.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> from curator_df.ops.rules import Profile, Rule
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["to be or not to be", "no"]}), npartitions=1)
    >>> profile = Profile("ours", "1", "example", (Rule("word_count", ">=", 3, "too_short"),))
    >>> docs.pipe(add_profile, profile).compute()
                     text     reason  word_count
    0  to be or not to be       <NA>           6
    1                  no  too_short           1
    """
    _require(df, "add_profile", profile, text)
    metrics = profile.metrics if add_metrics else ()
    if reason in metrics:
        raise ParameterError(f"add_profile: reason={reason!r} is the name of a metric of {profile.name!r}")
    refuse_columns(df, "add_profile", reason, *metrics)
    parameters = {"profile": profile, "text": text, "reason": reason, "add_metrics": add_metrics}
    factor = _peak_factor(ADD_PEAK_FACTOR, profile, add_metrics=add_metrics)
    compiled = compiled_groups(profile.metrics)
    kernel = BlockKernel("add_profile", add_profile_block, parameters, factor, peak_is_measured=True, compiled=compiled)
    meta = df._meta.assign(**{reason: pd.Series(dtype=pd.StringDtype("pyarrow"))})
    return map_blocks(df, kernel, meta=_with_metrics(meta, profile) if add_metrics else meta)


def keep_profile_block(block: Any, *, profile: Profile, text: str, add_metrics: bool) -> Outcome:
    """Kernel of `keep_profile`."""
    require_backend(block, "keep_profile", "pandas")
    verdicts = _judge(block[text], profile, with_metrics=add_metrics)
    passes = verdicts.codes == PASSES
    kept = keep_rows(block, passes)
    if add_metrics:
        kept = kept.assign(**_columns(verdicts, profile, passes))
    counted = np.bincount(verdicts.codes[~passes], minlength=len(profile.rules) + 1)
    reasons = (*profile.reasons, MISSING_TEXT)
    dropped = {reason: int(count) for reason, count in zip(reasons, counted, strict=True) if count}
    return Outcome(kept, dropped, rejects=lambda: _rejects(keep_rows(block, ~passes), text, profile))


def add_profile_block(block: Any, *, profile: Profile, text: str, reason: str, add_metrics: bool) -> Any:
    """Kernel of `add_profile`."""
    require_backend(block, "add_profile", "pandas")
    verdicts = _judge(block[text], profile, with_metrics=add_metrics)
    reasons = {reason: repeated_texts([*profile.reasons, MISSING_TEXT], verdicts.codes)}
    metrics = _columns(verdicts, profile, slice(None)) if add_metrics else {}
    return block.assign(**reasons, **metrics)


@dataclass(frozen=True)
class _Verdicts:
    codes: npt.NDArray[np.int16]
    """`PASSES`, the position of the first rule that the row breaks, or the number of rules if its text is null."""
    metrics: dict[str, npt.NDArray[Any]]
    """Metric by name, one value a row; empty unless asked for."""


def _judge(texts: pd.Series, profile: Profile, *, with_metrics: bool) -> _Verdicts:
    codes = np.full(len(texts), PASSES, dtype=np.int16)
    dtypes = {name: METRICS[name].dtype.lower() for name in profile.metrics} if with_metrics else {}
    metrics = {name: np.zeros(len(texts), dtype=dtype) for name, dtype in dtypes.items()}
    for measured in measure(texts, profile.metrics, words=profile.words):
        rows = slice(measured.first_row, measured.first_row + measured.rows)
        codes[rows] = _first_broken(measured, profile)
        for name, values in metrics.items():
            values[rows] = measured.values[name]
    return _Verdicts(codes, metrics)


def _first_broken(measured: Measured, profile: Profile) -> npt.NDArray[np.int16]:
    codes = np.full(measured.rows, PASSES, dtype=np.int16)
    for position in reversed(range(len(profile.rules))):
        rule = profile.rules[position]
        codes[rule.breaks(measured.values[rule.metric])] = position
    if measured.valid is not None:
        codes[~measured.valid] = len(profile.rules)
    return codes


def _columns(verdicts: _Verdicts, profile: Profile, rows: Any) -> dict[str, Any]:
    """Make the columns of the metrics. They are taken out of ``verdicts`` one by one, to be held once."""
    missing = verdicts.codes[rows] == len(profile.rules)
    masked = {"Int64": pd.arrays.IntegerArray, "Float64": pd.arrays.FloatingArray}
    # Each column has its own mask: pandas columns may be written to.
    return {
        name: masked[METRICS[name].dtype](verdicts.metrics.pop(name)[rows], missing.copy()) for name in profile.metrics
    }


def _rejects(rows: pd.DataFrame, text: str, profile: Profile) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Measure the removed rows once more: nothing is kept for a run that does not ask for rejects."""
    verdicts = _judge(rows[text], profile, with_metrics=True)
    value = np.full(len(rows), np.nan)
    for position, rule in enumerate(profile.rules):
        broken = verdicts.codes == position
        value[broken] = verdicts.metrics[rule.metric][broken]
    thresholds = np.array([*(rule.threshold for rule in profile.rules), np.nan], dtype=np.float64)
    no_rule = verdicts.codes == len(profile.rules)
    return rows, {
        "reason": repeated_texts([*profile.reasons, MISSING_TEXT], verdicts.codes),
        "rule": repeated_texts([*map(str, profile.rules), ""], np.where(no_rule, -1, verdicts.codes)),
        "value": value,
        "threshold": thresholds[verdicts.codes],
    }


def _require(df: Any, operator: str, profile: Profile, text: str) -> None:
    if not isinstance(profile, Profile):
        raise ParameterError(f"{operator} needs a Profile, such as one of curator_df.profiles; found {profile!r}")
    require_text(df, operator, text)
    require_backend(df._meta, operator, "pandas")


def _peak_factor(rows: float, profile: Profile, *, add_metrics: bool) -> float:
    columns = METRICS_PEAK_FACTOR * -(-len(profile.metrics) // 10) if add_metrics else 0
    return round(max(rows + columns, work_factor(profile.metrics) + WORK_PEAK_FACTOR), 1)


def _with_metrics(meta: Any, profile: Profile) -> Any:
    return meta.assign(**{name: pd.Series(dtype=METRICS[name].dtype) for name in profile.metrics})

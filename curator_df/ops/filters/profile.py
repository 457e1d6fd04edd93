# SPDX-License-Identifier: Apache-2.0
"""Apply a profile of rules to a text column: `keep_profile` filters, `add_profile` only says what would go and why.

Every metric that the profile needs is counted while a text is read once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd

from curator_df.core.backend import backend_of, unsupported_backend
from curator_df.core.columns import refuse_columns
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.kernels.metrics.catalog import Words, work_factor
from curator_df.kernels.metrics.measure import metric_kernels
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.text.buffers import repeated_texts
from curator_df.ops.filters.device_blocks import (
    judged_on_device,
    kept_on_device,
    require_device_profile,
    with_device_price,
    with_text_column,
)
from curator_df.ops.filters.published import profiles_of
from curator_df.ops.filters.reject_reasons import PASSES, every_reason, reasons_of
from curator_df.ops.filters.rules import MISSING_TEXT, NO_PROFILE, Profile, ProfileName, ProfilesByValue
from curator_df.ops.filters.user_metrics import slow_path, user_factor
from curator_df.ops.filters.verdicts import judge, metrics_meta, require_measurable, with_metrics

# Measured (benchmarks/kernel_memory.py, 32 MB of text, nearly every row kept): 1.00 on prose, one-letter words,
# CJK and one huge row, 1.02 on rows of 100 bytes. With 8 metrics 1.83 on rows of 100 bytes: the columns cost 80 bytes a
# row, so that shorter texts cost more than this factor says. add_profile: 0.01 and, on rows of 100 bytes, 0.75.
KEEP_PEAK_FACTOR = 1.2
METRICS_PEAK_FACTOR = 0.9
"""For every 10 columns of metrics, or fewer."""
ADD_PEAK_FACTOR = 0.1
STORED_ADD_PEAK_FACTOR = 0.6
"""`add_profile` on stored metrics, where rows may hold nine numbers and nothing else: 0.51 measured (`keep_profile`: 1.13)."""
BY_PEAK_FACTOR = 3.0
"""Minimum with profiles by a column: the rows of one profile, and codes and masks of all rows."""
PART_PEAK_FACTOR = 1.2
"""For the rows of one profile, which are copied, at most all of them."""
WORK_PEAK_FACTOR = 0.2
"""Beside what the pass holds of the longest text (`work_factor`). Its tables are gone before rows are copied."""


def keep_profile(
    df: dd.DataFrame,
    profile: Profile | ProfileName | Mapping[Any, Profile | ProfileName],
    *,
    by: str | None = None,
    words: Words | None = None,
    text: str = "text",
    add_metrics: bool = False,
    from_metrics: bool = False,
) -> dd.DataFrame:
    """Keep the rows whose text passes every rule of a profile.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    profile : Profile, str, or mapping
        The rules: one of `curator_df.profiles` or its name, such as ``"datatrove_gopher_quality"``, or your own. With
        ``by`` a mapping of a column's values to profiles, such as ``{"de": fineweb_2("de"), "fr": fineweb_2("fr")}``;
        a profile under ``None`` is for all other values and null.
    by : str, optional
        Column that chooses the profile of each row. A row whose value has no profile is dropped as ``no_profile``.
    words : {"whitespace", "datatrove", "icu"}, optional
        How to split texts into words, if not as the profile specifies. The profiles of datatrove and FineWeb have
        datatrove's words, and its verdicts; ``"whitespace"`` is 3 to 10 times as fast (``docs/profiles.md#words``).
    text : str, default "text"
        The text column.
    add_metrics : bool, default False
        Add a column for each metric that the profile uses (``Int64`` or ``Float64``).
    from_metrics : bool, default False
        Evaluate the rules on the columns added by `add_metrics`, without reading text: trying another threshold takes
        one pass over numbers. A row without a metric is dropped as ``missing_metric``, or as ``missing_text`` if its text is
        null (in a table without the text column: if it has no metric at all).

    Returns
    -------
    dask.dataframe.DataFrame
        The rows that pass, in order, with their index. A row whose text is null is dropped as ``missing_text``, and one that
        lacks a metric, such as that of a function of yours, as ``missing_metric``.

    Raises
    ------
    ColumnError
        If the text column or ``by`` is missing, or the column of a metric already exists; if a rule refers to a column of another
        operator that is missing; with ``from_metrics``, if any column is missing.
    MissingExtraError
        If words are split by ICU and icu4py is not installed.
    OperatorError
        When computing, if a user-defined metric returns anything but numbers.
    ParameterError
        If ``profile`` is not a profile, or ``add_metrics`` and ``from_metrics`` are both given; if ``profile`` is a mapping
        without ``by``, or ``by`` is given without a mapping; if a key of the mapping cannot be a value of the column, or
        two of its profiles have different user-defined metrics of one name.
    UnsupportedBackendError
        If the blocks are cuDF blocks and a metric of the profile, or its words, have no GPU kernel (docs/gpu.md), or
        with ``from_metrics`` or ``by``.

    See Also
    --------
    add_profile, describe_drops, explore_thresholds

    Notes
    -----
    Rows: subset. Columns: same; with ``add_metrics=True`` plus a column for each metric. Backends: pandas; cudf where
    every metric has a GPU kernel (``docs/gpu.md#cudf-blocks``). Peak extra memory: 1.2 x block; with
    ``add_metrics=True`` 2.1 x block for up to 10 metrics; at least 4.2 x block with rules on repeated lines or n-grams,
    on n-grams of datatrove's or ICU's words (``docs/profiles.md#words``) 10.2 x block, with those of DCLM
    (``docs/profiles.md#parity-with-dclm``) 16.2 x block; with two user-defined metrics 5.4 x block, plus the memory of
    their functions; with ``by`` and ``add_metrics=True`` 3.9 x block. Computes: no.

    With ``by`` the peak is at least 3.0 x block, and 1.2 x more than that of the most costly profile: the rows of each
    profile are measured together. A metric is null in rows whose profile does not use it. A metric of
    several profiles is one column, even if their ``words`` differ: its numbers are then by different words; pass ``words``
    to compare them.

    With ``add_metrics`` every 10 further metrics take another 0.9 x. With C4 sentences by datatrove's words the peak is
    at least 10.2 x. Each user-defined metric (`UserMetric`) takes another 0.2 x, and the peak is at least 5.2 x if one
    is computed from a document.

    A dropped row is counted under the reason of the first rule that it breaks. With ``rejects=`` of a writer the
    dropped rows are written, with the reason and the value that broke the rule. `add_profile` drops no rows and adds
    the reason as a column.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> from curator_df import Profile, Rule
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["to be or not to be", "no", None]}), npartitions=1)
    >>> profile = Profile("ours", "1", "example", (Rule("word_count", ">=", 3, "too_short"),))
    >>> docs.pipe(keep_profile, profile, add_metrics=True).compute()
                     text  word_count
    0  to be or not to be           6
    """
    rules = profiles_of(df, "keep_profile", profile, by, words, from_metrics=from_metrics)
    _require_ready(df, "keep_profile", rules, text, from_metrics=from_metrics)
    if add_metrics:
        if from_metrics:
            raise ParameterError(
                "keep_profile: from_metrics=True reads metrics from columns that the table has already, but "
                "add_metrics=True would add them. Set only one of the two"
            )
        refuse_columns(df, "keep_profile", *rules.made_metrics, parameter=None)
    parameters = {"profile": rules, "text": text, "add_metrics": add_metrics, "from_metrics": from_metrics}
    factor = _peak_factor(KEEP_PEAK_FACTOR, rules, add_metrics=add_metrics, from_metrics=from_metrics)
    price, calls = _price(rules, factor, KEEP_PEAK_FACTOR), _calls(rules, from_metrics)
    kernel = BlockKernel("keep_profile", keep_profile_block, parameters, price, **calls)
    return map_blocks(df, kernel, meta=metrics_meta(df._meta, rules.made_metrics) if add_metrics else df._meta)


def add_profile(
    df: dd.DataFrame,
    profile: Profile | ProfileName | Mapping[Any, Profile | ProfileName],
    *,
    by: str | None = None,
    words: Words | None = None,
    text: str = "text",
    into: str = "reason",
    add_metrics: bool = True,
    from_metrics: bool = False,
) -> dd.DataFrame:
    """Add the reason why a profile would drop each row, and the metrics that it uses.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    profile : Profile, str, or mapping
        The rules: one of `curator_df.profiles` or its name, such as ``"datatrove_gopher_quality"``, or your own. With
        ``by`` a mapping of a column's values to profiles, such as ``{"de": fineweb_2("de"), "fr": fineweb_2("fr")}``;
        a profile under ``None`` is for all other values and null.
    by : str, optional
        Column that chooses the profile of each row. A row whose value has no profile gets the reason
        ``no_profile``.
    words : {"whitespace", "datatrove", "icu"}, optional
        How to split texts into words, if not as the profile specifies. The profiles of datatrove and FineWeb have
        datatrove's words, and its verdicts; ``"whitespace"`` is 3 to 10 times as fast (``docs/profiles.md#words``).
    text : str, default "text"
        The text column.
    into : str, default "reason"
        Name of the new column of reasons; null for a row that passes.
    add_metrics : bool, default True
        Add a column for each metric that the profile uses (``Int64`` or ``Float64``), null where the text is null,
        the profile of the row does not use it, or a function of yours returned no value; the row's other metrics stay.
    from_metrics : bool, default False
        Evaluate the rules on the columns added by `add_metrics`, without reading text; no metrics are added then.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with the new columns at the end.

    Raises
    ------
    ColumnError
        If the text column or ``by`` is missing, or a new column already exists; if a rule refers to a column of another operator
        that is missing; with ``from_metrics``, if any column is missing.
    MissingExtraError
        If words are split by ICU and icu4py is not installed.
    OperatorError
        When computing, if a user-defined metric returns anything but numbers.
    ParameterError
        If ``profile`` is not a profile, or is a mapping without ``by``, or ``by`` is given without a mapping; if a key of
        the mapping cannot be a value of the column, or two of its profiles have different user-defined metrics of one
        name; if ``into`` is the name of a metric of the profile.
    UnsupportedBackendError
        As in `keep_profile`.

    See Also
    --------
    keep_profile, add_metrics, describe_drops

    Notes
    -----
    Rows: same. Columns: plus ``reason`` and, unless ``add_metrics=False``, a column for each metric of the profile.
    Backends: pandas; cudf where every metric has a GPU kernel (``docs/gpu.md#cudf-blocks``). Peak extra memory: 1.0 x
    block for up to 10 metrics, with ``add_metrics=False`` 0.2 x block; at least 4.2 x block with rules on repeated
    lines or n-grams, on n-grams of datatrove's or ICU's words (``docs/profiles.md#words``) 10.2 x block; with ``by`` and rules
    on repeated lines 5.4 x block. Computes: no.

    With ``by`` the peak is at least 3.0 x block, and profiles share columns of metrics, as in `keep_profile`. With
    ``from_metrics`` the reason takes 0.6 x.
    Every 10 further metrics take another 0.9 x. Each user-defined metric (`UserMetric`) takes another 0.2 x plus the
    memory of its function, and the peak is at least 5.2 x if one is computed from a document.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> from curator_df import Profile, Rule
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["to be or not to be", "no"]}), npartitions=1)
    >>> profile = Profile("ours", "1", "example", (Rule("word_count", ">=", 3, "too_short"),))
    >>> docs.pipe(add_profile, profile).compute()
                     text     reason  word_count
    0  to be or not to be       <NA>           6
    1                  no  too_short           1
    """
    rules = profiles_of(df, "add_profile", profile, by, words, from_metrics=from_metrics)
    _require_ready(df, "add_profile", rules, text, from_metrics=from_metrics)
    add_metrics = add_metrics and not from_metrics
    metrics = rules.made_metrics if add_metrics else ()
    if into in metrics:
        raise ParameterError(
            f"add_profile: into={into!r} is also the name of a metric column that add_metrics=True adds. Use another name"
        )
    refuse_columns(df, "add_profile", into)
    refuse_columns(df, "add_profile", *metrics, parameter=None)
    parameters = {
        "profile": rules,
        "text": text,
        "reason": into,
        "add_metrics": add_metrics,
        "from_metrics": from_metrics,
    }
    rows_factor = STORED_ADD_PEAK_FACTOR if from_metrics else ADD_PEAK_FACTOR
    factor = _peak_factor(rows_factor, rules, add_metrics=add_metrics, from_metrics=from_metrics)
    price, calls = _price(rules, factor, ADD_PEAK_FACTOR), _calls(rules, from_metrics)
    kernel = BlockKernel("add_profile", add_profile_block, parameters, price, **calls)
    meta = with_text_column(df._meta, into)
    return map_blocks(df, kernel, meta=metrics_meta(meta, metrics) if add_metrics else meta)


def keep_profile_block(
    block: Any, *, profile: Profile | ProfilesByValue, text: str, add_metrics: bool, from_metrics: bool = False
) -> Outcome:
    """Kernel of `keep_profile`."""
    if backend_of(block) == "cudf":
        return kept_on_device(block, text, _one(block, "keep_profile", profile), add_metrics=add_metrics)
    verdicts = judge(block, profile, text, from_metrics=from_metrics, with_metrics=add_metrics)
    passes = verdicts.codes == PASSES
    kept = keep_rows(block, passes)
    if add_metrics:
        missing = verdicts.codes >= len(profile.rules)
        kept = with_metrics(kept, verdicts.metrics, profile.made_metrics, missing, passes, verdicts.absent)
    reasons = every_reason(profile)
    counted = np.bincount(verdicts.codes[~passes], minlength=len(reasons))
    dropped: Counter[str] = Counter()
    for reason, count in zip(reasons, counted, strict=True):
        dropped.update({reason: int(count)} if count else {})
    return Outcome(
        kept, dict(dropped), rejects=lambda: _rejects(keep_rows(block, ~passes), text, profile, from_metrics)
    )


def add_profile_block(
    block: Any,
    *,
    profile: Profile | ProfilesByValue,
    text: str,
    reason: str,
    add_metrics: bool,
    from_metrics: bool = False,
) -> Any:
    """Kernel of `add_profile`."""
    if backend_of(block) == "cudf":
        return judged_on_device(
            block, text, _one(block, "add_profile", profile), reason=reason, add_metrics=add_metrics
        )
    verdicts = judge(block, profile, text, from_metrics=from_metrics, with_metrics=add_metrics)
    added = block.assign(**{reason: repeated_texts(every_reason(profile), verdicts.codes)})
    missing = np.isin(verdicts.codes, _without_metrics(profile))
    metrics = profile.made_metrics if add_metrics else ()
    return with_metrics(added, verdicts.metrics, metrics, missing, absent=verdicts.absent)


def _without_metrics(profile: Profile | ProfilesByValue) -> list[int]:
    """Return the codes of rows without any metric: a row that lacks one has the others."""
    reasons = every_reason(profile)
    return [reasons.index(reason) for reason in (MISSING_TEXT, NO_PROFILE)]


def _rejects(
    rows: pd.DataFrame, text: str, profile: Profile | ProfilesByValue, from_metrics: bool
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Measure the removed rows once more: nothing is kept for a run that does not ask for rejects."""
    verdicts = judge(rows, profile, text, from_metrics=from_metrics, with_metrics=True)
    return rows, reasons_of(verdicts.codes, verdicts.metrics, profile)


def _one(block: Any, operator: str, profile: Profile | ProfilesByValue) -> Profile:
    """Return the only profile; blocks on a GPU cannot be judged by several."""
    if isinstance(profile, ProfilesByValue):
        raise unsupported_backend(
            block, operator, "pandas", because="with by= rows are judged by kernels compiled for CPUs alone"
        )
    return profile


def _profiles(profile: Profile | ProfilesByValue) -> tuple[Profile, ...]:
    return profile.profiles if isinstance(profile, ProfilesByValue) else (profile,)


def _require_ready(
    df: Any, operator: str, profile: Profile | ProfilesByValue, text: str, *, from_metrics: bool
) -> None:
    """Raise unless the table has what each profile needs, and each can judge its kind of blocks."""
    for one in _profiles(profile):
        require_measurable(df, operator, one, text, from_metrics=from_metrics)
    if backend_of(df._meta) == "cudf":
        require_device_profile(operator, _one(df._meta, operator, profile), from_metrics=from_metrics)


def _price(profile: Profile | ProfilesByValue, factor: float, rows: float) -> Price:
    """Return the price of a kernel with this factor, which makes so much of the rows."""
    price = Price(factor, is_measured=True)
    if isinstance(profile, ProfilesByValue):
        return price
    return with_device_price(price, profile.text_metrics, profile.stop_words, rows)


def _calls(profile: Profile | ProfilesByValue, from_metrics: bool) -> dict[str, Any]:
    """Return what a kernel declares of the functions that it calls."""
    if from_metrics:
        return {}
    profiles = _profiles(profile)
    metrics = tuple(dict.fromkeys(metric for one in profiles for metric in one.user_metrics))
    compiled = (name for one in profiles for name in metric_kernels(one.text_metrics, one.words, one.stop_words))
    return {
        "is_users": bool(metrics),
        "slow_path": slow_path(metrics),
        "compiled": tuple(dict.fromkeys(compiled)),
    }


def _peak_factor(rows: float, profile: Profile | ProfilesByValue, *, add_metrics: bool, from_metrics: bool) -> float:
    columns = METRICS_PEAK_FACTOR * -(-len(profile.made_metrics) // 10) if add_metrics else 0
    profiles = _profiles(profile)
    work = max(0.0 if from_metrics else work_factor(one.text_metrics, one.words) + WORK_PEAK_FACTOR for one in profiles)
    if isinstance(profile, ProfilesByValue):  # columns are held while the rows of another profile are measured
        rows, work = max(rows, BY_PEAK_FACTOR) + columns, work + PART_PEAK_FACTOR + columns
    else:
        rows += columns
    metrics = dict.fromkeys(metric for one in profiles for metric in one.user_metrics)
    return user_factor(max(rows, work), () if from_metrics else tuple(metrics))

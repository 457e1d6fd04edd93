# SPDX-License-Identifier: Apache-2.0
"""Apply metrics and profiles to cuDF blocks: texts stay on the device; counts and hashes of rows go to the host.

Compiled kernels are imported where there is such a block, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from curator_df.core.backend import is_on_device
from curator_df.core.ranges.blocks import Outcome
from curator_df.core.ranges.price import Price
from curator_df.kernels.device.columns import empty_column, kept_rows, number_column, picked_texts, texts_of
from curator_df.kernels.device.support import COLUMN_FACTOR, metrics_price, require_device_metrics
from curator_df.kernels.rows.either_backend import rows_where
from curator_df.ops.filters.reject_reasons import PASSES, reasons_of
from curator_df.ops.filters.rules import MISSING_TEXT, Profile


def require_device_profile(operator: str, profile: Profile, *, from_metrics: bool) -> None:
    """Raise `UnsupportedBackendError`, with the way out, unless a profile can be judged on cuDF blocks from their texts."""
    require_device_metrics(operator, profile.metrics, profile.words, from_columns=from_metrics)


def with_device_price(
    price: Price, metrics: Sequence[str], stop_words: tuple[str, ...], rows_factor: float = 0.0
) -> Price:
    """Return the price of a kernel that measures texts, and then makes so much of the rows, with what it takes of a GPU."""
    factor, fixed_bytes = metrics_price(metrics, stop_words=stop_words)
    # Metrics are held as they were measured and as columns, which are null where the text is.
    columns = COLUMN_FACTOR * -(-len(metrics) // 10)
    return replace(price, device_peak_factor=round(factor + columns + rows_factor, 1), device_fixed_bytes=fixed_bytes)


def device_meta(meta: Any, dtypes: Mapping[str, str]) -> Any:
    """Return an empty cuDF block with more columns at its end."""
    return meta.assign(**{name: empty_column(dtype) for name, dtype in dtypes.items()})


def with_text_column(meta: Any, name: str) -> Any:
    """Return an empty block, of pandas or cuDF, with a column of texts at its end."""
    if not is_on_device(meta):
        return meta.assign(**{name: pd.Series(dtype=pd.StringDtype("pyarrow"))})
    return device_meta(meta, {name: "str"})


def with_device_metrics(block: Any, text: str, metrics: Sequence[str], stop_words: tuple[str, ...]) -> Any:
    """Return a cuDF block with metrics of its texts at its end, null where the text is null."""
    from curator_df.kernels.device.measured import text_metrics

    with texts_of(block[text]) as texts:
        values = text_metrics(texts, metrics, stop_words=stop_words)
    return block.assign(**{name: number_column(values[name], block[text]) for name in metrics})


def kept_on_device(block: Any, text: str, profile: Profile, *, add_metrics: bool) -> Outcome:
    """Return the rows of a cuDF block that a profile keeps; to the host go counts and, for rejects, the reasons of these."""
    values, codes, passes, counted = _judged(block, text, profile)
    reasons = (*profile.reasons, MISSING_TEXT)
    dropped = {reason: int(count) for reason, count in zip(reasons, counted, strict=True) if count}
    added = block
    if add_metrics:
        added = block.assign(**{name: number_column(values[name], block[text]) for name in profile.metrics})
    if not dropped:
        return Outcome(added)

    def rejects() -> tuple[Any, dict[str, Any]]:
        on_host = codes.copy_to_host()
        gone = on_host != PASSES
        broken = {profile.rules[code].column for code in np.unique(on_host[gone]) if code < len(profile.rules)}
        metrics = {name: values[name].copy_to_host()[gone] for name in broken}
        return rows_where(block, gone), reasons_of(on_host[gone], metrics, profile)

    return Outcome(kept_rows(added, passes), dropped, rejects=rejects)


def judged_on_device(block: Any, text: str, profile: Profile, *, reason: str, add_metrics: bool) -> Any:
    """Return a cuDF block with the reason for which a profile would drop each row, and the metrics; codes go to the host."""
    values, codes, _, _ = _judged(block, text, profile)
    names = [*profile.reasons, MISSING_TEXT, None]
    on_host = codes.copy_to_host()
    places = np.where(on_host == PASSES, len(names) - 1, on_host)
    columns = {reason: picked_texts(names, places, block.index)}
    if add_metrics:
        columns |= {name: number_column(values[name], block[text]) for name in profile.metrics}
    return block.assign(**columns)


def _judged(block: Any, text: str, profile: Profile) -> tuple[dict[str, Any], Any, Any, Any]:
    """Return metrics, the code of each row and which pass, all on the device; and the rows of each code, on the host."""
    from curator_df.kernels.device.measured import first_broken, text_metrics

    rules = [(rule.column, rule.comparison, rule.threshold) for rule in profile.rules]
    with texts_of(block[text]) as texts:
        values = text_metrics(texts, profile.metrics, stop_words=profile.stop_words)
        codes, passes, counted = first_broken(values, rules, texts.valid, len(texts))
    return values, codes, passes, counted

# SPDX-License-Identifier: Apache-2.0
"""What operators on metrics do with cuDF blocks. The texts stay on the device; to the host go counts of rows.

The kernels are imported where there is such a block, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from curator_df.core.blocks import Outcome
from curator_df.kernels.device_support import require_device_metrics
from curator_df.ops.rules import MISSING_TEXT, Profile


def require_device_profile(operator: str, profile: Profile, *, from_metrics: bool) -> None:
    """Raise `UnsupportedBackendError`, with the way out, unless a profile can be judged on cuDF blocks from their texts."""
    require_device_metrics(operator, profile.metrics, profile.words, profile.stop_words, from_columns=from_metrics)


def device_meta(meta: Any, dtypes: Mapping[str, str]) -> Any:
    """Return an empty cuDF block with more columns at its end."""
    from curator_df.kernels.device.columns import empty_column

    return meta.assign(**{name: empty_column(dtype) for name, dtype in dtypes.items()})


def with_device_metrics(block: Any, text: str, metrics: Sequence[str]) -> Any:
    """Return a cuDF block with metrics of its texts at its end, null where the text is null."""
    from curator_df.kernels.device.columns import number_column, texts_of
    from curator_df.kernels.device.measured import text_metrics

    with texts_of(block[text]) as texts:
        values = text_metrics(texts, metrics)
    return block.assign(**{name: number_column(values[name], block[text]) for name in metrics})


def kept_on_device(block: Any, text: str, profile: Profile, *, add_metrics: bool) -> Outcome:
    """Return the rows of a cuDF block that a profile keeps. There is no run that could ask for the others."""
    from curator_df.kernels.device.columns import kept_rows, number_column, texts_of
    from curator_df.kernels.device.measured import text_metrics
    from curator_df.kernels.device.verdicts import first_broken

    rules = [(rule.column, rule.keep, rule.threshold) for rule in profile.rules]
    with texts_of(block[text]) as texts:
        values = text_metrics(texts, profile.metrics)
        passes, counted = first_broken(values, rules, texts.valid, len(texts))
    if add_metrics:
        block = block.assign(**{name: number_column(values[name], block[text]) for name in profile.metrics})
    reasons = (*profile.reasons, MISSING_TEXT)
    dropped = {reason: int(count) for reason, count in zip(reasons, counted, strict=True) if count}
    return Outcome(kept_rows(block, passes) if dropped else block, dropped)

# SPDX-License-Identifier: Apache-2.0
"""Reasons for which a profile drops rows, for the table of rejects: from the code of each row and the measured metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.text.buffers import repeated_texts
from curator_df.ops.filters.rules import MISSING_METRIC, MISSING_TEXT, NO_PROFILE, Profile, ProfilesByValue

PASSES = -1
"""Code of a row that no rule drops. Other codes are positions in `every_reason`."""


def every_reason(profile: Profile | ProfilesByValue) -> tuple[str, ...]:
    """Return the reasons of a profile's rules, and after them those of rows without a text, a profile, or a metric."""
    return (*profile.reasons, MISSING_TEXT, NO_PROFILE, MISSING_METRIC)


def reasons_of(
    codes: npt.NDArray[np.int16], metrics: Mapping[str, Any], profile: Profile | ProfilesByValue
) -> dict[str, Any]:
    """Return what `Outcome.rejects` says of removed rows.

    Parameters
    ----------
    codes : ndarray of int16, shape (rows,)
        Of the removed rows.
    metrics : mapping of str to ndarray, shape (rows,)
        Metric by name, of each rule that one of them breaks.
    profile : Profile or ProfilesByValue
        The rules.
    """
    value = np.full(len(codes), np.nan)
    for position, rule in enumerate(profile.rules):
        broken = codes == position
        if broken.any():
            value[broken] = metrics[rule.column][broken]
    thresholds = np.array([*(rule.threshold for rule in profile.rules), np.nan, np.nan, np.nan], dtype=np.float64)
    no_rule = codes >= len(profile.rules)
    return {
        "reason": repeated_texts(every_reason(profile), codes),
        "rule": repeated_texts([*map(str, profile.rules), ""], np.where(no_rule, -1, codes)),
        "value": value,
        "threshold": thresholds[codes],
    }

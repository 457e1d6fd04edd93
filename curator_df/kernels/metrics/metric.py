# SPDX-License-Identifier: Apache-2.0
"""Text metric: a count, or a quotient of two counts, with its definition and source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """Metric of one text."""

    name: str
    """Name of the metric, and of the column that `add_profile` adds."""
    dtype: Literal["Int64", "Float64"]
    """Nullable pandas dtype of the column; the metric of a null text is null."""
    numerator: str
    """Name of the numerator, one of `counts.COUNTS`."""
    denominator: str | None
    """Name of the denominator, one of `counts.COUNTS`; None for a plain count. A quotient with a denominator of 0 is
    ``undefined``."""
    definition: str
    """Exact definition."""
    source: str
    """Source of the definition."""
    edge_cases: str
    """Values for empty and unusual texts."""
    undefined: float = 0.0
    """Value of a quotient whose denominator is 0."""
    operator: str = ""
    """Operator that adds the metric as a column, for a metric that no pass over the text computes; it has no numerator."""

# SPDX-License-Identifier: Apache-2.0
"""What a text metric is: a count, or a quotient of two counts, with its definition and its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """A number about one text."""

    name: str
    """Name, and name of the column that `add_profile` adds."""
    dtype: Literal["Int64", "Float64"]
    """Nullable pandas dtype of the column; the metric of a null text is null."""
    numerator: str
    """One of `counts.COUNTS`."""
    denominator: str | None
    """One of `counts.COUNTS`, or None for a plain count. A quotient whose denominator is 0 is ``undefined``."""
    definition: str
    """What it is, exactly."""
    source: str
    """Where the definition comes from."""
    edge_cases: str
    """What empty and odd texts give."""
    undefined: float = 0.0
    """Value of a quotient whose denominator is 0."""
    operator: str = ""
    """What adds it as a column, for a metric that no pass over the text makes; it has no numerator then."""

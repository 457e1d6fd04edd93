# SPDX-License-Identifier: Apache-2.0
"""Metrics that a user wrote: a name and a function, of a block or of one text. Rules and `add_metrics` take them.

The catalog's own metrics are compiled (`kernels.metrics.catalog`); a function of one text is Python for each document.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.arguments import choose
from curator_df.errors import OperatorError, ParameterError
from curator_df.kernels.metrics.catalog import CATALOGUE
from curator_df.kernels.text.buffers import text_spans
from curator_df.ops.rows.row_values import require_row_values
from curator_df.suggestions import suggests_names

Of = Literal["document", "block"]
"""Argument of the function."""

VALUES_PEAK_FACTOR = 0.2
"""Factor of each such metric, without the memory of its function: 17 bytes of numbers and masks a row, of rows of 100 bytes."""
TEXT_PEAK_FACTOR = 5.0
"""One text as a Python string, while its metric is made. Python widens a string of one byte a character to one of four, and holds
both, where an emoji stands at the end of a text of ASCII. Measured: 5.00; 1.00 of ASCII and 0.67 of Chinese."""


@suggests_names
@dataclass(frozen=True)
class UserMetric:
    """A metric of each text, computed by your function.

    Its column is ``Float64``. Where the function returns None or NaN, the row has no such metric, and a profile drops it as
    ``missing_metric``; where the text is null, as ``missing_text``.

    See Also
    --------
    add_metrics, Profile

    Examples
    --------
    >>> vowels = UserMetric("vowel_ratio", lambda text: sum(map(text.count, "aeiou")) / max(len(text), 1))
    >>> titles = UserMetric("title_length", lambda block: block["title"].str.len(), of="block")
    """

    name: str
    """Name of the metric and of its column."""
    function: Callable[[Any], Any]
    """``of="document"``: a function of one text (str) that returns a number. ``of="block"``: a function of a block (a pandas
    DataFrame) that returns a Series of numbers or booleans with the block's index. Each result must depend on its row only."""
    of: Of = "document"
    """``"document"`` is the slow path, Python code for each text; `explain` reports it."""

    def __post_init__(self) -> None:
        choose("UserMetric", "of", self.of, Of)
        if not isinstance(self.name, str) or not self.name:
            raise ParameterError(f"UserMetric: name={self.name!r} is not a name. Pass a str of at least one character")
        if self.name in CATALOGUE:
            raise ParameterError(
                f"UserMetric: {self.name!r} is already the name of a built-in metric. Choose another name"
            )
        if not callable(self.function):
            raise ParameterError(f"UserMetric {self.name!r} needs a function; found {self.function!r}")


def user_values(block: Any, metric: UserMetric, text: str) -> npt.NDArray[np.float64]:
    """Return a user's metric of each row of a block, NaN where there is none."""
    if metric.of == "document":
        return np.fromiter(_numbers(block[text], metric), dtype=np.float64, count=len(block))
    # A shallow copy: a function that adds a column to what it is given must not change the block.
    result = metric.function(block.copy(deep=False))
    require_row_values(f"the metric {metric.name!r}", "number", result, block, pd.api.types.is_numeric_dtype)
    values: npt.NDArray[np.float64] = result.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def user_factor(rows: float, metrics: Sequence[UserMetric]) -> float:
    """Return the peak of a step that has one of ``rows`` x block without these metrics.

    Examples
    --------
    >>> user_factor(1.2, []), user_factor(1.2, [UserMetric("length", len)])
    (1.2, 5.2)
    """
    texts = TEXT_PEAK_FACTOR if slow_path(metrics) else 0.0
    return round(max(rows, texts) + VALUES_PEAK_FACTOR * len(metrics), 1)


def slow_path(metrics: Sequence[UserMetric]) -> str:
    """Return what `explain` says of a step with these metrics; empty where none is of a document."""
    names = [metric.name for metric in metrics if metric.of == "document"]
    return f"slow path: Python for each document ({', '.join(names)})" if names else ""


def _numbers(texts: Any, metric: UserMetric) -> Iterator[float]:
    """Yield the metric of each text, of which one is held as a Python string, made of the buffer itself."""
    for span in text_spans(texts):
        valid = np.ones(len(span), dtype=bool) if span.valid is None else span.valid
        for start, stop, has_text in zip(span.offsets[:-1], span.offsets[1:], valid, strict=True):
            yield _number(metric.function(str(span.data[start:stop].data, "utf-8")), metric) if has_text else np.nan


def _number(result: Any, metric: UserMetric) -> float:
    if result is None or result is pd.NA:
        return np.nan
    if not isinstance(result, (numbers.Real, np.bool_)):
        raise OperatorError(
            f"the metric {metric.name!r} must return a number, or None where there is none; it returned {result!r}"
        )
    return float(result)

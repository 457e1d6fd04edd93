# SPDX-License-Identifier: Apache-2.0
"""The catalogue of text metrics, as data: each a count, or a quotient of two counts that one pass over a text makes.

Nothing here computes or imports numba; `measure` does, with the compiled counters. A new metric that divides counts
that exist is one entry; a new count is one more column in `word_counts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from curator_df.errors import ParameterError

Words = Literal["whitespace"]
"""Ways of cutting a text into words. ``whitespace``: as ``str.split`` does."""

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""The eight words of Rae et al. 2021 (Gopher), appendix A.1.1; case-sensitive, as in datatrove 0.10.0."""

COUNTS = (
    "words",
    "non_symbol_words",
    "non_symbol_code_points",
    "alpha_words",
    "stop_words",
    "hashes",
    "ellipses",
    "lines",
    "bullet_lines",
    "ellipsis_lines",
)
"""What the counter of words counts, in the order of its columns."""

COUNT_STOP_WORDS = 1
"""Feature bit: look each short word up among the stop words."""
COUNT_MARKS = 2
"""Feature bit: count ``#``, ``...`` and ``…``."""

_FEATURE_OF_COUNT = {
    "stop_words": COUNT_STOP_WORDS,
    "hashes": COUNT_MARKS,
    "ellipses": COUNT_MARKS,
}


@dataclass(frozen=True)
class Metric:
    """A number about one text."""

    name: str
    """Name, and name of the column that `add_profile` adds."""
    dtype: Literal["Int64", "Float64"]
    """Nullable pandas dtype of the column; the metric of a null text is null."""
    numerator: str
    """One of `COUNTS`."""
    denominator: str | None
    """One of `COUNTS`, or None for a plain count. A quotient whose denominator is 0 is 0."""
    definition: str
    """What it is, exactly."""
    source: str
    """Where the definition comes from."""
    edge_cases: str
    """What empty and odd texts give."""


_GOPHER = "Rae et al. 2021 (Gopher), appendix A.1.1, as computed by datatrove 0.10.0, GopherQualityFilter"
_NO_WORDS = "0 for a text without words"
_NO_LINES = "0 for an empty text; a line of white space alone counts as a line"

_CATALOGUE = (
    Metric(
        name="word_count",
        dtype="Int64",
        numerator="words",
        denominator=None,
        definition="Number of words.",
        source="Rae et al. 2021 (Gopher), appendix A.1.1",
        edge_cases=_NO_WORDS,
    ),
    Metric(
        name="non_symbol_word_count",
        dtype="Int64",
        numerator="non_symbol_words",
        denominator=None,
        definition="Number of words with at least one character outside datatrove's PUNCTUATION_SET.",
        source=_GOPHER,
        edge_cases=_NO_WORDS + "; '…', '--' and a lone control character are symbols, '€' and '•' are not",
    ),
    Metric(
        name="non_symbol_word_mean_length",
        dtype="Float64",
        numerator="non_symbol_code_points",
        denominator="non_symbol_words",
        definition="Mean length in code points of the words that non_symbol_word_count counts.",
        source=_GOPHER,
        edge_cases="0 without such words; combining marks are code points of their own",
    ),
    Metric(
        name="hash_ratio",
        dtype="Float64",
        numerator="hashes",
        denominator="words",
        definition="Occurrences of '#' divided by the number of words.",
        source=_GOPHER,
        edge_cases=_NO_WORDS + "; can exceed 1",
    ),
    Metric(
        name="ellipsis_ratio",
        dtype="Float64",
        numerator="ellipses",
        denominator="words",
        definition="Occurrences of '...' (not overlapping) and of '…' divided by the number of words.",
        source=_GOPHER,
        edge_cases=_NO_WORDS + "; can exceed 1; '.....' is one",
    ),
    Metric(
        name="bullet_line_ratio",
        dtype="Float64",
        numerator="bullet_lines",
        denominator="lines",
        definition="Share of lines (str.splitlines) whose first character after white space is '•' or '-'.",
        source=_GOPHER,
        edge_cases=_NO_LINES + "; '*' is not a bullet",
    ),
    Metric(
        name="ellipsis_line_ratio",
        dtype="Float64",
        numerator="ellipsis_lines",
        denominator="lines",
        definition="Share of lines (str.splitlines) that end, before trailing white space, in '...' or '…'.",
        source=_GOPHER,
        edge_cases=_NO_LINES,
    ),
    Metric(
        name="alpha_word_ratio",
        dtype="Float64",
        numerator="alpha_words",
        denominator="words",
        definition="Share of words with at least one alphabetic character (str.isalpha, so of any script).",
        source=_GOPHER,
        edge_cases=_NO_WORDS,
    ),
    Metric(
        name="stop_word_count",
        dtype="Int64",
        numerator="stop_words",
        denominator=None,
        definition="How many of the, be, to, of, and, that, have, with occur at least once as a word, in this case.",
        source=_GOPHER,
        edge_cases="0 to 8; 'The' and 'the,' are not 'the'",
    ),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _CATALOGUE})
"""Every metric by name."""


def require_metrics(names: Iterable[str]) -> None:
    """Raise `ParameterError`, listing the catalogue, unless every name is a metric.

    Examples
    --------
    >>> require_metrics(["word_count"])
    """
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ParameterError(f"no metric is named {', '.join(map(repr, unknown))}; there are: {', '.join(METRICS)}")


def features_of(names: Iterable[str]) -> int:
    """Return the feature bits that the counter needs for these metrics."""
    features = 0
    for name in names:
        for count in (METRICS[name].numerator, METRICS[name].denominator):
            features |= _FEATURE_OF_COUNT.get(count or "", 0)
    return features


def metric_values(name: str, counts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return a metric (int64 or float64, one value a row) from the counts of some rows, shape (rows, len(COUNTS))."""
    metric = METRICS[name]
    numerator = counts[:, COUNTS.index(metric.numerator)]
    if metric.denominator is None:
        return numerator
    denominator = counts[:, COUNTS.index(metric.denominator)]
    quotient = np.zeros(len(counts), dtype=np.float64)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    return quotient

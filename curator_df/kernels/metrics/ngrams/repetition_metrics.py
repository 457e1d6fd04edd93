# SPDX-License-Identifier: Apache-2.0
"""Metrics of Gopher's repetition rules: repeated lines, paragraphs and n-grams."""

from __future__ import annotations

from curator_df.kernels.metrics.counts import REPEATED_GRAMS, TOP_GRAMS
from curator_df.kernels.metrics.metric import Metric

_REPETITION = "Rae et al. 2021 (Gopher), table A1, as computed by datatrove 0.10.0, GopherRepetitionFilter"
_EMPTY = "0 for an empty text (datatrove divides by zero)"


def _top_gram(n: int) -> Metric:
    return Metric(
        name=f"top_{n}_gram_character_ratio",
        dtype="Float64",
        numerator=f"top_{n}_gram_code_points",
        denominator="code_points",
        definition=(
            f"Length of the most frequent {n}-gram, joined by single spaces, times its occurrences, divided "
            "by the length of the text, in code points."
        ),
        source=_REPETITION,
        edge_cases=(
            f"0 for a text of fewer than {n} words; among equally frequent ones, the first in the text, even if every {n}-gram "
            "occurs once; occurrences overlap and cross line ends"
        ),
    )


def _repeated_gram(n: int) -> Metric:
    return Metric(
        name=f"repeated_{n}_gram_character_ratio",
        dtype="Float64",
        numerator=f"repeated_{n}_gram_code_points",
        denominator="code_points",
        definition=(
            f"Code points in repeated {n}-grams divided by the length of the text. Scanning left to right, each {n}-gram "
            f"seen before is counted, and the scan then skips {n} words."
        ),
        source=_REPETITION,
        edge_cases=(
            f"0 for a text of fewer than {n} words; {n}-grams are equal if their words are when joined without spaces; white "
            "space is ignored"
        ),
    )


REPETITION_METRICS = (
    Metric(
        name="duplicate_paragraph_ratio",
        dtype="Float64",
        numerator="duplicate_paragraphs",
        denominator="paragraphs",
        definition=(
            "Fraction of paragraphs that repeat an earlier one. Paragraphs are separated by two or more line feeds, after white "
            "space is stripped from the ends of the text."
        ),
        source=_REPETITION,
        edge_cases="A text without words has one paragraph; a line of spaces does not separate paragraphs",
    ),
    Metric(
        name="duplicate_paragraph_character_ratio",
        dtype="Float64",
        numerator="duplicate_paragraph_code_points",
        denominator="code_points",
        definition="Number of code points in paragraphs that repeat an earlier one, divided by the length of the text.",
        source=_REPETITION,
        edge_cases=_EMPTY,
    ),
    Metric(
        name="duplicate_line_ratio",
        dtype="Float64",
        numerator="duplicate_lines",
        denominator="lines",
        definition="Fraction of lines that repeat an earlier one. Lines are separated by one or more line feeds.",
        source=_REPETITION,
        edge_cases=(
            "The empty lines before a leading line feed and after a trailing one count: a text of only line "
            "feeds has two lines, one of them a duplicate; CR is part of a line"
        ),
    ),
    Metric(
        name="duplicate_line_character_ratio",
        dtype="Float64",
        numerator="duplicate_line_code_points",
        denominator="code_points",
        definition="Number of code points in lines that repeat an earlier one, divided by the length of the text.",
        source=_REPETITION,
        edge_cases=_EMPTY,
    ),
    *map(_top_gram, TOP_GRAMS),
    *map(_repeated_gram, REPEATED_GRAMS),
)
"""Metrics of Gopher's repetition rules, in the order in which datatrove uses them."""

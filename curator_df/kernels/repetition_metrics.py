# SPDX-License-Identifier: Apache-2.0
"""The metrics of Gopher's repetition rules: repeated lines, paragraphs and n-grams."""

from __future__ import annotations

from curator_df.kernels.counts import REPEATED_GRAMS, TOP_GRAMS
from curator_df.kernels.metric import Metric

_REPETITION = "Rae et al. 2021 (Gopher), table A1, as computed by datatrove 0.10.0, GopherRepetitionFilter"
_EMPTY = "0 for an empty text (datatrove divides by zero)"


def _top_gram(n: int) -> Metric:
    return Metric(
        name=f"top_{n}_gram_character_ratio",
        dtype="Float64",
        numerator=f"top_{n}_gram_code_points",
        denominator="code_points",
        definition=(
            f"Length of the most frequent sequence of {n} words, joined by single spaces, times its occurrences, divided "
            "by the length of the text, in code points."
        ),
        source=_REPETITION,
        edge_cases=(
            f"0 for a text of fewer than {n} words; of several as frequent, the first in the text, even if every sequence "
            "occurs once; occurrences overlap and run across lines"
        ),
    )


def _repeated_gram(n: int) -> Metric:
    return Metric(
        name=f"repeated_{n}_gram_character_ratio",
        dtype="Float64",
        numerator=f"repeated_{n}_gram_code_points",
        denominator="code_points",
        definition=(
            f"Code points in repeated sequences of {n} words divided by the length of the text. From left to right, a "
            f"sequence that was met before counts, and the next one looked at begins {n} words on."
        ),
        source=_REPETITION,
        edge_cases=(
            f"0 for a text of fewer than {n} words; sequences are the same if they are when joined by nothing, and white "
            "space does not count"
        ),
    )


REPETITION_METRICS = (
    Metric(
        name="duplicate_paragraph_ratio",
        dtype="Float64",
        numerator="duplicate_paragraphs",
        denominator="paragraphs",
        definition=(
            "Share of paragraphs that are the same as one before. Paragraphs stand between two or more line feeds, white "
            "space at the ends of the text taken off."
        ),
        source=_REPETITION,
        edge_cases="A text without words has one paragraph; a line of spaces between line feeds separates nothing",
    ),
    Metric(
        name="duplicate_paragraph_character_ratio",
        dtype="Float64",
        numerator="duplicate_paragraph_code_points",
        denominator="code_points",
        definition="Code points in paragraphs that are the same as one before, divided by the length of the text.",
        source=_REPETITION,
        edge_cases=_EMPTY,
    ),
    Metric(
        name="duplicate_line_ratio",
        dtype="Float64",
        numerator="duplicate_lines",
        denominator="lines",
        definition="Share of lines that are the same as one before. Lines stand between one or more line feeds.",
        source=_REPETITION,
        edge_cases=(
            "An empty line before a line feed at the start counts, and one after a line feed at the end: a text of line "
            "feeds alone has two lines, one of them a duplicate; CR is part of a line"
        ),
    ),
    Metric(
        name="duplicate_line_character_ratio",
        dtype="Float64",
        numerator="duplicate_line_code_points",
        denominator="code_points",
        definition="Code points in lines that are the same as one before, divided by the length of the text.",
        source=_REPETITION,
        edge_cases=_EMPTY,
    ),
    *map(_top_gram, TOP_GRAMS),
    *map(_repeated_gram, REPEATED_GRAMS),
)
"""In the order in which datatrove uses them."""

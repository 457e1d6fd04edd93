# SPDX-License-Identifier: Apache-2.0
"""Metrics of dolma's Gopher taggers that differ from those of other systems."""

from __future__ import annotations

from curator_df.kernels.metrics.counts import LONGEST_COUNTED_WORD, REPEATED_GRAMS, TOP_GRAMS
from curator_df.kernels.metrics.metric import Metric

_TAGGER = "dolma 1.2.1, taggers/gopher.py"
_NO_WORDS = "0 for a text without words"
_V1 = "Lines are separated by single line feeds."
_V2 = "Lines are separated by one or more line feeds (gopher_v2)."
_V2_EDGE = "The empty lines before a leading line feed and after a trailing one count"


def _ratio(name: str, part: str, whole: str, definition: str, of: str, edge_cases: str) -> Metric:
    return Metric(name, "Float64", part, whole, definition, f"{_TAGGER}, {of}", edge_cases)


def _top_gram(n: int) -> Metric:
    return _ratio(
        f"dolma_top_{n}_gram_character_ratio",
        f"top_{n}_gram_letters",
        "word_characters",
        f"Number of code points in the words of the most frequent {n}-gram, times its occurrences, divided by the code "
        "points in all words.",
        f"fraction_of_characters_in_most_common_{n}grams",
        f"0 for a text of fewer than {n} words; if several are equally frequent, the first in the text, even if all occur once",
    )


def _repeated_gram(n: int) -> Metric:
    return _ratio(
        f"dolma_repeated_{n}_gram_character_ratio",
        f"repeated_{n}_gram_letters",
        f"all_{n}_gram_letters",
        f"Number of code points in the words of all occurrences of repeated {n}-grams, divided by "
        f"the code points in the words of all {n}-grams, which overlap.",
        f"fraction_of_characters_in_duplicate_{n}grams",
        f"0 for a text of fewer than {n} words",
    )


def _of_lines(version: str, lines: str, definition: str, edge_cases: str) -> tuple[Metric, ...]:
    prefix = "dolma" if version == "v1" else "dolma_v2"
    tagger = f"gopher_{version}"
    return (
        _ratio(
            f"{prefix}_bullet_line_ratio",
            "dolma_bullet_lines",
            lines,
            f"Fraction of lines that begin with '*' or '-'. {definition}",
            f"{tagger}, fraction_of_lines_starting_with_bullet_point",
            edge_cases + "; a bullet after a space does not count",
        ),
        _ratio(
            f"{prefix}_ellipsis_line_ratio",
            "dolma_ellipsis_lines",
            lines,
            f"Fraction of lines that end in '…'. {definition}",
            f"{tagger}, fraction_of_lines_ending_with_ellipsis",
            edge_cases + "; '...' does not count, nor does an ellipsis before a space",
        ),
        _ratio(
            f"{prefix}_repeated_line_ratio",
            f"dolma_{version}_repeated_lines",
            lines,
            f"Fraction of lines that occur more than once, counting every occurrence. {definition}",
            f"{tagger}, fraction_of_duplicate_lines",
            edge_cases,
        ),
    )


def _has(name: str, what: str) -> Metric:
    return Metric(
        name=f"has_{name}",
        dtype="Int64",
        numerator=name,
        denominator=None,
        definition=f"1 if the text contains {what}.",
        source=f"dolma 1.2.1, taggers/c4.py, c4_v2, has_{'curly_brace' if name == 'curly_bracket' else name}",
        edge_cases="0 for an empty text",
    )


DOLMA_METRICS = (
    _ratio(
        "median_word_length",
        "middle_word_lengths",
        "middle_words",
        "Median word length in code points; the mean of the two middle lengths if the number of words is even.",
        "median_word_length",
        f"{_NO_WORDS}; a word of more than {LONGEST_COUNTED_WORD:,} counts as one of that length",
    ),
    _ratio(
        "dolma_symbol_word_ratio",
        "dolma_symbol_words",
        "words",
        "Fraction of words that contain '#' or '…'.",
        "symbol_to_word_ratio",
        f"{_NO_WORDS}; '...' does not count",
    ),
    *_of_lines("v1", "dolma_v1_lines", _V1, "Empty lines count"),
    *_of_lines("v2", "dolma_v2_lines", _V2, _V2_EDGE),
    _ratio(
        "dolma_repeated_line_character_ratio",
        "dolma_repeated_line_characters",
        "word_characters",
        "Number of code points in all occurrences of repeated lines, divided by the code points in all words.",
        "fraction_of_characters_in_duplicate_lines",
        f"{_NO_WORDS} (dolma divides by 1); can exceed 1, because spaces in lines count; both versions give this value",
    ),
    *map(_top_gram, TOP_GRAMS),
    *map(_repeated_gram, REPEATED_GRAMS),
    _has("curly_bracket", "'{'"),
    _has("lorem_ipsum", "'lorem ipsum' (case-insensitive)"),
    _has("javascript", "'javascript' (case-insensitive, also inside a word)"),
)

# SPDX-License-Identifier: Apache-2.0
"""Metrics of DCLM's document filters that differ from those of other systems."""

from __future__ import annotations

from curator_df.kernels.metrics.counts import REPEATED_GRAMS, TOP_GRAMS
from curator_df.kernels.metrics.metric import Metric

_FILTERS = "DCLM (mlfoundations/dclm, commit c7ed275), baselines/mappers/filters/content_filters.py"
_LINES = "Lines are separated by line feeds and stripped of white space; empty lines are ignored."
_PARAGRAPHS = (
    "Paragraphs are separated by two line feeds, matched from the left, and stripped of white space; empty ones are "
    "ignored."
)
_WORDS = "Words follow Unicode's rules (UAX #29, Unicode 16.0) and begin with a letter or a digit (str.isalnum)."
_NOTHING = "1 for a text of only white space, which DCLM drops"


def _ratio(
    name: str, part: str, whole: str, definition: str, of: str, edge_cases: str, undefined: float = 0.0
) -> Metric:
    return Metric(name, "Float64", part, whole, definition, f"{_FILTERS}, {of}", edge_cases, undefined)


def _top_gram(n: int) -> Metric:
    return _ratio(
        f"dclm_top_{n}_gram_character_ratio",
        f"top_{n}_unicode_gram_characters",
        "unicode_word_characters",
        f"Number of code points in the words of the most frequent {n}-gram, times its occurrences, divided by the code "
        f"points in all words. {_WORDS}",
        f"repetition_filter, granularity {n}",
        "0 if no n-gram occurs twice; if several are equally frequent, the longest; can exceed 1, because occurrences overlap",
    )


def _repeated_gram(n: int) -> Metric:
    return _ratio(
        f"dclm_repeated_{n}_gram_character_ratio",
        f"repeated_{n}_unicode_gram_characters",
        "unicode_word_characters",
        f"Number of code points in the words of all occurrences of repeated {n}-grams, counting each word once, "
        f"divided by the code points in all words. {_WORDS}",
        f"repetition_filter, granularity {n}",
        f"0 for a text of at most {n} words",
    )


DCLM_METRICS = (
    Metric(
        name="dclm_word_count",
        dtype="Int64",
        numerator="fasttext_words",
        denominator=None,
        definition=(
            "Number of words that begin with a letter or a digit (str.isalnum), split as in fastText: at spaces, \\t, \\n, \\v, "
            "\\f, \\r and NUL."
        ),
        source=f"{_FILTERS}, page_length_filter; core_utils.py, split_words",
        edge_cases="Other white space is part of a word; a word that begins with a quotation mark or a bracket is not counted",
    ),
    _ratio(
        "dclm_symbol_word_ratio",
        "dclm_symbols",
        "words",
        "Number of non-overlapping occurrences of '#', '...', '. . .' and '…', divided by the number of words (str.split).",
        "symbol_ratio_filter",
        "1 for a text without words, which DCLM drops; can exceed 1",
        undefined=1.0,
    ),
    _ratio(
        "dclm_bullet_line_ratio",
        "bullet_stripped_lines",
        "stripped_lines",
        f"Fraction of lines that begin with one of ● • * -. {_LINES}",
        "bullet_count_filter",
        "0 for a text without lines",
    ),
    _ratio(
        "dclm_ellipsis_line_ratio",
        "ellipsis_stripped_lines",
        "stripped_lines",
        f"Fraction of lines that end in one of '...', '. . .' and '…'. {_LINES}",
        "ellipsis_count_filter",
        "0 for a text without lines",
    ),
    Metric(
        name="dclm_stop_word_count",
        dtype="Int64",
        numerator="any_case_stop_words",
        denominator=None,
        definition="Number of words (str.split) that are one of the, be, to, of, and, that, have, with; case-insensitive.",
        source=f"{_FILTERS}, stop_word_filter, count_unique=False",
        edge_cases="DCLM stops counting at its threshold; 'the,' is not 'the'",
    ),
    _ratio(
        "dclm_repeated_line_ratio",
        "repeated_stripped_lines",
        "stripped_lines",
        f"Fraction of lines that occur more than once, counting every occurrence. {_LINES}",
        "repetition_filter, granularity line, count_characters=False",
        _NOTHING,
        undefined=1.0,
    ),
    _ratio(
        "dclm_repeated_paragraph_ratio",
        "repeated_stripped_paragraphs",
        "stripped_paragraphs",
        f"Fraction of paragraphs that occur more than once, counting every occurrence. {_PARAGRAPHS}",
        "repetition_filter, granularity paragraph, count_characters=False",
        _NOTHING,
        undefined=1.0,
    ),
    _ratio(
        "dclm_repeated_line_character_ratio",
        "repeated_stripped_line_characters",
        "stripped_line_characters",
        f"Number of code points in all occurrences of repeated lines, divided by the code points in all lines. {_LINES}",
        "repetition_filter, granularity line",
        _NOTHING,
        undefined=1.0,
    ),
    _ratio(
        "dclm_repeated_paragraph_character_ratio",
        "repeated_stripped_paragraph_characters",
        "stripped_paragraph_characters",
        "Number of code points in all occurrences of repeated paragraphs, divided by the code points in all paragraphs. "
        f"{_PARAGRAPHS}",
        "repetition_filter, granularity paragraph",
        _NOTHING,
        undefined=1.0,
    ),
    *map(_top_gram, TOP_GRAMS),
    *map(_repeated_gram, REPEATED_GRAMS),
)
"""Metrics of DCLM, in the order in which DCLM uses them."""

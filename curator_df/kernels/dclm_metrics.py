# SPDX-License-Identifier: Apache-2.0
"""The metrics of DCLM's document filters, where they are not those of others."""

from __future__ import annotations

from curator_df.kernels.counts import REPEATED_GRAMS, TOP_GRAMS
from curator_df.kernels.metric import Metric

_FILTERS = "DCLM (mlfoundations/dclm, commit c7ed275), baselines/mappers/filters/content_filters.py"
_LINES = "Lines stand between line feeds, without the white space at their ends; empty ones are left out."
_PARAGRAPHS = (
    "Paragraphs stand between two line feeds, counted from the left, without the white space at their ends; empty ones are left "
    "out."
)
_WORDS = "Words are those of Unicode's rules (UAX #29, Unicode 16.0) that begin with a letter or a digit (str.isalnum)."
_NOTHING = "1 for a text of white space, which DCLM drops"


def _ratio(
    name: str, part: str, whole: str, definition: str, of: str, edge_cases: str, undefined: float = 0.0
) -> Metric:
    return Metric(name, "Float64", part, whole, definition, f"{_FILTERS}, {of}", edge_cases, undefined)


def _top_gram(n: int) -> Metric:
    return _ratio(
        f"dclm_top_{n}_gram_character_ratio",
        f"top_{n}_unicode_gram_characters",
        "unicode_word_characters",
        f"Code points of the words of the most frequent sequence of {n} words times its occurrences, divided by the code "
        f"points of all words. {_WORDS}",
        f"repetition_filter, granularity {n}",
        "0 if no sequence occurs twice; of several as frequent, the longest; can exceed 1, because occurrences overlap",
    )


def _repeated_gram(n: int) -> Metric:
    return _ratio(
        f"dclm_repeated_{n}_gram_character_ratio",
        f"repeated_{n}_unicode_gram_characters",
        "unicode_word_characters",
        f"Code points of the words in sequences of {n} words that occur more than once, every occurrence and no word twice, "
        f"divided by the code points of all words. {_WORDS}",
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
            "Number of words that begin with a letter or a digit (str.isalnum), cut as fastText does: at spaces, \\t, \\n, \\v, "
            "\\f, \\r and NUL."
        ),
        source=f"{_FILTERS}, page_length_filter; core_utils.py, split_words",
        edge_cases="Other white space is part of a word; a word in quotation marks or brackets begins with neither",
    ),
    _ratio(
        "dclm_symbol_word_ratio",
        "dclm_symbols",
        "words",
        "Occurrences of '#', '...', '. . .' and '…', of each not overlapping, divided by the number of words (str.split).",
        "symbol_ratio_filter",
        "1 for a text without words, which DCLM drops; can exceed 1",
        undefined=1.0,
    ),
    _ratio(
        "dclm_bullet_line_ratio",
        "bullet_stripped_lines",
        "stripped_lines",
        f"Share of the lines that begin with one of ● • * -. {_LINES}",
        "bullet_count_filter",
        "0 for a text without lines",
    ),
    _ratio(
        "dclm_ellipsis_line_ratio",
        "ellipsis_stripped_lines",
        "stripped_lines",
        f"Share of the lines that end in one of '...', '. . .' and '…'. {_LINES}",
        "ellipsis_count_filter",
        "0 for a text without lines",
    ),
    Metric(
        name="dclm_stop_word_count",
        dtype="Int64",
        numerator="any_case_stop_words",
        denominator=None,
        definition="How many words (str.split) are one of the, be, to, of, and, that, have, with, in any case.",
        source=f"{_FILTERS}, stop_word_filter, count_unique=False",
        edge_cases="DCLM stops counting at its threshold; 'the,' is not 'the'",
    ),
    _ratio(
        "dclm_repeated_line_ratio",
        "repeated_stripped_lines",
        "stripped_lines",
        f"Share of the lines that occur more than once, every occurrence counted. {_LINES}",
        "repetition_filter, granularity line, count_characters=False",
        _NOTHING,
        undefined=1.0,
    ),
    _ratio(
        "dclm_repeated_paragraph_ratio",
        "repeated_stripped_paragraphs",
        "stripped_paragraphs",
        f"Share of the paragraphs that occur more than once, every occurrence counted. {_PARAGRAPHS}",
        "repetition_filter, granularity paragraph, count_characters=False",
        _NOTHING,
        undefined=1.0,
    ),
    _ratio(
        "dclm_repeated_line_character_ratio",
        "repeated_stripped_line_characters",
        "stripped_line_characters",
        f"Code points in lines that occur more than once, every occurrence, divided by those of all lines. {_LINES}",
        "repetition_filter, granularity line",
        _NOTHING,
        undefined=1.0,
    ),
    _ratio(
        "dclm_repeated_paragraph_character_ratio",
        "repeated_stripped_paragraph_characters",
        "stripped_paragraph_characters",
        "Code points in paragraphs that occur more than once, every occurrence, divided by those of all paragraphs. "
        f"{_PARAGRAPHS}",
        "repetition_filter, granularity paragraph",
        _NOTHING,
        undefined=1.0,
    ),
    *map(_top_gram, TOP_GRAMS),
    *map(_repeated_gram, REPEATED_GRAMS),
)
"""In the order in which DCLM uses them."""

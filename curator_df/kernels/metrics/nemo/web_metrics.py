# SPDX-License-Identifier: Apache-2.0
"""Metrics of NeMo Curator's heuristic filters and of dolma's Gopher taggers that differ from those of other systems.

Those of NeMo have NeMo's value where other metrics would divide by zero.
"""

from __future__ import annotations

from curator_df.kernels.metrics.counts import LONGEST_COUNTED_WORD, REPEATED_GRAMS, TOP_GRAMS
from curator_df.kernels.metrics.metric import Metric

_FILTERS = "nemo_curator 0.9.0, filters/heuristic_filter.py"
_CODE = "nemo_curator 0.9.0, filters/code.py"
_EMPTY_IS_ONE = "1 for an empty text, as in NeMo"
_LINES = "Lines are separated by single line feeds and contain more than white space."
_PARAGRAPHS = "Paragraphs are separated by two line feeds, matched from the left."
_NO_LINES = "for a text without lines (NeMo divides by zero)"
_TAGGER = "dolma 1.2.1, taggers/gopher.py"
_NO_WORDS = "0 for a text without words"
_V1 = "Lines are separated by single line feeds."
_V2 = "Lines are separated by one or more line feeds (gopher_v2)."
_V2_EDGE = "The empty lines before a leading line feed and after a trailing one count"


def _share(name: str, part: str, definition: str, of: str, edge_cases: str) -> Metric:
    return Metric(name, "Float64", part, "characters", definition, f"{_FILTERS}, {of}", edge_cases, undefined=1.0)


def _ratio(
    name: str, part: str, whole: str, definition: str, of: str, edge_cases: str, undefined: float = 0.0
) -> Metric:
    return Metric(name, "Float64", part, whole, definition, f"{_FILTERS}, {of}", edge_cases, undefined)


def _tagged(name: str, part: str, whole: str, definition: str, of: str, edge_cases: str) -> Metric:
    return Metric(name, "Float64", part, whole, definition, f"{_TAGGER}, {of}", edge_cases)


def _removed_gram(n: int) -> Metric:
    return _share(
        f"nemo_top_{n}_gram_character_ratio",
        f"removed_{n}_gram_characters",
        f"Fraction of the code points that disappear when the most frequent {n}-gram, joined by single spaces, is "
        "removed (str.replace).",
        f"RepeatingTopNGramsFilter, n={n}",
        f"1 for a text of fewer than {n} words, as in NeMo; of equally frequent ones, the first in the text (NeMo: any, by the "
        "seed of Python's hashes); words separated by other white space count for the choice and are not removed",
    )


def _duplicate_gram(n: int) -> Metric:
    return _share(
        f"nemo_duplicate_{n}_gram_character_ratio",
        f"duplicate_{n}_gram_characters",
        f"Fraction of the code points in {n}-grams that repeat an earlier one, including the spaces between their words and "
        "counting each word once.",
        f"RepeatingDuplicateNGramsFilter, n={n}",
        f"1 for a text of fewer than {n} words, as in NeMo; any separator between words counts as one space",
    )


NEMO_METRICS = (
    _share(
        "non_alphanumeric_ratio",
        "not_alphanumeric_characters",
        "Fraction of the code points that are not ASCII letters, ASCII digits, line feeds, or one of ? ! , .",
        "NonAlphaNumericFilter",
        _EMPTY_IS_ONE + "; spaces and letters with accents count as non-alphanumeric",
    ),
    _ratio(
        "nemo_symbol_word_ratio",
        "nemo_symbol_words",
        "words",
        "Fraction of words that are an ellipsis (... [...] … (...) […] -») or have more runs of # than half their length.",
        "SymbolsToWordsFilter",
        "0 for a text without words (NeMo divides by zero); '##' does not count: it is one run in two characters",
    ),
    _share(
        "digit_ratio",
        "digits",
        "Fraction of the code points that are ASCII digits.",
        "NumbersFilter",
        _EMPTY_IS_ONE + "; [[:digit:]] of the package regex 2026.11.15 is ASCII",
    ),
    _share(
        "url_character_ratio",
        "url_characters",
        "Fraction of the code points in URLs: http:// or https:// and the following ASCII letters, '!' and U+0024 to U+005F.",
        "UrlsFilter",
        _EMPTY_IS_ONE + "; a URL ends at # and ~, and continues over < > ; and brackets",
    ),
    _share(
        "white_space_ratio",
        "white_characters",
        "Fraction of the code points that are spaces, tabs, line feeds, CR or backspaces.",
        "WhiteSpaceFilter",
        _EMPTY_IS_ONE + "; other white space does not count",
    ),
    _share(
        "parenthesis_ratio",
        "parentheses",
        "Fraction of the code points that are one of ( ) [ ] { } and U+27E8, U+27E9.",
        "ParenthesesFilter",
        _EMPTY_IS_ONE,
    ),
    _ratio(
        "boilerplate_paragraph_ratio",
        "boilerplate_web_paragraphs",
        "web_paragraphs",
        "Fraction of paragraphs with a phrase of privacy policies or cookie banners (case-insensitive); 1 if 'lorem ipsum' is "
        f"in the text. {_PARAGRAPHS}",
        "BoilerPlateStringFilter",
        "An empty text has one paragraph",
    ),
    _ratio(
        "unique_line_ratio",
        "unique_web_lines",
        "web_lines",
        f"Number of distinct lines divided by the number of lines. {_LINES}",
        "RepeatedLinesFilter",
        f"1 {_NO_LINES}; lines include the white space at their ends",
        undefined=1.0,
    ),
    _ratio(
        "unique_paragraph_ratio",
        "unique_web_paragraphs",
        "web_paragraphs",
        f"Number of distinct paragraphs divided by the number of paragraphs. {_PARAGRAPHS}",
        "RepeatedParagraphsFilter",
        "1 for an empty text; empty paragraphs count",
    ),
    _ratio(
        "unique_line_character_ratio",
        "unique_web_line_characters",
        "web_line_characters",
        f"Number of code points in the distinct lines divided by that in all lines. {_LINES}",
        "RepeatedLinesByCharFilter",
        f"1 {_NO_LINES}",
        undefined=1.0,
    ),
    _ratio(
        "unique_paragraph_character_ratio",
        "unique_web_paragraph_characters",
        "web_paragraph_characters",
        f"Number of code points in the distinct paragraphs divided by that in all paragraphs. {_PARAGRAPHS}",
        "RepeatedParagraphsByCharFilter",
        "1 for a text whose paragraphs are all empty (NeMo divides by zero)",
        undefined=1.0,
    ),
    _ratio(
        "unpunctuated_line_ratio",
        "unpunctuated_web_lines",
        "web_lines",
        f"Fraction of lines that do not end, before trailing white space, in one of . ? ! \" '. {_LINES}",
        "PunctuationFilter",
        f"0 {_NO_LINES}",
    ),
    _ratio(
        "alphabetic_word_ratio",
        "alphabetic_words",
        "words",
        "Fraction of words with at least one character of Unicode's property Alphabetic (14.0).",
        "WordsWithoutAlphabetsFilter",
        "0 for a text without words (NeMo divides by zero); unlike alpha_word_ratio, vowel signs and Roman numerals count",
    ),
    Metric(
        name="stop_word_occurrences",
        dtype="Int64",
        numerator="stop_word_occurrences",
        denominator=None,
        definition="Number of words that are one of the, be, to, of, and, that, have, with; case-sensitive.",
        source=f"{_FILTERS}, CommonEnglishWordsFilter; dolma 1.2.1, taggers/gopher.py, required_word_count",
        edge_cases="NeMo stops counting at its threshold; 'The' and 'the,' are not 'the'",
    ),
    _ratio(
        "mean_word_length",
        "word_characters",
        "words",
        "Mean word length in code points.",
        "MeanWordLengthFilter",
        "0 for a text without words (NeMo divides by zero)",
    ),
    Metric(
        name="longest_word_length",
        dtype="Int64",
        numerator="longest_word",
        denominator=None,
        definition="Length of the longest word in code points.",
        source=f"{_FILTERS}, LongWordFilter",
        edge_cases="0 for a text without words (NeMo raises an error)",
    ),
    _ratio(
        "nemo_ellipsis_line_ratio",
        "ellipsis_web_lines",
        "web_lines",
        "Fraction of lines that end, before trailing white space, in one of ... [...] … (...) […] -», 'read more' "
        f"or 'read more..' (case-insensitive). {_LINES}",
        "EllipsisFilter",
        f"0 {_NO_LINES}",
    ),
    _ratio(
        "nemo_bullet_line_ratio",
        "bullet_web_lines",
        "web_lines",
        f"Fraction of lines whose first character after white space is one of • ‣ ⁃ ⁌ ⁍ ∙ ○ ● ◘ ◦ ⦾ ⦿. {_LINES}",
        "BulletsFilter",
        f"0 {_NO_LINES}; '-' and '*' are not bullets",
    ),
    *map(_removed_gram, TOP_GRAMS),
    *map(_duplicate_gram, REPEATED_GRAMS),
    Metric(
        name="line_count",
        dtype="Int64",
        numerator="split_lines",
        denominator=None,
        definition="Number of line feeds plus one.",
        source=f"{_CODE}, NumberOfLinesOfCodeFilter",
        edge_cases="1 for an empty text",
    ),
    Metric(
        name="xml_header",
        dtype="Int64",
        numerator="xml_header",
        denominator=None,
        definition="1 if the first 100 code points contain '<?xml version='.",
        source=f"{_CODE}, XMLHeaderFilter",
        edge_cases="Case-sensitive; the phrase must be complete within the 100 code points",
    ),
    Metric(
        name="alphabetic_ratio",
        dtype="Float64",
        numerator="alphabetic_characters",
        denominator="characters",
        definition="Fraction of the code points that have Unicode's property Alphabetic (14.0).",
        source=f"{_CODE}, AlphaFilter",
        edge_cases="0 for an empty text (NeMo divides by zero)",
    ),
)


def _top_gram(n: int) -> Metric:
    return _tagged(
        f"dolma_top_{n}_gram_character_ratio",
        f"top_{n}_gram_letters",
        "word_characters",
        f"Number of code points in the words of the most frequent {n}-gram, times its occurrences, divided by the code "
        "points in all words.",
        f"fraction_of_characters_in_most_common_{n}grams",
        f"0 for a text of fewer than {n} words; if several are equally frequent, the first in the text, even if all occur once",
    )


def _repeated_gram(n: int) -> Metric:
    return _tagged(
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
        _tagged(
            f"{prefix}_bullet_line_ratio",
            "dolma_bullet_lines",
            lines,
            f"Fraction of lines that begin with '*' or '-'. {definition}",
            f"{tagger}, fraction_of_lines_starting_with_bullet_point",
            edge_cases + "; a bullet after a space does not count",
        ),
        _tagged(
            f"{prefix}_ellipsis_line_ratio",
            "dolma_ellipsis_lines",
            lines,
            f"Fraction of lines that end in '…'. {definition}",
            f"{tagger}, fraction_of_lines_ending_with_ellipsis",
            edge_cases + "; '...' does not count, nor does an ellipsis before a space",
        ),
        _tagged(
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
    _tagged(
        "median_word_length",
        "middle_word_lengths",
        "middle_words",
        "Median word length in code points; the mean of the two middle lengths if the number of words is even.",
        "median_word_length",
        f"{_NO_WORDS}; a word of more than {LONGEST_COUNTED_WORD:,} counts as one of that length",
    ),
    _tagged(
        "dolma_symbol_word_ratio",
        "dolma_symbol_words",
        "words",
        "Fraction of words that contain '#' or '…'.",
        "symbol_to_word_ratio",
        f"{_NO_WORDS}; '...' does not count",
    ),
    *_of_lines("v1", "dolma_v1_lines", _V1, "Empty lines count"),
    *_of_lines("v2", "dolma_v2_lines", _V2, _V2_EDGE),
    _tagged(
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

# SPDX-License-Identifier: Apache-2.0
"""Metrics of NeMo Curator's heuristic filters and of dolma's Gopher taggers that differ from those of other systems.

Those of NeMo have NeMo's value where other metrics would divide by zero. The compiled counts of lines and paragraphs come first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.edits.boilerplate import A_PHRASE, LOREM_IPSUM, find_boilerplate
from curator_df.kernels.metrics.counts import (
    COUNT_DOLMA_LINES,
    COUNT_WEB_LINES,
    COUNT_WEB_PARAGRAPHS,
    COUNTS,
    LONGEST_COUNTED_WORD,
    REPEATED_GRAMS,
    TOP_GRAMS,
    WEB_LINE_COUNTS,
)
from curator_df.kernels.metrics.lines.line_counts import earlier_line, last_flags, piece_slots, read_line
from curator_df.kernels.metrics.metric import Metric
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN, code_point
from curator_df.kernels.text.code_points import SPACE
from curator_df.kernels.text.word_reading import next_word

# nemo_curator 0.9.0, utils/constants.py, bullet_list.
BULLETS = "\u2022\u2023\u2043\u204c\u204d\u2219\u25cb\u25cf\u25d8\u25e6\u29be\u29bf"
_BULLETS = np.array([ord(bullet) for bullet in BULLETS])
# From the same file, ellipsis_marks, each as bytes; the ones before _READ_MORE are case-sensitive.
ELLIPSIS_ENDS = ("...", "\u2026", "[...]", "(...)", "[\u2026]", "-\xbb", "read more", "read more..")
_ENDS = [end.encode() for end in ELLIPSIS_ENDS]
_LETTERS = np.frombuffer(b"".join(_ENDS), dtype=np.uint8)
_LENGTHS = np.array([len(end) for end in _ENDS])
_STARTS = np.cumsum(_LENGTHS) - _LENGTHS
_MIX, _ADD = np.uint64(0xD6E8FEB86659FD93), np.uint64(0x9E3779B97F4A7C15)


@helper
def _ends_in(data: Any, start: int, stop: int, number: int) -> bool:
    length, first = _LENGTHS[number], _STARTS[number]
    if stop - start < length:
        return False
    for place in range(length):
        byte = data[stop - length + place]
        if 0x41 <= byte <= 0x5A:
            byte |= 0x20
        if byte != _LETTERS[first + place]:
            return False
    return True


@helper
def _ends_in_ellipsis_mark(data: Any, start: int, stop: int) -> bool:
    # The last bytes of the marks: . ] ) e, and those of the ellipsis and of the guillemet.
    if data[stop - 1] not in (0x2E, 0x5D, 0x29, 0x65, 0x45, 0xA6, 0xBB):
        return False
    for number in range(len(_LENGTHS)):  # noqa: SIM110 (numba)
        if _ends_in(data, start, stop, number):
            return True
    return False


@helper
def _stripped_stop(data: Any, start: int, stop: int, classes: Any) -> int:
    while stop > start:
        flags, before = last_flags(data, start, stop, classes)
        if not flags & SPACE:
            break
        stop = before
    return stop


@helper
def _is_bullet(data: Any, at: int, stop: int) -> bool:
    if data[at] != 0xE2:
        return False
    code, _ = code_point(data, at, stop)
    for bullet in _BULLETS:  # noqa: SIM110 (numba)
        if code == bullet:
            return True
    return False


@helper
def _count_web_lines(
    data: Any, start: int, stop: int, classes: Any, features: int, table: Any, slots: int, twice: Any, row: Any
) -> None:
    """Make the counts ``WEB_LINE_COUNTS`` and ``DOLMA_LINE_COUNTS``."""
    filled = unique = code_points = unique_code_points = unpunctuated = ellipsis_lines = bullets = 0
    pieces = feeds = dashes = dots = repeated = repeated_code_points = 0
    at = start
    while at < stop:
        line = at
        at, mixed, length = read_line(data, line, stop)
        feeds += at < stop
        if at > line:
            pieces += 1
            dashes += data[line] == 0x2A or data[line] == 0x2D
            dots += at - line >= 3 and data[at - 3] == 0xE2 and data[at - 2] == 0x80 and data[at - 1] == 0xA6
            place = earlier_line(data, start, stop, line, at, mixed, table, slots, 1) - 1
            first = next_word(data, line, at, classes)
            if first < at:
                last = _stripped_stop(data, first, at, classes)
                filled += 1
                code_points += length
                unique += place < 0
                unique_code_points += length if place < 0 else 0
                unpunctuated += data[last - 1] not in (0x2E, 0x3F, 0x21, 0x22, 0x27)
                ellipsis_lines += _ends_in_ellipsis_mark(data, first, last)
                bullets += _is_bullet(data, first, last)
            if place >= 0 and features & COUNT_DOLMA_LINES:
                bit = np.uint8(1 << (place & 7))
                times = 1 if twice[place >> 3] & bit else 2
                twice[place >> 3] |= bit
                repeated += times
                repeated_code_points += times * length
        at += 1
    row[0], row[1], row[2], row[3] = filled, unique, code_points, unique_code_points
    row[4], row[5], row[6] = unpunctuated, ellipsis_lines, bullets
    # Lines without a character: all of them for dolma's version 1; at most one at each end of the text for version 2.
    empty = feeds + 1 - pieces
    at_ends = types.int64(start == stop or data[start] == 0x0A) + types.int64(start < stop and data[stop - 1] == 0x0A)
    row[7], row[8], row[9], row[10] = feeds + 1, pieces + at_ends, dashes, dots
    row[11] = repeated + (empty if empty > 1 else 0)
    row[12] = repeated + (at_ends if at_ends > 1 else 0)
    row[13] = repeated_code_points


@helper
def _read_paragraph(data: Any, start: int, stop: int) -> tuple[int, int, int]:
    """Return the position of the next two line feeds, a hash of the bytes before them, and their code points."""
    at, code_points, mixed = start, -1, _ADD
    while True:
        line_stop, mixed_line, of_line = read_line(data, at, stop)
        mixed = (mixed ^ mixed_line) * _MIX
        code_points += of_line + 1
        if line_stop == stop or (line_stop + 1 < stop and data[line_stop + 1] == 0x0A):
            return line_stop, mixed, code_points
        at = line_stop + 1


@helper
def _count_web_paragraphs(data: Any, start: int, stop: int, table: Any, slots: int, row: Any) -> None:
    """Make the counts ``WEB_PARAGRAPH_COUNTS``."""
    paragraphs = unique = total = unique_code_points = boilerplate = empty = 0
    has_lorem_ipsum = False
    at = start
    while True:
        paragraph = at
        at, mixed, code_points = _read_paragraph(data, paragraph, stop)
        paragraphs += 1
        total += code_points
        if at == paragraph:
            unique += empty == 0
            empty += 1
        else:
            found = find_boilerplate(data, paragraph, at)
            boilerplate += found == A_PHRASE
            has_lorem_ipsum |= found == LOREM_IPSUM
            # Only the last paragraph can end in a line feed, so that no other is equal to it.
            is_new = data[at - 1] == 0x0A or not earlier_line(data, start, stop, paragraph, at, mixed, table, slots, 2)
            unique += is_new
            unique_code_points += code_points if is_new else 0
        if at == stop:
            break
        at += 2
    row[0], row[1], row[2], row[3] = paragraphs, unique, total, unique_code_points
    row[4] = paragraphs if has_lorem_ipsum else boilerplate


@helper
def count_web(data: Any, start: int, stop: int, classes: Any, features: int, table: Any, row: Any) -> Any:
    """Make the web counts in ``row``; return the table, larger if this text has more lines than any before."""
    slots = piece_slots(data, start, stop)
    if len(table) < slots:
        table = np.empty(slots, dtype=np.uint32)
    twice = np.empty(web_bytes(stop - start, features), dtype=np.uint8)
    count_web_within(data, start, stop, classes, features, table[:slots], twice, row)
    return table


@helper
def web_bytes(length: int, features: int) -> int:
    """Return the bytes that `count_web_within` needs for a text of ``length`` bytes: a bit for each."""
    return (length >> 3) + 1 if features & COUNT_DOLMA_LINES else 0


@helper
def count_web_within(
    data: Any, start: int, stop: int, classes: Any, features: int, table: Any, twice: Any, row: Any
) -> None:
    """Count like `count_web`, with a table of `piece_slots` slots and `web_bytes` bytes, which are overwritten."""
    if features & (COUNT_WEB_LINES | COUNT_DOLMA_LINES):
        table[:] = 0
        twice[:] = 0
        _count_web_lines(data, start, stop, classes, features, table, len(table), twice, row)
    if features & COUNT_WEB_PARAGRAPHS:
        table[:] = 0
        _count_web_paragraphs(data, start, stop, table, len(table), row[14:])


_FIRST = COUNTS.index(WEB_LINE_COUNTS[0])


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_web_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns from `counts.WEB_LINE_COUNTS` on."""
    classes = (byte_classes, page_of, pages)
    table = np.empty(0, dtype=np.uint32)
    for row in range(len(counts)):
        table = count_web(data, offsets[row], offsets[row + 1], classes, features, table, counts[row, _FIRST:])


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

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counts of words, symbols, lines and paragraphs as DCLM defines them, and its metrics.

Lines and paragraphs are stripped, and empty ones are ignored. Distinct ones are held in a table of positions in the text, 4 bytes
each and at most half full; two bits for each byte of the text mark the ends of such pieces, and those whose first occurrence
has been counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.metrics.counts import (
    COUNT_DCLM_REPEATS,
    COUNT_DCLM_TEXT,
    COUNT_UNICODE_GRAMS,
    COUNTS,
    DCLM_REPEAT_COUNTS,
    DCLM_TEXT_COUNTS,
    REPEATED_GRAMS,
    TOP_GRAMS,
    UNICODE_GRAM_COUNTS,
)
from curator_df.kernels.metrics.lines.line_counts import piece_slots
from curator_df.kernels.metrics.metric import Metric
from curator_df.kernels.metrics.ngrams.unicode_grams import (
    ROOM_WORDS,
    count_unicode_grams,
    first_slot,
    hash_of,
    new_room,
)
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN, stop_word_bit
from curator_df.kernels.text.byte_search import are_same
from curator_df.kernels.text.unicode_words import class_at
from curator_df.kernels.text.word_break import WHITE, WORD_START

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


@inlined
def _is_stop_word(data: Any, start: int, length: int) -> bool:
    """Return whether the word is a stop word, case-insensitive. No other character has one of their letters as its lower case."""
    return stop_word_bit(data, start, length, 0x20) != 0


@inlined
def _is_separator(byte: int) -> bool:
    # fastText: space, \t, \n, \v, \f, \r and NUL.
    return byte == 0x20 or 0x09 <= byte <= 0x0D or byte == 0


@helper
def _count_words(data: Any, start: int, stop: int, classes: Any, row: Any) -> None:
    """Count fastText's words that begin with a letter or a digit, and stop words between white space."""
    words = stop_words = 0
    at = word = start
    is_between = True
    while at < stop:
        if 0x20 < data[at] < 0x80 and not is_between:
            at += 1
            continue
        flags, width = class_at(data, at, stop, classes)
        if _is_separator(data[at]):
            is_between = True
        elif is_between:
            words += (flags & WORD_START) != 0
            is_between = False
        if flags & WHITE:
            stop_words += 2 <= at - word <= 4 and _is_stop_word(data, word, at - word)
            word = at + width
        at += width
    stop_words += 2 <= stop - word <= 4 and _is_stop_word(data, word, stop - word)
    row[0], row[2] = words, stop_words


@inlined
def _are_dots(data: Any, at: int, stop: int, step: int) -> bool:
    """Return whether there are three dots here: next to each other (step 1), or with spaces between (step 2)."""
    if at + 2 * step >= stop or data[at] != 0x2E or data[at + step] != 0x2E or data[at + 2 * step] != 0x2E:
        return False
    return step == 1 or (data[at + 1] == 0x20 and data[at + 3] == 0x20)


@inlined
def _is_ellipsis(data: Any, at: int, stop: int) -> bool:
    # U+2026
    return at + 2 < stop and data[at] == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == 0xA6


@helper
def _symbols(data: Any, start: int, stop: int) -> int:
    """Return the number of ``#``, ``...``, ``. . .`` and U+2026, each counted separately without overlaps."""
    symbols, after_dots, after_spaced = 0, start, start
    for at in range(start, stop):
        byte = data[at]
        if byte not in (0x23, 0x2E, 0xE2):
            continue
        symbols += byte == 0x23 or _is_ellipsis(data, at, stop)
        if at >= after_dots and _are_dots(data, at, stop, 1):
            symbols += 1
            after_dots = at + 3
        if at >= after_spaced and _are_dots(data, at, stop, 2):
            symbols += 1
            after_spaced = at + 5
    return symbols


@helper
def _next_piece(data: Any, at: int, stop: int, classes: Any, feeds: int) -> tuple[int, int, int]:
    """Return the stripped bounds of the piece that starts here, and the start of the next one."""
    last = at
    while last < stop:
        if data[last] == 0x0A and (feeds == 1 or (last + 1 < stop and data[last + 1] == 0x0A)):
            break
        last += 1
    first, following = at, last + feeds
    while first < last:
        flags, width = class_at(data, first, last, classes)
        if not flags & WHITE:
            break
        first += width
    while last > first:
        before = last - 1
        while before > first and before > last - 4 and data[before] & 0xC0 == 0x80:
            before -= 1
        if not class_at(data, before, last, classes)[0] & WHITE:
            break
        last = before
    return first, last, following


@helper
def _count_lines(data: Any, start: int, stop: int, classes: Any, row: Any) -> None:
    """Count lines, those that begin with a bullet (U+25CF, U+2022, ``*``, ``-``), and those that end in an ellipsis."""
    lines = bullets = ellipses = 0
    at = start
    while at <= stop:
        first, last, at = _next_piece(data, at, stop, classes, 1)
        if first < last:
            lines += 1
            bullets += data[first] == 0x2A or data[first] == 0x2D
            if first + 2 < last and data[first] == 0xE2:
                bullets += (data[first + 1] == 0x97 and data[first + 2] == 0x8F) or (
                    data[first + 1] == 0x80 and data[first + 2] == 0xA2
                )
            ellipses += last - first >= 3 and (
                _is_ellipsis(data, last - 3, last)
                or _are_dots(data, last - 3, last, 1)
                or (last - first >= 5 and _are_dots(data, last - 5, last, 2))
            )
    row[3], row[4], row[5] = lines, bullets, ellipses


@helper
def count_dclm_text(data: Any, start: int, stop: int, classes: Any, row: Any) -> None:
    """Make the counts ``DCLM_TEXT_COUNTS`` of the text ``data[start:stop]`` in ``row``."""
    _count_words(data, start, stop, classes, row)
    row[1] = _symbols(data, start, stop)
    _count_lines(data, start, stop, classes, row)


@inlined
def _is_marked(marks: Any, place: int) -> bool:
    return (marks[place >> 3] >> (place & 7)) & 1 != 0


@inlined
def _mark(marks: Any, place: int) -> None:
    marks[place >> 3] |= np.uint8(1 << (place & 7))


@helper
def _earlier_piece(data: Any, start: int, stop: int, piece: tuple[int, int, int], table: Any, ends: Any) -> int:
    """Return the offset in the text of an earlier equal piece; otherwise record this one, and return -1."""
    first, last, slots = piece
    size = last - first
    slot = first_slot(hash_of(data, first, last), slots)
    while table[slot]:
        place = types.int64(table[slot]) - 1
        # A piece cannot end before another one that begins with the same bytes: it would have line feeds where this one has none.
        is_as_long = start + place + size <= stop and _is_marked(ends, place + size - 1)
        if is_as_long and are_same(data, start + place, data, first, size):
            return place
        slot += 1
        if slot == slots:
            slot = 0
    table[slot] = first - start + 1
    _mark(ends, last - 1 - start)
    return -1


@helper
def _count_pieces(
    data: Any, start: int, stop: int, classes: Any, feeds: int, table: Any, marks: Any
) -> tuple[int, int, int, int]:
    """Return the number of pieces, the code points of all, and both numbers for pieces that occur more than once."""
    table[:] = 0
    marks[:] = 0
    slots, half = len(table), len(marks) >> 1
    ends, counted = marks[:half], marks[half:]
    pieces = repeated = characters = repeated_characters = 0
    at = start
    while at <= stop:
        first, last, at = _next_piece(data, at, stop, classes, feeds)
        if first == last:
            continue
        length = 0
        for byte in data[first:last]:
            length += byte & 0xC0 != 0x80
        pieces += 1
        characters += length
        place = _earlier_piece(data, start, stop, (first, last, slots), table, ends)
        if place >= 0:
            times = 1 if _is_marked(counted, place) else 2
            _mark(counted, place)
            repeated += times
            repeated_characters += times * length
    return pieces, characters, repeated, repeated_characters


@helper
def count_dclm_repeats(data: Any, start: int, stop: int, classes: Any, table: Any, row: Any) -> Any:
    """Make the counts ``DCLM_REPEAT_COUNTS`` in ``row``; return the table, larger if this text needs a larger one."""
    slots = piece_slots(data, start, stop)
    if len(table) < slots:
        table = np.empty(slots, dtype=np.uint32)
    marks = np.empty(mark_bytes(stop - start), dtype=np.uint8)
    count_repeats_within(data, start, stop, classes, table[:slots], marks, row)
    return table


@helper
def mark_bytes(length: int) -> int:
    """Return the bytes that `count_repeats_within` needs for a text of ``length`` bytes: two bits for each."""
    return 2 * ((length >> 3) + 1)


@helper
def count_repeats_within(data: Any, start: int, stop: int, classes: Any, table: Any, marks: Any, row: Any) -> None:
    """Count as `count_dclm_repeats` does, with a table of `piece_slots` slots and `mark_bytes` bytes: both overwritten."""
    _, row[1], row[0], row[2] = _count_pieces(data, start, stop, classes, 1, table, marks)
    row[3], row[5], row[4], row[6] = _count_pieces(data, start, stop, classes, 2, table, marks)


_TEXT = COUNTS.index(DCLM_TEXT_COUNTS[0])
_REPEATS = COUNTS.index(DCLM_REPEAT_COUNTS[0])
_GRAMS = COUNTS.index(UNICODE_GRAM_COUNTS[0])
_STOP = _GRAMS + len(UNICODE_GRAM_COUNTS)


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_dclm_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns of DCLM, from `counts.DCLM_TEXT_COUNTS` on.

    The classes are those of `word_break`.
    """
    classes = (byte_classes, page_of, pages)
    table = np.empty(0, dtype=np.uint32)
    room = new_room(ROOM_WORDS if features & COUNT_UNICODE_GRAMS else 0)
    for row in range(len(counts)):
        start, stop = offsets[row], offsets[row + 1]
        if features & COUNT_DCLM_TEXT:
            count_dclm_text(data, start, stop, classes, counts[row, _TEXT:_REPEATS])
        if features & COUNT_DCLM_REPEATS:
            table = count_dclm_repeats(data, start, stop, classes, table, counts[row, _REPEATS:_GRAMS])
        if features & COUNT_UNICODE_GRAMS:
            count_unicode_grams(data, start, stop, classes, room, counts[row, _GRAMS:_STOP])

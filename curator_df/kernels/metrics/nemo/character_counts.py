# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counts of characters, URLs and words as NeMo Curator and dolma define them: one scan, in constant memory.

See `measure` for the
function to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.metrics.counts import CHARACTER_COUNTS, COUNTS, LONGEST_COUNTED_WORD
from curator_df.kernels.metrics.nemo.character_classes import (
    ALPHABETIC,
    ALPHANUMERIC,
    DIGIT,
    NOTABLE,
    PARENTHESIS,
    URL,
    WHITE,
)
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN, code_point, stop_word_bit
from curator_df.kernels.text.code_points import SPACE

_FIRST, _STOP = COUNTS.index(CHARACTER_COUNTS[0]), COUNTS.index(CHARACTER_COUNTS[-1]) + 1
(
    _WHITE,
    _PARENTHESES,
    _ALPHABETIC,
    _WORD_CHARACTERS,
    _LONGEST,
    _ALPHABETIC_WORDS,
    _STOP_WORDS,
    _NEMO_SYMBOL_WORDS,
    _DOLMA_SYMBOL_WORDS,
    _MIDDLE_LENGTHS,
    _MIDDLE_WORDS,
    _LINES,
    _HAS_XML_HEADER,
    _HAS_CURLY_BRACKET,
    _HAS_JAVASCRIPT,
    _HAS_LOREM_IPSUM,
) = range(4, len(CHARACTER_COUNTS))
# NeMo regards these as an ellipsis if they are a whole word: nemo_curator 0.9.0, utils/constants.py, ellipsis_marks.
_MARKS = tuple(np.frombuffer(mark.encode(), dtype=np.uint8) for mark in ("...", "\u2026", "-\xbb"))
_BRACKETED = tuple(np.frombuffer(mark.encode(), dtype=np.uint8) for mark in ("[...]", "(...)", "[\u2026]"))
_XML_HEADER, _JAVASCRIPT, _LOREM_IPSUM = (
    np.frombuffer(phrase, dtype=np.uint8) for phrase in (b"<?xml version=", b"javascript", b"lorem ipsum")
)
XML_HEADER_CHARACTERS = 100
"""Number of characters in which NeMo looks for an XML header: nemo_curator 0.9.0, filters/code.py, XMLHeaderFilter."""


@helper
def _is_phrase(data: Any, at: int, start: int, stop: int, letters: Any, in_any_case: bool) -> bool:
    """Return whether these lower-case letters are at this position."""
    if at < start or at + len(letters) > stop:
        return False
    for place in range(len(letters)):
        byte = data[at + place]
        if in_any_case and 0x41 <= byte <= 0x5A:
            byte |= 0x20
        if byte != letters[place]:
            return False
    return True


@helper
def _is_at(data: Any, at: int, stop: int, letters: Any) -> bool:
    if stop - at != len(letters):
        return False
    for place in range(len(letters)):  # noqa: SIM110 (numba)
        if data[at + place] != letters[place]:
            return False
    return True


@helper
def _is_ellipsis_mark(data: Any, at: int, stop: int) -> bool:
    if not 3 <= stop - at <= 5:
        return False
    return (
        _is_at(data, at, stop, _MARKS[0])
        or _is_at(data, at, stop, _MARKS[1])
        or _is_at(data, at, stop, _MARKS[2])
        or _is_at(data, at, stop, _BRACKETED[0])
        or _is_at(data, at, stop, _BRACKETED[1])
        or _is_at(data, at, stop, _BRACKETED[2])
    )


@helper
def _url_stop(data: Any, at: int, stop: int, byte_classes: Any) -> int:
    """Return the end of the URL that may start at this ``h``, or ``at``."""
    if at + 8 > stop or data[at + 1] != 0x74 or data[at + 2] != 0x74 or data[at + 3] != 0x70:
        return at
    place = at + 4 + (data[at + 4] == 0x73)
    if place + 3 >= stop or data[place] != 0x3A or data[place + 1] != 0x2F or data[place + 2] != 0x2F:
        return at
    end = place + 3
    while end < stop and byte_classes[data[end]] & URL:
        end += 1
    return end if end > place + 3 else at


@helper
def _middle_lengths(lengths: Any, words: int, longest: int) -> int:
    """Return the sum of the lengths of the two middle words (twice the middle word's); clear the tally of lengths."""
    lower, upper, seen, middle = (words - 1) // 2, words // 2, 0, 0
    for length in range(min(longest, LONGEST_COUNTED_WORD) + 1):
        before, seen = seen, seen + lengths[length]
        middle += length * (before <= lower < seen) + length * (before <= upper < seen)
        lengths[length] = 0
    return middle


@inlined
def _count_word(
    data: Any, start: int, stop: int, length: int, of_word: int, hash_runs: int, is_marked: bool, lengths: Any, row: Any
) -> None:
    row[_WORD_CHARACTERS] += length
    row[_LONGEST] = max(row[_LONGEST], length)
    row[_MIDDLE_WORDS] += 1
    lengths[min(length, LONGEST_COUNTED_WORD)] += 1
    row[_ALPHABETIC_WORDS] += (of_word & ALPHABETIC) != 0
    row[_DOLMA_SYMBOL_WORDS] += is_marked
    if 2 <= stop - start <= 4:
        row[_STOP_WORDS] += stop_word_bit(data, start, stop - start, 0) != 0
    if 2 * hash_runs > length or (not of_word & ALPHABETIC and _is_ellipsis_mark(data, start, stop)):
        row[_NEMO_SYMBOL_WORDS] += 1


@helper
def _look_for_phrases(data: Any, at: int, start: int, stop: int, characters: int, row: Any) -> None:
    """Look for the phrase that a notable character may be part of; ``characters`` is the number of characters before it."""
    byte = data[at] | 0x20
    if byte == 0x3C and characters + len(_XML_HEADER) <= XML_HEADER_CHARACTERS:
        row[_HAS_XML_HEADER] |= _is_phrase(data, at, start, stop, _XML_HEADER, False)
    elif byte == 0x6A:
        row[_HAS_JAVASCRIPT] |= _is_phrase(data, at, start, stop, _JAVASCRIPT, True)
    elif byte == 0x6D:
        row[_HAS_LOREM_IPSUM] |= _is_phrase(data, at - 4, start, stop, _LOREM_IPSUM, True)


@helper
def count_characters(data: Any, start: int, stop: int, classes: Any, lengths: Any, row: Any) -> None:
    """Count a text into ``row``, whose columns are all 0, as is the tally of lengths before and after."""
    byte_classes, page_of, pages = classes
    characters = alphabetic = alphanumeric = digits = white = url = 0
    length = of_word = hash_runs = word_start = 0
    is_marked = is_hash = False
    at = url_end = start
    while at < stop:
        byte, width = data[at], 1
        flags = types.int64(byte_classes[byte])
        if byte >= 0x80:
            code, width = code_point(data, at, stop)
            flags = types.int64(pages[page_of[code >> 8], code & 255])
        alphanumeric += (flags & ALPHANUMERIC) != 0
        white += (flags & WHITE) != 0
        if flags & SPACE:
            row[_LINES] += byte == 0x0A
            if length:
                _count_word(data, word_start, at, length, of_word, hash_runs, is_marked, lengths, row)
            length = of_word = hash_runs = 0
            is_marked = is_hash = False
        else:
            word_start = at if length == 0 else word_start
            length += 1
            of_word |= flags
            alphabetic += (flags & ALPHABETIC) != 0
            digits += (flags & DIGIT) != 0
            if flags & PARENTHESIS:
                row[_PARENTHESES] += 1
                row[_HAS_CURLY_BRACKET] |= byte == 0x7B
            if flags & NOTABLE:
                if byte == 0x68 and at >= url_end:
                    url_end = _url_stop(data, at, stop, byte_classes)
                    url += url_end - at
                elif byte == 0x23 or byte >= 0x80:
                    hash_runs += (byte == 0x23) & (not is_hash)
                    is_marked = True
                else:
                    _look_for_phrases(data, at, start, stop, characters, row)
            is_hash = byte == 0x23
        characters += 1
        at += width
    if length:
        _count_word(data, word_start, stop, length, of_word, hash_runs, is_marked, lengths, row)
    row[0], row[1], row[2], row[3] = characters, characters - alphanumeric, digits, url
    row[_WHITE], row[_ALPHABETIC] = white, alphabetic
    row[_MIDDLE_LENGTHS] = _middle_lengths(lengths, row[_MIDDLE_WORDS], row[_LONGEST])
    row[_MIDDLE_WORDS] = 2 if row[_MIDDLE_WORDS] else 0
    row[_LINES] += 1


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_characters_of_span(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,  # noqa: ARG001 - passes take the same arguments
    counts: Any,
) -> None:
    """Count each text of a span into its row of ``counts``: the columns of `counts.CHARACTER_COUNTS`."""
    classes = (byte_classes, page_of, pages)
    lengths = np.zeros(LONGEST_COUNTED_WORD + 1, dtype=np.int64)
    for row in range(len(counts)):
        columns = counts[row, _FIRST:_STOP]
        columns[:] = 0
        count_characters(data, offsets[row], offsets[row + 1], classes, lengths, columns)

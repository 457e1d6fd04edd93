# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counts of characters, URLs and words as NeMo Curator and dolma look at them: one scan, in constant memory.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. See `measure` for the
function to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from curator_df.kernels.character_classes import (
    ALPHABETIC,
    ALPHANUMERIC,
    DIGIT,
    NOTABLE,
    PARENTHESIS,
    URL,
    WHITE,
)
from curator_df.kernels.code_points import SPACE
from curator_df.kernels.counts import CHARACTER_COUNTS, COUNTS, LONGEST_COUNTED_WORD
from curator_df.kernels.word_counts import COUNTS_TYPE, SPAN, code_point, stop_word_bit

_FIRST = COUNTS.index(CHARACTER_COUNTS[0])
_ELLIPSIS = 0x2026
# What NeMo takes for an ellipsis where it is a whole word: nemo_curator 0.9.0, utils/constants.py, ellipsis_marks.
_MARKS = tuple(np.frombuffer(mark.encode(), dtype=np.uint8) for mark in ("...", "\u2026", "-\xbb"))
_BRACKETED = tuple(np.frombuffer(mark.encode(), dtype=np.uint8) for mark in ("[...]", "(...)", "[\u2026]"))


@njit(nogil=True)
def _is_at(data: Any, at: int, stop: int, letters: Any) -> bool:
    if stop - at != len(letters):
        return False
    for place in range(len(letters)):  # noqa: SIM110 (numba)
        if data[at + place] != letters[place]:
            return False
    return True


@njit(nogil=True)
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


@njit(nogil=True)
def _url_stop(data: Any, at: int, stop: int, byte_classes: Any) -> int:
    """Return where the URL that may start at this ``h`` ends, or ``at``."""
    if at + 8 > stop or data[at + 1] != 0x74 or data[at + 2] != 0x74 or data[at + 3] != 0x70:
        return at
    place = at + 4 + (data[at + 4] == 0x73)
    if place + 3 >= stop or data[place] != 0x3A or data[place + 1] != 0x2F or data[place + 2] != 0x2F:
        return at
    end = place + 3
    while end < stop and byte_classes[data[end]] & URL:
        end += 1
    return end if end > place + 3 else at


@njit(nogil=True)
def _middle_lengths(lengths: Any, words: int, longest: int) -> int:
    """Return the lengths of the two middle words, added up (of the middle word twice); clear the tally of lengths."""
    lower, upper, seen, middle = (words - 1) // 2, words // 2, 0, 0
    for length in range(min(longest, LONGEST_COUNTED_WORD) + 1):
        before, seen = seen, seen + lengths[length]
        middle += length * ((before <= lower < seen) + (before <= upper < seen))
        lengths[length] = 0
    return middle


@njit(nogil=True)
def _count_text(
    data: Any, start: int, stop: int, byte_classes: Any, page_of: Any, pages: Any, lengths: Any, row: Any
) -> None:
    characters = alphabetic = alphanumeric = digits = white = parentheses = url = 0
    words = letters = longest = alphabetic_words = stop_words = symbol_words = marked_words = 0
    length = of_word = hash_runs = word_start = 0
    is_marked = is_hash = False
    at = url_end = start
    while at <= stop:
        flags, width = SPACE, 1
        if at < stop:
            flags = types.int64(byte_classes[data[at]])
            characters += 1
        if at < stop and data[at] >= 0x80:
            code, width = code_point(data, at, stop)
            flags = types.int64(pages[page_of[code >> 8], code & 255])
        if flags & SPACE:
            if at < stop:
                white += (flags & WHITE) != 0
                alphanumeric += (flags & ALPHANUMERIC) != 0
            if length:
                words += 1
                letters += length
                longest = max(longest, length)
                lengths[min(length, LONGEST_COUNTED_WORD)] += 1
                alphabetic_words += (of_word & ALPHABETIC) != 0
                marked_words += is_marked
                size = at - word_start
                if 2 <= size <= 4:
                    stop_words += stop_word_bit(data, word_start, size) != 0
                if 2 * hash_runs > length or (not of_word & ALPHABETIC and _is_ellipsis_mark(data, word_start, at)):
                    symbol_words += 1
                length = of_word = hash_runs = 0
                is_marked = is_hash = False
            at += width
            continue
        if length == 0:
            word_start = at
        length += 1
        of_word |= flags
        alphabetic += (flags & ALPHABETIC) != 0
        alphanumeric += (flags & ALPHANUMERIC) != 0
        digits += (flags & DIGIT) != 0
        white += (flags & WHITE) != 0
        parentheses += (flags & PARENTHESIS) != 0
        if flags & NOTABLE:
            if data[at] == 0x68:
                if at >= url_end:
                    end = _url_stop(data, at, stop, byte_classes)
                    url += end - at
                    url_end = max(end, url_end)
            else:
                hash_runs += (data[at] == 0x23) & (not is_hash)
                is_marked = True
        is_hash = data[at] == 0x23
        at += width
    row[0], row[1], row[2], row[3], row[4] = characters, characters - alphanumeric, digits, url, white
    row[5], row[6], row[7], row[8], row[9] = parentheses, alphabetic, letters, longest, alphabetic_words
    row[10], row[11], row[12] = stop_words, symbol_words, marked_words
    row[13], row[14] = _middle_lengths(lengths, words, longest), 2 * (words > 0)


@njit(types.void(*SPAN, types.int64, COUNTS_TYPE), nogil=True, cache=True)
def count_characters_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns of `counts.CHARACTER_COUNTS`."""
    lengths = np.zeros(LONGEST_COUNTED_WORD + 1, dtype=np.int64)
    for row in range(len(counts)):
        _count_text(
            data, offsets[row], offsets[row + 1], byte_classes, page_of, pages, lengths, counts[row, _FIRST:]
        )

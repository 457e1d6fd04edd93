# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled splitting of words by Unicode's rules (UAX #29, Unicode 16.0.0), as uniseg 0.10.1 applies them.

Exact for the words that begin with a letter or a digit, which are those that are counted. The text between them is split
more coarsely or more finely: the rules for line ends, spaces and flags (WB3 to WB3b, WB3d, WB15, WB16) join nothing to
such a word.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, types
from curator_df.kernels.metrics.words.word_counts import code_point
from curator_df.kernels.text.word_break import KIND, KINDS, PICTOGRAPH

(
    _,
    _ALETTER,
    _HEBREW_LETTER,
    _NUMERIC,
    _KATAKANA,
    _EXTEND_NUM_LET,
    _MID_LETTER,
    _MID_NUM,
    _MID_NUM_LET,
    _SINGLE_QUOTE,
    _DOUBLE_QUOTE,
    _EXTEND,
    _FORMAT,
    _JOINER,
) = (1 << number for number in range(len(KINDS)))
_LETTER = _ALETTER | _HEBREW_LETTER
_WORDS = _LETTER | _NUMERIC
_SKIPPED = _EXTEND | _FORMAT | _JOINER
_IN_LETTERS = _MID_LETTER | _MID_NUM_LET | _SINGLE_QUOTE
_IN_NUMBERS = _MID_NUM | _MID_NUM_LET | _SINGLE_QUOTE


@inlined
def class_at(data: Any, at: int, stop: int, classes: Any) -> tuple[int, int]:
    """Return the class in a table (here that of `word_break`) of the character that starts here, and its length in bytes."""
    byte_classes, page_of, pages = classes
    if data[at] < 0x80:
        return types.int64(byte_classes[data[at]]), 1
    code, width = code_point(data, at, stop)
    return types.int64(pages[page_of[code >> 8], code & 255]), width


@helper
def _next_kind(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the bit of the kind of the next character that WB4 does not skip; 0 at the end."""
    while at < stop:
        flags, width = class_at(data, at, stop, classes)
        kind = 1 << (flags & KIND)
        if not kind & _SKIPPED:
            return kind
        at += width
    return 0


@inlined
def _follows(before: int, last: int, kind: int) -> bool:
    """Return whether a character continues the word, given the characters before it; ``before`` precedes ``last``."""
    if last & (_LETTER | _NUMERIC):  # WB5, WB7a, WB8, WB9, WB10, WB13a
        is_quote = (last & _HEBREW_LETTER) != 0 and (kind & _SINGLE_QUOTE) != 0
        return (kind & (_LETTER | _NUMERIC | _EXTEND_NUM_LET)) != 0 or is_quote
    if last & _KATAKANA:  # WB13, WB13a
        return (kind & (_KATAKANA | _EXTEND_NUM_LET)) != 0
    if last & _EXTEND_NUM_LET:  # WB13a, WB13b
        return (kind & (_LETTER | _NUMERIC | _KATAKANA | _EXTEND_NUM_LET)) != 0
    if kind & _LETTER and before & _LETTER and last & _IN_LETTERS:  # WB7
        return True
    if kind & _HEBREW_LETTER and before & _HEBREW_LETTER and last & _DOUBLE_QUOTE:  # WB7c
        return True
    return (kind & _NUMERIC) != 0 and (before & _NUMERIC) != 0 and (last & _IN_NUMBERS) != 0  # WB11


@inlined
def _wanted_after(last: int, kind: int) -> int:
    """Return the kinds of which one must come next for a character to continue the word: WB6, WB7b, WB12."""
    if last & _LETTER and kind & _IN_LETTERS:
        return _LETTER
    if last & _HEBREW_LETTER and kind & _DOUBLE_QUOTE:
        return _HEBREW_LETTER
    return _NUMERIC if last & _NUMERIC and kind & _IN_NUMBERS else 0


@helper
def after_spaces(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the position after ASCII characters that join nothing, except the last one before a character that may join it."""
    here, end = np.uint64(at), np.uint64(stop)
    while here + np.uint64(1) < end and data[here + np.uint64(1)] < 0x80 and data[here] < 0x80:
        if classes[0][data[here]] & KIND:
            break
        here += np.uint64(1)
    return types.int64(here)


@inlined
def unicode_word_stop(data: Any, at: int, stop: int, classes: Any) -> tuple[int, int]:
    """Return the end of the word that starts here, and its code points; the text ends at ``stop``, after ``at``."""
    flags, width = class_at(data, at, stop, classes)
    before, last, code_points = 0, 1 << (flags & KIND), 1
    is_joined = last == _JOINER
    if last & _SKIPPED:
        last = 0
    at += width
    while at < stop:
        if last & _WORDS:  # WB5, WB8, WB9 and WB10, the short way
            here, run = np.uint64(at), 0
            while here < np.uint64(stop) and data[here] < 0x80:
                number = types.int64(classes[0][data[here]]) & KIND
                if not 1 << number & _WORDS:
                    break
                run = number
                here += np.uint64(1)
            if run:
                last, is_joined = 1 << run, False
                code_points += types.int64(here) - at
                at = types.int64(here)
                continue
        flags, width = class_at(data, at, stop, classes)
        kind = 1 << (flags & KIND)
        if kind & _SKIPPED:  # WB4
            is_joined = kind == _JOINER
        else:
            if not (_follows(before, last, kind) or (is_joined and flags & PICTOGRAPH)):  # WB3c
                wanted = _wanted_after(last, kind)
                if not wanted or not _next_kind(data, at + width, stop, classes) & wanted:
                    break
            before, last, is_joined = last, kind, False
        code_points += 1
        at += width
    return at, code_points

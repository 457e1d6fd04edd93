# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled matchers of prefixes, suffixes, separators and listed phrases, for splitting English words into tokens.

Each function returns the number of bytes that a rule matches at a position in ``data``, or 0. Positions are those of code
points; nothing outside ``start`` and ``stop`` is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, types
from curator_df.kernels.english_tokens.rules import (
    ALPHA,
    BEFORE_DOT,
    FIRST_PAGE,
    FIRST_PHRASE,
    FIRST_SLOT,
    INFIX,
    IS_TAIL,
    KIND_WORD,
    LONGEST,
    LOWER,
    PAGES_OF,
    PHRASE_WORDS,
    PREFIX,
    QUOTE,
    SLOTS,
    SUFFIX,
    TAIL,
    UPPER,
)
from curator_df.kernels.metrics.words.word_counts import code_point

_LONGEST_TAIL = 6
"""Maximum number of code points; the longest at present has five."""
_U: Any = np.uint64
_BASIS, _PRIME, _32 = _U(0xCBF29CE484222325), _U(0x100000001B3), _U(32)
_DOT, _PLUS, _DOLLAR, _MINUS, _COMMA, _TILDE = 0x2E, 0x2B, 0x24, 0x2D, 0x2C, 0x7E


@helper
def _wide_class_at(data: Any, at: int, stop: int, classes: Any) -> tuple[int, int]:
    code, width = code_point(data, at, stop)
    return types.int64(classes[FIRST_PAGE + (types.int64(classes[PAGES_OF + (code >> 8)]) << 8) + (code & 255)]), width


@inlined
def class_at(data: Any, at: int, stop: int, classes: Any) -> tuple[int, int]:
    """Return the classes of the character that starts here, and its length in bytes."""
    byte = data[at]
    if byte < 0x80:
        return types.int64(classes[byte]), 1
    return _wide_class_at(data, at, stop, classes)


@helper
def before(data: Any, at: int, start: int) -> int:
    """Return the start of the character before this position."""
    least = max(start, at - 4)
    at -= 1
    while at > least and data[at] & 0xC0 == 0x80:
        at -= 1
    return at


@helper
def _is_digit(data: Any, at: int, start: int, stop: int) -> bool:
    return start <= at < stop and 0x30 <= data[at] <= 0x39


@helper
def _is(data: Any, at: int, stop: int, first: int, second: int, third: int) -> bool:
    return at + 3 <= stop and data[at] == first and data[at + 1] == second and data[at + 2] == third


@inlined
def may_be_phrase(data: Any, start: int, stop: int, phrases: Any) -> bool:
    """Return whether a phrase has this length, first byte and last byte."""
    length = stop - start
    if length > LONGEST or length <= 0:
        return False
    first, last = types.int64(data[start]) & 63, types.int64(data[stop - 1]) & 63
    return (phrases[first << 6 | last] >> types.uint32(length)) & types.uint32(1) != 0


@helper
def look_up(data: Any, start: int, stop: int, phrases: Any) -> int:
    """Return the position of the description of the phrase with these bytes, or -1, if `may_be_phrase`."""
    length = stop - start
    found = _BASIS
    for at in range(start, stop):
        found = (found ^ _U(data[at])) * _PRIME
    slot = types.int64((found ^ found >> _32) & _U(SLOTS - 1))
    while phrases[FIRST_SLOT + slot]:
        row = FIRST_PHRASE + PHRASE_WORDS * (types.int64(phrases[FIRST_SLOT + slot]) - 1)
        if phrases[row + KIND_WORD] & types.uint32(255) == length:
            same = 0
            while same < length and phrase_byte(phrases, row, same) == data[start + same]:
                same += 1
            if same == length:
                return row
        slot = (slot + 1) & (SLOTS - 1)
    return -1


@inlined
def phrase_byte(phrases: Any, row: int, number: int) -> int:
    """Return a byte of a phrase."""
    return types.uint8(phrases[row + (number >> 2)] >> types.uint32(8 * (number & 3)))


@inlined
def is_of_kind(phrases: Any, row: int, kind: int) -> bool:
    """Return whether the phrase described here is of a kind."""
    return phrases[row + KIND_WORD] >> types.uint32(8) & types.uint32(kind) != 0


@inlined
def find_phrase(data: Any, start: int, stop: int, phrases: Any, kind: int) -> int:
    """Return the position of the description of the phrase with these bytes, if it is of a kind, or -1."""
    row = -1
    if may_be_phrase(data, start, stop, phrases):
        row = look_up(data, start, stop, phrases)
        if row >= 0 and not is_of_kind(phrases, row, kind):
            row = -1
    return row


@helper
def _dots(data: Any, at: int, stop: int) -> int:
    end = at
    while end < stop and data[end] == _DOT:
        end += 1
    return end - at


@helper
def prefix_length(data: Any, start: int, stop: int, classes: Any) -> int:
    """Return the number of bytes to cut off at the beginning of a word."""
    byte = data[start]
    if byte == _DOT:
        dots = _dots(data, start, stop)
        return dots if dots > 1 else 0
    if byte == _PLUS:
        return 0 if _is_digit(data, start + 1, start, stop) else 1
    # A$, C$ and US$.
    if byte in (0x41, 0x43) and start + 1 < stop and data[start + 1] == _DOLLAR:
        return 2
    if byte == 0x55 and _is(data, start, stop, 0x55, 0x53, _DOLLAR):
        return 3
    flags, width = class_at(data, start, stop, classes)
    return width if flags & PREFIX else 0


@helper
def suffix_length(data: Any, start: int, stop: int, classes: Any, phrases: Any) -> int:
    """Return the number of bytes to cut off at the end of a word: the maximum over all rules that apply."""
    if start >= stop:
        return 0
    last = before(data, stop, start)
    byte = data[last]
    if byte == _DOT:
        first = last
        while first > start and data[first - 1] == _DOT:
            first -= 1
        dots = stop - first
        return dots if dots > 1 else types.int64(_is_full_stop(data, start, last, classes))
    flags, _ = class_at(data, last, stop, classes)
    length = 0
    if flags & SUFFIX:
        length = stop - last
        # U+2026 is E2 80 A6; two of them go together.
        if (
            _is(data, last, stop, 0xE2, 0x80, 0xA6)
            and last - 3 >= start
            and _is(data, last - 3, stop, 0xE2, 0x80, 0xA6)
        ):
            length = 6
    elif byte in (0x73, 0x53) and last > start:
        quote = before(data, last, start)
        # U+2019 is E2 80 99.
        if data[quote] == 0x27 or _is(data, quote, last, 0xE2, 0x80, 0x99):
            length = stop - quote
    if flags & TAIL:
        length = max(length, _tail_length(data, start, stop, phrases))
    return length


@helper
def _is_full_stop(data: Any, start: int, dot: int, classes: Any) -> bool:
    """Return whether the dot that ends a word is cut off, depending on the characters before it."""
    if dot == start:
        return False
    at = before(data, dot, start)
    flags, _ = class_at(data, at, dot, classes)
    if flags & BEFORE_DOT:
        return True
    if at == start:
        return False
    other = before(data, at, start)
    if flags & UPPER and class_at(data, other, at, classes)[0] & UPPER:
        return True
    # A temperature: U+00B0 is C2 B0.
    is_degree = at - other == 2 and data[other] == 0xC2 and data[other + 1] == 0xB0
    return is_degree and (data[at] == 0x46 or data[at] == 0x43 or data[at] == 0x4B)


@helper
def _tail_length(data: Any, start: int, stop: int, phrases: Any) -> int:
    """Return the bytes of the unit or currency after the last digit."""
    at = stop
    for _ in range(_LONGEST_TAIL):
        at = before(data, at, start)
        if at <= start or _is_digit(data, at, start, stop):
            return 0
        if _is_digit(data, at - 1, start, stop):
            return stop - at if find_phrase(data, at, stop, phrases, IS_TAIL) >= 0 else 0
    return 0


@helper
def infix_length(data: Any, at: int, start: int, stop: int, classes: Any) -> int:
    """Return the bytes of the token that begins here inside a word."""
    byte = data[at]
    if byte == _DOT:
        dots = _dots(data, at, stop)
        if dots > 1:
            return dots
    flags, width = class_at(data, at, stop, classes)
    if flags & INFIX:
        return width
    if at == start or at + width >= stop:
        return 0
    return _joint_length(data, at, width, start, stop, classes)


@helper
def _joint_length(data: Any, at: int, width: int, start: int, stop: int, classes: Any) -> int:
    """Return the bytes of a token that depends on the characters on both sides of it."""
    byte, place = data[at], before(data, at, start)
    left, _ = class_at(data, place, at, classes)
    right, _ = class_at(data, at + width, stop, classes)
    follows_digit, precedes_digit = _is_digit(data, place, start, stop), _is_digit(data, at + 1, start, stop)
    if byte == _DOT:
        return types.int64(left & (LOWER | QUOTE) != 0 and right & (UPPER | QUOTE) != 0)
    if byte == _COMMA:
        return types.int64(left & ALPHA != 0 and right & ALPHA != 0)
    if byte in (_PLUS, _MINUS, 0x2A, 0x5E) and follows_digit and (precedes_digit or data[at + 1] == _MINUS):
        return 1
    if not (left & ALPHA or follows_digit):
        return 0
    if byte in (_MINUS, _TILDE, 0xE2):
        return _hyphen_length(data, at, stop, classes)
    # One of :<>=/
    return types.int64(byte in (0x3A, 0x2F, 0x3C, 0x3D, 0x3E) and right & ALPHA != 0)


@helper
def _hyphen_length(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the bytes of one to three hyphens, a dash, two em dashes or a tilde with a letter after."""
    if data[at] == 0xE2:
        # U+2013 and U+2014 are E2 80 93 and E2 80 94.
        is_em = _is(data, at, stop, 0xE2, 0x80, 0x94)
        if not is_em and not _is(data, at, stop, 0xE2, 0x80, 0x93):
            return 0
        width, most = 3, 2 if is_em else 1
    else:
        width, most = 1, 3 if data[at] == _MINUS else 1
    end = at + width
    for _ in range(most):
        if end >= stop:
            return 0
        if class_at(data, end, stop, classes)[0] & ALPHA:
            return end - at
        for byte in range(width):
            if end + byte >= stop or data[end + byte] != data[at + byte]:
                return 0
        end += width
    return 0

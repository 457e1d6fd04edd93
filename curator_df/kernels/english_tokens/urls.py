# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled test for a word that is one URL, with or without a scheme. Part of `token_pass`.

A URL is a scheme and ``://``, anything and ``@``, a host, a port and a path, of which only the host is required. A host is
names separated by dots, the last of which has 2 to 63 lower-case letters; or four numbers that are a public address. The time
is linear in the word.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import helper, types
from curator_df.kernels.english_tokens.affixes import class_at
from curator_df.kernels.english_tokens.rules import DECIMAL, HOST, LOWER, WORD

_LONGEST_NAME, _LONGEST_LAST_NAME, _PORT_DIGITS = 64, 63, 5
_DOT, _MINUS, _PLUS, _COLON, _AT = 0x2E, 0x2D, 0x2B, 0x3A, 0x40


@helper
def is_url(data: Any, start: int, stop: int, classes: Any) -> bool:
    """Return whether the characters between two positions are a URL."""
    if _is_host_and_rest(data, start, stop, classes):
        return True
    at, characters, can_be_scheme = start, 0, True
    while at < stop:
        byte = data[at]
        if byte == _AT and at > start and _is_host_and_rest(data, at + 1, stop, classes):
            return True
        ends_scheme = byte == _COLON and can_be_scheme and characters > 1
        has_slashes = at + 2 < stop and data[at + 1] == 0x2F and data[at + 2] == 0x2F
        if ends_scheme and has_slashes and _is_host_and_rest(data, at + 3, stop, classes):
            return True
        flags, width = class_at(data, at, stop, classes)
        can_be_scheme = can_be_scheme and (flags & WORD != 0 or byte in (_PLUS, _MINUS, _DOT))
        at += width
        characters += 1
    return False


@helper
def _is_host_and_rest(data: Any, at: int, stop: int, classes: Any) -> bool:
    host_stop = _named_host_stop(data, at, stop, classes)
    if host_stop > 0 and _is_rest(data, host_stop, stop, classes):
        return True
    host_stop = _address_stop(data, at, stop, classes)
    return host_stop > 0 and _is_rest(data, host_stop, stop, classes)


@helper
def _is_rest(data: Any, at: int, stop: int, classes: Any) -> bool:
    """Return whether the rest is a port and a path, or empty."""
    if at < stop and data[at] == _COLON:
        digits = 0
        at += 1
        while at < stop:
            flags, width = class_at(data, at, stop, classes)
            if not flags & DECIMAL:
                break
            digits += 1
            at += width
        if digits < 2 or digits > _PORT_DIGITS:
            return False
    return at >= stop or data[at] in (0x2F, 0x3F, 0x23)


@helper
def _named_host_stop(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the end of a host of names, or 0."""
    names, characters, is_lower, is_name = 0, 0, True, True
    first_is_host = last_is_host = False
    while at < stop:
        flags, width = class_at(data, at, stop, classes)
        byte = data[at]
        if byte == _DOT:
            if not (is_name and first_is_host and last_is_host and 0 < characters <= _LONGEST_NAME):
                return 0
            names += 1
            characters, is_lower, is_name = 0, True, True
            at += 1
            continue
        if byte in (_COLON, 0x2F, 0x3F, 0x23):
            break
        last_is_host = flags & HOST != 0
        is_lower = is_lower and flags & LOWER != 0
        is_name = is_name and (last_is_host or byte in (_MINUS, 0x5F))
        if not (is_lower or is_name):
            return 0
        if characters == 0:
            first_is_host = last_is_host
        characters += 1
        at += width
    return at if names and is_lower and 2 <= characters <= _LONGEST_LAST_NAME else 0


@helper
def _address_stop(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the end of a public address of four numbers, or 0."""
    first = second = 0
    for number in range(4):
        value, digits = 0, 0
        while at < stop and digits < 4:
            flags, width = class_at(data, at, stop, classes)
            if not flags & DECIMAL:
                break
            value = value * 10 + (types.int64(data[at]) - 0x30 if width == 1 else _other_digit(value, digits))
            digits += 1
            at += width
        if digits == 0 or digits > 3 or not _is_number(value, digits, number):
            return 0
        first = value if number == 0 else first
        second = value if number == 1 else second
        if number < 3:
            if at >= stop or data[at] != _DOT:
                return 0
            at += 1
    is_private = first in (10, 127) or (first == 169 and second == 254) or (first == 192 and second == 168)
    return 0 if is_private or (first == 172 and 16 <= second <= 31) else at


@helper
def _other_digit(value: int, digits: int) -> int:
    """Return the value of a digit of another script: one that is accepted where any digit is allowed, and nowhere else."""
    if digits == 0:
        return 1000
    return 5 if value == 1 else 9


@helper
def _is_number(value: int, digits: int, number: int) -> bool:
    """Return whether a number with this many digits may be this number of an address: 1-223, 0-255 twice, 0-filled, 1-254."""
    if number in (1, 2):
        return digits < 3 or 100 <= value <= 255
    has_no_zero = value >= (1 if digits == 1 else 10 if digits == 2 else 100)
    return has_no_zero and value <= (223 if number == 0 else 254)

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Eight bytes of text at a time, as one little-endian number: which are plain, which are blank, and their lower case.

A mark is the top bit of a byte. Plain is ASCII from the space on, and the line feed; all else (other scripts, other white
space, control characters) is left to code that looks at one code point at a time. Functions that other compiled functions
call; nothing is compiled when this module is imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_U: Any = np.uint64
_TOPS, _ONES = _U(0x8080808080808080), _U(0x0101010101010101)
_SPACES, _LINE_FEEDS, _TO_SPACE = _ONES * _U(0x20), _ONES * _U(0x0A), _U(0x20 - 0x0A)
_UPPER_FIRST, _UPPER_STOP = _ONES * _U(0x41), _ONES * _U(0x5B)
_1, _2, _3, _7, _8 = (_U(number) for number in (1, 2, 3, 7, 8))


@njit(nogil=True, inline="always")
def word_at(data: Any, at: int) -> int:
    """Return the eight bytes from ``at`` (uint64) on as a number."""
    # LLVM makes one load of these eight.
    return (
        _U(data[at])
        | _U(data[at + _1]) << _8
        | _U(data[at + _2]) << _U(16)
        | _U(data[at + _3]) << _U(24)
        | _U(data[at + _U(4)]) << _U(32)
        | _U(data[at + _U(5)]) << _U(40)
        | _U(data[at + _U(6)]) << _U(48)
        | _U(data[at + _7]) << _U(56)
    )


@njit(nogil=True, inline="always")
def put_word(data: Any, at: int, word: int) -> None:
    """Write eight bytes from ``at`` (uint64) on."""
    data[at] = word
    data[at + _1] = word >> _8
    data[at + _2] = word >> _U(16)
    data[at + _3] = word >> _U(24)
    data[at + _U(4)] = word >> _U(32)
    data[at + _U(5)] = word >> _U(40)
    data[at + _U(6)] = word >> _U(48)
    data[at + _7] = word >> _U(56)


@njit(nogil=True, inline="always")
def line_feed_marks(word: int) -> int:
    """Mark line feeds. Where a byte is not ASCII, the mark of that byte means nothing."""
    return ~(((word ^ _LINE_FEEDS) | _TOPS) - _ONES) & _TOPS


@njit(nogil=True, inline="always")
def space_marks(word: int) -> int:
    """Mark spaces. Where a byte is not ASCII, the mark of that byte means nothing."""
    return ~(((word ^ _SPACES) | _TOPS) - _ONES) & _TOPS


@njit(nogil=True, inline="always")
def other_marks(word: int, line_feeds: int) -> int:
    """Mark what is not plain."""
    return (word & _TOPS) | (~((word | _TOPS) - _SPACES) & _TOPS & ~line_feeds)


@njit(nogil=True, inline="always")
def lower_word(word: int) -> int:
    """Return the lower case of eight bytes of ASCII; other bytes may become anything."""
    tops = word | _TOPS
    return word + (((tops - _UPPER_FIRST) & ~(tops - _UPPER_STOP) & _TOPS) >> _2)


@njit(nogil=True, inline="always")
def spaced_word(word: int, line_feeds: int) -> int:
    """Return the word with spaces for line feeds, which are marked."""
    return word + (line_feeds >> _7) * _TO_SPACE


@njit(nogil=True, inline="always")
def first_mark(marks: int) -> int:
    """Return the number of bytes before the first that is marked; 8 without any (uint64)."""
    if marks == _U(0):
        return _8
    # The whole bytes below the lowest mark are counted by a product, which sums their lowest bits in its top byte.
    below = ((marks & (~marks + _1)) >> _7) - _1
    return ((below & _ONES) * _ONES) >> _U(56)

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled second look at tokens: exceptions that the rules cut apart are put back. Part of `token_pass`.

Of sequences of tokens that an exception is cut into, the longest ones count, of equal ones the first; one is left as it is
where a better one covers its first or last token, whatever becomes of that one. White space between tokens is passed over
when they are compared and forbids that they are joined. All of that is spaCy's, and can be decided from the tokens near by.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from curator_df.kernels.english_rules import IS_RESTORED, LONGEST
from curator_df.kernels.token_affixes import find_phrase
from curator_df.kernels.token_split import MOST_TOKENS, NOTHING, ONE_SPACE, OTHER_SPACE

_PENDING = 32


@njit(nogil=True, inline="always")
def _is_end(byte: int) -> bool:
    return byte in (NOTHING, ONE_SPACE, OTHER_SPACE)


@njit(nogil=True)
def _matches(tokens: Any, at: int, stop: int, phrases: Any, letters: Any, found: Any) -> int:
    """Find the exceptions that begin with the token here; return how many.

    Each is a row of ``found``: its number, its tokens, the place after its last one, and whether all stand side by side.
    """
    total, length, count, pattern, joined = 0, 0, 0, types.uint32(0), 1
    while at < stop and count < MOST_TOKENS:
        if not _is_end(tokens[at]):
            if length == LONGEST:
                break
            letters[length] = tokens[at]
            length += 1
            at += 1
            continue
        count += 1
        pattern |= types.uint32(1) << types.uint32(length - 1)
        if count > 1:
            number = find_phrase(letters, 0, length, phrases)
            if number >= 0 and phrases[6][number] == pattern:
                found[total, 0], found[total, 1], found[total, 2], found[total, 3] = number, count, at + 1, joined
                total += 1
        if tokens[at] == OTHER_SPACE:
            break
        joined &= tokens[at] == NOTHING
        at += 1
    return total


@njit(nogil=True)
def _token_before(tokens: Any, at: int, start: int) -> int:
    """Return where the token before the one here starts, or -1."""
    if at <= start:
        return -1
    at -= 1
    while at > start and not _is_end(tokens[at - 1]):
        at -= 1
    return at


@njit(nogil=True)
def _has_better(
    tokens: Any, start: int, stop: int, at: int, count: int, phrases: Any, letters: Any, found: Any
) -> bool:
    """Say whether a longer sequence, or an earlier one as long, covers the first or last of ``count`` tokens from here."""
    place = at
    for shift in range(MOST_TOKENS):
        if shift:
            place = _token_before(tokens, place, start)
            if place < 0:
                break
        for match in range(_matches(tokens, place, stop, phrases, letters, found)):
            length = found[match, 1]
            if length > shift and (length > count or (length == count and shift)):
                return True
    place = at
    for _ in range(1, count):
        while not _is_end(tokens[place]):
            place += 1
        place += 1
        for match in range(_matches(tokens, place, stop, phrases, letters, found)):
            if found[match, 1] > count:
                return True
    return False


@njit(nogil=True)
def _put_back(tokens: Any, at: int, end: int, number: int, phrases: Any) -> None:
    """Write the tokens of an exception over those between two places, and white space where they need less."""
    starts, text, cuts = phrases[2], phrases[3], phrases[5][number]
    last = tokens[end - 1]
    for byte in range(starts[number + 1] - starts[number]):
        tokens[at] = text[starts[number] + byte]
        at += 1
        if (cuts >> types.uint32(byte)) & types.uint32(1) and at < end:
            tokens[at] = NOTHING
            at += 1
    tokens[at:end] = NOTHING
    tokens[end - 1] = last


@njit(nogil=True)
def restore_exceptions(tokens: Any, start: int, stop: int, phrases: Any) -> None:
    """Put back the exceptions in the tokens of a text.

    What is put back is written when no token that is compared later can be near it.
    """
    letters = np.empty(LONGEST, dtype=np.uint8)
    found, others = np.empty((MOST_TOKENS, 4), dtype=np.int64), np.empty((MOST_TOKENS, 4), dtype=np.int64)
    pending = np.empty((_PENDING, 4), dtype=np.int64)
    first = last = index = 0
    at = start
    while at < stop:
        for match in range(_matches(tokens, at, stop, phrases, letters, found)):
            number, count, end, joined = found[match]
            if not joined or not phrases[4][number] & IS_RESTORED:
                continue
            if not _has_better(tokens, start, stop, at, count, phrases, letters, others):
                row = last % _PENDING
                pending[row, 0], pending[row, 1], pending[row, 2], pending[row, 3] = at, end, number, index + count
                last += 1
        while not _is_end(tokens[at]):
            at += 1
        at += 1
        index += 1
        while first < last and pending[first % _PENDING, 3] + MOST_TOKENS <= index:
            row = first % _PENDING
            _put_back(tokens, pending[row, 0], pending[row, 1], pending[row, 2], phrases)
            first += 1
    while first < last:
        row = first % _PENDING
        _put_back(tokens, pending[row, 0], pending[row, 1], pending[row, 2], phrases)
        first += 1

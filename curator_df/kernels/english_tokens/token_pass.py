# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled pass that writes the tokens of texts with white space between them.

Exceptions that the splitting has cut are put back together. See `spans` for the function to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.english_tokens.affixes import find_phrase, is_of_kind, phrase_byte
from curator_df.kernels.english_tokens.rules import (
    CUTS_WORD,
    IS_EXCEPTION,
    IS_RESTORED,
    KIND_WORD,
    LONGEST,
    PATTERN_WORD,
)
from curator_df.kernels.english_tokens.split import MOST_TOKENS, NOTHING, ONE_SPACE, OTHER_SPACE, split_text
from curator_df.kernels.metrics.words.word_counts import BYTES
from curator_df.kernels.text.unowned_array import borrowed

_PENDING = 128
"""Number of pending sequences, more than those that begin with any of `MOST_TOKENS` tokens: at most ten with each."""
_NEAR = 32
"""Number of nearby tokens, more than those whose longest sequences are compared: the tokens before and after `MOST_TOKENS`."""


@inlined
def _is_end(byte: int) -> bool:
    return byte in (NOTHING, ONE_SPACE, OTHER_SPACE)


@helper
def _matches(tokens: Any, at: int, stop: int, phrases: Any, letters: Any, found: Any) -> int:
    """Find the exceptions that begin with the token here; return their number.

    Each is a row of ``found``: its description, its number of tokens, the position after its last one, and whether all are
    adjacent. The last row has most tokens.
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
            row = find_phrase(letters, 0, length, phrases, IS_EXCEPTION)
            if row >= 0 and phrases[row + PATTERN_WORD] == pattern:
                found[total, 0], found[total, 1], found[total, 2], found[total, 3] = row, count, at + 1, joined
                total += 1
        if tokens[at] == OTHER_SPACE:
            break
        joined &= tokens[at] == NOTHING
        at += 1
    return total


@helper
def _has_better(longest: Any, index: int, count: int) -> bool:
    """Return whether a longer (or equally long earlier) sequence covers the first or last of ``count`` tokens from this one on.

    ``longest`` has the number of tokens of the longest sequence that begins with each token.
    """
    for shift in range(min(MOST_TOKENS, index + 1)):
        length = longest[(index - shift) % _NEAR]
        if length > shift and (length > count or (length == count and shift)):
            return True
    later = index + 1
    while later < index + count and longest[later % _NEAR] <= count:
        later += 1
    return later < index + count


@helper
def _put_back(tokens: Any, at: int, end: int, row: int, phrases: Any) -> None:
    """Write the tokens of an exception over those between two positions, and white space if they are shorter."""
    cuts, length = phrases[row + CUTS_WORD], types.int64(phrases[row + KIND_WORD]) & 255
    last = tokens[end - 1]
    for byte in range(length):
        tokens[at] = phrase_byte(phrases, row, byte)
        at += 1
        if (cuts >> types.uint32(byte)) & types.uint32(1) and at < end:
            tokens[at] = NOTHING
            at += 1
    tokens[at:end] = NOTHING
    tokens[end - 1] = last


@helper
def restore_exceptions(tokens: Any, start: int, stop: int, phrases: Any) -> None:
    """Restore the exceptions in the tokens of a text.

    An exception is decided, and written, when all tokens with which it is compared have been read.
    """
    letters, found = np.empty(LONGEST, dtype=np.uint8), np.empty((MOST_TOKENS, 4), dtype=np.int64)
    longest, pending = np.zeros(_NEAR, dtype=np.int64), np.empty((_PENDING, 5), dtype=np.int64)
    first = last = index = 0
    at = start
    while at < stop or first < last:
        longest[index % _NEAR] = 0
        if at < stop:
            total = _matches(tokens, at, stop, phrases, letters, found)
            longest[index % _NEAR] = found[total - 1, 1] if total else 0
            for match in range(total):
                if found[match, 3] and is_of_kind(phrases, found[match, 0], IS_RESTORED):
                    pending[last % _PENDING, :3] = found[match, :3]
                    pending[last % _PENDING, 3], pending[last % _PENDING, 4] = at, index
                    last += 1
            while not _is_end(tokens[at]):
                at += 1
            at += 1
        index += 1
        while first < last and pending[first % _PENDING, 4] + MOST_TOKENS <= index:
            row, count, end, place, number = pending[first % _PENDING]
            if not _has_better(longest, number, count):
                _put_back(tokens, place, end, row, phrases)
            first += 1


_OFFSETS = types.Array(types.int64, 1, "C", readonly=True)


@kernel(types.void(BYTES, _OFFSETS, types.uint16[::1], types.uint32[::1], types.uint8[::1], types.int64[::1]))
def split_span(data: Any, offsets: Any, classes: Any, phrases: Any, out: Any, stops: Any) -> None:
    """Write the tokens of each text into ``out``, which has twice the size of the texts; ``stops`` are its offsets.

    Each token is followed by one byte of white space or more. ``classes`` and ``phrases`` are those of `rules` and `spans`.
    """
    texts, rules, found, tokens = borrowed(data), borrowed(classes), borrowed(phrases), borrowed(out)
    to = 0
    stops[0] = 0
    for row in range(len(offsets) - 1):
        first = to
        to, may_restore = split_text(texts, offsets[row], offsets[row + 1], rules, found, tokens, to)
        if may_restore:
            restore_exceptions(tokens, first, to, found)
        stops[row + 1] = to

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counts of the n-grams of short texts, which is what most texts are: what `gram_counts` does, three times faster.

The words of a text are laid side by side, joined by nothing, and n-grams are compared there. Two things make it fast. A
sequence of n words that occurs twice begins with n - 1 words that occur twice, so that each n looks only at what the one
before it left. And repeated sequences of 5 words and more share their first 16 bytes, or are shorter than that; only such
places are looked at for n = 5 to 10 (measured on prose: 11.4 -> 3.5 ns a byte).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types

from curator_df.kernels.code_points import SPACE
from curator_df.kernels.counts import REPEATED_GRAMS
from curator_df.kernels.word_counts import code_point

SHORT_TEXT_BYTES = 1 << 15
"""Longest short text. What is held for one takes 0.9 MB, whatever the text."""

_WORDS = SHORT_TEXT_BYTES // 2 + 1
_PREFIX = 16
_SHORTEST = REPEATED_GRAMS[0]

_U: Any = np.uint64
_BASE, _INVERSE = _U(0x9E3779B97F4A7C15), _U(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
_MIX = _U(0xD6E8FEB86659FD93)
_0, _1, _4, _8, _32 = (_U(number) for number in (0, 1, 4, 8, 32))


class ShortText(NamedTuple):
    """The words of one text, and room to count n-grams in."""

    sums: Any
    """uint64: before each word and at the end, the sum of ``byte[k] * BASE**k`` of the bytes of all words before."""
    inverses: Any
    """uint64: ``BASE**-k`` where a word starts, which makes the sum over an n-gram its hash."""
    ends: Any
    """uint64: where each word starts in ``joined``, and the end of the last."""
    letters: Any
    """int64: code points of all words before each word."""
    places: Any
    """int64: where each word starts in the data."""
    joined: Any
    """uint8: the bytes of all words."""
    table: Any
    """uint16: numbers of words, from 1, by hash."""
    tallies: Any
    """uint16: occurrences of an n-gram, by the number of the word that it first starts at."""
    marks: Any
    """uint8: 1 for a word at which an n-gram starts that occurs twice."""


@njit(nogil=True)
def new_short_text() -> ShortText:
    """Return room for the longest short text."""
    return ShortText(
        np.empty(_WORDS + 1, dtype=np.uint64),
        np.empty(_WORDS + 1, dtype=np.uint64),
        np.empty(_WORDS + 1, dtype=np.uint64),
        np.empty(_WORDS + 1, dtype=np.int64),
        np.empty(_WORDS, dtype=np.int64),
        np.empty(SHORT_TEXT_BYTES + _PREFIX, dtype=np.uint8),
        np.empty(4 * _WORDS, dtype=np.uint16),
        np.empty(_WORDS, dtype=np.uint16),
        np.empty(_WORDS, dtype=np.uint8),
    )


@njit(nogil=True)
def read_words(data: Any, start: int, stop: int, classes: Any, text: ShortText) -> int:
    """Read the words of a text; return how many there are."""
    byte_classes, page_of, pages = classes
    # Unsigned, so that numba leaves out its test for negative indices.
    here, end, word, joined = _U(start), _U(stop), _0, _0
    total, power, inverse, letters = _0, _1, _1, 0
    is_inside = False
    while here < end:
        byte = data[here]
        flags, width = byte_classes[byte], 1
        if byte >= 0x80:
            code, width = code_point(data, types.int64(here), stop)
            flags = pages[page_of[code >> 8], code & 255]
        if flags & SPACE:
            word += _U(is_inside)
            is_inside = False
            here += _U(width)
            continue
        if not is_inside:
            text.sums[word], text.inverses[word], text.ends[word] = total, inverse, joined
            text.letters[word], text.places[word] = letters, types.int64(here)
            is_inside = True
        letters += 1
        while True:
            text.joined[joined] = data[here]
            total += _U(data[here]) * power
            power *= _BASE
            inverse *= _INVERSE
            joined += _1
            here += _1
            width -= 1
            if width == 0:
                break
    word += _U(is_inside)
    text.sums[word], text.ends[word], text.letters[word] = total, joined, letters
    return types.int64(word)


@njit(nogil=True, inline="always")
def gram_hash(text: ShortText, word: int, n: int) -> int:
    """Return the hash of the n words from this one on."""
    return (text.sums[word + n] - text.sums[word]) * text.inverses[word]


@njit(nogil=True)
def is_same_gram(text: ShortText, one: int, two: int, n: int) -> bool:
    """Say whether the n words from two places on are the same when joined by nothing."""
    first, second, end = text.ends[one], text.ends[two], text.ends[two + n]
    if text.ends[one + n] - first != end - second:
        return False
    while second < end:
        if text.joined[first] != text.joined[second]:
            return False
        first += _1
        second += _1
    return True


@njit(nogil=True)
def has_same_words(text: ShortText, one: int, two: int, n: int) -> bool:
    """Say whether the n words from two places on are as long, one by one."""
    first, second = text.ends[one], text.ends[two]
    for _ in range(n):
        one += _1
        two += _1
        if text.ends[one] - first != text.ends[two] - second:
            return False
    return True


@njit(nogil=True)
def top_gram(text: ShortText, words: int, n: int, is_first: bool) -> tuple[int, int]:
    """Return the occurrences of the most frequent n-gram, of several the first, and its first word; 0 without n words.

    Unless it ``is_first``, only words that are marked are looked at; then those are at which such an n-gram starts twice.
    """
    if words < n:
        text.marks[:words] = 0
        return 0, 0
    slots, step, best, best_word = _4 * _U(words), _U(n), 1, _0
    text.table[: 4 * words] = 0
    if is_first:
        text.marks[:words] = 1
    for word in range(_U(words - n + 1)):
        if not text.marks[word]:
            continue
        text.marks[word] = 0
        found = gram_hash(text, word, step)
        slot = ((found * _MIX) >> _32) * slots >> _32
        while True:
            if not text.table[slot]:
                text.table[slot] = types.uint16(word + _1)
                text.tallies[word] = 1
                break
            held = _U(text.table[slot]) - _1
            is_same = gram_hash(text, held, step) == found and has_same_words(text, held, word, step)
            if is_same and is_same_gram(text, held, word, step):
                text.marks[held] = text.marks[word] = 1
                text.tallies[held] += 1
                count = types.int64(text.tallies[held])
                if count > best or (count == best and held < best_word):
                    best, best_word = count, held
                break
            slot += _1
            if slot == slots:
                slot = _0
    text.marks[words - n + 1 : words] = 0
    return best, types.int64(best_word)


@njit(nogil=True, inline="always")
def _eight(joined: Any, at: int) -> int:
    # LLVM makes one load of these eight.
    return (
        _U(joined[at])
        | _U(joined[at + _1]) << _8
        | _U(joined[at + _U(2)]) << _U(16)
        | _U(joined[at + _U(3)]) << _U(24)
        | _U(joined[at + _U(4)]) << _32
        | _U(joined[at + _U(5)]) << _U(40)
        | _U(joined[at + _U(6)]) << _U(48)
        | _U(joined[at + _U(7)]) << _U(56)
    )


@njit(nogil=True)
def mark_repeated(text: ShortText, words: int) -> bool:
    """Mark every word at which a repeated n-gram of 5 words or more may start; say whether there is one."""
    if words <= _SHORTEST:
        return False
    slots, shortest, has_any = _4 * _U(words), _U(_SHORTEST), False
    text.table[: 4 * words] = 0
    for word in range(_U(words - _SHORTEST + 1)):
        at = text.ends[word]
        text.marks[word] = text.ends[word + shortest] - at < _U(_PREFIX)
        has_any |= text.marks[word] != 0
        first, second = _eight(text.joined, at), _eight(text.joined, at + _8)
        mixed = (first * _MIX ^ (second + _MIX)) * _BASE
        slot = (mixed >> _32) * slots >> _32
        while True:
            if not text.table[slot]:
                text.table[slot] = types.uint16(word + _1)
                break
            held = _U(text.table[slot]) - _1
            place = text.ends[held]
            if first == _eight(text.joined, place) and second == _eight(text.joined, place + _8):
                text.marks[held] = text.marks[word] = 1
                has_any = True
                break
            slot += _1
            if slot == slots:
                slot = _0
    return has_any


@njit(nogil=True)
def repeated_grams(text: ShortText, words: int, n: int) -> int:
    """Return the code points of repeated n-grams: from left to right, and past each one that was there before."""
    if words < n:
        return 0
    slots, step, repeated, next_word = _4 * _U(words), _U(n), 0, _0
    text.table[: 4 * words] = 0
    for word in range(_U(words - n + 1)):
        if word < next_word or not text.marks[word]:
            continue
        found = gram_hash(text, word, step)
        slot = ((found * _MIX) >> _32) * slots >> _32
        while True:
            if not text.table[slot]:
                text.table[slot] = types.uint16(word + _1)
                break
            held = _U(text.table[slot]) - _1
            if gram_hash(text, held, step) == found and is_same_gram(text, held, word, step):
                repeated += text.letters[word + step] - text.letters[word]
                next_word = word + step
                break
            slot += _1
            if slot == slots:
                slot = _0
    return repeated

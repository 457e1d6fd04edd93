# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counts of repeated n-grams of words by Unicode's rules, as DCLM counts them. Part of `dclm_pass`.

Each word gets the number of the first word that is equal to it, so that n-grams are compared by numbers. Held are, for each word,
24 bytes: a table at most half full, that number, the code points before it, and its place, then what its n-gram repeats.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from curator_df.kernels.byte_search import are_same
from curator_df.kernels.counts import REPEATED_GRAMS, TOP_GRAMS
from curator_df.kernels.unicode_words import class_at, unicode_word_stop
from curator_df.kernels.word_break import WORD_START

_U: Any = np.uint64
_MIX, _ADD = _U(0xD6E8FEB86659FD93), _U(0x9E3779B97F4A7C15)
_29, _32 = _U(29), _U(32)


@njit(nogil=True, inline="always")
def mixed_in(total: int, value: int) -> int:
    """Return a hash with a value added to it."""
    total = (total ^ _U(value)) * _MIX
    return total ^ (total >> _29)


@njit(nogil=True, inline="always")
def first_slot(total: int, slots: int) -> int:
    """Return the slot of a table at which to begin to look for a hash."""
    return types.int64(((total ^ (total >> _32)) * _ADD >> _32) * _U(slots) >> _32)


@njit(nogil=True)
def _read_words(data: Any, start: int, stop: int, classes: Any, places: Any, letters: Any) -> tuple[int, int]:
    """Return the words and their code points; fill, unless they are empty, where words start and stop, and the sums."""
    words = total = 0
    at = start
    while at < stop:
        word = at
        at, code_points = unicode_word_stop(data, word, stop, classes)
        if class_at(data, word, stop, classes)[0] & WORD_START:
            if len(letters):
                places[0, words], places[1, words] = word - start, at - start
                letters[words] = total
            words += 1
            total += code_points
    if len(letters):
        letters[words] = total
    return words, total


@njit(nogil=True)
def _number_words(data: Any, start: int, places: Any, table: Any, numbers: Any) -> None:
    """Give each word the number of the first one equal to it."""
    for word in range(len(numbers)):
        begin, size = start + types.int64(places[0, word]), types.int64(places[1, word]) - types.int64(places[0, word])
        total = _ADD
        for at in range(begin, begin + size):
            total = mixed_in(total, data[at])
        slot = first_slot(total, len(table))
        while table[slot]:
            other = types.int64(table[slot]) - 1
            other_size = types.int64(places[1, other]) - types.int64(places[0, other])
            if other_size == size and are_same(data, start + types.int64(places[0, other]), data, begin, size):
                break
            slot += 1
            if slot == len(table):
                slot = 0
        if not table[slot]:
            table[slot] = word + 1
        numbers[word] = table[slot] - 1


@njit(nogil=True)
def _count_grams(n: int, numbers: Any, table: Any, firsts: Any, times: Any) -> None:
    """Note for each n-gram the first one equal to it, and with that one how many they are."""
    table[:] = 0
    for gram in range(len(numbers) - n + 1):
        total = _ADD
        for word in range(gram, gram + n):
            total = mixed_in(total, numbers[word])
        slot = first_slot(total, len(table))
        while table[slot]:
            other, equal = types.int64(table[slot]) - 1, 0
            while equal < n and numbers[other + equal] == numbers[gram + equal]:
                equal += 1
            if equal == n:
                break
            slot += 1
            if slot == len(table):
                slot = 0
        if not table[slot]:
            table[slot] = gram + 1
            times[gram] = 0
        first = types.int64(table[slot]) - 1
        firsts[gram] = first
        times[first] += 1


@njit(nogil=True)
def _top_characters(n: int, grams: int, firsts: Any, times: Any, letters: Any) -> int:
    """Return the code points of the longest of the most frequent n-grams times its occurrences; 0 if none occurs twice."""
    most = longest = 0
    for gram in range(grams):
        if firsts[gram] == gram and times[gram] >= max(most, 2):
            length = types.int64(letters[gram + n]) - types.int64(letters[gram])
            longest = max(longest, length) if times[gram] == most else length
            most = types.int64(times[gram])
    return most * longest


@njit(nogil=True)
def _repeated_characters(n: int, grams: int, firsts: Any, times: Any, letters: Any) -> int:
    """Return the code points of the words that are in an n-gram that occurs twice, no word counted twice."""
    characters = covered = 0
    for gram in range(grams):
        if times[firsts[gram]] > 1:
            characters += types.int64(letters[gram + n]) - types.int64(letters[max(gram, covered)])
            covered = gram + n
    return characters


@njit(nogil=True)
def count_unicode_grams(data: Any, start: int, stop: int, classes: Any, row: Any) -> None:
    """Count what ``UNICODE_GRAM_COUNTS`` name in the text ``data[start:stop]`` into ``row``."""
    row[:] = 0
    nowhere, nothing = np.empty((2, 0), dtype=np.uint32), np.empty(0, dtype=np.uint32)
    words, row[0] = _read_words(data, start, stop, classes, nowhere, nothing)
    if words < TOP_GRAMS[0]:
        return
    places, letters = np.empty((2, words), dtype=np.uint32), np.empty(words + 1, dtype=np.uint32)
    _read_words(data, start, stop, classes, places, letters)
    table, numbers = np.zeros(2 * words, dtype=np.uint32), np.empty(words, dtype=np.uint32)
    _number_words(data, start, places, table, numbers)
    firsts, times = places[0], places[1]
    for column in range(1, len(row)):
        n = column - 1 + TOP_GRAMS[0]
        grams = words - n + 1
        if grams < 2:
            return
        _count_grams(n, numbers, table, firsts, times)
        if n < REPEATED_GRAMS[0]:
            row[column] = _top_characters(n, grams, firsts, times, letters)
        else:
            row[column] = _repeated_characters(n, grams, firsts, times, letters)
        if row[column] == 0:  # A longer n-gram that occurs twice begins with one of these.
            return

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counts of repeated n-grams of words by Unicode's rules, as DCLM counts them. `dclm_counts` uses it.

Each word has the number of the first word equal to it, and each n-gram that of the first equal n-gram. Two n-grams are
equal if the two shorter ones in them are, so that only those are looked up whose shorter ones occur twice. Memory: for each
word, 24 bytes: two such numbers or its position, its frequency, the code points before it, and a table at most half full.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, types
from curator_df.kernels.metrics.counts import REPEATED_GRAMS, TOP_GRAMS
from curator_df.kernels.text.byte_search import are_same
from curator_df.kernels.text.unicode_words import after_spaces, class_at, unicode_word_stop
from curator_df.kernels.text.word_break import WORD_START

_U: Any = np.uint64
_MIX, _ADD = _U(0xD6E8FEB86659FD93), _U(0x9E3779B97F4A7C15)
_1, _8, _29, _32 = _U(1), _U(8), _U(29), _U(32)


ROOM_WORDS = 1 << 14
"""Number of words for which a span has working memory (400 KB); texts that may have more are split twice, to count their
words."""


@inlined
def mixed_in(total: int, value: int) -> int:
    """Return a hash with a value mixed in."""
    total = (total ^ _U(value)) * _MIX
    return total ^ (total >> _29)


@inlined
def first_slot(total: int, slots: int) -> int:
    """Return the first slot of a table to check for a hash."""
    return types.int64(((total ^ (total >> _32)) * _ADD >> _32) * _U(slots) >> _32)


@helper
def hash_of(data: Any, first: int, last: int) -> int:
    """Return a hash of the bytes ``data[first:last]``."""
    at, end = _U(first), _U(last)
    total, eight = _ADD, _U(0)
    while at + _8 <= end:
        for step in range(8):
            eight = eight << _8 | _U(data[at + _U(step)])
        total = mixed_in(total, eight)
        at += _8
    eight = end - _U(first)
    while at < end:
        eight = eight << _8 | _U(data[at])
        at += _1
    return mixed_in(total, eight)


@helper
def room_cells(words: int) -> int:
    """Return the number of 32-bit cells in which ``words`` words are counted."""
    return 6 * words + 4


@helper
def room_within(cells: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return `room_cells` as four arrays with one element more than there are words, and a table."""
    size = len(cells) // 6 + 1
    return (
        cells[:size],
        cells[size : 2 * size],
        cells[2 * size : 3 * size],
        cells[3 * size : 4 * size],
        cells[4 * size :],
    )


@helper
def new_room(words: int) -> tuple[Any, Any, Any, Any, Any]:
    """Return working arrays for ``words`` words."""
    return room_within(np.empty(room_cells(words), dtype=np.uint32))


@helper
def count_unicode_words(data: Any, start: int, stop: int, classes: Any) -> int:
    """Return the number of words of a text that begin with a letter or a digit."""
    words, at = 0, start
    while at < stop:
        at = after_spaces(data, at, stop, classes)
        words += (class_at(data, at, stop, classes)[0] & WORD_START) != 0
        at, _ = unicode_word_stop(data, at, stop, classes)
    return words


@helper
def _read_words(
    data: Any, start: int, stop: int, classes: Any, starts: Any, stops: Any, letters: Any
) -> tuple[int, int]:
    """Record the bounds of words in the text, and the code points before each; return words and code points."""
    words = total = 0
    at = start
    while at < stop:
        word = after_spaces(data, at, stop, classes)
        at, code_points = unicode_word_stop(data, word, stop, classes)
        if class_at(data, word, stop, classes)[0] & WORD_START:
            starts[words], stops[words], letters[words] = word - start, at - start, total
            words += 1
            total += code_points
    letters[words] = total
    return words, total


@helper
def _number_words(data: Any, start: int, words: int, starts: Any, stops: Any, table: Any, numbers: Any) -> None:
    """Give each word the number of the first one equal to it."""
    slots = 2 * words
    table[:slots] = 0
    for word in range(words):
        begin, size = start + types.int64(starts[word]), types.int64(stops[word]) - types.int64(starts[word])
        slot = first_slot(hash_of(data, begin, begin + size), slots)
        while table[slot]:
            other = types.int64(table[slot]) - 1
            place = types.int64(starts[other])
            if types.int64(stops[other]) - place == size and are_same(data, start + place, data, begin, size):
                break
            slot += 1
            if slot == slots:
                slot = 0
        if not table[slot]:
            table[slot] = word + 1
        numbers[word] = table[slot] - 1


@helper
def _number_longer(grams: int, numbers: Any, times: Any, table: Any, longer: Any) -> None:
    """Give each n-gram the number of the first one equal to it, using the numbers of the n-grams that are one word shorter."""
    candidates = 0
    for gram in range(grams):
        candidates += times[numbers[gram]] > 1 and times[numbers[gram + 1]] > 1
    slots = 2 * candidates
    table[:slots] = 0
    for gram in range(grams):
        longer[gram] = gram
        one, two = numbers[gram], numbers[gram + 1]
        if times[one] < 2 or times[two] < 2:
            continue
        slot = first_slot(mixed_in(mixed_in(_ADD, one), two), slots)
        while table[slot]:
            other = types.int64(table[slot]) - 1
            if numbers[other] == one and numbers[other + 1] == two:
                break
            slot += 1
            if slot == slots:
                slot = 0
        if not table[slot]:
            table[slot] = gram + 1
        longer[gram] = table[slot] - 1


@helper
def _count_times(grams: int, numbers: Any, times: Any) -> None:
    times[:grams] = 0
    for gram in range(grams):
        times[numbers[gram]] += 1


@helper
def _top_characters(n: int, grams: int, numbers: Any, times: Any, letters: Any) -> int:
    """Return the code points of the longest of the most frequent n-grams times its occurrences; 0 if none occurs twice."""
    most = longest = 0
    for gram in range(grams):
        if numbers[gram] == gram and times[gram] >= max(most, 2):
            length = types.int64(letters[gram + n]) - types.int64(letters[gram])
            longest = max(longest, length) if times[gram] == most else length
            most = types.int64(times[gram])
    return most * longest


@helper
def _repeated_characters(n: int, grams: int, numbers: Any, times: Any, letters: Any) -> int:
    """Return the code points of the words in n-grams that occur more than once, counting each word once."""
    characters = covered = 0
    for gram in range(grams):
        if times[numbers[gram]] > 1:
            characters += types.int64(letters[gram + n]) - types.int64(letters[max(gram, covered)])
            covered = gram + n
    return characters


@helper
def count_unicode_grams(data: Any, start: int, stop: int, classes: Any, room: Any, row: Any) -> None:
    """Make the counts ``UNICODE_GRAM_COUNTS`` of the text ``data[start:stop]`` in ``row``."""
    row[:] = 0
    if 2 * (stop - start) // 3 >= ROOM_WORDS:  # There are at most two words in three bytes.
        room = new_room(count_unicode_words(data, start, stop, classes))
    count_unicode_grams_within(data, start, stop, classes, room, row)


@helper
def count_unicode_grams_within(data: Any, start: int, stop: int, classes: Any, room: Any, row: Any) -> None:
    """Count like `count_unicode_grams`, with working arrays for the words of the text, into a row of zeros."""
    numbers, longer, times, letters, table = room
    words, row[0] = _read_words(data, start, stop, classes, longer, times, letters)
    _number_words(data, start, words, longer, times, table, numbers)
    _count_times(words, numbers, times)
    for column in range(1, len(row)):
        n = column - 1 + TOP_GRAMS[0]
        grams = words - n + 1
        if grams < 2:
            return
        _number_longer(grams, numbers, times, table, longer)
        numbers, longer = longer, numbers
        _count_times(grams, numbers, times)
        if n < REPEATED_GRAMS[0]:
            row[column] = _top_characters(n, grams, numbers, times, letters)
        else:
            row[column] = _repeated_characters(n, grams, numbers, times, letters)
        if row[column] == 0:  # A longer n-gram that occurs twice begins with one of these.
            return

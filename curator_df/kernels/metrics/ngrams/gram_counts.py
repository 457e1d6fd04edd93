# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counts of n-grams of words: the most frequent one (n = 2 to 4) and the repeated ones (n = 5 to 10).

Distinct n-grams are held in a table of positions in the text, 4 bytes each, and
compared with the text itself. A table is at most half full; with the counts, it takes at most 8 bytes a word:
4 x the text if every word is one letter, 1.9 x prose. Only the table of one n is held.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import borrowing, copied, helper, kernel, types
from curator_df.kernels.metrics.counts import (
    COUNT_FIRST_GRAM,
    COUNTS,
    REPEATED_GRAMS,
    SHORT_TEXT_BYTES,
    TOP_GRAM_COUNTS,
    TOP_GRAMS,
)
from curator_df.kernels.metrics.ngrams.short_grams import (
    choose_repeated,
    choose_repeated_pairs,
    new_short_text,
    read_words,
    repeated_grams,
    top_gram,
)
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN, code_point
from curator_df.kernels.text.code_points import SPACE
from curator_df.kernels.text.word_reading import WINDOW, fill_window, keep_last, new_reading, new_window, word_total

_MIX = np.uint64(0xD6E8FEB86659FD93)
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_TOP_LAST, _FIRST, _LAST = TOP_GRAMS[-1], TOP_GRAMS[0], REPEATED_GRAMS[-1]
_ALL_GRAMS = (COUNT_FIRST_GRAM << (_LAST - _FIRST + 1)) - COUNT_FIRST_GRAM


@helper
def is_space(data: Any, at: int, stop: int, classes: Any) -> bool:
    """Return whether the character here is white space."""
    byte_classes, page_of, pages = classes
    byte = data[at]
    if byte < 0x80:
        return byte_classes[byte] & SPACE != 0
    code, _ = code_point(data, at, stop)
    return pages[page_of[code >> 8], code & 255] & SPACE != 0


@helper
def after_space(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the start of the next word from here on, or ``stop``."""
    byte_classes, page_of, pages = classes
    while at < stop:
        byte, width = data[at], 1
        flags = byte_classes[byte]
        if byte >= 0x80:
            code, width = code_point(data, at, stop)
            flags = pages[page_of[code >> 8], code & 255]
        if not flags & SPACE:
            break
        at += width
    return at


@helper
def _is_same_gram(
    data: Any, at: int, stop: int, classes: Any, places: Any, number: int, n: int, keeps_spaces: bool
) -> bool:
    """Return whether the n words from byte ``at`` on equal the words from ``number`` on of the window.

    Without ``keeps_spaces`` they only have to be equal when joined without spaces.
    """
    words = 1
    for word in range(number, number + n):
        place, word_stop = places[0, word], places[1, word]
        while place < word_stop:
            if at >= stop:
                return False
            if data[at] != data[place]:
                # White space may share its first bytes with the compared character: go back to the start of both.
                while place > places[0, word] and data[at] & 0xC0 == 0x80:
                    at -= 1
                    place -= 1
                if words == n or not is_space(data, at, stop, classes) or (keeps_spaces and place > places[0, word]):
                    return False
                at = after_space(data, at, stop, classes)
                words += 1
                continue
            at += 1
            place += 1
        if keeps_spaces and word < number + n - 1:
            if at >= stop or not is_space(data, at, stop, classes):
                return False
            at = after_space(data, at, stop, classes)
            words += 1
    return words == n and (at >= stop or is_space(data, at, stop, classes))


@copied
def gram_hash(hashes: Any, number: int, n: int) -> int:
    """Return the hash of the n words of the window from this number on."""
    return (hashes[0, number + n] - hashes[0, number]) * hashes[1, number] * _MIX


@helper
def find_slot(
    data: Any,
    start: int,
    stop: int,
    classes: Any,
    table: Any,
    slot: int,
    places: Any,
    number: int,
    n: int,
    keeps_spaces: bool,
) -> int:
    """Return the slot of the n-gram that starts at a word of the window; that word is the first one or a later one."""
    here, gram_stop, slots = places[0, number], places[1, number + n - 1], len(table)
    while True:
        held = types.int64(table[slot])
        if held == 0:
            return slot
        place = start + held - 1
        if data[place] == data[here]:
            at, end = here, place + gram_stop - here
            if end <= stop:
                while at < gram_stop and data[place] == data[at]:
                    place += 1
                    at += 1
            if at == gram_stop and (end == stop or is_space(data, end, stop, classes)):
                return slot
            if _is_same_gram(data, start + held - 1, stop, classes, places, number, n, keeps_spaces):
                return slot
        slot += 1
        if slot == slots:
            slot = 0


@helper
def gram_code_points(data: Any, at: int, stop: int, classes: Any, n: int) -> int:
    """Return the length of n words joined by single spaces."""
    byte_classes, page_of, pages = classes
    letters = n - 1
    for _ in range(n):
        while at < stop:
            byte, width = data[at], 1
            flags = byte_classes[byte]
            if byte >= 0x80:
                code, width = code_point(data, at, stop)
                flags = pages[page_of[code >> 8], code & 255]
            if flags & SPACE:
                break
            letters += 1
            at += width
        at = after_space(data, at, stop, classes)
    return letters


@helper
def _tally(
    data: Any, start: int, stop: int, classes: Any, room: Any, held: int, n: int, half: int, best: int, best_place: int
) -> tuple[int, int]:
    """Count the n-grams of a window whose hash is in this half (any for -1); return the most frequent one so far."""
    hashes, places, table, tallies = room
    slots = len(table)
    for number in range(held - n + 1):
        mixed = gram_hash(hashes, number, n)
        if half >= 0 and types.int64((mixed ^ (mixed >> np.uint64(29))) & np.uint64(1)) != half:
            continue
        slot = types.int64((mixed >> _HALF) * np.uint64(slots) >> _HALF)
        if table[slot]:
            slot = find_slot(data, start, stop, classes, table, slot, places, number, n, True)
        if not table[slot]:
            table[slot] = types.uint32(places[0, number] - start + 1)
            tallies[slot] = 0
        tallies[slot] += 1
        count, place = types.int64(tallies[slot]), types.int64(table[slot])
        if count > best or (count == best and place < best_place):
            best, best_place = count, place
    return best, best_place


@helper
def long_top_gram(
    data: Any, start: int, stop: int, classes: Any, window: Any, table: Any, words: int, n: int
) -> tuple[int, int]:
    """Return the occurrences of the most frequent n-gram (the first of several), and its position; 0 without n words."""
    if words < n:
        return 0, start
    slots, best, best_place = len(table) // 2, 0, 0
    room = (window[0], window[1], table[:slots], table[slots:])
    if words <= WINDOW:
        table[:slots] = 0
        best, best_place = _tally(data, start, stop, classes, room, words, n, -1, best, best_place)
        return best, start + best_place - 1
    # Long texts are counted in two halves of the hashes, so that the two tables need at most as much as one for all hashes.
    for half in range(2):
        table[:slots] = 0
        reading, held = fill_window(data, stop, classes, new_reading(start), window[0], window[1], 0)
        while True:
            best, best_place = _tally(data, start, stop, classes, room, held, n, half, best, best_place)
            if reading[0] >= stop:
                break
            held = keep_last(window[0], window[1], held, held - n + 1)
            reading, held = fill_window(data, stop, classes, reading, window[0], window[1], held)
    return best, start + best_place - 1


@helper
def _repeated_grams(data: Any, start: int, stop: int, classes: Any, window: Any, table: Any, words: int, n: int) -> int:
    """Return the code points of repeated n-grams, scanning left to right and skipping each repeated one."""
    if words < n:
        return 0
    hashes, places = window
    slots = len(table)
    table[:] = 0
    repeated = number = 0
    reading, held = new_reading(start), min(words, WINDOW)
    while True:
        if words > WINDOW:
            reading, held = fill_window(data, stop, classes, reading, hashes, places, held if reading[0] > start else 0)
        while number + n <= held:
            mixed = gram_hash(hashes, number, n)
            slot = types.int64((mixed >> _HALF) * np.uint64(slots) >> _HALF)
            if table[slot]:
                slot = find_slot(data, start, stop, classes, table, slot, places, number, n, False)
            if not table[slot]:
                table[slot] = types.uint32(places[0, number] - start + 1)
                number += 1
            else:
                repeated += places[2, number + n] - places[2, number]
                number += n
        if words <= WINDOW or reading[0] >= stop:
            return repeated
        held = keep_last(hashes, places, held, number)
        number = 0


@helper
def table_slots(words: int) -> int:
    """Return the slots of the table for a long text of ``words`` words."""
    return 8 * words if words <= WINDOW else 2 * words + 16


@borrowing
def count_short_grams(data: Any, start: int, stop: int, classes: Any, features: int, text: Any, row: Any) -> None:
    """Count as `count_grams` does, for a short text, with a `ShortText` that has room for its words."""
    words = read_words(data, start, stop, classes, text)
    if features & (COUNT_FIRST_GRAM << (_TOP_LAST + 1 - _FIRST)) - COUNT_FIRST_GRAM:
        chosen = choose_repeated_pairs(text, words)
        for n in range(_FIRST, _TOP_LAST + 1):
            if features & (COUNT_FIRST_GRAM << (n - _FIRST)):
                best, word, chosen = top_gram(text, words, n, chosen)
                row[n - _FIRST] = best * (text.letters[word + n] - text.letters[word] + n - 1) if best else 0
    if features & _ALL_GRAMS >= COUNT_FIRST_GRAM << (_TOP_LAST + 1 - _FIRST):
        chosen = choose_repeated(text, words)
        for n in range(_TOP_LAST + 1, _LAST + 1):
            if features & (COUNT_FIRST_GRAM << (n - _FIRST)):
                row[n - _FIRST] = repeated_grams(text, words, n, chosen)


@helper
def count_long_grams(
    data: Any, start: int, stop: int, classes: Any, features: int, window: Any, table: Any, words: int, row: Any
) -> None:
    """Count as `count_grams` does, for any text, with a window of its first words and a table of `table_slots` slots."""
    for n in range(_FIRST, _LAST + 1):
        if not features & (COUNT_FIRST_GRAM << (n - _FIRST)):
            continue
        if n <= _TOP_LAST:
            best, place = long_top_gram(data, start, stop, classes, window, table, words, n)
            row[n - _FIRST] = best * gram_code_points(data, place, stop, classes, n)
        else:
            row[n - _FIRST] = _repeated_grams(data, start, stop, classes, window, table, words, n)


@helper
def count_grams(data: Any, start: int, stop: int, classes: Any, features: int, room: Any, table: Any, row: Any) -> Any:
    """Count the n-grams of a text into ``row``, whose columns are ``TOP_GRAM_COUNTS`` and ``REPEATED_GRAM_COUNTS``.

    ``room`` is a `ShortText` and a window. Returns the table, which is larger than the one given if the text is longer
    than any before.
    """
    if not features & _ALL_GRAMS:
        return table
    if stop - start <= SHORT_TEXT_BYTES:
        count_short_grams(data, start, stop, classes, features, room[0], row)
        return table
    window = room[1]
    words = word_total(data, start, stop, classes, window[0], window[1])
    slots = table_slots(words)
    if len(table) < slots:
        table = np.empty(slots, dtype=np.uint32)
    count_long_grams(data, start, stop, classes, features, window, table[:slots], words, row)
    return table


_FIRST_COLUMN = COUNTS.index(TOP_GRAM_COUNTS[0])


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_grams_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns from `counts.TOP_GRAM_COUNTS` on."""
    classes = (byte_classes, page_of, pages)
    room = (new_short_text(), new_window())
    table = np.empty(0, dtype=np.uint32)
    for row in range(len(counts)):
        table = count_grams(
            data, offsets[row], offsets[row + 1], classes, features, room, table, counts[row, _FIRST_COLUMN:]
        )

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counts of the n-grams of short texts, which most texts are: equal to `gram_counts`, but several times faster.

The words of a text are stored contiguously, without separators, and n-grams are compared there. Two things make it fast. A
sequence of n words that occurs twice begins with n - 1 words that occur twice, so that each n considers only the candidates of
the previous one. And repeated sequences of 5 words and more share their first 8, 16 and 24 bytes, as far as their first 5 words
are that long; only such positions are considered for n = 5 to 10.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from curator_df.kernels.compiling.compiled import copied, helper, types
from curator_df.kernels.metrics.counts import REPEATED_GRAMS, SHORT_TEXT_BYTES
from curator_df.kernels.metrics.words.word_counts import code_point
from curator_df.kernels.text.code_points import SPACE
from curator_df.kernels.text.swar import dark_marks, first_bytes, first_mark, put_word, word_at

_WORDS = SHORT_TEXT_BYTES // 2 + 1
_LONGEST_PREFIX = 24
_SHORTEST = REPEATED_GRAMS[0]
_PLACES = 16
"""Number of slots for each prefix: one in 16 prefixes that occur once appears to occur twice, and is checked for nothing."""

_U: Any = np.uint64
_MIX, _ADD = _U(0xD6E8FEB86659FD93), _U(0x9E3779B97F4A7C15)
_0, _1, _4, _8, _16, _24, _32, _LOW = (_U(number) for number in (0, 1, 4, 8, 16, 24, 32, 0xFFFFFFFF))


class ShortText(NamedTuple):
    """Words of one text, and working arrays for counting n-grams."""

    hashes: Any
    """Hash of each word (uint64)."""
    ends: Any
    """Start of each word in ``joined``, and the end of the last (uint64)."""
    letters: Any
    """Code points of all words before each word (int64)."""
    places: Any
    """Start of each word in the data (int64)."""
    joined: Any
    """Bytes of all words (uint8); the bytes after the last word are meaningless."""
    table: Any
    """Numbers of words, from 1, by hash (uint16)."""
    tallies: Any
    """Occurrences of an n-gram, by the number of the word at which it first starts (uint16)."""
    marks: Any
    """Marks (uint8): 1 for a word at which an n-gram starts that occurs twice."""
    chosen: Any
    """Numbers of the words under consideration, in order (uint16)."""
    prefixes: Any
    """Hash of the first bytes from each word on (uint64)."""
    seen: Any
    """Counts (uint8): more than 1 for a slot of two prefixes."""


@helper
def new_short_text() -> ShortText:
    """Return working arrays for the longest short text: 2.4 MB."""
    # Separate arrays, not parts of one as in `short_text_within`: 5% less time for n = 2 to 4, 3% for n = 5 to 10 (English
    # prose).
    return ShortText(
        np.empty(_WORDS, dtype=np.uint64),
        np.empty(_WORDS + _SHORTEST, dtype=np.uint64),
        np.empty(_WORDS + 1, dtype=np.int64),
        np.empty(_WORDS, dtype=np.int64),
        np.empty(SHORT_TEXT_BYTES + _LONGEST_PREFIX, dtype=np.uint8),
        np.empty(4 * _WORDS, dtype=np.uint16),
        np.empty(_WORDS, dtype=np.uint16),
        np.empty(_WORDS, dtype=np.uint8),
        np.empty(_WORDS, dtype=np.uint16),
        np.empty(_WORDS, dtype=np.uint64),
        np.empty(_PLACES * _WORDS, dtype=np.uint8),
    )


@helper
def short_text_cells(words: int, size: int) -> int:
    """Return the number of eight-byte elements that `short_text_within` needs for a text with this many words and bytes."""
    in_bytes = (_PLACES + 1) * words + size + _LONGEST_PREFIX
    return 5 * words + _SHORTEST + 1 + ((6 * words + 3) >> 2) + ((in_bytes + 7) >> 3)


@helper
def short_text_within(cells: Any, words: int, size: int) -> ShortText:
    """Return working arrays for a text with at most this many words and bytes, from `short_text_cells` numbers (uint64)."""
    # Hashes, prefixes, places; ends and letters with one element more than words; then numbers of two bytes and of one.
    ends, letters = 3 * words, 4 * words + _SHORTEST
    pairs = letters + words + 1
    bytes_first = pairs + ((6 * words + 3) >> 2)
    numbers, singles = cells[pairs:bytes_first].view(np.uint16), cells[bytes_first:].view(np.uint8)
    joined = (_PLACES + 1) * words
    return ShortText(
        cells[:words],
        cells[ends:letters],
        cells[letters:pairs].view(np.int64),
        cells[2 * words : ends].view(np.int64),
        singles[joined : joined + size + _LONGEST_PREFIX],
        numbers[: 4 * words],
        numbers[4 * words : 5 * words],
        singles[_PLACES * words : joined],
        numbers[5 * words : 6 * words],
        cells[words : 2 * words],
        singles[: _PLACES * words],
    )


@helper
def read_words(data: Any, start: int, stop: int, classes: Any, text: ShortText) -> int:  # noqa: C901
    """Read the words of a text; return how many there are.

    One function: with the arrays of a tuple among its arguments, a call for each character would take longer than the rest.
    """
    byte_classes, page_of, pages = classes
    # Unsigned, so that numba omits its test for negative indices.
    here, end, word, joined = _U(start), _U(stop), _0, _0
    letters = 0
    is_inside = False
    while here < end:
        if here + _8 <= end:
            eight = word_at(data, here)
            plain = first_mark(dark_marks(eight))
            if plain:
                if not is_inside:
                    text.ends[word], text.letters[word], text.places[word] = joined, letters, types.int64(here)
                    is_inside = True
                put_word(text.joined, joined, eight)
                joined += plain
                letters += types.int64(plain)
                here += plain
                if plain == _8:
                    continue
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
            text.ends[word], text.letters[word], text.places[word] = joined, letters, types.int64(here)
            is_inside = True
        letters += 1
        for _ in range(width):
            text.joined[joined] = data[here]
            joined += _1
            here += _1
    word += _U(is_inside)
    text.ends[word], text.letters[word] = joined, letters
    for number in range(word):
        text.hashes[number] = joined_hash(text, number, 1)
    return types.int64(word)


@copied
def joined_hash(text: ShortText, word: int, n: int) -> int:
    """Return a hash of the n words from this one on, joined without spaces."""
    at, end, mixed = text.ends[word], text.ends[word + _U(n)], _ADD
    while at + _8 < end:
        mixed = (mixed ^ word_at(text.joined, at)) * _MIX
        mixed ^= mixed >> _32
        at += _8
    mixed = (mixed ^ first_bytes(word_at(text.joined, at), end - at)) * _MIX
    return mixed ^ (mixed >> _32)


@copied
def words_hash(text: ShortText, word: int, n: int) -> int:
    """Return a hash of the n words from this one on, one by one."""
    mixed = text.hashes[word]
    for number in range(word + _1, word + _U(n)):
        mixed = (mixed + text.hashes[number]) * _MIX
        mixed ^= mixed >> _32
    return mixed


@helper
def is_same_gram(text: ShortText, one: int, two: int, n: int) -> bool:
    """Return whether the n words from two positions on are equal when joined without spaces."""
    first, second, end = text.ends[one], text.ends[two], text.ends[two + n]
    if text.ends[one + n] - first != end - second:
        return False
    while second + _8 < end:
        if word_at(text.joined, first) != word_at(text.joined, second):
            return False
        first += _8
        second += _8
    rest = end - second
    return first_bytes(word_at(text.joined, first), rest) == first_bytes(word_at(text.joined, second), rest)


@helper
def has_same_words(text: ShortText, one: int, two: int, n: int) -> bool:
    """Return whether the n words from two positions on have equal lengths, one by one."""
    first, second = text.ends[one], text.ends[two]
    for _ in range(n):
        one += _1
        two += _1
        if text.ends[one] - first != text.ends[two] - second:
            return False
    return True


@helper
def choose_all(text: ShortText, words: int) -> int:
    """Choose all words; return their number."""
    for word in range(_U(words)):
        text.chosen[word] = types.uint16(word)
    return words


@helper
def choose_marked(text: ShortText, chosen: int) -> int:
    """Keep only the marked ones of the chosen words; return their number."""
    count = _0
    for number in range(_U(chosen)):
        word = text.chosen[number]
        text.chosen[count] = word
        count += _U(text.marks[word])
    return types.int64(count)


@helper
def with_words_after(text: ShortText, chosen: int, words: int, n: int) -> int:
    """Return the number of chosen words that are the first of n."""
    while chosen and types.int64(text.chosen[chosen - 1]) + n > words:
        chosen -= 1
    return chosen


@helper
def top_gram(text: ShortText, words: int, n: int, chosen: int) -> tuple[int, int, int]:
    """Return the occurrences of the most frequent n-gram (the first of several), and its first word; 0 without n words.

    Only ``chosen`` words are considered. Afterwards they are those at which an n-gram starts that occurs twice; returned last.
    """
    if words < n:
        return 0, 0, 0
    chosen = with_words_after(text, chosen, words, n)
    slots, step, best, best_word = _4 * _U(chosen), _U(n), 1, _0
    text.table[: 4 * chosen] = 0
    for number in range(_U(chosen)):
        word = _U(text.chosen[number])
        text.marks[word] = 0
        slot = (words_hash(text, word, step) & _LOW) * slots >> _32
        while True:
            if not text.table[slot]:
                text.table[slot] = types.uint16(word + _1)
                text.tallies[word] = 1
                break
            held = _U(text.table[slot]) - _1
            is_same = text.hashes[held] == text.hashes[word] and has_same_words(text, held, word, step)
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
    return best, types.int64(best_word), choose_marked(text, chosen)


@helper
def _choose_seen_twice(text: ShortText, chosen: int, shift: int, least: int) -> int:
    """Keep the chosen words whose prefix may occur twice among them, or whose first words are shorter than ``least`` bytes.

    Without a branch, which processors could not predict, because most words are not chosen. ``shift`` selects the half of the
    hashes that is the slot.
    """
    places, count = _U(_PLACES * chosen), _0
    text.seen[: _PLACES * chosen] = 0
    for number in range(_U(chosen)):
        place = (text.prefixes[text.chosen[number]] >> shift & _LOW) * places >> _32
        text.seen[place] = text.seen[place] << 1 | 1
    for number in range(_U(chosen)):
        word = _U(text.chosen[number])
        place = (text.prefixes[word] >> shift & _LOW) * places >> _32
        is_short = text.ends[word + _U(_SHORTEST)] - text.ends[word] < least
        text.chosen[count] = types.uint16(word)
        count += _U(is_short | (text.seen[place] > 1))
    return types.int64(count)


@helper
def choose_repeated_pairs(text: ShortText, words: int) -> int:
    """Choose every word at which a repeated n-gram of 2 words or more may start; return their number."""
    if words < 2:
        return 0
    chosen = choose_all(text, words - 1)
    for word in range(_U(chosen)):
        text.prefixes[word] = words_hash(text, word, _U(2))
    return _choose_seen_twice(text, chosen, _0, _0)


@helper
def choose_repeated(text: ShortText, words: int) -> int:
    """Choose every word at which a repeated n-gram of 5 words or more may start; return their number."""
    if words <= _SHORTEST:
        return 0
    chosen = choose_all(text, words - _SHORTEST + 1)
    for word in range(_U(chosen)):
        at = text.ends[word]
        mixed = (word_at(text.joined, at) * _MIX ^ (word_at(text.joined, at + _8) + _MIX)) * _ADD
        text.prefixes[word] = mixed ^ (mixed >> _32)
    chosen = _choose_seen_twice(text, chosen, _32, _16)
    chosen = _choose_seen_twice(text, chosen, _0, _16)
    # 13% of the words of prose remain, and 6% after 24 and 8 bytes (English pages and news).
    for number in range(_U(chosen)):
        word = _U(text.chosen[number])
        text.prefixes[word] = (text.prefixes[word] ^ word_at(text.joined, text.ends[word] + _16)) * _MIX
    chosen = _choose_seen_twice(text, chosen, _32, _24)
    for number in range(_U(chosen)):
        word = _U(text.chosen[number])
        text.prefixes[word] = word_at(text.joined, text.ends[word]) * _MIX
    return _choose_seen_twice(text, chosen, _32, _8)


@helper
def repeated_grams(text: ShortText, words: int, n: int, chosen: int) -> int:
    """Return the code points of repeated n-grams, scanning left to right and skipping each repeated one.

    Only ``chosen`` words are considered.
    """
    chosen = with_words_after(text, chosen, words, n)
    slots, step, repeated, next_word = _4 * _U(chosen), _U(n), 0, _0
    text.table[: 4 * chosen] = 0
    for number in range(_U(chosen)):
        word = _U(text.chosen[number])
        if word < next_word:
            continue
        slot = (joined_hash(text, word, step) & _LOW) * slots >> _32
        while True:
            if not text.table[slot]:
                text.table[slot] = types.uint16(word + _1)
                break
            held = _U(text.table[slot]) - _1
            if is_same_gram(text, held, word, step):
                repeated += text.letters[word + step] - text.letters[word]
                next_word = word + step
                break
            slot += _1
            if slot == slots:
                slot = _0
    return repeated

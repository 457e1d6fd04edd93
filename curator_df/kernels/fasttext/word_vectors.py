# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled sum of the input vectors of a line: its words, their subwords, and n-grams of words, hashed as fastText does.

Most words of a text have occurred before. The sum of a word and its subwords is kept in a cache, so that such a word costs one
addition; a text without spaces, as in Chinese, has few such words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, types
from curator_df.kernels.fasttext.model_tables import entry_of, hash_basis, hash_end, hash_step
from curator_df.kernels.text.swar import first_mark, word_at

CACHE_BYTES = 4_000_000
"""Maximum size of the cache of word vectors of a call."""
MOST_SLOTS = 1 << 15
LONGEST_WORD = 64
"""Maximum bytes of a word in the cache."""
MOST_NGRAM = 64
"""Maximum number of words of an n-gram."""
MOST_SUBWORD = 256
"""Maximum number of characters of a subword."""
NO_WORD = -1
"""Number of rows of a token that is a label: it is not part of any n-gram of words either."""
MOST_BUCKETS = 512
"""Subwords whose rows are looked up together, so that the processor need not wait for one after the other."""
LANES = 8
"""Numbers that are added at once: the width of a vector is a multiple of it."""
_MULTIPLIER = np.uint64(116049371)
_LESS, _GREATER = 0x3C, 0x3E
_U: Any = np.uint64
_8, _64, _ALL = _U(8), _U(64), _U(0xFFFFFFFFFFFFFFFF)
_ONES, _TOPS = _U(0x0101010101010101), _U(0x8080808080808080)
_BLANK_STOP = _ONES * _U(0x21)
_MIX_1, _MIX_2 = _U(0x9E3779B97F4A7C15), _U(0xC2B2AE3D27D4EB4F)

CACHE = types.Tuple((types.uint64[::1], types.uint8[::1], types.float32[:, ::1], types.uint64[::1], types.int64[::1]))
"""Type of `new_cache`: four numbers of each slot, namely the first and the last eight bytes of a word, its place in the data and
length, and its number of rows and hash; the slot of each pair that was used last; vectors; n-grams that the next word may
continue; and rows of a word."""


def new_cache(width: int) -> tuple[Any, ...]:
    """Return an empty cache for vectors of this width."""
    slots = 2
    while slots < MOST_SLOTS and 2 * slots * (33 + 4 * width) <= CACHE_BYTES:
        slots *= 2
    return (
        np.zeros(4 * slots, dtype=np.uint64),
        np.zeros(slots // 2, dtype=np.uint8),
        np.empty((slots, width), dtype=np.float32),
        np.empty(MOST_NGRAM, dtype=np.uint64),
        np.empty(MOST_BUCKETS, dtype=np.int64),
    )


def forget_words(cache: tuple[Any, ...]) -> None:
    """Empty a cache, whose words are found by their place in the data, before it is used with other data."""
    cache[0].fill(0)


def padded(width: int) -> int:
    """Return the least multiple of `LANES` that is not smaller."""
    return -(-width // LANES) * LANES


@inlined
def is_separator(byte: int) -> bool:
    r"""Return whether fastText splits words at a byte: space, \t, \n, \v, \f, \r and NUL."""
    return byte <= 0x20 and (byte == 0x20 or 0x09 <= byte <= 0x0D or byte == 0)


@inlined
def _add_eight(vector: Any, at: int, other: Any, first: int) -> None:
    """Add eight numbers. All are read before one is written, so that they are added in one instruction."""
    a, b = vector[at] + other[first], vector[at + 1] + other[first + 1]
    c, d = vector[at + 2] + other[first + 2], vector[at + 3] + other[first + 3]
    e, f = vector[at + 4] + other[first + 4], vector[at + 5] + other[first + 5]
    g, h = vector[at + 6] + other[first + 6], vector[at + 7] + other[first + 7]
    vector[at], vector[at + 1], vector[at + 2], vector[at + 3] = a, b, c, d
    vector[at + 4], vector[at + 5], vector[at + 6], vector[at + 7] = e, f, g, h


@inlined
def _add_dense(vector: Any, at: int, rows: Any, count: int, table: Any) -> None:
    """Add eight numbers of each row of a table. The sums stay in registers."""
    a, b, c, d = vector[at], vector[at + _U(1)], vector[at + _U(2)], vector[at + _U(3)]
    e, f, g, h = vector[at + _U(4)], vector[at + _U(5)], vector[at + _U(6)], vector[at + _U(7)]
    for number in range(count):
        row = _U(rows[number])
        a, b, c, d = (
            a + table[row, at],
            b + table[row, at + _U(1)],
            c + table[row, at + _U(2)],
            d + table[row, at + _U(3)],
        )
        e, f, g, h = (
            e + table[row, at + _U(4)],
            f + table[row, at + _U(5)],
            g + table[row, at + _U(6)],
            h + table[row, at + _U(7)],
        )
    vector[at], vector[at + _U(1)], vector[at + _U(2)], vector[at + _U(3)] = a, b, c, d
    vector[at + _U(4)], vector[at + _U(5)], vector[at + _U(6)], vector[at + _U(7)] = e, f, g, h


@inlined
def _add_pairs(vector: Any, at: int, rows: Any, count: int, inputs: Any) -> None:
    """Add eight numbers of each row, of which four codes stand for two each. The sums stay in registers."""
    _, codes, centroids, norm_codes, norms = inputs
    part = at >> _U(1)
    a, b, c, d = vector[at], vector[at + _U(1)], vector[at + _U(2)], vector[at + _U(3)]
    e, f, g, h = vector[at + _U(4)], vector[at + _U(5)], vector[at + _U(6)], vector[at + _U(7)]
    for number in range(count):
        row = _U(rows[number])
        norm = norms[norm_codes[row]] if len(norm_codes) else np.float32(1)
        i, j, k, m = codes[row, part], codes[row, part + _U(1)], codes[row, part + _U(2)], codes[row, part + _U(3)]
        a, b = a + norm * centroids[part, i, 0], b + norm * centroids[part, i, 1]
        c, d = c + norm * centroids[part + _U(1), j, 0], d + norm * centroids[part + _U(1), j, 1]
        e, f = e + norm * centroids[part + _U(2), k, 0], f + norm * centroids[part + _U(2), k, 1]
        g, h = g + norm * centroids[part + _U(3), m, 0], h + norm * centroids[part + _U(3), m, 1]
    vector[at], vector[at + _U(1)], vector[at + _U(2)], vector[at + _U(3)] = a, b, c, d
    vector[at + _U(4)], vector[at + _U(5)], vector[at + _U(6)], vector[at + _U(7)] = e, f, g, h


@helper
def _add_rows(vector: Any, rows: Any, count: int, inputs: Any) -> None:
    """Add rows of the input matrix to a vector."""
    table, codes, centroids, norm_codes, norms = inputs
    if len(table):
        whole = table.shape[1] & -LANES
        for at in range(_U(0), _U(whole), _U(LANES)):
            _add_dense(vector, at, rows, count, table)
        for number in range(count):
            for at in range(whole, table.shape[1]):
                vector[at] += table[rows[number], at]
        return
    step, parts = centroids.shape[2], codes.shape[1]
    whole = parts & -4 if step == 2 else 0  # 2 is fastText's default
    for at in range(_U(0), _U(2 * whole), _U(LANES)):
        _add_pairs(vector, at, rows, count, inputs)
    for number in range(count):
        norm = norms[norm_codes[rows[number]]] if len(norm_codes) else np.float32(1)
        for part in range(whole, parts):
            for place in range(step):
                vector[part * step + place] += norm * centroids[part, codes[rows[number], part], place]


@inlined
def _set_bits(word: int) -> int:
    """Return the number of set bits. LLVM knows this sequence, and makes it one instruction."""
    word -= (word >> _U(1)) & _U(0x5555555555555555)
    word = (word & _U(0x3333333333333333)) + ((word >> _U(2)) & _U(0x3333333333333333))
    return (((word + (word >> _U(4))) & _U(0x0F0F0F0F0F0F0F0F)) * _ONES) >> _U(56)


@helper
def _rows_of(buckets: Any, first: int, count: int, numbers: Any, kept: Any) -> int:
    """Replace buckets by their rows, without those that are not kept; return how many rows are there now."""
    words = numbers[4]
    if not numbers[7]:
        for number in range(first, count):
            buckets[number] += words
        return count
    held = _U(first)
    for number in range(first, count):  # without a branch, which the processor could not predict
        bucket = _U(buckets[number])
        place, bit = bucket >> _U(6) << _U(1), _U(1) << (bucket & _U(63))
        marks = kept[place]
        buckets[held] = words + types.int64(kept[place + _U(1)] + _set_bits(marks & (bit - _U(1))))
        held += _U(marks & bit != 0)
    return types.int64(held)


@inlined
def _hash_subwords(data: Any, first: int, start: int, stop: int, numbers: Any, buckets: Any, held: int) -> int:
    """Append the hashes of the subwords of ``<word>`` that begin at a character; return how many there are.

    The first position is that of ``<``, which is not counted alone, as is ``>``.
    """
    mixed, at, length = hash_basis(), first, 1
    if first < start:
        mixed = hash_step(mixed, _LESS)
        at += 1
        while at < stop and data[at] & 0xC0 == 0x80:  # of damaged text
            mixed = hash_step(mixed, data[at])
            at += 1
        length = 2
    while length <= numbers[1] and at <= stop and held < MOST_BUCKETS:
        if at < stop:
            mixed = hash_step(mixed, data[at])
            at += 1
            while at < stop and data[at] & 0xC0 == 0x80:
                mixed = hash_step(mixed, data[at])
                at += 1
        else:
            mixed = hash_step(mixed, _GREATER)
            at += 1
        buckets[held] = hash_end(mixed)
        held += length >= numbers[0]
        length += 1
    return held


@helper
def _put_hashes(data: Any, first: int, start: int, stop: int, numbers: Any, buckets: Any, held: int) -> tuple[int, int]:
    """Append the buckets of the subwords of a word from a character on; return where to go on, and how many there are."""
    size = numbers[2]
    share = 1.0 / size
    before = held
    while first < stop and held + numbers[1] <= MOST_BUCKETS:
        if first < start or data[first] & 0xC0 != 0x80:
            held = _hash_subwords(data, first, start, stop, numbers, buckets, held)
        first += 1
    for number in range(before, held):  # faster than a division of whole numbers, and as exact
        mixed = buckets[number]
        rest = mixed - types.int64(mixed * share) * size
        rest += size if rest < 0 else 0
        buckets[number] = rest - (size if rest >= size else 0)
    return first, held


@inlined
def is_end(data: Any, start: int, stop: int) -> bool:
    """Return whether a word is ``</s>``, at which fastText ends a line."""
    return (
        stop - start == 4
        and data[start] == _LESS
        and data[start + 1] == 0x2F
        and data[start + 2] == 0x73
        and data[start + 3] == _GREATER
    )


@helper
def _is_label(data: Any, start: int, stop: int) -> bool:
    """Return whether a word begins with ``__label__``."""
    prefix = (0x5F, 0x5F, 0x6C, 0x61, 0x62, 0x65, 0x6C, 0x5F, 0x5F)
    if stop - start < 9:
        return False
    place = 0
    while place < 9 and data[start + place] == prefix[place]:
        place += 1
    return place == 9


@inlined
def _hash_of(data: Any, start: int, stop: int) -> int:
    mixed = hash_basis()
    for at in range(start, stop):
        mixed = hash_step(mixed, data[at])
    return hash_end(mixed)


@helper
def _add_new_word(vector: Any, data: Any, start: int, stop: int, mixed: int, model: Any, rows: Any) -> int:
    """Add the rows of a word; return their number, or `NO_WORD`."""
    numbers, dictionary, inputs, kept = model
    entry = entry_of(data, start, stop, mixed, dictionary)
    if entry >= numbers[4] or (entry < 0 and _is_label(data, start, stop)):
        return NO_WORD
    rows[0] = entry
    held, count, first = types.int64(entry >= 0), types.int64(0), start - 1
    has_subwords = numbers[1] > 0 and not numbers[8] and not is_end(data, start, stop)
    while True:
        if has_subwords:
            before = held
            first, held = _put_hashes(data, first, start, stop, numbers, rows, held)
            held = _rows_of(rows, before, held, numbers, kept)
        _add_rows(vector, rows, held, inputs)
        count += held
        held = types.int64(0)
        if not has_subwords or first >= stop:
            return count


@inlined
def _key_of(data: Any, start: int, stop: int) -> tuple[int, int]:
    """Return the first eight bytes of a word as a number, and the last eight or, of a shorter word, its length.

    Functions that call `word_at` must not write to an array of a tuple: numba would drop that as dead code.
    """
    length = stop - start
    if length > 8:
        return word_at(data, _U(start)), word_at(data, _U(stop - 8))
    if start + 8 <= len(data):
        return word_at(data, _U(start)) & (_ALL >> (_64 - _8 * _U(length))), _U(length)
    word = _U(0)
    for place in range(length):
        word |= _U(data[start + place]) << _U(8 * place)
    return word, _U(length)


@inlined
def _are_equal(data: Any, first: int, start: int, stop: int) -> bool:
    """Return whether the bytes of a word between its first and last eight equal those of another one."""
    at = start + 8
    while at < stop - 8 and data[at] == data[first + at - start]:
        at += 1
    return at >= stop - 8


@inlined
def _slot_of(data: Any, start: int, stop: int, cache: Any) -> tuple[int, bool]:
    """Return the slot of a word in the cache, and whether it was there; otherwise it is now, without a vector."""
    words, used, _, _, _ = cache
    length = stop - start
    head, tail = _key_of(data, start, stop)
    mixed = (head * _MIX_1) ^ (tail * _MIX_2)
    mixed ^= mixed >> _U(32)
    pair = mixed & _U(len(used) - 1)
    for way in range(2):
        slot = _U(2) * pair + _U(way)
        at = slot << _U(2)
        place = words[at + _U(2)]
        is_same = words[at] == head and words[at + _U(1)] == tail and place & _U(0xFF) == _U(length)
        if is_same and (length <= 16 or _are_equal(data, types.int64(place >> _8), start, stop)):
            used[pair] = way
            return types.int64(slot), True
    used[pair] = 1 - used[pair]
    slot = _U(2) * pair + _U(used[pair])
    at = slot << _U(2)
    words[at], words[at + _U(1)], words[at + _U(2)] = head, tail, _U(start) << _8 | _U(length)
    return types.int64(slot), False


@inlined
def _add_word(hidden: Any, data: Any, start: int, stop: int, model: Any, cache: Any) -> tuple[int, int]:
    """Add the rows of a word, from the cache or into it; return their number, or `NO_WORD`, and the word's hash."""
    words, _, vectors, _, rows = cache
    is_kept = stop - start <= LONGEST_WORD
    slot, is_known = _slot_of(data, start, stop, cache) if is_kept else (types.int64(0), False)
    vector = vectors[slot] if is_kept else hidden
    if not is_known:
        if is_kept:
            vector[:] = 0
        mixed = _hash_of(data, start, stop)
        count = _add_new_word(vector, data, start, stop, mixed, model, rows)
        if not is_kept:
            return count, mixed
        words[4 * slot + 3] = _U(count + 1) << _U(32) | _U(mixed)
    for place in range(0, len(hidden), LANES):
        _add_eight(hidden, place, vector, place)
    known = words[4 * slot + 3]
    return types.int64(known >> _U(32)) - 1, types.int64(known & _U(0xFFFFFFFF))


@helper
def _add_ngrams(hidden: Any, mixed: int, words: int, model: Any, cache: Any) -> int:
    """Add the rows of the n-grams that end in the word with this hash, which follows ``words`` others; return their number."""
    numbers, _, inputs, kept = model
    runs, rows = cache[3], cache[4]
    size = types.uint64(numbers[2])
    signed = types.uint64(mixed - ((mixed >> 31) << 32))  # fastText stores hashes of words in signed numbers
    held = 0
    for length in range(min(words, numbers[3] - 1), 0, -1):
        runs[length] = runs[length - 1] * _MULTIPLIER + signed
        rows[held] = types.int64(runs[length] % size)
        held += 1
    runs[0] = signed
    if numbers[8]:
        return 0
    held = _rows_of(rows, 0, held, numbers, kept)
    _add_rows(hidden, rows, held, inputs)
    return held


@inlined
def _word_end(data: Any, at: int, stop: int) -> int:
    """Return where the word that begins here ends."""
    while at < stop:
        if at + 8 > len(data):
            if is_separator(data[at]):
                return at
            at += 1
            continue
        word = word_at(data, _U(at))
        marks = (word - _BLANK_STOP) & ~word & _TOPS  # bytes up to the space; meaningless after the first
        if marks == 0:
            at += 8
            continue
        at += types.int64(first_mark(marks))
        if at < stop and is_separator(data[at]):
            return at
        at += 1
    return stop


@helper
def add_line(hidden: Any, data: Any, at: int, stop: int, model: Any, cache: Any) -> int:
    """Sum the rows of the line ``data[at:stop]`` and of its end in ``hidden``; return their number."""
    numbers, _, inputs, _ = model
    hidden[:] = 0
    count = words = 0
    is_ended = False
    while at < stop and not is_ended:
        if is_separator(data[at]):
            at += 1
            continue
        start, at = at, _word_end(data, at, stop)
        rows, mixed = _add_word(hidden, data, start, at, model, cache)
        if rows != NO_WORD:
            count += rows
            if numbers[3] > 1:
                count += _add_ngrams(hidden, mixed, words, model, cache)
            words += 1
        is_ended = is_end(data, start, at)
    if is_ended:
        return count
    if numbers[6] >= 0:
        cache[4][0] = numbers[6]
        _add_rows(hidden, cache[4], 1, inputs)
        count += 1
    if numbers[3] > 1:
        mixed = hash_basis()
        for byte in (0x3C, 0x2F, 0x73, 0x3E):
            mixed = hash_step(mixed, byte)
        count += _add_ngrams(hidden, hash_end(mixed), words, model, cache)
    return count

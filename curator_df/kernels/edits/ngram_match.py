# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled search for the word n-grams of a table in texts, and removal of passages; one scan, in constant memory.

A word ends at white space. It is compared in lower case and without punctuation, but its position is that in the original text.
The hash of an n-gram rolls: each word costs a multiplication for every length of n-grams in the table. See `ngram_table`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.edits.cut_copy import OFFSETS
from curator_df.kernels.metrics.words.word_counts import BYTES, code_point
from curator_df.kernels.minhash.shingle_hashes import BYTE_TABLE, PAGE_TABLE, STEP_TABLE
from curator_df.kernels.text.lower_case import SPACE_STEP
from curator_df.kernels.text.murmur_windows import is_continuation

DROP_STEP = 1 << 25
"""Value for punctuation in the table of steps."""
SPACE, DROP, WIDE = 0xFF, 0xFE, 0xFD
"""Values in the table of bytes for white space, punctuation, and non-ASCII bytes."""
START, STOP, NUMBER, GRAMS, REGION = range(5)
"""Columns of a region: its first byte, the byte after its last, the number of the benchmark text whose n-gram was found first,
and the number of n-grams found. Code that only removes passages uses the first two."""
PLACES = 2
"""Number of columns for code that only removes passages."""

_BASE, _LENGTH = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_OFFSET_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX_1, _MIX_2, _33 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(33)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@helper
def _mixed(word: Any) -> Any:
    word = (word ^ (word >> _33)) * _MIX_1
    word = (word ^ (word >> _33)) * _MIX_2
    return word ^ (word >> _33)


@helper
def _next_word(data: Any, at: int, stop: int, characters: Any) -> tuple[int, int, int, int]:
    """Return the hash of the next word, its first byte (-1 if there is none), the byte after its last, and the next position."""
    byte_of, page_of, pages = characters
    word, begin, end = _OFFSET_BASIS, -1, at
    while at < stop:
        code, width = types.int64(byte_of[data[at]]), 1
        is_space, is_dropped = code == SPACE, code == DROP
        if code == WIDE:
            code, width = code_point(data, at, stop)
            step = types.int64(pages[page_of[code >> 8], code & 255])
            is_space, is_dropped = step == SPACE_STEP, step == DROP_STEP
            code += step
        if is_space and begin >= 0:
            break
        if not is_space and not is_dropped:
            word = (word ^ np.uint64(code)) * _PRIME
            begin = at if begin < 0 else begin
            end = at + width
        at += width
    return _mixed(word), begin, end, at


@helper
def _roll(word: int, count: int, ring: Any, sizes: Any, powers: Any, rolled: Any) -> None:
    """Add one more word to the hashes of the last words, for each size."""
    for number in range(len(sizes)):
        size = sizes[number]
        leaving = ring[(count - size) % len(ring)] if count >= size else _ZERO
        rolled[number] = rolled[number] * _BASE + word - leaving * powers[number]
    ring[count % len(ring)] = word


@helper
def _powers(sizes: Any) -> Any:
    powers = np.ones(len(sizes), dtype=np.uint64)
    for number in range(len(sizes)):
        for _ in range(sizes[number]):
            powers[number] *= _BASE
    return powers


@helper
def _key(rolled: int, size: int) -> int:
    return max(_mixed(rolled ^ (np.uint64(size) * _LENGTH)), _ONE)


@helper
def _slot(keys: Any, key: int) -> int:
    """Return the slot of a key, or the free slot for it."""
    mask = np.uint64(len(keys) - 1)
    slot = key & mask
    while keys[slot] != _ZERO and keys[slot] != key:
        slot = (slot + _ONE) & mask
    return types.int64(slot)


@kernel(
    types.int64(
        BYTES,
        types.int64,
        types.int64,
        types.int64,
        BYTE_TABLE,
        PAGE_TABLE,
        STEP_TABLE,
        types.uint64[::1],
        types.int32[::1],
    )
)
def put_ngrams(
    data: Any, number: int, size: int, least: int, byte_of: Any, page_of: Any, pages: Any, keys: Any, numbers: Any
) -> int:
    """Add the n-grams of a text to the table; return their length, or 0 if it has fewer than ``least`` words.

    A text with fewer than ``size`` words is one n-gram. An n-gram already in the table keeps its number.
    """
    sizes = np.array([size])
    powers, ring, rolled = _powers(sizes), np.zeros(size, dtype=np.uint64), np.zeros(1, dtype=np.uint64)
    at, count = 0, 0
    while True:
        word, begin, _, at = _next_word(data, at, len(data), (byte_of, page_of, pages))
        if begin < 0:
            break
        _roll(word, count, ring, sizes, powers, rolled)
        count += 1
        if count >= size:
            slot = _slot(keys, _key(rolled[0], size))
            if keys[slot] == _ZERO:
                keys[slot], numbers[slot] = _key(rolled[0], size), number
    if count >= size or count < least:
        return size if count >= size else 0
    slot = _slot(keys, _key(rolled[0], count))
    if keys[slot] == _ZERO:
        keys[slot], numbers[slot] = _key(rolled[0], count), number
    return count


@helper
def _join(regions: Any, last: int, into: int, stop: int) -> None:
    """Join a region with one before it."""
    regions[into, START] = min(regions[into, START], regions[last, START])
    regions[into, STOP] = stop
    if regions.shape[1] > GRAMS:
        regions[into, GRAMS] += regions[last, GRAMS]


@helper
def _add_region(regions: Any, count: int, start: int, stop: int, number: int) -> int:
    """Add a finding to the regions of a text, joined with those that it overlaps; return the number of regions.

    If the array is full, the next region is counted, but not written.
    """
    if count == len(regions) and start >= regions[count - 1, STOP]:
        return count + 1
    if count == len(regions):
        regions[count - 1, START] = min(start, regions[count - 1, START])
        regions[count - 1, STOP] = stop
        if regions.shape[1] > GRAMS:
            regions[count - 1, GRAMS] += 1
    else:
        regions[count, START], regions[count, STOP] = start, stop
        if regions.shape[1] > GRAMS:
            regions[count, NUMBER], regions[count, GRAMS] = number, 1
        count += 1
    while count > 1 and regions[count - 1, START] < regions[count - 2, STOP]:
        _join(regions, count - 1, count - 2, stop)
        count -= 1
    return count


_TABLE = (BYTE_TABLE, PAGE_TABLE, STEP_TABLE, types.uint64[::1], types.int32[::1], types.int64[::1])
_REGIONS = types.int64[:, ::1]
_FLAGS = types.Array(types.boolean, 1, "C", readonly=True)


@kernel(types.int64(BYTES, types.int64, types.int64, *_TABLE, _REGIONS))
def find_regions(
    data: Any,
    start: int,
    stop: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    keys: Any,
    numbers: Any,
    sizes: Any,
    regions: Any,
) -> int:
    """Find the passages of a text with n-grams of the table; return their number.

    The search ends when ``regions``, to which they are written, is full.
    """
    powers, rolled = _powers(sizes), np.zeros(len(sizes), dtype=np.uint64)
    room = sizes.max()
    ring, begins = np.zeros(room, dtype=np.uint64), np.zeros(room, dtype=np.int64)
    at, count, found = start, 0, 0
    while True:
        word, begin, end, at = _next_word(data, at, stop, (byte_of, page_of, pages))
        if begin < 0:
            return found
        _roll(word, count, ring, sizes, powers, rolled)
        begins[count % room] = begin
        count += 1
        for place in range(len(sizes)):
            size = sizes[place]
            if count >= size:
                slot = _slot(keys, _key(rolled[place], size))
                if keys[slot] != _ZERO:
                    found = _add_region(regions, found, begins[(count - size) % room], end, numbers[slot])
                    if found > len(regions):
                        return len(regions)


@kernel(types.int64(BYTES, OFFSETS, _FLAGS, *_TABLE, types.int64[::1]))
def find_rows(
    data: Any,
    offsets: Any,
    valid: Any,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    keys: Any,
    numbers: Any,
    sizes: Any,
    rows: Any,
) -> int:
    """Fill ``rows`` with the texts of a span that have an n-gram of the table; return their number."""
    found, region = 0, np.empty((1, PLACES), dtype=np.int64)
    for row in range(len(offsets) - 1):
        if valid[row] and find_regions(
            data, offsets[row], offsets[row + 1], byte_of, page_of, pages, keys, numbers, sizes, region
        ):
            rows[found] = row
            found += 1
    return found


@helper
def _ends_sentence(byte: int) -> bool:
    return byte == 0x2E or byte == 0x21 or byte == 0x3F  # noqa: PLR1714 - compiled: a tuple would be made in each call


@helper
def _characters(data: Any, at: int, stop: int) -> int:
    count = 0
    while at < stop:
        count += not is_continuation(data[at])
        at += 1
    return count


@helper
def _before(data: Any, at: int, floor: int, margin: int) -> int:
    """Return the byte ``margin`` characters before, or ``floor``."""
    while at > floor and margin > 0:
        at -= 1
        margin -= not is_continuation(data[at])
    return at


@helper
def _after(data: Any, at: int, stop: int, margin: int) -> int:
    while at < stop and margin > 0:
        at += 1
        margin -= at == stop or not is_continuation(data[at])
    return at


@helper
def _cut(data: Any, region: Any, kept_from: int, stop: int, margin: int) -> tuple[int, int]:
    """Return the passage, extended by a margin and to the ends of sentences; ``kept_from``: end of the previous passage."""
    first = _before(data, region[START], kept_from, margin)
    while first > kept_from and not _ends_sentence(data[first]):
        first -= 1
    if first > kept_from:
        first += 1
    last = max(_after(data, region[STOP], stop, margin), kept_from)
    while last < stop and not _ends_sentence(data[last]):
        last += 1
    last = min(last + 1, stop)
    while last < stop and (data[last] == 0x20 or 0x09 <= data[last] <= 0x0D):
        last += 1
    return first, last


@kernel(types.int64(BYTES, types.int64, types.int64, _REGIONS, types.int64, types.int64, types.int64))
def keep_pieces(data: Any, start: int, stop: int, regions: Any, found: int, margin: int, least: int) -> int:
    """Replace the regions of a text with its kept pieces, as first byte and byte after the last; return their number.

    ``regions``: with one more row than there are regions; ``least``: a kept piece has more characters than this.
    """
    kept_from, count = start, 0
    for number in range(found + 1):
        first, last = stop, stop
        if number < found:
            if regions[number, STOP] <= kept_from:
                continue
            first, last = _cut(data, regions[number], kept_from, stop, margin)
        if _characters(data, kept_from, first) > least:
            regions[count, START], regions[count, STOP] = kept_from, first
            count += 1
        kept_from = last
    return count


@kernel(types.int64(BYTES, types.int64, types.int64))
def count_characters(data: Any, start: int, stop: int) -> int:
    """Return the number of characters that begin between two bytes."""
    return _characters(data, start, stop)

# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ARG001 - what stands for a function has its parameters
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled hashes of a text's shingles, in chunks: the basis of signatures and exact similarities.

Functions that other compiled functions call. Memory: about 120 KB, independent of the text; with words, more if the words of one
shingle are longer than 32 KB (up to 1.5 times the text).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import chosen, helper, inlined, intrinsic, kernel, types
from curator_df.kernels.metrics.ngrams.word_windows import BUFFER_BYTES, fill_words, keep_last_words
from curator_df.kernels.text.murmur_hash import PIECE_BYTES, fill_normalized
from curator_df.kernels.text.murmur_windows import (
    CHUNK_WINDOWS,
    WIDE_WINDOWS,
    ascii_bytes,
    code_points_on,
    hash_windows,
    hash_word_runs,
    murmur,
)

_U: Any = np.uint64
_PRIME, _PRIME_BITS = _U((1 << 61) - 1), _U(61)
_POINT, _SPREAD = _U(0xA9DA00B1D1784FD), _U(0xFCC61C7631AFD64D)
"""Random constants; the second is odd."""
_ZERO = _U(2 * ((1 << 61) - 1))
"""Multiple of the prime, larger than any folded number."""
_0, _1, _3, _32 = (_U(number) for number in (0, 1, 3, 32))
_ASCII = 128
_SIGNATURE = types.UniTuple(types.int64, 2)(
    types.Array(types.uint8, 1, "C", readonly=True),
    types.int64,
    types.int64,
    types.int64,
    types.int64[::1],
    types.uint64[::1],
)
_LEAST_LANE = 16
"""Minimum number of windows of a lane; with fewer than four times as many, there is one lane."""


@intrinsic(target="generic")
def _high_product(typing_context: Any, one: Any, other: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from llvmlite import ir

        wide, word = ir.IntType(128), ir.IntType(64)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word)

    return types.uint64(types.uint64, types.uint64).made, code


@helper
def _folded(number: int) -> int:
    """Return a number modulo the prime, or that plus the prime: at most 7 above it."""
    return (number & _PRIME) + (number >> _PRIME_BITS)


@helper
def _product(one: int, other: int) -> int:
    """Return a product of folded numbers, below 2^62 + 16."""
    low = one * other
    return (low & _PRIME) + ((_high_product(one, other) << _3) | (low >> _PRIME_BITS))


@helper
def _hash(state: int) -> int:
    """Spread a state over 64 bits, one to one."""
    state = (state if state < _PRIME else state - _PRIME) * _SPREAD
    return state ^ (state >> _32)


@helper
def _next(state: int, coming: int, going: int) -> int:
    """Return the state of the next window: ``coming`` is the byte that enters, ``going`` the number to add for the other."""
    return _folded(_product(state, _POINT) + _U(coming) + _1 + going)


@helper
def _power(count: int) -> int:
    """Return the point to a power."""
    found, factor = _1, _POINT
    while count > 0:
        if count & 1:
            found = _folded(_product(found, factor))
        factor = _folded(_product(factor, factor))
        count >>= 1
    return found


@helper
def _state_of(data: Any, at: int, end: int) -> int:
    state = _0
    for place in range(at, end):
        state = _next(state, data[place], _0)
    return state


@helper
def _roll_lane(part: Any, first: int, last: int, width: int, going: Any, hashes: Any) -> None:
    state = _state_of(part, first, first + width)
    hashes[first] = _hash(state)
    for number in range(first + 1, last):
        state = _next(state, part[number + width - 1], _U(going[part[number - 1]]))
        hashes[number] = _hash(state)


@helper
def _roll_plain(part: Any, windows: int, width: int, going: Any, hashes: Any) -> None:
    """Hash the windows of ASCII in four lanes, because each product must be waited for."""
    step, total = _power(width), _0
    for byte in range(_ASCII):
        total = _folded(total + step)
        going[byte] = types.int64(_ZERO - total)
    lane = windows // 4
    if lane < _LEAST_LANE:
        _roll_lane(part, 0, windows, width, going, hashes)
        return
    first, second, third, fourth = part, part[lane:], part[2 * lane :], part[3 * lane :]
    one, two = _state_of(first, 0, width), _state_of(second, 0, width)
    three, four = _state_of(third, 0, width), _state_of(fourth, 0, width)
    ahead = _U(width - 1)
    hashes[0], hashes[lane], hashes[2 * lane], hashes[3 * lane] = _hash(one), _hash(two), _hash(three), _hash(four)
    of_first, of_second, of_third, of_fourth = hashes, hashes[lane:], hashes[2 * lane :], hashes[3 * lane :]
    for number in range(_1, _U(lane)):
        one = _next(one, first[number + ahead], _U(going[first[number - _1]]))
        two = _next(two, second[number + ahead], _U(going[second[number - _1]]))
        three = _next(three, third[number + ahead], _U(going[third[number - _1]]))
        four = _next(four, fourth[number + ahead], _U(going[fourth[number - _1]]))
        of_first[number], of_second[number] = _hash(one), _hash(two)
        of_third[number], of_fourth[number] = _hash(three), _hash(four)
    if 4 * lane < windows:
        _roll_lane(part, 4 * lane, windows, width, going, hashes)


@helper
def _roll_wide(data: Any, at: int, stop: int, width: int, hashes: Any) -> tuple[int, int]:
    """Hash windows of any bytes, also of those that are not UTF-8, where a code point may be as long as the text."""
    end, windows = code_points_on(data, at, stop, width), 0
    if end < 0:
        return at, 0
    state, bytes_held = _state_of(data, at, end), end - at
    power = _power(bytes_held)
    while True:
        hashes[windows] = _hash(state)
        windows += 1
        first_end, next_end = code_points_on(data, at, stop, 1), code_points_on(data, end, stop, 1)
        if next_end < 0 or windows == WIDE_WINDOWS:
            return first_end, windows
        if next_end - first_end != bytes_held:
            bytes_held = next_end - first_end
            power = _power(bytes_held)
        if first_end - at == 1 and next_end - end == 1:  # the leaving byte is known before the state
            state = _next(state, data[end], _ZERO - _folded(_product(_U(data[at]) + _1, power)))
        else:
            gone = _state_of(data, at, first_end)
            for place in range(end, next_end):
                state = _next(state, data[place], _0)
            state = _folded(state + _ZERO - _folded(_product(gone, power)))
        at, end = first_end, next_end


@kernel(_SIGNATURE)
def roll_windows(data: Any, at: int, stop: int, width: int, going: Any, hashes: Any) -> tuple[int, int]:
    """Hash the next windows from ``at`` on; return the start of the next one, and their number, 0 if none is complete.

    ``going``: int64, at least 128, overwritten.
    """
    plain = ascii_bytes(data, at, min(stop, at + CHUNK_WINDOWS + width - 1))
    windows = plain - width + 1
    if windows > 0 and (windows >= WIDE_WINDOWS or at + plain == stop):
        _roll_plain(data[at : at + plain], windows, width, going, hashes)
        return at + windows, windows
    return _roll_wide(data, at, stop, width, hashes)


CHARACTERS, NORMALIZED_CHARACTERS, WORDS, NORMALIZED_WORDS = range(4)
"""Kinds of shingles: code points or words, unchanged or in lower case with white space as one space."""
WITH_GAPS = 4
"""Offset added to a kind of words that are hashed with a space between them, so that "a bc" is not "ab c"."""
CHUNK_HASHES = CHUNK_WINDOWS
"""Hashes of a chunk."""
AT, HELD, SPACED, WORDS_HELD, TOTAL, START, STATE = range(7)
"""Elements of the state between chunks of a text: int64, 0 at its beginning except the first, which is its start."""

UTF8 = types.Array(types.uint8, 1, "C", readonly=True)
OFFSETS = types.Array(types.int64, 1, "C", readonly=True)
BYTE_TABLE = UTF8
PAGE_TABLE = types.Array(types.uint16, 1, "C", readonly=True)
STEP_TABLE = types.Array(types.int32, 2, "C", readonly=True)


@helper
def shingle_workspace(size: int) -> Any:
    """Return the arrays that `next_characters` overwrites: buffer, mixed blocks, starts of code points and ends of words."""
    buffer = np.empty(BUFFER_BYTES, dtype=np.uint8)
    mixed = np.empty(CHUNK_WINDOWS + size, dtype=np.uint32)
    starts = np.empty(CHUNK_WINDOWS + size, dtype=np.int64)
    word_ends = np.empty(CHUNK_WINDOWS, dtype=np.int64)
    return buffer, (mixed, starts, word_ends)


@inlined
def _rolled(
    data: Any, at: int, stop: int, size: int, seed: int, mixed: Any, starts: Any, hashes: Any
) -> tuple[int, int]:
    return roll_windows(data, at, stop, size, starts, hashes)


def _window_hashes(data: Any, at: Any, stop: Any, size: Any, seed: Any, mixed: Any, starts: Any, hashes: Any) -> Any:
    return _rolled if seed.signed else hash_windows


@chosen(_window_hashes)
def _windows(
    data: Any, at: int, stop: int, size: int, seed: int, mixed: Any, starts: Any, hashes: Any
) -> tuple[int, int]:
    """Hash the next windows like `hash_windows`, or like `roll_windows` if the seed is signed. For compiled code only."""
    raise TypeError("_windows cannot be called from Python. Call it in a function that numba compiles")


@helper
def _next_characters(
    data: Any, stop: int, state: Any, size: int, seed: int, mixed: Any, starts: Any, hashes: Any
) -> int:
    at, count = _windows(data, state[AT], stop, size, seed, mixed, starts, hashes)
    if count == 0 and state[TOTAL] == 0 and at < stop:
        hashes[0] = murmur(data, at, stop - at, seed)
        at, count = stop, 1
    state[AT] = at
    return count


@helper
def _next_normalized(
    data: Any,
    stop: int,
    state: Any,
    size: int,
    seed: int,
    lowered: Any,
    page_of: Any,
    pages: Any,
    piece: Any,
    mixed: Any,
    starts: Any,
    hashes: Any,
) -> int:
    while True:
        held, start = state[HELD], state[START]
        start, count = _windows(piece, start, held, size, seed, mixed, starts, hashes)
        state[START] = start
        if count > 0:
            return count
        if held >= PIECE_BYTES and start == 0:
            # Not UTF-8: a whole piece without the end of a shingle. It is regarded as one.
            hashes[0] = murmur(piece, 0, held, seed)
            state[START] = held
            return 1
        if state[AT] == stop and held < PIECE_BYTES:
            state[HELD] = 0
            state[START] = 0
            if state[TOTAL] == 0 and held > 0:
                hashes[0] = murmur(piece, 0, held, seed)
                return 1
            return 0
        for place in range(held - start):
            piece[place] = piece[start + place]
        state[START] = 0
        state[AT], state[HELD], state[SPACED] = fill_normalized(
            data, state[AT], stop, piece, held - start, state[SPACED], lowered, page_of, pages
        )


@helper
def _next_words(
    data: Any,
    stop: int,
    state: Any,
    lower: bool,
    gap: int,
    size: int,
    seed: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    buffer: Any,
    arrays: Any,
    hashes: Any,
) -> Any:
    mixed, starts, word_ends = arrays
    while True:
        before = state[AT]
        at, held, words = fill_words(
            data, before, stop, buffer, state[HELD], word_ends, state[WORDS_HELD], byte_of, page_of, pages, lower, gap
        )
        count = max(words - size + 1, 0)
        hash_word_runs(buffer, word_ends, count, size, gap, seed, mixed, starts, hashes)
        if count > 0:
            held, words = keep_last_words(buffer, held, word_ends, words, size - 1, gap)
        elif at == stop:
            if state[TOTAL] == 0 and words > 0:
                hashes[0] = murmur(buffer, 0, word_ends[words - 1], seed)
                count = 1
            held = words = 0
        if at < stop and (count == 0 or at == before):
            longer = np.empty(held + 3 * (stop - at) // 2 + 64, dtype=np.uint8)
            longer[:held] = buffer[:held]
            buffer = longer
        state[AT], state[HELD], state[WORDS_HELD] = at, held, words
        if count > 0 or at == stop:
            return count, buffer


@helper
def next_characters(
    data: Any,
    stop: int,
    state: Any,
    kind: int,
    size: int,
    seed: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    buffer: Any,
    arrays: Any,
    hashes: Any,
) -> Any:
    """Hash the next shingles of a text that ends at ``stop``; return how many, 0 at its end, and the buffer.

    ``byte_of``, ``page_of``, ``pages``: from `lower_case`; ``seed`` and ``hashes``: uint32 or uint64. For comparing sets the
    seed is int64: then `rolled_windows` hashes windows of characters. A text with less than one shingle is one. The shingles are
    unchanged characters; `next_normalized` and `next_words` take the same parameters for the other kinds. A kernel calls one
    of the three, so that it is compiled for one kind.
    """
    mixed, starts, _ = arrays
    count = _next_characters(data, stop, state, size, seed, mixed, starts, hashes)
    state[TOTAL] += count
    return count, buffer


@helper
def next_normalized(
    data: Any,
    stop: int,
    state: Any,
    kind: int,
    size: int,
    seed: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    buffer: Any,
    arrays: Any,
    hashes: Any,
) -> Any:
    """Hash the next shingles like `next_characters`, of characters in lower case with white space as one space."""
    mixed, starts, _ = arrays
    count = _next_normalized(data, stop, state, size, seed, byte_of, page_of, pages, buffer, mixed, starts, hashes)
    state[TOTAL] += count
    return count, buffer


@helper
def next_words(
    data: Any,
    stop: int,
    state: Any,
    kind: int,
    size: int,
    seed: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    buffer: Any,
    arrays: Any,
    hashes: Any,
) -> Any:
    """Hash the next shingles like `next_characters`, of words as ``kind`` says."""
    lower, gap = kind % WITH_GAPS == NORMALIZED_WORDS, kind // WITH_GAPS
    count, buffer = _next_words(
        data, stop, state, lower, gap, size, seed, byte_of, page_of, pages, buffer, arrays, hashes
    )
    state[TOTAL] += count
    return count, buffer

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled MinHash signatures: the least value of every permutation over the shingle hashes of each text.

Importing this module imports numba and compiles, or loads from the on-disk cache, three functions for 32 and 64 bits. See
`minhash` for the functions to call, and for what is proved about the bits. The permutation is `_least_32` and `_least_64`,
and nowhere else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from curator_df.kernels.murmur_hash import PIECE_BYTES, fill_normalized
from curator_df.kernels.murmur_windows import CHUNK_WINDOWS, PAD_WINDOWS, hash_windows, murmur
from curator_df.kernels.word_windows import BUFFER_BYTES, fill_words, keep_last_words

MOST_CODE_POINTS = 192
"""Of a character n-gram: four bytes each of it, and more than one n-gram, fit in a piece of normalised text."""
_MERSENNE_BITS = 61
_MERSENNE = (1 << _MERSENNE_BITS) - 1


@njit(nogil=True)
def _least_32(hashes: Any, count: int, multipliers: Any, increments: Any, signature: Any) -> None:
    for number in range(len(signature)):
        multiplier, increment = multipliers[number], increments[number]
        least = signature[number]
        for place in range(count):
            # Wraps at 32 bits, after which a remainder by 2^61 - 1 changes nothing.
            least = min(least, np.uint32(multiplier * hashes[place] + increment))
        signature[number] = least


@njit(nogil=True)
def _least_64(hashes: Any, count: int, multipliers: Any, increments: Any, signature: Any) -> None:
    for number in range(len(signature)):
        multiplier, increment = multipliers[number], increments[number]
        least = types.int64(min(signature[number], np.uint64(_MERSENNE)))
        for place in range(count):
            # Wraps at 64 bits, and then modulo the Mersenne prime, which is at most one subtraction away.
            value = multiplier * hashes[place] + increment
            folded = types.int64((value & np.uint64(_MERSENNE)) + (value >> np.uint64(_MERSENNE_BITS)))
            if folded >= _MERSENNE:
                folded -= _MERSENNE
            least = min(least, folded)
        signature[number] = least


def take_least(hashes: Any, count: int, multipliers: Any, increments: Any, signature: Any) -> None:
    """Lower a signature to the least permuted values of some hashes. For compiled code only."""
    raise TypeError("take_least is for compiled code")


@overload(take_least, jit_options={"nogil": True})
def _take_least(hashes: Any, count: Any, multipliers: Any, increments: Any, signature: Any) -> Any:  # noqa: ARG001
    least = _least_32 if hashes.dtype.bitwidth == 32 else _least_64

    def implementation(hashes: Any, count: Any, multipliers: Any, increments: Any, signature: Any) -> Any:
        padded = count
        # The same hash once more changes no minimum, and spares the loop its slow end.
        while padded % PAD_WINDOWS:
            hashes[padded] = hashes[count - 1]
            padded += 1
        least(hashes, padded, multipliers, increments, signature)

    return implementation


@njit(nogil=True)
def _take_windows(
    data: Any,
    at: int,
    stop: int,
    width: int,
    seed: int,
    multipliers: Any,
    increments: Any,
    mixed: Any,
    starts: Any,
    hashes: Any,
    signature: Any,
) -> tuple[int, int]:
    """Take all windows of a piece of text; return where the next would begin, and how many there were."""
    total = 0
    while True:
        at, windows = hash_windows(data, at, stop, width, seed, mixed, starts, hashes)
        if windows == 0:
            return at, total
        take_least(hashes, windows, multipliers, increments, signature)
        total += windows


@njit(nogil=True)
def _take_whole(
    data: Any, at: int, stop: int, seed: int, multipliers: Any, increments: Any, hashes: Any, signature: Any
) -> None:
    """Take a text that is too short for a shingle as one; an empty one has zeros."""
    if at == stop:
        signature[:] = 0
        return
    hashes[0] = murmur(data, at, stop - at, seed)
    take_least(hashes, 1, multipliers, increments, signature)


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OFFSETS = types.Array(types.int64, 1, "C", readonly=True)
_PAGE_OF = types.Array(types.uint16, 1, "C", readonly=True)
_STEPS = types.Array(types.int32, 2, "C", readonly=True)


def _numbers(word: Any) -> Any:
    return types.Array(word, 1, "C", readonly=True)


_CHARACTER_SIGNATURES = [
    types.void(_BYTES, _OFFSETS, types.int64, word, _numbers(word), _numbers(word), word[:, ::1])
    for word in (types.uint32, types.uint64)
]


@njit(_CHARACTER_SIGNATURES, nogil=True, cache=True)
def sketch_characters(
    data: Any, offsets: Any, width: int, seed: int, multipliers: Any, increments: Any, signatures: Any
) -> None:
    """Lower each row of ``signatures``, shape (rows, permutations), to that of all windows of its text."""
    mixed = np.empty(CHUNK_WINDOWS + width, dtype=np.uint32)
    starts = np.empty(CHUNK_WINDOWS + width, dtype=np.int64)
    hashes = np.empty(CHUNK_WINDOWS, dtype=multipliers.dtype)
    for row in range(len(signatures)):
        at, stop, signature = offsets[row], offsets[row + 1], signatures[row]
        _, windows = _take_windows(
            data, at, stop, width, seed, multipliers, increments, mixed, starts, hashes, signature
        )
        if windows == 0:
            _take_whole(data, at, stop, seed, multipliers, increments, hashes, signature)


_NORMALIZED_SIGNATURES = [
    types.void(
        _BYTES,
        _OFFSETS,
        _BYTES,
        _PAGE_OF,
        _STEPS,
        types.int64,
        word,
        _numbers(word),
        _numbers(word),
        word[:, ::1],
    )
    for word in (types.uint32, types.uint64)
]


@njit(_NORMALIZED_SIGNATURES, nogil=True, cache=True)
def sketch_normalized_characters(
    data: Any,
    offsets: Any,
    lowered: Any,
    page_of: Any,
    pages: Any,
    width: int,
    seed: int,
    multipliers: Any,
    increments: Any,
    signatures: Any,
) -> None:
    """As `sketch_characters`, of texts in lower case, with runs of white space as one space and none at the ends."""
    mixed = np.empty(CHUNK_WINDOWS + width, dtype=np.uint32)
    starts = np.empty(CHUNK_WINDOWS + width, dtype=np.int64)
    hashes = np.empty(CHUNK_WINDOWS, dtype=multipliers.dtype)
    piece = np.empty(PIECE_BYTES + 8, dtype=np.uint8)
    for row in range(len(signatures)):
        at, stop, signature = offsets[row], offsets[row + 1], signatures[row]
        held = spaced = total = 0
        while True:
            at, held, spaced = fill_normalized(data, at, stop, piece, held, spaced, lowered, page_of, pages)
            full = held >= PIECE_BYTES
            start, windows = _take_windows(
                piece, 0, held, width, seed, multipliers, increments, mixed, starts, hashes, signature
            )
            total += windows
            if not full:
                break
            if windows == 0:
                # No UTF-8: a whole piece without an end of a code point. It is taken as a shingle.
                _take_whole(piece, 0, held, seed, multipliers, increments, hashes, signature)
                start, total = held, total + 1
            piece[: held - start] = piece[start:held].copy()
            held -= start
        if total == 0:
            _take_whole(piece, 0, held, seed, multipliers, increments, hashes, signature)


_WORD_SIGNATURES = [
    types.void(
        _BYTES,
        _OFFSETS,
        _BYTES,
        _PAGE_OF,
        _STEPS,
        types.boolean,
        types.int64,
        word,
        _numbers(word),
        _numbers(word),
        word[:, ::1],
    )
    for word in (types.uint32, types.uint64)
]


@njit(_WORD_SIGNATURES, nogil=True, cache=True)
def sketch_words(
    data: Any,
    offsets: Any,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    lower: bool,
    size: int,
    seed: int,
    multipliers: Any,
    increments: Any,
    signatures: Any,
) -> None:
    """Lower each row of ``signatures`` to that of all runs of ``size`` words, joined without white space."""
    hashes = np.empty(CHUNK_WINDOWS, dtype=multipliers.dtype)
    word_ends = np.empty(CHUNK_WINDOWS, dtype=np.int64)
    buffer = np.empty(BUFFER_BYTES, dtype=np.uint8)
    for row in range(len(signatures)):
        at, stop, signature = offsets[row], offsets[row + 1], signatures[row]
        held = words = total = 0
        while True:
            before = at
            at, held, words = fill_words(
                data, at, stop, buffer, held, word_ends, words, byte_of, page_of, pages, lower
            )
            windows = words - size + 1
            if windows > 0:
                start = 0
                for number in range(windows):
                    hashes[number] = murmur(buffer, start, word_ends[number + size - 1] - start, seed)
                    start = word_ends[number]
                take_least(hashes, windows, multipliers, increments, signature)
                total += windows
                held, words = keep_last_words(buffer, held, word_ends, words, size - 1)
            if at == stop and held == (word_ends[words - 1] if words else 0):
                break
            if at < stop and (windows <= 0 or at == before):
                longer = np.empty(held + 3 * (stop - at) // 2 + 64, dtype=np.uint8)
                longer[:held] = buffer[:held]
                buffer = longer
        if total == 0:
            _take_whole(buffer, 0, held, seed, multipliers, increments, hashes, signature)

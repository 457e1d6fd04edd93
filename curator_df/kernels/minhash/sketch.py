# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ARG001 - what stands for a function has its parameters
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled MinHash signatures: the minimum of every permutation over the shingle hashes of each text.

See `minhash` for the functions to call, and for what is proved about the bits. The permutation is implemented only in `least_32`
and `least_64`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import chosen, helper, kernel, types
from curator_df.kernels.minhash.shingle_hashes import (
    AT,
    BYTE_TABLE,
    CHUNK_HASHES,
    OFFSETS,
    PAGE_TABLE,
    STATE,
    STEP_TABLE,
    UTF8,
    next_characters,
    next_normalized,
    next_words,
    shingle_workspace,
)

PAD_HASHES = 32
"""Multiple to which a chunk is filled with its last hash: the number of hashes in one step of an unrolled loop of 8 lanes."""
_MERSENNE_BITS = 61
_MERSENNE = (1 << _MERSENNE_BITS) - 1


@helper
def least_32(hashes: Any, count: int, multipliers: Any, increments: Any, signature: Any) -> None:
    """Lower a signature to the minimum of ``multiplier * hash + increment`` modulo 2^32.

    Three vector instructions for eight hashes, and it is their number that bounds it: 27 G hashes a second on a core with
    AVX2 (10 such instructions a nanosecond), where addition and minimum alone reach 45 and product and minimum 38.
    """
    for number in range(len(signature)):
        multiplier, increment = multipliers[number], increments[number]
        least = signature[number]
        for place in range(count):
            # Wraps at 32 bits, after which a remainder by 2^61 - 1 changes nothing.
            least = min(least, np.uint32(multiplier * hashes[place] + increment))
        signature[number] = least


@helper
def least_64(hashes: Any, count: int, multipliers: Any, increments: Any, signature: Any) -> None:
    """Lower a signature to the minimum of ``multiplier * hash + increment`` modulo 2^64, and then modulo 2^61 - 1."""
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


def _least_of(hashes: Any, count: Any, multipliers: Any, increments: Any, signature: Any) -> Any:
    return least_32 if hashes.dtype.bitwidth == 32 else least_64


@chosen(_least_of)
def _least(hashes: Any, count: int, multipliers: Any, increments: Any, signature: Any) -> None:
    """Lower a signature like `least_32` or `least_64`. For compiled code only."""
    raise TypeError("_least cannot be called from Python. Call it in a function that numba compiles")


@helper
def take_least(hashes: Any, count: int, multipliers: Any, increments: Any, signature: Any) -> None:
    """Lower a signature to the minimum permuted values of some hashes."""
    padded = count
    # Repeating the last hash changes no minimum, and avoids the slow end of the loop.
    while padded % PAD_HASHES:
        hashes[padded] = hashes[count - 1]
        padded += 1
    _least(hashes, padded, multipliers, increments, signature)


@helper
def _sketch(
    next_shingles: Any,
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    seed: int,
    multipliers: Any,
    increments: Any,
    signatures: Any,
) -> None:
    buffer, arrays = shingle_workspace(size)
    hashes = np.empty(CHUNK_HASHES, dtype=multipliers.dtype)
    state = np.empty(STATE, dtype=np.int64)
    for row in range(len(signatures)):
        state[:] = 0
        state[AT] = offsets[row]
        signature = signatures[row]
        total = 0
        while True:
            count, buffer = next_shingles(
                data, offsets[row + 1], state, kind, size, seed, byte_of, page_of, pages, buffer, arrays, hashes
            )
            if count == 0:
                break
            take_least(hashes, count, multipliers, increments, signature)
            total += count
        if total == 0:
            signature[:] = 0


def _signature(word: Any) -> Any:
    permutation = types.Array(word, 1, "C", readonly=True)
    text = (UTF8, OFFSETS, types.int64, types.int64, BYTE_TABLE, PAGE_TABLE, STEP_TABLE)
    return types.void(*text, word, permutation, permutation, word[:, ::1])


@kernel(_signature(types.uint32))
def sketch_characters_32(
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    seed: int,
    multipliers: Any,
    increments: Any,
    signatures: Any,
) -> None:
    """Lower each row of ``signatures``, shape (rows, permutations), to that of all shingles of its text.

    The caller fills the rows with the largest number of their type. A text without shingles gets zeros.
    """
    _sketch(
        next_characters, data, offsets, kind, size, byte_of, page_of, pages, seed, multipliers, increments, signatures
    )


@kernel(_signature(types.uint32))
def sketch_normalized_32(
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    seed: int,
    multipliers: Any,
    increments: Any,
    signatures: Any,
) -> None:
    """Lower each row of ``signatures`` like `sketch_characters_32`, with hashes of 32 bits of characters in lower case."""
    _sketch(
        next_normalized, data, offsets, kind, size, byte_of, page_of, pages, seed, multipliers, increments, signatures
    )


@kernel(_signature(types.uint32))
def sketch_words_32(
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    seed: int,
    multipliers: Any,
    increments: Any,
    signatures: Any,
) -> None:
    """Lower each row of ``signatures`` like `sketch_characters_32`, with hashes of 32 bits of words."""
    _sketch(next_words, data, offsets, kind, size, byte_of, page_of, pages, seed, multipliers, increments, signatures)


@kernel(_signature(types.uint64))
def sketch_characters_64(
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    seed: int,
    multipliers: Any,
    increments: Any,
    signatures: Any,
) -> None:
    """Lower each row of ``signatures`` like `sketch_characters_32`, with hashes of 64 bits of unchanged characters."""
    _sketch(
        next_characters, data, offsets, kind, size, byte_of, page_of, pages, seed, multipliers, increments, signatures
    )


@kernel(_signature(types.uint64))
def sketch_normalized_64(
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    seed: int,
    multipliers: Any,
    increments: Any,
    signatures: Any,
) -> None:
    """Lower each row of ``signatures`` like `sketch_characters_32`, with hashes of 64 bits of characters in lower case."""
    _sketch(
        next_normalized, data, offsets, kind, size, byte_of, page_of, pages, seed, multipliers, increments, signatures
    )


@kernel(_signature(types.uint64))
def sketch_words_64(
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    seed: int,
    multipliers: Any,
    increments: Any,
    signatures: Any,
) -> None:
    """Lower each row of ``signatures`` like `sketch_characters_32`, with hashes of 64 bits of words."""
    _sketch(next_words, data, offsets, kind, size, byte_of, page_of, pages, seed, multipliers, increments, signatures)

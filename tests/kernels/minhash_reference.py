# SPDX-License-Identifier: Apache-2.0
"""MinHash in plain Python, from the published descriptions: what the compiled kernels are held against."""

from __future__ import annotations

MASK_32 = (1 << 32) - 1
MASK_64 = (1 << 64) - 1
MERSENNE = (1 << 61) - 1


def rotated(word, bits, width):
    return (word << bits | word >> (width - bits)) & ((1 << width) - 1)


def murmur_32(data, seed):
    """MurmurHash3_x86_32."""

    def mixed(block):
        word = int.from_bytes(block, "little") * 0xCC9E2D51 & MASK_32
        return rotated(word, 15, 32) * 0x1B873593 & MASK_32

    state, whole = seed, len(data) // 4 * 4
    for at in range(0, whole, 4):
        state = (rotated(state ^ mixed(data[at : at + 4]), 13, 32) * 5 + 0xE6546B64) & MASK_32
    state ^= mixed(data[whole:]) ^ len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & MASK_32
    state = (state ^ state >> 13) * 0xC2B2AE35 & MASK_32
    return state ^ state >> 16


def finished_64(word):
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & MASK_64
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & MASK_64
    return word ^ word >> 33


def murmur_64(data, seed):
    """Return the first word of MurmurHash3_x64_128."""
    c1, c2, high, low = 0x87C37B91114253D5, 0x4CF5AD432745937F, seed, seed
    for at in range(0, len(data), 16):
        block, whole = data[at : at + 16].ljust(16, b"\0"), at + 16 <= len(data)
        first, second = (int.from_bytes(half, "little") for half in (block[:8], block[8:]))
        high ^= rotated(first * c1 & MASK_64, 31, 64) * c2 & MASK_64
        if whole:
            high = ((rotated(high, 27, 64) + low) * 5 + 0x52DCE729) & MASK_64
        low ^= rotated(second * c2 & MASK_64, 33, 64) * c1 & MASK_64
        if whole:
            low = ((rotated(low, 31, 64) + high) * 5 + 0x38495AB5) & MASK_64
    high, low = high ^ len(data), low ^ len(data)
    high = (high + low) & MASK_64
    low = (low + high) & MASK_64
    return (finished_64(high) + finished_64(low)) & MASK_64


def character_shingles(text, size):
    if len(text) < size:
        return [text] if text else []
    return [text[at : at + size] for at in range(len(text) - size + 1)]


def word_shingles(words, size):
    if len(words) < size:
        return ["".join(words)] if words else []
    return ["".join(words[at : at + size]) for at in range(len(words) - size + 1)]


def signature(shingles, seed, multipliers, increments, bits):
    """Return the least permuted hash of the shingles for each permutation; zeros without shingles."""
    if not shingles:
        return [0] * len(multipliers)
    murmur, mask = (murmur_32, MASK_32) if bits == 32 else (murmur_64, MASK_64)
    hashes = [max(murmur(shingle.encode(), seed), 1) for shingle in shingles]
    return [
        min((a * value + b & mask) % MERSENNE for value in hashes) for a, b in zip(multipliers, increments, strict=True)
    ]


def band_hash(values):
    mixed = len(values)
    for value in values:
        mixed = finished_64(mixed ^ value)
    return mixed

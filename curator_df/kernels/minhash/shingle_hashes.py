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

from curator_df.kernels.compiling.compiled import chosen, helper, inlined, types
from curator_df.kernels.metrics.ngrams.word_windows import BUFFER_BYTES, fill_words, keep_last_words
from curator_df.kernels.text.murmur_hash import PIECE_BYTES, fill_normalized
from curator_df.kernels.text.murmur_windows import CHUNK_WINDOWS, hash_windows, hash_word_runs, murmur
from curator_df.kernels.text.rolled_windows import roll_windows

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
    raise TypeError("_windows is for compiled code")


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

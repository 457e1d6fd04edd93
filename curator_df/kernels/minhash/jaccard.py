# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Pairs of texts as sets of shingles: the fraction that both share, which is the exact Jaccard similarity.

Shingles are compared by a hash: of words, with a space between them, other than in signatures, 62 bits of
MurmurHash3_x64_128 with seed 0; of characters a polynomial modulo 2^61 - 1 (`rolled_windows`). Among a million shingles of two
texts the chance that any two collide is about 10^-7 with words, and at most 10^-5 with 24 characters of ASCII; the
similarity would then be off by 10^-6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.errors import ParameterError
from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.minhash.scheme import Scheme, shingle_settings, shingle_unit
from curator_df.kernels.minhash.shingle_hashes import (
    AT,
    BYTE_TABLE,
    CHUNK_HASHES,
    OFFSETS,
    PAGE_TABLE,
    STATE,
    STEP_TABLE,
    UTF8,
    WITH_GAPS,
    WORDS,
    next_characters,
    next_normalized,
    next_words,
    shingle_workspace,
)
from curator_df.kernels.text.buffers import string_buffers, text_chunks

_U: Any = np.uint64
LEFT, RIGHT, BOTH = _U(1), _U(2), _U(3)
HASH_BITS = ~BOTH
"""Bits of a hash that identify a shingle; the others are its side."""
SEED: Any = np.int64(0)
"""Seed of the hashes; it is signed because sets are compared."""
_LEAST_SLOTS = 64
WORD_BYTES = 4
"""Minimum number of bytes expected for each word of two texts, with its separator; English has six."""


_SHARED, _IGNORED, _IGNORED_SHARED = range(3)


@helper
def is_in(table: Any, key: int) -> bool:
    """Return whether a table of hashes, a power of two of slots of which some are empty, has one."""
    mask = _U(len(table) - 1)
    slot = (key >> _U(2)) & mask
    while table[slot] != 0:
        if table[slot] == key:
            return True
        slot = (slot + _U(1)) & mask
    return False


@helper
def insert_hashes(
    table: Any,
    slots: int,
    used: int,
    most: int,
    hashes: Any,
    count: int,
    side: int,
    part: int,
    parts: int,
    ignored: Any,
    counts: Any,
) -> int:
    """Add hashes of one part to the table; return the slots used (-1 if too many).

    ``counts`` is increased by the slots that are now used by both texts, and by the ignored shingles of the union and of those.
    """
    mask = _U(slots - 1)
    for number in range(count):
        if parts > 1 and types.int64(((hashes[number] >> _U(32)) * _U(parts)) >> _U(32)) != part:
            continue
        # The two lowest bits are the texts that have it; an empty slot is zero.
        key = max(hashes[number] & HASH_BITS, _U(4))
        slot = (key >> _U(2)) & mask
        while table[slot] != 0 and table[slot] & HASH_BITS != key:
            slot = (slot + _U(1)) & mask
        held = table[slot]
        if held == 0:
            if used == most:
                return -1
            used += 1
            if len(ignored) > 1 and is_in(ignored, key):
                counts[_IGNORED] += 1
        elif held & side == 0 and held & BOTH != 0:
            counts[_SHARED] += 1
            if len(ignored) > 1 and is_in(ignored, key):
                counts[_IGNORED_SHARED] += 1
        table[slot] = held | key | side
    return used


@helper
def slots_for(shingles: int, most_slots: int) -> int:
    """Return a power of two that is twice the shingles, or the largest allowed."""
    slots = _LEAST_SLOTS
    while slots < 2 * shingles and slots < most_slots:
        slots *= 2
    return slots


_SIGNATURE = types.int64(
    UTF8,
    OFFSETS,
    UTF8,
    OFFSETS,
    types.Array(types.int64, 2, "C", readonly=True),
    types.int64,
    types.int64,
    BYTE_TABLE,
    PAGE_TABLE,
    STEP_TABLE,
    types.uint64[::1],
    types.Array(types.uint64, 1, "C", readonly=True),
    types.float64[:, ::1],
)


@helper
def _similarities(
    next_shingles: Any,
    left: Any,
    left_offsets: Any,
    right: Any,
    right_offsets: Any,
    pairs: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    table: Any,
    ignored: Any,
    similarities: Any,
) -> int:
    buffer, arrays = shingle_workspace(size)
    hashes = np.empty(CHUNK_HASHES, dtype=np.uint64)
    state = np.empty(STATE, dtype=np.int64)
    counts = np.zeros(3, dtype=np.int64)
    texts_read = 0
    for number in range(len(pairs)):
        left_row, right_row = pairs[number, 0], pairs[number, 1]
        left_bytes = left_offsets[left_row + 1] - left_offsets[left_row]
        expected = left_bytes + right_offsets[right_row + 1] - right_offsets[right_row]
        if kind % WITH_GAPS >= WORDS:
            expected = expected // WORD_BYTES + 1
        slots = slots_for(expected, len(table))
        parts = 1 + expected // (len(table) // 2)
        part = union = 0
        counts[:] = 0
        while part < parts:
            table[:slots] = 0
            used = 0
            for side in (LEFT, RIGHT):
                data, at, stop = left, left_offsets[left_row], left_offsets[left_row + 1]
                if side == RIGHT:
                    data, at, stop = right, right_offsets[right_row], right_offsets[right_row + 1]
                state[:] = 0
                state[AT] = at
                texts_read += 1
                while used >= 0:
                    count, buffer = next_shingles(
                        data, stop, state, kind, size, SEED, byte_of, page_of, pages, buffer, arrays, hashes
                    )
                    if count == 0:
                        break
                    most = slots // 4 * 3
                    used = insert_hashes(table, slots, used, most, hashes, count, side, part, parts, ignored, counts)
            if used < 0:
                slots, parts = (4 * slots, parts) if 4 * slots <= len(table) else (len(table), 2 * parts)
                part = union = 0
                counts[:] = 0
                continue
            part, union = part + 1, union + used
        similarities[number, 0] = counts[_SHARED] / union if union else 1.0
        rest = union - counts[_IGNORED]
        similarities[number, 1] = (
            (counts[_SHARED] - counts[_IGNORED_SHARED]) / rest if rest else similarities[number, 0]
        )
    return texts_read


@kernel(_SIGNATURE)
def similarities_of_characters(
    left: Any,
    left_offsets: Any,
    right: Any,
    right_offsets: Any,
    pairs: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    table: Any,
    ignored: Any,
    similarities: Any,
) -> int:
    """Compute intersection over union for each pair of rows, of all shingles and of those that are not ignored.

    Returns the number of readings of texts. ``ignored``: a table of hashes (`hash_table`); of length 1 for none. If all
    shingles of a pair are ignored, both numbers are that of all.

    ``table``: a power of two of slots. A pair uses only the number it probably fills, which stay in the cache of
    the CPU; if it has more shingles, its texts are read again with more slots. If two texts have more shingles than three
    quarters of the table, they are read several times, and each time only the shingles of one part of all hashes are
    counted.
    """
    return _similarities(
        next_characters,
        left,
        left_offsets,
        right,
        right_offsets,
        pairs,
        kind,
        size,
        byte_of,
        page_of,
        pages,
        table,
        ignored,
        similarities,
    )


@kernel(_SIGNATURE)
def similarities_of_normalized(
    left: Any,
    left_offsets: Any,
    right: Any,
    right_offsets: Any,
    pairs: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    table: Any,
    ignored: Any,
    similarities: Any,
) -> int:
    """Compute similarities like `similarities_of_characters`, of texts as sets of shingles of characters in lower case."""
    return _similarities(
        next_normalized,
        left,
        left_offsets,
        right,
        right_offsets,
        pairs,
        kind,
        size,
        byte_of,
        page_of,
        pages,
        table,
        ignored,
        similarities,
    )


@kernel(_SIGNATURE)
def similarities_of_words(
    left: Any,
    left_offsets: Any,
    right: Any,
    right_offsets: Any,
    pairs: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    table: Any,
    ignored: Any,
    similarities: Any,
) -> int:
    """Compute similarities like `similarities_of_characters`, of texts as sets of shingles of words."""
    return _similarities(
        next_words,
        left,
        left_offsets,
        right,
        right_offsets,
        pairs,
        kind,
        size,
        byte_of,
        page_of,
        pages,
        table,
        ignored,
        similarities,
    )


NOTHING_IGNORED: npt.NDArray[np.uint64] = np.zeros(1, dtype=np.uint64)
"""Table of hashes without any."""
TABLE_BYTES = 8 << 20
"""Default size of the table of shingles: pairs of up to half a million bytes are read once, longer ones several times."""
_LEAST_TABLE_BYTES = 1 << 10


_SIMILARITIES = {
    "characters": similarities_of_characters,
    "normalized": similarities_of_normalized,
    "words": similarities_of_words,
}
"""Kernel for each kind of shingles, `scheme.shingle_unit`."""


def jaccard_similarities(
    left: pd.Series,
    right: pd.Series,
    pairs: npt.NDArray[np.int64],
    scheme: Scheme,
    *,
    table_bytes: int = TABLE_BYTES,
    ignored: npt.NDArray[np.uint64] = NOTHING_IGNORED,
) -> npt.NDArray[np.float64]:
    """Compute the Jaccard similarity of pairs of texts.

    Parameters
    ----------
    left, right : pandas.Series of strings
        Texts; they may be the same series. Null counts as empty.
    pairs : ndarray of int64, shape (pairs, 2)
        Position in ``left`` and position in ``right``.
    scheme : Scheme
        Definition of a shingle: only the fields ``ngrams``, ``ngram_size`` and ``normalize`` are used.
    table_bytes : int
        Size of the table of shingles; rounded down to a power of two.
    ignored : ndarray of uint64
        Result of `hash_table` for shingles to leave out. By default none.

    Returns
    -------
    ndarray of float64, shape (pairs, 2) with ``ignored``, otherwise (pairs,)
        Similarities from 0 to 1: of all shingles, and of those that are not ignored. A text shorter than a shingle is one
        shingle. Two texts without shingles have 1.

    Raises
    ------
    ParameterError
        If a pair has a row that does not exist, or the table would be smaller than 1 KiB.

    Notes
    -----
    Memory: ``table_bytes``, 0.2 MB, and a copy of a series that has several Arrow chunks. Time: both texts of a pair are
    read once for every ``table_bytes / 16`` bytes that they have together, at about 100 MB/s with characters and
    280 MB/s with words; for pairs of very long texts a larger table is faster.

    Examples
    --------
    >>> texts = pd.Series(["one two three four", "one two three five"])
    >>> jaccard_similarities(texts, texts, np.array([[0, 1], [1, 1]]), Scheme("words", 2, 1, 1))
    array([0.5, 1. ])
    """
    if table_bytes < _LEAST_TABLE_BYTES:
        raise ParameterError(
            f"table_bytes={table_bytes} is less than the minimum of {_LEAST_TABLE_BYTES}. Use the minimum or more"
        )
    wanted = np.ascontiguousarray(pairs, dtype=np.int64).reshape(-1, 2)
    for name, rows, column in (("left", len(left), 0), ("right", len(right), 1)):
        if len(wanted) and not 0 <= wanted[:, column].min() <= wanted[:, column].max() < rows:
            raise ParameterError(
                f"pairs refers to rows {wanted[:, column].min()} to {wanted[:, column].max()} of {name}, which has {rows:,} rows"
                ". Row numbers begin at 0 and end one below the number of rows"
            )
    table = empty_table(table_bytes)
    similarities = np.empty((len(wanted), 2), dtype=np.float64)
    similarities_of = _SIMILARITIES[shingle_unit(scheme)]
    similarities_of(
        *text_buffers(left), *text_buffers(right), wanted, *compared_settings(scheme), table, ignored, similarities
    )
    return similarities if len(ignored) > 1 else similarities[:, 0]


def text_buffers(texts: pd.Series) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of texts, and where each begins."""
    chunks = text_chunks(texts).chunks
    whole: Any = chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, pa.large_string()).combine_chunks()
    if whole.null_count:
        # A null may cover any bytes.
        whole = whole.fill_null("")
    data, offsets = string_buffers(whole)
    return data, np.asarray(offsets, dtype=np.int64)


def empty_table(table_bytes: int) -> npt.NDArray[np.uint64]:
    """Return a table of at most that many bytes, with a power of two of slots."""
    return np.empty(1 << ((table_bytes // 8).bit_length() - 1), dtype=np.uint64)


def compared_settings(scheme: Scheme) -> tuple[Any, ...]:
    """Return `scheme.shingle_settings`, for words with the spaces between them."""
    kind, *others = shingle_settings(scheme)
    return (kind + WITH_GAPS if scheme.ngrams == "words" else kind, *others)


def hash_table(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return a table of hashes to ignore: a power of two of slots, at least twice as many as there are hashes.

    Examples
    --------
    >>> table = hash_table(np.array([4, 8, 4 + 64 * 8], dtype=np.uint64))
    >>> len(table), sorted(table[table > 0].tolist())
    (64, [4, 8, 516])
    """
    slots = _LEAST_SLOTS
    while slots < 2 * len(hashes):
        slots *= 2
    table = np.zeros(slots, dtype=np.uint64)
    fill_table(np.ascontiguousarray(hashes, dtype=np.uint64), table)
    return table


@kernel(types.void(types.Array(types.uint64, 1, "C", readonly=True), types.uint64[::1]))
def fill_table(hashes: Any, table: Any) -> None:
    """Insert distinct hashes into an empty table."""
    mask = _U(len(table) - 1)
    for number in range(len(hashes)):
        slot = (hashes[number] >> _U(2)) & mask
        while table[slot] != 0:
            slot = (slot + _U(1)) & mask
        table[slot] = hashes[number]

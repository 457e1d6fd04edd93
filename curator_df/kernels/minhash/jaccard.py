# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Pairs of texts as sets of shingles: the fraction that both share (the exact Jaccard similarity), and what only one has.

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
_LEFT, _RIGHT, _BOTH = _U(1), _U(2), _U(3)
_HASH_BITS = ~_BOTH
_SEED: Any = np.int64(0)  # signed: sets are compared
_LEAST_SLOTS = 64
WORD_BYTES = 4
"""Minimum number of bytes expected for each word of two texts, with its separator; English has six."""
RESIDUALS = 32
"""Maximum number of hashes for each text: two texts that share a seventh of these shingles share a hash in 99 of 100 cases."""


@helper
def _insert_hashes(
    table: Any, slots: int, used: int, most: int, hashes: Any, count: int, side: int, part: int, parts: int
) -> tuple[int, int]:
    """Add hashes of one part to the table; return the slots used (-1 if too many), and those now used by both."""
    shared, mask = 0, _U(slots - 1)
    for number in range(count):
        if parts > 1 and types.int64(((hashes[number] >> _U(32)) * _U(parts)) >> _U(32)) != part:
            continue
        # The two lowest bits are the texts that have it; an empty slot is zero.
        key = max(hashes[number] & _HASH_BITS, _U(4))
        slot = (key >> _U(2)) & mask
        while table[slot] != 0 and table[slot] & _HASH_BITS != key:
            slot = (slot + _U(1)) & mask
        held = table[slot]
        if held == 0:
            if used == most:
                return -1, 0
            used += 1
        elif held & side == 0 and held & _BOTH != 0:
            shared += 1
        table[slot] = held | key | side
    return used, shared


@helper
def _slots_for(shingles: int, most_slots: int) -> int:
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
    types.float64[::1],
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
    similarities: Any,
) -> int:
    buffer, arrays = shingle_workspace(size)
    hashes = np.empty(CHUNK_HASHES, dtype=np.uint64)
    state = np.empty(STATE, dtype=np.int64)
    texts_read = 0
    for number in range(len(pairs)):
        left_row, right_row = pairs[number, 0], pairs[number, 1]
        left_bytes = left_offsets[left_row + 1] - left_offsets[left_row]
        expected = left_bytes + right_offsets[right_row + 1] - right_offsets[right_row]
        if kind % WITH_GAPS >= WORDS:
            expected = expected // WORD_BYTES + 1
        slots = _slots_for(expected, len(table))
        parts = 1 + expected // (len(table) // 2)
        part = union = intersection = 0
        while part < parts:
            table[:slots] = 0
            used, shared = 0, 0
            for side in (_LEFT, _RIGHT):
                data, at, stop = left, left_offsets[left_row], left_offsets[left_row + 1]
                if side == _RIGHT:
                    data, at, stop = right, right_offsets[right_row], right_offsets[right_row + 1]
                state[:] = 0
                state[AT] = at
                texts_read += 1
                while used >= 0:
                    count, buffer = next_shingles(
                        data, stop, state, kind, size, _SEED, byte_of, page_of, pages, buffer, arrays, hashes
                    )
                    if count == 0:
                        break
                    used, more = _insert_hashes(table, slots, used, slots // 4 * 3, hashes, count, side, part, parts)
                    shared += more
            if used < 0:
                slots, parts = (4 * slots, parts) if 4 * slots <= len(table) else (len(table), 2 * parts)
                part = union = intersection = 0
                continue
            part, union, intersection = part + 1, union + used, intersection + shared
        similarities[number] = intersection / union if union else 1.0
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
    similarities: Any,
) -> int:
    """Compute intersection over union for each pair of rows; return the number of readings of texts.

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
        similarities,
    )


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

    Returns
    -------
    ndarray of float64, shape (pairs,)
        Similarities from 0 to 1. A text shorter than a shingle is one shingle. Two texts without shingles have 1.

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
    table = _table(table_bytes)
    similarities = np.empty(len(wanted), dtype=np.float64)
    similarities_of = _SIMILARITIES[shingle_unit(scheme)]
    similarities_of(*_text_buffers(left), *_text_buffers(right), wanted, *_settings(scheme), table, similarities)
    return similarities


@helper
def _take_least(least: Any, count: int, found: Any) -> int:
    """Insert a hash into the ascending smallest ones; return how many there are."""
    if count == len(least):
        if found >= least[count - 1]:
            return count
        count -= 1
    place = count
    while place > 0 and least[place - 1] > found:
        least[place] = least[place - 1]
        place -= 1
    least[place] = found
    return count + 1


@helper
def _residuals(
    next_shingles: Any,
    data: Any,
    offsets: Any,
    pairs: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    table: Any,
    hashes_of: Any,
    counts: Any,
) -> int:
    buffer, arrays = shingle_workspace(size)
    hashes = np.empty(CHUNK_HASHES, dtype=np.uint64)
    state = np.empty(STATE, dtype=np.int64)
    for number in range(len(pairs)):
        row, other = pairs[number, 0], pairs[number, 1]
        expected = offsets[row + 1] - offsets[row] + offsets[other + 1] - offsets[other]
        if kind % WITH_GAPS >= WORDS:
            expected = expected // WORD_BYTES + 1
        slots = _slots_for(expected, len(table))
        # Of longer texts only the smaller hashes are taken: the first of several parts.
        parts = 1 + expected // (len(table) // 2)
        done = False
        while not done:
            table[:slots] = 0
            used = 0
            for side in (_LEFT, _RIGHT):
                text = other if side == _LEFT else row
                state[:] = 0
                state[AT] = offsets[text]
                while used >= 0:
                    count, buffer = next_shingles(
                        data,
                        offsets[text + 1],
                        state,
                        kind,
                        size,
                        _SEED,
                        byte_of,
                        page_of,
                        pages,
                        buffer,
                        arrays,
                        hashes,
                    )
                    if count == 0:
                        break
                    used, _ = _insert_hashes(table, slots, used, slots // 4 * 3, hashes, count, side, 0, parts)
            done = used >= 0
            if not done:
                slots, parts = (4 * slots, parts) if 4 * slots <= len(table) else (len(table), 2 * parts)
        taken = 0
        for slot in range(slots):
            if table[slot] & _BOTH == _RIGHT:
                taken = _take_least(hashes_of[number], taken, table[slot])
        counts[number] = taken
    return len(pairs)


_RESIDUAL_SIGNATURE = types.int64(
    UTF8,
    OFFSETS,
    types.Array(types.int64, 2, "C", readonly=True),
    types.int64,
    types.int64,
    BYTE_TABLE,
    PAGE_TABLE,
    STEP_TABLE,
    types.uint64[::1],
    types.Array(types.uint64, 2, "C"),
    types.int64[::1],
)


@kernel(_RESIDUAL_SIGNATURE)
def residuals_of_characters(
    data: Any,
    offsets: Any,
    pairs: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    table: Any,
    hashes_of: Any,
    counts: Any,
) -> int:
    """Write the smallest hashes of shingles that the first row of each pair has and the second lacks; return the pairs."""
    return _residuals(
        next_characters, data, offsets, pairs, kind, size, byte_of, page_of, pages, table, hashes_of, counts
    )


@kernel(_RESIDUAL_SIGNATURE)
def residuals_of_normalized(
    data: Any,
    offsets: Any,
    pairs: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    table: Any,
    hashes_of: Any,
    counts: Any,
) -> int:
    """Write hashes like `residuals_of_characters`, of texts as sets of shingles of characters in lower case."""
    return _residuals(
        next_normalized, data, offsets, pairs, kind, size, byte_of, page_of, pages, table, hashes_of, counts
    )


@kernel(_RESIDUAL_SIGNATURE)
def residuals_of_words(
    data: Any,
    offsets: Any,
    pairs: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    table: Any,
    hashes_of: Any,
    counts: Any,
) -> int:
    """Write hashes like `residuals_of_characters`, of texts as sets of shingles of words."""
    return _residuals(next_words, data, offsets, pairs, kind, size, byte_of, page_of, pages, table, hashes_of, counts)


_RESIDUALS = {
    "characters": residuals_of_characters,
    "normalized": residuals_of_normalized,
    "words": residuals_of_words,
}
"""Kernel for each kind of shingles, `scheme.shingle_unit`."""


def residual_hashes(
    texts: pd.Series, pairs: npt.NDArray[np.int64], scheme: Scheme, *, table_bytes: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Return the smallest hashes of shingles that the first text of each pair has and the second lacks.

    Parameters
    ----------
    texts : pandas.Series of strings
        Texts. Null counts as empty.
    pairs : ndarray of int64, shape (pairs, 2)
        Positions in ``texts``.
    scheme : Scheme
        Definition of a shingle, as in `jaccard_similarities`.
    table_bytes : int
        Size of the table of shingles. Of texts with more shingles only the smaller hashes are considered.

    Returns
    -------
    hashes : ndarray of uint64, shape (hashes,)
        At most `RESIDUALS` for each pair, in ascending order.
    numbers : ndarray of int64, shape (hashes,)
        Pair of each hash.

    Examples
    --------
    >>> texts = pd.Series(["all pages say this, one adds that", "all pages say this, another adds that"])
    >>> hashes, numbers = residual_hashes(texts, np.array([[0, 1]]), Scheme("words", 2, 1, 1), table_bytes=4096)
    >>> len(hashes), numbers.tolist()
    (2, [0, 0])
    """
    wanted = np.ascontiguousarray(pairs, dtype=np.int64).reshape(-1, 2)
    table = _table(table_bytes)
    hashes = np.empty((len(wanted), RESIDUALS), dtype=np.uint64)
    counts = np.empty(len(wanted), dtype=np.int64)
    _RESIDUALS[shingle_unit(scheme)](*_text_buffers(texts), wanted, *_settings(scheme), table, hashes, counts)
    is_taken = np.arange(RESIDUALS) < counts[:, None]
    return hashes[is_taken], np.repeat(np.arange(len(wanted)), counts)


def _text_buffers(texts: pd.Series) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes of texts, and where each begins."""
    chunks = text_chunks(texts).chunks
    whole: Any = chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, pa.large_string()).combine_chunks()
    if whole.null_count:
        # A null may cover any bytes.
        whole = whole.fill_null("")
    data, offsets = string_buffers(whole)
    return data, np.asarray(offsets, dtype=np.int64)


def _table(table_bytes: int) -> npt.NDArray[np.uint64]:
    """Return a table of at most that many bytes, with a power of two of slots."""
    return np.empty(1 << ((table_bytes // 8).bit_length() - 1), dtype=np.uint64)


def _settings(scheme: Scheme) -> tuple[Any, ...]:
    """Return `scheme.shingle_settings`, for words with the spaces between them."""
    kind, *others = shingle_settings(scheme)
    return (kind + WITH_GAPS if scheme.ngrams == "words" else kind, *others)

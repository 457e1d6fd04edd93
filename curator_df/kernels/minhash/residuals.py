# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Hashes of shingles that only one text of a pair has, by which near duplicates among many similar texts are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.minhash.jaccard import (
    BOTH,
    HASH_BITS,
    LEFT,
    NOTHING_IGNORED,
    RIGHT,
    SEED,
    WORD_BYTES,
    compared_settings,
    empty_table,
    insert_hashes,
    is_in,
    slots_for,
    text_buffers,
)
from curator_df.kernels.minhash.scheme import Scheme, shingle_unit
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

RESIDUALS = 32
"""Maximum number of hashes for each text: two texts that share a seventh of these shingles share a hash in 99 of 100 cases."""


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
    ignored: Any,
    hashes_of: Any,
    counts: Any,
) -> int:
    buffer, arrays = shingle_workspace(size)
    hashes = np.empty(CHUNK_HASHES, dtype=np.uint64)
    state = np.empty(STATE, dtype=np.int64)
    unused = np.zeros(3, dtype=np.int64)
    for number in range(len(pairs)):
        row, other = pairs[number, 0], pairs[number, 1]
        expected = offsets[row + 1] - offsets[row] + offsets[other + 1] - offsets[other]
        if kind % WITH_GAPS >= WORDS:
            expected = expected // WORD_BYTES + 1
        slots = slots_for(expected, len(table))
        # Of longer texts only the smaller hashes are taken: the first of several parts.
        parts = 1 + expected // (len(table) // 2)
        done = False
        while not done:
            table[:slots] = 0
            used = 0
            for side in (LEFT, RIGHT):
                text = other if side == LEFT else row
                state[:] = 0
                state[AT] = offsets[text]
                while used >= 0:
                    count, buffer = next_shingles(
                        data,
                        offsets[text + 1],
                        state,
                        kind,
                        size,
                        SEED,
                        byte_of,
                        page_of,
                        pages,
                        buffer,
                        arrays,
                        hashes,
                    )
                    if count == 0:
                        break
                    used = insert_hashes(
                        table, slots, used, slots // 4 * 3, hashes, count, side, 0, parts, ignored, unused
                    )
            done = used >= 0
            if not done:
                slots, parts = (4 * slots, parts) if 4 * slots <= len(table) else (len(table), 2 * parts)
        taken = 0
        for slot in range(slots):
            if table[slot] & BOTH == RIGHT and not (len(ignored) > 1 and is_in(ignored, table[slot] & HASH_BITS)):
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
    types.Array(types.uint64, 1, "C", readonly=True),
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
    ignored: Any,
    hashes_of: Any,
    counts: Any,
) -> int:
    """Write the smallest hashes of shingles that the first row of each pair has and the second lacks; return the pairs."""
    return _residuals(
        next_characters, data, offsets, pairs, kind, size, byte_of, page_of, pages, table, ignored, hashes_of, counts
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
    ignored: Any,
    hashes_of: Any,
    counts: Any,
) -> int:
    """Write hashes like `residuals_of_characters`, of texts as sets of shingles of characters in lower case."""
    return _residuals(
        next_normalized, data, offsets, pairs, kind, size, byte_of, page_of, pages, table, ignored, hashes_of, counts
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
    ignored: Any,
    hashes_of: Any,
    counts: Any,
) -> int:
    """Write hashes like `residuals_of_characters`, of texts as sets of shingles of words."""
    return _residuals(
        next_words, data, offsets, pairs, kind, size, byte_of, page_of, pages, table, ignored, hashes_of, counts
    )


_RESIDUALS = {
    "characters": residuals_of_characters,
    "normalized": residuals_of_normalized,
    "words": residuals_of_words,
}
"""Kernel for each kind of shingles, `scheme.shingle_unit`."""


def residual_hashes(
    texts: pd.Series,
    pairs: npt.NDArray[np.int64],
    scheme: Scheme,
    *,
    table_bytes: int,
    ignored: npt.NDArray[np.uint64] = NOTHING_IGNORED,
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
    ignored : ndarray of uint64
        Result of `hash_table` for shingles to leave out. By default none.

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
    table = empty_table(table_bytes)
    hashes = np.empty((len(wanted), RESIDUALS), dtype=np.uint64)
    counts = np.empty(len(wanted), dtype=np.int64)
    settings = compared_settings(scheme)
    _RESIDUALS[shingle_unit(scheme)](*text_buffers(texts), wanted, *settings, table, ignored, hashes, counts)
    is_taken = np.arange(RESIDUALS) < counts[:, None]
    return hashes[is_taken], np.repeat(np.arange(len(wanted)), counts)

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Shingles that occur in many documents: an upper bound of their number in little memory, and then the exact number.

A shingle has two cells, and a cell counts the documents with any of its shingles. That is never less than the number of documents
with one of these shingles, and the counts of several inputs can be added. So only shingles of which both cells exceed a
limit need to be counted exactly, in a second look. The hashes are those of `jaccard`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.minhash.jaccard import HASH_BITS, SEED, compared_settings
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
    next_characters,
    next_normalized,
    next_words,
    shingle_workspace,
)
from curator_df.kernels.text.buffers import TextSpan, text_spans

_U: Any = np.uint64
CELLS = 1 << 21
"""Number of cells of each of the two cells of a shingle, a power of two."""
SLOTS = 1 << 18
"""Number of slots of a table that counts exactly, a power of two."""
CELL_BYTES, TABLE_BYTES = 2 * CELLS * 8, SLOTS * 16
"""Memory of the cells of a task, and of a table that counts exactly, in bytes."""


@helper
def _key(found: int) -> int:
    return max(found & HASH_BITS, _U(4))


@helper
def _first_cell(key: int) -> int:
    return (key >> _U(2)) & _U(CELLS - 1)


@helper
def _second_cell(key: int) -> int:
    return _U(CELLS) + ((key >> _U(24)) & _U(CELLS - 1))


@helper
def _count_cells(
    next_shingles: Any,
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    first: int,
    counts: Any,
    last: Any,
) -> None:
    buffer, arrays = shingle_workspace(size)
    hashes = np.empty(CHUNK_HASHES, dtype=np.uint64)
    state = np.empty(STATE, dtype=np.int64)
    for row in range(len(offsets) - 1):
        document = np.uint32(first + row)
        state[:] = 0
        state[AT] = offsets[row]
        while True:
            count, buffer = next_shingles(
                data, offsets[row + 1], state, kind, size, SEED, byte_of, page_of, pages, buffer, arrays, hashes
            )
            if count == 0:
                break
            for number in range(count):
                key = _key(hashes[number])
                for cell in (_first_cell(key), _second_cell(key)):
                    if last[cell] != document:
                        last[cell] = document
                        counts[cell] += np.uint32(1)


@helper
def _count_exactly(  # noqa: C901, PLR0912 - compiled as one loop
    next_shingles: Any,
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    first: int,
    part: int,
    parts: int,
    passing: Any,
    keys: Any,
    counts: Any,
    last: Any,
    used: Any,
) -> int:
    buffer, arrays = shingle_workspace(size)
    hashes = np.empty(CHUNK_HASHES, dtype=np.uint64)
    state = np.empty(STATE, dtype=np.int64)
    mask = _U(len(keys) - 1)
    for row in range(len(offsets) - 1):
        document = np.uint32(first + row)
        state[:] = 0
        state[AT] = offsets[row]
        is_full = False
        while not is_full:
            count, buffer = next_shingles(
                data, offsets[row + 1], state, kind, size, SEED, byte_of, page_of, pages, buffer, arrays, hashes
            )
            if count == 0:
                break
            for number in range(count):
                key = _key(hashes[number])
                if not (passing[_first_cell(key)] and passing[_second_cell(key)]):
                    continue
                if parts > 1 and types.int64(((key >> _U(32)) * _U(parts)) >> _U(32)) != part:
                    continue
                slot = (key >> _U(2)) & mask
                while keys[slot] != 0 and keys[slot] != key:
                    slot = (slot + _U(1)) & mask
                if keys[slot] == 0:
                    if used[0] == len(keys) // 4 * 3:
                        is_full = True
                        break
                    used[0] += 1
                    keys[slot] = key
                if last[slot] != document:
                    last[slot] = document
                    counts[slot] += np.uint32(1)
        if is_full:
            for slot in range(len(keys)):
                if last[slot] == document:
                    counts[slot] -= np.uint32(1)
            return row
    return len(offsets) - 1


@helper
def _list_hashes(
    next_shingles: Any,
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    found: Any,
) -> int:
    buffer, arrays = shingle_workspace(size)
    hashes = np.empty(CHUNK_HASHES, dtype=np.uint64)
    state = np.empty(STATE, dtype=np.int64)
    state[:] = 0
    state[AT] = offsets[0]
    total = 0
    while True:
        count, buffer = next_shingles(
            data, offsets[1], state, kind, size, SEED, byte_of, page_of, pages, buffer, arrays, hashes
        )
        if count == 0 or total + count > len(found):
            return total
        for number in range(count):
            found[total + number] = _key(hashes[number])
        total += count


_TEXTS = (UTF8, OFFSETS, types.int64, types.int64, BYTE_TABLE, PAGE_TABLE, STEP_TABLE)
_OF_CELLS = types.void(*_TEXTS, types.int64, types.uint32[::1], types.uint32[::1])
_OF_TABLE = types.int64(
    *_TEXTS,
    types.int64,
    types.int64,
    types.int64,
    types.Array(types.boolean, 1, "C", readonly=True),
    types.uint64[::1],
    types.uint32[::1],
    types.uint32[::1],
    types.int64[::1],
)
_OF_LIST = types.int64(*_TEXTS, types.uint64[::1])


@kernel(_OF_CELLS)
def count_cells_of_characters(
    data: Any, offsets: Any, kind: int, size: int, a: Any, b: Any, c: Any, first: int, counts: Any, last: Any
) -> None:
    """Count each text once in the cells of its shingles; ``last`` has the number of the last text of each cell."""
    _count_cells(next_characters, data, offsets, kind, size, a, b, c, first, counts, last)


@kernel(_OF_CELLS)
def count_cells_of_normalized(
    data: Any, offsets: Any, kind: int, size: int, a: Any, b: Any, c: Any, first: int, counts: Any, last: Any
) -> None:
    """Count texts like `count_cells_of_characters`, with shingles of characters in lower case."""
    _count_cells(next_normalized, data, offsets, kind, size, a, b, c, first, counts, last)


@kernel(_OF_CELLS)
def count_cells_of_words(
    data: Any, offsets: Any, kind: int, size: int, a: Any, b: Any, c: Any, first: int, counts: Any, last: Any
) -> None:
    """Count texts like `count_cells_of_characters`, with shingles of words."""
    _count_cells(next_words, data, offsets, kind, size, a, b, c, first, counts, last)


@kernel(_OF_TABLE)
def count_exactly_of_characters(
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    a: Any,
    b: Any,
    c: Any,
    first: int,
    part: int,
    parts: int,
    passing: Any,
    keys: Any,
    counts: Any,
    last: Any,
    used: Any,
) -> int:
    """Count each text once for those of its shingles whose cells pass, and whose hash is in one of several parts.

    Returns the number of texts that were counted: all, or those before the one for which the table had no room.
    """
    return _count_exactly(
        next_characters, data, offsets, kind, size, a, b, c, first, part, parts, passing, keys, counts, last, used
    )


@kernel(_OF_TABLE)
def count_exactly_of_normalized(
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    a: Any,
    b: Any,
    c: Any,
    first: int,
    part: int,
    parts: int,
    passing: Any,
    keys: Any,
    counts: Any,
    last: Any,
    used: Any,
) -> int:
    """Count texts like `count_exactly_of_characters`, with shingles of characters in lower case."""
    return _count_exactly(
        next_normalized, data, offsets, kind, size, a, b, c, first, part, parts, passing, keys, counts, last, used
    )


@kernel(_OF_TABLE)
def count_exactly_of_words(
    data: Any,
    offsets: Any,
    kind: int,
    size: int,
    a: Any,
    b: Any,
    c: Any,
    first: int,
    part: int,
    parts: int,
    passing: Any,
    keys: Any,
    counts: Any,
    last: Any,
    used: Any,
) -> int:
    """Count texts like `count_exactly_of_characters`, with shingles of words."""
    return _count_exactly(
        next_words, data, offsets, kind, size, a, b, c, first, part, parts, passing, keys, counts, last, used
    )


@kernel(_OF_LIST)
def list_hashes_of_characters(data: Any, offsets: Any, kind: int, size: int, a: Any, b: Any, c: Any, found: Any) -> int:
    """Write the hashes of the shingles of the first text, as far as there is room; return their number."""
    return _list_hashes(next_characters, data, offsets, kind, size, a, b, c, found)


@kernel(_OF_LIST)
def list_hashes_of_normalized(data: Any, offsets: Any, kind: int, size: int, a: Any, b: Any, c: Any, found: Any) -> int:
    """Write hashes like `list_hashes_of_characters`, of shingles of characters in lower case."""
    return _list_hashes(next_normalized, data, offsets, kind, size, a, b, c, found)


@kernel(_OF_LIST)
def list_hashes_of_words(data: Any, offsets: Any, kind: int, size: int, a: Any, b: Any, c: Any, found: Any) -> int:
    """Write hashes like `list_hashes_of_characters`, of shingles of words."""
    return _list_hashes(next_words, data, offsets, kind, size, a, b, c, found)


_COUNT_CELLS = {
    "characters": count_cells_of_characters,
    "normalized": count_cells_of_normalized,
    "words": count_cells_of_words,
}
_COUNT_EXACTLY = {
    "characters": count_exactly_of_characters,
    "normalized": count_exactly_of_normalized,
    "words": count_exactly_of_words,
}
_LIST_HASHES = {
    "characters": list_hashes_of_characters,
    "normalized": list_hashes_of_normalized,
    "words": list_hashes_of_words,
}


class ShingleCells:
    """Upper bounds of the number of documents with each shingle.

    Examples
    --------
    >>> cells = ShingleCells(Scheme("words", 2, 1, 1))
    >>> cells.add(pd.Series(["one two three", "one two two two", "four"]))
    >>> sorted(cells.counts[cells.counts > 0].tolist()), cells.documents
    ([1, 1, 1, 1, 1, 1, 2, 2], 3)
    """

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme
        self.documents = 0
        """Number of texts so far."""
        self.counts = np.zeros(2 * CELLS, dtype=np.uint32)
        """Array of shape (2 x `CELLS`,): documents of each cell."""
        self._last = np.zeros(2 * CELLS, dtype=np.uint32)

    def add(self, texts: pd.Series) -> None:
        """Count some texts; null has no shingle."""
        count = _COUNT_CELLS[shingle_unit(self._scheme)]
        for span in text_spans(texts):
            settings = compared_settings(self._scheme)
            count(span.data, span.offsets, *settings, self.documents + 1, self.counts, self._last)
            self.documents += len(span)


class ShingleCounts:
    """Exact number of documents with each of those shingles whose cells pass, in a table that is emptied when it is full."""

    def __init__(self, scheme: Scheme, passing: npt.NDArray[np.bool_], slots: int = SLOTS) -> None:
        self._scheme, self._passing = scheme, passing
        self._documents = 0
        self._keys = np.zeros(slots, dtype=np.uint64)
        self._counts, self._last = np.zeros(slots, dtype=np.uint32), np.zeros(slots, dtype=np.uint32)
        self._used = np.zeros(1, dtype=np.int64)

    def add(self, texts: pd.Series) -> Iterator[npt.NDArray[np.uint64]]:
        """Count some texts; yield rows (hash, documents) whenever the table is full."""
        for span in text_spans(texts):
            row = 0
            while row < len(span):
                was_empty = not self._used[0]
                counted = self._count(span, row, len(span), 0, 1)
                row, self._documents = row + counted, self._documents + counted
                if row == len(span):
                    break
                yield self.taken()
                if not counted and was_empty:
                    yield from self._add_in_parts(span, row)
                    row, self._documents = row + 1, self._documents + 1

    def _add_in_parts(self, span: TextSpan, row: int) -> Iterator[npt.NDArray[np.uint64]]:
        """Count a text that alone has more shingles than the table has room for."""
        part, parts = 0, 2
        while part < parts:
            if self._count(span, row, row + 1, part, parts):
                part += 1
            else:
                part, parts = 2 * part, 2 * parts
                self._clear()
                continue
            yield self.taken()

    def _count(self, span: TextSpan, start: int, stop: int, part: int, parts: int) -> int:
        count = _COUNT_EXACTLY[shingle_unit(self._scheme)]
        table = (self._keys, self._counts, self._last, self._used)
        settings, first = compared_settings(self._scheme), self._documents + 1
        return int(
            count(span.data, span.offsets[start : stop + 1], *settings, first, part, parts, self._passing, *table)
        )

    def taken(self) -> npt.NDArray[np.uint64]:
        """Return rows (hash, documents) of the shingles counted since the last call, and empty the table."""
        places = np.flatnonzero(self._counts)
        rows = np.column_stack([self._keys[places], self._counts[places].astype(np.uint64)])
        self._clear()
        return rows

    def _clear(self) -> None:
        for array in (self._keys, self._counts, self._last, self._used):
            array[:] = 0


def passing_cells(counts: npt.NDArray[np.integer[Any]], limit: float) -> npt.NDArray[np.bool_]:
    """Return which cells count more documents than a limit."""
    return counts > limit


def listed_hashes(text: str, scheme: Scheme) -> npt.NDArray[np.uint64]:
    """Return the hashes of the shingles of a text, in order.

    Examples
    --------
    >>> scheme = Scheme("words", 2, 1, 1)
    >>> hashes = listed_hashes("one two three", scheme)
    >>> len(hashes), bool(hashes[1] == listed_hashes("two three", scheme)[0])
    (2, True)
    """
    [span] = text_spans(pd.Series([text], dtype="string[pyarrow]"))
    found = np.empty(len(text) + 1, dtype=np.uint64)
    count = _LIST_HASHES[shingle_unit(scheme)](span.data, span.offsets, *compared_settings(scheme), found)
    return found[:count]

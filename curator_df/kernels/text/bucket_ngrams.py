# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
r"""Compiled walk over the words and pairs of consecutive words of a text, each hashed into one of some buckets.

Words are those of NLTK's ``WordPunctTokenizer`` on the text in lower case: runs of letters, digits and underscores (``\w+``), and
runs of other characters that are not white space (``[^\w\s]+``). The hash of a word is FNV-1a over its code points, mixed as in
SplitMix64; the hash of a pair mixes those of both. All are the same on every machine.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.metrics.words.word_counts import BYTES, code_point
from curator_df.kernels.text.code_points import ASSIGNED_STOP, CodePointTable, paged
from curator_df.kernels.text.lower_case import SPACE_STEP, lower_steps

SPACE, WORD, OTHER = 0, 1, 2
"""Kinds of characters."""
_BASIS, _PRIME = 0xCBF29CE484222325, 0x100000001B3
"""Constants of FNV-1a, 64 bits."""
_PAIR = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Constants of SplitMix64."""


@lru_cache(maxsize=1)
def word_kinds() -> CodePointTable:
    """Return four times the step to the lower case of each code point, plus the kind of that lower case (int32)."""
    steps = lower_steps()
    values = np.zeros(ASSIGNED_STOP, dtype=np.int32)
    for code in range(ASSIGNED_STOP):
        step = steps[code]
        if step != SPACE_STEP:
            lowered = chr(code + step)
            values[code] = 4 * step + (WORD if lowered.isalnum() or lowered == "_" else OTHER)
    return paged(values, beyond=OTHER)


def tables() -> tuple[npt.NDArray[np.uint16], npt.NDArray[Any]]:
    """Return the read-only arrays of `word_kinds`, as the kernels take them."""
    found = word_kinds()
    found.page_of.flags.writeable = found.pages.flags.writeable = False
    return found.page_of, found.pages


@inlined
def _mixed(value: Any) -> Any:
    value ^= value >> np.uint64(30)
    value *= np.uint64(_FIRST)
    value ^= value >> np.uint64(27)
    value *= np.uint64(_SECOND)
    return value ^ (value >> np.uint64(31))


@helper
def _next_word(data: Any, at: int, stop: int, page_of: Any, pages: Any) -> tuple[int, Any]:
    """Return the end of the next word of a text and its hash; the end is -1 if there is no further word."""
    kind, hashed = SPACE, np.uint64(_BASIS)
    while at < stop:
        code, width = types.int64(data[at]), 1
        if code >= 0x80:
            code, width = code_point(data, at, stop)
        value = types.int64(pages[page_of[code >> 8], code & 255])
        here = value & 3
        if here != kind:
            if kind != SPACE:
                break
            kind = here
        if here != SPACE:
            hashed = (hashed ^ np.uint64(code + (value >> 2))) * np.uint64(_PRIME)
        at += width
    return (at if kind != SPACE else -1), _mixed(hashed)


_TABLES = (types.Array(types.uint16, 1, "C", readonly=True), types.Array(types.int32, 2, "C", readonly=True))
_SPAN = (BYTES, types.Array(types.int64, 1, "C", readonly=True), *_TABLES)


@kernel(types.void(*_SPAN, types.int64[::1]))
def count_ngrams(data: Any, offsets: Any, page_of: Any, pages: Any, counts: Any) -> None:
    """Add the words and pairs of words of all texts of a span to the counts of their buckets."""
    buckets = np.uint64(len(counts))
    for row in range(len(offsets) - 1):
        at, stop, before, pairs = offsets[row], offsets[row + 1], np.uint64(0), False
        while True:
            at, hashed = _next_word(data, at, stop, page_of, pages)
            if at < 0:
                break
            counts[types.int64(hashed % buckets)] += 1
            if pairs:
                counts[types.int64(_mixed(before * np.uint64(_PAIR) + hashed) % buckets)] += 1
            before, pairs = hashed, True


@kernel(types.void(*_SPAN, types.Array(types.float64, 1, "C", readonly=True), types.float64[::1]))
def sum_ngram_weights(data: Any, offsets: Any, page_of: Any, pages: Any, weights: Any, sums: Any) -> None:
    """Write the sum of the weights of the words and pairs of words of each text of a span."""
    buckets = np.uint64(len(weights))
    for row in range(len(sums)):
        at, stop, before, pairs, total = offsets[row], offsets[row + 1], np.uint64(0), False, 0.0
        while True:
            at, hashed = _next_word(data, at, stop, page_of, pages)
            if at < 0:
                break
            total += weights[types.int64(hashed % buckets)]
            if pairs:
                total += weights[types.int64(_mixed(before * np.uint64(_PAIR) + hashed) % buckets)]
            before, pairs = hashed, True
        sums[row] = total

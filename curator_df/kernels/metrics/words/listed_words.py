# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Count of the distinct words of a list in each text: the stop words of a language.

The eight English ones have their own count in `word_counts`; any others are looked up here, in a hash table of the list.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.metrics.words.word_counts import SPAN, code_point
from curator_df.kernels.text.code_points import SPACE

_BASIS, _PRIME = 0xCBF29CE484222325, 0x100000001B3
"""Constants of FNV-1a, 64 bits. The hash only finds candidates, which are compared."""


@dataclass(frozen=True)
class WordList:
    """List of words for the compiled look-up."""

    data: npt.NDArray[np.uint8]
    """Bytes of the words, one after the other."""
    offsets: npt.NDArray[np.int64]
    """Bounds of the words, shape (words + 1,)."""
    slots: npt.NDArray[np.int64]
    """Number of a word plus one, at the slot of its hash; 0 for an empty slot. Shape (a power of two,)."""


@lru_cache(maxsize=16)
def word_list(words: tuple[str, ...]) -> WordList:
    """Return a list of words with at least twice as many slots as words."""
    encoded = [word.encode() for word in words]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    slots = np.zeros(max(4, 1 << (2 * len(words) - 1).bit_length()), dtype=np.int64)
    for number, word in enumerate(encoded, start=1):
        mixed = _BASIS
        for byte in word:
            mixed = ((mixed ^ byte) * _PRIME) % (1 << 64)
        slot = mixed % len(slots)
        while slots[slot]:
            slot = (slot + 1) % len(slots)
        slots[slot] = number
    offsets.flags.writeable = slots.flags.writeable = False
    return WordList(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets, slots)


@helper
def _number(data: Any, start: int, stop: int, listed: Any, offsets: Any, slots: Any) -> int:
    """Return the number of a word in the list, from 0, or -1."""
    mixed = np.uint64(_BASIS)
    for at in range(start, stop):
        mixed = (mixed ^ np.uint64(data[at])) * np.uint64(_PRIME)
    slot = types.int64(mixed & np.uint64(len(slots) - 1))
    while slots[slot]:
        number = slots[slot] - 1
        first = offsets[number]
        if offsets[number + 1] - first == stop - start:
            at = 0
            while at < stop - start and listed[first + at] == data[start + at]:
                at += 1
            if at == stop - start:
                return number
        slot = (slot + 1) & (len(slots) - 1)
    return -1


@helper
def longest_listed(offsets: Any) -> int:
    """Return the length in bytes of the longest word of a list."""
    longest = 0
    for number in range(len(offsets) - 1):
        longest = max(longest, offsets[number + 1] - offsets[number])
    return longest


@helper
def count_listed_words(
    data: Any, start: int, stop: int, classes: Any, words: Any, longest: int, seen: Any, stamp: int
) -> int:
    """Return how many words of a list (`WordList` as a tuple) are in a text.

    ``seen`` has a number for each word of the list: ``stamp`` if it was found. ``stamp`` must differ for each text.
    """
    byte_classes, page_of, pages = classes
    listed, offsets, slots = words
    found, at, word = 0, start, -1
    while at <= stop:
        flags, width = types.int64(SPACE), 1
        if at < stop:
            flags = types.int64(byte_classes[data[at]])
            if data[at] >= 0x80:
                code, width = code_point(data, at, stop)
                flags = types.int64(pages[page_of[code >> 8], code & 255])
        if flags & SPACE:
            if word >= 0 and at - word <= longest:
                number = _number(data, word, at, listed, offsets, slots)
                if number >= 0 and seen[number] != stamp:
                    seen[number] = stamp
                    found += 1
            word = -1
        elif word < 0:
            word = at
        at += width
    return found


_WORDS = (types.Array(types.uint8, 1, "C", readonly=True), *(types.Array(types.int64, 1, "C", readonly=True),) * 2)


@kernel(types.void(*SPAN, *_WORDS, types.int64[::1]))
def count_listed_words_of_span(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    listed: Any,
    listed_offsets: Any,
    slots: Any,
    counts: Any,
) -> None:
    """Count, for each text of a span, the distinct words of a list (`word_list`), split at white space."""
    classes, words = (byte_classes, page_of, pages), (listed, listed_offsets, slots)
    longest = longest_listed(listed_offsets)
    seen = np.full(len(listed_offsets) - 1, -1, dtype=np.int64)
    for row in range(len(counts)):
        counts[row] = count_listed_words(data, offsets[row], offsets[row + 1], classes, words, longest, seen, row)

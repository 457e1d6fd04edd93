# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled reader of words, in windows, with hashes from which that of any n-gram follows at once.

The hash of a sequence of bytes b is the sum of ``b[k] * BASE**k`` modulo 2**64, over the bytes of the words alone, so that
an n-gram has the hash of its words joined without spaces: with the sum before each word it is one subtraction and one
multiplication. The hash only finds candidates, which are compared byte by byte, so no result depends on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, types
from curator_df.kernels.metrics.words.word_counts import code_point
from curator_df.kernels.text.code_points import SPACE

WINDOW = 4096
"""Number of words of a window: its arrays are 160 KB. Most documents are read once, for all counts."""

_BASE = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@helper
def new_window() -> tuple[Any, Any]:
    """Return arrays for a window: sums and inverses (uint64); starts, stops and characters before (int64).

    Row 0 of the first is the sum before each word and, after the last word, the sum at its end; row 1 is ``BASE**-k`` at which
    the word starts. The rows of the second are where each word starts and stops in ``data``, and the code points of the
    words before it.
    """
    return np.empty((2, WINDOW + 1), dtype=np.uint64), np.empty((3, WINDOW + 1), dtype=np.int64)


@helper
def new_reading(at: int) -> Any:
    """Return the state of a reader at the start of a text: position, sum, power, inverse, code points of words."""
    return at, _ZERO, _ONE, _ONE, 0


@helper
def next_word(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the start of the next word, or ``stop``."""
    byte_classes, page_of, pages = classes
    while at < stop:
        byte = data[at]
        if byte < 0x80:
            if not byte_classes[byte] & SPACE:
                return at
            at += 1
            continue
        code, width = code_point(data, at, stop)
        if not pages[page_of[code >> 8], code & 255] & SPACE:
            return at
        at += width
    return stop


@helper
def fill_window(
    data: Any, stop: int, classes: Any, reading: Any, hashes: Any, places: Any, held: int
) -> tuple[Any, int]:
    """Read words after the ``held`` ones until the window is full or the text ends; return the state and their number."""
    byte_classes, page_of, pages = classes
    at, total, power, inverse, letters = reading
    # Unsigned, so that numba omits its test for negative indices. No function is called for a word or a byte: with the arrays
    # among its arguments, a call takes longer than reading a word.
    here, end = np.uint64(at), np.uint64(stop)
    is_inside = False
    while here < end:
        byte = data[here]
        flags, width = byte_classes[byte], 1
        if byte >= 0x80:
            code, width = code_point(data, types.int64(here), stop)
            flags = pages[page_of[code >> 8], code & 255]
        if flags & SPACE:
            if is_inside:
                places[1, held] = types.int64(here)
                held += 1
                is_inside = False
            here += np.uint64(width)
            continue
        if not is_inside:
            if held == WINDOW:
                break
            hashes[0, held], hashes[1, held] = total, inverse
            places[0, held], places[2, held] = types.int64(here), letters
            is_inside = True
        letters += 1
        total += np.uint64(byte) * power
        power *= _BASE
        inverse *= _INVERSE
        here += _ONE
        for _ in range(width - 1):
            total += np.uint64(data[here]) * power
            power *= _BASE
            inverse *= _INVERSE
            here += _ONE
    if is_inside:
        places[1, held] = stop
        held += 1
    hashes[0, held], places[2, held] = total, letters
    return (types.int64(here), total, power, inverse, letters), held


@helper
def keep_last(hashes: Any, places: Any, held: int, first: int) -> int:
    """Move the words from number ``first`` on to the front of the window; return their number."""
    for number in range(first, held):
        for row in range(2):
            hashes[row, number - first] = hashes[row, number]
        for row in range(3):
            places[row, number - first] = places[row, number]
    return max(held - first, 0)


@helper
def word_total(data: Any, at: int, stop: int, classes: Any, hashes: Any, places: Any) -> int:
    """Return the number of words of a text; the window then holds the first words, all of them if they fit."""
    reading, held = fill_window(data, stop, classes, new_reading(at), hashes, places, 0)
    return held + count_words_from(data, reading[0], stop, classes)


@helper
def count_words_from(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the number of words from here on, without holding any."""
    words, at = 0, next_word(data, at, stop, classes)
    while at < stop:
        words += 1
        at = next_word(data, _word_stop(data, at, stop, classes), stop, classes)
    return words


@helper
def _word_stop(data: Any, at: int, stop: int, classes: Any) -> int:
    byte_classes, page_of, pages = classes
    while at < stop:
        byte = data[at]
        if byte < 0x80:
            if byte_classes[byte] & SPACE:
                break
            at += 1
            continue
        code, width = code_point(data, at, stop)
        if pages[page_of[code >> 8], code & 255] & SPACE:
            break
        at += width
    return min(at, stop)

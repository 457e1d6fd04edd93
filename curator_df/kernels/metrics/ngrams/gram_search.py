# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled search for a sequence of words, joined by single spaces, as ``str.replace`` finds it: anywhere, left to right.

Part of `repeat_pass`. A rolling hash finds candidates, so that the time grows only with the text, not with the words;
candidates are compared byte by byte. Nothing is copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper
from curator_df.kernels.metrics.ngrams.gram_counts import after_space, is_space

_BASE = np.uint64(0x9E3779B97F4A7C15)


@helper
def _hash_gram(data: Any, place: int, stop: int, classes: Any, n: int) -> tuple[Any, int, int]:
    """Return the hash, the bytes and the code points of the n words from here on, joined by single spaces."""
    total, length, code_points = np.uint64(0), 0, 0
    for word in range(n):
        if word:
            place = after_space(data, place, stop, classes)
            total = total * _BASE + np.uint64(0x20)
            length += 1
            code_points += 1
        while place < stop and not is_space(data, place, stop, classes):
            # One character in each step: its later bytes are not characters.
            total = total * _BASE + np.uint64(data[place])
            place += 1
            length += 1
            code_points += 1
            while place < stop and data[place] & 0xC0 == 0x80:
                total = total * _BASE + np.uint64(data[place])
                place += 1
                length += 1
    return total, length, code_points


@helper
def _is_gram_at(data: Any, at: int, end: int, place: int, stop: int, classes: Any) -> bool:
    """Return whether ``data[at:end]``, as long as the joined words from ``place`` on, equals them."""
    while at < end:
        if is_space(data, place, stop, classes):
            if data[at] != 0x20:
                return False
            place = after_space(data, place, stop, classes)
            at += 1
            continue
        if data[at] != data[place]:
            return False
        at += 1
        place += 1
        while at < end and place < stop and data[place] & 0xC0 == 0x80:
            if data[at] != data[place]:
                return False
            at += 1
            place += 1
    return True


@helper
def removed_code_points(data: Any, start: int, stop: int, place: int, classes: Any, n: int) -> int:
    """Return the code points removed when all occurrences of the n words from ``place`` on are deleted."""
    wanted, length, code_points = _hash_gram(data, place, stop, classes, n)
    if length > stop - start:
        return 0
    power = np.uint64(1)
    for _ in range(length - 1):
        power *= _BASE
    found, removed = np.uint64(0), 0
    # The hashed bytes begin at ``first``.
    at = first = start
    while at < stop:
        if at - first == length:
            found -= np.uint64(data[first]) * power
            first += 1
        found = found * _BASE + np.uint64(data[at])
        at += 1
        if at - first == length and found == wanted and _is_gram_at(data, first, at, place, stop, classes):
            removed += code_points
            first, found = at, np.uint64(0)
    return removed

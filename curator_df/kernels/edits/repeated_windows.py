# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled search for windows of a fixed number of bytes that occur in several places, and for the spans that they cover.

A *window* is a substring of exactly ``window_bytes`` bytes of one text. Each window has one *anchor*: of the substrings of
``core_bytes`` bytes in it, the one with the smallest hash, and of equal ones the last. The anchor depends on the bytes of the
window alone, so equal windows have equal anchors at the same place (winnowing). Consecutive windows mostly share an
anchor: these are one *stretch*, about ``(window_bytes - core_bytes) / 2`` windows long. See `repeated_spans` for the callers.

References
----------
Schleimer, Wilkerson and Aiken, Winnowing: local algorithms for document fingerprinting, SIGMOD 2003.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.text.murmur_hash import finished, hash_text

ROW, POSITION = range(2)
"""Elements of the state: the row (or stretch), and the next window in it."""
STATE_WORDS = 2
REMOVED_BYTES, REMOVED_CHARACTERS, STAYING, SPANS = range(2, 6)
"""Further elements of the state of `next_spans`: bytes and characters of all spans so far; for the current text, bytes outside of
its spans that are not white space, and its spans."""
SPAN_STATE_WORDS = 6

_U: Any = np.uint64
_BASE = _U(0x9E3779B97F4A7C15)
_SALT = _U(0xD6E8FEB86659FD93)
_MOST = _U((1 << 64) - 1)
_0, _1 = _U(0), _U(1)

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OFFSETS = types.Array(types.int64, 1, "A", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "A", readonly=True)
_NUMBERS = types.int64[::1]
_WORDS = types.uint64[::1]


@inlined
def _rolled(rolled: int, data: Any, at: int, after: int, stop: int, leaving: int) -> int:
    """Return the hash of the substring one byte to the right of the one from ``at`` to ``after``, if the text goes on."""
    if after < stop:
        rolled = (rolled - (_U(data[at]) + _1) * leaving) * _BASE + _U(data[after]) + _1
    return rolled


@helper
def _least(hashes: Any, slot: int, inside: int) -> tuple[int, int]:
    """Return the smallest of the hashes in a ring whose first one is at ``slot``, and the place of the last such."""
    best, best_at = _MOST, 0
    for place in range(inside):
        here = slot + place if slot + place < inside else slot + place - inside
        if hashes[here] <= best:
            best, best_at = hashes[here], place
    return best, best_at


@helper
def _fill_text(
    data: Any,
    begin: int,
    stop: int,
    window_bytes: int,
    core_bytes: int,
    position: int,
    count: int,
    hashes: Any,
    firsts: Any,
    anchors: Any,
    counts: Any,
    cores: Any,
) -> tuple[int, int]:
    """Fill in the stretches of one text from a window on; return their end in the arrays, and the next window, or -1."""
    inside, last = window_bytes - core_bytes + 1, stop - begin - window_bytes
    leaving, rolled = _1, _0
    for _ in range(core_bytes - 1):
        leaving *= _BASE
    at = begin + position  # of the substring whose hash is next
    for place in range(at, at + core_bytes):
        rolled = rolled * _BASE + _U(data[place]) + _1
    for place in range(inside):
        hashes[place] = finished(rolled)
        rolled = _rolled(rolled, data, at, at + core_bytes, stop, leaving)
        at += 1
    best, best_at = _least(hashes, 0, inside)
    best_at += position
    first, window, slot = position, position, 0
    while window < last:
        value = finished(rolled)
        hashes[slot] = value
        slot = slot + 1 if slot + 1 < inside else 0
        rolled = _rolled(rolled, data, at, at + core_bytes, stop, leaving)
        at += 1
        window += 1
        before, before_at = best, best_at
        if value <= best:
            best, best_at = value, window + inside - 1
        elif best_at < window:
            best, best_at = _least(hashes, slot, inside)
            best_at += window
        if best_at != before_at:
            firsts[count], counts[count], cores[count] = first, window - first, finished(before ^ _SALT)
            anchors[count] = before_at
            count, first = count + 1, window
            if count == len(firsts):
                return count, first
    firsts[count], counts[count], cores[count] = first, last + 1 - first, finished(best ^ _SALT)
    anchors[count] = best_at
    return count + 1, -1


@kernel(
    types.int64(
        _BYTES,
        _OFFSETS,
        _FLAGS,
        types.int64,
        types.int64,
        _NUMBERS,
        _WORDS,
        _NUMBERS,
        _NUMBERS,
        _NUMBERS,
        _NUMBERS,
        _WORDS,
    ),
    allocates=False,
)
def find_stretches(
    data: Any,
    offsets: Any,
    valid: Any,
    window_bytes: int,
    core_bytes: int,
    state: Any,
    hashes: Any,
    rows: Any,
    firsts: Any,
    anchors: Any,
    counts: Any,
    cores: Any,
) -> int:
    """Fill the arrays from ``rows`` on with the next stretches; return their number.

    If the arrays are not full, the texts have ended. ``firsts`` and ``anchors`` are bytes in the text of the row, ``cores``
    hashes of the anchors, uniform in all bits. ``hashes`` has room for those of a window.
    """
    row, position, count = state[ROW], state[POSITION], 0
    while row < len(offsets) - 1 and count < len(rows):
        before, begin, stop = count, offsets[row], offsets[row + 1]
        if valid[row] and stop - begin >= window_bytes:
            count, position = _fill_text(
                data, begin, stop, window_bytes, core_bytes, position, count, hashes, firsts, anchors, counts, cores
            )
            rows[before:count] = row
        else:
            position = -1
        if position < 0:
            row, position = row + 1, 0
    state[ROW], state[POSITION] = row, position
    return count


@kernel(types.void(_BYTES, _OFFSETS, _OFFSETS, types.uint64[:, ::1]), allocates=False)
def hash_spans(data: Any, starts: Any, stops: Any, hashes: Any) -> None:
    """Hash the bytes of each span into its row of ``hashes``, shape (spans, 2)."""
    for number in range(len(hashes)):
        hashes[number, 0], hashes[number, 1] = hash_text(data, starts[number], stops[number])


@kernel(
    types.int64(_BYTES, _OFFSETS, _OFFSETS, types.int64, _NUMBERS, _NUMBERS, _NUMBERS, types.uint64[:, ::1]),
    allocates=False,
)
def hash_windows(
    data: Any, begins: Any, counts: Any, window_bytes: int, state: Any, numbers: Any, places: Any, hashes: Any
) -> int:
    """Hash the next windows of stretches that begin at these bytes; return how many.

    ``numbers`` are those of the stretches, ``places`` the windows in them. If the arrays are not full, the stretches have ended.
    """
    number, place, count = state[ROW], state[POSITION], 0
    while number < len(begins):
        while place < counts[number]:
            if count == len(numbers):
                state[ROW], state[POSITION] = number, place
                return count
            at = begins[number] + place
            hashes[count, 0], hashes[count, 1] = hash_text(data, at, at + window_bytes)
            numbers[count], places[count] = number, place
            count, place = count + 1, place + 1
        number, place = number + 1, 0
    state[ROW], state[POSITION] = number, place
    return count


@kernel(types.void(types.boolean[::1], _OFFSETS, _OFFSETS), allocates=False)
def mark_spans(covered: Any, starts: Any, stops: Any) -> None:
    """Set the flags of the bytes of each span."""
    for number in range(len(starts)):
        for place in range(starts[number], stops[number]):
            covered[place] = True


@helper
def _end_of_covered(data: Any, at: int, stop: int, covered: Any, base: int) -> tuple[int, int]:
    """Return the end of the covered code points from ``at`` on, and their number."""
    characters = 0
    while at < stop:
        end = at
        while covered[end - base]:
            end += 1
            if end == stop or data[end] & 0xC0 != 0x80:
                break
        if end == at or (end < stop and data[end] & 0xC0 == 0x80):  # a part of this code point is not covered
            break
        at, characters = end, characters + 1
    return at, characters


@kernel(
    types.int64(_BYTES, _OFFSETS, types.boolean[::1], _NUMBERS, types.boolean[::1], _NUMBERS, _NUMBERS, _NUMBERS),
    allocates=False,
)
def next_spans(
    data: Any, offsets: Any, covered: Any, state: Any, emptied: Any, rows: Any, starts: Any, stops: Any
) -> int:
    """Fill ``rows``, ``starts`` and ``stops`` with the next covered spans, cut to whole code points; return their number.

    ``covered`` has a flag for each byte from ``offsets[0]`` on. ``emptied`` of a row becomes True if it has a span, and nothing
    but ASCII's white space is outside of its spans. If the arrays are not full, the texts have ended.
    """
    row, at, count, base = state[ROW], state[POSITION], 0, offsets[0]
    while row < len(offsets) - 1:
        stop = offsets[row + 1]
        if at < 0:
            at, state[STAYING], state[SPANS] = offsets[row], 0, 0
        while at < stop:
            if count == len(rows):
                state[ROW], state[POSITION] = row, at
                return count
            end, byte = at, data[at]
            if covered[at - base] and byte & 0xC0 != 0x80:
                end, characters = _end_of_covered(data, at, stop, covered, base)
            if end == at:
                state[STAYING] += not (byte == 32 or 9 <= byte <= 13)
                at += 1
                continue
            rows[count], starts[count], stops[count] = row, at, end
            state[REMOVED_BYTES] += end - at
            state[REMOVED_CHARACTERS] += characters
            state[SPANS] += 1
            count, at = count + 1, end
        emptied[row] = state[SPANS] > 0 and state[STAYING] == 0
        row, at = row + 1, -1
    state[ROW], state[POSITION] = row, at
    return count

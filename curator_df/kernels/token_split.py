# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled splitting of words between white space into tokens, as spaCy does for English. Part of `token_pass`.

Tokens are copied, each with one byte of white space after it that says what stood there: nothing (`NOTHING`), one space
(`ONE_SPACE`), or other white space (`OTHER_SPACE`). So any kernel that reads words reads tokens, and no place is held for a
token: what is cut off the end of a word waits at the end of the room that the word can fill.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types

from curator_df.kernels.english_rules import IS_EXCEPTION, IS_RESTORED, LONGEST, NOTABLE, SPACE
from curator_df.kernels.token_affixes import class_at, find_phrase, infix_length, prefix_length, suffix_length
from curator_df.kernels.token_urls import is_url

NOTHING, ONE_SPACE, OTHER_SPACE = 0x09, 0x20, 0x0A
MOST_TOKENS = 11
"""Tokens that the rules make of one exception."""
_RING = 16


@njit(nogil=True, inline="always")
def _put(data: Any, start: int, stop: int, out: Any, to: int) -> int:
    """Copy a token to a place; return the place after it."""
    for at in range(start, stop):
        out[to] = data[at]
        to += 1
    out[to] = NOTHING
    return to + 1


@njit(nogil=True)
def _put_part(data: Any, start: int, stop: int, out: Any, to: int) -> int:
    """Copy a part of a word. After the token of U+00B0, the full stop of ``C.``, ``F.`` and ``K.`` is a token too.

    Those are the exceptions that are put back with more tokens than they were cut into, for which there is room here only.
    """
    is_unit = stop - start == 2 and data[stop - 1] == 0x2E and (data[start] in (0x43, 0x46, 0x4B))
    if is_unit and to > 2 and out[to - 3] == 0xC2 and out[to - 2] == 0xB0 and out[to - 1] == NOTHING:
        to = _put(data, start, start + 1, out, to)
        start += 1
    return _put(data, start, stop, out, to)


@njit(nogil=True)
def _put_exception(data: Any, start: int, stop: int, cuts: Any, out: Any, to: int) -> int:
    """Copy the tokens of an exception."""
    for at in range(start, stop):
        out[to] = data[at]
        to += 1
        if (cuts >> types.uint32(at - start)) & types.uint32(1):
            out[to] = NOTHING
            to += 1
    return to


@njit(nogil=True)
def _exception(data: Any, start: int, stop: int, phrases: Any) -> int:
    """Return the number of the exception that these bytes are, or -1."""
    number = find_phrase(data, start, stop, phrases)
    return number if number >= 0 and phrases[4][number] & IS_EXCEPTION else -1


@njit(nogil=True)
def _cut_affixes(
    data: Any, start: int, stop: int, classes: Any, phrases: Any, out: Any, front: int, back: int
) -> tuple[int, int, int, int]:
    """Cut off what a word begins and ends with, again and again; return what is left, and the places in ``out``.

    Both ends are looked at before either is cut off, and what would be left is looked up each time, in spaCy's order.
    """
    while start < stop and _exception(data, start, stop, phrases) < 0:
        prefix = prefix_length(data, start, stop, classes)
        if prefix and _exception(data, start + prefix, stop, phrases) >= 0:
            return start + prefix, stop, _put(data, start, start + prefix, out, front), back
        suffix = suffix_length(data, start + prefix, stop, classes, phrases)
        if suffix and _exception(data, start, stop - suffix, phrases) >= 0:
            back -= suffix + 1
            _put(data, stop - suffix, stop, out, back)
            return start, stop - suffix, front, back
        if prefix:
            front = _put(data, start, start + prefix, out, front)
            start += prefix
        if suffix:
            back -= suffix + 1
            _put(data, stop - suffix, stop, out, back)
            stop -= suffix
        if not prefix and not suffix:
            break
    return start, stop, front, back


@njit(nogil=True)
def _cut_inside(data: Any, start: int, stop: int, classes: Any, phrases: Any, out: Any, to: int) -> int:
    """Copy what is left of a word: an exception, a URL, or parts with the tokens between them."""
    number = _exception(data, start, stop, phrases)
    if number >= 0:
        return _put_exception(data, start, stop, phrases[5][number], out, to)
    dot = start
    while dot < stop and data[dot] != 0x2E:
        dot += 1
    if dot < stop and is_url(data, start, stop, classes):
        return _put(data, start, stop, out, to)
    at, held = start, start
    while at < stop:
        flags, width = class_at(data, at, stop, classes)
        length = infix_length(data, at, start, stop, classes) if flags & NOTABLE else 0
        # One at the very start stays with what follows.
        if length and at > start:
            if at > held:
                to = _put_part(data, held, at, out, to)
            to = _put(data, at, at + length, out, to)
            held = at + length
        at += max(length, width)
    return _put_part(data, held, stop, out, to) if held < stop else to


@njit(nogil=True)
def _can_be_restored(data: Any, start: int, out: Any, first: int, to: int, phrases: Any, ring: Any) -> bool:
    """Say whether tokens of a word, side by side, are an exception that would be put back."""
    count, begin, end = 0, start, start
    for place in range(first, to):
        if out[place] != NOTHING:
            end += 1
            continue
        ring[count % _RING] = begin
        for earlier in range(max(0, count - MOST_TOKENS + 1), count):
            held = ring[earlier % _RING]
            if end - held <= LONGEST:
                number = find_phrase(data, held, end, phrases)
                if number >= 0 and phrases[4][number] & IS_RESTORED:
                    return True
        count += 1
        begin = end
    return False


@njit(nogil=True)
def _split_word(data: Any, start: int, stop: int, classes: Any, phrases: Any, out: Any, first: int, ring: Any) -> Any:
    """Copy the tokens of a word; return the place after them, and whether an exception may have to be put back."""
    limit = first + 2 * (stop - start)
    left, right, to, back = _cut_affixes(data, start, stop, classes, phrases, out, first, limit)
    cut = (to > first) + (back < limit)
    if left < right:
        middle = to
        to = _cut_inside(data, left, right, classes, phrases, out, to)
        cut += to - middle > right - left + 1
    for place in range(back, limit):
        out[to] = out[place]
        to += 1
    # Two tokens that are an exception were found as the word.
    return to, cut > 0 and to - first > stop - start + 2 and _can_be_restored(
        data, start, out, first, to, phrases, ring
    )


@njit(nogil=True)
def _word_stop(data: Any, at: int, stop: int, classes: Any) -> tuple[int, int]:
    """Return where the word here ends, and the classes of its characters."""
    byte_classes = classes[0]
    all_flags = 0
    while at < stop:
        byte, width = data[at], 1
        flags = types.int64(byte_classes[byte])
        if byte >= 0x80:
            flags, width = class_at(data, at, stop, classes)
        if flags & SPACE:
            break
        all_flags |= flags
        at += width
    return min(at, stop), all_flags


@njit(nogil=True)
def _space_stop(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return where the white space here ends."""
    while at < stop:
        flags, width = class_at(data, at, stop, classes)
        if not flags & SPACE:
            break
        at += width
    return min(at, stop)


@njit(nogil=True)
def split_text(data: Any, at: int, stop: int, classes: Any, phrases: Any, out: Any, to: int, ring: Any) -> Any:
    """Copy the tokens of a text; return the place after them, and whether exceptions may have to be put back."""
    first, may_restore = to, False
    at = _space_stop(data, at, stop, classes)
    while at < stop:
        end, flags = _word_stop(data, at, stop, classes)
        number = -1 if flags & NOTABLE else _exception(data, at, end, phrases)
        if flags & NOTABLE:
            to, may_here = _split_word(data, at, end, classes, phrases, out, to, ring)
            may_restore |= may_here
        elif number < 0:
            to = _put(data, at, end, out, to)
        else:
            to = _put_exception(data, at, end, phrases[5][number], out, to)
        at = _space_stop(data, end, stop, classes)
        out[to - 1] = ONE_SPACE if at - end == 1 and data[end] == 0x20 else OTHER_SPACE
    # What a text ends with and the next one begins with do not stand side by side.
    if to > first:
        out[to - 1] = OTHER_SPACE
    return to, may_restore

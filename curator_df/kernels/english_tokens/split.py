# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled splitting of words between white space into tokens, following spaCy's English rules.

Tokens are copied, each followed by one byte of white space that encodes its original separator: nothing (`NOTHING`), one space
(`ONE_SPACE`), or other white space (`OTHER_SPACE`). So any kernel that reads words reads tokens, and no position is stored for a
token: suffixes of a word wait at the end of the space that the word can fill.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, types
from curator_df.kernels.english_tokens.affixes import (
    class_at,
    find_phrase,
    infix_length,
    prefix_length,
    suffix_length,
)
from curator_df.kernels.english_tokens.rules import (
    ALPHA,
    BEFORE_DOT,
    CUTS_WORD,
    DECIMAL,
    HOST,
    INNER,
    IS_EXCEPTION,
    IS_RESTORED,
    LONGEST,
    LOWER,
    NOTABLE,
    SPACE,
    SUFFIX,
    WORD,
)

_LONGEST_NAME, _LONGEST_LAST_NAME, _PORT_DIGITS = 64, 63, 5
_URL_DOT, _MINUS, _PLUS, _COLON, _AT = 0x2E, 0x2D, 0x2B, 0x3A, 0x40


@helper
def is_url(data: Any, start: int, stop: int, classes: Any) -> bool:
    """Return whether the characters between two positions are a URL."""
    if _is_host_and_rest(data, start, stop, classes):
        return True
    at, characters, can_be_scheme = start, 0, True
    while at < stop:
        byte = data[at]
        if byte == _AT and at > start and _is_host_and_rest(data, at + 1, stop, classes):
            return True
        ends_scheme = byte == _COLON and can_be_scheme and characters > 1
        has_slashes = at + 2 < stop and data[at + 1] == 0x2F and data[at + 2] == 0x2F
        if ends_scheme and has_slashes and _is_host_and_rest(data, at + 3, stop, classes):
            return True
        flags, width = class_at(data, at, stop, classes)
        can_be_scheme = can_be_scheme and (flags & WORD != 0 or byte in (_PLUS, _MINUS, _URL_DOT))
        at += width
        characters += 1
    return False


@helper
def _is_host_and_rest(data: Any, at: int, stop: int, classes: Any) -> bool:
    host_stop = _named_host_stop(data, at, stop, classes)
    if host_stop > 0 and _is_rest(data, host_stop, stop, classes):
        return True
    host_stop = _address_stop(data, at, stop, classes)
    return host_stop > 0 and _is_rest(data, host_stop, stop, classes)


@helper
def _is_rest(data: Any, at: int, stop: int, classes: Any) -> bool:
    """Return whether the rest is a port and a path, or empty."""
    if at < stop and data[at] == _COLON:
        digits = 0
        at += 1
        while at < stop:
            flags, width = class_at(data, at, stop, classes)
            if not flags & DECIMAL:
                break
            digits += 1
            at += width
        if digits < 2 or digits > _PORT_DIGITS:
            return False
    return at >= stop or data[at] in (0x2F, 0x3F, 0x23)


@helper
def _named_host_stop(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the end of a host of names, or 0."""
    names, characters, is_lower, is_name = 0, 0, True, True
    first_is_host = last_is_host = False
    while at < stop:
        flags, width = class_at(data, at, stop, classes)
        byte = data[at]
        if byte == _URL_DOT:
            if not (is_name and first_is_host and last_is_host and 0 < characters <= _LONGEST_NAME):
                return 0
            names += 1
            characters, is_lower, is_name = 0, True, True
            at += 1
            continue
        if byte in (_COLON, 0x2F, 0x3F, 0x23):
            break
        last_is_host = flags & HOST != 0
        is_lower = is_lower and flags & LOWER != 0
        is_name = is_name and (last_is_host or byte in (_MINUS, 0x5F))
        if not (is_lower or is_name):
            return 0
        if characters == 0:
            first_is_host = last_is_host
        characters += 1
        at += width
    return at if names and is_lower and 2 <= characters <= _LONGEST_LAST_NAME else 0


@helper
def _address_stop(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the end of a public address of four numbers, or 0."""
    first = second = 0
    for number in range(4):
        value, digits = 0, 0
        while at < stop and digits < 4:
            flags, width = class_at(data, at, stop, classes)
            if not flags & DECIMAL:
                break
            value = value * 10 + (types.int64(data[at]) - 0x30 if width == 1 else _other_digit(value, digits))
            digits += 1
            at += width
        if digits == 0 or digits > 3 or not _is_number(value, digits, number):
            return 0
        first = value if number == 0 else first
        second = value if number == 1 else second
        if number < 3:
            if at >= stop or data[at] != _URL_DOT:
                return 0
            at += 1
    is_private = first in (10, 127) or (first == 169 and second == 254) or (first == 192 and second == 168)
    return 0 if is_private or (first == 172 and 16 <= second <= 31) else at


@helper
def _other_digit(value: int, digits: int) -> int:
    """Return the value of a digit of another script: one that is accepted where any digit is allowed, and nowhere else."""
    if digits == 0:
        return 1000
    return 5 if value == 1 else 9


@helper
def _is_number(value: int, digits: int, number: int) -> bool:
    """Return whether a number with this many digits may be this number of an address: 1-223, 0-255 twice, 0-filled, 1-254."""
    if number in (1, 2):
        return digits < 3 or 100 <= value <= 255
    has_no_zero = value >= (1 if digits == 1 else 10 if digits == 2 else 100)
    return has_no_zero and value <= (223 if number == 0 else 254)


NOTHING, ONE_SPACE, OTHER_SPACE = 0x09, 0x20, 0x0A
MOST_TOKENS = 11
"""Maximum number of tokens that the rules make of one exception."""
_LAST_BEGINS = (1 << LONGEST + 1) - 1
_ONE: Any = np.uint64(1)
_DOT, _DOLLAR = 0x2E, 0x24


@inlined
def _put(data: Any, start: int, stop: int, out: Any, to: int) -> int:
    """Copy a token to a position; return the position after it."""
    for at in range(start, stop):
        out[to] = data[at]
        to += 1
    out[to] = NOTHING
    return to + 1


@helper
def _put_part(data: Any, start: int, stop: int, out: Any, to: int) -> int:
    """Copy a part of a word. After the token of U+00B0, the full stop of ``C.``, ``F.`` and ``K.`` is a separate token.

    These exceptions are restored with more tokens than they were split into, and only here is there space for them.
    """
    is_unit = stop - start == 2 and data[stop - 1] == 0x2E and (data[start] in (0x43, 0x46, 0x4B))
    if is_unit and to > 2 and out[to - 3] == 0xC2 and out[to - 2] == 0xB0 and out[to - 1] == NOTHING:
        to = _put(data, start, start + 1, out, to)
        start += 1
    return _put(data, start, stop, out, to)


@helper
def _put_exception(data: Any, start: int, stop: int, cuts: Any, out: Any, to: int) -> int:
    """Copy the tokens of an exception."""
    for at in range(start, stop):
        out[to] = data[at]
        to += 1
        if (cuts >> types.uint32(at - start)) & types.uint32(1):
            out[to] = NOTHING
            to += 1
    return to


@inlined
def _exception(data: Any, start: int, stop: int, phrases: Any) -> int:
    """Return the position of the description of the exception with these bytes, or -1."""
    return find_phrase(data, start, stop, phrases, IS_EXCEPTION)


@helper
def _cut_affixes(
    data: Any, start: int, stop: int, classes: Any, phrases: Any, out: Any, front: int, back: int
) -> tuple[int, int, int, int]:
    """Cut off the affixes of a word repeatedly; return the bounds of the rest, and the positions in ``out``.

    Both ends are examined before either is cut off, and the remaining word is looked up each time, in spaCy's order.
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


@helper
def _cut_inside(data: Any, start: int, stop: int, classes: Any, phrases: Any, out: Any, to: int) -> int:
    """Copy the rest of a word: an exception, a URL, or parts with the tokens between them."""
    row = _exception(data, start, stop, phrases)
    if row >= 0:
        return _put_exception(data, start, stop, phrases[row + CUTS_WORD], out, to)
    dot = start
    while dot < stop and data[dot] != 0x2E:
        dot += 1
    if dot < stop and is_url(data, start, stop, classes):
        return _put(data, start, stop, out, to)
    at, held = start, start
    while at < stop:
        flags, width = class_at(data, at, stop, classes)
        length = infix_length(data, at, start, stop, classes) if flags & INNER else 0
        # A token at the very start stays with the following characters.
        if length and at > start:
            if at > held:
                to = _put_part(data, held, at, out, to)
            to = _put(data, at, at + length, out, to)
            held = at + length
        at += max(length, width)
    return _put_part(data, held, stop, out, to) if held < stop else to


@helper
def _can_be_restored(data: Any, start: int, out: Any, first: int, to: int, phrases: Any) -> bool:
    """Return whether adjacent tokens of a word are an exception that would be restored."""
    # Bit n stands for a token that began n bytes before the next one.
    begins, end = 1, start
    for place in range(first, to):
        if out[place] != NOTHING:
            begins = begins << 1 & _LAST_BEGINS
            end += 1
            continue
        earlier = begins
        while earlier:
            length = _lowest_bit(earlier)
            if find_phrase(data, end - length, end, phrases, IS_RESTORED) >= 0:
                return True
            earlier &= earlier - 1
        begins |= 1
    return False


@inlined
def _lowest_bit(bits: int) -> int:
    number = 0
    while not bits >> number & 1:
        number += 1
    return number


@helper
def _split_word(data: Any, start: int, stop: int, classes: Any, phrases: Any, out: Any, first: int) -> Any:
    """Copy the tokens of a word; return the position after them, and whether an exception may have to be restored."""
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
    # Two tokens that form an exception were found as the word.
    return to, cut > 0 and to - first > stop - start + 2 and _can_be_restored(data, start, out, first, to, phrases)


@helper
def _word_stop(data: Any, at: int, stop: int, classes: Any) -> tuple[int, int]:
    """Return the end of the word here, and the classes of its characters."""
    all_flags = 0
    while at < stop:
        byte, width = data[at], 1
        flags = types.int64(classes[byte])
        if byte >= 0x80:
            flags, width = class_at(data, at, stop, classes)
        if flags & SPACE:
            break
        all_flags |= flags
        at += width
    return min(at, stop), all_flags


@helper
def _space_stop(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the end of the white space here."""
    while at < stop:
        flags, width = class_at(data, at, stop, classes)
        if not flags & SPACE:
            break
        at += width
    return min(at, stop)


@inlined
def _plain_word(data: Any, start: int, stop: int, classes: Any, phrases: Any, out: Any, to: int) -> tuple[int, int]:
    """Copy a word of only ASCII letters, or with one mark after them that is cut off. Most words are of this kind.

    Return the end of the word and the position after its tokens; -1 for any other word, of which nothing valid is written.
    """
    at, end, put = np.uint64(start), np.uint64(stop), np.uint64(to)
    while at < end and classes[data[at]] & ALPHA:
        out[put] = data[at]
        at += _ONE
        put += _ONE
    letters = types.int64(at)
    if letters == start:
        return -1, to
    word, to = letters, types.int64(put)
    if letters < stop and not classes[data[letters]] & SPACE:
        mark = data[letters]
        is_cut = classes[mark] & SUFFIX if mark != _DOT else classes[data[letters - 1]] & BEFORE_DOT
        # After letters, a dollar sign can be a prefix.
        if not is_cut or mark == _DOLLAR:
            return -1, to
        word += 1
        if word < stop and not classes[data[word]] & SPACE:
            return -1, to
        if _exception(data, start, word, phrases) >= 0:
            return -1, to
        out[to] = NOTHING
        out[to + 1] = mark
        to += 2
    if _exception(data, start, letters, phrases) >= 0:
        return -1, to
    out[to] = NOTHING
    return word, to + 1


@helper
def _any_word(data: Any, at: int, stop: int, classes: Any, phrases: Any, out: Any, to: int) -> Any:
    """Copy the tokens of a word; return its end, the position after them, and whether an exception may have to be restored."""
    end, flags = _word_stop(data, at, stop, classes)
    if flags & NOTABLE:
        to, may_restore = _split_word(data, at, end, classes, phrases, out, to)
        return end, to, may_restore
    row = _exception(data, at, end, phrases)
    if row < 0:
        return end, _put(data, at, end, out, to), False
    return end, _put_exception(data, at, end, phrases[row + CUTS_WORD], out, to), False


@helper
def split_text(data: Any, at: int, stop: int, classes: Any, phrases: Any, out: Any, to: int) -> Any:
    """Copy the tokens of a text; return the position after them, and whether exceptions may have to be restored."""
    first, may_restore = to, False
    at = _space_stop(data, at, stop, classes)
    while at < stop:
        end, after = _plain_word(data, at, stop, classes, phrases, out, to)
        if end < 0:
            end, after, may_here = _any_word(data, at, stop, classes, phrases, out, to)
            may_restore |= may_here
        to = after
        at = end + 1
        is_one = at < stop and data[end] == 0x20 and data[at] < 0x80 and not classes[data[at]] & SPACE
        if not is_one:
            at = _space_stop(data, end, stop, classes)
            is_one = at - end == 1 and data[end] == 0x20
        out[to - 1] = ONE_SPACE if is_one else OTHER_SPACE
    # The last token of a text and the first one of the next are not adjacent.
    if to > first:
        out[to - 1] = OTHER_SPACE
    return to, may_restore

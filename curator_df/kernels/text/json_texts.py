# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled extraction of one text from each line of JSON; a JSON parser reads the rest of the lines.

It knows only where strings begin and end, and how deep the brackets are. The text is removed between its quotation
marks, which stay, so that the rest is as valid or invalid as the whole line was. Nothing is validated here: if a text is not
clearly valid (an unknown escape, a control character, half of a surrogate pair), no text is extracted at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.text.byte_search import are_same
from curator_df.kernels.text.swar import first_mark, put_word, word_at, zero_marks

_U: Any = np.uint64
_0, _1, _2, _4, _6, _8 = (_U(number) for number in (0, 1, 2, 4, 6, 8))
_TOPS, _ONES = _U(0x8080808080808080), _U(0x0101010101010101)
_QUOTES, _BACKSLASHES, _SPACES = _ONES * _U(0x22), _ONES * _U(0x5C), _ONES * _U(0x20)
QUOTE, BACKSLASH, SPACE = 0x22, 0x5C, 0x20
COLON, COMMA, UNICODE = 0x3A, 0x2C, 0x75
OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET, LINE_FEED = 0x7B, 0x7D, 0x5B, 0x5D, 0x0A
ROOM = 8
"""Padding in bytes that both outputs need."""

ESCAPES: Any = np.zeros(256, dtype=np.uint8)
"""Character for each letter after a backslash; 0 if there is none, or it is not one byte."""
for _letter, _byte in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    ESCAPES[_letter] = _byte
HEX_DIGITS: Any = np.full(256, 16, dtype=np.uint8)
"""Value of each hexadecimal digit; 16 for other characters."""
for _value, _digit in enumerate(b"0123456789abcdef"):
    HEX_DIGITS[[_digit, ord(chr(_digit).upper())]] = _value


@inlined
def _end_of_string(data: Any, at: int, stop: int) -> int:
    """Return the position of the quotation mark that ends a string whose content begins at ``at``; ``stop`` if there is none."""
    while at < stop:
        if at + _8 <= stop:
            word = word_at(data, at)
            marks = zero_marks(word ^ _QUOTES) | zero_marks(word ^ _BACKSLASHES)
            if marks == _0:
                at += _8
                continue
            at += first_mark(marks)
        if data[at] == QUOTE:
            return at
        at += _2 if data[at] == BACKSLASH else _1
    return stop


@inlined
def _four_digits(data: Any, at: int, stop: int, digits: Any) -> int:
    """Return the value of four hexadecimal digits; -1 if they are not."""
    if at + _4 > stop:
        return -1
    code = 0
    for place in range(4):
        digit = digits[data[at + _U(place)]]
        if digit == 16:
            return -1
        code = code << 4 | types.int64(digit)
    return code


@inlined
def _put_character(texts: Any, to: int, code: int) -> int:
    """Write a character in UTF-8; return the next output position."""
    if code < 0x80:
        texts[to] = code
        return to + _1
    if code < 0x800:
        texts[to] = 0xC0 | code >> 6
        texts[to + _1] = 0x80 | code & 63
        return to + _2
    if code < 0x10000:
        texts[to] = 0xE0 | code >> 12
        texts[to + _1] = 0x80 | code >> 6 & 63
        texts[to + _2] = 0x80 | code & 63
        return to + _U(3)
    texts[to] = 0xF0 | code >> 18
    texts[to + _1] = 0x80 | code >> 12 & 63
    texts[to + _2] = 0x80 | code >> 6 & 63
    texts[to + _U(3)] = 0x80 | code & 63
    return to + _4


@helper
def _take_unicode(data: Any, at: int, stop: int, texts: Any, to: int, digits: Any) -> tuple[int, int]:
    r"""Write the character of the ``\u`` escape (or two) at ``at``; return the next positions of both, or (0, 0)."""
    if at + _2 > stop or data[at + _1] != UNICODE:
        return _0, _0
    code = _four_digits(data, at + _2, stop, digits)
    at += _6
    if 0xD800 <= code < 0xDC00 and at + _2 <= stop and data[at] == BACKSLASH and data[at + _1] == UNICODE:
        low = _four_digits(data, at + _2, stop, digits)
        at += _6
        code = 0x10000 + (code - 0xD800 << 10 | low - 0xDC00) if 0xDC00 <= low < 0xE000 else -1
    if code < 0 or 0xD800 <= code < 0xE000:
        return _0, _0
    return at, _put_character(texts, to, code)


@helper
def _take_text(data: Any, at: int, stop: int, texts: Any, to: int, escapes: Any, digits: Any) -> tuple[int, int]:
    """Write a string whose content begins at ``at`` without its escapes; return the ends of both, or (0, 0)."""
    while at < stop:
        if at + _8 <= stop:
            word = word_at(data, at)
            put_word(texts, to, word)
            marks = zero_marks(word ^ _QUOTES) | zero_marks(word ^ _BACKSLASHES) | ((word - _SPACES) & ~word & _TOPS)
            if marks == _0:  # a branch, so that the next word does not wait
                at += _8
                to += _8
                continue
            plain = first_mark(marks)
            at += plain
            to += plain
        byte = data[at]
        if byte == QUOTE:
            return at, to
        if byte == BACKSLASH:
            meant = escapes[data[at + _1]] if at + _1 < stop else 0
            if meant:
                texts[to] = meant
                at += _2
                to += _1
                continue
            at, to = _take_unicode(data, at, stop, texts, to, digits)
            if at == _0:
                break
            continue
        if byte < SPACE:
            break
        texts[to] = byte
        at += _1
        to += _1
    return _0, _0


@inlined
def _copy(data: Any, at: int, stop: int, rest: Any, to: int) -> int:
    """Copy bytes, eight in each step; return the next output position."""
    while at + _8 <= stop:
        put_word(rest, to, word_at(data, at))
        at += _8
        to += _8
    while at < stop:
        rest[to] = data[at]
        at += _1
        to += _1
    return to


@helper
def _has_no_escape(data: Any, at: int, stop: int) -> bool:
    while at < stop and data[at] != BACKSLASH:
        at += _1
    return at == stop


@helper
def _bracket(byte: int) -> int:
    """Return the change of the bracket depth by a byte."""
    return int(byte in (OPEN_BRACE, OPEN_BRACKET)) - int(byte in (CLOSE_BRACE, CLOSE_BRACKET))


@helper
def _find_text(data: Any, at: int, stop: int, name: Any, is_found: bool) -> tuple[int, bool]:
    """Return the start of the text's content and True, or the end of the line and False, or 0 if it is not clearly valid.

    ``at`` is the start of the line or, if the text was already found, the position after it.
    """
    depth, is_value, is_wanted = int(is_found), is_found, is_found
    while at < stop:
        byte = data[at]
        at += _1
        if byte == QUOTE:
            if is_wanted and is_value and depth == 1:
                return (_0, False) if is_found else (at, True)
            first, at = at, _end_of_string(data, at, stop)
            if depth == 1 and not is_value:
                if not _has_no_escape(data, first, at):
                    break
                is_wanted = at - first == _U(len(name)) and are_same(data, first, name, _0, at - first)
            at += _1
        elif depth == 1 and byte in (COLON, COMMA):
            is_value = byte == COLON
        else:
            depth += _bracket(byte)
            if depth < 0 or (depth == 0 and at < stop and byte == CLOSE_BRACE):
                break
    return (at, False) if at == stop and depth == 0 else (_0, False)


@kernel(
    types.UniTuple(types.int64, 3)(
        types.Array(types.uint8, 1, "C", readonly=True),
        types.int64[::1],
        types.int64[::1],
        types.Array(types.uint8, 1, "C", readonly=True),
        types.Array(types.uint8, 1, "C", readonly=True),
        types.Array(types.uint8, 1, "C", readonly=True),
        types.uint8[::1],
        types.int64[::1],
        types.uint8[::1],
    )
)
def take_texts(
    data: Any, starts: Any, stops: Any, name: Any, escapes: Any, digits: Any, texts: Any, offsets: Any, rest: Any
) -> tuple[int, int, int]:
    """Write the field ``name`` of each line's object to ``texts``, and the rest of the lines to ``rest``.

    Parameters
    ----------
    data : ndarray of uint8
        Lines of JSON, in valid UTF-8.
    starts, stops : ndarray of int64
        Bounds of the lines, without the line ends.
    name : ndarray of uint8
        Name of the field. It is searched for in the outermost object, and extracted if it is a string.
    escapes, digits : ndarray of uint8
        `ESCAPES` and `HEX_DIGITS`.
    texts : ndarray of uint8
        The texts, one after the other. Its size is that of ``data`` plus `ROOM` bytes.
    offsets : ndarray of int64, shape (lines + 1,)
        End of each text in ``texts``; the first is 0. A line without the field has an empty text.
    rest : ndarray of uint8
        Lines with nothing between the quotation marks of the extracted text, each with a line end.

    Returns
    -------
    tuple of int
        Lines that have such a text (-1: a line is not clearly valid, or ``rest`` is too small), bytes of
        ``rest``, and bytes of its longest line.
    """
    to = out = _0
    taken = longest = 0
    room = _U(len(rest) - ROOM)
    offsets[0] = 0
    for line in range(len(starts)):
        copied, stop, first_out = _U(starts[line]), _U(stops[line]), out
        at, is_found = _find_text(data, copied, stop, name, False)
        if is_found:
            if out + (at - copied) > room:
                return -1, 0, 0
            out = _copy(data, copied, at, rest, out)
            copied, to = _take_text(data, at, stop, texts, to, escapes, digits)
            if copied == _0:
                return -1, 0, 0
            taken += 1
            at, _ = _find_text(data, copied + _1, stop, name, True)
        if at == _0 or out + (stop - copied) + _1 > room:
            return -1, 0, 0
        out = _copy(data, copied, stop, rest, out)
        rest[out] = LINE_FEED
        out += _1
        offsets[line + 1] = types.int64(to)
        longest = max(longest, types.int64(out - first_out))
    return taken, types.int64(out), longest

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counter over white-space separated words: one scan of a text, of any length, in constant memory.

Also the function with which every compiled kernel reads a code point from UTF-8.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.metrics.counts import COUNT_STOP_WORDS, STOP_WORDS, WORD_COUNTS
from curator_df.kernels.text.code_points import ALPHA, LINE_END, MARK, SPACE, SYMBOL
from curator_df.kernels.text.swar import dark_marks, first_bytes, first_mark, letter_marks, word_at, zero_marks

_ATTENTION = SPACE | MARK
(
    _WORDS,
    _NON_SYMBOL_WORDS,
    _NON_SYMBOL_CODE_POINTS,
    _ALPHA_WORDS,
    _STOP_WORDS,
    _HASHES,
    _ELLIPSES,
    _LINES,
    _BULLET_LINES,
    _ELLIPSIS_LINES,
) = range(len(WORD_COUNTS))

# The stop words as little-endian numbers, each at a unique position: the top bits of its product with a number that gives no
# collisions.
_STOP_MIX, _STOP_SHIFT = np.uint64(0xA648A7DD06839EB9), np.uint64(60)
_STOP_KEYS = np.full(16, -1, dtype=np.int64).view(np.uint64)
for _key in (np.array([int.from_bytes(word.encode(), "little")], dtype=np.uint64) for word in STOP_WORDS):
    _STOP_KEYS[_key * _STOP_MIX >> _STOP_SHIFT] = _key
_ONE, _THREE, _EIGHT, _TOP, _SIXTY_FOUR = (np.uint64(number) for number in (1, 3, 8, 63, 64))
_EIGHT_DOTS, _EIGHT_HASHES = np.uint64(0x2E2E2E2E2E2E2E2E), np.uint64(0x2323232323232323)


@inlined
def code_point(data: Any, at: int, stop: int) -> tuple[int, int]:
    """Return the code point that starts at a byte that is not ASCII, and its length in bytes.

    Damaged UTF-8 (Arrow does not check Parquet) gives U+FFFD of one byte or a wrong code point; nothing past ``stop``
    is read.
    """
    lead = types.int64(data[at])
    if lead < 0xC2 or at + 1 >= stop:
        return 0xFFFD, 1
    second = types.int64(data[at + 1]) & 0x3F
    if lead < 0xE0:
        return ((lead & 0x1F) << 6) | second, 2
    if at + 2 >= stop:
        return 0xFFFD, 1
    third = types.int64(data[at + 2]) & 0x3F
    if lead < 0xF0:
        return ((lead & 0x0F) << 12) | (second << 6) | third, 3
    if at + 3 >= stop:
        return 0xFFFD, 1
    return ((lead & 0x07) << 18) | (second << 12) | (third << 6) | (types.int64(data[at + 3]) & 0x3F), 4


@inlined
def _is_character(data: Any, at: int, stop: int, first: int, second: int, third: int) -> bool:
    return at + 2 < stop and data[at] == first and data[at + 1] == second and data[at + 2] == third


@inlined
def _starts_bullet(data: Any, at: int, stop: int) -> bool:
    # U+2022 is E2 80 A2.
    return data[at] == 0x2D or _is_character(data, at, stop, 0xE2, 0x80, 0xA2)


@inlined
def _ends_in_ellipsis(data: Any, start: int, stop: int) -> bool:
    at = stop - 3
    if at < start:
        return False
    # U+2026 is E2 80 A6.
    return _is_character(data, at, stop, 0xE2, 0x80, 0xA6) or _is_character(data, at, stop, 0x2E, 0x2E, 0x2E)


@inlined
def _bit_of_key(key: int) -> int:
    place = key * _STOP_MIX >> _STOP_SHIFT
    return types.int64(key == _STOP_KEYS[place]) << types.int64(place)


@inlined
def stop_word_bit(data: Any, start: int, length: int, case: int) -> int:
    """Return the bit of the stop word with these 2 to 4 bytes, or 0.

    ``case``: 0, or 0x20 to treat capitals as small letters.
    """
    key = letter = np.uint64(0)
    for place in range(length):
        letter = np.uint64(data[start + place] | case)
        key |= letter << np.uint64(8 * place)
    if letter == 0:  # a NUL at the end of a word would be no part of its key
        return 0
    return _bit_of_key(key)


@inlined
def _dots(data: Any, start: int, stop: int) -> int:
    at = start
    while at < stop and data[at] == 0x2E:
        at += 1
    return at - start


@helper
def _plain_stop(data: Any, start: int, stop: int, byte_classes: Any) -> tuple[int, int, int]:
    """Return the end of the run of bytes of the fast path, and the union and intersection of their classes."""
    # Unsigned, so that numba omits its test for negative indices.
    at, end = np.uint64(start), np.uint64(stop)
    any_flags, all_flags = types.uint8(0), types.uint8(0xFF)
    while at < end:
        flags = byte_classes[data[at]]
        if flags & _ATTENTION:
            break
        any_flags |= flags
        all_flags &= flags
        at += _ONE
    return types.int64(at), any_flags, all_flags


@inlined
def _plain_word(data: Any, start: int, stop: int) -> tuple[int, int]:
    """Return the end of an ASCII word that has a letter and nothing that is counted, and the bit of its last eight bytes.

    The end is ``start`` if this may be another kind of word.
    """
    at, end = np.uint64(start), np.uint64(stop)
    bit = 0
    letters = np.uint64(0)
    while at + _EIGHT <= end:
        eight = word_at(data, at)
        plain = first_mark(dark_marks(eight))
        if plain:
            piece = first_bytes(eight, plain)
            dots = zero_marks(piece ^ _EIGHT_DOTS)
            # A full stop after another, or the last of the eight bytes, which the next may follow.
            if (
                zero_marks(piece ^ _EIGHT_HASHES)
                | (dots & (dots << _EIGHT))
                | (dots >> _TOP if plain == _EIGHT else dots ^ dots)
            ):
                return start, 0
            letters |= letter_marks(piece)
            bit = _bit_of_key(piece >> (_SIXTY_FOUR - (plain << _THREE)))
            at += plain
        if plain < _EIGHT:
            # Control characters and other scripts may continue the word.
            is_space = data[at] == 0x20 or data[at] == 0x0A
            return (types.int64(at), bit) if is_space and letters else (start, 0)
    return start, 0


@helper
def _scan_word(
    data: Any, at: int, stop: int, byte_classes: Any, page_of: Any, pages: Any
) -> tuple[int, int, int, int, int, int]:
    """Return the end of the word, its classes (union, intersection), continuation bytes, hashes and ellipses."""
    any_flags, all_flags, continuation_bytes, hashes, ellipses = 0, 0xFF, 0, 0, 0
    while True:
        at, any_here, all_here = _plain_stop(data, at, stop, byte_classes)
        any_flags |= any_here
        all_flags &= all_here
        if at >= stop:
            break
        flags, width = types.int64(byte_classes[data[at]]), 1
        if flags & SPACE:
            break
        if data[at] >= 0x80:
            code, width = code_point(data, at, stop)
            flags = types.int64(pages[page_of[code >> 8], code & 255])
            if flags & SPACE:
                break
            ellipses += code == 0x2026
            continuation_bytes += width - 1
        elif data[at] == 0x23:
            hashes += 1
        else:
            width = _dots(data, at, stop)
            ellipses += width // 3
        any_flags |= flags
        all_flags &= flags
        at += width
    return at, any_flags, all_flags, continuation_bytes, hashes, ellipses


@helper
def count_words(
    data: Any, at: int, stop: int, byte_classes: Any, page_of: Any, pages: Any, features: int, row: Any
) -> None:
    """Count the words of the text ``data[at:stop]`` into the columns of ``row``: `WORD_COUNTS`."""
    line_start, word_start, word_stop = at, -1, -1  # The last word of the line; -1 until it has one.
    words = spoken = code_points = alpha = hashes = ellipses = lines = bullets = ellipsis_lines = found = 0
    while at < stop:
        flags, width = types.int64(byte_classes[data[at]]), 1
        if data[at] >= 0x80:
            code, width = code_point(data, at, stop)
            flags = types.int64(pages[page_of[code >> 8], code & 255])
        if flags & SPACE:
            if flags & LINE_END:
                width += data[at] == 0x0D and at + 1 < stop and data[at + 1] == 0x0A
                lines += 1
                ellipsis_lines += word_start >= 0 and _ends_in_ellipsis(data, word_start, word_stop)
                line_start, word_start = at + width, -1
            at += width
            continue
        bullets += word_start < 0 and _starts_bullet(data, at, stop)
        word_start = at
        at, bit = _plain_word(data, word_start, stop)
        if at > word_start:
            length = at - word_start
            words += 1
            alpha += 1
            spoken += 1
            code_points += length
            found |= bit if length <= 4 else 0
            word_stop = at
            continue
        at, any_flags, all_flags, continuation_bytes, more_hashes, more_ellipses = _scan_word(
            data, at, stop, byte_classes, page_of, pages
        )
        word_stop = at
        length = word_stop - word_start
        words += 1
        hashes += more_hashes
        ellipses += more_ellipses
        alpha += (any_flags & ALPHA) != 0
        if not all_flags & SYMBOL:
            spoken += 1
            code_points += length - continuation_bytes
        if 2 <= length <= 4:
            found |= stop_word_bit(data, word_start, length, 0)
    if stop > line_start:
        lines += 1
        ellipsis_lines += word_start >= 0 and _ends_in_ellipsis(data, word_start, word_stop)
    stop_words = _bits(found) if features & COUNT_STOP_WORDS else 0
    row[_WORDS], row[_NON_SYMBOL_WORDS], row[_NON_SYMBOL_CODE_POINTS] = words, spoken, code_points
    row[_ALPHA_WORDS], row[_STOP_WORDS], row[_HASHES], row[_ELLIPSES] = alpha, stop_words, hashes, ellipses
    row[_LINES], row[_BULLET_LINES], row[_ELLIPSIS_LINES] = lines, bullets, ellipsis_lines


@helper
def _bits(found: int) -> int:
    bits = 0
    while found:
        bits += found & 1
        found >>= 1
    return bits


BYTES = types.Array(types.uint8, 1, "C", readonly=True)
"""Type of the bytes of texts, and of the classes of bytes."""
SPAN = (
    BYTES,
    types.Array(types.int64, 1, "C", readonly=True),
    BYTES,
    types.Array(types.uint16, 1, "C", readonly=True),
    types.Array(types.uint8, 2, "C", readonly=True),
)
"""Types of the inputs of a pass: data, offsets, and the classes of bytes and code points."""
COUNTS_TYPE = types.int64[:, ::1]
"""Type of counts, shape (rows, `counts.COUNTS`)."""


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_words_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns of `counts.WORD_COUNTS`, which come first."""
    for row in range(len(counts)):
        count_words(data, offsets[row], offsets[row + 1], byte_classes, page_of, pages, features, counts[row])

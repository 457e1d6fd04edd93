# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled MurmurHash3_x64_128 of texts, unchanged or normalized while hashing, in constant memory.

See `content_hash` for
the functions to call.

References
----------
Austin Appleby, MurmurHash3.cpp (public domain), ``MurmurHash3_x64_128``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.metrics.words.word_counts import code_point
from curator_df.kernels.text.lower_case import SPACE_BYTE, SPACE_STEP
from curator_df.kernels.text.swar import (
    first_mark,
    line_feed_marks,
    lower_word,
    other_marks,
    put_word,
    space_marks,
    spaced_word,
    word_at,
)

_U: Any = np.uint64
_C1, _C2 = _U(0x87C37B91114253D5), _U(0x4CF5AD432745937F)
_ADD_1, _ADD_2, _FIVE = _U(0x52DCE729), _U(0x38495AB5), _U(5)
_MIX_1, _MIX_2 = _U(0xFF51AFD7ED558CCD), _U(0xC4CEB9FE1A85EC53)
_0, _1, _2, _3, _4, _6, _7, _8, _16 = (_U(number) for number in (0, 1, 2, 3, 4, 6, 7, 8, 16))
_24, _31, _32, _33, _40, _48, _56, _64 = (_U(number) for number in (24, 31, 32, 33, 40, 48, 56, 64))
_27, _15, _63 = _U(27), _U(15), _U(63)
SPACE = 0x20
PIECE_BYTES = 1024
"""Bytes of normalized text that wait to be hashed; a multiple of 16."""
PIECE_ROOM = PIECE_BYTES + 8
"""Bytes of the array for normalized text: one more code point, and the space before it, fit at its end."""


@inlined
def _rotated(word: int, bits: int) -> int:
    return (word << bits) | (word >> (_64 - bits))


@inlined
def _first_half(word: int) -> int:
    return _rotated(word * _C1, _31) * _C2


@inlined
def _second_half(word: int) -> int:
    return _rotated(word * _C2, _33) * _C1


@helper
def hash_blocks(data: Any, at: int, blocks: int, high: int, low: int) -> tuple[int, int]:
    """Mix in ``blocks`` blocks of 16 bytes."""
    end = at + blocks * _16
    while at < end:
        high ^= _first_half(word_at(data, at))
        high = (_rotated(high, _27) + low) * _FIVE + _ADD_1
        low ^= _second_half(word_at(data, at + _8))
        low = (_rotated(low, _31) + high) * _FIVE + _ADD_2
        at += _16
    return high, low


@inlined
def finished(word: int) -> int:
    """Spread every bit of a word over the whole word: the finalizer of the algorithm."""
    word ^= word >> _33
    word *= _MIX_1
    word ^= word >> _33
    word *= _MIX_2
    return word ^ (word >> _33)


@helper
def hash_end(data: Any, at: int, length: int, high: int, low: int, total: int) -> tuple[int, int]:
    """Mix in the last ``length`` bytes (under 16) and the length of the whole text."""
    if at + _16 <= _U(len(data)):
        # Two loads, without a branch on the number of bytes.
        first, second = word_at(data, at), word_at(data, at + _8)
        if length < _8:
            first &= (_1 << (length << _3)) - _1
            second = _0
        else:
            second &= (_1 << ((length - _8) << _3)) - _1
    else:
        first = second = place = _0
        while place < length:
            byte = _U(data[at + place])
            if place < _8:
                first |= byte << (place * _8)
            else:
                second |= byte << ((place - _8) * _8)
            place += _1
    low ^= _second_half(second)
    high ^= _first_half(first)
    high ^= total
    low ^= total
    high += low
    low += high
    high, low = finished(high), finished(low)
    high += low
    return high, low + high


@helper
def hash_text(data: Any, start: int, stop: int) -> tuple[int, int]:
    """Hash the text ``data[start:stop]``."""
    at, total = _U(start), _U(stop - start)
    blocks = total >> _4
    high, low = hash_blocks(data, at, blocks, _0, _0)
    return hash_end(data, at + blocks * _16, total & _15, high, low, total)


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OFFSETS = types.Array(types.int64, 1, "C", readonly=True)


@kernel(types.void(_BYTES, _OFFSETS, types.uint64[:, ::1]))
def hash_texts(data: Any, offsets: Any, hashes: Any) -> None:
    """Hash each text of a span into its row of ``hashes``, shape (rows, 2)."""
    for row in range(len(hashes)):
        hashes[row, 0], hashes[row, 1] = hash_text(data, offsets[row], offsets[row + 1])


@helper
def put_code_point(piece: Any, held: int, code: int) -> int:
    """Append a code point that is not ASCII, or was not before, as UTF-8; return the bytes held."""
    if code < 0x80:
        piece[held] = code
        return held + 1
    if code < 0x800:
        piece[held] = 0xC0 | code >> 6
        piece[held + 1] = 0x80 | code & 0x3F
        return held + 2
    if code < 0x10000:
        piece[held] = 0xE0 | code >> 12
        piece[held + 1] = 0x80 | code >> 6 & 0x3F
        piece[held + 2] = 0x80 | code & 0x3F
        return held + 3
    piece[held] = 0xF0 | code >> 18
    piece[held + 1] = 0x80 | code >> 12 & 0x3F
    piece[held + 2] = 0x80 | code >> 6 & 0x3F
    piece[held + 3] = 0x80 | code & 0x3F
    return held + 4


@helper
def _fill_plain(data: Any, at: int, stop: int, piece: Any, held: int, lowered: Any) -> tuple[int, int]:
    """Append ASCII, from a character that is not white space up to a byte of other code, or the end of piece or text.

    Single spaces and line feeds inside are appended too; the last appended character is never white space.
    """
    # Unsigned, so that numba omits its test for negative indices.
    here, end, place, full = _U(at), _U(stop), _U(held), _U(PIECE_BYTES)
    first = place
    while here + _8 < end and place < full:
        word = word_at(data, here)
        line_feeds = line_feed_marks(word)
        blanks = line_feeds | space_marks(word)
        follows = (blanks >> _8) | (_U(lowered[data[here + _8]] == SPACE_BYTE) << _63)
        # The other loop handles a blank before a blank.
        marks = other_marks(word, line_feeds) | (blanks & follows)
        put_word(piece, place, lower_word(spaced_word(word, line_feeds)))
        if marks:
            whole = first_mark(marks)
            here += whole
            place += whole
            break
        here += _8  # not the number of unmarked bytes, so that the next word does not wait
        place += _8
    if place > first and piece[place - _1] == SPACE:
        here -= _1
        place -= _1
    while here < end and place < full:
        byte = lowered[data[here]]
        if byte == SPACE_BYTE:
            break
        piece[place] = byte
        place += _1
        here += _1
    return types.int64(here), types.int64(place)


@helper
def fill_normalized(
    data: Any, at: int, stop: int, piece: Any, held: int, spaced: int, lowered: Any, page_of: Any, pages: Any
) -> tuple[int, int, int]:
    """Normalize until a piece is full or the text ends; return the position, the bytes held and the state of the space.

    ``spaced``: 0 before the first character that is not white space, 1 after one, 2 after white space that follows one.
    """
    while at < stop and held < PIECE_BYTES:
        step, width, code = types.int64(SPACE_STEP), 1, types.int64(data[at])
        if code >= 0x80:
            code, width = code_point(data, at, stop)
            step = types.int64(pages[page_of[code >> 8], code & 255])
        elif lowered[code] != SPACE_BYTE:
            step = types.int64(0)
        if step == SPACE_STEP:
            spaced = 2 if spaced else 0
            at += width
            continue
        if spaced == 2:
            piece[held] = 0x20
            held += 1
        spaced = 1
        if code < 0x80:
            at, held = _fill_plain(data, at, stop, piece, held, lowered)
            continue
        if step == 0:
            for place in range(width):  # Also bytes that are not UTF-8, up to the width assumed for them.
                piece[held + place] = data[at + place]
            held += width
        else:
            held = put_code_point(piece, held, code + step)
        at += width
    return at, held, spaced


@helper
def hash_normalized_text(
    data: Any, at: int, stop: int, lowered: Any, page_of: Any, pages: Any, piece: Any
) -> tuple[int, int]:
    """Hash the normalized text ``data[at:stop]``; ``piece``, of `PIECE_ROOM` bytes, is overwritten."""
    high = low = total = _0
    held = spaced = 0
    while True:
        at, held, spaced = fill_normalized(data, at, stop, piece, held, spaced, lowered, page_of, pages)
        if held < PIECE_BYTES:
            break
        high, low = hash_blocks(piece, _0, _U(PIECE_BYTES // 16), high, low)
        total += _U(PIECE_BYTES)
        held -= PIECE_BYTES
        for place in range(held):
            piece[place] = piece[PIECE_BYTES + place]
    blocks = _U(held) >> _4
    high, low = hash_blocks(piece, _0, blocks, high, low)
    total += _U(held)
    return hash_end(piece, blocks * _16, _U(held) & _15, high, low, total)


@kernel(
    types.void(
        _BYTES,
        _OFFSETS,
        _BYTES,
        types.Array(types.uint16, 1, "C", readonly=True),
        types.Array(types.int32, 2, "C", readonly=True),
        types.uint64[:, ::1],
    )
)
def hash_normalized(data: Any, offsets: Any, lowered: Any, page_of: Any, pages: Any, hashes: Any) -> None:
    """Hash each text of a span in lower case, with runs of white space as one space and none at the ends."""
    piece = np.empty(PIECE_ROOM, dtype=np.uint8)
    for row in range(len(hashes)):
        high, low = hash_normalized_text(data, offsets[row], offsets[row + 1], lowered, page_of, pages, piece)
        hashes[row, 0], hashes[row, 1] = high, low

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled extraction of the words of a text into a contiguous buffer, as many as fit.

A word n-gram is then a run of bytes and is hashed in place: without white space as in libcudf, or with one space
between words. Functions that other compiled functions
call; nothing is compiled when this module is imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, types
from curator_df.kernels.metrics.words.word_counts import code_point
from curator_df.kernels.text.lower_case import SPACE_BYTE, SPACE_STEP
from curator_df.kernels.text.murmur_hash import put_code_point
from curator_df.kernels.text.swar import dark_marks, first_mark, lower_word, put_word, word_at

BUFFER_BYTES = 32_768
"""Initial size of the buffer of words; larger only if the words of one n-gram are longer."""
_ROOM = 16
"""Bytes kept free: eight for a store of which only some are kept, and three that are read when the last word is hashed."""
_U: Any = np.uint64
_1, _8 = _U(1), _U(8)


@helper
def _copy_plain(data: Any, at: int, stop: int, buffer: Any, held: int, byte_of: Any, lower: bool) -> tuple[int, int]:
    # Unsigned, so that numba omits its test for negative indices.
    here, end, place, full = _U(at), _U(stop), _U(held), _U(len(buffer) - _ROOM)
    while here < end and place < full:
        if here + _8 <= end:
            eight = word_at(data, here)
            dark = dark_marks(eight)
            # The bytes after the first dark byte are overwritten.
            put_word(buffer, place, lower_word(eight) if lower else eight)
            plain = first_mark(dark)
            here += plain
            place += plain
            if not dark:
                continue
        byte = byte_of[data[here]]
        if byte == SPACE_BYTE:
            break
        buffer[place] = byte
        place += _1
        here += _1
    return types.int64(here), types.int64(place)


@helper
def _end_word(buffer: Any, held: int, word_ends: Any, words: int, gap: int) -> tuple[int, int]:
    word_ends[words] = held
    if gap:
        buffer[held] = 0x20
    return held + gap, words + 1


@helper
def fill_words(
    data: Any,
    at: int,
    stop: int,
    buffer: Any,
    held: int,
    word_ends: Any,
    words: int,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    lower: bool,
    gap: int,
) -> tuple[int, int, int]:
    """Append words until the text ends or no more fit; return the position, the bytes held and the number of complete words.

    ``byte_of``: value for each byte, `SPACE_BYTE` for white space and non-ASCII bytes. ``gap``: 1 to put
    a space after each word, 0 for none. The last word ends with the text, also without white space after it.
    """
    start = word_ends[words - 1] + gap if words else 0
    while at < stop and held + _ROOM < len(buffer) and words < len(word_ends):
        at, held = _copy_plain(data, at, stop, buffer, held, byte_of, lower)
        if at == stop or held + _ROOM >= len(buffer):
            break
        width, step, code = 1, types.int64(SPACE_STEP), types.int64(data[at])
        if code >= 0x80:
            code, width = code_point(data, at, stop)
            step = types.int64(pages[page_of[code >> 8], code & 255])
        if step == SPACE_STEP:
            if held > start:
                held, words = _end_word(buffer, held, word_ends, words, gap)
                start = held
        elif lower and step != 0:
            held = put_code_point(buffer, held, code + step)
        else:
            for place in range(width):
                buffer[held + place] = data[at + place]
            held += width
        at += width
    if at == stop and held > start and words < len(word_ends):
        held, words = _end_word(buffer, held, word_ends, words, gap)
    return at, held, words


@helper
def keep_last_words(buffer: Any, held: int, word_ends: Any, words: int, count: int, gap: int) -> tuple[int, int]:
    """Move the last ``count`` complete words, and the held part of the next, to the front; return bytes and words held."""
    gone = words - count
    if gone <= 0:
        return held, words
    start = word_ends[gone - 1] + gap
    # Forward, byte by byte, because the two may overlap.
    for place in range(held - start):
        buffer[place] = buffer[start + place]
    for number in range(count):
        word_ends[number] = word_ends[gone + number] - start
    return held - start, count

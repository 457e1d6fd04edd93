# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Texts on a device laid out so that every shingle is a run of bytes: in lower case, or as words without separators.

A thread lays out one text after the other, by the per-text functions that `content_hash` and `minhash` call on the CPU.
If shingles are of unchanged characters, the texts themselves are used, and nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, types

from curator_df.kernels.device.launch import allocate, one_by_one, to_device
from curator_df.kernels.device.support import SHINGLE_ROW_BYTES
from curator_df.kernels.device.texts import DeviceTexts
from curator_df.kernels.metrics.ngrams.word_windows import fill_words
from curator_df.kernels.minhash.scheme import Scheme, shingle_settings
from curator_df.kernels.text.murmur_hash import fill_normalized

_WORDS_AT_ONCE = 32
"""Number of words of a text whose ends a thread holds in its own memory."""


@dataclass(frozen=True)
class ShingleTexts:
    """Texts in which a shingle is a run of bytes."""

    data: Any
    """Bytes in UTF-8, uint8."""
    starts: Any
    """Start of each text in ``data``, shape (rows), int32 or int64."""
    stops: Any
    """End of each text, shape (rows), same type; the bytes between it and the next start are meaningless."""
    word_starts: Any
    """Marks, uint8, as long as ``data``: not 0 at the start of a word. Of length 0 for shingles of characters."""


def shingle_texts(texts: DeviceTexts, scheme: Scheme) -> ShingleTexts:
    """Lay out texts for the shingles of a scheme.

    Parameters
    ----------
    texts : DeviceTexts
        The column; null counts as empty, which is how it is stored.
    scheme : Scheme
        Definition of the shingles.

    Returns
    -------
    ShingleTexts
        Texts; for unchanged characters the same memory, otherwise at most `device_support.signatures_price`.
    """
    rows, in_words = len(texts), scheme.ngrams == "words"
    if not rows or (not in_words and not scheme.normalize):
        return ShingleTexts(texts.data, texts.offsets[:-1], texts.offsets[1:], allocate(0, np.uint8))
    _, _, *tables = shingle_settings(scheme)
    tables = [to_device(table) for table in tables]
    begin, end = (int(texts.offsets[place : place + 1].copy_to_host()[0]) for place in (0, rows))
    laid = allocate(room_before(end - begin, rows), np.uint8)
    starts, stops = (allocate(rows, np.int64) for _ in range(2))
    launch = one_by_one(rows)
    if not in_words:
        lay_normalized_kernel[launch](texts.data, texts.offsets, *tables, laid, starts, stops)
        return ShingleTexts(laid, starts, stops, allocate(0, np.uint8))
    word_starts = allocate(len(laid), np.uint8)
    lower = scheme.normalize is not None
    lay_words_kernel[launch](texts.data, texts.offsets, lower, *tables, laid, word_starts, starts, stops)
    return ShingleTexts(laid, starts, stops, word_starts)


def room_before(text_bytes: int, rows: int) -> int:
    """Return the bytes kept for ``rows`` texts: lower case takes at most half as many more, and a little padding is written.

    Examples
    --------
    >>> room_before(100, 2)
    198
    """
    return text_bytes + (text_bytes + 1) // 2 + rows * SHINGLE_ROW_BYTES


_room_before = cuda.jit(room_before, device=True)


@cuda.jit
def lay_normalized_kernel(
    data: Any, offsets: Any, lowered: Any, page_of: Any, pages: Any, laid: Any, starts: Any, stops: Any
) -> None:
    """Write each text in lower case, with runs of white space as one space and none at its ends."""
    for row in range(cuda.grid(1), len(starts), cuda.gridsize(1)):
        at, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        end = _room_before(at - np.int64(offsets[0]), row)
        starts[row], spaced = end, 0
        while at < stop:
            at, held, spaced = fill_normalized(data, at, stop, laid[end:], 0, spaced, lowered, page_of, pages)
            end += held
        stops[row] = end


@cuda.jit
def lay_words_kernel(
    data: Any,
    offsets: Any,
    lower: bool,
    byte_of: Any,
    page_of: Any,
    pages: Any,
    laid: Any,
    word_starts: Any,
    starts: Any,
    stops: Any,
) -> None:
    """Write the words of each text without separators, and their starts."""
    word_ends = cuda.local.array(_WORDS_AT_ONCE, types.int64)
    for row in range(cuda.grid(1), len(starts), cuda.gridsize(1)):
        first, at, stop = np.int64(offsets[0]), np.int64(offsets[row]), np.int64(offsets[row + 1])
        end, full = _room_before(at - first, row), _room_before(stop - first, row + 1)
        starts[row], held = end, 0
        while at < stop or held > 0:
            at, held, words = fill_words(
                data, at, stop, laid[end:full], held, word_ends, 0, byte_of, page_of, pages, lower, 0
            )
            word = end
            for number in range(words):
                word_end = end + word_ends[number]
                word_starts[word] = 1
                for place in range(word + 1, word_end):
                    word_starts[place] = 0
                word = word_end
            held -= word - end
            end = word
        stops[row] = end

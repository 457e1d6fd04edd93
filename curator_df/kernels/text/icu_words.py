# SPDX-License-Identifier: Apache-2.0
"""Words of any language by ICU: Unicode's rules, and dictionaries for scripts without white space between words.

ICU comes from the package icu4py. It uses dictionaries for Chinese, Japanese, Thai, Lao, Khmer and Burmese; a character that is
not a letter or digit is a word of its own. Texts are processed one after the other and in pieces, which limits Python's memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

PIECE_BYTES = 1 << 15
"""Bytes passed to ICU in each call: their words are Python objects of 70 bytes each."""
_LOCALE = "root"
"""Locale of the break iterator; dictionaries are chosen by script, not by locale."""


def split_texts(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    room: npt.NDArray[np.uint8],
    stops: npt.NDArray[np.int64],
) -> None:
    """Write the words of several texts into ``room``, each followed by a space, and the end of each text into ``stops``.

    ``stops`` has one more entry than there are texts, and begins with 0. Bytes that are not UTF-8 are omitted.
    """
    from icu4py.breakers import WordBreaker

    at = stops[0] = 0
    for row in range(len(stops) - 1):
        for start, stop in pieces(data, int(offsets[row]), int(offsets[row + 1])):
            piece = data[start:stop].tobytes().decode(errors="ignore")
            words = (" ".join(WordBreaker(piece, _LOCALE)) + " ").encode()
            room[at : at + len(words)] = np.frombuffer(words, dtype=np.uint8)
            at += len(words)
        stops[row + 1] = at


def pieces(data: npt.NDArray[np.uint8], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Split a text into pieces of at most `PIECE_BYTES`: after a line feed, else after a space, else between characters.

    Examples
    --------
    >>> list(pieces(np.frombuffer(b"a b", dtype=np.uint8), 0, 3))
    [(0, 3)]
    """
    while stop - start > PIECE_BYTES:
        end = start + PIECE_BYTES
        piece = data[start:end].tobytes()
        cut = max(piece.rfind(b"\n"), 0) or piece.rfind(b" ")
        if cut > 0:
            end = start + cut + 1
        else:
            while data[end] & 0xC0 == 0x80 and end > start + PIECE_BYTES - 4:
                end -= 1
        yield start, end
        start = end
    if start < stop:
        yield start, stop

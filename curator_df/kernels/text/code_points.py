# SPDX-License-Identifier: Apache-2.0
"""Classes of Unicode code points, as two-level tables that compiled kernels look up.

A table has a page for every 256 code points, and equal pages are stored once: all of CJK is one page, so that text of any
script reads a few hundred bytes of table. Made from Python's own ``str`` methods on first use (40 ms), so that the
kernels agree with ``str.split``, ``str.splitlines`` and ``str.isalpha`` of the running interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

SPACE = 1
"""Characters at which ``str.split`` splits (``str.isspace``)."""
LINE_END = 2
"""Characters at which ``str.splitlines`` splits. All of them are white space too."""
ALPHA = 4
"""``str.isalpha``."""
SYMBOL = 8
"""Characters in `SYMBOLS`."""
MARK = 16
"""Class of bytes only: not ASCII, or a character that is counted (``#`` and ``.``), so not for the fast path."""
TERMINAL = 32
"""Characters in `TERMINALS`."""
DECIMAL = 64
r"""Digits that ``\d`` matches (``str.isdecimal``)."""
UPPER = 128
"""``str.isupper``."""

PAGE_SIZE = 256
PAGE_COUNT = 0x2000
"""Number of pages. Four bytes of damaged UTF-8 can encode up to 0x1FFFFF, so there are pages up to it and no lookup is out of
bounds."""
ASSIGNED_STOP = 0x40000
"""First code point without a class: planes 4 to 13 are empty and 14 to 16 have no letter, white space or punctuation."""

# datatrove 0.10.0, utils/text.py, PUNCTUATION_SET: ASCII punctuation, control characters but tab and line feed, and
# these (the full-width digit one among them). Taken from the released package, sorted by code point.
SYMBOLS = (
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    + "".join(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))
    + "\xab\xb4\xbb\u0589\u061d\u061e\u061f\u06d4\u0700\u0701\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104a"
    "\u104b\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u17d6\u17d9\u17da\u1803\u1809\u1944\u1945\u1aa8\u1aa9\u1aaa"
    "\u1aab\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d\u1b7e\u1c3b\u1c3c\u1c7e\u1c7f\u2013\u2014\u2019\u201c\u201d\u201e\u2026\u203c"
    "\u203d\u2047\u2048\u2049\u2236\u2501\u25ba\u2e2e\u2e3c\u2e53\u2e54\u3001\u3002\u3008\u3009\u300a\u300b\u300c\u300d"
    "\u3010\u3011\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d\uaa5e\uaa5f\uaaf0\uaaf1"
    "\uabeb\ufe52\ufe56\ufe57\uff01\uff05\uff08\uff09\uff0c\uff0e\uff11\uff1a\uff1b\uff1f\uff5e\uff61\U00010a56"
    "\U00010a57\U00010f55\U00010f56\U00010f57\U00010f58\U00010f59\U00010f86\U00010f87\U00010f88\U00010f89\U00011047"
    "\U00011048\U000110be\U000110bf\U000110c0\U000110c1\U00011141\U00011142\U00011143\U000111c5\U000111c6\U000111cd"
    "\U000111de\U000111df\U00011238\U00011239\U0001123b\U0001123c\U000112a9\U0001144b\U0001144c\U000115c2\U000115c3"
    "\U000115c9\U000115ca\U000115cb\U000115cc\U000115cd\U000115ce\U000115cf\U000115d0\U000115d1\U000115d2\U000115d3"
    "\U000115d4\U000115d5\U000115d6\U000115d7\U00011641\U00011642\U0001173c\U0001173d\U0001173e\U00011944\U00011946"
    "\U00011a42\U00011a43\U00011a9b\U00011a9c\U00011c41\U00011c42\U00011ef7\U00011ef8\U00011f43\U00011f44\U00016a6e"
    "\U00016a6f\U00016af5\U00016b37\U00016b38\U00016b44\U00016e98\U0001bc9f\U0001da88"
)

# datatrove 0.10.0, utils/text.py, TERMINAL_PUNCTUATION: characters that end a sentence in any script. All 159 are symbols too; of
# those that are not ASCII or control characters, it has all but these thirty.
_NOT_TERMINAL = (
    "\xab\xb4\xbb\u2013\u2014\u2019\u201c\u201d\u201e\u2026\u2236\u2501\u25ba\u3001\u3008\u3009\u300a\u300b\u300c\u300d"
    "\u3010\u3011\uff05\uff08\uff09\uff0c\uff11\uff1a\uff1b\uff5e"
)
TERMINALS = ".!?" + "".join(symbol for symbol in SYMBOLS if symbol > "\x9f" and symbol not in _NOT_TERMINAL)


@dataclass(frozen=True)
class CodePointTable:
    """Value for every code point: ``pages[page_of[code >> 8], code & 255]``."""

    page_of: npt.NDArray[np.uint16]
    """Shape (`PAGE_COUNT`,): row of ``pages`` for each 256 code points."""
    pages: npt.NDArray[Any]
    """Values, shape (distinct pages, 256)."""

    def __getitem__(self, code: int) -> int:
        return int(self.pages[self.page_of[code >> 8], code & 255])

    def of_bytes(self, beyond: int = 0) -> npt.NDArray[np.uint8]:
        """Return the values of the 128 ASCII characters, and ``beyond`` for other bytes; shape (256,)."""
        values = np.full(256, beyond, dtype=np.uint8)
        values[:128] = [self[code] for code in range(128)]
        return values


def paged(values: npt.NDArray[Any], beyond: int = 0) -> CodePointTable:
    """Fold an array of values by code point into pages; ``beyond`` is the value of the code points after its end."""
    numbers: dict[bytes, int] = {}
    rows = [*values.reshape(-1, PAGE_SIZE), np.full(PAGE_SIZE, beyond, dtype=values.dtype)]
    page_of = [numbers.setdefault(row.tobytes(), len(numbers)) for row in rows]
    pages = np.array([np.frombuffer(page, dtype=values.dtype) for page in numbers])
    padded = np.full(PAGE_COUNT, page_of[-1], dtype=np.uint16)
    padded[: len(page_of) - 1] = page_of[:-1]
    return CodePointTable(padded, pages)


def code_points_of(ranges: str) -> npt.NDArray[np.int64]:
    """Return the code points of ranges.

    Examples
    --------
    >>> code_points_of("22 30-33").tolist()
    [34, 48, 49, 50, 51]
    """
    bounds = [entry.partition("-") for entry in ranges.split()]
    return np.concatenate([np.arange(int(first, 16), int(last or first, 16) + 1) for first, _, last in bounds])


@lru_cache(maxsize=1)
def word_classes() -> CodePointTable:
    """Return the table of the bits above, without `MARK`, (uint8) for every code point."""
    values = np.zeros(ASSIGNED_STOP, dtype=np.uint8)
    characters = [chr(code) for code in range(ASSIGNED_STOP)]
    values[[character.isalpha() for character in characters]] |= ALPHA
    spaces = [ord(character) for character in characters if character.isspace()]
    values[spaces] |= SPACE
    values[[code for code in spaces if chr(code).splitlines() != [chr(code)]]] |= LINE_END
    values[[ord(character) for character in SYMBOLS]] |= SYMBOL
    values[[ord(character) for character in TERMINALS]] |= TERMINAL
    values[[character.isdecimal() for character in characters]] |= DECIMAL
    values[[character.isupper() for character in characters]] |= UPPER
    return paged(values)


@lru_cache(maxsize=4)
def word_byte_classes(marks: str) -> npt.NDArray[np.uint8]:
    """Return the classes of the 256 bytes; those in ``marks``, and all non-ASCII bytes, have the `MARK` bit."""
    classes = word_classes().of_bytes(beyond=MARK)
    classes[[ord(character) for character in marks]] |= MARK
    return classes

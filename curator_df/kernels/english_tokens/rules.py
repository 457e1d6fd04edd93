# SPDX-License-Identifier: Apache-2.0
"""Rules by which datatrove splits English text into words, as arrays for compiled kernels.

They are spaCy's, read from ``english_tokens.json``, which names the release. An exception is a word whose tokens are
listed (``don't``: ``do``, ``n't``). `affixes`, `urls` and `split` apply the rules.
"""

from __future__ import annotations

import json
import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.text.code_points import ASSIGNED_STOP, PAGE_COUNT, CodePointTable, paged

SPACE = 1
"""``str.isspace``."""
PREFIX = 2
"""Characters that are cut off at the beginning of a word."""
SUFFIX = 4
"""Characters that are cut off at the end of a word."""
INFIX = 8
"""Characters that are a token anywhere."""
ALPHA = 16
"""Letters, by spaCy's definition."""
LOWER = 32
"""Lower-case letters, by spaCy's definition, and letters of scripts without case."""
UPPER = 64
"""Upper-case letters, by spaCy's definition, and letters of scripts without case."""
QUOTE = 128
"""Quotation marks and East Asian brackets."""
BEFORE_DOT = 256
"""Characters after which a full stop at the end of a word is cut off."""
HOST = 512
"""Characters allowed in the host name of a URL."""
WORD = 1024
r"""Characters that ``\w`` matches."""
DECIMAL = 2048
r"""Characters that ``\d`` matches."""
TAIL = 4096
"""Last characters of units and the like that are cut off after a digit."""
NOTABLE = 8192
"""Characters to which some rule other than the exceptions may apply."""
INNER = 16384
"""Characters with which a token inside a word may begin."""
BLANK, ENDS_SENTENCE, PUNCTUATION = 1, 2, 4
"""Classes in `sentence_table`: ``str.isspace``; a token that is this character ends a sentence; such a token alone begins no
sentence."""
PAGES_OF, FIRST_PAGE = 256, 256 + PAGE_COUNT
"""Starts of the parts of `class_table`."""

LONGEST = 31
"""Length in bytes of the longest exception, so that the ends of its tokens fit into 32 bits."""
SLOTS = 8192
"""Number of slots for phrases, by their hash."""
FIRST_SLOT, FIRST_PHRASE = 4096, 4096 + SLOTS
"""Starts of the parts of `phrases`."""
PHRASE_WORDS, KIND_WORD, CUTS_WORD, PATTERN_WORD = 11, 8, 9, 10
"""Number of words of a phrase, and the words that hold its length and kind, its cuts and its pattern."""
IS_EXCEPTION = 1
IS_TAIL = 2
IS_RESTORED = 4
"""Kind of an exception that other rules cut elsewhere: its tokens are restored where those are adjacent."""

_FIRST_BIT_OF = {
    "prefix": PREFIX,
    "suffix": SUFFIX,
    "infix": INFIX,
    "alpha": ALPHA,
    "lower": LOWER,
    "upper": UPPER,
    "quote": QUOTE,
    "before_dot": BEFORE_DOT,
}
# What cuts between letters or digits; and beyond that and what is cut off anywhere, digits, which units follow.
_INNER = ".-\u2013\u2014~+*^,:<>=/"
_NOTABLE = f"0123456789%${_INNER}"


@lru_cache(maxsize=1)
def rules() -> dict[str, Any]:
    """Return the contents of the data file."""
    held: dict[str, Any] = json.loads(Path(__file__).with_name("english_tokens.json").read_text(encoding="ascii"))
    return held


@lru_cache(maxsize=1)
def class_table() -> npt.NDArray[np.uint16]:
    """Return the bits above for every code point, for a compiled `class_at`: those of bytes, and pages of 256 code points.

    Non-ASCII bytes have only the class `NOTABLE`.
    """
    values = np.zeros(ASSIGNED_STOP, dtype=np.uint16)
    for name, bit in _FIRST_BIT_OF.items():
        _mark(values, name, bit)
    values[(values & (PREFIX | SUFFIX | INFIX)) != 0] |= NOTABLE
    values[[ord(character) for character in _NOTABLE]] |= NOTABLE
    values[(values & INFIX) != 0] |= INNER
    values[[ord(character) for character in _INNER]] |= INNER
    values[[ord(tail[-1]) for tail in rules()["after_digits"]]] |= TAIL
    characters = [chr(code) for code in range(ASSIGNED_STOP)]
    values[[character.isspace() for character in characters]] |= SPACE
    values[[character.isalnum() or character == "_" for character in characters]] |= WORD
    values[[character.isdecimal() for character in characters]] |= DECIMAL
    values[[code for code in range(128) if chr(code).isalnum()]] |= HOST
    values[0xA1:0x10000] |= HOST
    table = paged(values)
    of_bytes = np.where(np.arange(256) < 128, values[:256], NOTABLE).astype(np.uint16)
    return np.concatenate([of_bytes, table.page_of, table.pages.ravel()])


@lru_cache(maxsize=1)
def sentence_table() -> CodePointTable:
    """Return the bits that spaCy's sentencizer uses, for every code point (uint8)."""
    values = np.zeros(ASSIGNED_STOP, dtype=np.uint8)
    _mark(values, "sentence_end", ENDS_SENTENCE)
    characters = [chr(code) for code in range(ASSIGNED_STOP)]
    values[[character.isspace() for character in characters]] |= BLANK
    values[[unicodedata.category(character)[0] == "P" for character in characters]] |= PUNCTUATION
    return paged(values)


def _mark(values: npt.NDArray[Any], name: str, bit: int) -> None:
    """Set a bit of the code points of a class."""
    for entry in rules()["classes"][name].split():
        first, _, last = entry.partition("-")
        values[int(first, 16) : int(last or first, 16) + 1] |= bit

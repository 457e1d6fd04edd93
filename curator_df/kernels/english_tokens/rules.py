# SPDX-License-Identifier: Apache-2.0
"""Rules by which datatrove splits English text into words, as arrays for compiled kernels.

They are spaCy's, read from ``english_tokens.json``, which names the release. An exception is a word whose tokens are
listed (``don't``: ``do``, ``n't``). `token_affixes`, `token_urls` and `token_split` apply the rules.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
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


@lru_cache(maxsize=1)
def phrases() -> npt.NDArray[np.uint32]:
    """Return the exceptions, and the units cut off after digits, to be found by a hash.

    First, by six bits of the first byte and six of the last, a bit for each length of such a phrase. Then, by hash, the number
    of a phrase plus one, or 0. Then, for each phrase, `PHRASE_WORDS`: its bytes in eight words, zero-padded; its length, and
    from bit 8 on `IS_EXCEPTION`, `IS_TAIL` and `IS_RESTORED`; for an exception, a bit for each byte after which one of its tokens
    ends, and such bits for the tokens that the other rules make of it.
    """
    from curator_df.kernels.english_tokens.token_pass import split_span

    exceptions = {tokens.replace(" ", ""): tokens.split(" ") for tokens in rules()["exceptions"]}
    tails = rules()["after_digits"]
    data = "".join(exceptions).encode()
    ends = np.cumsum([len(phrase.encode()) for phrase in exceptions])
    # Tokens that the other rules make of an exception: the same kernel with no exceptions.
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    out, stops = np.empty(2 * len(data), dtype=np.uint8), np.empty(len(offsets), dtype=np.int64)
    split_span(np.frombuffer(data, dtype=np.uint8), offsets, class_table(), _phrases({}, tails, []), out, stops)
    made = [out[start:stop].tobytes().split() for start, stop in pairwise(stops)]
    return _phrases(exceptions, tails, [_ends(tokens) for tokens in made])


def _ends(tokens: Sequence[bytes]) -> int:
    """Return a bit for each byte after which a token ends."""
    return sum(1 << int(end) - 1 for end in np.cumsum([len(token) for token in tokens]))


def _phrases(exceptions: dict[str, list[str]], tails: Sequence[str], patterns: Sequence[int]) -> npt.NDArray[np.uint32]:
    names = [phrase.encode() for phrase in dict.fromkeys([*exceptions, *tails])]
    table = np.zeros(FIRST_PHRASE + PHRASE_WORDS * len(names), dtype=np.uint32)
    for number, name in enumerate(names):
        table[(name[0] & 63) << 6 | name[-1] & 63] |= np.uint32(1 << len(name))
        slot = phrase_hash(name) & SLOTS - 1
        while table[FIRST_SLOT + slot]:
            slot = (slot + 1) % SLOTS
        table[FIRST_SLOT + slot] = number + 1
        row = table[FIRST_PHRASE + PHRASE_WORDS * number :][:PHRASE_WORDS]
        row[:KIND_WORD] = np.frombuffer(name.ljust(4 * KIND_WORD, b"\0"), dtype="<u4")
        kind = IS_TAIL if name.decode() in tails else 0
        if number < len(exceptions):
            cuts, pattern = _ends([token.encode() for token in exceptions[name.decode()]]), patterns[number]
            row[CUTS_WORD], row[PATTERN_WORD] = cuts, pattern
            kind |= IS_EXCEPTION
            # An exception has no more tokens than it was cut into; for the three others see `token_split`.
            is_shorter = cuts.bit_count() <= pattern.bit_count() > 1
            kind |= IS_RESTORED if is_shorter and cuts != pattern else 0
        row[KIND_WORD] = len(name) | kind << 8
    return table


def phrase_hash(phrase: bytes) -> int:
    """Return the hash that compiled kernels compute too (FNV-1a, 64 bits, folded)."""
    found = 0xCBF29CE484222325
    for byte in phrase:
        found = (found ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return found ^ found >> 32

# SPDX-License-Identifier: Apache-2.0
"""The rules by which datatrove cuts English text into words, as arrays for compiled kernels.

They are spaCy's, read from ``english_tokens.json``, which says of what release. An exception is a word whose tokens are
listed (``don't``: ``do``, ``n't``). How rules apply is in `token_affixes`, `token_urls` and `token_split`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.buffers import read_only
from curator_df.kernels.code_points import ASSIGNED_STOP, CodePointTable, paged

SPACE = 1
"""``str.isspace``."""
PREFIX = 2
"""Cut off where a word begins with it."""
SUFFIX = 4
"""Cut off where a word ends with it."""
INFIX = 8
"""A token wherever it is."""
ALPHA = 16
"""A letter, to spaCy."""
LOWER = 32
"""A lower-case letter, to spaCy, or one of a script without case."""
UPPER = 64
"""An upper-case letter, to spaCy, or one of a script without case."""
QUOTE = 128
"""A quotation mark or a bracket of East Asia."""
BEFORE_DOT = 256
"""A full stop after it, at the end of a word, is cut off."""
HOST = 512
"""May stand in the name of a host in a URL."""
WORD = 1024
r"""What ``\w`` matches."""
DECIMAL = 2048
r"""What ``\d`` matches."""
TAIL = 4096
"""Last character of something that is cut off after a digit, such as a unit."""
NOTABLE = 8192
"""Some rule but the exceptions may apply to a word with it."""

LONGEST = 31
"""Bytes of the longest exception, so that the ends of its tokens are bits of 32."""
IS_EXCEPTION = 1
IS_TAIL = 2
IS_RESTORED = 4
"""An exception that other rules cut elsewhere: its tokens are put back where those stand side by side."""

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
# Beyond what is cut off anywhere: digits, which units follow, and what cuts between letters or digits.
_NOTABLE = "0123456789.-\u2013\u2014~+*^,:<>=/%$"


@dataclass(frozen=True)
class Phrases:
    """Short strings of bytes with what is said of each, to be found by a hash."""

    lengths: npt.NDArray[np.uint32]
    """Shape (4096,), by six bits of the first byte and six of the last: a bit for each length of such a phrase."""
    slots: npt.NDArray[np.int32]
    """Number of a phrase, or -1, by its hash; a power of two of them."""
    starts: npt.NDArray[np.int32]
    """Shape (phrases + 1): where each starts in ``text``."""
    text: npt.NDArray[np.uint8]
    """UTF-8 bytes of all."""
    kinds: npt.NDArray[np.uint8]
    """`IS_EXCEPTION`, `IS_TAIL`, `IS_RESTORED`."""
    cuts: npt.NDArray[np.uint32]
    """Of an exception: a bit for each byte after which one of its tokens ends."""
    patterns: npt.NDArray[np.uint32]
    """The same for the tokens that the other rules make of it."""

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """What compiled kernels take."""
        return self.lengths, self.slots, self.starts, self.text, self.kinds, self.cuts, self.patterns


@lru_cache(maxsize=1)
def rules() -> dict[str, Any]:
    """Return what the data file holds."""
    held: dict[str, Any] = json.loads(Path(__file__).with_name("english_tokens.json").read_text(encoding="ascii"))
    return held


@lru_cache(maxsize=1)
def token_classes() -> CodePointTable:
    """Return the table of the bits above (uint16) of every code point, made on first use."""
    values = np.zeros(ASSIGNED_STOP, dtype=np.uint16)
    for name, bit in _FIRST_BIT_OF.items():
        for entry in rules()["classes"][name].split():
            first, _, last = entry.partition("-")
            values[int(first, 16) : int(last or first, 16) + 1] |= bit
    values[(values & (PREFIX | SUFFIX | INFIX)) != 0] |= NOTABLE
    values[[ord(character) for character in _NOTABLE]] |= NOTABLE
    values[[ord(tail[-1]) for tail in rules()["after_digits"]]] |= TAIL
    characters = [chr(code) for code in range(ASSIGNED_STOP)]
    values[[character.isspace() for character in characters]] |= SPACE
    values[[character.isalnum() or character == "_" for character in characters]] |= WORD
    values[[character.isdecimal() for character in characters]] |= DECIMAL
    values[[code for code in range(128) if chr(code).isalnum()]] |= HOST
    values[0xA1:0x10000] |= HOST
    return paged(values)


@lru_cache(maxsize=1)
def token_byte_classes() -> npt.NDArray[np.uint16]:
    """Return the classes of the 128 ASCII characters; `NOTABLE` alone for other bytes."""
    classes = np.full(256, NOTABLE, dtype=np.uint16)
    classes[:128] = [token_classes()[code] for code in range(128)]
    return classes


@lru_cache(maxsize=1)
def phrases() -> Phrases:
    """Return the exceptions, and what is cut off after digits."""
    from curator_df.kernels.token_pass import split_span

    exceptions = {tokens.replace(" ", ""): tokens.split(" ") for tokens in rules()["exceptions"]}
    tails = rules()["after_digits"]
    data = "".join(exceptions).encode()
    ends = np.cumsum([len(phrase.encode()) for phrase in exceptions])
    # What the other rules make of an exception: the same kernel with no exceptions.
    table = token_classes()
    classes = (token_byte_classes(), table.page_of, table.pages)
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    out, stops = np.empty(2 * len(data), dtype=np.uint8), np.empty(len(offsets), dtype=np.int64)
    bytes_of_all = np.frombuffer(data, dtype=np.uint8)
    split_span(bytes_of_all, offsets, *classes, *_phrases({}, tails, []).arrays, out, stops)
    made = [out[start:stop].tobytes().split() for start, stop in pairwise(stops)]
    return _phrases(exceptions, tails, [_ends(tokens) for tokens in made])


def _ends(tokens: Sequence[bytes]) -> int:
    """Return a bit for each byte after which a token ends."""
    return sum(1 << int(end) - 1 for end in np.cumsum([len(token) for token in tokens]))


def _phrases(exceptions: dict[str, list[str]], tails: Sequence[str], patterns: Sequence[int]) -> Phrases:
    names = [phrase.encode() for phrase in dict.fromkeys([*exceptions, *tails])]
    count = len(names)
    lengths, slots = np.zeros(4096, dtype=np.uint32), np.full(1 << (4 * count).bit_length(), -1, dtype=np.int32)
    kinds = np.zeros(count, dtype=np.uint8)
    cuts, held_patterns = np.zeros(count, dtype=np.uint32), np.zeros(count, dtype=np.uint32)
    for number, name in enumerate(names):
        lengths[(name[0] & 63) << 6 | name[-1] & 63] |= np.uint32(1 << len(name))
        slot = phrase_hash(name) & len(slots) - 1
        while slots[slot] >= 0:
            slot = (slot + 1) % len(slots)
        slots[slot] = number
        kinds[number] |= IS_TAIL if name.decode() in tails else 0
        if number < len(exceptions):
            cuts[number] = _ends([token.encode() for token in exceptions[name.decode()]])
            held_patterns[number] = patterns[number]
            kinds[number] |= IS_EXCEPTION
            # No more tokens than they were cut into; for the three others see `token_split`.
            is_shorter = int(cuts[number]).bit_count() <= patterns[number].bit_count() > 1
            kinds[number] |= IS_RESTORED if is_shorter and cuts[number] != patterns[number] else 0
    starts = np.concatenate([[0], np.cumsum([len(name) for name in names])]).astype(np.int32)
    text = np.frombuffer(b"".join(names), dtype=np.uint8)
    return Phrases(lengths, slots, starts, read_only(text), kinds, cuts, held_patterns)


def phrase_hash(phrase: bytes) -> int:
    """Return the hash that compiled kernels compute too (FNV-1a, 64 bits, folded)."""
    found = 0xCBF29CE484222325
    for byte in phrase:
        found = (found ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return found ^ found >> 32

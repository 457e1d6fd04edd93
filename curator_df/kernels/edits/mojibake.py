# SPDX-License-Identifier: Apache-2.0
"""Characters that ftfy could possibly change, as tables for `unicode_repair`.

Every condition here is *necessary* for a change, never sufficient: a segment that meets none of them is returned by
ftfy unchanged, and one that meets any goes to ftfy, which decides. Written against the rules of ftfy 6.3 (``badness``,
``fixes``, ``chardata``); a test runs both over every pair of the characters concerned.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from curator_df.kernels.text.code_points import ASSIGNED_STOP, CodePointTable, paged

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
"""Unicode normalization forms."""

CLASS_MASK = 0x3F
"""Mask of the low bits of a code point's value: its class among the characters of mojibake, 0 for all others."""
FORM = 0x40
"""Flag of a character that the normalization form may change, alone or after others."""
CONTROL = 0x80
"""Flag of a control character or line separator that ftfy removes or replaces."""

# The scan itself handles line feed, carriage return and tab; ftfy does not change form feed.
_CONTROLS = (*range(9), 0x0B, *range(0x0E, 0x20), *range(0x7F, 0xA0), *range(0x206A, 0x2070), 0xFEFF)
_ANNOTATIONS = range(0xFFF9, 0xFFFD)
_SEPARATORS = (0x2028, 0x2029)

_A_PAIRS = "€œŠš¢£Ÿž\xa0\xad®°·»–—´¡"
_ARABIC_PAIRS = "ŸŠ®°µ»"


@dataclass(frozen=True)
class SuspectTables:
    """Tables that the scan looks up."""

    points: CodePointTable
    """Class, `FORM` and `CONTROL` bits (uint8) of every code point."""
    pairs: npt.NDArray[np.uint8]
    """Pairs of classes, shape (classes, classes): 1 if two neighbors of these classes may be mojibake. Class 1 is the ASCII
    letters, class 2 the space, class 0 all unlisted characters."""


@lru_cache(maxsize=8)
def suspect_tables(form: Form | None) -> SuspectTables:
    """Return the tables for a normalization form (100 ms the first time)."""
    rules = _pair_rules(_categories())
    classes: dict[tuple[bool, ...], int] = {_membership("\0", rules): 0, (): 1, _membership(" ", rules): 2}
    values = np.zeros(ASSIGNED_STOP, dtype=np.uint8)
    for character in sorted({character for rule in rules for part in rule for character in part} - {" "}):
        values[ord(character)] = classes.setdefault(_membership(character, rules), len(classes))
    values[[*_CONTROLS, *_ANNOTATIONS, *_SEPARATORS]] |= CONTROL
    if form is not None:
        values[_unstable(form)] |= FORM
    pairs = np.zeros((len(classes), len(classes)), dtype=np.uint8)
    for first, before in classes.items():
        for second, after in classes.items():
            pairs[before, after] = any(a and b for a, b in zip(first[::2], second[1::2], strict=False))
    for ligature in "Œœ":
        # ftfy: followed by anything but an unaccented Latin letter.
        pairs[values[ord(ligature)] & CLASS_MASK] = 1
        pairs[values[ord(ligature)] & CLASS_MASK, 1] = 0
    return SuspectTables(paged(values, beyond=0 if form is None else FORM), pairs)


def _membership(character: str, rules: list[tuple[str, str]]) -> tuple[bool, ...]:
    return tuple(character in part for rule in rules for part in rule)


def _categories() -> dict[str, str]:
    from ftfy.badness import MOJIBAKE_CATEGORIES

    return {name: _expanded(characters) for name, characters in MOJIBAKE_CATEGORIES.items()}


def _expanded(characters: str) -> str:
    """Expand the ranges of a regular expression's character class."""
    expanded: list[str] = []
    rest = list(characters)
    while rest:
        first = rest.pop(0)
        if len(rest) > 1 and rest[0] == "-":
            expanded.extend(chr(code) for code in range(ord(first), ord(rest[1]) + 1))
            rest = rest[2:]
        else:
            expanded.append(first)
    return "".join(expanded)


def _pair_rules(of: dict[str, str]) -> list[tuple[str, str]]:
    """Return pairs of neighbors, at least one of which is in every text that ftfy calls bad."""
    accented = of["lower_accented"] + of["upper_accented"]
    around_bad = accented + of["box"] + of["start_punctuation"] + of["end_punctuation"] + of["currency"]
    around_bad += of["numeric"] + of["law"]
    punctuation = of["start_punctuation"] + of["end_punctuation"]
    after_script = of["bad"] + punctuation + of["currency"] + "°µ" + of["c1"]
    arabic = of["common"] + of["currency"] + of["bad"] + of["numeric"] + of["start_punctuation"] + _ARABIC_PAIRS
    return [
        (of["bad"] + around_bad + of["lower_common"] + of["upper_common"], of["bad"]),
        (of["bad"], around_bad),
        (
            of["lower_accented"]
            + of["lower_common"]
            + of["box"]
            + of["end_punctuation"]
            + of["currency"]
            + of["numeric"],
            of["upper_accented"],
        ),
        (of["box"] + of["end_punctuation"] + of["currency"] + of["numeric"], of["lower_accented"]),
        (accented + of["box"] + of["end_punctuation"], of["currency"]),
        (of["upper_accented"] + of["box"], of["numeric"] + of["law"] + "°"),
        (of["start_punctuation"], of["numeric"]),
        (of["end_punctuation"], of["start_punctuation"]),
        (of["currency"] + of["numeric"] + of["box"], of["start_punctuation"]),
        (of["upper_accented"], of["start_punctuation"] + of["currency"]),
        (of["box"], of["kaomoji"] + of["end_punctuation"]),
        (accented + of["currency"] + of["numeric"] + punctuation + of["law"], of["box"]),
        (accented, punctuation),
        ("ÂÃÎÐ", _A_PAIRS + punctuation),
        ("ÂÃ", " "),
        ("×", "²³"),
        ("ØÙ", arabic),
        ("à", "²µ¹¼½¾"),
        ("√", "±∂†≠®™´≤≥¥µø"),
        ("≈", "°¢"),
        ("‚", "Äâó"),
        ("в", "Ђ"),
        ("Ђ", "В"),
        ("ВГРС" + "ΒΓΞΟ", after_script),
        ("β", "€"),
        ("ā", "€"),
        ("Œœ", "Œœ"),
    ]


def _unstable(form: Form) -> list[int]:
    """Return the code points that can make a text not normalized, by themselves or by the character that they follow."""
    unstable = _composing_seconds() if form in ("NFC", "NFKC") else set()
    for code in range(ASSIGNED_STOP):
        character = chr(code)
        if unicodedata.combining(character) or not unicodedata.is_normalized(form, character):
            unstable.add(code)
    return sorted(unstable)


def _composing_seconds() -> set[int]:
    """Return the characters that can merge into the character before: second parts of canonical pairs, Hangul vowels, finals."""
    seconds = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}
    for code in range(ASSIGNED_STOP):
        parts = unicodedata.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            seconds.add(int(parts[1], 16))
    return seconds

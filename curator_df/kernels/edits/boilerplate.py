# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled search for the phrases of web pages that NeMo Curator regards as boilerplate, case-insensitive."""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, types

# nemo_curator 0.9.0, utils/constants.py, policy_substrings. Two of its paragraphs contain "uses cookies" and are left out. The
# first phrase fails a whole text. The search for each starts at one of its rarer letters.
_ANCHORS = ("m", "v", "k")
_PHRASES = (
    (("lorem ipsum", "terms of use"), "m"),
    (("privacy policy", "privacy overview", "privacy & cookies policy", "privacy and cookies policy"), "v"),
    (
        (
            "cookie policy",
            "uses cookies",
            "use of cookies",
            "use cookies",
            (
                "necessary cookies are absolutely essential for the website to function properly. this category only includes "
                "cookies that ensures basic functionalities and security features of the website. these cookies do not store "
                "any personal information."
            ),
            (
                "any cookies that may not be particularly necessary for the website to function and is used specifically to "
                "collect user personal data via analytics, ads, other embedded contents are termed as non-necessary cookies. "
                "it is mandatory to procure user consent prior to running these cookies on your website."
            ),
            (
                "if you continue to browse this site without changing your cookie settings, you agree to this use. acceptread "
                "more"
            ),
        ),
        "k",
    ),
)
BOILERPLATE_PHRASES = tuple(phrase for phrases, _ in _PHRASES for phrase in phrases)
"""Phrases to find; the first fails a whole text."""
NO_PHRASE, A_PHRASE, LOREM_IPSUM = range(3)

_LETTERS = np.frombuffer("".join(BOILERPLATE_PHRASES).encode(), dtype=np.uint8)
_LENGTHS = np.array([len(phrase) for phrase in BOILERPLATE_PHRASES])
_STARTS = np.cumsum(_LENGTHS) - _LENGTHS
_OFFSETS = np.array([phrase.index(anchor) for phrases, anchor in _PHRASES for phrase in phrases])
_COUNTS = [len(phrases) for phrases, _ in _PHRASES]
_FIRSTS = np.array([sum(_COUNTS[:number]) for number in range(len(_COUNTS) + 1)])
_KELVIN = 0x212A
"""Kelvin sign, whose lower case is an ASCII k: E2 84 AA."""


def _anchors() -> Any:
    anchors = np.zeros(256, dtype=np.uint8)
    for number, anchor in enumerate(_ANCHORS):
        anchors[[ord(anchor), ord(anchor.upper())]] = number + 1
    anchors[0xE2] = len(_ANCHORS)
    return anchors


_ANCHOR_OF = _anchors()


def _followers() -> Any:
    """Return, for each byte, the anchors that a phrase continues with it, as bits: most of the letters m, v and k end there."""
    followers = np.zeros(256, dtype=np.uint8)
    for number, (phrases, anchor) in enumerate(_PHRASES):
        for phrase in phrases:
            letter = phrase[phrase.index(anchor) + 1]
            followers[[ord(letter), ord(letter.upper())]] |= 1 << (number + 1)
    return followers


_FOLLOWERS = _followers()


@inlined
def _is_kelvin(data: Any, at: int, stop: int) -> bool:
    return at + 2 < stop and data[at] == 0xE2 and data[at + 1] == 0x84 and data[at + 2] == 0xAA


@helper
def _is_phrase(data: Any, at: int, stop: int, number: int) -> bool:
    for letter in _LETTERS[_STARTS[number] : _STARTS[number] + _LENGTHS[number]]:
        if at >= stop:
            return False
        byte = data[at]
        if 0x41 <= byte <= 0x5A:
            byte |= 0x20
        if byte == letter:
            at += 1
        elif letter == 0x6B and _is_kelvin(data, at, stop):
            at += 3
        else:
            return False
    return True


@helper
def find_boilerplate(data: Any, start: int, stop: int) -> int:
    """Return whether ``data[start:stop]`` has none of the phrases, one, or *lorem ipsum*."""
    found = NO_PHRASE
    here, end = np.uint64(start), np.uint64(stop)
    while here < end:
        anchor = types.int64(_ANCHOR_OF[data[here]])
        if anchor:
            at = types.int64(here)
            is_ascii = data[at] != 0xE2
            after = at + 1 if is_ascii else at + 3
            if after < stop and (_FOLLOWERS[data[after]] >> anchor) & 1 and (is_ascii or _is_kelvin(data, at, stop)):
                for number in range(_FIRSTS[anchor - 1], _FIRSTS[anchor]):
                    place = at - _OFFSETS[number]
                    if place >= start and _is_phrase(data, place, stop, number):
                        if number == 0:
                            return LOREM_IPSUM
                        found = A_PHRASE
        here += np.uint64(1)
    return found

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counts of characters, URLs and words as NeMo Curator and dolma define them: one scan, in constant memory.

The classes of characters that the scan looks up come first. See `measure` for the function to call.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.metrics.counts import CHARACTER_COUNTS, COUNTS, LONGEST_COUNTED_WORD
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN, code_point, stop_word_bit
from curator_df.kernels.text.code_points import (
    ALPHA,
    ASSIGNED_STOP,
    SPACE,
    CodePointTable,
    code_points_of,
    paged,
    word_classes,
)

# SPACE is bit 1, as in `code_points`.
ALPHABETIC = 2
"""Characters that ``[[:alpha:]]`` of the package regex matches: Unicode's property Alphabetic, which includes ``str.isalpha``."""
DIGIT = 4
"""Characters that ``[[:digit:]]`` of the package regex matches: ASCII digits."""
PARENTHESIS = 8
"""Round, square, curly and angle brackets: nemo_curator 0.9.0, utils/constants.py, regex_paren."""
ALPHANUMERIC = 16
"""ASCII letters and digits, line feed, ``?!,.``: nemo_curator 0.9.0, utils/constants.py, regex_alphanum."""
WHITE = 32
"""Tab, line feed, CR, backspace, space: nemo_curator 0.9.0, utils/constants.py, white_space_list."""
URL = 64
"""Characters allowed in a URL: nemo_curator 0.9.0, utils/constants.py, regex_url, where ``[$-_@.&+]`` is a range."""
NOTABLE = 128
"""Bytes checked one by one: ``#``, the ellipsis, and possible starts of a URL, a tag, *javascript* or the m of *lorem ipsum*."""

# Unicode 14.0.0, DerivedCoreProperties.txt, Alphabetic, without the letters (general category L): marks, letter numbers,
# circled letters. First-last code point, hexadecimal.
_ALPHABETIC_BUT_NO_LETTERS = (
    "345 363-36f 5b0-5bd 5bf 5c1-5c2 5c4-5c5 5c7 610-61a 64b-657 659-65f 670 6d6-6dc 6e1-6e4 6e7-6e8 6ed 711 730-73f "
    "7a6-7b0 816-817 81b-823 825-827 829-82c 8d4-8df 8e3-8e9 8f0-903 93a-93b 93e-94c 94e-94f 955-957 962-963 981-983 "
    "9be-9c4 9c7-9c8 9cb-9cc 9d7 9e2-9e3 a01-a03 a3e-a42 a47-a48 a4b-a4c a51 a70-a71 a75 a81-a83 abe-ac5 ac7-ac9 "
    "acb-acc ae2-ae3 afa-afc b01-b03 b3e-b44 b47-b48 b4b-b4c b56-b57 b62-b63 b82 bbe-bc2 bc6-bc8 bca-bcc bd7 c00-c04 "
    "c3e-c44 c46-c48 c4a-c4c c55-c56 c62-c63 c81-c83 cbe-cc4 cc6-cc8 cca-ccc cd5-cd6 ce2-ce3 d00-d03 d3e-d44 d46-d48 "
    "d4a-d4c d57 d62-d63 d81-d83 dcf-dd4 dd6 dd8-ddf df2-df3 e31 e34-e3a e4d eb1 eb4-eb9 ebb-ebc ecd f71-f83 f8d-f97 "
    "f99-fbc 102b-1036 1038 103b-103e 1056-1059 105e-1060 1062-1064 1067-106d 1071-1074 1082-108d 108f 109a-109d "
    "16ee-16f0 1712-1713 1732-1733 1752-1753 1772-1773 17b6-17c8 1885-1886 18a9 1920-192b 1930-1938 1a17-1a1b "
    "1a55-1a5e 1a61-1a74 1abf-1ac0 1acc-1ace 1b00-1b04 1b35-1b43 1b80-1b82 1ba1-1ba9 1bac-1bad 1be7-1bf1 1c24-1c36 "
    "1dd3-1df4 2160-2182 2185-2188 24b6-24e9 2de0-2dff 3007 3021-3029 3038-303a a674-a67b a69e-a69f a6e6-a6ef a802 "
    "a80b a823-a827 a880-a881 a8b4-a8c3 a8c5 a8ff a926-a92a a947-a952 a980-a983 a9b4-a9bf a9e5 aa29-aa36 aa43 "
    "aa4c-aa4d aa7b-aa7d aab0 aab2-aab4 aab7-aab8 aabe aaeb-aaef aaf5 abe3-abea fb1e 10140-10174 10341 1034a "
    "10376-1037a 103d1-103d5 10a01-10a03 10a05-10a06 10a0c-10a0f 10d24-10d27 10eab-10eac 11000-11002 11038-11045 "
    "11073-11074 11080-11082 110b0-110b8 110c2 11100-11102 11127-11132 11145-11146 11180-11182 111b3-111bf "
    "111ce-111cf 1122c-11234 11237 1123e 112df-112e8 11300-11303 1133e-11344 11347-11348 1134b-1134c 11357 "
    "11362-11363 11435-11441 11443-11445 114b0-114c1 115af-115b5 115b8-115be 115dc-115dd 11630-1163e 11640 "
    "116ab-116b5 1171d-1172a 1182c-11838 11930-11935 11937-11938 1193b-1193c 11940 11942 119d1-119d7 119da-119df "
    "119e4 11a01-11a0a 11a35-11a39 11a3b-11a3e 11a51-11a5b 11a8a-11a97 11c2f-11c36 11c38-11c3e 11c92-11ca7 "
    "11ca9-11cb6 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d41 11d43 11d47 11d8a-11d8e 11d90-11d91 11d93-11d96 "
    "11ef3-11ef6 12400-1246e 16f4f 16f51-16f87 16f8f-16f92 16ff0-16ff1 1bc9e 1e000-1e006 1e008-1e018 1e01b-1e021 "
    "1e023-1e024 1e026-1e02a 1e947 1f130-1f149 1f150-1f169 1f170-1f189"
)
_BITS = (
    (DIGIT, "0123456789"),
    (PARENTHESIS, "{}\u27e8\u27e9[]()"),
    (ALPHANUMERIC, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789\n?!,."),
    (WHITE, "\t\n\r\b "),
    (URL, "!" + "".join(map(chr, range(ord("$"), ord("_") + 1))) + "abcdefghijklmnopqrstuvwxyz"),
    (NOTABLE, "#h<jJmM\u2026"),
)


@lru_cache(maxsize=1)
def character_classes() -> CodePointTable:
    """Return the table of the bits above (uint8) of every code point."""
    table = word_classes()
    codes = np.arange(ASSIGNED_STOP)
    of_words = table.pages[table.page_of[codes >> 8], codes & 255]
    values = np.where(of_words & ALPHA, ALPHABETIC, 0).astype(np.uint8) | (of_words & SPACE)
    values[code_points_of(_ALPHABETIC_BUT_NO_LETTERS)] |= ALPHABETIC
    for bit, characters in _BITS:
        values[[ord(character) for character in characters]] |= bit
    return paged(values)


@lru_cache(maxsize=1)
def character_byte_classes() -> npt.NDArray[np.uint8]:
    """Return the classes of the 128 ASCII characters; 0 for other bytes."""
    return character_classes().of_bytes()


_FIRST, _STOP = COUNTS.index(CHARACTER_COUNTS[0]), COUNTS.index(CHARACTER_COUNTS[-1]) + 1
(
    _WHITE,
    _PARENTHESES,
    _ALPHABETIC,
    _WORD_CHARACTERS,
    _LONGEST,
    _ALPHABETIC_WORDS,
    _STOP_WORDS,
    _NEMO_SYMBOL_WORDS,
    _DOLMA_SYMBOL_WORDS,
    _MIDDLE_LENGTHS,
    _MIDDLE_WORDS,
    _LINES,
    _HAS_XML_HEADER,
    _HAS_CURLY_BRACKET,
    _HAS_JAVASCRIPT,
    _HAS_LOREM_IPSUM,
) = range(4, len(CHARACTER_COUNTS))
# NeMo regards these as an ellipsis if they are a whole word: nemo_curator 0.9.0, utils/constants.py, ellipsis_marks.
_MARKS = tuple(np.frombuffer(mark.encode(), dtype=np.uint8) for mark in ("...", "\u2026", "-\xbb"))
_BRACKETED = tuple(np.frombuffer(mark.encode(), dtype=np.uint8) for mark in ("[...]", "(...)", "[\u2026]"))
_XML_HEADER, _JAVASCRIPT, _LOREM_IPSUM = (
    np.frombuffer(phrase, dtype=np.uint8) for phrase in (b"<?xml version=", b"javascript", b"lorem ipsum")
)
XML_HEADER_CHARACTERS = 100
"""Number of characters in which NeMo looks for an XML header: nemo_curator 0.9.0, filters/code.py, XMLHeaderFilter."""


@helper
def _is_phrase(data: Any, at: int, start: int, stop: int, letters: Any, in_any_case: bool) -> bool:
    """Return whether these lower-case letters are at this position."""
    if at < start or at + len(letters) > stop:
        return False
    for place in range(len(letters)):
        byte = data[at + place]
        if in_any_case and 0x41 <= byte <= 0x5A:
            byte |= 0x20
        if byte != letters[place]:
            return False
    return True


@helper
def _is_at(data: Any, at: int, stop: int, letters: Any) -> bool:
    if stop - at != len(letters):
        return False
    for place in range(len(letters)):  # noqa: SIM110 (numba)
        if data[at + place] != letters[place]:
            return False
    return True


@helper
def _is_ellipsis_mark(data: Any, at: int, stop: int) -> bool:
    if not 3 <= stop - at <= 5:
        return False
    return (
        _is_at(data, at, stop, _MARKS[0])
        or _is_at(data, at, stop, _MARKS[1])
        or _is_at(data, at, stop, _MARKS[2])
        or _is_at(data, at, stop, _BRACKETED[0])
        or _is_at(data, at, stop, _BRACKETED[1])
        or _is_at(data, at, stop, _BRACKETED[2])
    )


@helper
def _url_stop(data: Any, at: int, stop: int, byte_classes: Any) -> int:
    """Return the end of the URL that may start at this ``h``, or ``at``."""
    if at + 8 > stop or data[at + 1] != 0x74 or data[at + 2] != 0x74 or data[at + 3] != 0x70:
        return at
    place = at + 4 + (data[at + 4] == 0x73)
    if place + 3 >= stop or data[place] != 0x3A or data[place + 1] != 0x2F or data[place + 2] != 0x2F:
        return at
    end = place + 3
    while end < stop and byte_classes[data[end]] & URL:
        end += 1
    return end if end > place + 3 else at


@helper
def _middle_lengths(lengths: Any, words: int, longest: int) -> int:
    """Return the sum of the lengths of the two middle words (twice the middle word's); clear the tally of lengths."""
    lower, upper, seen, middle = (words - 1) // 2, words // 2, 0, 0
    for length in range(min(longest, LONGEST_COUNTED_WORD) + 1):
        before, seen = seen, seen + lengths[length]
        middle += length * (before <= lower < seen) + length * (before <= upper < seen)
        lengths[length] = 0
    return middle


@inlined
def _count_word(
    data: Any, start: int, stop: int, length: int, of_word: int, hash_runs: int, is_marked: bool, lengths: Any, row: Any
) -> None:
    row[_WORD_CHARACTERS] += length
    row[_LONGEST] = max(row[_LONGEST], length)
    row[_MIDDLE_WORDS] += 1
    lengths[min(length, LONGEST_COUNTED_WORD)] += 1
    row[_ALPHABETIC_WORDS] += (of_word & ALPHABETIC) != 0
    row[_DOLMA_SYMBOL_WORDS] += is_marked
    if 2 <= stop - start <= 4:
        row[_STOP_WORDS] += stop_word_bit(data, start, stop - start, 0) != 0
    if 2 * hash_runs > length or (not of_word & ALPHABETIC and _is_ellipsis_mark(data, start, stop)):
        row[_NEMO_SYMBOL_WORDS] += 1


@helper
def _look_for_phrases(data: Any, at: int, start: int, stop: int, characters: int, row: Any) -> None:
    """Look for the phrase that a notable character may be part of; ``characters`` is the number of characters before it."""
    byte = data[at] | 0x20
    if byte == 0x3C and characters + len(_XML_HEADER) <= XML_HEADER_CHARACTERS:
        row[_HAS_XML_HEADER] |= _is_phrase(data, at, start, stop, _XML_HEADER, False)
    elif byte == 0x6A:
        row[_HAS_JAVASCRIPT] |= _is_phrase(data, at, start, stop, _JAVASCRIPT, True)
    elif byte == 0x6D:
        row[_HAS_LOREM_IPSUM] |= _is_phrase(data, at - 4, start, stop, _LOREM_IPSUM, True)


@helper
def count_characters(data: Any, start: int, stop: int, classes: Any, lengths: Any, row: Any) -> None:
    """Count a text into ``row``, whose columns are all 0, as is the tally of lengths before and after."""
    byte_classes, page_of, pages = classes
    characters = alphabetic = alphanumeric = digits = white = url = 0
    length = of_word = hash_runs = word_start = 0
    is_marked = is_hash = False
    at = url_end = start
    while at < stop:
        byte, width = data[at], 1
        flags = types.int64(byte_classes[byte])
        if byte >= 0x80:
            code, width = code_point(data, at, stop)
            flags = types.int64(pages[page_of[code >> 8], code & 255])
        alphanumeric += (flags & ALPHANUMERIC) != 0
        white += (flags & WHITE) != 0
        if flags & SPACE:
            row[_LINES] += byte == 0x0A
            if length:
                _count_word(data, word_start, at, length, of_word, hash_runs, is_marked, lengths, row)
            length = of_word = hash_runs = 0
            is_marked = is_hash = False
        else:
            word_start = at if length == 0 else word_start
            length += 1
            of_word |= flags
            alphabetic += (flags & ALPHABETIC) != 0
            digits += (flags & DIGIT) != 0
            if flags & PARENTHESIS:
                row[_PARENTHESES] += 1
                row[_HAS_CURLY_BRACKET] |= byte == 0x7B
            if flags & NOTABLE:
                if byte == 0x68 and at >= url_end:
                    url_end = _url_stop(data, at, stop, byte_classes)
                    url += url_end - at
                elif byte == 0x23 or byte >= 0x80:
                    hash_runs += (byte == 0x23) & (not is_hash)
                    is_marked = True
                else:
                    _look_for_phrases(data, at, start, stop, characters, row)
            is_hash = byte == 0x23
        characters += 1
        at += width
    if length:
        _count_word(data, word_start, stop, length, of_word, hash_runs, is_marked, lengths, row)
    row[0], row[1], row[2], row[3] = characters, characters - alphanumeric, digits, url
    row[_WHITE], row[_ALPHABETIC] = white, alphabetic
    row[_MIDDLE_LENGTHS] = _middle_lengths(lengths, row[_MIDDLE_WORDS], row[_LONGEST])
    row[_MIDDLE_WORDS] = 2 if row[_MIDDLE_WORDS] else 0
    row[_LINES] += 1


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_characters_of_span(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,  # noqa: ARG001 - passes take the same arguments
    counts: Any,
) -> None:
    """Count each text of a span into its row of ``counts``: the columns of `counts.CHARACTER_COUNTS`."""
    classes = (byte_classes, page_of, pages)
    lengths = np.zeros(LONGEST_COUNTED_WORD + 1, dtype=np.int64)
    for row in range(len(counts)):
        columns = counts[row, _FIRST:_STOP]
        columns[:] = 0
        count_characters(data, offsets[row], offsets[row + 1], classes, lengths, columns)

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled test of each line of a text as in C4: kept lines, removed lines, and lines that fail a whole text.

`c4_texts` copies lines with it. The order of the tests is that of datatrove
0.10.0, C4QualityFilter (after Raffel et al. 2020): a line that was already removed cannot fail the text.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.metrics.counts import C4_COUNTS, COUNT_C4, COUNT_C4_UNPUNCTUATED, COUNTS
from curator_df.kernels.metrics.lines.sentences import sentence_count
from curator_df.kernels.metrics.words.word_counts import BYTES, COUNTS_TYPE, SPAN, code_point
from curator_df.kernels.text.code_points import DECIMAL, LINE_END, SPACE
from curator_df.kernels.text.swar import dark_marks, first_mark, word_at, zero_marks

MAX_WORD_LENGTH = 1000
"""datatrove 0.10.0, C4QualityFilter: max_word_length=1000 (code points; a line with a longer word is removed)."""
MIN_LINE_WORDS = 3
"""datatrove 0.10.0, C4QualityFilter: min_words_per_line=3."""

KEPT, GONE, LOREM_IPSUM_LINE, CURLY_BRACKET_LINE = range(4)
"""Verdicts on a line; the last two fail the text."""

_COLUMNS = len(C4_COUNTS)
_LOREM, _JAVASCRIPT, _POLICY, _CURLY, _BRACKET, _LONG_WORD = 1, 2, 4, 8, 16, 32
_PLAIN, _BLANK, _HIGH, _MARK = range(4)


def _kinds() -> Any:
    kinds = np.full(256, _PLAIN, dtype=np.uint8)
    kinds[[code for code in range(128) if chr(code).isspace()]] = _BLANK
    kinds[128:] = _HIGH
    # Brackets, and the first letter of the only phrase of one word.
    kinds[[ord(letter) for letter in "[{jJ"]] = _MARK
    return kinds


_KINDS = _kinds()


_PHRASES = (
    "javascript", "lorem ipsum", "terms of use", "privacy policy", "coo", "ie policy", "ies", "uses ", "use of ", "use ",
    "cookie policy", "edit]", "citation needed]",
)  # fmt: skip
(
    _JAVASCRIPT_TEXT, _LOREM_TEXT, _TERMS_TEXT, _PRIVACY_TEXT, _COO, _IE_POLICY, _IES, _USES, _USE_OF, _USE,
    _COOKIE_POLICY, _EDIT, _CITATION,
) = range(len(_PHRASES))  # fmt: skip
# One array for all, read by number: with an array for each, LLVM generates code for each (half of the compile time).
_LETTERS = np.frombuffer("".join(_PHRASES).encode(), dtype=np.uint8)
_LENGTHS = np.array([len(phrase) for phrase in _PHRASES])
_STARTS = np.cumsum(_LENGTHS) - _LENGTHS
_U: Any = np.uint64
_8 = _U(8)
_BITS_OF_CASE, _LOW = _U(0x2020202020202020), _U(0xFFFFFFFF)
_JS, _BRACES = (_U(ord(letter) * 0x0101010101010101) for letter in "j{")
# Beginnings of those words of phrases that follow a space.
_IPSU, _OF_U, _POLI, _COOK = (_U(int.from_bytes(word, "little")) for word in (b"ipsu", b"of u", b"poli", b"cook"))


@helper
def _is_phrase(data: Any, at: int, start: int, stop: int, number: int) -> bool:
    """Return whether this phrase (lower-case letters, spaces and brackets) is at ``at``, case-insensitive."""
    length, first = _LENGTHS[number], _STARTS[number]
    if at < start or at + length > stop:
        return False
    for place in range(length):
        byte = data[at + place]
        if 0x41 <= byte <= 0x5A:
            byte |= 0x20
        if byte != _LETTERS[first + place]:
            return False
    return True


@helper
def _cookie_policy(data: Any, at: int, start: int, stop: int, width: int) -> int:
    """Return `_POLICY` if the k here, of ``width`` bytes, is that of "cookie policy" or of one of the uses of cookies."""
    if not _is_phrase(data, at - 3, start, stop, _COO):
        return 0
    if _is_phrase(data, at + width, start, stop, _IE_POLICY):
        return _POLICY
    if not _is_phrase(data, at + width, start, stop, _IES):
        return 0
    word = at - 3
    is_used = (
        _is_phrase(data, word - 5, start, word, _USES)
        or _is_phrase(data, word - 7, start, word, _USE_OF)
        or _is_phrase(data, word - 4, start, word, _USE)
    )
    return _POLICY if is_used else 0


@helper
def _found_at(data: Any, at: int, start: int, stop: int) -> int:
    """Return the finding that the marked byte at this position belongs to."""
    if data[at] == 0x7B:
        return _CURLY
    if data[at] == 0x5B:
        return _BRACKET
    return _JAVASCRIPT if _is_phrase(data, at, start, stop, _JAVASCRIPT_TEXT) else 0


@inlined
def _may_be_of_phrase(word: int) -> bool:
    """Return whether eight bytes, at the start of a word, may be the second word of a phrase, or cookies."""
    letters = (word | _BITS_OF_CASE) & _LOW
    return (letters == _IPSU) | (letters == _OF_U) | (letters == _POLI) | (letters == _COOK)


@helper
def _found_before(data: Any, at: int, start: int, stop: int) -> int:
    """Return the finding that the word starting here completes or is."""
    found = _LOREM if _is_phrase(data, at - 6, start, stop, _LOREM_TEXT) else 0
    is_policy = (
        _is_phrase(data, at - 6, start, stop, _TERMS_TEXT)
        or _is_phrase(data, at - 8, start, stop, _PRIVACY_TEXT)
        or _is_phrase(data, at - 7, start, stop, _COOKIE_POLICY)
    )
    is_cookie = at + 3 < stop and data[at + 3] | 0x20 == 0x6B
    return found | (_POLICY if is_policy else 0) | (_cookie_policy(data, at + 3, start, stop, 1) if is_cookie else 0)


@inlined
def _marks(word: int) -> int:
    """Mark bytes that are not plain, up to the first one."""
    lower = word | _BITS_OF_CASE
    return dark_marks(word) | zero_marks(lower ^ _JS) | zero_marks(lower ^ _BRACES)


@helper
def scan_line(data: Any, at: int, stop: int, classes: Any) -> tuple[int, int, int, int, int]:  # noqa: C901, PLR0912
    """Read a line of ``str.splitlines``: the next one's start, this one's stripped bounds, its words, and the findings.

    One function: with the arrays of a tuple among its arguments, a call for each character would take longer than the rest.
    """
    _, page_of, pages = classes
    start = at
    first = last = at
    words = found = 0
    length, ends = 0, False
    while at < stop and not ends:
        here = _U(at)
        if here + _8 <= _U(stop):
            eight = word_at(data, here)
            plain = types.int64(first_mark(_marks(eight)))
            if plain:
                if length == 0:
                    first = at if words == 0 else first
                    words += 1
                    if _may_be_of_phrase(eight):
                        found |= _found_before(data, at, start, stop)
                length += plain
                at += plain
                last = at
                if plain == 8:
                    continue
        byte = data[at]
        kind, width = _KINDS[byte], 1
        is_space = kind == _BLANK
        if is_space:
            ends = 0x0A <= byte <= 0x0D or 0x1C <= byte <= 0x1E
            width += types.int64(byte == 0x0D and at + 1 < stop and data[at + 1] == 0x0A)
        elif kind == _HIGH:
            code, width = code_point(data, at, stop)
            flags = pages[page_of[code >> 8], code & 255]
            is_space, ends = flags & SPACE != 0, flags & LINE_END != 0
            if code == 0x212A:  # The Kelvin sign, whose lower case is an ASCII k.
                found |= _cookie_policy(data, at, start, stop, width)
        elif kind == _MARK:
            found |= _found_at(data, at, start, stop)
        elif length == 0:
            found |= _found_before(data, at, start, stop)
        if is_space:
            found |= _LONG_WORD if length > MAX_WORD_LENGTH else 0
            length = 0
        else:
            if length == 0:
                first = at if words == 0 else first
                words += 1
            length += 1
            last = at + width
        at += width
    found |= _LONG_WORD if length > MAX_WORD_LENGTH else 0
    return at, first, max(last, first), words, found


@helper
def _is_lower(data: Any, at: int, length: int) -> bool:
    capitals = 0
    for place in range(length):
        capitals += 0x41 <= data[at + place] <= 0x5A
    return capitals == 0


@helper
def _citation_length(data: Any, at: int, stop: int, classes: Any) -> int:
    r"""Return the bytes that ``\[\d*]|\[edit]|\[citation needed]`` matches at an opening bracket, or 0."""
    _, page_of, pages = classes
    for number in range(_EDIT, _CITATION + 1):
        if _is_phrase(data, at + 1, at + 1, stop, number) and _is_lower(data, at + 1, _LENGTHS[number]):
            return 1 + _LENGTHS[number]
    end = at + 1
    while end < stop:
        code, width = types.int64(data[end]), 1
        if code >= 0x80:
            code, width = code_point(data, end, stop)
        if not pages[page_of[code >> 8], code & 255] & DECIMAL:
            break
        end += width
    return end + 1 - at if end < stop and data[end] == 0x5D else 0


@helper
def copy_without_citations(data: Any, at: int, stop: int, classes: Any, copied: Any, end: int) -> int:
    """Append ``data[at:stop]`` without citations to ``copied``, from ``end`` on; return its new end."""
    while at < stop:
        if data[at] == 0x5B:
            length = _citation_length(data, at, stop, classes)
            if length:
                at += length
                continue
        copied[end] = data[at]
        end += 1
        at += 1
    return end


@helper
def _ends_well(data: Any, start: int, stop: int) -> bool:
    if stop == start:
        return False
    last = data[stop - 1]
    if last == 0x2E:
        return not (stop - start >= 3 and data[stop - 2] == 0x2E and data[stop - 3] == 0x2E)
    return last in (0x3F, 0x21, 0x22, 0x27)


@helper
def judge_line(data: Any, start: int, stop: int, words: int, found: int, is_punctuated: bool) -> int:
    """Return the verdict on a line without citations; ``is_punctuated`` requires a terminal punctuation mark."""
    if found & _LONG_WORD or (is_punctuated and not _ends_well(data, start, stop)) or words < MIN_LINE_WORDS:
        return GONE
    if found & _LOREM:
        return LOREM_IPSUM_LINE
    if found & _JAVASCRIPT:
        return GONE
    if found & _CURLY:
        return CURLY_BRACKET_LINE
    return GONE if found & _POLICY else KEPT


@helper
def has_citation_bracket(found: int) -> bool:
    """Return whether a line has an opening bracket, so that it may contain citations."""
    return found & _BRACKET != 0


@helper
def found_again(found: int, found_in_rest: int) -> int:
    """Return the findings of a line without its citations; only long words are searched for before."""
    return found & _LONG_WORD | found_in_rest & ~_LONG_WORD


@helper
def count_c4(
    data: Any, start: int, stop: int, classes: Any, features: int, scratch: Any, scratch_view: Any, row: Any
) -> None:
    """Make the requested counts of ``C4_COUNTS`` and then of ``C4_UNPUNCTUATED_COUNTS``.

    ``scratch`` has room for a line; ``scratch_view`` is the same memory, read-only like ``data``, so that the code that reads a
    line is compiled once.
    """
    for is_unpunctuated in range(2):
        if features & (COUNT_C4_UNPUNCTUATED if is_unpunctuated else COUNT_C4):
            columns = row[is_unpunctuated * _COLUMNS :]
            _count_lines(data, start, stop, classes, is_unpunctuated == 0, scratch, scratch_view, columns)


@helper
def _count_lines(
    data: Any, start: int, stop: int, classes: Any, is_punctuated: bool, scratch: Any, scratch_view: Any, row: Any
) -> None:
    lorem_ipsum = curly_bracket = sentences = 0
    at = start
    while at < stop and not lorem_ipsum and not curly_bracket:
        at, first, last, words, found = scan_line(data, at, stop, classes)
        line = data
        if has_citation_bracket(found):
            last = copy_without_citations(data, first, last, classes, scratch, 0)
            first, line = 0, scratch_view
            found = found_again(found, scan_line(line, first, last, classes)[4])
        verdict = judge_line(line, first, last, words, found, is_punctuated)
        if verdict == KEPT:
            sentences += sentence_count(line, first, last, classes)
        lorem_ipsum, curly_bracket = verdict == LOREM_IPSUM_LINE, verdict == CURLY_BRACKET_LINE
    row[0], row[1], row[2] = lorem_ipsum, curly_bracket, sentences


_FIRST = COUNTS.index(C4_COUNTS[0])


@kernel(types.void(*SPAN, types.int64, types.uint8[::1], BYTES, COUNTS_TYPE))
def count_c4_of_span(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,
    scratch: Any,
    scratch_view: Any,
    counts: Any,
) -> None:
    """Count each text of a span into its row of ``counts``: `counts.C4_COUNTS` and `counts.C4_UNPUNCTUATED_COUNTS`.

    ``scratch`` has room for the longest text, and ``scratch_view`` is a read-only view of it.
    """
    classes = (byte_classes, page_of, pages)
    for row in range(len(counts)):
        columns = counts[row, _FIRST:]
        count_c4(data, offsets[row], offsets[row + 1], classes, features, scratch, scratch_view, columns)

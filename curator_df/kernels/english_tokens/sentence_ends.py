# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled count of the sentences of lines split into datatrove's English tokens, by the rule of spaCy's sentencizer.

A token that is one of its marks ends a sentence, and the next one begins with the next token that is not punctuation alone.
White space between tokens, other than one space, is such a token.

See `measure` for the code that
calls it, and `sentences` for the rule on words between white space.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.english_tokens.rules import BLANK, ENDS_SENTENCE, PUNCTUATION
from curator_df.kernels.metrics.words.word_counts import BYTES, code_point

_OFFSETS = types.Array(types.int64, 1, "C", readonly=True)


@helper
def _class_at(data: Any, at: int, stop: int, page_of: Any, pages: Any) -> tuple[int, int]:
    """Return the bits and the bytes of the code point here."""
    code, width = types.int64(data[at]), 1
    if code >= 0x80:
        code, width = code_point(data, at, stop)
    return types.int64(pages[page_of[code >> 8], code & 255]), width


@helper
def _after_blanks(data: Any, at: int, stop: int, page_of: Any, pages: Any) -> int:
    while at < stop:
        bits, width = _class_at(data, at, stop, page_of, pages)
        if not bits & BLANK:
            break
        at += width
    return at


@helper
def _read_token(data: Any, at: int, stop: int, page_of: Any, pages: Any) -> tuple[int, bool, bool]:
    """Return the end of a token, whether it ends a sentence, and whether it can begin one."""
    begun, characters = at, 0
    every, last = PUNCTUATION, 0
    while at < stop:
        bits, width = _class_at(data, at, stop, page_of, pages)
        if bits & BLANK:
            break
        every &= bits
        last = bits
        characters += 1
        at += width
    ends = characters == 1 and last & ENDS_SENTENCE != 0
    return at, ends, at > begun and not ends and every == 0


@kernel(
    types.void(
        BYTES,
        _OFFSETS,
        BYTES,
        types.Array(types.int64, 1, "C", readonly=True),
        types.Array(types.uint16, 1, "C", readonly=True),
        types.Array(types.uint8, 2, "C", readonly=True),
        types.int64[::1],
    )
)
def count_sentences_of_lines(
    data: Any, offsets: Any, tokens: Any, token_offsets: Any, page_of: Any, pages: Any, sentences: Any
) -> None:
    """Write the number of sentences of each line: at least 1. ``tokens`` are those of each line, each followed by white space."""
    for line in range(len(sentences)):
        at, stop = offsets[line], offsets[line + 1]
        place, end = token_offsets[line], token_offsets[line + 1]
        count, ended, is_first = 1, False, True
        while True:
            place = _after_blanks(tokens, place, end, page_of, pages)
            if place == end:
                break
            blank = at
            at = _after_blanks(data, at, stop, page_of, pages)
            is_token = at > blank and (at - blank > 1 or data[blank] != 0x20)
            token_stop, ends, begins = _read_token(tokens, place, end, page_of, pages)
            if ended and (begins or (is_token and not is_first)):
                count += 1
                ended = False
            ended = ended or ends
            at += token_stop - place
            place, is_first = token_stop, False
        sentences[line] = count

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Count sentences of texts or lines: by words between white space, or by datatrove's English tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.english_tokens.rules import BLANK, ENDS_SENTENCE, PUNCTUATION, sentence_table
from curator_df.kernels.english_tokens.spans import token_spans
from curator_df.kernels.metrics.catalog import Words
from curator_df.kernels.metrics.lines.sentences import count_sentences_of_span
from curator_df.kernels.metrics.words.word_counts import BYTES
from curator_df.kernels.text.buffers import TextSpan
from curator_df.kernels.text.code_points import word_byte_classes, word_classes
from curator_df.kernels.text.unicode_words import class_at

_OFFSETS = types.Array(types.int64, 1, "C", readonly=True)


@helper
def _after_blanks(data: Any, at: int, stop: int, classes: Any) -> int:
    while at < stop:
        bits, width = class_at(data, at, stop, classes)
        if not bits & BLANK:
            break
        at += width
    return at


@helper
def _read_token(data: Any, at: int, stop: int, classes: Any) -> tuple[int, bool, bool]:
    """Return the end of a token, whether it ends a sentence, and whether it can begin one."""
    begun, characters = at, 0
    every, last = PUNCTUATION, 0
    while at < stop:
        bits, width = class_at(data, at, stop, classes)
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
    classes = (pages[page_of[0]], page_of, pages)
    for line in range(len(sentences)):
        at, stop = offsets[line], offsets[line + 1]
        place, end = token_offsets[line], token_offsets[line + 1]
        count, ended, is_first = 1, False, True
        while True:
            place = _after_blanks(tokens, place, end, classes)
            if place == end:
                break
            blank = at
            at = _after_blanks(data, at, stop, classes)
            is_token = at > blank and (at - blank > 1 or data[blank] != 0x20)
            token_stop, ends, begins = _read_token(tokens, place, end, classes)
            if ended and (begins or (is_token and not is_first)):
                count += 1
                ended = False
            ended = ended or ends
            at += token_stop - place
            place, is_first = token_stop, False
        sentences[line] = count


def text_sentences(span: TextSpan, words: Words) -> npt.NDArray[np.int64]:
    r"""Count the sentences of each text of a span, which may span lines; 0 for a text without words.

    Parameters
    ----------
    span : TextSpan
        Texts.
    words : {"whitespace", "datatrove", "icu"}
        ``datatrove``: the sentences of its tokens; otherwise those of words between white space.

    Returns
    -------
    ndarray of int64, shape (rows,)

    Notes
    -----
    Memory: none for each text; with datatrove's words that of `english_tokens.spans`.

    Examples
    --------
    >>> import pandas as pd
    >>> from curator_df.kernels.text.buffers import text_spans
    >>> texts = pd.Series(["One (e.g. this\none). Two!", " ", "no mark"], dtype="string[pyarrow]")
    >>> [text_sentences(span, "datatrove").tolist() for span in text_spans(texts)]
    [[2, 0, 1]]
    """
    if words == "datatrove":
        return sentences_by_tokens(span)

    table = word_classes()
    found = np.zeros(len(span), dtype=np.int64)
    count_sentences_of_span(span.data, span.offsets, word_byte_classes(""), table.page_of, table.pages, found)
    return found


def sentences_by_tokens(span: TextSpan) -> npt.NDArray[np.int64]:
    """Count the sentences of each text or line by datatrove's tokens; 0 for a text without tokens."""
    table = sentence_table()
    sentences = np.zeros(len(span), dtype=np.int64)
    for tokens in token_spans(span):
        first = tokens.first_row - span.first_row
        end = first + len(tokens)
        offsets = span.offsets[first : end + 1]
        found = sentences[first:end]
        count_sentences_of_lines(span.data, offsets, tokens.data, tokens.offsets, table.page_of, table.pages, found)
        found[np.diff(tokens.offsets) == 0] = 0
    return sentences

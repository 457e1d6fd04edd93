# SPDX-License-Identifier: Apache-2.0
"""Count sentences of texts or lines: by words between white space, or by datatrove's English tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from curator_df.kernels.english_tokens.rules import sentence_table
from curator_df.kernels.english_tokens.sentence_ends import count_sentences_of_lines
from curator_df.kernels.english_tokens.spans import token_spans
from curator_df.kernels.metrics.catalog import Words
from curator_df.kernels.metrics.lines.sentences import count_sentences_of_span
from curator_df.kernels.text.buffers import TextSpan
from curator_df.kernels.text.code_points import word_byte_classes, word_classes


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

# SPDX-License-Identifier: Apache-2.0
"""Texts split into words other than those between white space: tokens with white space between, for kernels that read words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.english_tokens.phrases import phrases
from curator_df.kernels.english_tokens.rules import class_table
from curator_df.kernels.english_tokens.token_pass import split_span
from curator_df.kernels.metrics.catalog import Words
from curator_df.kernels.text.buffers import TextSpan, read_only
from curator_df.kernels.text.icu_words import split_texts

BATCH_BYTES = 1 << 18
"""Bytes of texts whose tokens are held in each step, unless one text is longer: small enough to stay in the cache for the
counters."""

Split = Callable[[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]], None]
"""Function that writes the tokens of texts (data, offsets), white space after each, and the end of each text. It writes at
most two bytes for each byte of the texts."""


def token_spans(span: TextSpan, words: Words = "datatrove") -> Iterator[TextSpan]:
    """Walk the rows of a span as texts of tokens, in batches of rows.

    Parameters
    ----------
    span : TextSpan
        Texts.
    words : {"datatrove", "icu"}
        Kind of tokens; see `metrics.Words`.

    Yields
    ------
    TextSpan
        The next rows: each has the tokens of its text, each followed by white space. Valid until the next span is requested.

    Notes
    -----
    Memory: 2 x the longest text or `BATCH_BYTES`, whichever is more; a text of punctuation alone fills it.

    Examples
    --------
    >>> import pandas as pd
    >>> from curator_df.kernels.text.buffers import text_spans
    >>> [span] = text_spans(pd.Series(["He can't (e.g. at 5p.m.) stop.", "U.S. www.a.org/b:c"], dtype="string[pyarrow]"))
    >>> [tokens] = token_spans(span)
    >>> rows = zip(tokens.offsets[:-1], tokens.offsets[1:])
    >>> [tokens.data[start:stop].tobytes().decode().split() for start, stop in rows]
    [['He', 'ca', "n't", '(', 'e.g.', 'at', '5', 'p.m.', ')', 'stop', '.'], ['U.S.', 'www.a.org/b:c']]
    """
    split = _splitter(words)
    sizes = np.diff(span.offsets)
    room = np.empty(2 * max(BATCH_BYTES, int(sizes.max(initial=0))), dtype=np.uint8)
    first = 0
    while first < len(span):
        ends = span.offsets[first + 1 :] - span.offsets[first]
        rows = max(1, int(np.searchsorted(ends, len(room) // 2, side="right")))
        stops = np.empty(rows + 1, dtype=np.int64)
        split(span.data, span.offsets[first : first + rows + 1], room, stops)
        valid = None if span.valid is None else span.valid[first : first + rows]
        yield TextSpan(span.first_row + first, read_only(room), stops, valid)
        first += rows


def _splitter(words: Words) -> Split:
    if words == "icu":
        return split_texts

    classes, exceptions = class_table(), phrases()

    def split(data: Any, offsets: Any, room: Any, stops: Any) -> None:
        split_span(data, offsets, classes, exceptions, room, stops)

    return split

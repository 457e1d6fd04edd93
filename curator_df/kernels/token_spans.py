# SPDX-License-Identifier: Apache-2.0
"""Texts cut into words that are not those between white space: tokens with white space between, for kernels that read words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.buffers import TextSpan, read_only
from curator_df.kernels.english_rules import class_table, phrases
from curator_df.kernels.metrics import Words

BATCH_BYTES = 1 << 18
"""Texts whose tokens are held at a time, unless one is longer: small enough to stay in the cache for what counts them."""

Split = Callable[[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]], None]
"""Writes the tokens of texts (data, offsets) into room, white space after each, and where those of each text stop. At most
two bytes for each byte of the texts."""


def token_spans(span: TextSpan, words: Words = "datatrove") -> Iterator[TextSpan]:
    """Walk the rows of a span as texts of tokens, some rows at a time.

    Parameters
    ----------
    span : TextSpan
        Texts.
    words : {"datatrove", "icu"}
        Which tokens: what `metrics.Words` says.

    Yields
    ------
    TextSpan
        The next rows: each has the tokens of its text, and white space after each. Good until the next one is asked for.

    Notes
    -----
    Memory: 2 x the longest text or `BATCH_BYTES`, whichever is more; a text of punctuation alone fills it.

    Examples
    --------
    >>> import pandas as pd
    >>> from curator_df.kernels.buffers import text_spans
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
        from curator_df.kernels.icu_words import split_texts

        return split_texts
    from curator_df.kernels.token_pass import split_span

    classes, exceptions = class_table(), phrases()

    def split(data: Any, offsets: Any, room: Any, stops: Any) -> None:
        split_span(data, offsets, classes, exceptions, room, stops)

    return split

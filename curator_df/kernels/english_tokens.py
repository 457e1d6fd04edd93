# SPDX-License-Identifier: Apache-2.0
"""English texts cut into words as datatrove cuts them: tokens with white space between, for kernels that read words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from curator_df.kernels.buffers import TextSpan, read_only
from curator_df.kernels.english_rules import class_table, phrases

BATCH_BYTES = 1 << 18
"""Texts whose tokens are held at a time, unless one is longer: small enough to stay in the cache for what counts them."""


def token_spans(span: TextSpan) -> Iterator[TextSpan]:
    """Walk the rows of a span as texts of tokens, some rows at a time.

    Parameters
    ----------
    span : TextSpan
        Texts.

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
    from curator_df.kernels.token_pass import split_span

    classes, exceptions = class_table(), phrases()
    sizes = np.diff(span.offsets)
    room = np.empty(2 * max(BATCH_BYTES, int(sizes.max(initial=0))), dtype=np.uint8)
    first = 0
    while first < len(span):
        ends = span.offsets[first + 1 :] - span.offsets[first]
        rows = max(1, int(np.searchsorted(ends, len(room) // 2, side="right")))
        offsets = span.offsets[first : first + rows + 1]
        stops = np.empty(rows + 1, dtype=np.int64)
        split_span(span.data, offsets, classes, exceptions, room, stops)
        valid = None if span.valid is None else span.valid[first : first + rows]
        yield TextSpan(span.first_row + first, read_only(room), stops, valid)
        first += rows

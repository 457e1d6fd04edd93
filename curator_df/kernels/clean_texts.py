# SPDX-License-Identifier: Apache-2.0
"""A text column without URLs, or with at most two line ends in a row."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.kernels.buffers import array_spans, large_strings, text_chunks, text_series
from curator_df.kernels.code_points import word_byte_classes, word_classes

What = Literal["urls", "line_ends"]
"""What is taken out: URLs, or line ends beyond two in a row."""


def clean_texts(texts: pd.Series, what: What) -> tuple[pd.Series, int]:
    r"""Clean a text column; return it (the same object if nothing changes) and the rows changed.

    Memory: the column once more, at most.

    Examples
    --------
    >>> clean_texts(pd.Series(["see https://a.b/c now"], dtype="string"), "urls")[0].tolist()
    ['see  now']
    >>> clean_texts(pd.Series(["a\n\n\n\nb"], dtype="string"), "line_ends")[0].tolist()
    ['a\n\nb']
    """
    chunks, rows_changed = [], 0
    for chunk in text_chunks(texts).chunks:
        cleaned, changed = _cleaned_chunk(chunk, what)
        chunks.append(cleaned)
        rows_changed += changed
    return (text_series(chunks, texts), rows_changed) if rows_changed else (texts, 0)


def _cleaned_chunk(chunk: pa.Array, what: What) -> tuple[pa.Array, int]:
    from curator_df.kernels.clean_copy import SHORT_LINE_ENDS, WITHOUT_URLS, copy_cleaned

    table, byte_classes = word_classes(), word_byte_classes("")
    # What is not written to takes no memory: the pages of an empty array come when they are touched.
    copied = np.empty(sum(int(span.offsets[-1] - span.offsets[0]) for span in array_spans(chunk)), dtype=np.uint8)
    offsets = np.zeros(len(chunk) + 1, dtype=np.int64)
    changed = 0
    for span in array_spans(chunk):
        changed += copy_cleaned(
            span.data,
            span.offsets,
            byte_classes,
            table.page_of,
            table.pages,
            WITHOUT_URLS if what == "urls" else SHORT_LINE_ENDS,
            copied,
            offsets[span.first_row : span.first_row + len(span) + 1],
        )
    if not changed:
        return chunk, 0
    valid = chunk.is_valid().to_numpy(zero_copy_only=False) if chunk.null_count else None
    return large_strings(copied[: offsets[-1]], offsets, valid), changed

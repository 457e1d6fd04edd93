# SPDX-License-Identifier: Apache-2.0
"""Remove URLs from a text column, limit line ends to two in a row, or collapse white space; and make such copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.kernels.edits.clean_copy import SHORT_LINE_ENDS, SINGLE_SPACES, WITHOUT_URLS, copy_cleaned
from curator_df.kernels.text.buffers import TextSpan, array_spans, large_strings, text_chunks, text_series
from curator_df.kernels.text.code_points import word_byte_classes, word_classes

What = Literal["urls", "line_ends", "spaces"]
"""Kind of cleaning: remove URLs, line ends beyond two in a row, or white space beyond single spaces within lines."""

Copy = Callable[[TextSpan, Any, Any], int]
"""Function that appends the changed texts of a span to an array of bytes, fills in their offsets, and returns how many
changed."""


def clean_texts(texts: pd.Series, what: What) -> tuple[pd.Series, int]:
    r"""Clean a text column; return it (the same object if nothing changes) and the rows changed.

    Memory: the column once more, at most.

    Examples
    --------
    >>> clean_texts(pd.Series(["see https://a.b/c now"], dtype="string"), "urls")[0].tolist()
    ['see  now']
    >>> clean_texts(pd.Series(["a\n\n\n\nb"], dtype="string"), "line_ends")[0].tolist()
    ['a\n\nb']
    >>> clean_texts(pd.Series(["\ta  b \n c"], dtype="string"), "spaces")[0].tolist()
    ['a b\nc']
    """
    table, byte_classes = word_classes(), word_byte_classes("")
    mode = {"urls": WITHOUT_URLS, "line_ends": SHORT_LINE_ENDS, "spaces": SINGLE_SPACES}[what]

    def copy(span: TextSpan, copied: Any, offsets: Any) -> int:
        looked_up = (byte_classes, table.page_of, table.pages)
        return int(copy_cleaned(span.data, span.offsets, *looked_up, mode, copied, offsets))

    return copied_texts(texts, copy)


def copied_texts(texts: pd.Series, copy: Copy) -> tuple[pd.Series, int]:
    """Copy a text column, making no text longer; return it (the same object if nothing changes) and the rows changed.

    Memory: the column once more, at most.
    """
    chunks, rows_changed = [], 0
    for chunk in text_chunks(texts).chunks:
        copied, changed = _copied_chunk(chunk, copy)
        chunks.append(copied)
        rows_changed += changed
    return (text_series(chunks, texts), rows_changed) if rows_changed else (texts, 0)


def _copied_chunk(chunk: pa.Array, copy: Copy) -> tuple[pa.Array, int]:
    # Unwritten pages use zero memory: the pages of an empty array are allocated when they are touched.
    copied = np.empty(sum(int(span.offsets[-1] - span.offsets[0]) for span in array_spans(chunk)), dtype=np.uint8)
    offsets = np.zeros(len(chunk) + 1, dtype=np.int64)
    changed = 0
    for span in array_spans(chunk):
        changed += copy(span, copied, offsets[span.first_row : span.first_row + len(span) + 1])
    if not changed:
        return chunk, 0
    valid = chunk.is_valid().to_numpy(zero_copy_only=False) if chunk.null_count else None
    return large_strings(copied[: offsets[-1]], offsets, valid), changed

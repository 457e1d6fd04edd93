# SPDX-License-Identifier: Apache-2.0
"""A text column with only the lines that C4's tests keep."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.kernels.buffers import array_spans, large_strings, read_only, text_chunks, text_series
from curator_df.kernels.code_points import word_byte_classes, word_classes


def keep_c4_lines(texts: pd.Series, *, require_punctuation: bool = True) -> tuple[pd.Series, int]:
    r"""Take the other lines out of a text column; return it (the same object if nothing changes) and the rows changed.

    Memory: the column once more, at most.

    Examples
    --------
    >>> kept, rows_changed = keep_c4_lines(pd.Series(["Home | About\nA line of prose.[1]"], dtype="string"))
    >>> kept.tolist(), rows_changed
    (['A line of prose.'], 1)
    """
    chunks, rows_changed = [], 0
    for chunk in text_chunks(texts).chunks:
        kept, changed = _keep_of_chunk(chunk, require_punctuation)
        chunks.append(kept)
        rows_changed += changed
    return (text_series(chunks, texts), rows_changed) if rows_changed else (texts, 0)


def _keep_of_chunk(chunk: pa.Array, require_punctuation: bool) -> tuple[pa.Array, int]:
    from curator_df.kernels.c4_copy import copy_c4_lines

    table, byte_classes = word_classes(), word_byte_classes("")
    # What is not written to takes no memory: the pages of an empty array come when they are touched.
    size = sum(int(span.offsets[-1] - span.offsets[0]) for span in array_spans(chunk))
    copied = np.empty(size, dtype=np.uint8)
    offsets = np.zeros(len(chunk) + 1, dtype=np.int64)
    changed = 0
    for span in array_spans(chunk):
        changed += copy_c4_lines(
            span.data,
            span.offsets,
            byte_classes,
            table.page_of,
            table.pages,
            require_punctuation,
            copied,
            read_only(copied),
            offsets[span.first_row : span.first_row + len(span) + 1],
        )
    if not changed:
        return chunk, 0
    valid = chunk.is_valid().to_numpy(zero_copy_only=False) if chunk.null_count else None
    return large_strings(copied[: offsets[-1]], offsets, valid), changed

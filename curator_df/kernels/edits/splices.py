# SPDX-License-Identifier: Apache-2.0
"""Replace pieces of the texts of a column with others, of any length.

The text between two pieces is copied as one slice, of many rows where few change. Memory: the column once more, and
the excess of a growing buffer; nothing if no piece is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.kernels.text.buffers import TextSpan, array_spans, large_strings, text_chunks, text_series

Splice = tuple[int, int, int, bytes]
"""Row in the span, first byte, byte after the last, and the replacement bytes. In order, and without overlaps."""


def splice_texts(texts: pd.Series, find: Callable[[TextSpan], Iterator[Splice]]) -> tuple[pd.Series, int]:
    """Replace the pieces that ``find`` yields for each span; return the column (the same object if none) and the rows changed.

    Examples
    --------
    >>> texts = pd.Series(["a b", "c"], dtype="string")
    >>> splice_texts(texts, lambda span: iter([(0, 1, 2, b" and ")]))[0].tolist()
    ['a and b', 'c']
    """
    chunks, rows_changed = [], 0
    for chunk in text_chunks(texts).chunks:
        spliced, changed = _splice_chunk(chunk, find)
        chunks.append(spliced)
        rows_changed += changed
    return (text_series(chunks, texts), rows_changed) if rows_changed else (texts, 0)


def _splice_chunk(chunk: pa.Array, find: Callable[[TextSpan], Iterator[Splice]]) -> tuple[pa.Array, int]:
    spliced = bytearray()
    lengths: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    copied_to, last_row, rows_changed, end = -1, -1, 0, 0
    data = memoryview(b"")
    for span in array_spans(chunk):
        data = span.data.data
        for row, start, stop, replacement in find(span):
            if copied_to < 0:
                lengths, copied_to = _lengths(chunk), int(next(array_spans(chunk, rows=1)).offsets[0])
            spliced += data[copied_to:start]
            spliced += replacement
            copied_to = stop
            lengths[span.first_row + row] += len(replacement) - (stop - start)
            rows_changed += span.first_row + row != last_row
            last_row = span.first_row + row
        end = int(span.offsets[-1])
    if not rows_changed:
        return chunk, 0
    spliced += data[copied_to:end]
    offsets = np.zeros(len(chunk) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return large_strings(spliced, offsets, _valid(chunk)), rows_changed


def _lengths(chunk: pa.Array) -> npt.NDArray[np.int64]:
    return np.concatenate([np.diff(span.offsets) for span in array_spans(chunk)])


def _valid(chunk: pa.Array) -> npt.NDArray[np.bool_] | None:
    return chunk.is_valid().to_numpy(zero_copy_only=False) if chunk.null_count else None

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Select the rows of a block for which a mask is True, at the cost of exactly those rows.

pandas and Arrow grow their buffers while they select rows: measured, up to twice the block. Here text is copied into
buffers of the right size, so that the most used operators cost one block and not two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.kernels.compiling.compiled import kernel, types
from curator_df.kernels.text.buffers import array_spans, is_arrow_text, large_strings, text_chunks, text_series

_SIGNATURE = types.void(
    types.Array(types.uint8, 1, "C", readonly=True),
    types.Array(types.int64, 1, "C", readonly=True),
    types.Array(types.boolean, 1, "C", readonly=True),
    types.uint8[::1],
    types.int64[::1],
)


@kernel(_SIGNATURE)
def copy_rows(data: Any, offsets: Any, keep: Any, copied: Any, copied_offsets: Any) -> None:
    """Append the rows of a span for which ``keep`` is True to ``copied``.

    ``copied_offsets`` has one more entry than rows are kept; its first is the start position in ``copied``.
    """
    row, number = 0, 0
    while row < len(keep):
        if not keep[row]:
            row += 1
            continue
        first, at = row, copied_offsets[number]
        while row < len(keep) and keep[row]:
            number += 1
            row += 1
            copied_offsets[number] = at + offsets[row] - offsets[first]
        copied[at : copied_offsets[number]] = data[offsets[first] : offsets[row]]


def keep_rows(block: pd.DataFrame, keep: npt.NDArray[np.bool_]) -> pd.DataFrame:
    """Return the kept rows of a block, index and dtypes kept; the block itself if that is all of them.

    Parameters
    ----------
    block : pandas.DataFrame
        The block.
    keep : numpy.ndarray of bool, shape (rows,)
        Which rows to keep.

    Returns
    -------
    pandas.DataFrame
        The kept rows, in order.

    Examples
    --------
    >>> keep_rows(pd.DataFrame({"text": ["a", "b", "c"]}), np.array([True, False, True]))["text"].to_dict()
    {0: 'a', 2: 'c'}
    """
    if keep.all():
        return block
    dtypes = block.dtypes
    texts = [name for name in block.columns if is_arrow_text(dtypes[name])]
    others = block.drop(columns=texts)[keep]
    kept = {name: _keep_texts(block[name], keep, others.index) for name in texts}
    return others.assign(**kept)[list(block.columns)]


def _keep_texts(texts: pd.Series, keep: npt.NDArray[np.bool_], index: Any) -> pd.Series:
    chunks, first_row = [], 0
    for chunk in text_chunks(texts).chunks:
        chunks.append(_keep_of_chunk(chunk, keep[first_row : first_row + len(chunk)]))
        first_row += len(chunk)
    return text_series(chunks, texts, index)


def _keep_of_chunk(chunk: pa.Array, keep: npt.NDArray[np.bool_]) -> pa.Array:
    spans = [(span, keep[span.first_row : span.first_row + len(span)]) for span in array_spans(chunk)]
    size = sum(int(np.diff(span.offsets)[kept].sum()) for span, kept in spans)
    data = np.empty(size, dtype=np.uint8)
    offsets = np.zeros(int(keep.sum()) + 1, dtype=np.int64)
    number = 0
    for span, kept in spans:
        copy_rows(span.data, span.offsets, kept, data, offsets[number:])
        number += int(kept.sum())
    valid = chunk.is_valid().to_numpy(zero_copy_only=False)[keep] if chunk.null_count else None
    return large_strings(data, offsets, valid)

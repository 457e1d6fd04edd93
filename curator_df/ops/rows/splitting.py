# SPDX-License-Identifier: Apache-2.0
"""A row for each segment of a text: `split_documents`."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import numpy as np

from curator_df.core.backend import integer_column
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.rows.segments import split_block
from curator_df.kernels.text.buffers import text_dtype
from curator_df.ops.host_only import require_host

# Measured (tests/contracts/test_memory.py) with segments of one letter: at most 2.94.
PEAK_FACTOR = 3.2


def split_documents(
    df: dd.DataFrame, *, separator: str = "\n\n", text: str = "text", segment_id: str = "segment_id"
) -> dd.DataFrame:
    r"""Split each text at a separator into one row per segment; the other columns repeat.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    separator : str, default "\\n\\n"
        Literal text between two segments, not a regular expression. It is not part of any segment.
    text : str, default "text"
        The text column.
    segment_id : str, default "segment_id"
        Name of the new column.

    Returns
    -------
    dask.dataframe.DataFrame
        As many rows for each row as its text has segments, in order, with one more column ``Int64``: the number of the
        segment in its text, from 0. A text without the separator, even an empty one, has one segment; a null text gives
        one row with a null text. Segments may be empty: between two separators, and before or after one at the ends of
        a text.

    Raises
    ------
    ParameterError
        If the separator is empty.
    ColumnError
        If the text column is missing, or ``segment_id`` already exists.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    join_documents

    Notes
    -----
    Rows: one for each segment of a text, in order. Columns: plus ``segment_id``; the others repeat. Backends: pandas.
    Peak extra memory: 3.2 x block; the following steps hold the block as well. Computes: no.

    The output of a block is passed on in parts no larger than the block, however often a wide column repeats. Memory
    therefore does not depend on the number of segments per text; the size of the output files does.

    The rows of a text share its address. Operators that identify rows by address are refused after it: `add_ids` with
    ``identity="address"`` and the steps that wait for all rows, such as `drop_exact_duplicates`. ``add_ids(dense=True)``
    numbers segments, and after ``checkpoint(df, path)`` each segment has its own address. `sample_rows` keeps all
    segments of a text, or none. `join_documents` joins the segments of a text again.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modules/splitter.py, DocumentSplitter

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"id": ["a", "b"], "text": ["one\n\ntwo", "three"]}), npartitions=1)
    >>> docs.pipe(split_documents).compute()
      id   text  segment_id
    0  a    one           0
    0  a    two           1
    1  b  three           0
    """
    operator = "split_documents"
    require_text(df, operator, text)
    require_host(df._meta, operator)
    refuse_columns(df, operator, segment_id, parameter="segment_id")
    if not isinstance(separator, str) or not separator:
        raise ParameterError(f"{operator}: separator={separator!r} is not text of at least one character")
    kernel = BlockKernel(
        operator,
        split_documents_block,
        {"text": text, "separator": separator, "segment_id": segment_id},
        price=Price(PEAK_FACTOR, is_measured=True),
        compiled=kernel_sets.SPLITTING,
        makes_rows=True,
    )
    meta = df._meta.astype({text: text_dtype(df._meta[text].dtype)})
    return map_blocks(df, kernel, meta=meta.assign(**{segment_id: integer_column(meta, np.zeros(0, np.int64))}))


def split_documents_block(block: Any, *, text: str, separator: str, segment_id: str) -> Outcome:
    """Kernel of `split_documents`."""
    require_host(block, "split_documents")
    if not len(block):
        numbers = integer_column(block, np.zeros(0, np.int64))
        dtype = text_dtype(block[text].dtype)
        return Outcome(block.astype({text: dtype}).assign(**{segment_id: numbers}))
    parts = split_block(block, text=text, separator=separator, segment_id=segment_id)
    return Outcome(next(parts), rest=map(Outcome, parts))

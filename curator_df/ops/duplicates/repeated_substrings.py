# SPDX-License-Identifier: Apache-2.0
"""Remove substrings that occur in several places of the input, wherever they begin and end: `remove_repeated_substrings`."""

from __future__ import annotations

from typing import Literal

import dask.dataframe as dd

from curator_df.arguments import choose, require_integer
from curator_df.core.columns import require_text
from curator_df.core.planning.lowering import require_addresses
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.dedup.substring_removal import SubstringDrop
from curator_df.errors import ParameterError
from curator_df.exchange.dropped_rows import DROP_READER_BYTES
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.text.buffers import text_dtype
from curator_df.memory.sizes import read_size
from curator_df.ops.duplicates.exact import refuse_block
from curator_df.ops.host_only import require_host

OPERATOR = "remove_repeated_substrings"
PEAK_FACTOR = 2.5
"""Peak extra bytes: the texts without the spans, which bytes of a part of them go, and the rows of which something is left."""
READER_BYTES = 2 * DROP_READER_BYTES
"""Memory for reading stretches, pieces and windows in the last pass; that for one of them belongs to every task."""
LEAST_BYTES, MOST_BYTES = 16, 10_000
"""Limits of ``min_bytes``: below, most phrases repeat; above, the positions of windows do not fit into their bits."""


def remove_repeated_substrings(
    df: dd.DataFrame,
    *,
    min_bytes: int | str = 100,
    keep: Literal["first", "none"] = "first",
    max_documents: int | None = None,
    text: str = "text",
) -> dd.DataFrame:
    """Remove substrings of at least ``min_bytes`` bytes that occur in several places, except for one occurrence.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        A table of Dask. A chain on one of the readers is streamed; any other table is first computed into working files.
    min_bytes : int or str, default 100
        Smallest length of a substring in bytes of UTF-8, from 16 to 10,000.
    keep : {"first", "none"}
        Which occurrence to keep, in input order; ``"none"`` removes all of them.
    max_documents : int, optional
        Largest number of documents (rows) in which a substring may occur. One that occurs in more of them is removed from all of
        them, except for the first occurrence with ``keep="first"``. Default: what occurs twice is removed, also within one
        document.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The table with a deferred step. The writers and `checkpoint` run it; in a cluster of curator_df, so do ``head()``,
        ``len()`` and ``compute()``.
        A row is dropped only when nothing but white space is left of its text.

    Raises
    ------
    ColumnError
        If the text column is missing.
    ParameterError
        If ``keep`` is none of these, ``min_bytes`` is out of its limits, or ``max_documents`` is not an integer of at least 1.
    UnsupportedBackendError
        If the blocks are cuDF blocks.
    PendingError
        From ``head()``, ``len()`` or ``compute()`` on the result outside a cluster of curator_df.

    See Also
    --------
    remove_repeated_parts, drop_near_duplicates

    Notes
    -----
    Rows: subset, order kept. Columns: same; the text is shorter. Backends: pandas. Peak extra memory: 2.5 x block.
    Computes: no; writing reads the input four times more.

    A byte is removed if it lies in a substring of ``min_bytes`` bytes that also begins earlier in the input
    (``keep="none"``: that also begins elsewhere). A substring lies in one text, and begins earlier if it begins in an earlier
    row, or further to the left in the same one. A code point is removed only with all of its bytes. Compared are 128-bit
    hashes (MurmurHash3) of substrings, as for all exact duplicates of the package.

    Temporary files take about 0.6 bytes for each byte of text; 1.1 were measured for source code, and 2.2 where most of the
    text repeats. The receipt counts ``spans_removed``, ``characters_removed`` and ``bytes_removed``.

    References
    ----------
    Lee et al., Deduplicating Training Data Makes Language Models Better, ACL 2022 (ExactSubstr).

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["a common phrase, then a", "a common phrase, then b"]}), npartitions=1)
    >>> remove_repeated_substrings(docs, min_bytes=20).columns.tolist()
    ['text']
    """
    choose(OPERATOR, "keep", keep, Literal["first", "none"])
    window_bytes = read_size("min_bytes", min_bytes)
    if not LEAST_BYTES <= window_bytes <= MOST_BYTES:
        raise ParameterError(
            f"{OPERATOR}: min_bytes={min_bytes!r} must be from {LEAST_BYTES} to {MOST_BYTES:,}. The default is 100"
        )
    if max_documents is not None:
        require_integer(OPERATOR, "max_documents", max_documents)
        if max_documents < 1:
            raise ParameterError(
                f"{OPERATOR}: max_documents={max_documents} must be at least 1. With 1, a substring that occurs in two "
                "documents is removed"
            )
    require_text(df, OPERATOR, text)
    require_host(df._meta, OPERATOR)
    require_addresses(df, OPERATOR)
    kernel = BlockKernel(
        OPERATOR,
        refuse_block,
        {"operator": OPERATOR},
        price=Price(
            PEAK_FACTOR,
            is_measured=True,
            held_by_task={f"substrings of {window_bytes} bytes in {text!r}": READER_BYTES},
        ),
        pending=SubstringDrop(text, window_bytes, keep, max_documents),
        compiled=(*kernel_sets.REPEATED_SUBSTRINGS, *kernel_sets.CONTENT),
    )
    return map_blocks(df, kernel, meta=df._meta.astype({text: text_dtype(df._meta[text].dtype)}))

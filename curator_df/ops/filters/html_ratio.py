# SPDX-License-Identifier: Apache-2.0
"""The share of HTML pages that is text: `add_html_text_ratio`."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import pandas as pd

from curator_df.arguments import require_integer
from curator_df.core.columns import refuse_columns, require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.kernels.metrics.source.html_share import PARSED_FACTOR, html_text_ratios
from curator_df.memory.sizes import read_size
from curator_df.ops.host_only import require_host

PEAK_FACTOR = 0.4
"""A number and its mask of 9 bytes for each row, made twice, of rows of 100 bytes."""


def add_html_text_ratio(
    df: dd.DataFrame,
    *,
    min_chars: int = 100,
    max_page_size: int | str = "400kB",
    into: str = "html_text_ratio",
    text: str = "text",
) -> dd.DataFrame:
    """Add the share of each HTML page that is text; pages with a low share are mostly markup.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    min_chars : int, default 100
        A page with less text than this gets 0.
    max_page_size : int or str, default "400kB"
        Bytes of a page to read; for a longer page the share is that of its beginning. Parsing takes up to 270 times the
        bytes of a page; the plan reserves memory for this.
    into : str, default "html_text_ratio"
        Name of the column; profile rules can refer to it under this name.
    text : str, default "text"
        Column with the pages.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows with a column ``Float64`` from 0 to 1, null where the page is null.

    Raises
    ------
    ParameterError
        If ``min_chars`` is negative, or ``max_page_size`` is not a valid size.
    ColumnError
        If the text column is missing, or ``into`` already exists.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    Notes
    -----
    Rows: same. Columns: plus ``html_text_ratio``. Backends: pandas. Peak extra memory: 0.4 x block, and for a parsed page
    270 x ``max_page_size`` in each task. Computes: no.

    Text is everything between tags, without ``script``, ``style``, ``template``, comments and ruby annotations; white
    space alone between two tags counts as one character. Pages are parsed by Python's ``html.parser``, one after the other
    while holding the GIL: use worker processes rather than threads. The numbers are those of NeMo Curator, which builds
    a tree of the page with Beautiful Soup and the same parser. The receipt counts ``pages_cut`` and
    ``pages_not_parsed``: pages that the parser rejects, or that have thousands of tags without a closing ``>``,
    which would take minutes to parse. These get 0.

    References
    ----------
    .. [1] nemo_curator 0.9.0, filters/code.py, HTMLBoilerplateFilter

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import pandas as pd
    >>> page = "<script>let x = 1;</script><p>To be or not to be</p>"
    >>> docs = dd.from_pandas(pd.DataFrame({"text": [page]}), npartitions=1)
    >>> docs.pipe(add_html_text_ratio, min_chars=5).compute()["html_text_ratio"].round(2).tolist()
    [0.35]
    """
    operator = "add_html_text_ratio"
    require_text(df, operator, text)
    require_host(df._meta, operator)
    refuse_columns(df, operator, into)
    require_integer(operator, "min_chars", min_chars)
    if min_chars < 0:
        raise ParameterError(f"{operator}: min_chars={min_chars} is negative")
    max_page_bytes = read_size("max_page_size", max_page_size)
    kernel = BlockKernel(
        operator,
        add_html_text_ratio_block,
        {"text": text, "min_chars": min_chars, "max_page_bytes": max_page_bytes, "into": into},
        price=Price(PEAK_FACTOR, fixed_bytes=PARSED_FACTOR * max_page_bytes, is_measured=True),
    )
    return map_blocks(df, kernel, meta=df._meta.assign(**{into: pd.Series(dtype="Float64")}))


def add_html_text_ratio_block(block: Any, *, text: str, min_chars: int, max_page_bytes: int, into: str) -> Outcome:
    """Kernel of `add_html_text_ratio`."""
    require_host(block, "add_html_text_ratio")
    ratios, counts = html_text_ratios(block[text], min_chars, max_page_bytes)
    column = pd.arrays.FloatingArray(ratios, block[text].isna().to_numpy(dtype=bool))
    added = block.assign(**{into: pd.Series(column, index=block.index, copy=False)})
    return Outcome(added, counters=dict(counts))

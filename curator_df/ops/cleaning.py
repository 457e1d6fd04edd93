# SPDX-License-Identifier: Apache-2.0
"""Small changes of texts: `normalize_newlines` and `remove_urls`."""

from __future__ import annotations

from typing import Any

from curator_df.core.backend import require_backend
from curator_df.core.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.columns import require_text
from curator_df.kernels.buffers import text_dtype
from curator_df.kernels.clean_texts import What, clean_texts

# Measured (tests/contracts/test_memory.py): 1.00, and on rows of 100 bytes 1.08.
PEAK_FACTOR = 1.2


def normalize_newlines(df: Any, *, text: str = "text") -> Any:
    r"""Make three line ends in a row, or more, two.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    text : str, default "text"
        Column of the text.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null.

    Raises
    ------
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    Notes
    -----
    Rows: same. Peak extra memory: 1.2 x block. Computes: no.

    A line end is ``\n``, and then ``\r\n``. Lines of spaces are lines: they end a run. The receipt counts
    ``rows_changed``.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modifiers/newline_normalizer.py, NewlineNormalizer

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["one\n\n\n\ntwo"]}), npartitions=1)
    >>> docs.pipe(normalize_newlines).compute()["text"][0]
    'one\n\ntwo'
    """
    return _clean(df, "normalize_newlines", text, "line_ends")


def remove_urls(df: Any, *, text: str = "text") -> Any:
    r"""Remove URLs from texts.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    text : str, default "text"
        Column of the text.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null.

    Raises
    ------
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    Notes
    -----
    Rows: same. Peak extra memory: 1.2 x block. Computes: no.

    A URL is ``http://``, ``https://`` or ``www.``, in any case and also inside a word, and everything after it up to white
    space: a full stop that ends the sentence goes too. The receipt counts ``rows_changed``.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modifiers/url_remover.py, UrlRemover

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["Read www.example.org/a, then go on."]}), npartitions=1)
    >>> docs.pipe(remove_urls).compute()["text"][0]
    'Read  then go on.'
    """
    return _clean(df, "remove_urls", text, "urls")


def clean_block(block: Any, *, operator: str, text: str, what: What) -> Outcome:
    """Kernel of both."""
    require_backend(block, operator, "pandas")
    texts, rows_changed = clean_texts(block[text], what)
    kept = block.assign(**{text: texts}) if rows_changed else block
    return Outcome(kept, counters={"rows_changed": rows_changed})


def _clean(df: Any, operator: str, text: str, what: What) -> Any:
    require_text(df, operator, text)
    require_backend(df._meta, operator, "pandas")
    parameters = {"operator": operator, "text": text, "what": what}
    kernel = BlockKernel(operator, clean_block, parameters, PEAK_FACTOR, peak_is_measured=True, compiled=("cleaning",))
    return map_blocks(df, kernel, meta=df._meta.astype({text: text_dtype(df._meta[text].dtype)}))

# SPDX-License-Identifier: Apache-2.0
"""Small changes of texts: `normalize_newlines`, `normalize_whitespace` and `remove_urls`."""

from __future__ import annotations

import dask.dataframe as dd

from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.edits.clean_texts import clean_texts
from curator_df.ops.cleaning.rewriting import rewrite_texts


def normalize_newlines(df: dd.DataFrame, *, text: str = "text") -> dd.DataFrame:
    r"""Replace three or more consecutive newlines with two.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    text : str, default "text"
        The text column.

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
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.2 x block. Computes: no.

    This is done for ``\n`` first, then for ``\r\n``. A line of spaces interrupts a run of newlines. The receipt
    counts ``rows_changed``.

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
    return rewrite_texts(
        df, "normalize_newlines", text, clean_texts, {"what": "line_ends"}, compiled=kernel_sets.CLEANING
    )


def normalize_whitespace(df: dd.DataFrame, *, text: str = "text") -> dd.DataFrame:
    r"""Collapse runs of white space within each line to a single space, and strip both ends of each line.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    text : str, default "text"
        The text column.

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
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.2 x block. Computes: no.

    White space is whatever ``str.isspace`` accepts, including tabs and no-break spaces. Line ends (``str.splitlines``)
    are unchanged; for those see `normalize_newlines`. Indentation is removed, so do not use this on code. The receipt
    counts ``rows_changed``.

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["  one\t two \n\n three"]}), npartitions=1)
    >>> docs.pipe(normalize_whitespace).compute()["text"][0]
    'one two\n\nthree'
    """
    return rewrite_texts(
        df, "normalize_whitespace", text, clean_texts, {"what": "spaces"}, compiled=kernel_sets.CLEANING
    )


def remove_urls(df: dd.DataFrame, *, text: str = "text") -> dd.DataFrame:
    r"""Remove URLs from texts.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    text : str, default "text"
        The text column.

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
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.2 x block. Computes: no.

    A URL starts with ``http://``, ``https://`` or ``www.``, in any case and also inside a word, and extends to the next
    white space: a full stop that ends the sentence is removed too. The receipt counts ``rows_changed``.

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
    return rewrite_texts(df, "remove_urls", text, clean_texts, {"what": "urls"}, compiled=kernel_sets.CLEANING)

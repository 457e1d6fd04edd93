# SPDX-License-Identifier: Apache-2.0
"""Normalize texts: repair Unicode (mojibake, entities, control characters, line ends, normal form), and small changes."""

from __future__ import annotations

from typing import Any, Literal

import dask.dataframe as dd

from curator_df.arguments import choose
from curator_df.core.columns import require_text
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.edits.clean_texts import clean_texts
from curator_df.kernels.edits.mojibake import Form
from curator_df.kernels.edits.unicode_repair import RepairSettings, repair_texts
from curator_df.kernels.text.buffers import text_dtype, with_plain_text
from curator_df.ops.cleaning.rewriting import rewrite_texts
from curator_df.ops.host_only import require_host

# Measured (benchmarks/kernel_memory.py, blocks of 32 MB of text): 0.00 where nothing changes (prose, one-letter words,
# CJK, one huge row), 1.00 where every line does, 1.29 on one line of 28 MB of mojibake:
# ftfy holds about 17 MB while it works on a segment of 1,000,000 characters, whatever the block.
SEGMENT_BYTES = 20_000_000
"""Memory of ftfy for one segment of a million damaged characters, whatever the block (measured 19 MB)."""
PEAK_FACTOR = 1.4


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

    See Also
    --------
    normalize_whitespace, normalize_unicode

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

    See Also
    --------
    normalize_newlines, normalize_unicode

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

    See Also
    --------
    redact_pii, remove_markdown

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


def normalize_unicode(
    df: dd.DataFrame,
    *,
    text: str = "text",
    form: Form | None = "NFC",
    unescape_html: Literal["auto"] | bool = "auto",
    fix_encoding: bool = True,
    fix_line_breaks: bool = True,
) -> dd.DataFrame:
    r"""Repair broken Unicode in a text column with ftfy.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    text : str, default "text"
        The text column.
    form : {"NFC", "NFD", "NFKC", "NFKD"} or None, default "NFC"
        Unicode normalization form; None leaves composition unchanged.
    unescape_html : {"auto", True, False}, default "auto"
        Replace HTML entities such as ``&amp;``; ``"auto"`` stops at the first line of a text that contains a ``<``.
    fix_encoding : bool, default True
        Repair mojibake, such as ``Ã©`` for ``é``.
    fix_line_breaks : bool, default True
        Replace ``\r\n``, ``\r``, U+2028 and U+2029 with ``\n``.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null. Meaningless control characters and terminal escapes are removed. Curly quotes,
        ligatures and full-width characters are kept.

    Raises
    ------
    ParameterError
        If ``form`` or ``unescape_html`` is not one of its choices.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    See Also
    --------
    normalize_whitespace, normalize_newlines

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.4 x block. Computes: no.

    The result equals that of ``ftfy.fix_text`` with these settings, text by text. A compiled scan finds the lines that
    ftfy could change; only those are passed to it. The receipt counts ``rows_changed``.

    References
    ----------
    .. [1] R. Speer, ftfy 6.3, https://ftfy.readthedocs.io

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["cafÃ© &amp; “bar”", None]}), npartitions=1)
    >>> docs.pipe(normalize_unicode).compute()["text"][0]
    'café & “bar”'
    """
    require_text(df, "normalize_unicode", text)
    require_host(df._meta, "normalize_unicode")
    choose("normalize_unicode", "form", form, ("NFC", "NFD", "NFKC", "NFKD", None))
    choose("normalize_unicode", "unescape_html", unescape_html, ("auto", True, False))
    settings = RepairSettings(form, unescape_html, fix_encoding, fix_line_breaks)
    parameters = {"text": text, "settings": settings}
    kernel = BlockKernel(
        "normalize_unicode",
        normalize_unicode_block,
        parameters,
        price=Price(PEAK_FACTOR, fixed_bytes=SEGMENT_BYTES, is_measured=True),
        compiled=kernel_sets.UNICODE,
    )
    meta = df._meta.astype({text: text_dtype(df._meta[text].dtype)})
    return map_blocks(df, kernel, meta=meta)


def normalize_unicode_block(block: Any, *, text: str, settings: RepairSettings) -> Outcome:
    """Kernel of `normalize_unicode`."""
    require_host(block, "normalize_unicode")
    block = with_plain_text(block, text)
    texts, rows_changed = repair_texts(block[text], settings)
    repaired = block.assign(**{text: texts}) if texts is not block[text] else block
    return Outcome(repaired, counters={"rows_changed": rows_changed})

# SPDX-License-Identifier: Apache-2.0
"""Texts without markup: `remove_markdown` and `remove_html`."""

from __future__ import annotations

from typing import Literal

import dask.dataframe as dd

from curator_df.arguments import choose
from curator_df.core.ranges.price import Price
from curator_df.errors import ParameterError
from curator_df.extras import require_package
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.edits.cut_texts import without_markdown
from curator_df.kernels.edits.html_texts import HtmlSettings, text_of_html
from curator_df.memory.sizes import read_size
from curator_df.ops.cleaning.rewriting import SPLICE_FACTOR, rewrite_texts

LinkPart = Literal["text", "url"]
PARSED_FACTOR = 110
"""Bytes of a parsed page as a multiple of the page's: 16 on prose in paragraphs, 103 where it is tags alone (measured)."""
LEAST_PAGE_BYTES = 1_000


def remove_markdown(
    df: dd.DataFrame, *, links: LinkPart = "text", inside_words: bool = False, text: str = "text"
) -> dd.DataFrame:
    r"""Remove the Markdown markup for bold, italic and links.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    links : {"text", "url"}
        What to keep of ``[text](url)``.
    inside_words : bool, default False
        True: pairs of markers count anywhere, so ``snake_case_name`` and ``2 * 3 * 4`` lose theirs. False: a marker
        must begin before a word and end after one.
    text : str, default "text"
        The text column.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null.

    Raises
    ------
    ParameterError
        If ``links`` is not one of its choices.
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.2 x block. Computes: no.

    Markers are pairs of ``**``, ``*`` and ``_`` (and of ``__``) within a line. With ``links="url", inside_words=True``
    the result is NeMo's, whose regular expressions take time at least quadratic in the length of a line; this takes
    linear time. The defaults differ because NeMo removes the underscores of identifiers and the words of links.
    Headings, lists, tables and code are unchanged. The receipt counts ``rows_changed``.

    References
    ----------
    .. [1] nemo_curator 0.9.0, modifiers/markdown_remover.py, MarkdownRemover

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> docs = dd.from_pandas(pd.DataFrame({"text": ["Call **my_func_x**, see [the docs](https://a.b/c)."]}), npartitions=1)
    >>> docs.pipe(remove_markdown).compute()["text"][0]
    'Call my_func_x, see the docs.'
    >>> docs.pipe(remove_markdown, links="url", inside_words=True).compute()["text"][0]
    'Call myfuncx, see https://a.b/c.'
    """
    choose("remove_markdown", "links", links, LinkPart)
    arguments = {"keep_url": links == "url", "inside_words": bool(inside_words)}
    return rewrite_texts(df, "remove_markdown", text, without_markdown, arguments, compiled=kernel_sets.MARKDOWN)


def remove_html(
    df: dd.DataFrame,
    *,
    main_content: bool = True,
    alt_texts: bool = False,
    max_page_size: int | str = "1MB",
    text: str = "text",
) -> dd.DataFrame:
    r"""Extract the text of HTML pages with resiliparse.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The table.
    main_content : bool, default True
        Leave out navigation, headers, footers, sidebars and comments, by simple rules on the elements. False: all
        visible text.
    alt_texts : bool, default False
        Keep the alternative texts of images.
    max_page_size : int or str, default "1MB"
        Bytes of a page to read; the rest of a longer page is ignored, as in crawls that truncate pages. Parsing takes
        up to about 110 times the bytes of a page; the plan reserves memory for this.
    text : str, default "text"
        Column with the pages.

    Returns
    -------
    dask.dataframe.DataFrame
        The same rows; null stays null, and a text without a ``<`` is unchanged. Paragraphs, lists and preformatted text
        keep their line breaks.

    Raises
    ------
    ParameterError
        If ``max_page_size`` is not a valid size, or is less than 1 kB.
    MissingExtraError
        If resiliparse is not installed.
    ColumnError
        If the text column is missing.
    UnsupportedBackendError
        If the blocks are cuDF blocks.

    Notes
    -----
    Rows: same. Columns: same; ``text`` changes. Backends: pandas. Peak extra memory: 1.4 x block, and for a parsed page
    110 x ``max_page_size`` in each task. Computes: no.

    The text is that of resiliparse's ``extract_plain_text``. For a page with more than 500 nested ``div`` elements, all
    text is extracted, because the search for the main content would take minutes. The receipt counts ``rows_changed``,
    ``pages_cut`` and ``pages_without_main_content``.

    References
    ----------
    .. [1] J. Bevendorff et al. 2018, Elastic ChatNoir (resiliparse), https://resiliparse.chatnoir.eu

    Examples
    --------
    >>> import dask.dataframe as dd, pandas as pd
    >>> page = "<nav><a href='/'>Home</a></nav><main><h1>A story</h1><p>It is <b>short</b>.</p></main>"
    >>> docs = dd.from_pandas(pd.DataFrame({"text": [page]}), npartitions=1)
    >>> docs.pipe(remove_html).compute()["text"][0]
    'A story\n\nIt is short.'
    """
    max_page_bytes = read_size("max_page_size", max_page_size)
    if max_page_bytes < LEAST_PAGE_BYTES:
        raise ParameterError(f"remove_html: max_page_size={max_page_size!r} is less than 1 kB, which holds no page")
    require_package("remove_html", "resiliparse", "html")
    return rewrite_texts(
        df,
        "remove_html",
        text,
        text_of_html,
        {"settings": HtmlSettings(bool(main_content), bool(alt_texts), max_page_bytes)},
        price=Price(SPLICE_FACTOR, is_measured=True, fixed_bytes=PARSED_FACTOR * max_page_bytes),
    )

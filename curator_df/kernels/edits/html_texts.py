# SPDX-License-Identifier: Apache-2.0
"""Extract the text of a column of HTML pages with resiliparse (Lexbor's parser), one page after the other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from curator_df.kernels.edits.splices import Splice, splice_texts
from curator_df.kernels.text.buffers import TextSpan

MAX_DIV_DEPTH = 500
"""Depth of nested ``div`` from which on the main content is not extracted: that takes time quadratic in their number
(measured: 8 s for 100 KB of 20,000)."""
_DIV = re.compile(r"<(/?)div\b", re.IGNORECASE)


@dataclass(frozen=True)
class HtmlSettings:
    """Settings for extracting the text of a page."""

    main_content: bool
    """Whether to remove navigation, headers, footers and the like."""
    alt_texts: bool
    """Whether to include the descriptions of images."""
    max_page_bytes: int
    """Maximum number of bytes read from a page."""


def text_of_html(texts: pd.Series, settings: HtmlSettings) -> tuple[pd.Series, Counter[str]]:
    r"""Replace each page with its text; return the column (the same object if nothing changes), and counts.

    The counts are ``rows_changed``, ``pages_cut`` and ``pages_without_main_content``.

    Examples
    --------
    >>> pages = pd.Series(["<p>One &amp; two.<p>Three.", "no page"], dtype="string")
    >>> text_of_html(pages, HtmlSettings(False, False, 1_000_000))[0].tolist()
    ['One & two.\n\nThree.', 'no page']
    """
    counts: Counter[str] = Counter(pages_cut=0, pages_without_main_content=0)
    changed, rows_changed = splice_texts(texts, lambda span: _pages(span, settings, counts))
    counts["rows_changed"] = rows_changed
    return changed, counts


def _pages(span: TextSpan, settings: HtmlSettings, counts: Counter[str]) -> Iterator[Splice]:
    for row in range(len(span)):
        start, stop = int(span.offsets[row]), int(span.offsets[row + 1])
        if not (span.data[start:stop] == ord("<")).any():
            continue
        counts["pages_cut"] += stop - start > settings.max_page_bytes
        # The last character may be split.
        page = span.data[start : min(stop, start + settings.max_page_bytes)].tobytes().decode("utf-8", "ignore")
        yield row, start, stop, _text_of(page, settings, counts).encode("utf-8", "ignore")


def _text_of(page: str, settings: HtmlSettings, counts: Counter[str]) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    main_content = settings.main_content and _div_depth(page) <= MAX_DIV_DEPTH
    counts["pages_without_main_content"] += settings.main_content and not main_content
    return str(extract_plain_text(page, main_content=main_content, alt_texts=settings.alt_texts))


def _div_depth(page: str) -> int:
    """Return the maximum nesting depth of ``div``; a closing tag without an opening one is ignored."""
    depth = deepest = 0
    for tag in _DIV.finditer(page):
        depth = max(depth - 1, 0) if tag[1] else depth + 1
        deepest = max(deepest, depth)
    return deepest

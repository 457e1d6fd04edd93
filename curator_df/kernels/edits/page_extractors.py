# SPDX-License-Identifier: Apache-2.0
"""Text of one HTML page by resiliparse, trafilatura or jusText; runs in a process that can be killed.

This module imports nothing of the package: the process (`curator_df.memory.killable_process`) holds the extractors and
little else. A request is a line of JSON with the fields of `Extraction`, and the page; an answer is the name of the
extractor whose text it is, a line break, and the text.
"""

from __future__ import annotations

import functools
import html
import importlib
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

MAX_DIV_DEPTH = 500
"""Depth of nested ``div`` from which on resiliparse does not extract the main content: that takes time quadratic in their number
(measured: 8 s for 100 KB of 20,000)."""
_DIV = re.compile(r"<(/?)div\b", re.IGNORECASE)
_TEX = re.compile(r"<script\b[^>]*\btype=[\"']?math/tex\b([^>]*)>(.*?)</script\s*>", re.IGNORECASE | re.DOTALL)
"""A formula as MathJax 2 has it: in a script, which extractors leave out."""


@dataclass(frozen=True)
class Extraction:
    """Settings of the extraction of a page."""

    extractors: tuple[str, ...]
    """Extractors in order."""
    min_chars: int
    """Least length of a text that is kept before the next extractor is tried."""
    favor: str | None
    """Favor of trafilatura: ``precision``, ``recall``, or None for a balance of both."""
    markdown: bool
    """Whether the text is Markdown."""
    stop_words: str
    """Name of jusText's list of stop words."""
    main_content: bool
    """Whether resiliparse removes navigation, headers, footers and the like."""
    alt_texts: bool
    """Whether resiliparse includes the descriptions of images."""

    def request(self, page: bytes) -> bytes:
        """Return the request for a page."""
        return json.dumps(asdict(self)).encode() + b"\n" + page


def extract_page(request: bytes) -> bytes:
    r"""Return the answer to a request: the first text that is long enough, else the longest, by the first of those that made it.

    Examples
    --------
    >>> settings = Extraction(("resiliparse",), 0, None, False, "English", True, False)
    >>> extract_page(settings.request(b"<p>One &amp; two."))
    b'resiliparse\nOne & two.'
    """
    settings, page = _read(request)
    name, text = best_text(page.decode("utf-8", "ignore"), settings)
    return name.encode() + b"\n" + text.encode("utf-8", "ignore")


def prepare(request: bytes) -> bytes:
    """Import the extractors of a request, which takes 0.3 CPU seconds, before the time of its page counts."""
    for name in _read(request)[0].extractors:
        _library(name)
    return b""


def _read(request: bytes) -> tuple[Extraction, bytes]:
    head, _, page = request.partition(b"\n")
    fields = json.loads(head)
    return Extraction(**{**fields, "extractors": tuple(fields["extractors"])}), page


def best_text(page: str, settings: Extraction) -> tuple[str, str]:
    """Return the extractor whose text is kept, and the text."""
    best_name, best, most = settings.extractors[0], "", -1
    for name in settings.extractors:
        text = EXTRACTORS[name](page, settings)
        length = len(text.strip())
        if length > most:
            best_name, best, most = name, text, length
        if length >= settings.min_chars:
            break
    return best_name, best


def resiliparse_text(page: str, settings: Extraction) -> str:
    """Return the text by resiliparse; for deeply nested pages that of all elements (see `MAX_DIV_DEPTH`)."""
    from resiliparse.extract.html2text import extract_plain_text

    main_content = settings.main_content and div_depth(page) <= MAX_DIV_DEPTH
    return str(extract_plain_text(page, main_content=main_content, alt_texts=settings.alt_texts))


def div_depth(page: str) -> int:
    """Return the maximum nesting depth of ``div``; a closing tag without an opening one is ignored."""
    depth = deepest = 0
    for tag in _DIV.finditer(page):
        depth = max(depth - 1, 0) if tag[1] else depth + 1
        deepest = max(deepest, depth)
    return deepest


def trafilatura_text(page: str, settings: Extraction) -> str:
    """Return the text by trafilatura, without comments; its own removal of duplicates depends on earlier pages, and is off."""
    text = _library("trafilatura").extract(
        _with_formulas(page) if settings.markdown else page,
        output_format="markdown" if settings.markdown else "txt",
        favor_precision=settings.favor == "precision",
        favor_recall=settings.favor == "recall",
        include_comments=False,
        deduplicate=False,
    )
    return text or ""


def justext_text(page: str, settings: Extraction) -> str:
    """Return the paragraphs that jusText does not take for boilerplate, with an empty line between them."""
    library, etree = _library("justext"), importlib.import_module("lxml.etree")
    try:
        paragraphs = library.justext(page, _stop_words(settings.stop_words))
    except etree.ParserError:  # a page without an element
        return ""
    return "\n\n".join(paragraph.text for paragraph in paragraphs if not paragraph.is_boilerplate)


EXTRACTORS = {"resiliparse": resiliparse_text, "trafilatura": trafilatura_text, "justext": justext_text}
"""Function for each extractor."""


def _with_formulas(page: str) -> str:
    r"""Return a page whose formulas for MathJax 2 are in the text, as ``\(...\)`` or ``\[...\]``."""

    def formula(found: re.Match[str]) -> str:
        left, right = (r"\[", r"\]") if "mode=display" in found[1].replace(" ", "") else (r"\(", r"\)")
        return left + html.escape(found[2].strip(), quote=False) + right

    return _TEX.sub(formula, page)


@functools.cache
def _library(name: str) -> Any:
    logging.disable(logging.CRITICAL)  # the extractors report each odd page
    return importlib.import_module(name)


@functools.cache
def _stop_words(name: str) -> Sequence[str]:
    return _library("justext").get_stoplist(name)  # type: ignore[no-any-return]

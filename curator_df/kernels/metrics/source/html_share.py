# SPDX-License-Identifier: Apache-2.0
"""Fraction of HTML pages that is text, in one pass over each page, without building a tree.

Text is what Beautiful Soup's ``get_text`` returns with Python's ``html.parser`` after ``script`` and ``style`` are removed,
so that the numbers are those of NeMo Curator. White space alone between two tags counts as one character.
"""

from __future__ import annotations

import re
from collections import Counter
from html.entities import html5
from html.parser import HTMLParser

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.kernels.text.buffers import text_spans

PAGE_FACTOR = 270
"""Memory for reading a page, as a multiple of its bytes: 25 on unclosed tags, 265 on a tag of only attributes (measured)."""
MOST_UNCLOSED = 5_000
"""Maximum excess of ``<`` over ``>``: beyond it ``html.parser`` would search for their ends again and again, minutes for a
page."""
_SPACES = " \n\t\f\r"
_DECIMAL, _HEXADECIMAL = re.compile(r"([0-9]+)(.*)"), re.compile(r"([0-9a-fA-F]+)(.*)")
_TAKEN_OUT = ("script", "style")
_NO_MAIN_TEXT = ("template", "rt", "rp")
"""Elements whose text is not that of the page, except CDATA in them."""
_KEEPS_SPACES = ("pre", "textarea")
_VOID = frozenset(
    [
        "area",
        "base",
        "basefont",
        "bgsound",
        "br",
        "col",
        "command",
        "embed",
        "frame",
        "hr",
        "image",
        "img",
        "input",
        "isindex",
        "keygen",
        "link",
        "menuitem",
        "meta",
        "nextid",
        "param",
        "source",
        "spacer",
        "track",
        "wbr",
    ]
)
"""Elements without an end tag, including obsolete ones."""


def html_text_ratios(
    texts: pd.Series, min_chars: int, max_page_bytes: int
) -> tuple[npt.NDArray[np.float64], Counter[str]]:
    """Return the fraction of each page that is text, shape (rows,), and counts: ``pages_cut`` and ``pages_not_parsed``.

    A page with less text than ``min_chars``, or one that ``html.parser`` refuses, has 0; so has a null.

    Examples
    --------
    >>> pages = pd.Series(["<p>four</p>", "<script>x = 1</script>", "text"], dtype="string")
    >>> html_text_ratios(pages, 0, 1_000_000)[0].round(2).tolist()
    [0.36, 0.0, 1.0]
    """
    ratios = np.zeros(len(texts), dtype=np.float64)
    counts: Counter[str] = Counter(pages_cut=0, pages_not_parsed=0)
    for span in text_spans(texts):
        for row in range(len(span)):
            start, stop = int(span.offsets[row]), int(span.offsets[row + 1])
            if start == stop:
                continue
            counts["pages_cut"] += stop - start > max_page_bytes
            # The last character may be split.
            page = span.data[start : min(stop, start + max_page_bytes)].tobytes().decode("utf-8", "ignore")
            characters = text_characters(page)
            counts["pages_not_parsed"] += characters is None
            if characters is not None and characters >= min_chars:
                ratios[span.first_row + row] = characters / len(page)
    return ratios, counts


def text_characters(page: str) -> int | None:
    """Return the number of characters of a page that are text; None if it cannot be parsed."""
    if page.count("<") - page.count(">") > MOST_UNCLOSED:
        return None
    reader = _TextCounter()
    try:
        reader.feed(page)
        reader.close()
    except AssertionError:  # html.parser raises it for some marked sections
        return None
    reader.end_text()
    return reader.characters


class _TextCounter(HTMLParser):
    """Counter of the characters of text in the elements of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.characters = 0
        self._text: list[str] = []
        self._open: list[str] = []
        self._open_by_name: Counter[str] = Counter()
        self._closed_void: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs) if tag in _VOID else self._begin(tag)
        self._closed_void[tag] += tag in _VOID

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._begin(tag)
        self._end(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._closed_void[tag]:
            self._closed_void[tag] -= 1
        else:
            self._end(tag)

    def handle_data(self, data: str) -> None:
        self._text.append(data)

    def handle_charref(self, name: str) -> None:
        # The value of the character matters only if it is white space. Characters after the digits are text.
        is_hexadecimal = name[:1] in ("x", "X")
        found = (_HEXADECIMAL if is_hexadecimal else _DECIMAL).match(name[is_hexadecimal:])
        if found is None:
            self._text.append(name[is_hexadecimal:])
            return
        number = int(found[1], 16 if is_hexadecimal else 10)
        self._text += [chr(number) if number in map(ord, _SPACES) else "?", found[2]]

    def handle_entityref(self, name: str) -> None:
        self._text.append(html5.get(f"{name};") or html5.get(name) or f"&{name}")

    def handle_comment(self, data: str) -> None:  # noqa: ARG002
        self.end_text()

    def handle_decl(self, decl: str) -> None:  # noqa: ARG002
        self.end_text()

    def handle_pi(self, data: str) -> None:  # noqa: ARG002
        self.end_text()

    def unknown_decl(self, data: str) -> None:
        self.end_text()
        if data.upper().startswith("CDATA["):
            self._text.append(data[len("CDATA[") :])
            self.end_text(_TAKEN_OUT)

    def end_text(self, hidden: tuple[str, ...] = _TAKEN_OUT + _NO_MAIN_TEXT) -> None:
        """Count the text since the last tag, unless it is in one of these elements."""
        text = "".join(self._text)
        self._text.clear()
        if not text or any(self._open_by_name[name] for name in hidden):
            return
        is_space = not text.strip(_SPACES) and not any(self._open_by_name[name] for name in _KEEPS_SPACES)
        self.characters += 1 if is_space else len(text)

    def _begin(self, tag: str) -> None:
        self.end_text()
        self._open.append(tag)
        self._open_by_name[tag] += 1

    def _end(self, tag: str) -> None:
        self.end_text()
        while self._open_by_name[tag]:
            name = self._open.pop()
            self._open_by_name[name] -= 1
            if name == tag:
                return

# SPDX-License-Identifier: Apache-2.0
"""The text of a page's bytes: which encoding it is in, by the rules of HTML, and its bytes as UTF-8.

The encoding is that of a byte order mark, else the one that the HTTP header names, else the one that the page names in its
first 1,024 bytes, else UTF-8 if the page is UTF-8, else windows-1252. Nothing is guessed from letters.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

LOOKED_AT_BYTES = 1024
PIECE_BYTES = 1 << 20
"""Bytes that are decoded at a time."""
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_PARAMETER = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';,]+)", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,500}?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_XML = re.compile(rb"^\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE)
_SAME = (
    "utf-8 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 cp866 cp874 cp932 cp949 iso8859-2 iso8859-3 iso8859-4 "
    "iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-10 iso8859-13 iso8859-14 iso8859-15 iso8859-16 koi8-r koi8-u mac-roman "
    "mac-cyrillic gb18030 big5hkscs euc_jp iso2022_jp utf-16-le utf-16-be"
)
ENCODINGS = {name: name for name in _SAME.split()} | {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "utf-16": "utf-16-le",
}
"""Python's name of what a label means -> the encoding that HTML takes for it. Others are no encodings of pages."""
_LABELS = {"windows-874": "cp874", "dos-874": "cp874", "unicode-1-1-utf-8": "utf-8", "iso-8859-8-i": "iso8859-8"}
"""Labels of HTML that Python does not know."""


def encoding_of(label: str) -> str | None:
    """Return the encoding that a label means in HTML, by Python's name; None if it means none.

    Examples
    --------
    >>> [encoding_of(label) for label in ("UTF8", "latin1", "x-sjis", "GB2312", "klingon", "utf-7", "unicode_escape")]
    ['utf-8', 'cp1252', 'cp932', 'gb18030', None, None, None]
    """
    label = label.strip().lower()
    if label in _LABELS:
        return _LABELS[label]
    for name in (label, label.removeprefix("x-")):
        try:
            return ENCODINGS.get(codecs.lookup(name).name)
        except (LookupError, ValueError):
            continue
    return None


def charset_of(content_type: str) -> str | None:
    """Return the charset that a ``Content-Type`` names, as it is written.

    Examples
    --------
    >>> charset_of('text/html; Charset="UTF-8"')
    'UTF-8'
    """
    found = _PARAMETER.search(content_type)
    return found.group(1) if found else None


def page_encoding(body: bytes, charset: str | None) -> str:
    """Return the encoding of a page.

    Parameters
    ----------
    body : bytes
        The page.
    charset : str, optional
        What its HTTP header names.

    Returns
    -------
    str
        Python's name.
    """
    for mark, name in _MARKS:
        if body.startswith(mark):
            return name
    named = encoding_of(charset) if charset else None
    if named is not None:
        return named
    beginning = body[:LOOKED_AT_BYTES]
    for pattern in (_META, _XML):
        found = pattern.search(beginning)
        named = encoding_of(found.group(1).decode("ascii", "replace")) if found else None
        if named is not None:
            # What could be read as ASCII is not UTF-16, whatever it says.
            return "utf-8" if named.startswith("utf-16") else named
    return "utf-8" if _is_utf8(body) else "cp1252"


def utf8_pieces(body: bytes, encoding: str) -> Iterator[bytes]:
    """Yield a text as UTF-8 without its mark; what the encoding does not have becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    view = memoryview(body)
    skipped = next((len(mark) for mark, _ in _MARKS if body.startswith(mark)), 0)
    for start in range(skipped, len(body), PIECE_BYTES):
        piece = view[start : start + PIECE_BYTES]
        yield decoder.decode(piece, final=start + PIECE_BYTES >= len(body)).encode()


def _is_utf8(body: bytes) -> bool:
    """Tell whether bytes are UTF-8; a page that was cut may end in the middle of a character."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(body)
    try:
        for start in range(0, len(body), PIECE_BYTES):
            decoder.decode(view[start : start + PIECE_BYTES])
    except UnicodeDecodeError:
        return False
    return True

# SPDX-License-Identifier: Apache-2.0
"""Encoding of a page by the rules of the HTML and Encoding Standards, and its bytes as UTF-8.

The encoding is that of a byte order mark, else the one in the HTTP header, else the one that the page declares, else
UTF-8 if the page is valid UTF-8, else windows-1252. Nothing is guessed from letters. Labels and codecs are those of the
package `webencodings`.

A page declares its encoding in the first ``meta`` element with a known one, at any position: a browser decodes the page
again when it finds one late. Comments, scripts and other raw text hold no elements. Without such an element, the standard's
prescan of the first 1,024 bytes and the XML declaration count.
"""

from __future__ import annotations

import codecs
import functools
import html
import re
from collections.abc import Callable, Iterator
from typing import Any

PRESCAN_BYTES = 1024
"""Number of bytes that the standard's prescan reads."""
PIECE_BYTES = 1 << 20
"""Number of bytes decoded at once."""
NEAR_BYTES = 4096
"""Number of bytes after the first ``meta`` that are searched for ``charset`` before the whole page is."""
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
_XML_UTF_16 = ((b"<\0?\0x\0", "utf-16le"), (b"\0<\0?\0x", "utf-16be"))
_DECLARED = {"utf-16le": "utf-8", "utf-16be": "utf-8", "x-user-defined": "windows-1252"}
"""Replacements for encodings that cannot be declared in ASCII bytes."""
_CODECS = {"gbk": "gb18030"}
"""Encodings whose decoder is that of another one, by the Encoding Standard."""
_PARAMETER = re.compile(r"(?:^|[;,\s])charset\s*=\s*[\"']?\s*([^\s\"';,]+)", re.IGNORECASE)
_META = re.compile(rb"<[mM][eE][tT][aA][\t\n\f\r /]")
_TAG_NAME = re.compile(rb"[A-Za-z][^\t\n\f\r />]*")
_PRESCAN_NAME = re.compile(rb"[A-Za-z][^\t\n\f\r >]*")
_NAME = rb"[^\t\n\f\r />][^\t\n\f\r />=]*+"
_VALUE = (
    rb"[\t\n\f\r ]*+=[\t\n\f\r ]*+"
    rb"(?:\"([^\"]*+)(?:\"|\Z)|'([^']*+)(?:'|\Z)|(?=>)|([^\t\n\f\r >\"'][^\t\n\f\r >]*+))"
)
_ATTRIBUTE = re.compile(rb"[\t\n\f\r /]*+(?:>|(%b)(?:%b)?+)" % (_NAME, _VALUE))
_ATTRIBUTES = re.compile(rb"(?:[\t\n\f\r /]*+%b(?:%b)?+)*+[\t\n\f\r /]*+>" % (_NAME, _VALUE))
"""Pattern of all attributes of a tag, to its end."""
_COMMENT_END = re.compile(rb"--!?>")
_CONTENT = re.compile(r"charset[\t\n\f\r ]*=[\t\n\f\r ]*(.*)", re.IGNORECASE | re.DOTALL)
_CONTENT_VALUE = re.compile(r"\"([^\"]*)\"|'([^']*)'|([^\"'\t\n\f\r ;][^\t\n\f\r ;]*)")
_XML = re.compile(rb"<\?xml[^>]*?encoding[\0- ]*=[\0- ]*(?:\"([^\">]*)\"|'([^'>]*)')[^>]*>")
RAW_TEXT = {
    name: re.compile(b"</" + b"".join(b"[%c%c]" % (byte, byte - 32) for byte in name) + rb"[\t\n\f\r />]")
    for name in (b"script", b"style", b"title", b"textarea", b"xmp", b"iframe", b"noembed", b"noframes")
}
"""Elements that contain only text, with the pattern of their end."""


@functools.lru_cache(maxsize=1024)
def encoding_of(label: str) -> str | None:
    """Return the name of the encoding for a label in HTML; None if the label is unknown.

    Examples
    --------
    >>> [encoding_of(label) for label in ("UTF8", "latin1", "iso88592", "gb2312", "windows-949", "klingon", "utf-7")]
    ['utf-8', 'windows-1252', 'iso-8859-2', 'gbk', 'euc-kr', None, None]
    """
    import webencodings

    try:
        found = webencodings.lookup(label)
    except UnicodeError:  # a lone surrogate, which no label has
        return None
    return None if found is None else str(found.name)


@functools.lru_cache(maxsize=1024)
def charset_of(content_type: str) -> str | None:
    """Return the charset in a ``Content-Type``, unchanged.

    Examples
    --------
    >>> charset_of('text/html; Charset="UTF-8"'), charset_of("text/html; xcharset=utf-8")
    ('UTF-8', None)
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
        Label in its HTTP header.

    Returns
    -------
    str
        Name of the encoding in the Encoding Standard.
    """
    for mark, name in _MARKS:
        if body.startswith(mark):
            return name
    named = encoding_of(charset) if charset else None
    if named is None:
        named = declared_encoding(body)
    if named is None:
        named = "utf-8" if _is_utf8(body) else "windows-1252"
    return named


def declared_encoding(body: bytes) -> str | None:
    """Return the encoding that a page declares; None if it declares no known one."""
    for beginning, name in _XML_UTF_16:
        if body.startswith(beginning):
            return name
    first = _META.search(body)
    named = None
    if first is not None:
        at = first.start()
        if b"charset" in body[at : at + NEAR_BYTES].lower() or b"charset" in body[at:].lower():
            named = _from_elements(body, at) or _from_prescan(body[:PRESCAN_BYTES])
    return named or _from_xml(body[:PRESCAN_BYTES])


def utf8_pieces(body: bytes, encoding: str) -> Iterator[bytes]:
    """Yield a text as UTF-8 without its byte order mark; bytes that are invalid in the encoding become U+FFFD."""
    import webencodings

    name = encoding_of(encoding) or encoding
    skipped = next((len(mark) for mark, _ in _MARKS if body.startswith(mark)), 0)
    if name == "replacement":  # in encodings that browsers refuse, a page is one U+FFFD
        if body:
            yield "\ufffd".encode()
        return
    if name == "utf-8" and not skipped and len(body) <= PIECE_BYTES and _is_utf8(body, final=True):
        yield body
        return
    decoder: Any = webencodings.lookup(_CODECS.get(name, name)).codec_info.incrementaldecoder("replace")
    view = memoryview(body)
    for start in range(skipped, len(body), PIECE_BYTES):
        piece = view[start : start + PIECE_BYTES]
        yield decoder.decode(piece, final=start + PIECE_BYTES >= len(body)).encode()


def _from_elements(body: bytes, first: int) -> str | None:
    """Return the encoding of the first ``meta`` element that has one, as a parser finds it in the whole page."""
    found, upcoming = None, first
    at = body.find(b"<")
    while found is None and at >= 0:
        if at > upcoming:
            later = _META.search(body, at)
            if later is None:
                break
            upcoming = later.start()
        following = body[at + 1 : at + 2]
        name = _TAG_NAME.match(body, at + 1)
        if name is not None:
            element = name.group().lower()
            if element == b"meta":
                found, at = _read_meta(body, name.end(), _of_element)
            else:
                at = _after_text(body, _after_tag(body, name.end()), element)
        elif following == b"/" and (name := _TAG_NAME.match(body, at + 2)) is not None:
            at = _after_tag(body, name.end())
        elif body.startswith(b"<!--", at):
            at = _after_comment(body, at)
        elif following in (b"!", b"?", b"/"):
            at = body.find(b">", at + 1)
        else:
            at += 1
        at = body.find(b"<", at) if at >= 0 else -1
    return found


def _after_text(body: bytes, at: int, element: bytes) -> int:
    """Return the position at which markup continues after a start tag that ends at a byte; -1 if it does not."""
    if at < 0 or element == b"plaintext":
        return -1
    if element not in RAW_TEXT:
        return at
    end = RAW_TEXT[element].search(body, at)
    return -1 if end is None else end.start()


def _after_comment(body: bytes, at: int) -> int:
    for short in (b"<!-->", b"<!--->"):
        if body.startswith(short, at):
            return at + len(short)
    end = _COMMENT_END.search(body, at + 4)
    return -1 if end is None else end.end()


def _from_prescan(beginning: bytes) -> str | None:
    """Prescan a byte stream to determine its encoding, by the HTML Standard, which ignores scripts.

    References
    ----------
    .. [1] https://html.spec.whatwg.org/multipage/parsing.html#prescan-a-byte-stream-to-determine-its-encoding
    """
    found = None
    at = beginning.find(b"<")
    while found is None and at >= 0:
        is_end_tag = beginning[at + 1 : at + 2] == b"/"
        if beginning.startswith(b"<!--", at):
            end = beginning.find(b"-->", at + 2)
            at = -1 if end < 0 else end + 3
        elif _META.match(beginning, at):
            found, at = _read_meta(beginning, at + 5, _of_prescan)
        elif name := _PRESCAN_NAME.match(beginning, at + 1 + is_end_tag):
            at = _after_tag(beginning, name.end())
        elif beginning[at + 1 : at + 2] in (b"!", b"/", b"?"):
            at = beginning.find(b">", at)
        else:
            at += 1
        at = beginning.find(b"<", at) if at >= 0 else -1
    return found


def _from_xml(beginning: bytes) -> str | None:
    """Return an XML encoding, by the HTML Standard."""
    found = _XML.match(beginning)
    return None if found is None else _declared((found.group(1) or found.group(2) or b"").decode("latin-1"))


def _declared(label: str) -> str | None:
    name = encoding_of(label)
    return None if name is None else _DECLARED.get(name, name)


def _after_tag(data: bytes, at: int) -> int:
    """Return the byte after a tag whose name ends at a byte; -1 if it does not end."""
    found = _ATTRIBUTES.match(data, at)
    return -1 if found is None else found.end()


def _read_meta(data: bytes, at: int, encoding: Callable[[dict[bytes, str]], str | None]) -> tuple[str | None, int]:
    """Return the encoding in the attributes of a tag, and the byte after the tag: -1 if it does not end."""
    attributes: dict[bytes, str] = {}
    while True:
        found = _ATTRIBUTE.match(data, at)
        if found is None:
            return None, -1
        at = found.end()
        if found.group(1) is None:
            return encoding(attributes), at
        value = found.group(2) or found.group(3) or found.group(4) or b""
        attributes.setdefault(found.group(1).lower(), value.decode("latin-1"))


def _of_element(attributes: dict[bytes, str]) -> str | None:
    """Return the encoding of a ``meta`` element of a parsed page."""
    attributes = {name: html.unescape(value) for name, value in attributes.items()}
    named = _declared(attributes.get(b"charset", ""))
    if named is None and attributes.get(b"http-equiv", "").lower() == "content-type":
        named = _of_content(attributes.get(b"content", ""))
    return named


def _of_prescan(attributes: dict[bytes, str]) -> str | None:
    """Return the encoding of a ``meta`` element found by the prescan; its attributes count in their order."""
    named, needs_pragma = None, False
    for name, value in attributes.items():
        if name == b"charset":
            named, needs_pragma = _declared(value), False
        elif name == b"content" and named is None and (of_content := _of_content(value)) is not None:
            named, needs_pragma = of_content, True
    return None if needs_pragma and attributes.get(b"http-equiv", "").lower() != "content-type" else named


def _of_content(content: str) -> str | None:
    """Extract a character encoding from a ``content`` attribute, by the HTML Standard."""
    found = _CONTENT.search(content)
    value = _CONTENT_VALUE.match(found.group(1)) if found else None
    return None if value is None else _declared(value.group(1) or value.group(2) or value.group(3) or "")


def _is_utf8(body: bytes, *, final: bool = False) -> bool:
    """Return whether bytes are UTF-8; unless they are final, they may end within a character, like a truncated page."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(body)
    try:
        if len(body) <= PIECE_BYTES:
            codecs.utf_8_decode(view, "strict", final)  # without the copy that the decoder makes
            return True
        for start in range(0, len(body), PIECE_BYTES):
            decoder.decode(view[start : start + PIECE_BYTES], final and start + PIECE_BYTES >= len(body))
    except UnicodeDecodeError:
        return False
    return True

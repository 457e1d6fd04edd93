# SPDX-License-Identifier: Apache-2.0
"""Convert a WARC record to a row; its text is the body in UTF-8, with any HTML tags, after its encoding was found."""

from __future__ import annotations

import codecs
import functools
import html
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from curator_df.io.warc.http_messages import TRUNCATED, BodyError, LongPage, read_body, read_message
from curator_df.io.warc.records import SHOWN_BYTES, BadRecord, Head, WarcRecords

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


BODIES = ("response", "resource", "conversion")
"""Types of records that hold a page."""
HTTP_TYPES = ("application/http",)
"""Content types of an HTTP response; a response to a DNS query has another one."""
HTTP_HEADER_BYTES = 1 << 16
"""Number of bytes of a record too large to be held that are searched for an HTTP header."""
_BRACKETED = re.compile(r"^<(.*)>$")
"""Pattern of an address in angle brackets, as in the grammar of WARC 1.0 and in files of wget."""
NO_BODY = "empty"
"""Reason why a response without any bytes is not a page."""


@dataclass
class Page:
    """Row of a record: the values of its columns."""

    url: str | None
    date: str | None
    status: int | None
    content_type: str | None
    language: str | None
    skipped: str | None
    """Reason why it is not a page; None for a page."""
    noted: str | None
    """Note on a page that is counted: see `http_messages`; None if there is none."""
    pieces: list[bytes]
    """Text of a page, as pieces of UTF-8."""

    @property
    def text_bytes(self) -> int:
        """Bytes of the text."""
        return sum(map(len, self.pieces))


def has_no_page(head: Head) -> str | None:
    """Return the type of a record that never holds a page; None for one that may."""
    kind = head.fields.get("warc-type", "").lower() or "unknown"
    return None if kind in BODIES else kind


def page_of_head(head: Head, skipped: str | None) -> Page:
    """Return the values in the header of a record."""
    url = head.fields.get("warc-target-uri")
    return Page(
        url=_BRACKETED.sub(r"\1", url) if url else None,
        date=head.fields.get("warc-date"),
        status=None,
        content_type=_mime_type(head.fields.get("content-type")),
        language=head.fields.get("warc-identified-content-language"),
        skipped=skipped,
        noted=TRUNCATED if _is_partial(head) else None,
        pieces=[],
    )


def other_type(head: Head, records: WarcRecords, content_types: Collection[str] | None) -> Page | None:
    """Return the row of a record too large to be held whose first bytes have an unrequested type; None otherwise."""
    page = page_of_head(head, "content_type")
    kind = head.fields["warc-type"].lower()
    if kind == "response":
        if not _is_wanted(page.content_type, HTTP_TYPES):
            return page
        beginning = records.peek(head, head.header_bytes + HTTP_HEADER_BYTES)
        try:
            message = read_message(beginning, head.header_bytes)
        except BodyError:  # `page_of` reports it, or the record is too long
            return None
        page.content_type = _mime_type(message.fields.get("content-type")) or _identified(head)
    return None if kind == "conversion" or _is_wanted(page.content_type, content_types) else page


def page_of(head: Head, records: WarcRecords, content_types: Collection[str] | None, most_bytes: int | None) -> Page:
    """Return the row of the next record, which may hold a page.

    Parameters
    ----------
    head : Head
        Header of the record.
    records : WarcRecords
        Reader of the records, which moves on to the next one.
    content_types : collection of str, optional
        Types of pages; a record of another type is skipped. None accepts all.
    most_bytes : int, optional
        Maximum bytes of a text.

    Raises
    ------
    BadRecord
        If the record is incomplete, has no HTTP header, or its body is not in the encoding of the header.
    LongPage
        If the text is longer than ``most_bytes``.
    """
    page = page_of_head(head, None)
    kind = head.fields["warc-type"].lower()
    is_http = kind == "response"
    wanted = HTTP_TYPES if is_http else content_types if kind == "resource" else None
    if not _is_wanted(page.content_type, wanted):
        page.skipped = "content_type"
        records.skip(head)
    elif is_http and not head.content_bytes:
        page.content_type, page.skipped = None, NO_BODY
        records.skip(head)
    elif is_http:
        _read_http(page, head, records.take(head), content_types, most_bytes)
    else:
        charset = "utf-8" if kind == "conversion" else charset_of(head.fields.get("content-type", ""))
        _fill(page, [records.take(head)[head.header_bytes :]], charset, most_bytes)
    return page


def _read_http(
    page: Page, head: Head, record: bytes, content_types: Collection[str] | None, most_bytes: int | None
) -> None:
    try:
        message = read_message(record, head.header_bytes)
        named = message.fields.get("content-type", "")
        page.status = message.status
        page.content_type = _mime_type(named) or _identified(head)
        page.language = message.fields.get("content-language") or page.language
        if not _is_wanted(page.content_type, content_types):
            page.skipped = "content_type"
            return
        body = read_body(message, record, most_bytes)
    except BodyError as exc:
        raise BadRecord(head.offset, str(exc), record[:SHOWN_BYTES]) from exc
    page.noted = page.noted or body.note
    del record
    _fill(page, body.pieces, charset_of(named), most_bytes)


def _fill(page: Page, bodies: list[Any], charset: str | None, most_bytes: int | None) -> None:
    """Decode a body; the list is emptied."""
    body = b"".join(bodies)
    bodies.clear()
    held_bytes = 0
    for piece in utf8_pieces(body, page_encoding(body, charset)):
        page.pieces.append(piece)
        held_bytes += len(piece)
        if most_bytes is not None and held_bytes > most_bytes:
            raise LongPage(held_bytes)


def _is_partial(head: Head) -> bool:
    """Return whether the crawler marked a record as incomplete."""
    return bool(head.fields.get("warc-truncated")) or "warc-segment-number" in head.fields


def _identified(head: Head) -> str | None:
    return _mime_type(head.fields.get("warc-identified-payload-type"))


def _is_wanted(content_type: str | None, content_types: Collection[str] | None) -> bool:
    return content_type is None or content_types is None or content_type in content_types


@functools.lru_cache(maxsize=1024)
def _mime_type(content_type: str | None) -> str | None:
    """Return a content type without its parameters, in lower case; the first of several.

    Examples
    --------
    >>> _mime_type("Text/HTML; charset=utf-8"), _mime_type('"text/html", text/plain')
    ('text/html', 'text/html')
    """
    return (content_type or "").partition(";")[0].partition(",")[0].strip(" \t\"'").lower() or None

# SPDX-License-Identifier: Apache-2.0
"""What a WARC record says and holds: the columns of a row, and the text of a page. HTTP is read by FastWARC."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from curator_df.io.charsets import PIECE_BYTES, charset_of, page_encoding, utf8_pieces
from curator_df.io.warc_records import SHOWN_BYTES, BadRecord, Head, WarcRecords

BODIES = ("response", "resource", "conversion")
"""Types of records that hold a page."""
HTTP_TYPES = ("application/http",)
"""Content types of a response that is HTTP; one to a question of DNS is not."""
HTTP_HEADER_BYTES = 1 << 16
_HEADER_END = re.compile(rb"\r?\n\r?\n")
_HTTP_TYPE = re.compile(rb"\ncontent-type:([^\r\n]*)", re.IGNORECASE)


class LongPage(Exception):  # noqa: N818 - never seen by users
    """A text has more bytes than may be held."""

    def __init__(self, text_bytes: int) -> None:
        super().__init__(text_bytes)
        self.text_bytes = text_bytes


@dataclass
class Page:
    """A row: the values of its columns."""

    url: str | None
    date: str | None
    status: int | None
    content_type: str | None
    language: str | None
    skipped: str | None
    """Why it is not a page; None for a page."""
    pieces: list[bytes]
    """The text of a page, as pieces of UTF-8."""

    @property
    def text_bytes(self) -> int:
        """Bytes of the text."""
        return sum(map(len, self.pieces))


def has_no_page(head: Head) -> str | None:
    """Return the type of a record that never holds a page; None for one that may."""
    kind = head.fields.get("warc-type", "").lower() or "unknown"
    return None if kind in BODIES else kind


def page_of_head(head: Head, skipped: str | None) -> Page:
    """Return what the header of a record says."""
    url = head.fields.get("warc-target-uri")
    return Page(
        url=url.strip("<>") if url else None,
        date=head.fields.get("warc-date"),
        status=None,
        content_type=_mime_type(head.fields.get("content-type")),
        language=head.fields.get("warc-identified-content-language"),
        skipped=skipped,
        pieces=[],
    )


def other_type(head: Head, records: WarcRecords, content_types: Collection[str] | None) -> Page | None:
    """Return the row of a record, too large to be held, whose first bytes name a type that is not wanted; None if not."""
    page = page_of_head(head, "content_type")
    kind = head.fields["warc-type"].lower()
    if kind == "response":
        message = records.peek(head, HTTP_HEADER_BYTES)[head.header_bytes :]
        named = _HTTP_TYPE.search(_HEADER_END.split(message, 1)[0])
        page.content_type = _mime_type(named.group(1).decode("latin-1") if named else None) or _identified(head)
    return None if kind == "conversion" or _is_wanted(page.content_type, content_types) else page


def page_of(head: Head, records: WarcRecords, content_types: Collection[str] | None, most_bytes: int | None) -> Page:
    """Return the row of the record that comes next, which may hold a page.

    Parameters
    ----------
    head : Head
        Its header.
    records : WarcRecords
        They go on to the record after it.
    content_types : collection of str, optional
        Types of pages; a record of another type is skipped. None takes all.
    most_bytes : int, optional
        Most bytes of a text.

    Raises
    ------
    BadRecord
        The record is not whole, has no HTTP header, or its body is not in the encoding that this names.
    LongPage
        The text is longer than ``most_bytes``.
    """
    page = page_of_head(head, None)
    kind = head.fields["warc-type"].lower()
    is_http = kind == "response"
    wanted = HTTP_TYPES if is_http else content_types if kind == "resource" else None
    if not _is_wanted(page.content_type, wanted):
        page.skipped = "content_type"
        records.skip(head)
    elif is_http:
        page.content_type = None
        if head.content_bytes:
            _read_http(page, head, records.take(head), content_types, most_bytes)
        else:
            records.skip(head)
    else:
        charset = "utf-8" if kind == "conversion" else charset_of(head.fields.get("content-type", ""))
        _fill(page, [records.take(head)[head.header_bytes :]], charset, most_bytes)
    return page


def _read_http(
    page: Page, head: Head, record: bytes, content_types: Collection[str] | None, most_bytes: int | None
) -> None:
    from fastwarc.warc import WarcRecord

    if record[head.header_bytes : head.header_bytes + 5] != b"HTTP/":
        raise BadRecord(head.offset, "the response has no HTTP header", record[:SHOWN_BYTES])
    bodies: list[bytes] = []
    try:
        response = WarcRecord.from_bytes(record)
        beginning = record[:SHOWN_BYTES]
        del record
        response.is_http = True
        response.parse_http(auto_decode="all", quirks_mode=True)
        named = response.http_headers.get("Content-Type")
        page.status = response.http_headers.status_code
        page.content_type = _mime_type(named) or _identified(head)
        page.language = response.http_headers.get("Content-Language") or page.language
        if not _is_wanted(page.content_type, content_types):
            page.skipped = "content_type"
            return
        held_bytes = 0
        while piece := response.reader.read(PIECE_BYTES):
            bodies.append(piece)
            held_bytes += len(piece)
            if most_bytes is not None and held_bytes > most_bytes:
                raise LongPage(held_bytes)
    except OSError as exc:
        raise BadRecord(head.offset, f"its HTTP message cannot be read: {exc}", beginning) from exc
    del response
    _fill(page, bodies, charset_of(named or ""), most_bytes)


def _fill(page: Page, bodies: list[bytes], charset: str | None, most_bytes: int | None) -> None:
    """Decode a body; the list is emptied."""
    body = b"".join(bodies)
    bodies.clear()
    held_bytes = 0
    for piece in utf8_pieces(body, page_encoding(body, charset)):
        page.pieces.append(piece)
        held_bytes += len(piece)
        if most_bytes is not None and held_bytes > most_bytes:
            raise LongPage(held_bytes)


def _identified(head: Head) -> str | None:
    return _mime_type(head.fields.get("warc-identified-payload-type"))


def _is_wanted(content_type: str | None, content_types: Collection[str] | None) -> bool:
    return content_type is None or content_types is None or content_type in content_types


def _mime_type(content_type: str | None) -> str | None:
    """Return a content type without its parameters, in small letters.

    Examples
    --------
    >>> _mime_type("Text/HTML; charset=utf-8")
    'text/html'
    """
    return (content_type or "").partition(";")[0].strip().lower() or None

# SPDX-License-Identifier: Apache-2.0
"""Convert a WARC record to a row: the values of its columns, and the text of its page."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from curator_df.io.warc.charsets import charset_of, page_encoding, utf8_pieces
from curator_df.io.warc.http_messages import TRUNCATED, BodyError, LongPage, read_body, read_message
from curator_df.io.warc.records import SHOWN_BYTES, BadRecord, Head, WarcRecords

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

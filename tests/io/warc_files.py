# SPDX-License-Identifier: Apache-2.0
"""Records and files of web crawls, written by FastWARC."""

import gzip
import io
import struct
import zlib

from fastwarc.warc import WarcRecord, WarcRecordType


def record(kind, content, **fields):
    """Return the bytes of a record; fields by name with underscores for dashes."""
    written = WarcRecord()
    written.init_headers(getattr(WarcRecordType, kind))
    if kind in ("response", "request"):
        written.is_http = True
    for name, value in fields.items():
        written.headers[name.replace("_", "-")] = value
    written.set_bytes_content(content)
    stream = io.BytesIO()
    written.write(stream)
    return stream.getvalue()


def response(body, *headers, url="http://a.b/", status="200 OK", **fields):
    """Return the bytes of a response with an HTTP message."""
    message = "\r\n".join([f"HTTP/1.1 {status}", *headers]).encode() + b"\r\n\r\n" + body
    return record("response", message, WARC_Target_URI=url, **fields)


def html(body, charset="utf-8", **arguments):
    """Return the bytes of a response with a page."""
    return response(body, f"Content-Type: text/html; charset={charset}", **arguments)


HEADER = (
    "WARC/1.0\nWARC-Type: response\nWARC-Date: 2026-01-31T12:00:00Z\nWARC-Target-URI: http://a.b/\n"
    "Content-Type: application/http; msgtype=response\nContent-Length: LENGTH\n\n"
)


def written(block, header=HEADER, line_end="\r\n", after=b"\r\n\r\n"):
    """Return the bytes of a record whose header is written as it stands, with the length for LENGTH."""
    return header.replace("\n", line_end).replace("LENGTH", str(len(block))).encode("latin-1") + block + after


def wet(text, number=0, language="eng"):
    """Return the bytes of a record of a WET file."""
    fields = {"WARC_Target_URI": f"http://a.b/{number}", "WARC_Identified_Content_Language": language}
    return record("conversion", text.encode(), Content_Type="text/plain", WARC_Date="2026-01-31T12:00:00Z", **fields)


def members(records, level=6):
    """Return a gzip file with a member for each record, and the byte at which each begins."""
    packed = [gzip.compress(one, level, mtime=0) for one in records]
    starts = [sum(map(len, packed[:number])) for number in range(len(packed))]
    return b"".join(packed), starts


def pieces_of(content, size):
    """Return a gzip file whose members are pieces of so many bytes, as a parallel packer makes them."""
    return b"".join(gzip.compress(content[at : at + size], mtime=0) for at in range(0, len(content), size))


def stored(content):
    """Return a gzip file with its content as it is, in stored blocks."""
    packer = zlib.compressobj(0, wbits=31)
    return packer.compress(content) + packer.flush()


def dictionary_frame(content, size=None):
    """Return the frame with a dictionary, with which a zstd file may begin."""
    return struct.pack("<II", 0x184D2A5D, len(content) if size is None else size) + content


def source_of(df):
    """Return the source that a table of `read_warc` begins with."""
    return df.expr.frame.operand("func").source


def rows_of(source, piece_bytes, block_bytes=50_000, **arguments):
    """Return address and text of every record, and the bad ones, read by ranges."""
    rows, bad = [], []
    for piece in source.cut(piece_bytes):
        for block in source.blocks(piece, block_bytes=block_bytes, on_bad_row=bad.append, **arguments):
            rows += zip(block.index.tolist(), block["text"].tolist(), strict=True)
    return rows, [(row.offset, row.reason) for row in bad]

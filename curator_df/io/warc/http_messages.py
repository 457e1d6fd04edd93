# SPDX-License-Identifier: Apache-2.0
"""HTTP responses in crawls: status, headers, and the body without its transfer and content codings.

Crawlers often store a decoded body and keep the header with its coding. So a body that is not in that coding is
used unchanged (recorded in `Body.note`), and an unknown coding is ignored; but a body that begins as gzip or zstd do is
decompressed, whichever compression the header names. A compressed body that ends early gives what could be decoded.
Data that begins like the coding and is damaged later raises `BodyError`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from curator_df.io.streams.file_stream import Gzip
from curator_df.io.streams.gzip_members import MAGIC
from curator_df.io.streams.zstd_frames import STEP_BYTES as ZSTD_STEP_BYTES

PIECE_BYTES = 1 << 20
"""Maximum decoded bytes made at once; zstd and brotli may make several times that."""
STEP_BYTES = 1 << 16
"""Compressed bytes passed to a decoder at once."""
ZSTD_WINDOW_BYTES = 1 << 23
"""Largest window of a zstd body, by RFC 9659."""
TRUNCATED, NOT_DECODED = "truncated", "not_decoded"
"""Notes: the body is shorter than the message specifies; it is not in a coding of the header, and is used unchanged."""
_STATUS = re.compile(r"(?:HTTP/[0-9.]+|ICY)[ \t]+([0-9]{3})(?![^ \t])", re.IGNORECASE)
_BEGINNING = re.compile(rb"HTTP/[0-9]|ICY[ \t]", re.IGNORECASE)
_FIRST_LINE_END = re.compile(rb"\r\n|\n|\r")
_FOLDED = re.compile(r"\n[ \t]+")
_FIELD = re.compile(r"[!-9;-~]+[ \t]*:")
_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]{0,4000})?\r?\n")
_TRAILERS = re.compile(rb"(?:[!-9;-~]+[ \t]*:[^\r\n]*(?:\r?\n|\Z))*[\r\n]*")
"""Fields after the last chunk, and an empty line."""
_CONTROLS = re.compile(rb"[\0-\x08\x0b\x0e-\x1a\x1c-\x1f]")
"""Bytes that do not occur in text, by the MIME Sniffing Standard."""
SNIFFED_BYTES = 512
LONGEST_CHUNK_HEADER = 4096
_IGNORED = frozenset({"", "identity", "none"})
_TUNNEL = re.compile(r"HTTP/\S+ 200 connection established\s*$", re.IGNORECASE)
"""Answer of a proxy to CONNECT, by its words."""
_NEXT = re.compile(rb"[\r\n]*(?=HTTP/[0-9]|ICY[ \t])", re.IGNORECASE)
"""Beginning of another message after one that never has a body."""
_LINE_END = rb"(?:\r?\n|\r(?!\n))"
_NEXT_HEADER = re.compile(
    rb"[\r\n]*(?=(?:HTTP/[0-9.]+|ICY)[ \t]+[0-9]{3}(?:[ \t][^\r\n]*)?"
    + _LINE_END + rb"(?:[!-9;-~]+[ \t]*:[^\r\n]*" + _LINE_END + rb")+" + _LINE_END + rb")",
    re.IGNORECASE,
)  # fmt: skip
"""Whole header of another message after one that may have a body: its status and fields, and nothing else."""
_STATUS_LINES = {f"{code.value} {code.phrase}" for code in HTTPStatus} | {
    "413 Request Entity Too Large",
    "413 Content Too Large",
    "414 Request-URI Too Long",
    "414 URI Too Long",
    "416 Requested Range Not Satisfiable",
    "416 Range Not Satisfiable",
    "422 Unprocessable Entity",
    "422 Unprocessable Content",
}
"""Codes with their standard phrases: those of Python, and the old and new ones of the codes whose phrase Python 3.13 changed."""
_NEXT_STATUS = re.compile(
    rb"[\r\n]*(?=(?:HTTP/[0-9.]+)[ \t](?:%b)%b{2}[^\r\n])"
    % (b"|".join(re.escape(line.encode()) for line in sorted(_STATUS_LINES)), _LINE_END),
    re.IGNORECASE,
)
"""Header of such a message without fields: a status with its standard phrase, and something after it."""
PROXY_LOGIN = 407
"""Status of a proxy that wants a login first."""
_JOINED = ("content-encoding", "transfer-encoding")
"""Fields whose values are lists: several are joined."""


class BodyError(Exception):
    """Error of a body that is damaged, or has no header."""


class LongPage(Exception):  # noqa: N818 - never seen by users
    """Signal of a text with more bytes than may be held."""

    def __init__(self, text_bytes: int) -> None:
        super().__init__(text_bytes)
        self.text_bytes = text_bytes


class _Ends(Exception):  # noqa: N818 - never seen by users
    """Signal that the data of a coding ends early."""


class _Differs(Exception):  # noqa: N818 - never seen by users
    """Signal that the data is not in the coding."""


class _Damaged(Exception):  # noqa: N818 - never seen by users
    """Signal that the data is damaged, or not in the coding."""


@dataclass(frozen=True)
class Message:
    """Header of a response."""

    status: int | None
    """Status code; None if there is none."""
    fields: dict[str, str]
    """Values by lower-case name; for a repeated name the first value, or all of a list."""
    body_start: int
    """Byte at which the body begins."""
    is_whole: bool
    """Whether the header ends with an empty line."""

    @property
    def codings(self) -> list[str]:
        """Codings in the order in which they are removed."""
        named = [self.fields[name] for name in _JOINED if name in self.fields]
        return [coding for value in named for coding in _codings(value)][::-1]

    @property
    def is_bare(self) -> bool:
        """Whether this may be the answer of a proxy to CONNECT, by its status and because no field describes a body."""
        status = self.status or 0
        has_body = "content-type" in self.fields or self.fields.get("content-length", "0") != "0" or self.codings
        return not has_body and (200 <= status < 300 or status == PROXY_LOGIN)


@dataclass(frozen=True)
class Body:
    """Body without its codings."""

    pieces: list[Any]
    """Bytes of the body, as `bytes` or `memoryview`."""
    note: str | None
    """Note to be counted: `TRUNCATED`, `NOT_DECODED` or None."""


def read_message(data: bytes, start: int) -> Message:
    """Read the header of a response; informational ones before it, and answers of proxies to CONNECT, are skipped.

    Crawlers stored such answers before the response that came through the tunnel.

    Raises
    ------
    BodyError
        If there is no header, or it does not end.
    """
    while True:
        if not _BEGINNING.match(data, start):
            raise BodyError("the record has no HTTP header, although it is a response")
        end, body_start = _header_end(data, start)
        head = data[start:end].decode("latin-1").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
        lines = (_FOLDED.sub(" ", head) if "\n " in head or "\n\t" in head else head).split("\n")
        status = _STATUS.match(lines[0])
        is_whole = body_start >= 0
        if not is_whole and not all(_FIELD.match(line) for line in lines[1:]):
            raise BodyError("the HTTP header of the response does not end with an empty line")
        message = Message(
            int(status.group(1)) if status else None, _fields(lines), body_start if is_whole else len(data), is_whole
        )
        has_no_body = 100 <= (message.status or 0) < 200 or _TUNNEL.match(lines[0])
        at = message.body_start
        if has_no_body:
            following = _NEXT.match(data, at)
        else:
            following = (_NEXT_HEADER.match(data, at) or _NEXT_STATUS.match(data, at)) if message.is_bare else None
        if following is None:
            return message
        start = following.end()


def read_body(message: Message, data: bytes, most_bytes: int | None) -> Body:
    """Return the body of a message without its codings.

    Parameters
    ----------
    message : Message
        Header of the message.
    data : bytes
        Data that `read_message` read.
    most_bytes : int, optional
        Decoding stops when the body has more bytes than this.

    Raises
    ------
    BodyError
        If the body is in the coding of its header, and is damaged.
    """
    pieces: list[Any] = [memoryview(data)[message.body_start :]]
    codings, note = message.codings, None
    length = message.fields.get("content-length", "")
    if not message.is_whole or (not codings and _is_longer(length, len(pieces[0]))):
        note = TRUNCATED
    for coding in codings:
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if not body:
            break
        pieces, found = _without(coding, body, most_bytes)
        note = note or found
    return Body(pieces, note)


def _is_longer(length: str, body_bytes: int) -> bool:
    """Return whether a Content-Length exceeds ``body_bytes``; False for an invalid one."""
    return length.isascii() and length.isdigit() and len(length) < 16 and int(length) > body_bytes


def _header_end(data: bytes, start: int) -> tuple[int, int]:
    """Return the end of the lines of a header, and the beginning of the body: -1 if no empty line follows."""
    first = _FIRST_LINE_END.search(data, start)
    if first is None:
        return len(data), -1
    if first.group() == b"\r" and data[first.end() : first.end() + 1] != b"\r":  # line ends of some old servers
        end = data.find(b"\r\r", start)
        return (end, end + 2) if end >= 0 else (len(data), -1)
    end = data.find(b"\n\r\n", start)
    lf_end = data.find(b"\n\n", start, end if end >= 0 else len(data))
    if lf_end >= 0:
        return lf_end, lf_end + 2
    return (end, end + 3) if end >= 0 else (len(data), -1)


def _fields(lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            continue
        name, value = name.strip().lower(), value.strip()
        if name in fields:
            if name in _JOINED:
                fields[name] += f",{value}"
        else:
            fields[name] = value
    return fields


def _codings(value: str) -> list[str]:
    named = (coding.partition(";")[0].strip(" \t\"'").lower().removeprefix("x-") for coding in value.split(","))
    return [coding for coding in named if coding not in _IGNORED]


def _without(coding: str, body: Any, most_bytes: int | None) -> tuple[list[Any], str | None]:
    """Return the pieces of a body without one coding, and the note on it."""
    if coding in _COMPRESSED:  # servers may use another one; these two have a signature
        coding = "gzip" if _GZIP.match(body) else "zstd" if _ZSTD.match(body) else coding
    beginning, decode = _DECODERS.get(coding, (None, None))
    if decode is None or (beginning is not None and not beginning.match(body)):
        is_cut = coding == "gzip" and MAGIC.startswith(bytes(body[: len(MAGIC)]))
        return ([], TRUNCATED) if is_cut else ([body], NOT_DECODED)
    pieces, held_bytes, note = [], 0, None
    try:
        for piece in decode(body):
            pieces.append(piece)
            held_bytes += len(piece)
            if most_bytes is not None and held_bytes > most_bytes:
                raise LongPage(held_bytes)
    except _Ends:
        # If data of a coding may begin with any byte, text is not regarded as its beginning.
        note = NOT_DECODED if beginning is None and _is_text(body) else TRUNCATED
    except _Differs:
        note = NOT_DECODED
    except _Damaged as exc:
        if beginning is not None or (held_bytes and not _is_text(body)):
            raise BodyError(f"the {coding} body is damaged: {exc}") from exc
        note = NOT_DECODED
    return ([body], note) if note == NOT_DECODED else (pieces, note)


def _is_text(body: Any) -> bool:
    return _CONTROLS.search(body[:SNIFFED_BYTES]) is None


def _chunks(body: Any) -> Iterator[Any]:
    """Yield the chunks of a body; extensions and trailers are ignored."""
    at, is_first = 0, True
    while True:
        header = _CHUNK.match(body, at)
        if header is None:
            if len(body) - at < LONGEST_CHUNK_HEADER and b"\n" not in bytes(body[at:]):
                raise _Ends
            raise _Damaged(f"no chunk begins with {bytes(body[at : at + 20])!r}")
        size, at = int(header.group(1), 16), header.end()
        if not size:
            if is_first and not _TRAILERS.fullmatch(body, at):
                raise _Differs
            return
        line_end = bytes(body[at + size : at + size + 2])
        if is_first and line_end[:1] not in b"\r\n":
            raise _Differs
        yield body[at : at + size]
        at, is_first = at + size, False
        if at >= len(body):
            raise _Ends
        at += 2 if line_end == b"\r\n" else 1 if line_end[:1] == b"\n" else 0


def _gzip(body: Any) -> Iterator[bytes]:
    return _members(body, lambda: Gzip(31), STEP_BYTES, _GZIP)


def _deflate(body: Any) -> Iterator[bytes]:
    """Decompress zlib data, or bare deflate data, which some servers send instead."""
    if body[0] & 0x0F == 8 and len(body) > 1 and not (body[0] << 8 | body[1]) % 31:
        held_bytes = 0
        try:
            for piece in _members(body, lambda: Gzip(15), STEP_BYTES, None):
                held_bytes += len(piece)
                yield piece
        except _Damaged:
            if held_bytes:
                raise
        else:
            return
    yield from _members(body, lambda: Gzip(-15), STEP_BYTES, None)


def _zstd(body: Any) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
    return _members(body, lambda: _Frame(decompressor), ZSTD_STEP_BYTES, _ZSTD)


class _Frame:
    """Frame of zstd, with the interface of `streams.Gzip`."""

    needs_input = True

    def __init__(self, decompressor: Any) -> None:
        self._frame = decompressor.decompressobj()

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data)

    def decompress(self, data: Any, max_length: int) -> bytes:
        del max_length  # the output cannot be bounded, so steps are short
        return bytes(self._frame.decompress(data))


def _members(body: Any, new: Callable[[], Any], step_bytes: int, magic: re.Pattern[bytes] | None) -> Iterator[bytes]:
    """Decompress consecutive members; other data after them is ignored, as browsers do."""
    import zstandard

    at = 0
    while not at or (magic is not None and magic.match(body, at)):
        member = new()
        while not member.eof:
            step = body[at : at + step_bytes] if member.needs_input else b""
            if member.needs_input and not step:
                raise _Ends
            at += len(step)
            try:
                piece = member.decompress(step, PIECE_BYTES)
            except (zlib.error, zstandard.ZstdError) as exc:
                raise _Damaged(str(exc)) from exc
            if piece:
                yield piece
        at -= len(member.unused_data)


def _brotli(body: Any) -> Iterator[bytes]:
    """Decompress brotli data; other data after it is ignored."""
    import brotli

    decoder, at, step_bytes = brotli.Decompressor(), 0, STEP_BYTES
    while not decoder.is_finished():
        step = body[at : at + step_bytes]
        if not step:
            while piece := decoder.process(b"", output_buffer_limit=PIECE_BYTES):
                yield piece  # output that the decoder still held
            raise _Ends
        try:
            piece = decoder.process(step, output_buffer_limit=PIECE_BYTES)
        except brotli.error as exc:
            if step_bytes == 1:
                raise _Damaged(str(exc)) from exc
            # The data may end in this step, which the library regards as an error, so it is passed byte by byte.
            decoder, step_bytes = _brotli_at(body, at), 1
            continue
        at += len(step)
        yield piece
        while not decoder.can_accept_more_data():
            yield decoder.process(b"", output_buffer_limit=PIECE_BYTES)


def _brotli_at(body: Any, at: int) -> Any:
    """Return a decoder that has processed the bytes of a body before one."""
    import brotli

    decoder = brotli.Decompressor()
    for start in range(0, at, STEP_BYTES):
        decoder.process(body[start : min(start + STEP_BYTES, at)], output_buffer_limit=PIECE_BYTES)
        while not decoder.can_accept_more_data():
            decoder.process(b"", output_buffer_limit=PIECE_BYTES)
    return decoder


_GZIP = re.compile(re.escape(MAGIC))
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18", re.DOTALL)
_DECODERS: dict[str, tuple[re.Pattern[bytes] | None, Callable[[Any], Iterator[Any]]]] = {
    "chunked": (_CHUNK, _chunks),
    "gzip": (_GZIP, _gzip),
    "deflate": (None, _deflate),
    "br": (None, _brotli),
    "zstd": (_ZSTD, _zstd),
}
"""Beginnings, if fixed, and decoders of the data of codings."""
_COMPRESSED = frozenset(_DECODERS) - {"chunked"}

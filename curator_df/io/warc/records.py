# SPDX-License-Identifier: Apache-2.0
"""Records of a WARC file, one after the other: the position, header and bytes of each.

A record is a header of lines, an empty line, ``Content-Length`` bytes, and two line ends, which some files
lack. After an invalid record, reading continues at the next line, or member, that begins with ``WARC/`` and a version.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from curator_df.errors import CorruptFileError
from curator_df.io.streams.file_stream import OUTPUT_BYTES, ByteStream, Decompressed, UnsupportedData
from curator_df.io.streams.gzip_members import Damage, MemberPieces

BEGINNING = b"WARC/"
VERSION = re.compile(rb"WARC/[01]\.[0-9]{1,3}[ \t]*\r?\n")
"""First line of a record. Drafts before WARC/0.17 put the fields of a header into it, by position."""
VERSION_BYTES = len(b"WARC/1.0")
LOOK_BACK_BYTES = 64
"""Number of bytes kept of a piece without a beginning of a record, which the next piece may complete."""
MOST_HEADER_BYTES = 1 << 16
READ_ON_BYTES = 1 << 20
"""Number of bytes read after a record that no record follows, for the checksum of its member."""
SHOWN_BYTES = 1000
_LINE_ENDS = re.compile(rb"[\r\n]*")
_HEADER_END = re.compile(rb"\r?\n\r?\n")
_FOLDED = re.compile(r"\r?\n[ \t]+")
_INNER = re.compile(rb"WARC/[01]\.[0-9]{1,3}[ \t]*\r?\n")
_NEXT = re.compile(rb"\nWARC/[01]\.[0-9]")
_FOUND = re.compile(rb"(?<=\n)WARC/[01]\.[0-9]|WARC/[01]\.[0-9]{1,3}[ \t]*\r?\n(?=[A-Za-z-]{1,40}:)")
"""Beginning of a record after a bad one: at the beginning of a line, or before a field, if a record was truncated without a
line end."""


@dataclass(frozen=True)
class Head:
    """Header of a record."""

    offset: int
    """Offset of the record in its file: `WarcRecords`."""
    header_bytes: int
    """Bytes of the header, with the empty line."""
    content_bytes: int
    """Bytes of the content."""
    fields: dict[str, str]
    """Values by lower-case name; for a repeated name the first value."""

    @property
    def record_bytes(self) -> int:
        """Bytes of the record, header included."""
        return self.header_bytes + self.content_bytes


class BadRecord(Exception):  # noqa: N818 - never seen by users
    """Error of a record that cannot be read."""

    def __init__(self, offset: int, reason: str, raw: bytes = b"", *, is_damage: bool = False) -> None:
        super().__init__(reason)
        self.offset, self.reason, self.raw = offset, reason, raw
        self.is_damage = is_damage
        """Whether the compressed data is damaged."""


class StreamPieces:
    """File that is read as one stream, with the interface of `MemberPieces`."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._buffer = memoryview(bytearray(OUTPUT_BYTES))
        self.begins = False

    def read(self) -> bytes:
        """Return the next piece; nothing at the end.

        Raises
        ------
        Damage
            The data is damaged from here on.
        """
        try:
            return bytes(self._buffer[: self._stream.readinto(self._buffer)])
        except CorruptFileError as exc:
            cause = exc.__cause__
            unread = isinstance(cause, OSError) and cause.errno is not None  # by the disk
            if unread or isinstance(cause, UnsupportedData) or not isinstance(self._stream, Decompressed):
                raise
            member, position = self._stream.damaged_from
            raise Damage(member, str(cause), position) from exc

    def resume(self, damage: Damage) -> str:
        """Go on with the next record that can be read, or end; say how many bytes that passes over."""
        if not isinstance(self._stream, Decompressed):
            raise damage
        return self._stream.resume(BEGINNING)


class WarcRecords:
    """Reader of the records of a file from a byte on.

    Offsets are positions in the decompressed file; in a gzip file, the position of the member in which
    the record begins, plus the number of the record among those that begin there. A file of a crawl has a member for each
    record, so it can be fetched there.

    Parameters
    ----------
    pieces : MemberPieces or StreamPieces
        Bytes of the file; a record begins with them.
    ends_at : callable, optional
        Function of a member that returns whether reading ends there, because another reader begins there.
    """

    def __init__(self, pieces: Any, ends_at: Callable[[int], bool] | None = None) -> None:
        self._pieces, self._ends_at = pieces, ends_at
        self._buffer = bytearray()
        self._position = 0
        """Position in the decompressed bytes of the first byte held."""
        self._marks: list[tuple[int, int]] = []
        """Position of each member held, and the member."""
        self._ordinal, self._last_member = 0, -1
        self._waiting = b""
        """First piece of a member with a record, while the previous record is still pending."""
        self._damage: Damage | None = None

    def next_head(self) -> Head | None:
        """Return the header of the next record; None at the end.

        Raises
        ------
        BadRecord
            If there are bytes, but no record. `recover` continues after them.
        """
        if not self._to_record():
            return None
        offset = self._offset()
        while True:
            if not BEGINNING.startswith(bytes(self._buffer[: len(BEGINNING)])):
                raise self._bad(offset, "no record begins here")
            end = _HEADER_END.search(self._buffer, 0, MOST_HEADER_BYTES)
            if end is not None:
                break
            if len(self._buffer) >= MOST_HEADER_BYTES:
                raise self._bad(offset, f"its header has more than {MOST_HEADER_BYTES:,} bytes")
            if not self._more():
                raise self._cut(offset)
        if not VERSION.match(self._buffer):
            raise self._bad(
                offset, f"its first line is {_first_line(self._buffer)!r}, and must be a version such as 'WARC/1.1'"
            )
        if self._buffer.find(BEGINNING, 1, end.start()) > 0 and _holds_another(bytes(self._buffer[: end.end()])):
            raise self._bad(offset, "its header does not end before that of the next record")
        fields = _fields(bytes(self._buffer[: end.start()]))
        length = fields.get("content-length", "")
        if not re.fullmatch(r"[0-9]{1,15}", length):
            is_there = "content-length" in fields
            raise self._bad(offset, f"its Content-Length is {length!r}" if is_there else "it has no Content-Length")
        return Head(offset, end.end(), int(length), fields)

    def take(self, head: Head) -> bytes:
        """Return the bytes of a record, header included, and move on to the next."""
        size = head.record_bytes
        while len(self._buffer) < size:
            if not self._more():
                raise self._cut(head.offset)
        self._settle(head, size)
        record = bytes(memoryview(self._buffer)[:size])
        self._pass(size)
        return record

    def peek(self, head: Head, most_bytes: int) -> bytes:
        """Return the first bytes of a record, header included, without moving on."""
        while len(self._buffer) < min(head.record_bytes, most_bytes) and self._more():
            pass
        return bytes(self._buffer[: min(head.record_bytes, most_bytes)])

    def skip(self, head: Head) -> None:
        """Move on to the next record without holding this one."""
        left = head.record_bytes
        while left > len(self._buffer):
            left -= len(self._buffer)
            self._pass(len(self._buffer))
            if not self._more():
                raise self._cut(head.offset)
        self._settle(head, left)
        self._pass(left)

    def recover(self) -> str:
        """After a `BadRecord`: go to where the next record may begin, or to the end.

        Returns
        -------
        str
            How many bytes of the file that passes over, in words, if its compressed data is damaged; otherwise nothing.
        """
        while not self._waiting and self._damage is None:
            found = _FOUND.search(self._buffer, 1)
            if found is not None:
                self._pass(found.start())
                return ""
            self._pass(max(0, len(self._buffer) - LOOK_BACK_BYTES))
            if not self._more():
                break
        self._pass(len(self._buffer))
        if self._damage is None:
            return ""
        passed: str = self._pieces.resume(self._damage)
        self._damage = None
        return passed

    def _to_record(self) -> bool:
        """Skip line ends between records, and read the next bytes; False at the end."""
        while True:
            self._pass(_LINE_ENDS.match(self._buffer).end())  # type: ignore[union-attr] # it matches nothing too
            if self._buffer:
                return not self._is_anothers()
            if self._waiting:
                self._append(self._waiting)
                self._waiting = b""
            elif self._damage is not None:
                is_stream = not isinstance(self._pieces, MemberPieces)
                raise self._cut(self._position if is_stream else self._numbered(self._damage.member))
            elif not self._more(between=True) and self._damage is None:
                return False

    def _is_anothers(self) -> bool:
        if self._ends_at is None:
            return False
        position, member = self._mark()
        return position == self._position and self._ends_at(member)

    def _offset(self) -> int:
        """Return the offset of the record that begins with the first byte held."""
        if not isinstance(self._pieces, MemberPieces):
            return self._position
        return self._numbered(self._mark()[1])

    def _numbered(self, member: int) -> int:
        last = self._last_member + self._ordinal
        self._ordinal = self._ordinal + 1 if member == self._last_member else 0
        self._last_member = member
        if member + self._ordinal <= last:
            raise self._bad(
                member, "its offset is that of another record: the gzip member before has more records than bytes"
            )
        return member + self._ordinal

    def _mark(self) -> tuple[int, int]:
        return next(mark for mark in reversed(self._marks) if mark[0] <= self._position)

    def _more(self, *, between: bool = False) -> bool:
        """Read on; return False at the end of the file or of undamaged data, or where a member begins with another record."""
        if self._waiting or self._damage is not None:
            return False
        try:
            piece = self._pieces.read()
        except Damage as damage:
            self._damage = damage
            return False
        if self._pieces.begins and piece.startswith(BEGINNING) and not between:
            self._waiting = piece
            return False
        self._append(piece)
        return bool(piece)

    def _append(self, piece: bytes) -> None:
        if isinstance(self._pieces, MemberPieces) and self._pieces.begins:
            self._marks.append((self._position + len(self._buffer), self._pieces.member))
        self._buffer += piece

    def _pass(self, count: int) -> None:
        del self._buffer[:count]
        self._position += count
        while len(self._marks) > 1 and self._marks[1][0] <= self._position:
            del self._marks[0]

    def _settle(self, head: Head, size: int) -> None:
        """Read beyond the end of a record, so that the checksum of its member is verified before the record counts."""
        while len(self._buffer) <= size + 4 and self._more():
            pass
        # If no record follows, the damage that made it so may be in this one, which only the end of its member shows.
        while len(self._buffer) < size + READ_ON_BYTES and not self._is_followed(size) and self._more():
            pass
        if self._damage is not None and self._is_damaged(self._damage, size):
            raise self._cut(head.offset)
        following = self._buffer[size : size + 1]
        is_in_line_end = following == b"\n" and self._buffer[size - 1 : size] == b"\r"
        if is_in_line_end or (following and following not in b"\r\n" and not self._begins_at(size)):
            raise self._bad(
                head.offset, f"it does not end after the {head.content_bytes:,} bytes of its Content-Length"
            )

    def _is_followed(self, size: int) -> bool:
        """Return whether only line ends, or a record after them, are known to follow."""
        rest = bytes(self._buffer[size : size + LOOK_BACK_BYTES]).lstrip(b"\r\n")
        return rest[: len(BEGINNING)] == BEGINNING[: len(rest)]

    def _is_damaged(self, damage: Damage, size: int) -> bool:
        """Tell whether bytes at the beginning of the buffer are of a damaged member or frame."""
        if isinstance(self._pieces, MemberPieces):
            return damage.member == self._mark()[1]
        return self._position + size > damage.position

    def _begins_at(self, at: int) -> bool:
        """Return whether a record begins at a byte of the buffer: some files have no line ends between records."""
        while len(self._buffer) < at + VERSION_BYTES and self._more():
            pass
        return _NEXT.match(b"\n" + self._buffer[at : at + VERSION_BYTES]) is not None

    def _cut(self, offset: int) -> BadRecord:
        if self._damage is not None:
            return self._bad(offset, f"the compressed data is damaged: {self._damage}", is_damage=True)
        return self._bad(offset, "the record is cut: it is shorter than its Content-Length says")

    def _bad(self, offset: int, reason: str, *, is_damage: bool = False) -> BadRecord:
        return BadRecord(offset, reason, bytes(self._buffer[:SHOWN_BYTES]), is_damage=is_damage)


def _holds_another(header: bytes) -> bool:
    """Return whether a header contains the first line of another record, because the record was truncated in it."""
    inner = _INNER.search(header, 1)
    if inner is None:
        return False
    before, after = header[: inner.start()].lower(), header[inner.end() :].lower()
    return b":" not in before[before.rfind(b"\n") + 1 :] or (b"warc-type:" in before and b"warc-type:" in after)


def _fields(header: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    try:
        lines = header.decode()
    except UnicodeDecodeError:
        lines = "\n".join(map(_decoded, header.split(b"\n")))
    if "\n " in lines or "\n\t" in lines:
        lines = _FOLDED.sub(" ", lines)
    for line in lines.split("\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    return fields


def _decoded(line: bytes) -> str:
    """Return a line of a header: UTF-8 by the standard, but some writers use Latin-1."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _first_line(content: bytes | bytearray) -> str:
    return bytes(content[:80]).split(b"\n")[0].rstrip().decode("ascii", "replace")

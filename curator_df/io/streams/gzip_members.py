# SPDX-License-Identifier: Apache-2.0
"""Members of a gzip file: read one after the other, or found from any byte of the file.

A gzip file consists of consecutive members, each with its own checksum. If every record is a member, as in
crawls, reading can begin at any of them. Three bytes that look like the beginning of a member prove nothing: a page may be
a gzip file itself, which a packer copies unchanged. So a beginning counts if the members from there on are complete and hold
records, for longer than what a packer copies at once.
"""

from __future__ import annotations

import zlib
from typing import Any

from curator_df.io.streams.file_stream import OUTPUT_BYTES, passed_over

MAGIC = b"\x1f\x8b\x08"
BEGINNING = b"WARC/"
"""Beginning of a record."""
READ_BYTES = 1 << 14
"""Compressed bytes read from the file at once. zlib returns a copy of those after a member, which are many for small ones."""
COPIED_BYTES = 1 << 16
"""Bytes longer than a stored block of deflate (65,535 bytes at most), which therefore cannot contain consecutive members of
this size."""


class Damage(Exception):  # noqa: N818 - never seen by users
    """A member, or a frame of zstd, cannot be decompressed."""

    def __init__(self, member: int, reason: str, position: int = 0) -> None:
        super().__init__(reason)
        self.member, self.position = member, position
        """Byte of the file at which it begins, and of the decompressed data in a file that is read as one stream."""


class MemberPieces:
    """Decompressed pieces of a file from one member on; no piece has bytes of two members.

    Parameters
    ----------
    file : file object
        File opened for reading bytes, seekable.
    start : int
        Byte at which a member begins.
    file_bytes : int
        Size of the file on disk.
    """

    def __init__(self, file: Any, start: int, file_bytes: int) -> None:
        self.file, self.file_bytes = file, file_bytes
        self.restart(start)

    def restart(self, start: int) -> None:
        """Continue with the member that begins at a byte."""
        self.file.seek(start)
        self._data, self._read_to = b"", start
        self._inflate: Any = None
        self.member = start
        """Byte at which the member of the last piece begins."""
        self.begins = False
        """Whether the last piece is the first of its member."""

    def resume(self, damage: Damage) -> str:
        """Go on at the next member after a damaged one, or end; say how many bytes that passes over."""
        found = find_member(self.file, damage.member + 1, self.file_bytes, proof_bytes=1)
        stop = self.file_bytes if found is None else found
        self.restart(stop)
        return passed_over(damage.member, found, stop)

    def read(self) -> bytes:
        """Return the next piece, of up to 1 MiB; nothing at the end of the file.

        Raises
        ------
        Damage
            If a member is incomplete or invalid.
        """
        self.begins = False
        piece: bytes = b""
        while True:
            if self._inflate is None and not self._open_member():
                return b""
            try:
                piece += self._inflate.decompress(self._data, OUTPUT_BYTES)
            except zlib.error as exc:
                raise Damage(self.member, str(exc)) from exc
            is_over = self._inflate.eof
            self._data = self._inflate.unused_data if is_over else self._inflate.unconsumed_tail
            if is_over:
                self._inflate = None
            if piece and (is_over or not self.begins or len(piece) >= len(BEGINNING)):
                return piece
            if not is_over and not self._data and not self._fill():
                raise Damage(self.member, "the file ends in the middle of the compressed data")

    def _open_member(self) -> bool:
        """Begin the next member; False at the end of the file, which zero bytes may pad."""
        while not self._data.strip(b"\0"):
            if not self._fill():
                return False
            if self._read_to == len(self._data) and self._data.startswith(b"\0"):
                raise Damage(0, "zero bytes are at the beginning of the file")
        self._data = self._data.lstrip(b"\0")
        self.member, self.begins = self._read_to - len(self._data), True
        self._inflate = zlib.decompressobj(wbits=31)
        return True

    def _fill(self) -> bool:
        self._data = self.file.read(READ_BYTES)
        self._read_to += len(self._data)
        return bool(self._data)


def find_member(file: Any, start: int, stop: int, *, proof_bytes: int = COPIED_BYTES) -> int | None:
    """Find the first byte in ``[start, stop)`` at which a member with a record provably begins.

    Parameters
    ----------
    file : file object
        A gzip file; its position changes.
    start, stop : int
        Bytes of the file on disk.
    proof_bytes : int
        Bytes for which the members from there on must be complete and begin with a record, unless they reach the end
        of the file. With 1, only the first one is checked.

    Returns
    -------
    int or None
        Byte, which depends only on ``start`` and the file.
    """
    window: bytes = b""
    begins = start
    while begins < stop:
        file.seek(begins + len(window))
        data = file.read(READ_BYTES)
        window += data
        place = window.find(MAGIC)
        while 0 <= place < stop - begins:
            if _is_member(file, begins + place, proof_bytes):
                return begins + place
            place = window.find(MAGIC, place + 1)
        if not data:
            break
        passed = max(0, len(window) - len(MAGIC) + 1)
        window, begins = window[passed:], begins + passed
    return None


def _is_member(file: Any, at: int, proof_bytes: int) -> bool:
    pieces = MemberPieces(file, at, 0)
    try:
        while piece := pieces.read():
            if pieces.begins:
                if pieces.member - at >= proof_bytes:
                    return True
                if not piece.startswith(BEGINNING):
                    return False
    except Damage:
        return False
    return True

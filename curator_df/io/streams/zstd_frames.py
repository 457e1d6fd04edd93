# SPDX-License-Identifier: Apache-2.0
"""Frames of a zstd file: read one after the other, and found after damage; with the dictionary that a WARC file may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from curator_df.io.streams.file_stream import (
    LARGEST_WINDOW_BYTES,
    READ_BYTES,
    SHOWN_BYTES,
    ZSTD_MAGIC,
    TrailingData,
    UnsupportedData,
)

STEP_BYTES = 256
"""Compressed bytes given to zstandard at once: it cannot bound its output, and four bytes can become a block of 128
KiB, so 256 bytes become 8 MiB at most, held three times for a moment. Steps of 256 bytes read 460 MB/s of prose, of 1
KiB 640, of 128 bytes 330 (``test_a_bomb_is_read_in_a_few_megabytes``)."""
LARGEST_DICTIONARY_BYTES = 1 << 23
"""Largest dictionary of a zstd file, decompressed. It is held in addition, three times for a moment; crawls have 1 MB."""
_SKIPPABLE = tuple(bytes([number]) + b"\x2a\x4d\x18" for number in range(0x50, 0x60))
_DICTIONARY = b"\x37\xa4\x30\xec"
_DICTIONARY_FRAME = b"\x5d\x2a\x4d\x18"
"""Magic number of the skippable frame that holds the dictionary of a WARC file."""


class ZstdFrames:
    """Decompressed pieces of a file of zstd frames.

    Parameters
    ----------
    file : file object
        Opened for reading bytes, at its beginning.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._decompressor: Any = None
        self._decompressed = 0
        self.member = 0
        """Byte of the file at which the current frame begins."""
        self.position = 0
        """Offset of its first byte in the decompressed data."""

    def pieces(self) -> Iterator[bytes]:
        """Decompress from where the file stands.

        `zstandard`'s stream reader takes a truncated file for a whole one, so each frame's end is looked for here.
        """
        import zstandard

        data = self._file.read(READ_BYTES)
        if self._decompressor is None:
            data = self._open(data)
        self._begin_frame(len(data))
        frame, begins, held, held_bytes = self._decompressor.decompressobj(), True, [], 0
        try:
            while data:
                place = 0
                while place < len(data):
                    if begins:
                        data, place = self._require_frame(data, place)
                    step = data[place : place + STEP_BYTES]
                    held.append(frame.decompress(step))
                    held_bytes += len(held[-1])
                    self._decompressed += len(held[-1])
                    place += len(step)
                    begins = frame.eof
                    if begins:
                        place -= len(frame.unused_data)
                        frame = self._decompressor.decompressobj()
                        self._begin_frame(len(data) - place)
                    if held_bytes >= READ_BYTES:
                        yield b"".join(held)
                        held, held_bytes = [], 0
                data = self._file.read(READ_BYTES)
        except (zstandard.ZstdError, TrailingData, EOFError) as exc:
            yield b"".join(held)
            if not isinstance(exc, zstandard.ZstdError):
                raise
            raise _reason(exc) from exc
        yield b"".join(held)
        if not begins:
            raise EOFError("the compressed data ends in the middle of a zstd frame, so the file is truncated")

    def find_frame(self, start: int, beginning: bytes) -> int | None:
        """Find the first byte, from ``start`` on, at which a frame begins whose data begins as given; None if there is none."""
        window: bytes = b""
        begins = start
        while True:
            self._file.seek(begins + len(window))
            data: bytes = self._file.read(READ_BYTES)
            window += data
            place = window.find(ZSTD_MAGIC)
            while place >= 0:
                if self._begins_with(begins + place, beginning):
                    return begins + place
                place = window.find(ZSTD_MAGIC, place + 1)
            if not data:
                return None
            passed = max(0, len(window) - len(ZSTD_MAGIC) + 1)
            window, begins = window[passed:], begins + passed

    def _begins_with(self, at: int, beginning: bytes) -> bool:
        import zstandard

        self._file.seek(at)
        found, frame = b"", self._decompressor.decompressobj()
        try:
            while len(found) < len(beginning) and not frame.eof and (data := self._file.read(STEP_BYTES)):
                found += frame.decompress(data)
        except zstandard.ZstdError:
            return False
        return found.startswith(beginning)

    def _begin_frame(self, bytes_ahead: int) -> None:
        self.member, self.position = self._file.tell() - bytes_ahead, self._decompressed

    def _require_frame(self, data: bytes, place: int) -> tuple[bytes, int]:
        """Raise `TrailingData` if other data follows the frames; return the data from the frame on, enough to tell."""
        while len(data) - place < SHOWN_BYTES and (more := self._file.read(READ_BYTES)):
            data, place = data[place:] + more, 0
        head = data[place : place + len(ZSTD_MAGIC)]
        if self.member and not any(magic.startswith(head) for magic in (ZSTD_MAGIC, *_SKIPPABLE)):
            shown = data[place : place + SHOWN_BYTES]
            raise TrailingData(self.member, shown, f"(head -c {self.member} old.zst > new.zst)")
        if len(data) - place < len(ZSTD_MAGIC):
            raise EOFError("the compressed data ends in the middle of a zstd frame, so the file is truncated")
        return data, place

    def _open(self, data: bytes) -> bytes:
        """Read the dictionary that a file may begin with; return the data after it."""
        import zstandard

        dictionary: Any = None
        if data.startswith(_DICTIONARY_FRAME):
            dictionary, data = _read_dictionary(self._file, data)
        self._decompressor = zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=LARGEST_WINDOW_BYTES)
        return data


def _read_dictionary(file: Any, data: bytes) -> tuple[Any, bytes]:
    """Return the dictionary that a file begins with, and the data after it; None and all data if it has none.

    References
    ----------
    .. [1] https://iipc.github.io/warc-specifications/specifications/warc-zstd/
    """
    import zstandard

    size = int.from_bytes(data[4:8], "little")
    content = data[8 : 8 + size]
    if not content.startswith((_DICTIONARY, ZSTD_MAGIC)):
        return None, data
    _check_dictionary(size)
    parts = [content]
    held = len(content)
    while held < size and (part := file.read(size - held)):
        parts.append(part)
        held += len(part)
    if held < size:
        raise UnsupportedData("the zstd dictionary at the beginning of the file is truncated")
    content = b"".join(parts)
    try:
        if content.startswith(ZSTD_MAGIC):
            _check_dictionary(zstandard.frame_content_size(content))
            content = zstandard.ZstdDecompressor(max_window_size=LARGEST_DICTIONARY_BYTES).decompress(
                content, max_output_size=LARGEST_DICTIONARY_BYTES
            )
        dictionary = zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_FULLDICT)
        zstandard.ZstdDecompressor(dict_data=dictionary).decompressobj()  # which looks at the dictionary
    except zstandard.ZstdError as exc:
        raise UnsupportedData(f"its zstd dictionary cannot be read: {exc}") from exc
    return dictionary, data[8 + size :] or file.read(READ_BYTES)


def _check_dictionary(size: int) -> None:
    if size > LARGEST_DICTIONARY_BYTES:
        raise UnsupportedData(
            f"its zstd dictionary has {size:,} bytes, but curator_df reads at most {LARGEST_DICTIONARY_BYTES:,} bytes. "
            "Compress the file again without a dictionary"
        )


def _reason(exc: Exception) -> ValueError:
    if "too much memory" in str(exc):
        return UnsupportedData(
            f"a frame needs a window of more than {LARGEST_WINDOW_BYTES >> 20} MiB; write it again without --long or "
            "--ultra (zstd -d --long=31 -c old.zst | zstd -o new.zst)"
        )
    if "ictionary" in str(exc):
        return UnsupportedData(
            f"{exc}; its frames need a dictionary that is not at its beginning. Write it again without one "
            "(zstd -d -D dictionary -c old.zst | zstd -o new.zst)"
        )
    return ValueError(str(exc))

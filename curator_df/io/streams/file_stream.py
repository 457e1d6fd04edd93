# SPDX-License-Identifier: Apache-2.0
"""Files as streams of decompressed bytes, local or through fsspec, in a few MB of memory.

The suffix decides: ``.gz`` (with several members and zero padding), ``.zst`` (several frames, and the dictionary at the
beginning of a WARC file), ``.bz2``, ``.xz``, or plain. A file that is truncated or damaged raises `CorruptFileError` with the
decompressed offset that was reached.
"""

from __future__ import annotations

import bz2
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from curator_df.errors import CorruptFileError, InputChangedError, InputError, RemoteFileError, without_frames
from curator_df.files.hub import PROTOCOL, hub_errors, is_pinned
from curator_df.files.retry import retry_transient, without_queries
from curator_df.files.working_files import gone_file
from curator_df.io.formats import COMPRESSED_SUFFIXES, HEAD_BYTES, is_plain_text, other_format
from curator_df.io.listing import Listed, local_change, remote_change
from curator_df.memory.sizes import show_count

READ_BYTES = 1 << 17
"""Compressed bytes read from the file at once."""
MARK_BYTES = 2
"""Number of first bytes with which every member of a file begins."""
SHOWN_BYTES = 16
"""Number of bytes shown in a message."""
OUTPUT_BYTES = 1 << 20
"""Maximum decompressed bytes taken from zlib, bz2 or xz at once."""
LARGEST_WINDOW_BYTES = 1 << 27
"""Maximum window of a zstd frame, and maximum dictionary of an xz file: the default of ``zstd -d``, and more than ``xz -9``
makes. Such a window is held in addition to the few MB; most files have one of 2 to 8 MiB."""
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPABLE = b"\x2a\x4d\x18"
"""Second to fourth byte of a zstd frame that holds no data."""
ZSTD_SUFFIXES = (".zst", ".zstd")
_GZIP, _ZSTD = ("gzip data", b"\x1f\x8b"), ("zstd data", ZSTD_MAGIC)
_MARKS = {
    ".gz": _GZIP,
    ".gzip": _GZIP,
    ".zst": _ZSTD,
    ".zstd": _ZSTD,
    ".bz2": ("bzip2 data", b"BZh"),
    ".xz": ("xz data", b"\xfd7zXZ\0"),
}
"""Name and first bytes of compressed data, by the suffix of its file."""
STORE_BYTES = 1 << 21
"""Bytes requested from a store at once, ahead of the reader, for a file that is read in order; four times that is held for a
moment. s3fs by itself requests 50 MB: a run over 98 MB under 460 MB ran out of memory, and takes 337 MB with this."""
BLOCK_BYTES, BLOCKS = 1 << 20, 8
"""Bytes requested from a store at once for a file with random access, and number of such blocks kept: columns of a Parquet
file are read in turn, 256 kB each. For a file of 110 MB, under 700 MB: 631 MB and no retry, and with s3fs's own cache 719
MB and 8."""


OnTrailing = Callable[[int, str, bytes], None]
SMALL_FILE_BYTES = 1 << 20
"""Size of a local file up to which it is compared with the listing once, after it was read: 4 us of 20 us per file with two
comparisons."""


class TrailingData(ValueError):  # noqa: N818 - never seen by users
    """Other data follows the compressed data of a file.

    Parameters
    ----------
    at : int
        Byte of the file at which it begins.
    shown : bytes
        Its first bytes.
    advice : str
        How the compressed data is written without it.
    """

    def __init__(self, at: int, shown: bytes, advice: str) -> None:
        super().__init__(
            f"other data follows the compressed data from byte {at:,} of the file on (it begins {shown!r}). The data before "
            f"it is intact: write it without that data {advice}, or keep its rows with on_bad_rows='quarantine'"
        )
        self.at, self.shown = at, shown


class UnsupportedData(ValueError):  # noqa: N818 - never seen by users
    """Compressed data that is not damaged, and that curator_df does not read."""


class ByteStream(Protocol):
    """Decompressed bytes of a file, in order."""

    def readinto(self, view: memoryview) -> int:
        """Fill the beginning of ``view``; return the number of bytes, 0 at the end of the file."""

    def seek(self, offset: int) -> None:
        """Move to a byte offset; only in a file that is not compressed."""


def is_compressed(path: str) -> bool:
    """Return whether a file is decompressed while it is read, by its suffix.

    Examples
    --------
    >>> is_compressed("a.jsonl.GZ"), is_compressed("a.jsonl")
    (True, False)
    """
    return path.lower().endswith(COMPRESSED_SUFFIXES)


def said_bytes(path: str) -> int:
    """Return the decompressed size that a local file states, as gzip and zstd do; 0 where it states none, or is not local.

    That of gzip is of its last member, and without what exceeds 4 GiB.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(18)
            if head.startswith(b"\x1f\x8b"):
                file.seek(-4, os.SEEK_END)
                return int.from_bytes(file.read(4), "little")
    except OSError:  # not local, or gone: reading it will say so
        return 0
    if not head.startswith(ZSTD_MAGIC) or len(head) < 18:
        return 0
    kind, is_single = head[4] >> 6, bool(head[4] & 0x20)
    place = 5 + (not is_single) + (0, 1, 2, 4)[head[4] & 3]
    width = 1 << kind if kind or is_single else 0
    return int.from_bytes(head[place : place + width], "little") + (256 if kind == 1 else 0)


def open_bytes(
    path: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    listed: Listed | None = None,
    on_trailing: OnTrailing | None = None,
) -> AbstractContextManager[ByteStream]:
    """Open a file as a stream of decompressed bytes.

    Parameters
    ----------
    path : str
        Local path or fsspec URL.
    storage_options : mapping, optional
        Options for fsspec.
    listed : Listed, optional
        State of the file when it was listed: another file, or one that changes while it is read, is an error.
    on_trailing : callable, optional
        Takes data that follows the compressed data, which ends the stream; without it that is an error. Arguments: bytes
        that were decompressed, what is wrong, and the first bytes of that data.

    Returns
    -------
    context manager of ByteStream
        The stream, from its first byte.

    Raises
    ------
    InputError
        If the file does not exist, or cannot be read.
    InputChangedError
        If the file changed after it was listed.
    CorruptFileError
        While reading, if the compressed data is truncated or damaged.
    RemoteFileError
        If the remote store kept failing. Each read is retried for a while first.

    Notes
    -----
    Peak extra memory: 2 MB; up to 27 MB for a zstd bomb; plus a large zstd or xz window or a zstd dictionary, and
    8 MB for a file in a store.
    Computes: no.
    """
    return _Opened(path, storage_options, in_order=True, listed=listed, as_stream=True, on_trailing=on_trailing)


def open_file(
    path: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    in_order: bool = False,
    listed: Listed | None = None,
) -> AbstractContextManager[Any]:
    """Open a file with its bytes on disk, for sequential or random access; otherwise see `open_bytes`."""
    return _Opened(path, storage_options, in_order=in_order, listed=listed, as_stream=False)


class _Opened:
    """Open file that must be unchanged since it was listed, checked after reading; for a large file also on opening."""

    def __init__(
        self,
        path: str,
        options: Mapping[str, Any] | None,
        *,
        in_order: bool,
        listed: Listed | None,
        as_stream: bool,
        on_trailing: OnTrailing | None = None,
    ) -> None:
        self._path, self._options, self._in_order = path, options, in_order
        self._listed, self._as_stream, self._on_trailing = listed, as_stream, on_trailing

    def __enter__(self) -> Any:
        path, listed = self._path, self._listed
        try:
            self._file = file = _open(path, self._options or {}, self._in_order)
        except (RemoteFileError, InputChangedError):
            raise
        except OSError as exc:
            if isinstance(exc, FileNotFoundError) and (said := gone_file(path)):
                raise InputError(said) from exc
            raise InputError(
                f"cannot open {path!r}, although it existed when its folder was listed: {exc.strerror or exc}. Check the "
                "file, and call the read_ function again"
            ) from exc
        if listed is not None and (listed.size_bytes > SMALL_FILE_BYTES or isinstance(file, _Remote)):
            try:
                self._require_unchanged(listed, after=False)
            except BaseException:
                file.close()
                raise
        if not self._as_stream:
            return file
        return Decompressed(file, path, self._on_trailing) if is_compressed(path) else _Plain(file, path)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # A failed read may have mixed parts of an old and a new file.
            if self._listed is not None and (exc is None or _may_be_changed(exc)):
                self._require_unchanged(self._listed, after=True)
        finally:
            self._file.close()

    def _require_unchanged(self, listed: Listed, *, after: bool) -> None:
        if isinstance(self._file, _Remote):
            changed = self._file.change(listed, after=after)
        else:
            changed = local_change(os.fstat(self._file.fileno()), listed)
        if changed is not None:
            raise _changed(self._path, changed)


def _may_be_changed(exc: BaseException) -> bool:
    return isinstance(exc, Exception) and not isinstance(exc, (RemoteFileError, InputChangedError))


def _changed(path: str, how: str) -> InputChangedError:
    return InputChangedError(
        f"{path!r} changed after it was listed: {how}. Rows of two versions are never mixed. Wait until nothing writes "
        "to the file, list the input again (call the read_ function once more), and write to a new folder or with "
        "on_existing='overwrite'"
    )


def _open(path: str, options: Mapping[str, Any], in_order: bool) -> Any:
    if path.startswith("/"):
        file = open(path, "rb", buffering=0, opener=_without_waiting)  # noqa: SIM115 - the caller closes it
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise _changed(path, "it is a pipe or a device now, but was a file when it was listed")
        return file
    import fsspec

    anywhere = {"block_size": BLOCK_BYTES, "cache_type": "blockcache", "cache_options": {"maxblocks": BLOCKS}}
    buffering: dict[str, Any] = {"block_size": STORE_BYTES} if in_order else anywhere

    def opened() -> Any:
        system, name = fsspec.core.url_to_fs(path, **options)
        if not is_pinned(path):
            system.invalidate_cache(name)  # this process's listing may be out of date
        return system.open(name, "rb", **buffering), system, name

    with hub_errors(path) if path.startswith(PROTOCOL) else nullcontext():
        return _Remote(path, *retry_transient(f"open {path!r}", opened))


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; unlike by default, a pipe in its place does not wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


class _Remote:
    """Remote file whose reads are retried while the store's errors are transient; pyarrow accepts it."""

    def __init__(self, path: str, file: Any, system: Any, name: str) -> None:
        self._path, self._file, self._system, self._name = path, file, system, name
        self._offset = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def close(self) -> None:
        self._file.close()

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._again(lambda: self._file.read(size))
        self._offset += len(content)
        return content

    def readinto(self, view: memoryview) -> int:
        count: int = self._again(lambda: self._file.readinto(view) or 0)
        self._offset += count
        return count

    def seek(self, offset: int, whence: int = 0) -> int:
        self._offset = self._file.seek(offset, whence)
        return self._offset

    def tell(self) -> int:
        return self._offset

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def change(self, listed: Listed, *, after: bool) -> str | None:
        """Return how the file differs from its listed state, or None."""
        if after and "IfMatch" in getattr(self._file, "read_kw", ()):
            return None  # S3 refuses to read another version of the file than the opened one
        if is_pinned(self._path):
            return None  # a commit never changes; a request for each input split would meet the hub's rate limit
        known = None if after else getattr(self._file, "details", None)
        known = known if isinstance(known, Mapping) and "size" in known else None
        return retry_transient(
            f"look up {self._path!r}", lambda: remote_change(self._system, self._name, known, listed)
        )

    def _again(self, read: Callable[[], Any]) -> Any:
        def once() -> Any:
            try:
                if self._file.tell() != self._offset:  # position of the previous attempt
                    self._file.seek(self._offset)
                with hub_errors(self._path) if self._path.startswith(PROTOCOL) else nullcontext():
                    return read()
            except PermissionError as exc:  # pyarrow would take it for a damaged file
                raise RemoteFileError(
                    f"permission to read {self._path!r} was refused: {without_queries(str(exc))}. "
                    "Check the credentials of the workers, then repeat the run with "
                    "on_existing='resume'"
                ) from without_frames(exc)
            except OSError as exc:
                if type(exc).__name__ != "FileExpired":  # s3fs; it looks like a busy store
                    raise
                raise _changed(self._path, "the store has another version of it now than when it was listed") from exc

        return retry_transient(f"read {self._path!r}", once)


class _Plain:
    """File with its bytes on disk."""

    def __init__(self, file: Any, path: str) -> None:
        self._file, self._path = file, path

    def readinto(self, view: memoryview) -> int:
        try:
            return int(self._file.readinto(view) or 0)
        except (RemoteFileError, InputChangedError):
            raise
        except OSError as exc:
            raise CorruptFileError(
                f"cannot continue to read {self._path!r}: {exc.strerror or exc}. Repeat the run with on_existing='resume'. "
                "If the error comes back, copy or download the file again"
            ) from exc

    def seek(self, offset: int) -> None:
        self._file.seek(offset)


class Decompressed:
    """Compressed file; its pieces are copied into the caller's buffer, never joined."""

    def __init__(self, file: Any, path: str, on_trailing: OnTrailing | None = None) -> None:
        from curator_df.io.streams.zstd_frames import ZstdFrames  # which needs this module

        self._file, self._path, self._on_trailing = file, path, on_trailing
        self._offset = 0
        self.damaged_from = 0, 0
        """After an error: byte of the file, and of the decompressed data, at which what is damaged begins."""
        self._frames = ZstdFrames(file) if path.lower().endswith(ZSTD_SUFFIXES) else None
        self._pieces = _pieces(file, path) if self._frames is None else self._frames.pieces()
        self._rest = memoryview(b"")

    def readinto(self, view: memoryview) -> int:
        """Fill the beginning of ``view``; return how many bytes, 0 at the end."""
        while not self._rest:
            try:
                piece = next(self._pieces, None)
            except (RemoteFileError, InputChangedError):
                raise
            except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as exc:
                if isinstance(exc, TrailingData):
                    self.damaged_from = exc.at, self._offset
                elif self._frames is not None:
                    self.damaged_from = self._frames.member, self._frames.position
                if self._on_trailing is None or not isinstance(exc, TrailingData):
                    raise CorruptFileError(self._damage(exc)) from exc
                self._on_trailing(self._offset, self._trailing(exc), exc.shown)
                piece, self._pieces = None, iter(())
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(self._rest), len(view))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self._offset += count
        return count

    def seek(self, offset: int) -> None:
        """Raise `NotImplementedError`."""
        raise NotImplementedError(
            "a compressed file can only be read from its start. This is a defect in curator_df; please report it with this "
            "traceback"
        )

    def resume(self, beginning: bytes) -> str:
        """After an error, go on at the next zstd frame whose data begins as given, or end.

        Returns
        -------
        str
            How many bytes of the file that passes over, in words.
        """
        start, _ = self.damaged_from
        found = None if self._frames is None else self._frames.find_frame(start + 1, beginning)
        if found is None or self._frames is None:
            self._pieces = iter(())
        else:
            self._file.seek(found)
            self._pieces = self._frames.pieces()
        return passed_over(start, found, int(self._file.seek(0, os.SEEK_END)) if found is None else found)

    def _trailing(self, exc: TrailingData) -> str:
        count = self._file.seek(0, os.SEEK_END) - exc.at
        follow = "follows" if count == 1 else "follow"
        return f"{show_count(count, 'byte')} of other data {follow} the compressed data, from byte {exc.at:,} of the file on"

    def _damage(self, exc: BaseException) -> str:
        if not self._offset:
            self._file.seek(0)
            head = bytes(self._file.read(HEAD_BYTES))
            if other := other_content(self._path, head):
                return f"{self._path!r} {other}"
        read = f"{self._offset:,} decompressed bytes could be read"
        if isinstance(exc, UnsupportedData):
            return f"{self._path!r} cannot be read: {exc}; {read}"
        return f"{self._path!r} is damaged or truncated: {exc}; {read}. Download the file again, or leave it out"


def other_content(path: str, head: bytes, *, if_known: bool = False) -> str:
    """Say what a file is if its first bytes are not those of the compression that its name says; otherwise empty.

    With ``if_known``, the result is also empty where the content is unknown: the compressed data may only begin with damage.
    """
    suffix = next((suffix for suffix in COMPRESSED_SUFFIXES if path.lower().endswith(suffix)), None)
    name, mark = _MARKS[suffix] if suffix is not None else ("", b"")
    if head[: len(mark)] == mark[: len(head)] or (suffix in ZSTD_SUFFIXES and head[1:4] == ZSTD_SKIPPABLE):
        return ""
    found = None if head.startswith(b"WARC/") else other_format(head, "")
    if found is None and is_plain_text(head):
        found = f"text that is not compressed; rename it so that its name does not end in {suffix}"
    if found is None and if_known:
        return ""
    way_out = "Download the file again, or leave it out" if found is None else f"By its content it is {found}"
    return f"is not {name}, though its name says so: it begins {head[:SHOWN_BYTES]!r}. {way_out}"


def passed_over(start: int, found: int | None, stop: int) -> str:
    """Say how many bytes of a compressed file are not read, from where the damage begins to what can be read again."""
    count = show_count(stop - start, "byte")
    end = "where the file ends" if found is None else "where the next record that can be read begins"
    return (
        f"passed over {count} of the file, from byte {start:,}, where what is damaged begins, to byte {stop:,}, {end}"
    )


def _pieces(file: Any, path: str) -> Iterator[bytes]:
    suffix = path.lower().rpartition(".")[2]
    if suffix in ("gz", "gzip"):
        # zlib itself 231 MB/s, the gzip module 185, Arrow's CompressedInputStream 241.
        return _member_pieces(file, Gzip, "gzip -dc old.gz | gzip > new.gz", padding=True)
    if suffix == "bz2":
        return _member_pieces(file, bz2.BZ2Decompressor, "head -c {} old.bz2 > new.bz2", padding=False)
    # Only xz: in the format of .lzma, which the module reads too, zero bytes are a whole empty file.
    new = partial(lzma.LZMADecompressor, format=lzma.FORMAT_XZ, memlimit=LARGEST_WINDOW_BYTES)
    return _member_pieces(file, new, "head -c {} old.xz > new.xz", padding=True)


class Gzip:
    """Gzip member, or zlib or bare deflate data, with the interface of `bz2.BZ2Decompressor`."""

    def __init__(self, window_bits: int = 31) -> None:
        self._inflate = zlib.decompressobj(wbits=window_bits)

    @property
    def eof(self) -> bool:
        """Whether the data has ended."""
        return self._inflate.eof

    @property
    def needs_input(self) -> bool:
        """Whether all input data has been decompressed."""
        return not self._inflate.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        """Data after the end."""
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return the next bytes."""
        return self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)


def _member_pieces(file: Any, new: Callable[[], Any], remedy: str, *, padding: bool) -> Iterator[bytes]:
    """Decompress consecutive members; zero bytes may pad the end of gzip and xz files.

    ``remedy`` is a command that writes the file without data that follows its members, from their length in bytes.
    """
    data = file.read(READ_BYTES)
    mark = data[:MARK_BYTES]
    while data:
        if len(data) < SHOWN_BYTES:
            data += file.read(READ_BYTES)
        if not data.startswith(mark):
            at = file.tell() - len(data)
            raise TrailingData(at, data[:SHOWN_BYTES], f"({remedy.format(at)})")
        member = new()
        while not member.eof:
            if member.needs_input and not data:
                raise EOFError("the compressed data ends too early, so the file is truncated")
            try:
                piece = member.decompress(data, OUTPUT_BYTES)
            except lzma.LZMAError as exc:
                if "Memory usage limit" not in str(exc):
                    raise
                raise UnsupportedData(
                    f"it needs a dictionary of more than {LARGEST_WINDOW_BYTES >> 20} MiB; write it again "
                    "(xz -dc old.xz | xz > new.xz)"
                ) from exc
            data = file.read(READ_BYTES) if member.needs_input and not member.eof else b""
            if piece:
                yield piece
        data = member.unused_data or file.read(READ_BYTES)
        while padding and data[:1] == b"\0":
            data = data.lstrip(b"\0") or file.read(READ_BYTES)

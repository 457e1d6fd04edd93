# SPDX-License-Identifier: Apache-2.0
"""Text files as a lazy table, one document per file: `read_text_files`, and its source."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask.dataframe as dd
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from curator_df.arguments import choose
from curator_df.core.backend import Backend
from curator_df.core.fingerprint import fingerprint
from curator_df.core.ranges.source import OFFSET_BITS, BadRow, Range, Ranges, RowChoice
from curator_df.errors import BadRowError, OversizeRowError, ParameterError
from curator_df.files.storage import shown_path
from curator_df.io import cut
from curator_df.io.bad_rows import WarnOfBadRows, collect_trailing, report
from curator_df.io.device_transfer import require_gpu
from curator_df.io.formats import COMPRESSED_SUFFIXES, HEAD_BYTES, other_format, wide_encoding
from curator_df.io.frames import check_address_space, chosen_columns, empty_block, to_block
from curator_df.io.jsonl.reader import OnBadRows
from curator_df.io.listing import Listing, Paths, list_files
from curator_df.io.partitions import block_bytes_of, from_source
from curator_df.io.streams.file_stream import is_compressed, open_bytes

SUFFIXES = (".txt", ".text", ".md")
"""Required endings of files found in a directory, possibly followed by a compression suffix."""
COLUMNS = pa.schema([("path", pa.large_string()), ("text", pa.large_string())])
READ_BYTES = 1 << 20
"""Bytes of a file decoded in each step."""
READER_FACTOR = 3.5
"""Memory multiplier of the reader, per byte of the block. Measured (tests/io/test_reader_memory.py): 3.2 for files of 135 kB;
the pieces of its texts, and their concatenation."""


@dataclass(frozen=True)
class TextSource:
    """Source with a row for each file, for the runner. Made by `read_text_files`."""

    listing: Listing
    """Files of the input."""
    encoding: str
    """Encoding of all files."""
    columns: tuple[str, ...]
    """Columns of `COLUMNS` that are made."""
    quarantines: bool
    """Whether files that are not in the encoding are quarantined instead of raising."""
    reader_factor: float = READER_FACTOR
    """Peak bytes held while a block is made, the block included, as a multiple of its ``block_bytes``."""
    reader_fixed_bytes: int = 0
    """Bytes held in addition to blocks, always 0."""

    @property
    def files(self) -> Sequence[str]:
        """Paths or URLs, in input order."""
        return self.listing.paths

    @property
    def schema(self) -> pa.Schema:
        """Columns of a block."""
        return pa.schema([COLUMNS.field(name) for name in self.columns])

    @property
    def meta(self) -> pd.DataFrame:
        """Empty block with the columns and dtypes of every block."""
        return empty_block(self.schema)

    @property
    def asked(self) -> Mapping[str, Any]:
        """Parameters of the reader, shown in an error if they differ from those of the run to resume."""
        return {
            "encoding": self.encoding.removesuffix("-sig"),
            "columns": self.columns,
            "on_bad_rows": "quarantine" if self.quarantines else "raise",
        }

    @property
    def fingerprint(self) -> str:
        """Digest of the listing and of the data read from it."""
        return fingerprint("text files", self.listing.fingerprint, self.encoding, self.columns, self.quarantines)

    @property
    def input_bytes(self) -> int:
        """Size of all files on disk."""
        return self.listing.total_bytes

    @property
    def text_bytes(self) -> int:
        """Approximate decompressed size of all files, without reading them."""
        return int(self._about_bytes().sum())

    def about_rows(self) -> int | None:
        """Return the number of files."""
        return len(self.listing)

    def cut(self, piece_bytes: int) -> Ranges:
        """Cut the input into input splits of whole files, of about ``piece_bytes`` decompressed bytes or of one file."""
        cut.check_piece(piece_bytes)
        costs = np.maximum(self._about_bytes(), cut.SMALLEST_FILE_BYTES)
        return cut.cut_units(self.listing.sizes, np.ones(len(costs), np.int64), costs, piece_bytes)

    def cut_files(self, files_per_range: int) -> Ranges:
        """Cut the input into input splits of ``files_per_range`` whole files."""
        return cut.cut_files(self.listing.sizes, files_per_range)

    def select(self, columns: Sequence[str]) -> TextSource:
        """Return this source with only these columns."""
        return replace(self, columns=tuple(columns))

    def blocks(
        self,
        piece: Range,
        *,
        block_bytes: int,
        largest_row_bytes: int | None = None,
        on_bad_row: Callable[[BadRow], None] | None = None,
        on_long_row: Callable[[OversizeRowError], None] | None = None,
        wanted: RowChoice | None = None,
    ) -> Iterator[pd.DataFrame]:
        """Stream an input split as blocks of about ``block_bytes``; see `Source.blocks`.

        Notes
        -----
        Rows: all (or all that are wanted) but bad ones. Peak extra memory: ``reader_factor`` x block. Computes: no.
        """
        warning = WarnOfBadRows() if self.quarantines and on_bad_row is None else None
        aside = (on_bad_row or warning) if self.quarantines else None
        about, held = self._about_bytes(), _Held(self)
        trailing: list[BadRow] = []
        files = np.arange(piece.first_file, piece.last_file + 1)
        for file in (files if wanted is None else files[wanted(files << OFFSET_BITS)]).tolist():
            if held.files and held.size_bytes + about[file] > block_bytes:
                yield held.block()
            trailing.clear()
            try:
                text = self._text(file, block_bytes - held.size_bytes if held.files else largest_row_bytes, trailing)
                if text is None and held.files:  # it decompresses to more than estimated
                    yield held.block()
                    trailing.clear()
                    text = self._text(file, largest_row_bytes, trailing)
            except BadRowError as exc:
                if aside is None:
                    raise
                aside(BadRow(self.files[file], 1, 0, str(exc.__cause__), b""))
                continue
            report(trailing, aside)
            if text is not None:
                held.add(file, text)
                continue
            self._refuse(file, largest_row_bytes or 0, on_long_row)
        if held.files:
            yield held.block()
        if warning is not None:
            warning.warn()

    def _about_bytes(self) -> npt.NDArray[np.int64]:
        packed = np.fromiter((is_compressed(path) for path in self.files), np.bool_, len(self.listing))
        return np.where(packed, self.listing.sizes * cut.COMPRESSION_RATIO, self.listing.sizes)

    def _text(self, file: int, most_bytes: int | None, trailing: list[BadRow]) -> list[bytes] | None:
        """Return a file's text as pieces of UTF-8; None if it has more bytes. ``trailing`` takes what follows it."""
        path, pieces, size_bytes = self.files[file], [], 0
        decoder = codecs.getincrementaldecoder(self.encoding)()
        buffer, read_bytes = memoryview(bytearray(READ_BYTES)), 0
        on_trailing = collect_trailing(path, trailing) if self.quarantines else None
        with open_bytes(
            path, self.listing.storage_options, listed=self.listing.listed(path), on_trailing=on_trailing
        ) as stream:
            count = 1
            while count:
                count = stream.readinto(buffer)
                if not read_bytes:
                    self._require_text(path, bytes(buffer[: min(count, HEAD_BYTES)]))
                before = read_bytes - len(decoder.getstate()[0])
                try:
                    # Surrogates, which text cannot contain, are an error of the encoder.
                    pieces.append(decoder.decode(buffer[:count], final=not count).encode())
                except UnicodeError as exc:
                    at = before + exc.start if isinstance(exc, UnicodeDecodeError) else before
                    reason = _why_not_decoded(self.encoding.removesuffix("-sig"), at, exc)  # a suffix of ours
                    raise BadRowError(
                        f"{path!r}, byte {at:,}: {reason}. Set the encoding of the files with encoding=, or quarantine such "
                        "files with on_bad_rows='quarantine'"
                    ) from ValueError(reason)
                read_bytes += count
                size_bytes += len(pieces[-1])
                if most_bytes is not None and size_bytes > most_bytes:
                    return None
        return pieces

    def _require_text(self, path: str, head: bytes) -> None:
        """Raise for a file that does not begin like text, even if the encoding has characters for all its bytes."""
        found = other_format(head, path, kind="text")
        if head and not head.strip(b"\0"):
            found = "not text: it begins with NUL bytes, as after a crash while it was written; leave it out"
        if found is None and self.encoding.startswith("utf-8"):
            encoding = wide_encoding(head)
            found = None if encoding is None else f"{encoding} by its first bytes; set encoding={encoding.lower()!r}"
        if found is not None:
            reason = f"the file is {found}"
            raise BadRowError(
                f"{path!r}, byte 0: {reason}. Such files can also be quarantined, with on_bad_rows='quarantine'"
            ) from ValueError(reason)

    def _refuse(self, file: int, limit: int, on_long_row: Callable[[OversizeRowError], None] | None) -> None:
        path, size = self.files[file], int(self.listing.sizes[file])
        error = OversizeRowError(
            f"{path!r}: the file ({size:,} bytes on disk) is one row, but only {limit:,} bytes fit into the memory budget. Use "
            "a larger memory=, or leave the file out"
        )
        error.path, error.line, error.offset, error.row_bytes = path, 1, 0, max(size, limit + 1)
        if on_long_row is None:
            raise error
        on_long_row(error)


def _why_not_decoded(encoding: str, at: int, exc: UnicodeError) -> str:
    """Explain why bytes of a file, from position ``at`` on, are not text in an encoding."""
    if not isinstance(exc, UnicodeDecodeError):
        return f"the file is not {encoding}: it has a lone surrogate"
    return f"the file is not {encoding}: byte {at:,} is 0x{exc.object[exc.start]:02X}"


class _Held:
    """Texts that wait until they fill a block."""

    def __init__(self, source: TextSource) -> None:
        self._source = source
        self.files: list[int] = []
        self.size_bytes = 0
        self._pieces: list[bytes] = []
        self._lengths: list[int] = []

    def add(self, file: int, pieces: list[bytes]) -> None:
        """Add the text of a file."""
        self.files.append(file)
        self._lengths.append(sum(map(len, pieces)))
        self.size_bytes += self._lengths[-1]
        self._pieces += pieces

    def block(self) -> pd.DataFrame:
        """Return the added texts as a block, and release them."""
        columns: dict[str, Any] = {"path": [shown_path(self._source.files[file]) for file in self.files]}
        if "text" in self._source.columns:
            data = b"".join(self._pieces)
            offsets = np.concatenate(([0], np.cumsum(self._lengths))).astype(np.int64)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            columns["text"] = pa.Array.from_buffers(pa.large_string(), len(self.files), buffers)
        addresses = np.array(self.files, dtype=np.int64) << OFFSET_BITS
        self.files, self.size_bytes, self._pieces, self._lengths = [], 0, [], []
        schema = self._source.schema
        return to_block(pa.table({name: columns[name] for name in schema.names}, schema=schema), addresses)


def read_text_files(
    paths: Paths,
    *,
    columns: Sequence[str] | str | None = None,
    encoding: str = "utf-8",
    suffixes: Sequence[str] = SUFFIXES,
    blocksize: int | str | None = None,
    files_per_partition: int | None = None,
    on_bad_rows: OnBadRows = "raise",
    backend: Backend = "pandas",
    storage_options: Mapping[str, Any] | None = None,
) -> dd.DataFrame:
    """Read text files as a lazy table, one row for each file.

    Parameters
    ----------
    paths : str, path or list of them
        Files, directories, globs or fsspec URLs; ``.gz``, ``.zst``, ``.bz2`` and ``.xz`` are decompressed.
    columns : list of str, optional
        Which of ``path`` and ``text`` to include. Default: both.
    encoding : str, default "utf-8"
        Encoding of all files, by its Python name. A UTF-8 byte order mark at the beginning of a file is removed.
    suffixes : sequence of str
        Required endings of files found in a directory, possibly followed by a compression suffix; an empty one accepts
        all files. Files that are named, or matched by a glob, need none of them.
    blocksize : int or str, optional
        Approximate decompressed bytes of a Dask partition, such as ``"256MB"``. A file is never split.
    files_per_partition : int, optional
        Files per Dask partition, instead of a size.
    on_bad_rows : {"raise", "quarantine"}
        What to do with a file that is not in the encoding: raise an error that names file and byte, or skip and report it.
        Other data that follows the compressed data of a file is skipped and reported alone; the text of the file is kept.
    backend : {"pandas", "cudf"}
        Where to put the blocks that are read: ``"cudf"`` adds a `to_backend` step and needs a GPU.
    storage_options : mapping, optional
        Options for the fsspec file system of URLs.

    Returns
    -------
    dask.dataframe.DataFrame
        ``path`` and ``text`` (``string[pyarrow]``), with the line ends of the file; the index ``address`` (int64) is
        the file number times 2^40.

    Raises
    ------
    InputError
        Nothing matches an entry of ``paths``.
    InputChangedError
        While reading: a file was changed, appended to or replaced after it was listed.
    BadRowError
        While reading: a file is not in the encoding.
    OversizeRowError
        While reading: the text of a file does not fit into the memory budget.
    ParameterError
        An argument is invalid, or the encoding is unknown.
    UnsupportedBackendError
        ``backend="cudf"`` where there is no GPU.
    MissingExtraError
        ``backend="cudf"`` without the gpu extra.

    See Also
    --------
    read_jsonl, read_csv

    Notes
    -----
    Rows: one for each file. Columns: ``path`` and ``text``. Backends: pandas; cudf with ``backend="cudf"``. Peak extra
    memory: 3.5 x block. Computes: no; it lists the files.

    A file larger than a block is a separate block; during a run, one that does not fit next to other tasks runs exclusively.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("one"), (folder / "b.txt").write_text("two")
    >>> read_text_files(folder, columns="text").compute()["text"].tolist()
    ['one', 'two']
    """
    require_gpu("read_text_files", backend)
    choose("read_text_files", "on_bad_rows", on_bad_rows, OnBadRows)
    wanted = [suffixes] if isinstance(suffixes, str) else list(suffixes)
    packed = [suffix.lower() + packing for suffix in wanted if suffix for packing in COMPRESSED_SUFFIXES]
    every = () if "" in wanted else (*(suffix.lower() for suffix in wanted), *packed)
    listing = list_files(paths, suffixes=every, storage_options=storage_options)
    block_bytes = block_bytes_of("read_text_files", blocksize, files_per_partition, listing.total_bytes)
    check_address_space(listing, "read_text_files")
    source = TextSource(
        listing,
        known_encoding(encoding),
        tuple(chosen_columns(COLUMNS, columns, "read_text_files")),
        on_bad_rows == "quarantine",
    )
    ranges = source.cut(block_bytes) if files_per_partition is None else source.cut_files(files_per_partition)
    return from_source(source, ranges, block_bytes=block_bytes, explicit=blocksize is not None, backend=backend)


def known_encoding(name: str) -> str:
    """Return Python's name of a text encoding; that of UTF-8 removes a byte order mark.

    Examples
    --------
    >>> known_encoding("UTF8"), known_encoding("latin1")
    ('utf-8-sig', 'iso8859-1')
    """
    try:
        found = codecs.lookup(name)
        "".encode(found.name)
    except LookupError as exc:
        raise ParameterError(
            f"read_text_files: encoding={name!r} is unknown to Python. Use one such as 'utf-8', 'cp1252' or 'shift_jis'"
        ) from exc
    return "utf-8-sig" if found.name == "utf-8" else found.name

# SPDX-License-Identifier: Apache-2.0
"""Web crawl files as a lazy table with a row for each page: `read_warc`, and its source.

`records` and `streams.gzip_members` find the records; `pages` interprets them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
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
from curator_df.core.ranges.blocks import BlockKernel, Outcome, map_blocks
from curator_df.core.ranges.price import Price
from curator_df.core.ranges.source import OFFSET_BITS, BadRow, Range, Ranges, RowChoice
from curator_df.errors import BadRowError, CorruptFileError, CuratorError, OversizeRowError
from curator_df.extras import require_package
from curator_df.io import cut
from curator_df.io.bad_rows import WarnOfBadRows
from curator_df.io.device_transfer import require_gpu, to_backend
from curator_df.io.formats import COMPRESSED_SUFFIXES, HEAD_BYTES, begins_as_json, other_format
from curator_df.io.frames import check_address_space, chosen_columns, empty_block, to_block
from curator_df.io.jsonl.reader import OnBadRows
from curator_df.io.listing import Listing, Paths, list_files
from curator_df.io.partitions import block_bytes_of, from_source
from curator_df.io.streams.file_stream import ZSTD_MAGIC, is_compressed, open_bytes, open_file, other_content
from curator_df.io.streams.gzip_members import BEGINNING, MAGIC, MemberPieces, find_member
from curator_df.io.warc.http_messages import LongPage
from curator_df.io.warc.pages import Page, has_no_page, other_type, page_of, page_of_head
from curator_df.io.warc.records import BadRecord, Head, StreamPieces, WarcRecords

COLUMNS = pa.schema(
    [
        ("url", pa.large_string()),
        ("date", pa.large_string()),
        ("status", pa.int64()),
        ("content_type", pa.large_string()),
        ("language", pa.large_string()),
        ("text", pa.large_string()),
    ]
)
SKIPPED = pa.field("skipped", pa.large_string())
"""Column of the source, not of the table: the reason why a record is not a page."""
NOTED = pa.field("noted", pa.large_string())
"""Column of the source, not of the table: the note on a page that is counted."""
ROW_BYTES = 500
"""Bytes counted for a row in addition to its text: it consists of Python objects until its block is made."""


class HeldPages:
    """Records that wait until they fill a block."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._addresses: list[int] = []
        self._pages: list[Page] = []
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._pages)

    def add(self, address: int, page: Page) -> None:
        """Add a record."""
        self._addresses.append(address)
        self._pages.append(page)
        self.size_bytes += page.text_bytes + ROW_BYTES

    def block(self) -> pd.DataFrame:
        """Return the added records as a block, and release them."""
        pages, addresses = self._pages, np.array(self._addresses, np.int64)
        self._addresses, self._pages, self.size_bytes = [], [], 0
        columns = [
            _texts(pages)
            if field.name == "text"
            else pa.array([getattr(page, field.name) for page in pages], field.type)
            for field in self._schema
        ]
        return to_block(pa.Table.from_arrays(columns, schema=self._schema), addresses)


def _texts(pages: list[Page]) -> pa.Array:
    """Concatenate the texts of pages, removing them from the pages; a record that is not a page has none."""
    offsets = np.concatenate(([0], np.cumsum([page.text_bytes for page in pages]))).astype(np.int64)
    data = b"".join(piece for page in pages for piece in page.pieces)
    for page in pages:
        page.pieces = []
    is_page = pa.array([page.skipped is None for page in pages])
    return pa.Array.from_buffers(
        pa.large_string(), len(pages), [is_page.buffers()[1], pa.py_buffer(offsets), pa.py_buffer(data)]
    )


SUFFIXES = tuple(plain + packed for plain in (".warc", ".wet") for packed in ("", *COMPRESSED_SUFFIXES))
"""Required endings of files found in a directory."""
GZIP_SUFFIXES = (".gz", ".gzip")
HTML_TYPES = ("text/html", "application/xhtml+xml")
"""Default content types of pages."""
READER_FACTOR = 3.5
"""Memory multiplier of the reader, per byte of the block. Measured (tests/io/test_reader_memory.py) while another library read
the HTTP messages and held a copy: 3.0 of one page of 40 MB, 2.0 where it is packed, 2.1 of pages of 54 kB: an upper bound."""
_ARC_BEGINNING = b"filedesc://"
STEP_PEAK_FACTOR = 1.2
"""Memory multiplier of any step that keeps some rows."""


@dataclass(frozen=True)
class WarcSource:
    """Source with a row for each record of WARC files, for the runner. Made by `read_warc`."""

    listing: Listing
    """Files of the input."""
    columns: tuple[str, ...]
    """Columns of `COLUMNS`, and `SKIPPED` and `NOTED`, that are made."""
    content_types: tuple[str, ...] | None
    """Types of pages; None for all."""
    quarantines: bool
    """Whether records that cannot be read are quarantined instead of raising."""
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
        every = pa.schema([*COLUMNS, SKIPPED, NOTED])
        return pa.schema([every.field(name) for name in self.columns])

    @property
    def meta(self) -> pd.DataFrame:
        """Empty block with the columns and dtypes of every block."""
        return empty_block(self.schema)

    @property
    def asked(self) -> Mapping[str, Any]:
        """Parameters of the reader, shown in an error if they differ from those of the run to resume."""
        on_bad_rows = "quarantine" if self.quarantines else "raise"
        return {"columns": self.columns, "content_types": self.content_types, "on_bad_rows": on_bad_rows}

    @property
    def fingerprint(self) -> str:
        """Digest of the listing and of the data read from it."""
        return fingerprint("warc", self.listing.fingerprint, self.columns, self.content_types, self.quarantines)

    @property
    def input_bytes(self) -> int:
        """Size of all files on disk."""
        return self.listing.total_bytes

    @property
    def text_bytes(self) -> int:
        """Approximate decompressed size of all files, without reading them."""
        return int(self._about_bytes().sum())

    def about_rows(self) -> int | None:
        """Return None: records are counted by reading them."""
        return None

    def cut(self, piece_bytes: int) -> Ranges:
        """Cut the input into input splits of about ``piece_bytes`` decompressed bytes, by file sizes alone.

        A gzip file is split anywhere; an input split has the members that begin in it, or after it if none is found. Others are
        not split.
        """
        cut.check_piece(piece_bytes)
        about = self._about_bytes()
        pieces = np.where([_is_gzip(path) for path in self.files], -(-about // piece_bytes), 1)
        costs = np.maximum(about, cut.SMALLEST_FILE_BYTES)
        return cut.cut_units(self.listing.sizes, np.maximum(pieces, 1), costs, piece_bytes)

    def cut_files(self, files_per_range: int) -> Ranges:
        """Cut the input into input splits of ``files_per_range`` whole files."""
        return cut.cut_files(self.listing.sizes, files_per_range)

    def select(self, columns: Sequence[str]) -> WarcSource:
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
        reading = _Reading(
            wanted, largest_row_bytes, (on_bad_row or warning) if self.quarantines else None, on_long_row
        )
        held = HeldPages(self.schema)
        for file in range(piece.first_file, piece.last_file + 1):
            with self._records(piece, file) as records:
                for head in self._heads(records, file, reading):
                    if held and held.size_bytes + head.record_bytes > block_bytes:
                        yield held.block()
                    page = self._page(head, records, file, reading)
                    if page is None:
                        continue
                    if held and held.size_bytes + page.text_bytes > block_bytes:
                        yield held.block()
                    held.add((file << OFFSET_BITS) + head.offset, page)
        if held:
            yield held.block()
        if warning is not None:
            warning.warn()

    def _about_bytes(self) -> npt.NDArray[np.int64]:
        packed = np.fromiter((is_compressed(path) for path in self.files), np.bool_, len(self.listing))
        return np.where(packed, self.listing.sizes * cut.COMPRESSION_RATIO, self.listing.sizes)

    @contextmanager
    def _records(self, piece: Range, file: int) -> Iterator[WarcRecords]:
        """Open the part of a file that belongs to an input split."""
        path, size, options = self.files[file], int(self.listing.sizes[file]), self.listing.storage_options
        if not _is_gzip(path):
            with open_bytes(path, options, listed=self.listing.listed(path)) as stream:
                yield WarcRecords(StreamPieces(stream))
            return
        start = piece.start if file == piece.first_file else 0
        stop = piece.stop if file == piece.last_file else size
        is_whole = not start and stop == size
        known: dict[str, Any] = {"storage_options": options, "listed": self.listing.listed(path)}
        with open_file(path, **known) as opened, nullcontext() if is_whole else open_file(path, **known) as searched:
            first = find_member(searched, start, stop) if start else 0
            pieces = MemberPieces(opened, size if first is None else first, size)
            yield WarcRecords(pieces, None if stop == size else _End(searched, path, stop))

    def _heads(self, records: WarcRecords, file: int, reading: _Reading) -> Iterator[Head]:
        """Yield the header of each record; the caller moves on to the next record."""
        while True:
            try:
                head = records.next_head()
            except BadRecord as bad:
                self._set_aside(bad, records, file, reading)
                continue
            if head is None:
                return
            yield head

    def _page(self, head: Head, records: WarcRecords, file: int, reading: _Reading) -> Page | None:
        """Return the row of a record; None if it is not requested, or was quarantined."""
        limit, row_bytes = reading.largest_row_bytes, head.record_bytes
        reason = has_no_page(head)
        is_long = limit is not None and row_bytes > limit and reason is None
        try:
            if not reading.wants((file << OFFSET_BITS) + head.offset):
                records.skip(head)
                return None
            if not is_long and reason is None:
                return page_of(head, records, self.content_types, limit)
            page = other_type(head, records, self.content_types) if reason is None else page_of_head(head, reason)
            records.skip(head)
            if page is not None:
                return page
        except LongPage as exc:
            row_bytes = exc.text_bytes
        except BadRecord as bad:
            self._set_aside(bad, records, file, reading)
            return None
        reading.refuse(self.files[file], head.offset, row_bytes)
        return None

    def _set_aside(self, bad: BadRecord, records: WarcRecords, file: int, reading: _Reading) -> None:
        """Quarantine a bad record and go on after it, or raise."""
        path = self.files[file]
        if not bad.offset and (other := self._other_kind(path, bad.raw)):
            raise CorruptFileError(f"{path!r} {other}") from bad
        found = None if bad.offset or bad.raw.startswith(BEGINNING) else self._content(path, bad)
        reason = bad.reason if found is None else f"the file {found}"
        if reading.on_bad_row is not None:
            passed = records.recover()
            reading.on_bad_row(BadRow(path, 0, bad.offset, "; ".join(filter(None, (reason, passed))), bad.raw))
            return
        kind: type[CuratorError] = CorruptFileError if bad.is_damage else BadRowError
        advice = "Download the file again, or" if found is None else "Or"
        raise kind(
            f"{path!r}, record at byte {bad.offset:,}: {reason}. {advice} quarantine such records with on_bad_rows='quarantine'"
        ) from bad

    def _content(self, path: str, bad: BadRecord) -> str | None:
        """Say what a file without a first record is, with advice; None if that is unknown."""
        if bad.is_damage:
            with open_file(path, self.listing.storage_options) as file:
                return other_content(path, file.read(HEAD_BYTES), if_known=True) or None
        if found := other_format(bad.raw, ""):
            return f"is {found}"
        return "is JSON (by its first bytes); read JSON Lines with read_jsonl" if begins_as_json(bad.raw) else None

    def _other_kind(self, path: str, raw: bytes) -> str | None:
        """Describe a file that does not begin with a record, with advice; None if its kind is unknown."""
        with open_file(path, self.listing.storage_options) as file:
            beginning = file.read(len(ZSTD_MAGIC))
        if raw.startswith(_ARC_BEGINNING):
            return (
                "is an ARC file, the format before WARC, which read_warc does not read. Convert it, for example with warcio: "
                "warcio recompress old.arc.gz new.warc.gz"
            )
        if beginning == BEGINNING[:4] and is_compressed(path):
            return "holds WARC records that are not compressed. Rename it so that its name ends in .warc"
        for magic, suffix in ((MAGIC, ".gz"), (ZSTD_MAGIC, ".zst")):
            if beginning.startswith(magic) and not is_compressed(path):
                return f"is compressed. Rename it so that its name ends in {suffix}"
        return None


@dataclass(frozen=True)
class _Reading:
    """Parameters of a call of `WarcSource.blocks`."""

    wanted: RowChoice | None
    largest_row_bytes: int | None
    on_bad_row: Callable[[BadRow], None] | None
    on_long_row: Callable[[OversizeRowError], None] | None

    def wants(self, address: int) -> bool:
        return self.wanted is None or bool(self.wanted(np.array([address]))[0])

    def refuse(self, path: str, offset: int, row_bytes: int) -> None:
        error = OversizeRowError(
            f"{path!r}, record at byte {offset:,}: the page has {row_bytes:,} bytes or more, but {self.largest_row_bytes:,} fit "
            "into the memory budget. Use a larger memory=, or remove the record from the file"
        )
        error.path, error.line, error.offset, error.row_bytes = path, 0, offset, row_bytes
        if self.on_long_row is None:
            raise error
        self.on_long_row(error)


class _End:
    """Test whether reading ends at a member: the first one after the end of an input split that the next reader finds."""

    def __init__(self, file: Any, path: str, stop: int) -> None:
        self._file, self._path, self._from = file, path, stop

    def __call__(self, member: int) -> bool:
        """Test a member; they are tested in order."""
        if member < self._from:
            return False
        found = find_member(self._file, self._from, member + 1)
        if found is not None and found < member:
            raise CorruptFileError(
                f"{self._path!r}: at byte {found:,} compressed records begin inside another compressed part (gzip member), "
                "so the file cannot be split. Decompress the file (gunzip), and read the result"
            )
        self._from = member + 1
        return found is not None


def _is_gzip(path: str) -> bool:
    return path.lower().endswith(GZIP_SUFFIXES)


def keep_pages_block(block: Any) -> Outcome:
    """Kernel of `read_warc`: keep the records that are pages."""
    skipped = block["skipped"]
    is_page = skipped.isna().to_numpy()
    kept = block.loc[is_page, [name for name in block.columns if name not in ("skipped", "noted")]]
    noted = block.loc[is_page, "noted"].dropna()
    reasons = skipped.dropna()
    return Outcome(
        kept,
        dropped={str(reason): int(count) for reason, count in reasons.value_counts().items()},
        counters={f"pages_{note}": int(count) for note, count in noted.value_counts().items()},
        rejects=lambda: (block.loc[reasons.index], {"reason": reasons.tolist()}),
    )


def read_warc(
    paths: Paths,
    *,
    columns: Sequence[str] | str | None = None,
    content_types: Sequence[str] | str | None = HTML_TYPES,
    blocksize: int | str | None = None,
    files_per_partition: int | None = None,
    on_bad_rows: OnBadRows = "raise",
    backend: Backend = "pandas",
    storage_options: Mapping[str, Any] | None = None,
) -> dd.DataFrame:
    r"""Read WARC and WET files of web crawls as a lazy table, one row for each page.

    Parameters
    ----------
    paths : str, path or list of them
        Files, directories, globs or fsspec URLs; ``.gz``, ``.zst`` (also with the dictionary that a WARC file may begin
        with), ``.bz2`` and ``.xz`` are decompressed. WARC/1.0, 1.1 and the drafts 0.17 and 0.18 are read; ARC files are
        not, and raise an error that says how to convert them.
    columns : list of str, optional
        Which of ``url``, ``date``, ``status``, ``content_type``, ``language`` and ``text`` to include. Default: all.
    content_types : sequence of str, optional
        Content types of responses that are pages; a response without a content type is one too. None: all types, with
        their bytes as text.
    blocksize : int or str, optional
        Approximate decompressed bytes of a Dask partition, such as ``"256MB"``. A gzip file in which each record is a
        member, as in crawls, is split; other files are not.
    files_per_partition : int, optional
        Files per Dask partition, instead of a size.
    on_bad_rows : {"raise", "quarantine"}
        What to do with a record that is shorter than its ``Content-Length``, damaged, or has a body whose compressed data
        is damaged: raise an error that names file and byte, or skip and report it. Reading continues at the next complete
        record; after damage, at the next gzip member or zstd frame that begins with a record, and the report says how many
        bytes of the file were passed over.
    backend : {"pandas", "cudf"}
        Where to put the blocks that are read: ``"cudf"`` adds a `to_backend` step and needs a GPU.
    storage_options : mapping, optional
        Options for the fsspec file system of URLs.

    Returns
    -------
    dask.dataframe.DataFrame
        ``url``, ``date`` (as in the record: ``2026-01-31T12:00:00Z``), ``content_type`` (of the HTTP message, without
        its charset), ``language`` (for WET files the identified languages, such as ``eng,deu``; otherwise the HTTP
        ``Content-Language``) and ``text``, all ``string[pyarrow]``, and ``status`` (Int64, of HTTP). ``text`` is the
        HTML of a response or the text of a WET record. The index ``address`` (int64) is the file number times 2^40 plus
        the byte at which the record begins: in a gzip file the position of its member on disk (plus the number of the
        record in that member, from 0), otherwise the position in the decompressed file.

    Raises
    ------
    InputError
        Nothing matches an entry of ``paths``.
    InputChangedError
        While reading: a file was changed, appended to or replaced after it was listed.
    CorruptFileError
        While reading: compressed data is damaged or truncated, or a file is an ARC file, or is compressed and its name
        does not say so.
    BadRowError
        While reading: a record is truncated, or its HTTP message cannot be read.
    OversizeRowError
        While reading: a page does not fit into the memory budget.
    ColumnError
        ``columns`` names an unknown column.
    ParameterError
        An argument is invalid.
    MissingExtraError
        If brotli or webencodings is not installed.
    UnsupportedBackendError
        ``backend="cudf"`` where there is no GPU.

    See Also
    --------
    remove_html, keep_urls, add_url_parts

    Notes
    -----
    Rows: one for each page; other records are counted as dropped. Columns: ``url``, ``date``, ``status``,
    ``content_type``, ``language`` and ``text`` (HTML, or the text of WET files). Backends: pandas; cudf with
    ``backend="cudf"``. Peak extra memory: 3.5 x block. Computes: no; it lists the files.

    The receipt of a run counts all records. Those that are not pages count as dropped by the step ``read_warc``, by
    record type (``request``, ``metadata``, ``warcinfo``, ``revisit``, ``continuation``...), for their ``content_type``, or as
    ``empty`` (a response without any bytes). Two counters of that step count pages that are kept: ``pages_truncated`` (the
    crawler says so in ``WARC-Truncated``, or the body is shorter than its HTTP header or its coding says) and
    ``pages_not_decoded`` (see below). Digests in records are not checked; checksums of compressed data are.

    Transfer and content codings (chunked, gzip, deflate, br, zstd, and several of them) are removed. Crawlers often store a
    body decoded and keep the header that names its coding: a body that is not in the named coding, or in an unknown one, is
    taken unchanged. A body that begins as gzip or zstd do is decompressed, whichever compression the header names.

    The encoding of a page follows the HTML and Encoding Standards: a byte order mark, else the charset of the HTTP header, else
    the first ``meta`` element that declares a known one, else the XML declaration, else UTF-8 if the page is valid UTF-8, else
    windows-1252. Invalid bytes become U+FFFD.

    References
    ----------
    .. [1] ISO 28500:2017, the WARC file format
    .. [2] IIPC, Zstandard-compressed WARC files, https://iipc.github.io/warc-specifications/specifications/warc-zstd/
    .. [3] WHATWG, HTML, determining the character encoding, https://html.spec.whatwg.org/multipage/parsing.html

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.warc.wet"
    >>> header = "WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: http://a.b/\r\nContent-Length: 6\r\n\r\n"
    >>> _ = path.write_text(header + "A page\r\n\r\n", newline="")
    >>> read_warc(path, columns=["url", "text"]).compute()
                     url    text
    address
    0        http://a.b/  A page
    """
    require_gpu("read_warc", backend)
    choose("read_warc", "on_bad_rows", on_bad_rows, OnBadRows)
    for package in ("brotli", "webencodings"):
        require_package("read_warc", package, "warc")
    listing = list_files(paths, suffixes=SUFFIXES, storage_options=storage_options)
    block_bytes = block_bytes_of("read_warc", blocksize, files_per_partition, listing.total_bytes)
    check_address_space(listing, "read_warc")
    chosen = chosen_columns(COLUMNS, columns, "read_warc")
    types = [content_types] if isinstance(content_types, str) else content_types
    of_types = None if types is None else tuple(sorted({name.lower() for name in types}))
    source = WarcSource(listing, (*chosen, SKIPPED.name, NOTED.name), of_types, on_bad_rows == "quarantine")
    ranges = source.cut(block_bytes) if files_per_partition is None else source.cut_files(files_per_partition)
    records = from_source(
        source, ranges, block_bytes=block_bytes, explicit=blocksize is not None, in_parts=files_per_partition is None
    )
    kernel = BlockKernel("read_warc", keep_pages_block, {}, price=Price(STEP_PEAK_FACTOR))
    return to_backend(map_blocks(records, kernel, meta=source.meta[chosen]), backend)

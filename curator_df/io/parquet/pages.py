# SPDX-License-Identifier: Apache-2.0
"""Pages of a Parquet file's columns, and the memory held while one is read, neither of which is in the footer.

pyarrow decompresses a page whole, so a page that is larger than a block is held in addition to all blocks made from it.
Writers aim at pages of 1 MB, but check only after a number of rows: pyarrow after 1,024, so that texts of 25 kB make pages of
25 MB, and books make pages of a row group. Each page begins with a header in Thrift's compact protocol, whose first fields are
the page's type and its sizes: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from curator_df.errors import CorruptFileError, OversizePageError
from curator_df.io.listing import Listing
from curator_df.io.parquet.footers import Chunk, column_chunks, damage_of_column, open_parquet
from curator_df.io.streams.file_stream import open_file

SMALL_BYTES = 2_000_000
"""Page size up to which pages are part of the memory of any task."""
PAGES_FACTOR = 2
"""Memory multiplier while a page of text is decoded: the page, memory reserved for as many bytes of values, and at its end the
next page. Measured (pyarrow 26): 200 MB for the one page of 100 MB of a row group, 78 MB for pages of 26 MB."""
SAMPLED_FILES = 16
"""Number of files whose first row group is examined when a table is read: the largest ones."""
OTHER_FILES = 1.25
"""Factor by which the plan exceeds the pages found in these files, because other files may have somewhat larger pages."""
ROOM_FACTOR = 3
"""Number of bytes reserved for each byte by which rows may be longer than a block; fewer than the copies of a row in a task."""
HEADER_BYTES = 65_536
"""Maximum size of a page's header, with its statistics."""
_INT32, _STRUCT = 5, 12


@dataclass(frozen=True)
class LargePage:
    """Largest page found in a column of a row group."""

    column: str
    """Name of the column in the table."""
    page_bytes: int
    """Decompressed size."""
    needed_bytes: int
    """Bytes held while the page is read."""


def sampled_pages(listing: Listing, names: Sequence[str]) -> dict[str, int]:
    """Return the memory held while pages of each of these columns are read, for large pages, as found in some files.

    Returns
    -------
    dict of str to int
        Bytes by column of the table.
    """
    found: dict[str, int] = {}
    for number in np.argsort(-listing.sizes, kind="stable")[:SAMPLED_FILES].tolist():
        with open_parquet(listing, number) as file:
            if not file.metadata.num_row_groups:
                continue
            with damage_of_column(listing.paths[number], file, 0, names):
                chunks = column_chunks(file, 0, names)
        for page in large_pages(listing, number, chunks):
            needed = int(OTHER_FILES * page.needed_bytes)
            found[page.column] = max(found.get(page.column, 0), needed)
    return found


def require_room(
    listing: Listing, number: int, first: int, chunks: Sequence[Chunk], room_bytes: int, *, look: bool = False
) -> None:
    """Raise `OversizePageError` if pages of a row group need more than the available memory.

    Parameters
    ----------
    listing : Listing
        All files.
    number : int
        Number of the file.
    first : int
        Number of the first row of the row group.
    chunks : sequence of Chunk
        Column chunks of the row group that are read.
    room_bytes : int
        Bytes that their pages may need together.
    look : bool
        Whether to examine all pages of the row group, if the file is local, and not only the first of each column.
    """
    pages = large_pages(listing, number, chunks, look=look)
    needed = sum(page.needed_bytes for page in pages)
    if needed <= room_bytes:
        return
    largest = max(pages, key=lambda page: page.needed_bytes)
    raise OversizePageError.of(
        listing.paths[number],
        first,
        largest.column,
        largest.page_bytes,
        needed_bytes=needed,
        row_bytes=-(-needed // ROOM_FACTOR),
    )


def large_pages(listing: Listing, number: int, chunks: Sequence[Chunk], *, look: bool = False) -> list[LargePage]:
    """Return the largest page of each column chunk whose pages are large."""
    path = listing.paths[number]
    looked_at = [chunk for chunk in chunks if look or chunk.metadata.total_uncompressed_size > SMALL_BYTES]
    if not looked_at:
        return []
    with open_file(path, listing.storage_options, listed=listing.listed(path)) as file:
        found = []
        for name, _, chunk in looked_at:
            sizes = _all_sizes(file, chunk) if look and path.startswith("/") else _first_sizes(file, chunk)
            largest = max(sizes, default=0)
            if largest > SMALL_BYTES:
                if largest > chunk.total_uncompressed_size:
                    raise CorruptFileError(
                        f"{path!r} is damaged: a page of the column {name!r} has {largest:,} bytes by its header, but the "
                        f"footer gives {chunk.total_uncompressed_size:,} for all its pages. Download it again, or leave "
                        "it out"
                    )
                # The last page of a chunk has no successor.
                needed = largest + min(PAGES_FACTOR * largest, chunk.total_uncompressed_size)
                found.append(LargePage(name, largest, needed))
    return found


def _first_sizes(file: Any, chunk: Any) -> Iterator[int]:
    """Yield the decompressed bytes of the dictionary, if there is one, and of the first page."""
    for offset in {chunk.dictionary_page_offset, chunk.data_page_offset} - {None}:
        file.seek(max(offset, 0))  # a damaged footer may have any number
        sizes = _sizes(file.read(32))
        if sizes is not None:
            yield sizes[0]


def _all_sizes(file: Any, chunk: Any) -> Iterator[int]:
    """Yield the decompressed bytes of all pages, up to the first header that cannot be parsed."""
    offset = max(chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset, 0)
    stop = offset + chunk.total_compressed_size
    while offset < stop:
        file.seek(offset)
        data = file.read(min(HEADER_BYTES, stop - offset))
        sizes, length = _sizes(data), _length(data)
        if sizes is None or length is None or sizes[1] < 0:
            return
        yield sizes[0]
        offset += length + sizes[1]


def _sizes(data: bytes) -> tuple[int, int] | None:
    """Return the decompressed and the compressed size of the page with this header; None if it is not a header."""
    place, numbers = 0, []
    try:
        for _ in range(3):  # the page's type comes first
            if data[place] != (1 << 4) | _INT32:  # the next field, a whole number
                return None
            number, place = _varint(data, place + 1)
            numbers.append((number >> 1) ^ -(number & 1))
    except IndexError:
        return None
    return numbers[1], numbers[2]


def _length(data: bytes) -> int | None:
    """Return the size of the header at the beginning of these bytes; None if it is longer or not a header."""
    try:
        return _after(data, 0, _STRUCT)
    except (IndexError, ValueError, RecursionError):
        return None


def _after(data: bytes, place: int, kind: int) -> int:
    """Return the end of a value of Thrift's compact protocol."""
    if kind in (1, 2):  # a boolean, which is in the field's type
        return place
    if kind == 3:
        return place + 1
    if kind in (4, _INT32, 6):
        return _varint(data, place)[1]
    if kind == 7:
        return place + 8
    if kind == 8:
        size, place = _varint(data, place)
        return place + size
    if kind == _STRUCT:
        while (field := data[place]) != 0:
            place += 1
            if not field >> 4:  # the field's number does not follow the previous one, and is explicit
                place = _varint(data, place)[1]
            place = _after(data, place, field & 15)
        return place + 1
    raise ValueError(f"page headers have no type {kind}")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a whole number of seven bits a byte, and its end."""
    number = shift = 0
    while True:
        byte = data[place]
        place, number, shift = place + 1, number | (byte & 127) << shift, shift + 7
        if byte < 128:
            return number, place

# SPDX-License-Identifier: Apache-2.0
"""Interface of a reader: files that are split into ranges, and ranges that are streamed as blocks.

An *address* (row ID) identifies a row: ``file number << 40 | offset``, where the offset is the byte at which the row
starts in the decompressed file (text formats) or its row number in the file (Parquet). It does not depend on blocks,
ranges or workers, and it increases in input order. Readers store it in the index, which is named ``address``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from curator_df.errors import OversizeRowError

OFFSET_BITS = 40
"""Number of bits of an address for the offset: files of up to 1 TiB (decompressed), 8 million files."""

ADDRESS = "address"
"""Name of the index that contains the row ID of each row."""


RowChoice = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]
"""Function that returns which of some rows to read, by their ascending row IDs. A reader asks it once for each row, in order."""


def among(wanted: npt.NDArray[np.int64]) -> RowChoice:
    """Return the choice of the rows with some row IDs, which are in ascending order.

    Examples
    --------
    >>> among(np.array([1, 5, 7]))(np.array([3, 5, 9])).tolist()
    [False, True, False]
    """

    def choose(addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        if not len(wanted):
            return np.zeros(len(addresses), dtype=np.bool_)
        places = np.minimum(np.searchsorted(wanted, addresses), len(wanted) - 1)
        found: npt.NDArray[np.bool_] = wanted[places] == addresses
        return found

    return choose


def has_stamps(source: Any) -> bool:
    """Return whether each file of a source has a stamp, such as its modification time, which changes if the file is replaced."""
    if isinstance(parts := getattr(source, "parts", None), tuple):
        return all(map(has_stamps, parts))
    listing = getattr(source, "listing", None)
    return listing is not None and bool(np.all(listing.stamps))


@dataclass(frozen=True)
class Range:
    """Consecutive part of the input: from ``start`` in ``first_file`` up to, but excluding, ``stop`` in ``last_file``."""

    number: int
    """Position among the ranges of one split, from 0."""
    first_file: int
    """Index into the source's files."""
    start: int
    """Offset in the first file: bytes (text formats) or rows (Parquet); 0 for a compressed file."""
    last_file: int
    """Index of the last file that has rows in this range (inclusive)."""
    stop: int
    """Offset in the last file at which the range ends (exclusive); for a compressed file its compressed size."""

    def place(self, files: Sequence[str]) -> str:
        """Return in words which rows these are.

        Examples
        --------
        >>> Range(2, 0, 4_000, 0, 6_000).place(["a.jsonl"]), Range(0, 0, 0, 1, 900).place(["a.jsonl", "b.jsonl"])
        ('a.jsonl from offset 4,000 to offset 6,000', 'a.jsonl from offset 0 to b.jsonl offset 900')
        """
        first, last = files[self.first_file], files[self.last_file]
        end = f"offset {self.stop:,}" if first == last else f"{last} offset {self.stop:,}"
        return f"{first} from offset {self.start:,} to {end}"


@dataclass(frozen=True)
class Ranges(Sequence[Range]):
    """Many ranges in one array: 100,000 of them need 3.2 MB instead of 100,000 objects."""

    table: npt.NDArray[np.int64]
    """Array of shape (ranges, 4): first_file, start, last_file, stop."""

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, number: Any) -> Any:
        first_file, start, last_file, stop = (int(value) for value in self.table[number])
        return Range(int(number), first_file, start, last_file, stop)


@dataclass(frozen=True)
class BadRow:
    """Row that cannot be read, with its position and its bytes."""

    path: str
    """File that contains the row."""
    line: int
    """Line (or row) number in the file, from 1; 0 in a file without lines."""
    offset: int
    """Byte offset of the row in the decompressed file, or the row number for Parquet; the same as in the row ID."""
    reason: str
    """Description of the error."""
    raw: bytes
    """Unchanged bytes of the row in the file, without the line end."""
    size_bytes: int | None = None
    """Size in bytes of a row that did not fit into memory; ``raw`` is then empty if the row is large."""


class Source(Protocol):
    """Lazy table in files. Picklable and small, because it is sent to every worker."""

    @property
    def files(self) -> Sequence[str]:
        """Paths or URLs, in input order."""

    @property
    def meta(self) -> Any:
        """Empty DataFrame with the columns and dtypes of every block, its index named ``address``."""

    @property
    def fingerprint(self) -> str:
        """Digest of the input listing (path, size, modification time or etag) and of the selected columns."""

    @property
    def input_bytes(self) -> int:
        """Size of all files on disk in bytes."""

    @property
    def text_bytes(self) -> int:
        """Approximate decompressed size of all files in bytes, without reading them."""

    def about_rows(self) -> int | None:
        """Return the approximate number of rows if some footers contain it; None if only reading would tell."""

    @property
    def reader_factor(self) -> float:
        """Peak memory while a block is made, including the block, as a multiple of its ``block_bytes``. Measured."""

    @property
    def reader_fixed_bytes(self) -> int:
        """Memory of a task in addition to its blocks while it reads, in bytes: large decompressed pages."""

    @property
    def quarantines(self) -> bool:
        """Whether bad rows are quarantined (``on_bad_rows="quarantine"``) or raise an error."""

    def cut(self, piece_bytes: int) -> Ranges:
        """Split the input into consecutive ranges of about ``piece_bytes`` of decompressed text, without reading it."""

    def select(self, columns: Sequence[str]) -> Source:
        """Return a copy of the source that reads only these columns."""

    def blocks(
        self,
        piece: Range,
        *,
        block_bytes: int,
        largest_row_bytes: int | None = None,
        on_bad_row: Callable[[BadRow], None] | None = None,
        on_long_row: Callable[[OversizeRowError], None] | None = None,
        wanted: RowChoice | None = None,
    ) -> Iterator[Any]:
        """Stream a range as DataFrames of about ``block_bytes`` each.

        Every row of the input belongs to exactly one range of a split. A row longer than ``block_bytes`` is a separate block;
        one longer than ``largest_row_bytes`` raises `OversizeRowError` before it is loaded into memory, or, with
        ``on_long_row``, is passed to that function and left out.
        If the source does not quarantine, a bad row raises `BadRowError`. If it does, ``on_bad_row`` receives the row;
        without ``on_bad_row`` the row is left out and a `UserWarning` reports how many were. ``wanted`` chooses the rows by
        their addresses: other rows are left out, at a lower cost than reading them.
        """


def range_starts(ranges: Ranges) -> npt.NDArray[np.int64]:
    """Return the smallest address that a row of each range can have."""
    return (ranges.table[:, 0] << OFFSET_BITS) | ranges.table[:, 1]

# SPDX-License-Identifier: Apache-2.0
"""What a reader gives the runner: files cut into ranges, and ranges streamed as blocks.

An *address* is the identity of a row: ``file number << 40 | offset``, where the offset is the byte at which the row
starts in the decompressed file (text formats) or its row number in the file (Parquet). It does not depend on blocks,
ranges or workers, and it increases in input order. Readers carry it in the index, which is named ``address``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from curator_df.errors import OversizeRowError

OFFSET_BITS = 40
"""Bits of an address that hold the offset: files of up to 1 TiB (decompressed), 8 million files."""

ADDRESS = "address"
"""Name of the index that carries the address of each row."""


@dataclass(frozen=True)
class Range:
    """Consecutive input: from ``start`` in ``first_file`` up to, not including, ``stop`` in ``last_file``."""

    number: int
    """Position among the ranges of one cut, from 0."""
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
    """Many ranges held in one array: 100,000 of them cost 3.2 MB, not 100,000 objects."""

    table: npt.NDArray[np.int64]
    """Shape (ranges, 4): first_file, start, last_file, stop."""

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, number: Any) -> Any:
        first_file, start, last_file, stop = (int(value) for value in self.table[number])
        return Range(int(number), first_file, start, last_file, stop)


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be read, with its address and its bytes."""

    path: str
    """File that holds the row."""
    line: int
    """Line (or row) number in the file, from 1; 0 in a file that has no lines."""
    offset: int
    """Byte offset of the row in the decompressed file; the row number for Parquet. As in the row's address."""
    reason: str
    """What is wrong with it, in words."""
    raw: bytes
    """The bytes of the row as they stand in the file, without the line end."""
    size_bytes: int | None = None
    """For a row for which memory did not suffice: its size; ``raw`` is then empty where the row is large."""


class Source(Protocol):
    """A lazy table in files. Picklable and small: it travels to every worker."""

    @property
    def files(self) -> Sequence[str]:
        """Paths or URLs, in input order."""

    @property
    def meta(self) -> Any:
        """Empty DataFrame with the columns and dtypes of every block, its index named ``address``."""

    @property
    def fingerprint(self) -> str:
        """Digest of the input listing (path, size, modification time or etag) and of what is read from it."""

    @property
    def input_bytes(self) -> int:
        """Size of all files as they lie on disk."""

    @property
    def text_bytes(self) -> int:
        """About the bytes of all files when decompressed, without reading them."""

    def about_rows(self) -> int | None:
        """Return about how many rows there are, where some footers tell; None where only reading would."""

    @property
    def reader_factor(self) -> float:
        """Peak bytes held while a block is made, the block included, as a multiple of its ``block_bytes``. Measured."""

    @property
    def reader_fixed_bytes(self) -> int:
        """Bytes that a task holds beside its blocks while it reads, whatever their size: large pages, decompressed."""

    @property
    def quarantines(self) -> bool:
        """Whether bad rows are set aside (``on_bad_rows="quarantine"``) or raise."""

    def cut(self, piece_bytes: int) -> Ranges:
        """Cut the input into consecutive ranges of about ``piece_bytes`` of decompressed text, without reading it."""

    def select(self, columns: Sequence[str]) -> Source:
        """Return the same source reading only these columns."""

    def blocks(
        self,
        piece: Range,
        *,
        block_bytes: int,
        largest_row_bytes: int | None = None,
        on_bad_row: Callable[[BadRow], None] | None = None,
        on_long_row: Callable[[OversizeRowError], None] | None = None,
        wanted: npt.NDArray[np.int64] | None = None,
    ) -> Iterator[Any]:
        """Stream a range as DataFrames of about ``block_bytes`` each.

        Every row of the input belongs to exactly one range of a cut. A row longer than ``block_bytes`` is a block of
        its own; one longer than ``largest_row_bytes`` raises `OversizeRowError` before it is held in memory, or, with
        ``on_long_row``, is given to that and left out.
        When the source does not quarantine, a bad row raises `BadRowError`. When it does, ``on_bad_row`` takes the row;
        without ``on_bad_row`` the row is left out and a `UserWarning` tells how many were. ``wanted`` are ascending
        addresses: other rows are left out, at less cost than reading them.
        """

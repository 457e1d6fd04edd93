# SPDX-License-Identifier: Apache-2.0
"""What an exchange leaves to the second pass: the rows that go, of one range, block by block.

Rows of the files are (address of the row that goes, address of the one that stays), sorted, with a slice for each range
or, where `collect_drops` is to follow, for each group of ranges. Written by `exchange.reduce_keys`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from curator_df.core.exchange.exchange import DROP_WORDS, Exchange, drop_bounds
from curator_df.core.files.row_sort import merge_slices
from curator_df.core.files.slice_file import SliceWriter, open_slices
from curator_df.core.files.storage import FileRecord, disk_errors
from curator_df.errors import RowCountError


def collect_drops(
    exchange: Exchange, number: int, files: Sequence[FileRecord], *, memory_bytes: int, scratch: str | None = None
) -> FileRecord:
    """Put the drops of ``ranges_per_drop_file`` ranges, of all reducers, into one file with a slice for each range."""
    first = number * exchange.ranges_per_drop_file
    bounds = drop_bounds(exchange.range_starts[first : first + exchange.ranges_per_drop_file])
    slices = open_slices(exchange.folder, files, number)
    name = f"drops/part-{number:06d}.slices"
    with disk_errors(exchange.folder), exchange.folder.create(name) as file:
        writer = SliceWriter(file, DROP_WORDS, bounds)
        for rows in merge_slices(slices, memory_bytes=memory_bytes, scratch=scratch):
            writer.append(rows)
        writer.finish()
        return file.commit(sum(piece.rows for piece in slices))


def read_drops(
    exchange: Exchange, number: int, files: Sequence[FileRecord], *, memory_bytes: int, scratch: str | None = None
) -> Iterator[npt.NDArray[np.int64]]:
    """Read the drops of one range, in order of address.

    Parameters
    ----------
    exchange : Exchange
        The exchange.
    number : int
        Of the range.
    files : sequence of FileRecord
        What every `reduce_keys` wrote; with ``ranges_per_drop_file`` above 1 what every `collect_drops` did, in order.
    memory_bytes : int
        To hold at most.
    scratch : str, optional
        Local directory, used only when reducers are very many.

    Yields
    ------
    ndarray of int64, shape (rows, 2)
        Address of the row that goes, and of the one that stays.
    """
    if exchange.ranges_per_drop_file > 1:
        file, number = divmod(number, exchange.ranges_per_drop_file)
        files = files[file : file + 1]
    slices = open_slices(exchange.folder, files, number)
    for rows in merge_slices(slices, memory_bytes=memory_bytes, scratch=scratch):
        yield rows.view(np.int64)


class DropReader:
    """Says block by block which rows of a range go, and for which; holds a few pages, whatever the range."""

    def __init__(
        self,
        exchange: Exchange,
        number: int,
        files: Sequence[FileRecord],
        *,
        memory_bytes: int,
        scratch: str | None = None,
    ) -> None:
        self._pieces = read_drops(exchange, number, files, memory_bytes=memory_bytes, scratch=scratch)
        self._drops = np.empty((0, DROP_WORDS), dtype=np.int64)
        self._last = -1
        self.staying = np.empty(0, dtype=np.int64)
        """For each row of the last block that goes, the address of the one that stays."""
        self.missed = 0
        """Drops so far whose row did not come; complete after `finish`. Not 0 means that the rows before the barrier
        were not the same in both passes."""

    def drops(self, addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return True for each row of the next block that goes.

        Parameters
        ----------
        addresses : ndarray of int64, shape (rows,)
            The block's index, increasing, and after that of the last block.
        """
        if not len(addresses):
            self.staying = self.staying[:0]
            return np.zeros(0, dtype=np.bool_)
        if addresses[0] <= self._last or (addresses[1:] <= addresses[:-1]).any():
            raise RowCountError(
                f"addresses do not increase (after {self._last:,}): a step before the drop moved rows or repeated them"
            )
        self._last = int(addresses[-1])
        going, staying = np.zeros(len(addresses), dtype=np.bool_), list[npt.NDArray[np.int64]]()
        while True:
            stop = int(np.searchsorted(self._drops[:, 0], self._last, side="right"))
            places = np.searchsorted(addresses, self._drops[:stop, 0])
            found = addresses[places] == self._drops[:stop, 0]
            going[places[found]] = True
            staying.append(self._drops[:stop, 1][found])
            self.missed += stop - int(found.sum())
            if stop < len(self._drops):
                self._drops = self._drops[stop:]
                break
            following = next(self._pieces, None)
            self._drops = np.empty((0, DROP_WORDS), dtype=np.int64) if following is None else following.copy()
            if following is None:
                break
        self.staying = np.concatenate(staying)
        return going

    def finish(self) -> int:
        """Read what is left; return `missed`."""
        self.missed += len(self._drops) + sum(len(piece) for piece in self._pieces)
        self._drops = self._drops[:0]
        return self.missed

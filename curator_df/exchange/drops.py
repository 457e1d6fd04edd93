# SPDX-License-Identifier: Apache-2.0
"""Dropped rows of one range, as an exchange leaves them to the second pass, block by block.

Rows of the files are (address of the dropped row, address of the kept row), sorted, with a slice for each range or, if
`collect_drops` follows, for each group of ranges. `exchange.reduce_keys` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from curator_df.errors import RowCountError
from curator_df.exchange.exchange import DROP_WORDS, MEMBER_WORDS, Exchange, drop_bounds
from curator_df.files.row_sort import merge_slices
from curator_df.files.slice_file import SliceWriter, damaged, open_slices
from curator_df.files.storage import FileRecord, Folder, disk_errors
from curator_df.memory.process_cache import cached

COLLECTED = "members/collected-"
"""Beginning of the names of files with the members in one group of ranges."""


def collect_drops(
    exchange: Exchange, number: int, files: Sequence[FileRecord], *, memory_bytes: int, scratch: str | None = None
) -> FileRecord:
    """Merge the drops of ``ranges_per_drop_file`` ranges, from all reducers, into one file with a slice for each range."""
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


def collect_members(
    exchange: Exchange, group: int, files: Sequence[FileRecord], *, memory_bytes: int, scratch: str | None = None
) -> FileRecord:
    """Merge the members in a group of ranges, from all reducers, into one file."""
    slices = open_slices(exchange.folder, files, group)
    name = f"{COLLECTED}{group:06d}.slices"
    with disk_errors(exchange.folder), exchange.folder.create(name) as file:
        writer = SliceWriter(file, MEMBER_WORDS, np.zeros(1, dtype=np.uint64))
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
        Exchange that the files belong to.
    number : int
        Number of the range.
    files : sequence of FileRecord
        Files of every `reduce_keys`; if ``ranges_per_drop_file`` is above 1, those of every `collect_drops`, in order.
    memory_bytes : int
        Maximum working memory.
    scratch : str, optional
        Local directory, used only for a very large number of reducers.

    Yields
    ------
    ndarray of int64, shape (rows, 2)
        Address of the dropped row, and address of the kept row.
    """
    if exchange.ranges_per_drop_file > 1:
        file, number = divmod(number, exchange.ranges_per_drop_file)
        files = files[file : file + 1]
    require_as_written(exchange.folder, files)
    slices = open_slices(exchange.folder, files, number)
    for rows in merge_slices(slices, memory_bytes=memory_bytes, scratch=scratch):
        yield rows.view(np.int64)


def require_as_written(folder: Folder, files: Sequence[FileRecord]) -> None:
    """Raise `CorruptFileError` if a local file was replaced; one that was copied is read once by each process.

    Pages have checksums of their own, but a file of another search has valid pages too.
    """
    for file in files if folder.is_local else ():
        state = folder.state(file.name)
        if state is None or state.is_untouched(file):
            continue
        if not cached(("as written", folder.url, file, state), partial(folder.is_as_written, file, state)):
            raise damaged(folder.path(file.name), "it is not the file that the run wrote")


def require_ascending(addresses: npt.NDArray[np.int64], last: int) -> int:
    """Return the last of the addresses of the next rows, or raise an error unless they are in order and follow ``last``."""
    if not len(addresses):
        return last
    if addresses[0] <= last or (addresses[1:] <= addresses[:-1]).any():
        raise RowCountError(
            "a step before a drop_ operator reordered or repeated rows, as sort_values() in a function of yours would, so "
            f"the rows to drop cannot be found (the row ID {last:,} is not followed by a larger one). Move that "
            "step behind the drop, or run the chain up to the drop with checkpoint(df, path) and use the table it returns"
        )
    return int(addresses[-1])


class DropReader:
    """Reader that returns, block by block, the dropped rows of a range; it keeps only a few pages in memory."""

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
        """Address of the kept row for each dropped row of the last block."""
        self.missed = 0
        """Number of drops so far whose row was not in the blocks; complete after `finish`. If it is not 0, the rows before the
        pending differed between the two passes.
        """

    def drops(self, addresses: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return True for each row of the next block that is dropped.

        Parameters
        ----------
        addresses : ndarray of int64, shape (rows,)
            Index of the block: increasing, and larger than that of the last block.
        """
        if not len(addresses):
            self.staying = self.staying[:0]
            return np.zeros(0, dtype=np.bool_)
        self._last = require_ascending(addresses, self._last)
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
        """Read the remaining drops; return `missed`."""
        self.missed += len(self._drops) + sum(len(piece) for piece in self._pieces)
        self._drops = self._drops[:0]
        return self.missed

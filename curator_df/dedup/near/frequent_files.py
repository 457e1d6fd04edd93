# SPDX-License-Identifier: Apache-2.0
"""Files of counts of shingles, which two passes over the texts write, range by range; for their use see `frequent`."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.exchange.exchange import hash_bounds
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.row_sort import PIECE_ROWS, RowSorter
from curator_df.files.slice_file import SliceWriter, damaged, wrong
from curator_df.files.storage import FileRecord, Folder, disk_errors
from curator_df.kernels.minhash.frequent_shingles import ShingleCells, ShingleCounts
from curator_df.kernels.minhash.scheme import Scheme

CELLS_FOLDER, COUNTS_FOLDER = "cells", "shingle-counts"
COUNT_WORDS = 2
"""Words of a count: hash of a shingle, number of documents."""
CELL_BITS = np.uint64(32)
"""Number of low bits of a cell's number that are its documents."""


class CellsWriter:
    """Writer of the cells of one range: a number (cell, documents) for each cell that is not empty."""

    def __init__(self, folder: Folder, number: int, scheme: Scheme) -> None:
        self._folder, self._name = folder, f"{CELLS_FOLDER}/part-{number:06d}.slices"
        self._cells = ShingleCells(scheme)

    def append(self, texts: pd.Series) -> None:
        """Count some texts."""
        self._cells.add(texts)

    def commit(self) -> FileRecord:
        """Write the file, and make it visible."""
        counts, written = self._cells.counts, 0
        with disk_errors(self._folder), self._folder.create(self._name) as file:
            writer = SliceWriter(file, 1, np.zeros(1, dtype=np.uint64))
            for start in range(0, len(counts), PIECE_ROWS):
                some = start + np.flatnonzero(counts[start : start + PIECE_ROWS])
                writer.append((some.view(np.uint64) << CELL_BITS | counts[some])[:, None])
                written += len(some)
            writer.finish()
            return file.commit(written)


class CountsWriter:
    """Writer of the exact counts of one range, of shingles whose cells pass."""

    def __init__(
        self, folder: Folder, number: int, groups: RangeGroups, scheme: Scheme, passing: FileRecord, memory_bytes: int
    ) -> None:
        self._counts = ShingleCounts(scheme, read_passing(folder, passing))
        name, bounds = f"{COUNTS_FOLDER}/part-{number:06d}.slices", hash_bounds(len(groups))
        self._sorter = RowSorter(folder, name, words=COUNT_WORDS, bounds=bounds, memory_bytes=memory_bytes)

    def append(self, texts: pd.Series) -> None:
        """Count some texts."""
        for rows in self._counts.add(texts):
            self._sorter.append(rows)

    def commit(self) -> FileRecord:
        """Write the file, and make it visible."""
        self._sorter.append(self._counts.taken())
        return self._sorter.commit()

    def discard(self) -> None:
        """Delete the file."""
        self._sorter.discard()


def read_checked(folder: Folder, file: FileRecord) -> bytes:
    """Return the content of a file, or raise `CorruptFileError` if it is not what was written."""
    content = folder.read(file.name)
    if zlib.crc32(content) != file.checksum:
        raise damaged(folder.path(file.name), wrong("file", 0))
    return content


def read_passing(folder: Folder, file: FileRecord) -> npt.NDArray[np.bool_]:
    """Return which cells pass, as `run_cells` wrote them."""
    bits: npt.NDArray[np.bool_] = np.unpackbits(np.frombuffer(read_checked(folder, file), dtype=np.uint8)).view(
        np.bool_
    )
    return bits

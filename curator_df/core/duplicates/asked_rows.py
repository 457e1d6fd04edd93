# SPDX-License-Identifier: Apache-2.0
"""The end of a pass that reads only some rows: those that files name, a slice for each range, sorted by address.

What is read of them goes into a file of texts for each range, and where each lies into files that are sorted for the next
stage. `text_sink` and `id_sink` say what is read of a row, and where the answer goes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.exchange.barrier import LEAST_KEY_BYTES
from curator_df.core.exchange.range_groups import RangeGroups
from curator_df.core.files.row_sort import RowSorter, merge_slices
from curator_df.core.files.slice_file import Slice, open_slices
from curator_df.core.files.sorted_rows import RowsUpTo
from curator_df.core.files.storage import FileRecord, Folder, NewFile
from curator_df.core.ranges.range_action import changed_rows
from curator_df.core.ranges.sink import StageSink

MOST_WANTED = 100_000
"""Rows named for a range beyond which all of its rows are read: their addresses would take more than 2 MB."""


@dataclass(frozen=True)
class AskedRowsSink(StageSink):
    """The end of a pass over rows that files name."""

    folder: Folder
    """Where the answers go."""
    groups: RangeGroups
    """Of the ranges."""
    asked: tuple[FileRecord, ...]
    """A file for each group, with a slice for each of its ranges: rows whose first word is an address."""
    first_range: int = 0
    """What is added to the number of a range."""
    first_address: int = 0
    """What is added to an address."""
    writer_factor: float = 1.5
    """Peak extra bytes as a multiple of the block's."""

    def slices(self, number: int) -> list[Slice]:
        """Return what is asked of a range."""
        group, place = divmod(number, self.groups.per_group)
        return open_slices(self.folder, self.asked[group : group + 1], place)

    def wanted(self, number: int) -> npt.NDArray[np.int64] | None:
        """Return the addresses of the rows of a range that are named, ascending; None where they are too many to hold."""
        slices = self.slices(self.first_range + number)
        if sum(piece.rows for piece in slices) > MOST_WANTED:
            return None
        rows = [np.unique(piece[:, 0].view(np.int64)) for piece in merge_slices(slices, memory_bytes=LEAST_KEY_BYTES)]
        return np.unique(np.concatenate(rows)) - self.first_address if rows else np.empty(0, dtype=np.int64)


class RangeAnswers(ABC):
    """The files of one range; a subclass says by `_answer` what is written for rows that are asked for.

    Parameters
    ----------
    sink : AskedRowsSink
        Whose range this is.
    number : int
        The range, among those of all inputs.
    memory_bytes : int
        For what is asked, and again for where the answers lie.
    asked_words, answer_words : int
        Words of a row that asks, and of one that says where an answer lies.
    texts_name, slices_name : str
        Of the two files.
    step : str
        For errors.
    """

    def __init__(
        self,
        sink: AskedRowsSink,
        number: int,
        memory_bytes: int,
        *,
        asked_words: int,
        answer_words: int,
        texts_name: str,
        slices_name: str,
        step: str,
    ) -> None:
        self._number, self._step, self._first_address = number, step, sink.first_address
        self._asked = RowsUpTo(merge_slices(sink.slices(number), memory_bytes=memory_bytes), asked_words)
        self._file = NewFile(sink.folder, texts_name)
        bounds = sink.groups.bounds
        self._sorter = RowSorter(sink.folder, slices_name, words=answer_words, bounds=bounds, memory_bytes=memory_bytes)
        self._rows = self._missed = 0

    def append(self, block: Any) -> None:
        """Answer for the rows of the next block."""
        addresses = block.index.to_numpy() + self._first_address
        self._rows += len(block)
        if not len(block):
            return
        for piece in self._asked.take(int(addresses[-1])):
            places = np.searchsorted(addresses, piece[:, 0].view(np.int64))
            if (addresses[places].view(np.uint64) != piece[:, 0]).any():
                self._missed += 1
            else:
                self._answer(block, places, piece)

    @abstractmethod
    def _answer(self, block: Any, places: npt.NDArray[np.int64], asked: Any) -> None:
        """Write what is asked of the rows at some places of a block; a row may be there more than once."""

    @abstractmethod
    def _answered(self) -> int:
        """Write what is held back, and return how many texts were written."""

    def commit(self) -> list[FileRecord]:
        """Finish the files, or raise if the range did not have all rows that are asked for."""
        texts = self._answered()
        if self._missed + self._asked.rest():
            raise changed_rows(self._step, self._number, self._rows, self._rows, ", but other addresses")
        return [self._file.commit(texts), self._sorter.commit()]

    def discard(self) -> None:
        """Delete the files."""
        self._file.discard()
        self._sorter.discard()

    @property
    def summary(self) -> dict[str, int]:
        """What goes into the manifest."""
        return {"spilled_bytes": self._sorter.spilled_bytes}

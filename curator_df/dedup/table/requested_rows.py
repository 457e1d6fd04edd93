# SPDX-License-Identifier: Apache-2.0
"""Base classes of sinks that read only requested rows. Files list the addresses of these rows, sorted by range.

The data read from these rows goes into one file of texts per range, and the position of each text into files that are sorted for
the next stage. `text_sink` and `id_sink` define which data is read, and where the answers go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.core.ranges.range_action import changed_rows
from curator_df.core.ranges.sink import StageSink
from curator_df.exchange.keys import LEAST_KEY_BYTES
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.row_sort import RowSorter, merge_slices
from curator_df.files.slice_file import Slice, open_slices
from curator_df.files.sorted_rows import RowsUpTo
from curator_df.files.storage import FileRecord, Folder, NewFile

MOST_WANTED = 100_000
"""Number of requested rows of a range above which all of its rows are read: their addresses would need more than 2 MB."""


@dataclass(frozen=True)
class RequestedRowsSink(StageSink):
    """Sink of a pass that reads only the rows whose addresses are listed in files."""

    folder: Folder
    """Folder for the answers."""
    groups: RangeGroups
    """Groups of the ranges."""
    asked: tuple[FileRecord, ...]
    """One file per group, with a slice for each of its ranges; the first word of each row is an address."""
    first_range: int = 0
    """Offset that is added to the number of a range."""
    first_address: int = 0
    """Offset that is added to an address."""
    writer_factor: float = 1.5
    """Peak extra memory as a multiple of the block's bytes."""

    def slices(self, number: int) -> list[Slice]:
        """Return the slices with the requests for a range."""
        group, place = divmod(number, self.groups.per_group)
        return open_slices(self.folder, self.asked[group : group + 1], place)

    def wanted(self, number: int) -> npt.NDArray[np.int64] | None:
        """Return the ascending addresses of the requested rows of a range; None if they are too many to hold in memory."""
        slices = self.slices(self.first_range + number)
        if sum(piece.rows for piece in slices) > MOST_WANTED:
            return None
        rows = [np.unique(piece[:, 0].view(np.int64)) for piece in merge_slices(slices, memory_bytes=LEAST_KEY_BYTES)]
        return np.unique(np.concatenate(rows)) - self.first_address if rows else np.empty(0, dtype=np.int64)


class RangeAnswers(ABC):
    """Files of one range. In a subclass, `_answer` defines what is written for the requested rows.

    Parameters
    ----------
    sink : RequestedRowsSink
        Sink that the range belongs to.
    number : int
        Number of the range among those of all inputs.
    memory_bytes : int
        Memory for the requests; the positions of the answers may use the same amount again.
    asked_words, answer_words : int
        Words of a row that requests, and of one that says where an answer is.
    texts_name, slices_name : str
        Names of the two files.
    step : str
        Name of the step for errors.
    """

    def __init__(
        self,
        sink: RequestedRowsSink,
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
        """Write the answers for the rows of the next block."""
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
        """Write the requested data of the rows at some positions of a block; a position may be repeated."""

    @abstractmethod
    def _answered(self) -> int:
        """Write the buffered answers, and return the number of texts written."""

    def commit(self) -> list[FileRecord]:
        """Finish the files, or raise an error if a requested row was not in the range."""
        texts = self._answered()
        if self._missed + self._asked.rest():
            raise changed_rows(self._step, self._number, self._rows, self._rows, ", but at other places of the input")
        return [self._file.commit(texts), self._sorter.commit()]

    def discard(self) -> None:
        """Delete the files."""
        self._file.discard()
        self._sorter.discard()

    @property
    def summary(self) -> dict[str, int]:
        """Return the figures for the manifest."""
        return {"spilled_bytes": self._sorter.spilled_bytes}

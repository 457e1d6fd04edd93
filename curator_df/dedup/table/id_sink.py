# SPDX-License-Identifier: Apache-2.0
"""Sink of the pass that looks up the ID of each row that a table of groups names.

The table asks with rows of (address of the row whose ID is wanted, `reply_to`), which says where the answer belongs. Answers are
written in the order of the table rows they belong to, so that the table reads them from few positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.core.fingerprint import fingerprint
from curator_df.dedup.near.pair_texts import read_texts, text_lengths
from curator_df.dedup.near.text_sink import write_texts
from curator_df.dedup.table.requested_rows import RangeAnswers, RequestedRowsSink
from curator_df.exchange.keys import LEAST_KEY_BYTES
from curator_df.files.row_order import Rows
from curator_df.files.row_sort import merge_slices
from curator_df.files.slice_file import open_slices
from curator_df.files.sorted_rows import RowsUpTo
from curator_df.files.storage import FileRecord, Folder

QUESTION_WORDS = 2
"""Words of a question: address of the row whose ID is wanted, and where the answer belongs."""
ANSWER_WORDS = 4
"""Words of an answer: address of the table row; `MATCHED` and file number; `NULL` and offset in the file; CRC-32 and length."""
MATCHED = np.uint64(1 << 63)
"""Bit that is set if the ID is that of the matched row and not the row's own. Addresses are smaller."""
NULL = np.uint64(1 << 63)
LONGEST_NUMBER_BYTES = 20
"""Maximum number of characters of a 64-bit number: its digits and sign."""


def questions(addresses: npt.NDArray[np.uint64], matched: npt.NDArray[np.uint64]) -> Rows:
    """Return the questions for rows of a table: for their own IDs, and for the IDs of the rows that they matched."""
    other = matched != addresses
    own = np.stack([addresses, addresses], axis=1)
    return np.concatenate([own, np.stack([matched[other], addresses[other] | MATCHED], axis=1)])


def ids_name(number: int) -> str:
    """Return the name of the file with the answers of a range."""
    return f"ids/answers/part-{number:06d}.texts"


@dataclass(frozen=True)
class IdSink(RequestedRowsSink):
    """Sink of the pass. The requests are `questions`."""

    column: str = field(kw_only=True)
    """Column of the IDs."""

    @property
    def fingerprint(self) -> str:
        """Digest of the settings that determine the content."""
        return fingerprint(self.column)

    def open(self, number: int, meta: Any, buffer_bytes: int) -> _RangeIds:  # noqa: ARG002 - the face of a sink
        """Create the files of a range."""
        return _RangeIds(self, self.first_range + number, max(buffer_bytes // 4, LEAST_KEY_BYTES))


class _RangeIds(RangeAnswers):
    def __init__(self, sink: IdSink, number: int, memory_bytes: int) -> None:
        super().__init__(
            sink,
            number,
            memory_bytes,
            asked_words=QUESTION_WORDS,
            answer_words=ANSWER_WORDS,
            texts_name=ids_name(number),
            slices_name=f"ids/answers/part-{number:06d}.slices",
            step="id=",
        )
        self._column, self._part_bytes = sink.column, memory_bytes // 4
        self._held: list[tuple[Any, Any]] = []
        self._held_bytes = 0

    def _answer(self, block: Any, places: npt.NDArray[np.int64], asked: Any) -> None:
        ids = pa.Array.from_pandas(block[self._column])
        for part in parts_of(_text_bytes(ids, places), self._part_bytes):
            # Convert only these rows to text: the texts of all rows would be three times as large as the numbers.
            self._hold(asked[part, 1], ids.take(pa.array(places[part])).cast(pa.large_string()))

    def _hold(self, replies: Any, ids: Any) -> None:
        self._held.append((replies.copy(), ids))
        self._held_bytes += replies.nbytes + ids.nbytes
        if self._held_bytes > self._part_bytes:
            self._write()

    def _write(self) -> None:
        """Write the buffered IDs in the order of the table's rows."""
        if not self._held:
            return
        replies = np.concatenate([replies for replies, _ in self._held])
        ids = pa.concat_arrays([ids for _, ids in self._held])
        self._held, self._held_bytes = [], 0
        order = np.lexsort((replies & MATCHED, replies & ~MATCHED))
        replies, ids = replies[order], ids.take(pa.array(order))
        rows = np.empty((len(replies), ANSWER_WORDS), dtype=np.uint64)
        rows[:, 0] = replies & ~MATCHED
        rows[:, 1] = (replies & MATCHED) | np.uint64(self._number)
        rows[:, 2:] = write_texts(self._file, pc.fill_null(ids, ""))
        rows[:, 2] |= np.where(pc.is_null(ids).to_numpy(zero_copy_only=False), NULL, np.uint64(0))
        self._sorter.append(rows)

    def _answered(self) -> int:
        self._write()
        return self._sorter.rows


class IdReader:
    """Reader of the answers of a group of ranges, in the order of the table's rows.

    Parameters
    ----------
    folder : Folder
        Folder of the answers.
    files : sequence of FileRecord
        The ``.slices`` files of all ranges.
    group : int
        Number of the group.
    memory_bytes : int
        Memory for the positions of the IDs, and the same again for a batch of IDs, unless those of a single row are larger.
    """

    def __init__(self, folder: Folder, files: tuple[FileRecord, ...], group: int, *, memory_bytes: int) -> None:
        self._folder, self._memory_bytes = folder, memory_bytes
        slices = open_slices(folder, files, group)
        self._answers = RowsUpTo(merge_slices(slices, memory_bytes=memory_bytes), ANSWER_WORDS)

    def ids(self, rows: Rows, matched: npt.NDArray[np.uint64]) -> Iterator[tuple[slice, Any, Any]]:
        """Yield batches of the next rows: their slice, their IDs, and the IDs of the rows that they matched (null: none).

        Parameters
        ----------
        rows : ndarray of uint64, shape (rows, words)
            Rows of the table; the first word is their address.
        matched : ndarray of uint64, shape (rows,)
            Address of the matched row; the row's own address if it matched none.
        """
        if not len(rows):
            return
        addresses = rows[:, 0]
        answers = np.concatenate(list(self._answers.take(int(addresses[-1]))))
        counts = 1 + (matched != addresses)
        if not np.array_equal(answers[:, 0], np.repeat(addresses, counts)):
            raise ValueError(
                "the stored IDs do not belong to these rows of the table of groups. This is a defect in curator_df; please "
                "report it with this traceback"
            )
        starts = np.concatenate([[0], np.cumsum(counts)])
        bytes_of_rows = np.add.reduceat(text_lengths(answers[:, 3]), starts[:-1])
        for part in parts_of(bytes_of_rows, self._memory_bytes):
            ids = self._read(answers[starts[part.start] : starts[part.stop]])
            own = starts[part] - starts[part.start]
            others = pa.array(own + 1, mask=counts[part] == 1)
            yield part, ids.take(pa.array(own)), ids.take(others)

    def _read(self, answers: Rows) -> Any:
        """Return the IDs that answers point to, in the order of the answers."""
        numbers = (answers[:, 1] & ~MATCHED).view(np.int64)
        starts = (answers[:, 2] & ~NULL).view(np.int64)
        order = np.lexsort((starts, numbers))
        texts = read_texts(self._folder, ids_name, numbers[order], starts[order], answers[order, 3])
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return texts.take(pa.array(back, mask=(answers[:, 2] & NULL) != 0))


def _text_bytes(ids: Any, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the approximate text length of some IDs, without copying the others."""
    if pa.types.is_integer(ids.type):
        return np.full(len(places), LONGEST_NUMBER_BYTES)
    ends = np.frombuffer(ids.buffers()[1], dtype=np.int64 if pa.types.is_large_string(ids.type) else np.int32)
    lengths: npt.NDArray[np.int64] = (ends[ids.offset + places + 1] - ends[ids.offset + places]).astype(np.int64)
    return lengths


def parts_of(sizes: npt.NDArray[np.int64], most_bytes: int) -> Iterator[slice]:
    """Split rows into consecutive parts of at most ``most_bytes`` bytes, or of one row.

    Examples
    --------
    >>> list(parts_of(np.array([3, 4, 9, 1]), 8))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + most_bytes, side="right")), start + 1)
        yield slice(start, stop)
        start = stop

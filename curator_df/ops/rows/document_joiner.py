# SPDX-License-Identifier: Apache-2.0
"""Join segments into documents, block by block of a range: find where each document begins, and keep the unfinished one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from curator_df.core.backend import integer_column
from curator_df.errors import OperatorError
from curator_df.kernels.rows.content_hash import column_hashes
from curator_df.kernels.rows.joined_texts import Mask, TextArray, join_texts, one_array, put_together, shorter_pieces
from curator_df.kernels.rows.keep_rows import keep_rows
from curator_df.kernels.text.buffers import text_series
from curator_df.memory.sizes import show_size

OPERATOR = "join_documents"


@dataclass(frozen=True)
class Joining:
    """Columns to join, and how."""

    text: str
    """Column of the texts."""
    id: str
    """Column that names the document."""
    segment_id: str
    """Column of the number of the segment in its document."""
    separator: str
    """Goes between two segments."""
    max_chars: int | None
    """Most characters of a joined text that is not one segment."""
    keeps_segment_id: bool
    """Whether the column stays, with the numbers of the joined texts."""
    max_document_bytes: int
    """Most bytes of the segments of a document, with a separator for each."""

    def bytes_of(self, texts: TextArray) -> int:
        """Return the bytes of segments, with a separator for each."""
        return int(texts.offsets[-1] - texts.offsets[0]) + len(self.separator.encode()) * (len(texts.offsets) - 1)


class Segments(NamedTuple):
    """The rows of a block, as segments."""

    hashes: npt.NDArray[np.uint64]
    """Shape (rows, 2): of the id of the document."""
    named: Mask
    """Shape (rows,): False where the id is null."""
    begins: Mask
    """Shape (rows,): True where the document is not that of the row before."""
    numbers: npt.NDArray[np.int64]
    """Shape (rows,): of the segment in its document."""


class SegmentReader:
    """Says of block after block where documents begin, and that their segments are in order."""

    def __init__(self, joining: Joining) -> None:
        self._joining = joining
        self._before: tuple[tuple[int, ...] | None, int] = (None, -1)

    def take(self, block: Any) -> Segments:
        """Take the next rows, at least one."""
        joining = self._joining
        ids = block[joining.id]
        hashes, named = column_hashes(ids), ids.notna().to_numpy(dtype=bool)
        missing = block[joining.segment_id].isna().to_numpy(dtype=bool)
        if missing.any():
            raise OperatorError(
                f"{OPERATOR}: {_document(block, joining, int(np.argmax(missing)))} has a segment whose number "
                f"({joining.segment_id!r}) is null; drop such rows before, or number them"
            )
        numbers = block[joining.segment_id].to_numpy(dtype=np.int64)
        same = named.copy()
        same[1:] &= (hashes[1:] == hashes[:-1]).all(axis=1)
        same[0] &= self._before[0] == tuple(hashes[0].tolist())
        before = np.concatenate([[self._before[1]], numbers[:-1]])
        if (wrong := same & (numbers <= before)).any():
            place = int(np.argmax(wrong))
            raise _wrong_order(_document(block, joining, place), int(numbers[place]), int(before[place]))
        last = tuple(hashes[-1].tolist()) if named[-1] else None
        self._before = (last, int(numbers[-1]))
        return Segments(hashes, named, ~same, numbers)

    def go_on(self, numbers: npt.NDArray[np.int64]) -> None:
        """Take the numbers of segments of the same document, which are in order."""
        if numbers[0] <= self._before[1]:
            raise _wrong_order("a document", int(numbers[0]), self._before[1])
        self._before = (self._before[0], int(numbers[-1]))


def _wrong_order(document: str, number: int, before: int) -> OperatorError:
    return OperatorError(
        f"{OPERATOR}: {document} has segment {number} after segment {before}, but segments must come in ascending "
        "order, each once. Keep the rows in the order in which split_documents left them"
    )


def _document(block: Any, joining: Joining, place: int) -> str:
    return f"the document {block[joining.id].iloc[place]!r}"


class DocumentJoiner:
    """Takes segments in order, and gives documents back when they are whole; holds one that is not."""

    def __init__(self, joining: Joining) -> None:
        self._joining = joining
        self._like: Any = None
        self._first: Any = None
        self._pieces: list[TextArray] = []
        self._bytes = 0

    def add(self, block: Any, begins: Mask) -> list[Any]:
        """Take segments; return the documents that are whole by then, as blocks."""
        texts, starts = one_array(block[self._joining.text]), np.flatnonzero(begins)
        stop = int(starts[0]) if len(starts) else len(block)
        if stop:
            self.go_on(texts.part(0, stop))
        if not len(starts):
            return []
        done, last = self.end(), int(starts[-1])
        self._like = block.iloc[:0]
        if stop < last:
            done.append(self._whole(block.iloc[stop:last], texts.part(stop, last), begins[stop:last]))
        self._first = block.iloc[[last]].drop(columns=self._joining.text)
        self.go_on(texts.part(last, len(block)))
        return done

    def go_on(self, texts: TextArray) -> None:
        """Take segments of the document that is not whole."""
        self._bytes += self._joining.bytes_of(texts)
        self._require_room(self._bytes, lambda: self._first)
        self._pieces.append(texts.copy())

    def end(self) -> list[Any]:
        """Return the document that is not whole, as a block, if there is one: no segment of it follows."""
        first, pieces = self._first, self._pieces
        if first is None:
            return []
        self._first, self._pieces, self._bytes = None, [], 0
        texts = put_together(pieces) if len(pieces) > 1 else pieces[0]
        pieces.clear()
        begins = np.arange(len(texts.offsets) - 1) == 0
        return [self._joined(texts, begins, first.take)]

    def _require_room(self, document_bytes: int, row: Callable[[], Any]) -> None:
        joining = self._joining
        if document_bytes > joining.max_document_bytes:
            raise OperatorError(
                f"{OPERATOR}: {_document(row(), joining, 0)} has more than {show_size(joining.max_document_bytes)} of text. "
                "Set a larger max_document_size=, or, if no document is that long, correct the IDs that several documents "
                "share"
            )

    def _whole(self, block: Any, texts: TextArray, begins: Mask) -> Any:
        """Join documents of which all segments are in these rows."""
        lengths = np.diff(texts.offsets) + len(self._joining.separator.encode())
        starts = np.flatnonzero(begins)
        sizes = np.add.reduceat(lengths, starts)
        largest = int(np.argmax(sizes))
        self._require_room(int(sizes[largest]), lambda: block.iloc[[starts[largest]]])
        others = block.drop(columns=self._joining.text)
        if self._joining.max_chars is None:
            return self._joined(texts, begins, lambda _: keep_rows(others, begins))
        return self._joined(texts, begins, others.take)

    def nothing(self, block: Any) -> Any:
        """Return no rows, with the columns of joined ones, of a block of segments."""
        none = block.iloc[:0]
        return none if self._joining.keeps_segment_id else none.drop(columns=self._joining.segment_id)

    def _joined(self, texts: TextArray, begins: Mask, rows: Callable[[Any], Any]) -> Any:
        """Return rows of joined texts; ``rows`` gives the other columns of those at some places."""
        joining, pieces = self._joining, begins
        if joining.max_chars is not None:
            pieces = shorter_pieces(texts, begins, joining.separator, joining.max_chars)
        places = np.flatnonzero(pieces)
        documents = np.flatnonzero(begins)
        firsts = documents[np.searchsorted(documents, places, side="right") - 1]
        made = rows(firsts)
        joined = join_texts(texts, pieces, joining.separator)
        made = made.assign(**{joining.text: text_series([joined], self._like[joining.text], made.index)})
        if joining.keeps_segment_id:
            numbers = np.arange(len(places)) - np.searchsorted(places, firsts)
            made = made.assign(**{joining.segment_id: integer_column(made, numbers)})
        return made[list(self.nothing(self._like).columns)]

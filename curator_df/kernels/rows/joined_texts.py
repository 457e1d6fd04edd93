# SPDX-License-Identifier: Apache-2.0
"""Join consecutive texts of a column into one, with a separator between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.kernels.rows.segment_copy import begin_pieces, join_rows
from curator_df.kernels.text.buffers import large_strings, read_only, string_buffers, text_chunks

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class TextArray(NamedTuple):
    """Text column as one Arrow array."""

    data: npt.NDArray[np.uint8]
    """Bytes in UTF-8, read-only."""
    offsets: Integers
    """Start of each text in ``data``, and the end of the last, shape (rows + 1,); read-only. A null has no bytes."""
    valid: Mask | None
    """Validity, shape (rows,): False for null texts; None if there are none."""

    @property
    def known(self) -> Mask:
        """Return the validity as an array, shape (rows,): False for null texts."""
        return np.ones(len(self.offsets) - 1, dtype=np.bool_) if self.valid is None else self.valid

    def part(self, start: int, stop: int) -> TextArray:
        """Return a range of the texts, as views."""
        valid = None if self.valid is None else self.valid[start:stop]
        return TextArray(self.data, self.offsets[start : stop + 1], valid)

    def copy(self) -> TextArray:
        """Return a copy of the texts."""
        return put_together([self])


def one_array(column: pd.Series) -> TextArray:
    """Return a text column as one array, sharing its buffers where it is one."""
    chunks = text_chunks(column).chunks
    if len(chunks) != 1:
        large = [chunk.cast(pa.large_string()) for chunk in chunks] or [pa.array([], pa.large_string())]
        chunks = [pa.concat_arrays(large)]
    data, offsets = string_buffers(chunks[0])
    valid = chunks[0].is_valid().to_numpy(zero_copy_only=False) if chunks[0].null_count else None
    if valid is not None and np.diff(offsets)[~valid].any():  # Arrow allows bytes for a null
        data, offsets = string_buffers(pc.fill_null(chunks[0], ""))
    return TextArray(data, _read_only(np.ascontiguousarray(offsets, dtype=np.int64)), valid)


def _read_only(offsets: Integers) -> Integers:
    view = offsets.view()
    view.flags.writeable = False
    return view


def put_together(pieces: list[TextArray]) -> TextArray:
    """Return the texts of several arrays as one."""
    data = np.concatenate([piece.data[piece.offsets[0] : piece.offsets[-1]] for piece in pieces])
    lengths = np.concatenate([np.diff(piece.offsets) for piece in pieces])
    offsets = _read_only(np.concatenate([[0], np.cumsum(lengths)]))
    return TextArray(read_only(data), offsets, np.concatenate([piece.known for piece in pieces]))


def shorter_pieces(texts: TextArray, begins: Mask, separator: str, most_characters: int) -> Mask:
    """Return ``begins``, with True added for each text with which a joined text would become too long."""
    marked: Mask = begins.copy()
    begin_pieces(texts.data, texts.offsets, texts.known, len(separator), most_characters, marked)
    return marked


def join_texts(texts: TextArray, begins: Mask, separator: str) -> pa.Array:
    r"""Join consecutive texts; each text for which ``begins`` is True starts a new one, as the first text does.

    Nulls are skipped; the result of only nulls is null. Memory: the joined texts, 9 bytes for each of them, and a byte
    for each text.

    Examples
    --------
    >>> texts = one_array(pd.Series(["a", "b", None, None, "c"], dtype="string[pyarrow]"))
    >>> join_texts(texts, np.array([True, False, False, True, True]), "--").to_pylist()
    ['a--b', None, 'c']
    """
    mark = np.frombuffer(separator.encode(), dtype=np.uint8)
    known = texts.known
    count = int(begins.sum())
    # Unwritten pages use zero memory.
    copied = np.empty(int(texts.offsets[-1] - texts.offsets[0]) + len(mark) * int(known.sum()), dtype=np.uint8)
    ends, has_text = np.zeros(count + 1, dtype=np.int64), np.zeros(count, dtype=np.bool_)
    join_rows(texts.data, texts.offsets, known, begins, mark, copied, ends, has_text)
    return large_strings(copied[: ends[-1]], ends, None if has_text.all() else has_text)

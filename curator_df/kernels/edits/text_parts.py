# SPDX-License-Identifier: Apache-2.0
"""Hash the lines or paragraphs of the texts of a block, and remove some of them.

A *line* ends at a line feed. A *paragraph* ends at a line feed followed by blank lines, which belong to no paragraph. Parts
are numbered from 0 in each text. A part of only white space is numbered, has no hash and is never removed. A part that
is removed includes the line ends after it or, at the end of a text, those before it. White space is ASCII's here, as it
is in a blank line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.kernels.edits.part_bytes import (
    OUT,
    POSITION,
    REMOVED_BYTES,
    STATE_WORDS,
    copy_without_parts,
    find_parts,
)
from curator_df.kernels.rows.content_hash import Normalize, span_hashes
from curator_df.kernels.text.buffers import TextSpan, large_strings, text_series, text_spans

PartKind = Literal["lines", "paragraphs"]
PARTS_AT_A_TIME = 16_384
"""Number of parts whose hashes are held in each step: at 80 bytes, 1.3 MB independent of the block."""

Integers = npt.NDArray[np.int64]


class Parts(NamedTuple):
    """Consecutive parts of the texts of a block, in order."""

    hashes: npt.NDArray[np.uint64]
    """Hashes, shape (parts, 2)."""
    rows: Integers
    """Position of the text in the block, shape (parts,)."""
    ordinals: Integers
    """Number of the part in its text, shape (parts,)."""


@dataclass
class Shortened:
    """Texts without some of their parts."""

    texts: pd.Series
    """Texts, with the index of the original texts."""
    emptied: npt.NDArray[np.bool_]
    """Mask, shape (rows,): True if parts were removed and only white space remains."""
    removed_bytes: int
    """UTF-8 bytes that were removed, line ends included."""


def part_hashes(texts: pd.Series, kind: PartKind, *, normalize: Normalize | None = None) -> Iterator[Parts]:
    r"""Hash the parts of each text (see `content_hash.row_hashes`), in batches of some thousands.

    Examples
    --------
    >>> [parts] = part_hashes(pd.Series(["a\n\nb", None, "a"]), "lines")
    >>> parts.rows.tolist(), parts.ordinals.tolist(), (parts.hashes[0] == parts.hashes[2]).all().item()
    ([0, 0, 2], [0, 2, 0], True)
    """
    for span in text_spans(texts):
        state = np.zeros(STATE_WORDS, dtype=np.int64)
        state[POSITION] = -1
        count = PARTS_AT_A_TIME
        while count == PARTS_AT_A_TIME:
            bounds = np.empty(2 * PARTS_AT_A_TIME, dtype=np.int64)
            rows, ordinals = np.empty((2, PARTS_AT_A_TIME), dtype=np.int64)
            count = find_parts(
                span.data, span.offsets, _valid(span), kind == "paragraphs", state, bounds, rows, ordinals
            )
            if count:
                # The text between two parts is hashed too, and discarded: one pass over the bytes.
                hashes = span_hashes(span.data, bounds[: 2 * count], normalize)[::2]
                yield Parts(hashes, rows[:count] + span.first_row, ordinals[:count])


def without_parts(texts: pd.Series, kind: PartKind, going: Iterable[tuple[Integers, Integers]]) -> Shortened:
    r"""Return the texts without the given parts, in memory for one copy of them, independent of the number of parts.

    Parameters
    ----------
    texts : pandas.Series
        Text column.
    kind : {"lines", "paragraphs"}
        Kind of parts.
    going : iterable of (ndarray of int64, ndarray of int64)
        Row and number of each part to remove, in order; in any number of pieces.

    Raises
    ------
    ValueError
        If a given part does not exist.

    Examples
    --------
    >>> going = [(np.array([0]), np.array([2])), (np.array([2]), np.array([0]))]
    >>> found = without_parts(pd.Series(["a\n\nb", "b", "c\n"]), "lines", going)
    >>> found.texts.tolist(), found.emptied.tolist(), found.removed_bytes
    (['a\n', 'b', ''], [False, False, True], 3)
    """
    pieces = _Pieces(going)
    chunks, emptied, removed_bytes = [], np.zeros(len(texts), dtype=np.bool_), 0
    for span in text_spans(texts):
        chunk, span_emptied, removed = _span_without(span, kind, pieces)
        chunks.append(chunk)
        emptied[span.first_row : span.first_row + len(span)] = span_emptied
        removed_bytes += removed
    pieces.require_used()
    return Shortened(text_series(chunks, texts), emptied, removed_bytes)


class _Pieces:
    """Parts to remove, handed out span by span."""

    def __init__(self, pieces: Iterable[tuple[Integers, Integers]]) -> None:
        self._pieces = iter(pieces)
        self._rows = self._ordinals = np.empty(0, dtype=np.int64)
        self._ended = False

    def before(self, stop: int) -> tuple[Integers, Integers, bool]:
        """Return the parts of rows before ``stop``, and whether these are all of them."""
        if not len(self._rows) and not self._ended:
            piece = next(self._pieces, None)
            if piece is None:
                self._ended = True
            else:
                self._rows, self._ordinals = piece
        cut = int(np.searchsorted(self._rows, stop))
        return self._rows[:cut], self._ordinals[:cut], self._ended or cut < len(self._rows)

    def use(self, count: int) -> None:
        """Remove the first parts."""
        self._rows, self._ordinals = self._rows[count:], self._ordinals[count:]

    def require_used(self) -> None:
        """Raise unless all parts were used."""
        if len(self._rows) or next(self._pieces, None) is not None:
            raise ValueError("parts were given beyond the last text")


def _span_without(span: TextSpan, kind: PartKind, pieces: _Pieces) -> tuple[Any, npt.NDArray[np.bool_], int]:
    state = np.zeros(STATE_WORDS, dtype=np.int64)
    state[POSITION] = -1
    out = np.empty(int(span.offsets[-1] - span.offsets[0]), dtype=np.uint8)  # unwritten pages use zero memory
    offsets, emptied = np.zeros(len(span) + 1, dtype=np.int64), np.zeros(len(span), dtype=np.bool_)
    is_last = False
    while not is_last:
        rows, ordinals, is_last = pieces.before(span.first_row + len(span))
        named = rows - span.first_row
        used = copy_without_parts(
            span.data,
            span.offsets,
            _valid(span),
            kind == "paragraphs",
            named,
            ordinals,
            is_last,
            state,
            out,
            offsets,
            emptied,
        )
        if used < len(rows):
            raise ValueError(f"text {int(rows[used])} has no part {int(ordinals[used])} to remove")
        pieces.use(used)
    chunk = large_strings(out[: state[OUT]], offsets, span.valid)
    return chunk, emptied, int(state[REMOVED_BYTES])


def _valid(span: TextSpan) -> npt.NDArray[np.bool_]:
    return np.ones(len(span), dtype=np.bool_) if span.valid is None else span.valid

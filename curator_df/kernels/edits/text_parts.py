# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
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

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.rows.content_hash import Normalize, span_hashes
from curator_df.kernels.text.buffers import CHANGED_TEXT, TextSpan, large_strings, text_series, text_spans

NEWLINE, RETURN, TAB, SPACE = 10, 13, 9, 32
ROW, POSITION, ORDINAL, OUT, KEPT_END, KEPT, REMOVED, ENDS_REMOVED, REMOVED_BYTES = range(9)
"""Elements of the state: row; byte in its text (-1: not begun); number of the next part in it. For copies also: bytes written;
end of the content of the last kept part; for the current text, non-blank kept parts, removed parts, and whether the last
part was removed; bytes removed from all texts so far."""
STATE_WORDS = 9

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OFFSETS = types.Array(types.int64, 1, "A", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "A", readonly=True)
_NUMBERS = types.int64[::1]


@helper
def _is_blank(data: Any, start: int, stop: int) -> bool:
    for at in range(start, stop):
        byte = data[at]
        if not (byte == SPACE or TAB <= byte <= RETURN):
            return False
    return True


@helper
def _after_blank_lines(data: Any, start: int, stop: int) -> int:
    """Return the byte after the blank lines that start here, or ``start`` if there are none."""
    after = start
    for at in range(start, stop):
        byte = data[at]
        if byte == NEWLINE:
            after = at + 1
        elif not (byte == SPACE or TAB <= byte <= RETURN):
            break
    return after


@helper
def _next_part(data: Any, start: int, stop: int, paragraphs: bool) -> tuple[int, int]:
    """Return the end of the part that starts here, and the start of the next one, which is beyond ``stop`` if there is none."""
    for at in range(start, stop):
        if data[at] == NEWLINE:
            if not paragraphs:
                return at, at + 1
            after = _after_blank_lines(data, at + 1, stop)
            if after > at + 1:
                return at, after
    return stop, stop + 1


@kernel(types.int64(_BYTES, _OFFSETS, _FLAGS, types.boolean, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS))
def find_parts(
    data: Any, offsets: Any, valid: Any, paragraphs: bool, state: Any, bounds: Any, rows: Any, ordinals: Any
) -> int:
    """Fill ``bounds`` (start and end of each part), ``rows`` and ``ordinals`` with the next parts; return their number.

    Blank parts are numbered but skipped. If the arrays are not full, the texts have ended.
    """
    row, position, ordinal, count = state[ROW], state[POSITION], state[ORDINAL], 0
    while row < len(offsets) - 1:
        stop = offsets[row + 1]
        if position < 0:
            position, ordinal = offsets[row], 0
        while position <= stop and valid[row]:
            if count == len(rows):
                state[ROW], state[POSITION], state[ORDINAL] = row, position, ordinal
                return count
            end, following = _next_part(data, position, stop, paragraphs)
            if not _is_blank(data, position, end):
                bounds[2 * count], bounds[2 * count + 1] = position, end
                rows[count], ordinals[count] = row, ordinal
                count += 1
            position, ordinal = following, ordinal + 1
        row, position = row + 1, -1
    state[ROW], state[POSITION] = row, position
    return count


@helper
def _end_text(state: Any, offsets: Any, emptied: Any) -> None:
    row = state[ROW]
    if state[ENDS_REMOVED]:
        state[OUT] = state[KEPT_END]  # the line ends before a removed part are removed with it
    emptied[row] = state[REMOVED] > 0 and state[KEPT] == 0
    offsets[row + 1] = state[OUT]
    state[ROW], state[POSITION] = row + 1, -1


@helper
def _copy(data: Any, start: int, stop: int, out: Any, state: Any) -> None:
    at = state[OUT]
    out[at : at + stop - start] = data[start:stop]
    state[OUT] = at + stop - start


@kernel(
    types.int64(
        _BYTES,
        _OFFSETS,
        _FLAGS,
        types.boolean,
        _OFFSETS,
        _OFFSETS,
        types.boolean,
        types.int64[::1],
        types.uint8[::1],
        types.int64[::1],
        types.boolean[::1],
    )
)
def copy_without_parts(
    data: Any,
    offsets: Any,
    valid: Any,
    paragraphs: bool,
    drop_rows: Any,
    drop_ordinals: Any,
    is_last: bool,
    state: Any,
    out: Any,
    out_offsets: Any,
    emptied: Any,
) -> int:
    """Copy texts without the given parts (in order); return how many of these were reached.

    Stops when the given parts are used up, unless they are the last ones.
    """
    used, named = 0, len(drop_rows)
    while state[ROW] < len(offsets) - 1 and (is_last or used < named):
        row = state[ROW]
        start, stop = offsets[row], offsets[row + 1]
        if state[POSITION] < 0:
            if not valid[row] or used == named or drop_rows[used] > row:
                if valid[row]:
                    _copy(data, start, stop, out, state)
                state[REMOVED] = state[ENDS_REMOVED] = 0
                _end_text(state, out_offsets, emptied)
                continue
            state[POSITION], state[ORDINAL], state[KEPT_END] = start, 0, state[OUT]
            state[KEPT] = state[REMOVED] = state[ENDS_REMOVED] = 0
        while state[POSITION] <= stop and (is_last or used < named):
            position = state[POSITION]
            end, following = _next_part(data, position, stop, paragraphs)
            until = min(following, stop)
            if used < named and drop_rows[used] == row and drop_ordinals[used] == state[ORDINAL]:
                used += 1
                state[REMOVED] += 1
                state[REMOVED_BYTES] += until - position
                state[ENDS_REMOVED] = 1
            else:
                state[KEPT_END] = state[OUT] + end - position
                _copy(data, position, until, out, state)
                state[KEPT] += not _is_blank(data, position, end)
                state[ENDS_REMOVED] = 0
            state[POSITION], state[ORDINAL] = following, state[ORDINAL] + 1
        if state[POSITION] > stop:
            _end_text(state, out_offsets, emptied)
    return used


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
            raise ValueError(
                "more parts of texts are to be removed than the block has texts, so an earlier step gave other rows than "
                "when the input was first read. Make the result of that step depend on the row alone"
            )


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
            raise ValueError(
                f"text {int(rows[used]):,} of a block no longer has the line or paragraph {int(ordinals[used]):,}, which is "
                f"to be removed. {CHANGED_TEXT}"
            )
        pieces.use(used)
    chunk = large_strings(out[: state[OUT]], offsets, span.valid)
    return chunk, emptied, int(state[REMOVED_BYTES])


def _valid(span: TextSpan) -> npt.NDArray[np.bool_]:
    return np.ones(len(span), dtype=np.bool_) if span.valid is None else span.valid

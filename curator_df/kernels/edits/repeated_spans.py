# SPDX-License-Identifier: Apache-2.0
"""Windows of a fixed number of bytes that occur in several places, and texts without the spans that they cover.

A *window* is a substring of exactly ``window_bytes`` bytes of one text. Each window has one *anchor*: of the substrings of
``core_bytes`` bytes in it, the one with the smallest hash, and of equal ones the last. The anchor depends on the bytes of the
window alone, so equal windows have equal anchors at the same place (winnowing). Consecutive windows mostly share an
anchor: these are one *stretch*, about ``(window_bytes - core_bytes) / 2`` windows long.

References
----------
Schleimer, Wilkerson and Aiken, Winnowing: local algorithms for document fingerprinting, SIGMOD 2003.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.kernels.compiling.compiled import helper, inlined, kernel, types
from curator_df.kernels.edits.splices import Splice, splice_texts
from curator_df.kernels.text.buffers import CHANGED_TEXT, TextSpan, text_lengths, text_spans
from curator_df.kernels.text.murmur_hash import finished, hash_text

ROW, POSITION = range(2)
"""Elements of the state: the row (or stretch), and the next window in it."""
STATE_WORDS = 2
REMOVED_BYTES, REMOVED_CHARACTERS, STAYING, SPANS = range(2, 6)
"""Further elements of the state of `next_spans`: bytes and characters of all spans so far; for the current text, bytes outside of
its spans that are not white space, and its spans."""
SPAN_STATE_WORDS = 6

_U: Any = np.uint64
_BASE = _U(0x9E3779B97F4A7C15)
_SALT = _U(0xD6E8FEB86659FD93)
_MOST = _U((1 << 64) - 1)
_0, _1 = _U(0), _U(1)

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OFFSETS = types.Array(types.int64, 1, "A", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "A", readonly=True)
_NUMBERS = types.int64[::1]
_WORDS = types.uint64[::1]


@inlined
def _rolled(rolled: int, data: Any, at: int, after: int, stop: int, leaving: int) -> int:
    """Return the hash of the substring one byte to the right of the one from ``at`` to ``after``, if the text goes on."""
    if after < stop:
        rolled = (rolled - (_U(data[at]) + _1) * leaving) * _BASE + _U(data[after]) + _1
    return rolled


@helper
def _least(hashes: Any, slot: int, inside: int) -> tuple[int, int]:
    """Return the smallest of the hashes in a ring whose first one is at ``slot``, and the place of the last such."""
    best, best_at = _MOST, 0
    for place in range(inside):
        here = slot + place if slot + place < inside else slot + place - inside
        if hashes[here] <= best:
            best, best_at = hashes[here], place
    return best, best_at


@helper
def _fill_text(
    data: Any,
    begin: int,
    stop: int,
    window_bytes: int,
    core_bytes: int,
    position: int,
    count: int,
    hashes: Any,
    firsts: Any,
    anchors: Any,
    counts: Any,
    cores: Any,
) -> tuple[int, int]:
    """Fill in the stretches of one text from a window on; return their end in the arrays, and the next window, or -1."""
    inside, last = window_bytes - core_bytes + 1, stop - begin - window_bytes
    leaving, rolled = _1, _0
    for _ in range(core_bytes - 1):
        leaving *= _BASE
    at = begin + position  # of the substring whose hash is next
    for place in range(at, at + core_bytes):
        rolled = rolled * _BASE + _U(data[place]) + _1
    for place in range(inside):
        hashes[place] = finished(rolled)
        rolled = _rolled(rolled, data, at, at + core_bytes, stop, leaving)
        at += 1
    best, best_at = _least(hashes, 0, inside)
    best_at += position
    first, window, slot = position, position, 0
    while window < last:
        value = finished(rolled)
        hashes[slot] = value
        slot = slot + 1 if slot + 1 < inside else 0
        rolled = _rolled(rolled, data, at, at + core_bytes, stop, leaving)
        at += 1
        window += 1
        before, before_at = best, best_at
        if value <= best:
            best, best_at = value, window + inside - 1
        elif best_at < window:
            best, best_at = _least(hashes, slot, inside)
            best_at += window
        if best_at != before_at:
            firsts[count], counts[count], cores[count] = first, window - first, finished(before ^ _SALT)
            anchors[count] = before_at
            count, first = count + 1, window
            if count == len(firsts):
                return count, first
    firsts[count], counts[count], cores[count] = first, last + 1 - first, finished(best ^ _SALT)
    anchors[count] = best_at
    return count + 1, -1


@kernel(
    types.int64(
        _BYTES,
        _OFFSETS,
        _FLAGS,
        types.int64,
        types.int64,
        _NUMBERS,
        _WORDS,
        _NUMBERS,
        _NUMBERS,
        _NUMBERS,
        _NUMBERS,
        _WORDS,
    ),
    allocates=False,
)
def find_stretches(
    data: Any,
    offsets: Any,
    valid: Any,
    window_bytes: int,
    core_bytes: int,
    state: Any,
    hashes: Any,
    rows: Any,
    firsts: Any,
    anchors: Any,
    counts: Any,
    cores: Any,
) -> int:
    """Fill the arrays from ``rows`` on with the next stretches; return their number.

    If the arrays are not full, the texts have ended. ``firsts`` and ``anchors`` are bytes in the text of the row, ``cores``
    hashes of the anchors, uniform in all bits. ``hashes`` has room for those of a window.
    """
    row, position, count = state[ROW], state[POSITION], 0
    while row < len(offsets) - 1 and count < len(rows):
        before, begin, stop = count, offsets[row], offsets[row + 1]
        if valid[row] and stop - begin >= window_bytes:
            count, position = _fill_text(
                data, begin, stop, window_bytes, core_bytes, position, count, hashes, firsts, anchors, counts, cores
            )
            rows[before:count] = row
        else:
            position = -1
        if position < 0:
            row, position = row + 1, 0
    state[ROW], state[POSITION] = row, position
    return count


@kernel(types.void(_BYTES, _OFFSETS, _OFFSETS, types.uint64[:, ::1]), allocates=False)
def hash_spans(data: Any, starts: Any, stops: Any, hashes: Any) -> None:
    """Hash the bytes of each span into its row of ``hashes``, shape (spans, 2)."""
    for number in range(len(hashes)):
        hashes[number, 0], hashes[number, 1] = hash_text(data, starts[number], stops[number])


@kernel(
    types.int64(_BYTES, _OFFSETS, _OFFSETS, types.int64, _NUMBERS, _NUMBERS, _NUMBERS, types.uint64[:, ::1]),
    allocates=False,
)
def hash_windows(
    data: Any, begins: Any, counts: Any, window_bytes: int, state: Any, numbers: Any, places: Any, hashes: Any
) -> int:
    """Hash the next windows of stretches that begin at these bytes; return how many.

    ``numbers`` are those of the stretches, ``places`` the windows in them. If the arrays are not full, the stretches have ended.
    """
    number, place, count = state[ROW], state[POSITION], 0
    while number < len(begins):
        while place < counts[number]:
            if count == len(numbers):
                state[ROW], state[POSITION] = number, place
                return count
            at = begins[number] + place
            hashes[count, 0], hashes[count, 1] = hash_text(data, at, at + window_bytes)
            numbers[count], places[count] = number, place
            count, place = count + 1, place + 1
        number, place = number + 1, 0
    state[ROW], state[POSITION] = number, place
    return count


@kernel(types.void(types.boolean[::1], _OFFSETS, _OFFSETS), allocates=False)
def mark_spans(covered: Any, starts: Any, stops: Any) -> None:
    """Set the flags of the bytes of each span."""
    for number in range(len(starts)):
        for place in range(starts[number], stops[number]):
            covered[place] = True


@helper
def _end_of_covered(data: Any, at: int, stop: int, covered: Any, base: int) -> tuple[int, int]:
    """Return the end of the covered code points from ``at`` on, and their number."""
    characters = 0
    while at < stop:
        end = at
        while covered[end - base]:
            end += 1
            if end == stop or data[end] & 0xC0 != 0x80:
                break
        if end == at or (end < stop and data[end] & 0xC0 == 0x80):  # a part of this code point is not covered
            break
        at, characters = end, characters + 1
    return at, characters


@kernel(
    types.int64(_BYTES, _OFFSETS, types.boolean[::1], _NUMBERS, types.boolean[::1], _NUMBERS, _NUMBERS, _NUMBERS),
    allocates=False,
)
def next_spans(
    data: Any, offsets: Any, covered: Any, state: Any, emptied: Any, rows: Any, starts: Any, stops: Any
) -> int:
    """Fill ``rows``, ``starts`` and ``stops`` with the next covered spans, cut to whole code points; return their number.

    ``covered`` has a flag for each byte from ``offsets[0]`` on. ``emptied`` of a row becomes True if it has a span, and nothing
    but ASCII's white space is outside of its spans. If the arrays are not full, the texts have ended.
    """
    row, at, count, base = state[ROW], state[POSITION], 0, offsets[0]
    while row < len(offsets) - 1:
        stop = offsets[row + 1]
        if at < 0:
            at, state[STAYING], state[SPANS] = offsets[row], 0, 0
        while at < stop:
            if count == len(rows):
                state[ROW], state[POSITION] = row, at
                return count
            end, byte = at, data[at]
            if covered[at - base] and byte & 0xC0 != 0x80:
                end, characters = _end_of_covered(data, at, stop, covered, base)
            if end == at:
                state[STAYING] += not (byte == 32 or 9 <= byte <= 13)
                at += 1
                continue
            rows[count], starts[count], stops[count] = row, at, end
            state[REMOVED_BYTES] += end - at
            state[REMOVED_CHARACTERS] += characters
            state[SPANS] += 1
            count, at = count + 1, end
        emptied[row] = state[SPANS] > 0 and state[STAYING] == 0
        row, at = row + 1, -1
    state[ROW], state[POSITION] = row, at
    return count


STRETCHES_AT_A_TIME = 16_384
"""Number of stretches that are found in each step: at 80 bytes, 1.3 MB independent of the block."""
WINDOWS_AT_A_TIME = 16_384
MOST_JOINED = 60_000
"""Number of windows of a joined stretch at most."""
SPANS_AT_A_TIME = 1_024

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]


class Stretches(NamedTuple):
    """Consecutive stretches of the texts of a block, in order."""

    rows: Integers
    """Position of the text in the block, shape (stretches,)."""
    firsts: Integers
    """Byte in the text at which the first window begins, shape (stretches,)."""
    anchors: Integers
    """Byte in the text at which the anchor begins, shape (stretches,)."""
    counts: Integers
    """Number of windows, shape (stretches,)."""
    places: Integers
    """Byte at which the first window begins, counted over the texts of the block, shape (stretches,)."""
    cores: Hashes
    """Hash of the anchor, shape (stretches,)."""
    follows: Flags
    """True if the two stretches before it, in the same text, have the same hash, shape (stretches,)."""

    def at(self, chosen: Flags) -> Stretches:
        """Return some of the stretches."""
        return Stretches._make(values[chosen] for values in self)


def text_stretches(texts: pd.Series, window_bytes: int, core_bytes: int) -> Iterator[tuple[TextSpan, Stretches]]:
    """Find the stretches of each text, in batches of some thousands, each with the span of texts that it is in.

    Examples
    --------
    >>> [(_, found)] = text_stretches(pd.Series(["abcabcab", None, "abc"]), window_bytes=3, core_bytes=2)
    >>> found.rows.tolist(), int(found.counts.sum()), found.places[-1].item()
    ([0, 0, 0, 0, 2], 7, 8)
    """
    base = 0
    for span in text_spans(texts):
        valid = np.ones(len(span), dtype=np.bool_) if span.valid is None else span.valid
        lengths = text_lengths(span)
        begins = base + np.cumsum(lengths) - lengths
        base += int(lengths.sum())
        state, hashes = np.zeros(STATE_WORDS, dtype=np.int64), np.empty(window_bytes, dtype=np.uint64)
        before, count = (-1, -1), STRETCHES_AT_A_TIME
        before_cores = np.zeros(2, dtype=np.uint64)
        while count == STRETCHES_AT_A_TIME:
            integers, cores = (
                np.empty((4, STRETCHES_AT_A_TIME), dtype=np.int64),
                np.empty_like(hashes, shape=STRETCHES_AT_A_TIME),
            )
            count = find_stretches(
                span.data, span.offsets, valid, window_bytes, core_bytes, state, hashes, *integers, cores
            )
            rows, firsts, anchors, counts = integers[:, :count]
            cores = cores[:count]
            all_rows, all_cores = np.concatenate([before, rows]), np.concatenate([before_cores, cores])
            follows = (all_rows[:-2] == all_rows[2:]) & (all_cores[:-2] == cores) & (all_cores[1:-1] == cores)
            before, before_cores = (int(all_rows[-2]), int(all_rows[-1])), all_cores[-2:]
            if count:
                places = begins[rows] + firsts
                yield span, Stretches(rows + span.first_row, firsts, anchors, counts, places, cores, follows)


class Pieces(NamedTuple):
    """Pieces of stretches: some consecutive windows, divided by their distance from the anchor."""

    rows: Integers
    """Position of the text in the block, shape (pieces,)."""
    firsts: Integers
    """Byte in the text at which the first window begins, shape (pieces,)."""
    counts: Integers
    """Number of windows, shape (pieces,)."""
    cores: Integers
    """First byte in the text of the bytes that all windows at these distances share, shape (pieces,)."""


def stretch_pieces(rows: Integers, firsts: Integers, anchors: Integers, counts: Integers, each: int) -> Pieces:
    """Divide stretches, so that equal windows are in pieces at the same distances from equal anchors.

    Examples
    --------
    >>> found = stretch_pieces(*(np.array([number]) for number in (0, 10, 16, 6)), each=4)
    >>> found.firsts.tolist(), found.counts.tolist(), found.cores.tolist()
    ([10, 13], [3, 3], [12, 16])
    """
    farthest, nearest = anchors - firsts, anchors - firsts - counts + 1
    numbers = farthest // each - nearest // each + 1
    owner = np.repeat(np.arange(len(rows)), numbers)
    step = np.arange(len(owner)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    bucket = farthest[owner] // each - step
    begin = np.maximum(farthest[owner] - bucket * each - (each - 1), 0)
    end = np.minimum(farthest[owner] - bucket * each, counts[owner] - 1)
    return Pieces(rows[owner], firsts[owner] + begin, end - begin + 1, anchors[owner] - bucket * each)


def byte_hashes(span: TextSpan, rows: Integers, firsts: Integers, lengths: Integers | int) -> Hashes:
    """Hash some bytes of each of these texts of a span."""
    starts = span.offsets[rows - span.first_row] + firsts
    hashes = np.empty((len(starts), 2), dtype=np.uint64)
    hash_spans(span.data, starts, starts + lengths, hashes)
    return hashes


def joined_stretches(found: Stretches, hashes: Hashes) -> tuple[Stretches, Hashes]:
    """Join stretches that follow two others with the same bytes, each without a gap, into one.

    A long text of a short period has as many stretches as periods; after two of them, the others are copies of the first for
    certain. No more are joined than have together at most `MOST_JOINED` windows.
    """
    alike = np.zeros(len(found.rows), dtype=np.bool_)
    alike[1:] = (found.rows[1:] == found.rows[:-1]) & (hashes[1:] == hashes[:-1]).all(axis=1)
    alike[1:] &= found.firsts[1:] == found.firsts[:-1] + found.counts[:-1]
    third = alike.copy()
    third[1:] &= alike[:-1]
    third[:1] = False
    begins = ~third
    begins[1:] |= third[1:] & ~third[:-1]
    each = max(MOST_JOINED // max(int(found.counts.max(initial=1)), 1), 1)
    numbers = np.arange(len(begins))
    begins |= (numbers - np.maximum.accumulate(np.where(begins, numbers, 0))) % each == 0
    starts = np.flatnonzero(begins)
    if len(starts) == len(begins):
        return found, hashes
    return found.at(begins)._replace(counts=np.add.reduceat(found.counts, starts)), hashes[begins]


def window_hashes(
    span: TextSpan, rows: Integers, firsts: Integers, counts: Integers, window_bytes: int
) -> Iterator[tuple[Integers, Integers, Hashes]]:
    """Hash the windows of stretches; yield rows, bytes in the text and hashes, in batches of some thousands."""
    begins = span.offsets[rows - span.first_row] + firsts
    state, count = np.zeros(STATE_WORDS, dtype=np.int64), WINDOWS_AT_A_TIME
    while count == WINDOWS_AT_A_TIME:
        numbers, places = np.empty((2, WINDOWS_AT_A_TIME), dtype=np.int64)
        hashes = np.empty((WINDOWS_AT_A_TIME, 2), dtype=np.uint64)
        count = hash_windows(span.data, begins, counts, window_bytes, state, numbers, places, hashes)
        numbers = numbers[:count]
        if count:
            yield rows[numbers], firsts[numbers] + places[:count], hashes[:count]


@dataclass
class Shortened:
    """Texts without some spans."""

    texts: pd.Series
    """Texts, with the index of the original texts; the same object if nothing was removed."""
    emptied: Flags
    """Mask, shape (rows,): True if spans were removed and only white space remains."""
    spans: int
    """Number of removed spans."""
    removed_bytes: int
    """UTF-8 bytes that were removed."""
    removed_characters: int
    """Code points that were removed."""


Covering = Callable[[TextSpan], Iterator[tuple[Integers, Integers, Integers]]]
"""Function that yields covered pieces of texts, some at once and in any order: their rows (positions in the column), first bytes
in the text, and numbers of bytes. Its argument is a span whose ``first_row`` is a position in the column.
"""


def without_spans(texts: pd.Series, covering: Covering) -> Shortened:
    """Return texts without the bytes that are covered, but with each code point of which only a part is covered.

    Examples
    --------
    >>> whole = [(np.array([0, 0]), np.array([0, 2]), np.array([3, 3])), (np.array([1]), np.array([0]), np.array([2]))]
    >>> found = without_spans(pd.Series(["abcdef", "a\u00e9"]), lambda span: iter(whole))
    >>> found.texts.tolist(), found.spans, found.removed_bytes
    (['f', 'é'], 2, 6)
    """
    removed = _Removed(texts, covering)
    shortened, _ = splice_texts(texts, removed.find)
    return Shortened(shortened, removed.emptied, removed.spans, removed.bytes, removed.characters)


class _Removed:
    """Finder of the spans to remove, text span by text span, with counts."""

    def __init__(self, texts: pd.Series, covering: Covering) -> None:
        self._covering, self._first_row = covering, 0
        self.emptied = np.zeros(len(texts), dtype=np.bool_)
        self.spans = self.bytes = self.characters = 0

    def find(self, span: TextSpan) -> Iterator[Splice]:
        """Yield the pieces to replace by nothing; called for each span in order."""
        first_row = self._first_row
        self._first_row += len(span)
        in_column = TextSpan(first_row, span.data, span.offsets, span.valid)
        covered: Flags | None = None
        for rows, firsts, lengths in self._covering(in_column):
            if covered is None:
                covered = np.zeros(int(span.offsets[-1] - span.offsets[0]), dtype=np.bool_)
            _mark(in_column, covered, rows, firsts, lengths)
        if covered is None:
            return
        state = np.zeros(SPAN_STATE_WORDS, dtype=np.int64)
        state[POSITION], count = -1, SPANS_AT_A_TIME
        emptied = self.emptied[first_row : first_row + len(span)]
        while count == SPANS_AT_A_TIME:
            rows, starts, stops = np.empty((3, SPANS_AT_A_TIME), dtype=np.int64)
            count = next_spans(span.data, span.offsets, covered, state, emptied, rows, starts, stops)
            self.spans += count
            for row, start, stop in zip(rows[:count].tolist(), starts.tolist(), stops.tolist(), strict=False):
                yield row, start, stop, b""
        self.bytes += int(state[REMOVED_BYTES])
        self.characters += int(state[REMOVED_CHARACTERS])


def _mark(span: TextSpan, covered: Flags, rows: Integers, firsts: Integers, lengths: Integers) -> None:
    """Mark what is covered."""
    require_long_enough(span, rows, firsts, lengths)
    starts = span.offsets[rows - span.first_row] + firsts - span.offsets[0]
    mark_spans(covered, starts, starts + lengths)


def require_long_enough(span: TextSpan, rows: Integers, firsts: Integers, lengths: Integers) -> None:
    """Raise `ValueError` if a text ends before one of these pieces of it does."""
    begins, ends = span.offsets[rows - span.first_row], span.offsets[rows - span.first_row + 1]
    beyond = np.flatnonzero(begins + firsts + lengths > ends)
    if len(beyond):
        raise ValueError(
            f"text {int(rows[beyond[0]]):,} of a block is shorter than when the input was first read. {CHANGED_TEXT}"
        )

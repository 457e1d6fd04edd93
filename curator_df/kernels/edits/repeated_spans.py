# SPDX-License-Identifier: Apache-2.0
"""Stretches of windows of the texts of a block, their hashes, and texts without the spans that some windows cover.

`repeated_windows` has the compiled functions and says what a window and a stretch are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.kernels.edits.repeated_windows import (
    POSITION,
    REMOVED_BYTES,
    REMOVED_CHARACTERS,
    SPAN_STATE_WORDS,
    STATE_WORDS,
    find_stretches,
    hash_spans,
    hash_windows,
    mark_spans,
    next_spans,
)
from curator_df.kernels.edits.splices import Splice, splice_texts
from curator_df.kernels.text.buffers import CHANGED_TEXT, TextSpan, text_lengths, text_spans

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

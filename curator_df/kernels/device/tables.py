# SPDX-License-Identifier: Apache-2.0
# All kernels here take the same arguments.
# ruff: noqa: ARG001
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Counts that need working memory for each text, on a GPU: each text gets the size that it needs, from a bounded memory.

Numbers for each text are copied to the host: one for the size of its table, four for its n-grams. Short texts share one table of
n-grams, for as many texts as fit. Long ones have a window and a table each, as many concurrently as fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from curator_df.kernels.device.launch import allocate, consecutive, one_by_one, starts_of, to_device
from curator_df.kernels.device.support import Room
from curator_df.kernels.metrics.c4.c4_lines import count_c4
from curator_df.kernels.metrics.counts import (
    C4,
    DCLM_REPEATS,
    GRAMS,
    LINES,
    UNICODE_GRAMS,
    WEB,
    CountFamily,
)
from curator_df.kernels.metrics.dclm_counts import count_repeats_within, mark_bytes
from curator_df.kernels.metrics.lines.line_counts import count_lines_within, line_slots, piece_slots
from curator_df.kernels.metrics.nemo.web_metrics import count_web_within, web_bytes
from curator_df.kernels.metrics.ngrams.gram_counts import count_long_grams, count_short_grams, table_slots
from curator_df.kernels.metrics.ngrams.gram_repeats import count_long_repeats, count_short_repeats, repeat_bytes
from curator_df.kernels.metrics.ngrams.short_grams import short_text_cells, short_text_within
from curator_df.kernels.metrics.ngrams.unicode_grams import (
    count_unicode_grams_within,
    count_unicode_words,
    room_cells,
    room_within,
)
from curator_df.kernels.text.word_reading import WINDOW, count_words_from, word_total

_OPENING_BRACKET = 0x5B


@cuda.jit
def line_cells_kernel(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, needed: Any
) -> None:
    """Count the cells of each text for its lines or paragraphs."""
    for row in range(cuda.grid(1), len(needed), cuda.gridsize(1)):
        needed[row] = line_slots(data, np.int64(offsets[row]), np.int64(offsets[row + 1]), features)


@cuda.jit
def lines_kernel(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,
    cells: Any,
    places: Any,
    counts: Any,
) -> None:
    """Count `counts.LENGTH_COUNTS`, `counts.LINE_COUNTS` and `counts.PARAGRAPH_COUNTS`."""
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        count_lines_within(data, start, stop, classes, features, cells[places[row] : places[row + 1]], counts[row])


@cuda.jit
def web_cells_kernel(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, needed: Any
) -> None:
    """Count the cells of each text for its lines and paragraphs as NeMo Curator and dolma split them."""
    for row in range(cuda.grid(1), len(needed), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        needed[row] = piece_slots(data, start, stop) + (web_bytes(stop - start, features) + 3) // 4


@cuda.jit
def web_kernel(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,
    cells: Any,
    places: Any,
    counts: Any,
) -> None:
    """Count `counts.WEB_LINE_COUNTS`, `counts.DOLMA_LINE_COUNTS` and `counts.WEB_PARAGRAPH_COUNTS`."""
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        size = web_bytes(stop - start, features)
        first, last = places[row], places[row + 1] - (size + 3) // 4
        twice = cells[last : places[row + 1]].view(np.uint8)
        count_web_within(data, start, stop, classes, features, cells[first:last], twice[:size], counts[row])


@cuda.jit
def piece_cells_kernel(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, needed: Any
) -> None:
    """Count the cells of each text for its lines and paragraphs as DCLM splits them."""
    for row in range(cuda.grid(1), len(needed), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        needed[row] = piece_slots(data, start, stop) + (mark_bytes(stop - start) + 3) // 4


@cuda.jit
def pieces_kernel(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,
    cells: Any,
    places: Any,
    counts: Any,
) -> None:
    """Count `counts.DCLM_REPEAT_COUNTS`. The classes are those of `word_break`."""
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        size = mark_bytes(stop - start)
        first, last = places[row], places[row + 1] - (size + 3) // 4
        marks = cells[last : places[row + 1]].view(np.uint8)
        count_repeats_within(data, start, stop, classes, cells[first:last], marks[:size], counts[row])


@cuda.jit
def word_cells_kernel(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, needed: Any
) -> None:
    """Count the cells of each text for its words by Unicode's rules. The classes are those of `word_break`."""
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(needed), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        needed[row] = room_cells(count_unicode_words(data, start, stop, classes))


@cuda.jit
def unicode_grams_kernel(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,
    cells: Any,
    places: Any,
    counts: Any,
) -> None:
    """Count `counts.UNICODE_GRAM_COUNTS`. The classes are those of `word_break`."""
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        part, columns = cells[places[row] : places[row + 1]], counts[row]
        columns[:] = 0
        count_unicode_grams_within(data, start, stop, classes, room_within(part), columns)


@cuda.jit
def c4_cells_kernel(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, needed: Any
) -> None:
    """Count the cells of each text for its longest line without citations: 0 if there is no bracket."""
    for row in range(cuda.grid(1), len(needed), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        at = start
        while at < stop and data[at] != _OPENING_BRACKET:
            at += 1
        needed[row] = (stop - start + 3) // 4 if at < stop else 0


@cuda.jit
def c4_kernel(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,
    cells: Any,
    places: Any,
    counts: Any,
) -> None:
    """Count `counts.C4_COUNTS` and `counts.C4_UNPUNCTUATED_COUNTS`."""
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        scratch = cells[places[row] : places[row + 1]].view(np.uint8)
        count_c4(data, start, stop, classes, features, scratch, scratch, counts[row])


TABLE_KERNELS = {
    LINES: (line_cells_kernel, lines_kernel),
    WEB: (web_cells_kernel, web_kernel),
    DCLM_REPEATS: (piece_cells_kernel, pieces_kernel),
    UNICODE_GRAMS: (word_cells_kernel, unicode_grams_kernel),
    C4: (c4_cells_kernel, c4_kernel),
}
"""For each family with a table: the kernel that counts the cells of each text, and the one that counts in them."""


def count_in_tables(texts: tuple[Any, ...], family: CountFamily, features: int, room: Room, counts: Any) -> None:
    """Count a family.

    Parameters
    ----------
    texts : tuple of device arrays
        Bytes, offsets, and the three tables of the classes of characters.
    family : CountFamily
        Family with a table.
    features : int
        Requested features.
    room : Room
        Sizes of the working memory.
    counts : device array of int64, shape (rows, columns of the family)
        Result; the requested columns are overwritten.
    """
    cells_kernel, kernel = TABLE_KERNELS[family]
    data, offsets, *classes = texts
    needed = allocate(len(counts), np.int64)
    cells_kernel[one_by_one(len(counts), room.threads)](*texts, features, needed)
    sizes = needed.copy_to_host()
    parts = list(consecutive(sizes, room.table_cells))
    cells = allocate(max(1, *(int(sizes[part].sum()) for part in parts)), np.uint32)
    for part in parts:
        launch = one_by_one(part.stop - part.start, room.threads)
        part_offsets, places = offsets[part.start : part.stop + 1], to_device(starts_of(sizes[part]))
        kernel[launch](data, part_offsets, *classes, features, cells, places, counts[part])


@cuda.jit
def gram_needs_kernel(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, short_text_bytes: int, needs: Any
) -> None:
    """Compute the working memory of each text, shape (rows, 4).

    The columns are words; `short_text_cells` (0 for a long text); and for a long text `table_slots` and `repeat_bytes`.
    """
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(needs), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        words, is_short = count_words_from(data, start, stop, classes), stop - start <= short_text_bytes
        needs[row, 0] = words
        needs[row, 1] = short_text_cells(words, stop - start) if is_short else 0
        needs[row, 2] = 0 if is_short else table_slots(words)
        needs[row, 3] = 0 if is_short else repeat_bytes(stop - start)


@cuda.jit
def short_grams_kernel(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,
    rows: Any,
    needs: Any,
    cells: Any,
    places: Any,
    counts: Any,
) -> None:
    """Count `counts.TOP_GRAM_COUNTS` and `counts.REPEATED_GRAM_COUNTS` of short texts.

    ``places``, shape (rows + 1): start of the part of ``cells`` for each text, and the end of the last.
    """
    classes = (byte_classes, page_of, pages)
    for number in range(cuda.grid(1), len(rows), cuda.gridsize(1)):
        row = rows[number]
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        text = short_text_within(cells[places[number] : places[number + 1]], needs[row, 0], stop - start)
        count_short_grams(data, start, stop, classes, features, text, counts[row])


@cuda.jit
def short_repeats_kernel(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,
    rows: Any,
    needs: Any,
    cells: Any,
    places: Any,
    counts: Any,
) -> None:
    """Count the family `counts.REPEATS` in the same way; the last three columns are working memory."""
    classes = (byte_classes, page_of, pages)
    for number in range(cuda.grid(1), len(rows), cuda.gridsize(1)):
        row = rows[number]
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        text = short_text_within(cells[places[number] : places[number + 1]], needs[row, 0], stop - start)
        count_short_repeats(data, start, stop, classes, features, text, counts[row])


@cuda.jit
def long_grams_kernel(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,
    rows: Any,
    sums: Any,
    spans: Any,
    table: Any,
    places: Any,
    counts: Any,
) -> None:
    """Count `counts.TOP_GRAM_COUNTS` and `counts.REPEATED_GRAM_COUNTS` of long texts.

    ``sums`` and ``spans`` have a window for each text; ``places`` has the start of its part of ``table``.
    """
    classes = (byte_classes, page_of, pages)
    for number in range(cuda.grid(1), len(rows), cuda.gridsize(1)):
        row, window = rows[number], (sums[number], spans[number])
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        words = word_total(data, start, stop, classes, window[0], window[1])
        slots = table[places[number] : places[number + 1]]
        count_long_grams(data, start, stop, classes, features, window, slots, words, counts[row])


@cuda.jit
def long_repeats_kernel(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,
    rows: Any,
    sums: Any,
    spans: Any,
    table: Any,
    places: Any,
    bits: Any,
    bit_places: Any,
    counts: Any,
) -> None:
    """Count the family `counts.REPEATS` in the same way, with a part of ``bits``; the last three columns are working memory."""
    classes = (byte_classes, page_of, pages)
    for number in range(cuda.grid(1), len(rows), cuda.gridsize(1)):
        row, window = rows[number], (sums[number], spans[number])
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        words = word_total(data, start, stop, classes, window[0], window[1])
        slots, twice = table[places[number] : places[number + 1]], bits[bit_places[number] : bit_places[number + 1]]
        count_long_repeats(data, start, stop, classes, features, window, slots, twice, words, counts[row])


WINDOW_BYTES = 5 * 8 * (WINDOW + 1)
"""Bytes of a window of words."""


def count_grams_into(texts: tuple[Any, ...], family: CountFamily, features: int, room: Room, counts: Any) -> None:
    """Count the n-grams of a family.

    Parameters
    ----------
    texts : tuple of device arrays
        Bytes, offsets, and the three tables of the classes of characters.
    family : CountFamily
        `counts.GRAMS` or `counts.REPEATS`.
    features : int
        Requested features.
    room : Room
        Sizes of the working memory.
    counts : device array of int64, shape (rows, columns of the family)
        Result; the requested columns are overwritten.
    """
    needs = allocate((len(counts), 4), np.int64)
    gram_needs_kernel[one_by_one(len(counts), room.threads)](*texts, room.short_text_bytes, needs)
    _, cells, slots, bits = needs.copy_to_host().T
    short, long = np.flatnonzero(cells), np.flatnonzero(cells == 0)
    if len(short):
        _count_short(texts, family, features, room, short, needs, cells[short], counts)
    sizes = WINDOW_BYTES + 4 * slots[long] + (0 if family == GRAMS else bits[long])
    for part in consecutive(sizes, room.gram_bytes):
        rows = long[part]
        _count_long(texts, family, features, room, rows, slots[rows], bits[rows], counts)


def _count_short(
    texts: tuple[Any, ...],
    family: CountFamily,
    features: int,
    room: Room,
    rows: npt.NDArray[np.int64],
    needs: Any,
    cells: npt.NDArray[np.int64],
    counts: Any,
) -> None:
    kernel = short_grams_kernel if family == GRAMS else short_repeats_kernel
    parts = list(consecutive(cells, room.gram_bytes // 8))
    table = allocate(max(int(cells[part].sum()) for part in parts), np.uint64)
    for part in parts:
        given = (to_device(rows[part]), needs, table, to_device(starts_of(cells[part])))
        kernel[one_by_one(part.stop - part.start, room.threads)](*texts, features, *given, counts)


def _count_long(
    texts: tuple[Any, ...],
    family: CountFamily,
    features: int,
    room: Room,
    rows: npt.NDArray[np.int64],
    slots: npt.NDArray[np.int64],
    bits: npt.NDArray[np.int64],
    counts: Any,
) -> None:
    windows = (
        allocate((len(rows), 2, WINDOW + 1), np.uint64),
        allocate((len(rows), 3, WINDOW + 1), np.int64),
    )
    given = (to_device(rows), *windows, allocate(int(slots.sum()), np.uint32), to_device(starts_of(slots)))
    launch = one_by_one(len(rows), room.threads)
    if family == GRAMS:
        long_grams_kernel[launch](*texts, features, *given, counts)
    else:
        twice = (allocate(int(bits.sum()), np.uint8), to_device(starts_of(bits)))
        long_repeats_kernel[launch](*texts, features, *given, *twice, counts)

# SPDX-License-Identifier: Apache-2.0
# All kernels here take the same arguments.
# ruff: noqa: ARG001
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Counts that need a hash table for each text, on a GPU: each text gets the size that it needs, from a bounded memory.

One number for each text is copied to the host: the size of its table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from curator_df.kernels.device.launch import allocate, consecutive, one_by_one, starts_of, to_device
from curator_df.kernels.device.support import Room
from curator_df.kernels.metrics.c4.c4_lines import count_c4
from curator_df.kernels.metrics.counts import (
    C4_FEATURES,
    COUNT_DCLM_REPEATS,
    COUNT_UNICODE_GRAMS,
    LINE_FEATURES,
    WEB_FEATURES,
)
from curator_df.kernels.metrics.dclm_counts import count_repeats_within, mark_bytes
from curator_df.kernels.metrics.lines.line_counts import count_lines_within, line_slots, piece_slots
from curator_df.kernels.metrics.nemo.nemo_line_counts import count_web_within, web_bytes
from curator_df.kernels.metrics.ngrams.unicode_grams import (
    count_unicode_grams_within,
    count_unicode_words,
    room_cells,
    room_within,
)

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


_KERNELS = {
    LINE_FEATURES: (line_cells_kernel, lines_kernel),
    WEB_FEATURES: (web_cells_kernel, web_kernel),
    COUNT_DCLM_REPEATS: (piece_cells_kernel, pieces_kernel),
    COUNT_UNICODE_GRAMS: (word_cells_kernel, unicode_grams_kernel),
    C4_FEATURES: (c4_cells_kernel, c4_kernel),
}


def count_in_tables(texts: tuple[Any, ...], group: int, features: int, room: Room, counts: Any) -> None:
    """Count a family.

    Parameters
    ----------
    texts : tuple of device arrays
        Bytes, offsets, and the three tables of the classes of characters.
    group : int
        Feature bits of one of `counts.FAMILIES`.
    features : int
        Requested features of the group.
    room : Room
        Sizes of the working memory.
    counts : device array of int64, shape (rows, counts of the group)
        Result; the requested columns are overwritten.
    """
    cells_kernel, kernel = _KERNELS[group]
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

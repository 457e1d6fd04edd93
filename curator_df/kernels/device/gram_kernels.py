# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Kernels that count n-grams of words: a thread for each text, with the CPU's own functions for short and for long texts.

Each counts the given rows into an array, shape (rows, columns of the group). See `grams` for the
function to call, which gives each text the working memory computed by `gram_needs_kernel`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from curator_df.kernels.metrics.ngrams.gram_counts import count_long_grams, count_short_grams, table_slots
from curator_df.kernels.metrics.ngrams.gram_repeats import count_long_repeats, count_short_repeats, repeat_bytes
from curator_df.kernels.metrics.ngrams.short_grams import short_text_cells, short_text_within
from curator_df.kernels.text.word_reading import count_words_from, word_total


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
    """Count `counts.REPEAT_COUNTS` in the same way; the last three columns are working memory."""
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
    """Count `counts.REPEAT_COUNTS` in the same way, also with a part of ``bits``; the last three columns are working memory."""
    classes = (byte_classes, page_of, pages)
    for number in range(cuda.grid(1), len(rows), cuda.gridsize(1)):
        row, window = rows[number], (sums[number], spans[number])
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        words = word_total(data, start, stop, classes, window[0], window[1])
        slots, twice = table[places[number] : places[number + 1]], bits[bit_places[number] : bit_places[number + 1]]
        count_long_repeats(data, start, stop, classes, features, window, slots, twice, words, counts[row])

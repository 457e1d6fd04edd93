# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Kernels that make the counts of metrics: a thread for each text, with the CPU's own per-text function.

Each makes a group of counts in a row of its own array, shape (rows, counts of the group). Kernels that need a table for each text
are in `table_kernels` and `gram_kernels`. See `measured` for the function to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from curator_df.kernels.metrics.dclm.dclm_counts import count_dclm_text
from curator_df.kernels.metrics.lines.sentences import text_sentence_count
from curator_df.kernels.metrics.nemo.character_counts import count_characters
from curator_df.kernels.metrics.source.source_pass import count_source
from curator_df.kernels.metrics.words.listed_words import count_listed_words, longest_listed
from curator_df.kernels.metrics.words.word_counts import count_words


@cuda.jit
def words_kernel(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count `counts.WORD_COUNTS`."""
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        count_words(data, start, stop, byte_classes, page_of, pages, features, counts[row])


@cuda.jit
def listed_words_kernel(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    listed: Any,
    listed_offsets: Any,
    slots: Any,
    seen: Any,
    column: int,
    counts: Any,
) -> None:
    """Count the words of a list into a column; ``seen``: a row for each thread, a number for each word of the list."""
    classes, words = (byte_classes, page_of, pages), (listed, listed_offsets, slots)
    longest, stamps = longest_listed(listed_offsets), seen[cuda.grid(1)]
    for number in range(len(stamps)):
        stamps[number] = -1
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        counts[row, column] = count_listed_words(data, start, stop, classes, words, longest, stamps, row)


@cuda.jit
def characters_kernel(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, tallies: Any, counts: Any
) -> None:
    """Count `counts.CHARACTER_COUNTS`; ``tallies``: a row of `LONGEST_COUNTED_WORD` + 1 for each thread."""
    classes = (byte_classes, page_of, pages)
    tally = tallies[cuda.grid(1)]
    for length in range(len(tally)):
        tally[length] = 0
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        columns = counts[row]
        for column in range(len(columns)):
            columns[column] = 0
        count_characters(data, np.int64(offsets[row]), np.int64(offsets[row + 1]), classes, tally, columns)


@cuda.jit
def dclm_kernel(data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, counts: Any) -> None:
    """Count `counts.DCLM_TEXT_COUNTS`. The classes are those of `word_break`."""
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        count_dclm_text(data, np.int64(offsets[row]), np.int64(offsets[row + 1]), classes, counts[row])


@cuda.jit
def source_kernel(data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, counts: Any) -> None:
    """Count `counts.SOURCE_COUNTS`."""
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        count_source(data, np.int64(offsets[row]), np.int64(offsets[row + 1]), classes, counts[row])


@cuda.jit
def sentences_kernel(data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, counts: Any) -> None:
    """Count `counts.SENTENCE_COUNTS`."""
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        counts[row, 0] = text_sentence_count(data, np.int64(offsets[row]), np.int64(offsets[row + 1]), classes)


@cuda.jit
def count_kernel(counts: Any, column: int, values: Any) -> None:
    """Copy a column of counts."""
    for row in range(cuda.grid(1), len(values), cuda.gridsize(1)):
        values[row] = counts[row, column]


@cuda.jit
def quotient_kernel(
    numerators: Any, numerator: int, denominators: Any, denominator: int, undefined: float, values: Any
) -> None:
    """Divide a column of counts by another, which may be of another group; ``undefined`` if that is 0."""
    for row in range(cuda.grid(1), len(values), cuda.gridsize(1)):
        if denominators[row, denominator] > 0:
            values[row] = numerators[row, numerator] / denominators[row, denominator]
        else:
            values[row] = undefined

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Text metrics of a column on a device, and the verdicts of rules on them.

Both are bit for bit those of the CPU (`measure.measure`), by the same per-text functions.

Rows are measured in spans of `SPAN_ROWS`, so that counts never add up over a block. Texts are not copied. Numbers for
each text and call are copied to the host: the sizes of its table and of the working memory of its n-grams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import cuda

from curator_df.kernels.device.launch import allocate, one_by_one, to_device
from curator_df.kernels.device.support import WHOLE_ROOM, Room
from curator_df.kernels.device.tables import TABLE_KERNELS, count_grams_into, count_in_tables
from curator_df.kernels.device.texts import DeviceTexts
from curator_df.kernels.metrics.catalog import METRICS, features_of
from curator_df.kernels.metrics.counts import (
    CHARACTERS,
    COUNT_STOP_WORDS,
    DCLM_TEXT,
    FAMILIES,
    GRAMS,
    LONGEST_COUNTED_WORD,
    REPEATS,
    SENTENCES,
    SOURCE,
    STOP_WORDS,
    WORD_COUNTS,
    WORDS,
    CountFamily,
)
from curator_df.kernels.metrics.dclm_counts import count_dclm_text
from curator_df.kernels.metrics.lines.sentences import text_sentence_count
from curator_df.kernels.metrics.measure import class_tables
from curator_df.kernels.metrics.nemo.character_counts import count_characters
from curator_df.kernels.metrics.source.source_metrics import count_source
from curator_df.kernels.metrics.words.listed_words import count_listed_words, longest_listed, word_list
from curator_df.kernels.metrics.words.word_counts import count_words

KEEPS = (">=", "<=", ">", "<")
"""Comparisons, in the order of their numbers in `rule_kernel`."""
PASSES = -1
"""Code of a row that no rule drops."""


def first_broken(
    values: Mapping[str, Any], rules: Sequence[tuple[str, str, float]], valid: Any, rows: int
) -> tuple[Any, Any, npt.NDArray[np.int64]]:
    """Evaluate the rules on the rows.

    Parameters
    ----------
    values : mapping of str to device array, shape (rows,)
        Metric by name.
    rules : sequence of (metric, comparison, threshold)
        In the order in which they are tried.
    valid : device array of bool, shape (rows,)
        False for null; of length 0 if there are no nulls.
    rows : int
        Number of rows.

    Returns
    -------
    codes : device array of int16, shape (rows,)
        Position of the rule, `PASSES`, or the number of rules for a row without text.
    passes : device array of bool, shape (rows,)
        True if no rule is broken and the text is not null.
    counted : ndarray of int64, shape (rules + 1,), on the host
        Rows that break each rule first; last, those without text.
    """
    codes, passes = allocate(rows, np.int16), allocate(rows, np.bool_)
    counted = to_device(np.zeros(len(rules) + 1, dtype=np.int64))
    if rows:
        launch = one_by_one(rows)
        pass_kernel[launch](valid, len(rules), codes)
        for position in reversed(range(len(rules))):
            metric, keep, threshold = rules[position]
            rule_kernel[launch](values[metric], KEEPS.index(keep), float(threshold), position, len(rules), codes)
        outcome_kernel[launch](codes, passes, counted)
    return codes, passes, counted.copy_to_host()


@cuda.jit
def pass_kernel(valid: Any, missing: int, codes: Any) -> None:
    """Pass all rows except those without text."""
    for row in range(cuda.grid(1), len(codes), cuda.gridsize(1)):
        codes[row] = missing if len(valid) > 0 and not valid[row] else PASSES


@cuda.jit
def rule_kernel(values: Any, keep: int, threshold: float, position: int, missing: int, codes: Any) -> None:
    """Record the rows with a text that break a rule. Rules are applied last to first, so that the first one remains."""
    for row in range(cuda.grid(1), len(codes), cuda.gridsize(1)):
        value = values[row]
        if keep == 0:
            keeps = value >= threshold
        elif keep == 1:
            keeps = value <= threshold
        elif keep == 2:
            keeps = value > threshold
        else:
            keeps = value < threshold
        if not keeps and codes[row] != missing:
            codes[row] = position


@cuda.jit
def outcome_kernel(codes: Any, passes: Any, counted: Any) -> None:
    """Write which rows pass, and count the others."""
    for row in range(cuda.grid(1), len(codes), cuda.gridsize(1)):
        passes[row] = codes[row] == PASSES
        if codes[row] != PASSES:
            cuda.atomic.add(counted, codes[row], 1)


@cuda.jit
def words_kernel(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count `WORD_COUNTS`."""
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
    """Count `CHARACTER_COUNTS`; ``tallies``: a row of `LONGEST_COUNTED_WORD` + 1 for each thread."""
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
    """Count `DCLM_TEXT_COUNTS`. The classes are those of `word_break`."""
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        count_dclm_text(data, np.int64(offsets[row]), np.int64(offsets[row + 1]), classes, counts[row])


@cuda.jit
def source_kernel(data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, counts: Any) -> None:
    """Count `SOURCE_COUNTS`."""
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        count_source(data, np.int64(offsets[row]), np.int64(offsets[row + 1]), classes, counts[row])


@cuda.jit
def sentences_kernel(data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, counts: Any) -> None:
    """Count `SENTENCE_COUNTS`."""
    classes = (byte_classes, page_of, pages)
    for row in range(cuda.grid(1), len(counts), cuda.gridsize(1)):
        counts[row, 0] = text_sentence_count(data, np.int64(offsets[row]), np.int64(offsets[row + 1]), classes)


PLAIN_KERNELS = {DCLM_TEXT: dclm_kernel, SOURCE: source_kernel, SENTENCES: sentences_kernel}
"""Kernels of the families that need nothing but the texts."""


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


_STOP_WORDS = WORD_COUNTS.index("stop_words")


def text_metrics(
    texts: DeviceTexts,
    metrics: Sequence[str],
    room: Room = WHOLE_ROOM,
    *,
    stop_words: tuple[str, ...] = STOP_WORDS,
) -> dict[str, Any]:
    """Measure a text column.

    Parameters
    ----------
    texts : DeviceTexts
        The column; null is allowed.
    metrics : sequence of str
        Names in `metrics.METRICS`.
    room : Room
        Sizes of the working memory.
    stop_words : tuple of str
        Words that ``stop_word_count`` counts.

    Returns
    -------
    dict of str to device array of int64 or float64, shape (rows,)
        Metric by name; meaningless for null.

    Notes
    -----
    Memory of the device: the result, 8 bytes a row and metric; up to 71 MB of counts; for metrics of characters 16 KB for each
    thread, at most 268 MB, and for stop words other than `STOP_WORDS` 4 bytes for each of them. Then for each group of
    lines, n-grams or C4's lines tables of at most 268 MB, or for the longest text `CountFamily.table_factor` times its bytes.
    """
    features = features_of(metrics)
    dtypes = {name: np.dtype(METRICS[name].dtype.lower()) for name in metrics}
    values = {name: allocate(len(texts), dtype) for name, dtype in dtypes.items()}
    counting = _Counting(features, room, stop_words)
    for first in range(0, len(texts), room.span_rows):
        stop = min(first + room.span_rows, len(texts))
        counts = counting.counts(texts.data, texts.offsets[first : stop + 1])
        for name in metrics:
            _put_values(name, counts, values[name][first:stop])
        del counts  # before the next rows are counted
    return values


class _Counting:
    """Kernels with their tables, which are copied to the device once for a block."""

    def __init__(self, features: int, room: Room, stop_words: tuple[str, ...]) -> None:
        self.features, self.room = features, room
        self.listed: tuple[Any, ...] = ()
        if features & COUNT_STOP_WORDS and stop_words != STOP_WORDS:
            words = word_list(stop_words)
            self.listed = (to_device(words.data), to_device(words.offsets), to_device(words.slots))
        kinds = {family.classes for family in FAMILIES if features & family.features}
        self.classes = {kind: tuple(map(to_device, class_tables(kind, features))) for kind in kinds}

    def counts(self, data: Any, offsets: Any) -> dict[str, tuple[Any, int]]:
        """Return, for each count, its array and column."""
        found: dict[str, tuple[Any, int]] = {}
        rows = len(offsets) - 1
        for family in FAMILIES:
            if self.features & family.features:
                counts = allocate((rows, family.columns), np.int64)
                self._count(family, data, offsets, counts)
                found |= {name: (counts, column) for column, name in enumerate(family.counts)}
        return found

    def _count(self, family: CountFamily, data: Any, offsets: Any, counts: Any) -> None:
        texts = (data, offsets, *self.classes[family.classes])
        launch = one_by_one(len(counts), self.room.threads)
        if family in TABLE_KERNELS:
            count_in_tables(texts, family, self.features, self.room, counts)
        elif family in (GRAMS, REPEATS):
            count_grams_into(texts, family, self.features, self.room, counts)
        elif family == WORDS:
            words_kernel[launch](*texts, self.features, counts)
            if self.listed:
                seen = allocate((launch[0] * launch[1], len(self.listed[1]) - 1), np.int32)
                listed_words_kernel[launch](*texts, *self.listed, seen, _STOP_WORDS, counts)
        elif family == CHARACTERS:
            tallies = allocate((launch[0] * launch[1], LONGEST_COUNTED_WORD + 1), np.int32)
            characters_kernel[launch](*texts, tallies, counts)
        else:
            PLAIN_KERNELS[family][launch](*texts, counts)


def _put_values(name: str, counts: dict[str, tuple[Any, int]], values: Any) -> None:
    metric = METRICS[name]
    launch = one_by_one(len(values))
    if metric.denominator is None:
        count_kernel[launch](*counts[metric.numerator], values)
    else:
        quotient_kernel[launch](*counts[metric.numerator], *counts[metric.denominator], metric.undefined, values)

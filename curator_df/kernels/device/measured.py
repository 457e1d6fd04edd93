# SPDX-License-Identifier: Apache-2.0
"""Text metrics of a column on a device: bit for bit those of `measure.measure`, of the same functions of a text.

Rows are measured `SPAN_ROWS` at a time, so that counts never add up over a block. Of the texts nothing is copied, and to the
host go numbers for each text and call: how large a table its lines need, and how much room its n-grams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from curator_df.kernels.character_classes import character_byte_classes, character_classes
from curator_df.kernels.code_points import CodePointTable, word_byte_classes, word_classes
from curator_df.kernels.counts import (
    CHARACTER_FEATURES,
    COUNT_DCLM_TEXT,
    COUNT_MARKS,
    GRAM_FEATURES,
    LINE_FEATURES,
    LONGEST_COUNTED_WORD,
    REPEAT_FEATURES,
    SOURCE_FEATURES,
    WORD_FEATURES,
)
from curator_df.kernels.device.counts import (
    characters_kernel,
    count_kernel,
    dclm_kernel,
    line_slots_kernel,
    lines_kernel,
    quotient_kernel,
    source_kernel,
    words_kernel,
)
from curator_df.kernels.device.grams import count_grams_into
from curator_df.kernels.device.launch import allocate, consecutive, one_by_one, starts_of, to_device
from curator_df.kernels.device.texts import DeviceTexts
from curator_df.kernels.device_support import GROUPS, WHOLE_ROOM, Room, columns_of, require_device_metrics
from curator_df.kernels.metrics import METRICS, features_of
from curator_df.kernels.word_break import word_break_byte_classes, word_break_classes


def text_metrics(texts: DeviceTexts, metrics: Sequence[str], room: Room = WHOLE_ROOM) -> dict[str, Any]:
    """Measure a text column.

    Parameters
    ----------
    texts : DeviceTexts
        The column; null is allowed.
    metrics : sequence of str
        Names of `device_support.DEVICE_METRICS`.
    room : Room
        How much is worked on at a time.

    Returns
    -------
    dict of str to device array of int64 or float64, shape (rows,)
        Metric by name; of no meaning where the text is null.

    Notes
    -----
    Memory of the device: the result, 8 bytes a row and metric; up to 48 MB of counts; for metrics of characters 16 KB for each
    thread, at most 268 MB; for those of lines and then for those of n-grams tables of at most 268 MB, or 4 x the longest text
    if that is more, 4.2 x with n-grams as NeMo and dolma count them.
    """
    require_device_metrics("text_metrics", metrics)
    features = features_of(metrics)
    dtypes = {name: np.dtype(METRICS[name].dtype.lower()) for name in metrics}
    values = {name: allocate(len(texts), dtype) for name, dtype in dtypes.items()}
    counting = _Counting(features, room)
    for first in range(0, len(texts), room.span_rows):
        stop = min(first + room.span_rows, len(texts))
        counts = counting.counts(texts.data, texts.offsets[first : stop + 1])
        for name in metrics:
            _put_values(name, counts, values[name][first:stop])
        del counts  # before those of the next rows are there
    return values


class _Counting:
    """Kernels with their tables, which go to the device once for a block."""

    def __init__(self, features: int, room: Room) -> None:
        self.features, self.room = features, room
        self.words: tuple[Any, ...] = ()
        if features & (WORD_FEATURES | LINE_FEATURES | SOURCE_FEATURES | GRAM_FEATURES | REPEAT_FEATURES):
            marks = "#." if features & COUNT_MARKS else ""
            self.words = _classes(word_byte_classes(marks), word_classes())
        if features & CHARACTER_FEATURES:
            self.characters = _classes(character_byte_classes(), character_classes())
        if features & COUNT_DCLM_TEXT:
            self.breaks = _classes(word_break_byte_classes(), word_break_classes())

    def counts(self, data: Any, offsets: Any) -> dict[str, tuple[Any, int]]:
        """Return, for each count that is made, the array and the column of it that it is in."""
        found: dict[str, tuple[Any, int]] = {}
        rows = len(offsets) - 1
        for features, names in GROUPS:
            if self.features & features:
                counts = allocate((rows, columns_of(features)), np.int64)
                self._count(features, data, offsets, counts)
                found |= {name: (counts, column) for column, name in enumerate(names)}
        return found

    def _count(self, group: int, data: Any, offsets: Any, counts: Any) -> None:
        launch = one_by_one(len(counts), self.room.threads)
        if group == WORD_FEATURES:
            words_kernel[launch](data, offsets, *self.words, self.features, counts)
        elif group == LINE_FEATURES:
            self._count_lines(data, offsets, counts)
        elif group == CHARACTER_FEATURES:
            tallies = allocate((launch[0] * launch[1], LONGEST_COUNTED_WORD + 1), np.int32)
            characters_kernel[launch](data, offsets, *self.characters, tallies, counts)
        elif group == COUNT_DCLM_TEXT:
            dclm_kernel[launch](data, offsets, *self.breaks, counts)
        elif group in (GRAM_FEATURES, REPEAT_FEATURES):
            count_grams_into((data, offsets, *self.words), group, self.features, self.room, counts)
        else:
            source_kernel[launch](data, offsets, *self.words, counts)

    def _count_lines(self, data: Any, offsets: Any, counts: Any) -> None:
        needed = allocate(len(counts), np.int64)
        line_slots_kernel[one_by_one(len(counts), self.room.threads)](data, offsets, self.features, needed)
        slots = needed.copy_to_host()
        parts = list(consecutive(slots, self.room.table_slots))
        table = allocate(max(1, *(int(slots[part].sum()) for part in parts)), np.uint32)
        for part in parts:
            places = to_device(starts_of(slots[part]))
            lines_kernel[one_by_one(part.stop - part.start, self.room.threads)](
                data,
                offsets[part.start : part.stop + 1],
                *self.words,
                self.features,
                table,
                places,
                counts[part],
            )


def _classes(byte_classes: Any, table: CodePointTable) -> tuple[Any, ...]:
    return to_device(byte_classes), to_device(table.page_of), to_device(table.pages)


def _put_values(name: str, counts: dict[str, tuple[Any, int]], values: Any) -> None:
    metric = METRICS[name]
    launch = one_by_one(len(values))
    if metric.denominator is None:
        count_kernel[launch](*counts[metric.numerator], values)
    else:
        quotient_kernel[launch](*counts[metric.numerator], *counts[metric.denominator], metric.undefined, values)

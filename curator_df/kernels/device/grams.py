# SPDX-License-Identifier: Apache-2.0
"""N-grams of words on a device: each text gets the working memory for its words, from a bounded part of the memory.

Short texts share one table, for as many texts as fit. Long ones have a window and a table each, as many concurrently as fit. Four
numbers for each text are copied to the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from curator_df.kernels.device.gram_kernels import (
    gram_needs_kernel,
    long_grams_kernel,
    long_repeats_kernel,
    short_grams_kernel,
    short_repeats_kernel,
)
from curator_df.kernels.device.launch import allocate, consecutive, one_by_one, starts_of, to_device
from curator_df.kernels.device.support import Room
from curator_df.kernels.metrics.counts import GRAM_FEATURES
from curator_df.kernels.text.word_reading import WINDOW

WINDOW_BYTES = 5 * 8 * (WINDOW + 1)
"""Bytes of a window of words."""


def count_grams_into(texts: tuple[Any, ...], group: int, features: int, room: Room, counts: Any) -> None:
    """Count the n-grams of a group of features.

    Parameters
    ----------
    texts : tuple of device arrays
        Bytes, offsets, and the three tables of the classes of characters.
    group : int
        `counts.GRAM_FEATURES` or `counts.REPEAT_FEATURES`.
    features : int
        Requested features of the group.
    room : Room
        Sizes of the working memory.
    counts : device array of int64, shape (rows, columns of the group)
        Result; the requested columns are overwritten.
    """
    needs = allocate((len(counts), 4), np.int64)
    gram_needs_kernel[one_by_one(len(counts), room.threads)](*texts, room.short_text_bytes, needs)
    _, cells, slots, bits = needs.copy_to_host().T
    short, long = np.flatnonzero(cells), np.flatnonzero(cells == 0)
    if len(short):
        _count_short(texts, group, features, room, short, needs, cells[short], counts)
    sizes = WINDOW_BYTES + 4 * slots[long] + (0 if group == GRAM_FEATURES else bits[long])
    for part in consecutive(sizes, room.gram_bytes):
        rows = long[part]
        _count_long(texts, group, features, room, rows, slots[rows], bits[rows], counts)


def _count_short(
    texts: tuple[Any, ...],
    group: int,
    features: int,
    room: Room,
    rows: npt.NDArray[np.int64],
    needs: Any,
    cells: npt.NDArray[np.int64],
    counts: Any,
) -> None:
    kernel = short_grams_kernel if group == GRAM_FEATURES else short_repeats_kernel
    parts = list(consecutive(cells, room.gram_bytes // 8))
    table = allocate(max(int(cells[part].sum()) for part in parts), np.uint64)
    for part in parts:
        given = (to_device(rows[part]), needs, table, to_device(starts_of(cells[part])))
        kernel[one_by_one(part.stop - part.start, room.threads)](*texts, features, *given, counts)


def _count_long(
    texts: tuple[Any, ...],
    group: int,
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
    if group == GRAM_FEATURES:
        long_grams_kernel[launch](*texts, features, *given, counts)
    else:
        twice = (allocate(int(bits.sum()), np.uint8), to_device(starts_of(bits)))
        long_repeats_kernel[launch](*texts, features, *given, *twice, counts)

# SPDX-License-Identifier: Apache-2.0
"""Counts that need a table for each text, on a device: each text gets the size that it needs, from a bounded part of the memory.

One number for each text is copied to the host: the size of its table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.device.launch import allocate, consecutive, one_by_one, starts_of, to_device
from curator_df.kernels.device.support import Room
from curator_df.kernels.device.table_kernels import (
    c4_cells_kernel,
    c4_kernel,
    line_cells_kernel,
    lines_kernel,
    piece_cells_kernel,
    pieces_kernel,
    unicode_grams_kernel,
    web_cells_kernel,
    web_kernel,
    word_cells_kernel,
)
from curator_df.kernels.metrics.counts import (
    C4_FEATURES,
    COUNT_DCLM_REPEATS,
    COUNT_UNICODE_GRAMS,
    LINE_FEATURES,
    WEB_FEATURES,
)

_KERNELS = {
    LINE_FEATURES: (line_cells_kernel, lines_kernel),
    WEB_FEATURES: (web_cells_kernel, web_kernel),
    COUNT_DCLM_REPEATS: (piece_cells_kernel, pieces_kernel),
    COUNT_UNICODE_GRAMS: (word_cells_kernel, unicode_grams_kernel),
    C4_FEATURES: (c4_cells_kernel, c4_kernel),
}


def count_in_tables(texts: tuple[Any, ...], group: int, features: int, room: Room, counts: Any) -> None:
    """Count a group of features.

    Parameters
    ----------
    texts : tuple of device arrays
        Bytes, offsets, and the three tables of the classes of characters.
    group : int
        Feature bits of one of `device_support.GROUPS`.
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

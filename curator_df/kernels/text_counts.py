# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""The compiled pass over the texts of a span: every count that is asked for, one text at a time, of any length.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. Which counts are made
is said by feature bits (`counts`) at run time, so every profile uses the same compiled code. See `measure` for the
function to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from curator_df.kernels.c4_lines import count_c4
from curator_df.kernels.counts import (
    C4_COUNTS,
    C4_UNPUNCTUATED_COUNTS,
    COUNT_C4,
    COUNT_C4_UNPUNCTUATED,
    COUNT_WORDS,
    COUNTS,
    LENGTH_COUNTS,
    TOP_GRAM_COUNTS,
)
from curator_df.kernels.gram_counts import count_grams
from curator_df.kernels.line_counts import count_lines
from curator_df.kernels.short_grams import new_short_text
from curator_df.kernels.word_counts import count_words
from curator_df.kernels.word_windows import new_window

KEPT_SLOTS = 1 << 16
"""Room for longer texts is given back after each."""

_LENGTHS, _GRAMS = COUNTS.index(LENGTH_COUNTS[0]), COUNTS.index(TOP_GRAM_COUNTS[0])
_C4, _C4_UNPUNCTUATED = COUNTS.index(C4_COUNTS[0]), COUNTS.index(C4_UNPUNCTUATED_COUNTS[0])

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_SIGNATURE = types.void(
    _BYTES,
    types.Array(types.int64, 1, "C", readonly=True),
    _BYTES,
    types.Array(types.uint16, 1, "C", readonly=True),
    types.Array(types.uint8, 2, "C", readonly=True),
    types.int64,
    types.uint8[::1],
    _BYTES,
    types.int64[:, ::1],
)


@njit(_SIGNATURE, nogil=True, cache=True)
def count_texts(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,
    scratch: Any,
    scratch_view: Any,
    counts: Any,
) -> None:
    """Count each text of a span into its row of ``counts``, shape (rows, len(COUNTS)).

    Columns of groups that ``features`` does not ask for are left as they are. ``scratch`` has room for the longest text if
    C4's counts are asked for, and ``scratch_view`` is a read-only view of it.
    """
    classes = (byte_classes, page_of, pages)
    room = (new_short_text(), new_window())
    table = np.empty(0, dtype=np.uint32)
    for number in range(len(counts)):
        start, stop, row = offsets[number], offsets[number + 1], counts[number]
        if features & COUNT_WORDS:
            count_words(data, start, stop, byte_classes, page_of, pages, features, row)
        table = count_grams(data, start, stop, classes, features, room, table, row[_GRAMS:])
        # A text has more words than lines: the table is large enough, and is not made anew beside the old one.
        table = count_lines(data, start, stop, classes, features, table, row[_LENGTHS:])
        if len(table) > KEPT_SLOTS:
            table = np.empty(0, dtype=np.uint32)
        for is_punctuated in range(2):
            if features & (COUNT_C4 if is_punctuated else COUNT_C4_UNPUNCTUATED):
                columns = row[_C4:] if is_punctuated else row[_C4_UNPUNCTUATED:]
                count_c4(data, start, stop, classes, is_punctuated == 1, scratch, scratch_view, columns)

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled pass over the texts of a span that makes the counts of DCLM's filters.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. See `measure` for the
function to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import kernel, types
from curator_df.kernels.metrics.counts import (
    COUNT_DCLM_REPEATS,
    COUNT_DCLM_TEXT,
    COUNT_UNICODE_GRAMS,
    COUNTS,
    DCLM_REPEAT_COUNTS,
    DCLM_TEXT_COUNTS,
    UNICODE_GRAM_COUNTS,
)
from curator_df.kernels.metrics.dclm.dclm_counts import count_dclm_repeats, count_dclm_text
from curator_df.kernels.metrics.ngrams.unicode_grams import ROOM_WORDS, count_unicode_grams, new_room
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN

_TEXT = COUNTS.index(DCLM_TEXT_COUNTS[0])
_REPEATS = COUNTS.index(DCLM_REPEAT_COUNTS[0])
_GRAMS = COUNTS.index(UNICODE_GRAM_COUNTS[0])
_STOP = _GRAMS + len(UNICODE_GRAM_COUNTS)


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_dclm_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns of DCLM, from `counts.DCLM_TEXT_COUNTS` on.

    The classes are those of `word_break`.
    """
    classes = (byte_classes, page_of, pages)
    table = np.empty(0, dtype=np.uint32)
    room = new_room(ROOM_WORDS if features & COUNT_UNICODE_GRAMS else 0)
    for row in range(len(counts)):
        start, stop = offsets[row], offsets[row + 1]
        if features & COUNT_DCLM_TEXT:
            count_dclm_text(data, start, stop, classes, counts[row, _TEXT:_REPEATS])
        if features & COUNT_DCLM_REPEATS:
            table = count_dclm_repeats(data, start, stop, classes, table, counts[row, _REPEATS:_GRAMS])
        if features & COUNT_UNICODE_GRAMS:
            count_unicode_grams(data, start, stop, classes, room, counts[row, _GRAMS:_STOP])

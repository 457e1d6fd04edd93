# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled pass over the texts of a span that counts n-grams of words.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. Feature bits (`counts`)
choose its counts at run time, so that every profile uses the same compiled code. See `measure` for
the function to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import kernel, types
from curator_df.kernels.metrics.counts import COUNTS, TOP_GRAM_COUNTS
from curator_df.kernels.metrics.ngrams.gram_counts import count_grams
from curator_df.kernels.metrics.ngrams.short_grams import new_short_text
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN
from curator_df.kernels.text.word_reading import new_window

_FIRST = COUNTS.index(TOP_GRAM_COUNTS[0])


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_grams_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns from `counts.TOP_GRAM_COUNTS` on."""
    classes = (byte_classes, page_of, pages)
    room = (new_short_text(), new_window())
    table = np.empty(0, dtype=np.uint32)
    for row in range(len(counts)):
        table = count_grams(data, offsets[row], offsets[row + 1], classes, features, room, table, counts[row, _FIRST:])

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled pass over the texts of a span that counts repeated n-grams as NeMo Curator and dolma count them.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. See `measure` for the
function to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import kernel, types
from curator_df.kernels.metrics.counts import COUNTS, REMOVED_GRAM_COUNTS
from curator_df.kernels.metrics.ngrams.gram_repeats import count_repeats
from curator_df.kernels.metrics.ngrams.short_grams import new_short_text
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN
from curator_df.kernels.text.word_reading import new_window

_FIRST = COUNTS.index(REMOVED_GRAM_COUNTS[0])


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_repeats_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns from `counts.REMOVED_GRAM_COUNTS` on."""
    classes = (byte_classes, page_of, pages)
    room = (new_short_text(), new_window())
    table = np.empty(0, dtype=np.uint32)
    work = np.zeros(counts.shape[1] - _FIRST + 3, dtype=np.int64)
    for row in range(len(counts)):
        table = count_repeats(data, offsets[row], offsets[row + 1], classes, features, room, table, work)
        counts[row, _FIRST:] = work[:-3]

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled pass over the texts of a span that tests their lines as C4 does.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. Feature bits (`counts`)
choose its counts at run time, so that every profile uses the same compiled code. See `measure` for
the function to call.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import kernel, types
from curator_df.kernels.metrics.c4.c4_lines import count_c4
from curator_df.kernels.metrics.counts import C4_COUNTS, COUNTS
from curator_df.kernels.metrics.words.word_counts import BYTES, COUNTS_TYPE, SPAN

_FIRST = COUNTS.index(C4_COUNTS[0])


@kernel(types.void(*SPAN, types.int64, types.uint8[::1], BYTES, COUNTS_TYPE))
def count_c4_of_span(
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
    """Count each text of a span into its row of ``counts``: `counts.C4_COUNTS` and `counts.C4_UNPUNCTUATED_COUNTS`.

    ``scratch`` has room for the longest text, and ``scratch_view`` is a read-only view of it.
    """
    classes = (byte_classes, page_of, pages)
    for row in range(len(counts)):
        columns = counts[row, _FIRST:]
        count_c4(data, offsets[row], offsets[row + 1], classes, features, scratch, scratch_view, columns)

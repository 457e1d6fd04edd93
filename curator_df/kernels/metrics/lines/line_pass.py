# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled pass over the texts of a span that counts code points, lines between line feeds, and paragraphs.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. Feature bits (`counts`)
choose its counts at run time, so that every profile uses the same compiled code. See `measure` for
the function to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import kernel, types
from curator_df.kernels.metrics.counts import COUNTS, LENGTH_COUNTS
from curator_df.kernels.metrics.lines.line_counts import count_lines
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN

_FIRST = COUNTS.index(LENGTH_COUNTS[0])


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_lines_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns from `counts.LENGTH_COUNTS` on."""
    classes = (byte_classes, page_of, pages)
    table = np.empty(0, dtype=np.uint32)
    for row in range(len(counts)):
        table = count_lines(data, offsets[row], offsets[row + 1], classes, features, table, counts[row, _FIRST:])

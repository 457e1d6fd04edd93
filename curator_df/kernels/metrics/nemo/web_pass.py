# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled pass over the texts of a span that counts lines and paragraphs as NeMo Curator and dolma split them.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. See `measure` for the
function to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import kernel, types
from curator_df.kernels.metrics.counts import COUNTS, WEB_LINE_COUNTS
from curator_df.kernels.metrics.nemo.nemo_line_counts import count_web
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN

_FIRST = COUNTS.index(WEB_LINE_COUNTS[0])


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_web_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns from `counts.WEB_LINE_COUNTS` on."""
    classes = (byte_classes, page_of, pages)
    table = np.empty(0, dtype=np.uint32)
    for row in range(len(counts)):
        table = count_web(data, offsets[row], offsets[row + 1], classes, features, table, counts[row, _FIRST:])

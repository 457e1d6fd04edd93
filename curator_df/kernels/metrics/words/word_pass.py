# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled pass over the texts of a span that counts words and their lines.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. Feature bits (`counts`)
choose its counts at run time, so that every profile uses the same compiled code. See `measure` for
the function to call.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import kernel, types
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN, count_words


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_words_of_span(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, features: int, counts: Any
) -> None:
    """Count each text of a span into its row of ``counts``: the columns of `counts.WORD_COUNTS`, which come first."""
    for row in range(len(counts)):
        count_words(data, offsets[row], offsets[row + 1], byte_classes, page_of, pages, features, counts[row])

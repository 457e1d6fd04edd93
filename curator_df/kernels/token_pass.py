# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""The compiled pass that writes the tokens of texts with white space between them.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. See `english_tokens` for
the function to call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from curator_df.kernels.token_restore import restore_exceptions
from curator_df.kernels.token_split import split_text
from curator_df.kernels.word_counts import BYTES

_SPAN = (
    BYTES,
    types.Array(types.int64, 1, "C", readonly=True),
    types.uint16[::1],
    types.uint16[::1],
    types.uint16[:, ::1],
)
_PHRASES = (
    types.uint32[::1],
    types.int32[::1],
    types.int32[::1],
    BYTES,
    types.uint8[::1],
    types.uint32[::1],
    types.uint32[::1],
)


@njit(types.void(*_SPAN, *_PHRASES, types.uint8[::1], types.int64[::1]), nogil=True, cache=True)
def split_span(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    lengths: Any,
    slots: Any,
    starts: Any,
    text: Any,
    kinds: Any,
    cuts: Any,
    patterns: Any,
    out: Any,
    stops: Any,
) -> None:
    """Write the tokens of each text into ``out``, which has room for twice the texts; ``stops`` are its offsets.

    One byte of white space or more is after each token.
    """
    classes = (byte_classes, page_of, pages)
    phrases = (lengths, slots, starts, text, kinds, cuts, patterns)
    ring = np.empty(16, dtype=np.int64)
    to = 0
    stops[0] = 0
    for row in range(len(offsets) - 1):
        first = to
        to, may_restore = split_text(data, offsets[row], offsets[row + 1], classes, phrases, out, to, ring)
        if may_restore:
            restore_exceptions(out, first, to, phrases)
        stops[row + 1] = to

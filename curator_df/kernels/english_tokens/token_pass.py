# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled pass that writes the tokens of texts with white space between them.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. See `token_spans` for
the function to call.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import kernel, types
from curator_df.kernels.english_tokens.restore import restore_exceptions
from curator_df.kernels.english_tokens.split import split_text
from curator_df.kernels.metrics.words.word_counts import BYTES
from curator_df.kernels.text.unowned_array import borrowed

_OFFSETS = types.Array(types.int64, 1, "C", readonly=True)


@kernel(types.void(BYTES, _OFFSETS, types.uint16[::1], types.uint32[::1], types.uint8[::1], types.int64[::1]))
def split_span(data: Any, offsets: Any, classes: Any, phrases: Any, out: Any, stops: Any) -> None:
    """Write the tokens of each text into ``out``, which has twice the size of the texts; ``stops`` are its offsets.

    Each token is followed by one byte of white space or more. ``classes`` and ``phrases`` are those of `english_rules`.
    """
    texts, rules, found, tokens = borrowed(data), borrowed(classes), borrowed(phrases), borrowed(out)
    to = 0
    stops[0] = 0
    for row in range(len(offsets) - 1):
        first = to
        to, may_restore = split_text(texts, offsets[row], offsets[row + 1], rules, found, tokens, to)
        if may_restore:
            restore_exceptions(tokens, first, to, found)
        stops[row + 1] = to

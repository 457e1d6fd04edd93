# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Compiled pass over the texts of a span that counts the lines and letters of source code, in constant memory.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. See `measure` for the
function to call.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.metrics.counts import COUNTS, SOURCE_COUNTS
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN, code_point
from curator_df.kernels.text.code_points import ALPHA

_FIRST = COUNTS.index(SOURCE_COUNTS[0])


@helper
def count_source(data: Any, start: int, stop: int, classes: Any, row: Any) -> None:
    """Make the counts ``SOURCE_COUNTS`` of the text ``data[start:stop]`` in ``row``."""
    byte_classes, page_of, pages = classes
    characters = line_feeds = length = longest = alphanumeric = letters = 0
    at = start
    while at < stop:
        byte, width = data[at], 1
        if byte >= 0x80:
            code, width = code_point(data, at, stop)
            letters += (pages[page_of[code >> 8], code & 255] & ALPHA) != 0
        else:
            is_letter = (byte_classes[byte] & ALPHA) != 0
            letters += is_letter
            # ! , . ? are the marks that NeMo counts.
            is_mark = byte == 0x0A or byte == 0x21 or byte == 0x2C or byte == 0x2E or byte == 0x3F  # noqa: PLR1714 (numba)
            alphanumeric += is_letter or is_mark or 0x30 <= byte <= 0x39
        characters += 1
        length += 1
        if byte == 0x0A:
            longest = max(longest, length - 1)
            line_feeds += 1
            length = 0
        at += width
    row[0], row[1], row[2] = characters, line_feeds + 1, characters - line_feeds
    row[3], row[4], row[5] = max(longest, length), alphanumeric, letters


@kernel(types.void(*SPAN, COUNTS_TYPE))
def count_source_of_span(data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, counts: Any) -> None:
    """Count each text of a span into its row of ``counts``: the columns of `counts.SOURCE_COUNTS`."""
    classes = (byte_classes, page_of, pages)
    for row in range(len(counts)):
        count_source(data, offsets[row], offsets[row + 1], classes, counts[row, _FIRST:])

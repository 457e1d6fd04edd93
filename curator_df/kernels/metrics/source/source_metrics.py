# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator"
"""Line lengths and shares of letters in source code: compiled counts, and the four metrics defined from them."""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.metrics.counts import COUNTS, SOURCE_COUNTS
from curator_df.kernels.metrics.metric import Metric
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


@kernel(types.void(*SPAN, types.int64, COUNTS_TYPE))
def count_source_of_span(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    features: int,  # noqa: ARG001 - passes take the same arguments
    counts: Any,
) -> None:
    """Count each text of a span into its row of ``counts``: the columns of `counts.SOURCE_COUNTS`."""
    classes = (byte_classes, page_of, pages)
    for row in range(len(counts)):
        count_source(data, offsets[row], offsets[row + 1], classes, counts[row, _FIRST:])


_FILTER = "nemo_curator 0.9.0, filters/code.py, PerExtensionFilter"
_LINES = "Lines are separated by single line feeds; empty lines count."

SOURCE_METRICS = (
    Metric(
        name="longest_line_length",
        dtype="Int64",
        numerator="longest_source_line",
        denominator=None,
        definition=f"Length of the longest line in code points. {_LINES}",
        source=_FILTER,
        edge_cases="0 for an empty text; a CR is part of its line",
    ),
    Metric(
        name="mean_line_length",
        dtype="Float64",
        numerator="source_line_characters",
        denominator="source_lines",
        definition=f"Mean line length in code points. {_LINES}",
        source=_FILTER,
        edge_cases="0 for an empty text, which is one line; a trailing line feed is followed by an empty line",
    ),
    Metric(
        name="alphanumeric_ratio",
        dtype="Float64",
        numerator="alphanumeric_characters",
        denominator="source_characters",
        definition="Fraction of the code points that are ASCII letters, ASCII digits, line feeds, or one of ? ! , .",
        source=_FILTER,
        edge_cases="0 for an empty text (NeMo divides by zero)",
    ),
    Metric(
        name="letter_ratio",
        dtype="Float64",
        numerator="letters",
        denominator="source_characters",
        definition="Fraction of the code points that are letters (str.isalpha).",
        source=_FILTER,
        edge_cases="1 for an empty text, which NeMo keeps; combining marks do not count as letters",
        undefined=1.0,
    ),
)

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled copy of the lines of texts that C4's tests keep (`c4_lines`), without citations.

Importing this module imports numba and compiles, or loads from the on-disk cache, one function. See `c4_texts` for the
function to call.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.metrics.c4.c4_lines import (
    GONE,
    KEPT,
    copy_without_citations,
    found_again,
    has_citation_bracket,
    judge_line,
    scan_line,
)
from curator_df.kernels.metrics.lines.line_counts import last_flags
from curator_df.kernels.text.code_points import SPACE
from curator_df.kernels.text.word_reading import next_word

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_SIGNATURE = types.int64(
    _BYTES,
    types.Array(types.int64, 1, "C", readonly=True),
    _BYTES,
    types.Array(types.uint16, 1, "C", readonly=True),
    types.Array(types.uint8, 2, "C", readonly=True),
    types.boolean,
    types.uint8[::1],
    _BYTES,
    types.int64[::1],
)


@helper
def _copy_text(
    data: Any, start: int, stop: int, classes: Any, is_punctuated: bool, copied: Any, view: Any, begin: int
) -> int:
    """Copy the kept lines to ``copied``, from ``begin`` on; return the end, or -1 if a line fails the text."""
    at, end, lines = start, begin, 0
    while at < stop:
        at, first, last, words, found = scan_line(data, at, stop, classes)
        line = end
        if lines:
            copied[line] = 0x0A
            line += 1
        if has_citation_bracket(found):
            line_stop = copy_without_citations(data, first, last, classes, copied, line)
            found = found_again(found, scan_line(view, line, line_stop, classes)[4])
        else:
            line_stop = line + last - first
            copied[line:line_stop] = data[first:last]
        verdict = judge_line(view, line, line_stop, words, found, is_punctuated)
        if verdict == KEPT:
            end = line_stop
            lines += 1
        elif verdict != GONE:
            return -1
    return end


@helper
def _strip(copied: Any, view: Any, begin: int, end: int, classes: Any) -> int:
    """Strip white space from both ends of the copied bytes; return their new end."""
    first = next_word(view, begin, end, classes)
    while end > first:
        flags, before = last_flags(view, first, end, classes)
        if not flags & SPACE:
            break
        end = before
    if first > begin:
        for place in range(end - first):
            copied[begin + place] = copied[first + place]
    return begin + end - first


@helper
def _is_other(data: Any, start: int, stop: int, copied: Any, begin: int, end: int) -> bool:
    same = 0
    while start + same < stop and begin + same < end and data[start + same] == copied[begin + same]:
        same += 1
    return start + same < stop or begin + same < end


@kernel(_SIGNATURE)
def copy_c4_lines(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    is_punctuated: bool,
    copied: Any,
    copied_view: Any,
    copied_offsets: Any,
) -> int:
    """Append each text of a span to ``copied``; return how many changed. A text that a line fails is copied unchanged.

    ``copied_offsets`` has one more entry than there are texts; its first says where in ``copied`` to begin. ``copied`` has
    room for the unchanged texts: kept lines are no longer than before, and a line feed is no longer than a line end.
    ``copied_view`` is a read-only view of it.
    """
    classes = (byte_classes, page_of, pages)
    changed = 0
    for row in range(len(offsets) - 1):
        start, stop, begin = offsets[row], offsets[row + 1], copied_offsets[row]
        end = _copy_text(data, start, stop, classes, is_punctuated, copied, copied_view, begin)
        if end < 0:
            end = begin + stop - start
            copied[begin:end] = data[start:stop]
        else:
            end = _strip(copied, copied_view, begin, end, classes)
            changed += _is_other(data, start, stop, copied_view, begin, end)
        copied_offsets[row + 1] = end
    return changed

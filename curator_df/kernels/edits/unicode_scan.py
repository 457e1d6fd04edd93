# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled search for the segments of a text that ftfy might change.

A segment is the unit of ftfy: up to and including the next line feed, at most 1,000,000 code points. Importing this module
imports numba and compiles, or loads from the on-disk cache, one function.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.edits.mojibake import CLASS_MASK, CONTROL, FORM
from curator_df.kernels.metrics.words.word_counts import code_point

SEGMENT_CODE_POINTS = 1_000_000
"""Maximum number of code points of a segment: ftfy's ``max_decode_length``."""

MOJIBAKE = 1
"""Flag: two neighbors that occur in mojibake. With `FORM` and `CONTROL` the flags of a suspect segment."""
ENTITY = 2
"""Flag: a possible HTML entity, if entities are to be replaced."""
CARRIAGE_RETURN = 4
"""Flag: a carriage return, if line breaks are to be fixed."""

PLAIN_BYTE, NEWLINE_BYTE, RETURN_BYTE, AMPERSAND_BYTE, LESS_THAN_BYTE, CONTROL_BYTE, HIGH_BYTE = range(7)
"""Kinds of bytes, in the table that the caller makes for its settings."""

_LONGEST_ENTITY = 24


@helper
def _is_alphanumeric(byte: int) -> bool:
    return 0x30 <= byte <= 0x39 or 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A


@helper
def _is_entity(data: Any, at: int, stop: int) -> bool:
    """Match ``&#?[0-9A-Za-z]{1,24};`` at an ampersand."""
    at += 1
    if at < stop and data[at] == 0x23:
        at += 1
    first = at
    while at < stop and at - first < _LONGEST_ENTITY and _is_alphanumeric(data[at]):
        at += 1
    return at > first and at < stop and data[at] == 0x3B


@helper
def _following_class(data: Any, at: int, stop: int) -> int:
    """Return the mojibake class of the ASCII character here, or -1 if there is none."""
    if at >= stop or data[at] >= 0x80:
        return -1
    if data[at] == 0x20:
        return 2
    return 1 if _is_alphanumeric(data[at]) and data[at] >= 0x41 else 0


@helper
def _scan_segment(
    data: Any, start: int, stop: int, may_unescape: bool, byte_kinds: Any, page_of: Any, pages: Any, pairs: Any
) -> tuple[int, int, bool]:
    """Return the end of the segment, its flags, and whether entities may still be replaced after it."""
    at, flags, before, continuation_bytes = start, 0, 0, 0
    cut = min(stop, start + SEGMENT_CODE_POINTS)
    while at < cut:
        kind = byte_kinds[data[at]]
        if kind == PLAIN_BYTE:
            at += 1
            continue
        if kind == HIGH_BYTE:
            code, width = code_point(data, at, stop)
            value = types.int64(pages[page_of[code >> 8], code & 255])
            flags |= value & (FORM | CONTROL)
            here = value & CLASS_MASK
            flags |= pairs[before, here]
            at += width
            continuation_bytes += width - 1
            cut = min(stop, start + SEGMENT_CODE_POINTS + continuation_bytes)
            following = _following_class(data, at, stop)
            before = here if following < 0 else 0
            if following >= 0:
                flags |= pairs[here, following]
            continue
        if kind == AMPERSAND_BYTE and may_unescape and _is_entity(data, at, stop):
            flags |= ENTITY
        elif kind == RETURN_BYTE:
            flags |= CARRIAGE_RETURN
        elif kind == CONTROL_BYTE:
            flags |= CONTROL
        elif kind == LESS_THAN_BYTE:
            may_unescape = False
        at += 1
        if kind == NEWLINE_BYTE:
            break
    return at, flags if may_unescape else flags & ~ENTITY, may_unescape


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_SIGNATURE = types.Tuple((types.int64, types.int64, types.int64, types.int64, types.boolean))(
    _BYTES,
    types.Array(types.int64, 1, "C", readonly=True),
    types.int64,
    types.int64,
    types.boolean,
    types.boolean,
    _BYTES,
    types.Array(types.uint16, 1, "C", readonly=True),
    types.Array(types.uint8, 2, "C", readonly=True),
    types.Array(types.uint8, 2, "C", readonly=True),
)


@kernel(_SIGNATURE)
def next_suspect(
    data: Any,
    offsets: Any,
    row: int,
    at: int,
    may_unescape: bool,
    unescapes: bool,
    byte_kinds: Any,
    page_of: Any,
    pages: Any,
    pairs: Any,
) -> tuple[int, int, int, int, bool]:
    """Return the next suspect segment at or after byte ``at`` of a row: (row, start, stop, flags, may_unescape).

    ``may_unescape`` is ftfy's state for a text: entities are replaced until the first line with a ``<``. ``unescapes``
    is its value at the start of each text. The row is the number of rows if there are no more suspect segments.
    """
    while row < len(offsets) - 1:
        while at < offsets[row + 1]:
            start = at
            at, flags, may_unescape = _scan_segment(
                data, at, offsets[row + 1], may_unescape, byte_kinds, page_of, pages, pairs
            )
            if flags:
                return row, start, at, flags, may_unescape
        row += 1
        at = offsets[row]
        may_unescape = unescapes
    return row, at, at, 0, may_unescape

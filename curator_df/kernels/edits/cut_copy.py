# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled copies of texts without something at their ends, or without some lines; a copy is never longer than the original.

See `cut_texts`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.edits.boilerplate import A_PHRASE, LOREM_IPSUM, find_boilerplate
from curator_df.kernels.metrics.words.word_counts import BYTES, SPAN, code_point
from curator_df.kernels.text.byte_search import are_same, is_here
from curator_df.kernels.text.code_points import SPACE
from curator_df.kernels.text.murmur_windows import is_continuation, murmur_64

OFFSETS = types.Array(types.int64, 1, "C", readonly=True)
COPIED = (types.uint8[::1], types.int64[::1])
"""Types of the output: bytes, and the end of each text in them (one more entry than texts; the first is given)."""

FROM_INDEX, FROM_MARK, FROM_NOTHING = range(3)
"""Ways to specify one end of a slice."""

_LINE_FEED, _QUOTATION_MARK = 0x0A, 0x22


@helper
def append(data: Any, start: int, stop: int, copied: Any, end: int) -> int:
    """Append bytes to ``copied`` from ``end`` on; return its new end."""
    copied[end : end + stop - start] = data[start:stop]
    return end + stop - start


@helper
def _line_stop(data: Any, at: int, stop: int) -> int:
    while at < stop and data[at] != _LINE_FEED:
        at += 1
    return at


@kernel(types.int64(BYTES, OFFSETS, *COPIED))
def copy_without_quotation_marks(data: Any, offsets: Any, copied: Any, copied_offsets: Any) -> int:
    """Append each text without the quotation marks around it; return how many changed."""
    changed = 0
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        if stop - start > 2 and data[start] == _QUOTATION_MARK and data[stop - 1] == _QUOTATION_MARK:
            first_stop = _line_stop(data, start, stop)
            if first_stop == stop or data[first_stop - 1] != _QUOTATION_MARK:
                start, stop, changed = start + 1, stop - 1, changed + 1
        copied_offsets[row + 1] = append(data, start, stop, copied, copied_offsets[row])
    return changed


@helper
def _paragraph_stop(data: Any, at: int, stop: int) -> int:
    while at + 1 < stop and (data[at] != _LINE_FEED or data[at + 1] != _LINE_FEED):
        at += 1
    return at if at + 1 < stop else stop


@helper
def _without_boilerplate(data: Any, start: int, stop: int) -> tuple[int, int]:
    """Return the bounds of the kept part of a text."""
    paragraphs = found = 0
    first = last = -1
    before_first = start  # the end of the paragraph before the first that is boilerplate
    after_last = stop  # the start of the paragraph after the last one
    at, previous_stop = start, start
    while at <= stop:
        paragraph_stop = _paragraph_stop(data, at, stop)
        kind = find_boilerplate(data, at, paragraph_stop)
        if kind == LOREM_IPSUM:
            return start, start
        if kind == A_PHRASE:
            if first < 0:
                first, before_first = paragraphs, previous_stop
            last, found, after_last = paragraphs, found + 1, min(paragraph_stop + 2, stop)
        paragraphs += 1
        previous_stop = paragraph_stop
        at = paragraph_stop + 2 if paragraph_stop < stop else stop + 1
    is_one_run = 0 < found < paragraphs and last - first + 1 == found
    if is_one_run and first == 0:
        return after_last, stop
    if is_one_run and last == paragraphs - 1:
        return start, before_first
    return start, stop


@kernel(types.int64(BYTES, OFFSETS, *COPIED))
def copy_without_boilerplate(data: Any, offsets: Any, copied: Any, copied_offsets: Any) -> int:
    """Append each text without boilerplate paragraphs at one of its ends; return how many changed."""
    changed = 0
    for row in range(len(offsets) - 1):
        start, stop = _without_boilerplate(data, offsets[row], offsets[row + 1])
        changed += stop - start < offsets[row + 1] - offsets[row]
        copied_offsets[row + 1] = append(data, start, stop, copied, copied_offsets[row])
    return changed


@helper
def _is_listed(data: Any, start: int, stop: int, hashes: Any, lines: Any, bounds: Any, lengths: Any) -> bool:
    length = stop - start
    if length >= len(lengths) or not lengths[length]:
        return False
    place = np.searchsorted(hashes, murmur_64(data, np.uint64(start), np.uint64(length), np.uint64(0)))
    if place == len(hashes) or bounds[place, 1] - bounds[place, 0] != length:
        return False
    return are_same(data, start, lines, bounds[place, 0], length)


@kernel(types.int64(BYTES, OFFSETS, types.uint64[::1], BYTES, types.int64[:, ::1], types.boolean[::1], *COPIED))
def copy_without_lines(
    data: Any, offsets: Any, hashes: Any, lines: Any, bounds: Any, lengths: Any, copied: Any, copied_offsets: Any
) -> int:
    """Append each text without the lines that are listed; return how many changed.

    ``hashes``: sorted hashes of the lines; ``bounds``: start and end of each in ``lines``; ``lengths``: True at the length of
    each.
    """
    changed = 0
    for row in range(len(offsets) - 1):
        at, stop, begin = offsets[row], offsets[row + 1], copied_offsets[row]
        end, kept, removed = begin, 0, 0
        while at <= stop:
            line_stop = _line_stop(data, at, stop)
            if _is_listed(data, at, line_stop, hashes, lines, bounds, lengths):
                removed += 1
            else:
                if kept:
                    copied[end] = _LINE_FEED
                    end += 1
                end = append(data, at, line_stop, copied, end)
                kept += 1
            at = line_stop + 1
        changed += removed > 0 and end - begin < stop - offsets[row]
        copied_offsets[row + 1] = end
    return changed


@helper
def _index_place(data: Any, start: int, stop: int, index: int) -> int:
    """Return the byte at which the code point with this index begins; negative counts from the end, as in a slice."""
    if index < 0:
        at = stop
        while index < 0 and at > start:
            at -= 1
            index += not is_continuation(data[at])
        return at
    at = start
    while index > 0 and at < stop:
        at += 1
        while at < stop and is_continuation(data[at]):
            at += 1
        index -= 1
    return at


@helper
def _first_place(data: Any, start: int, stop: int, mark: Any) -> int:
    for at in range(start, stop - len(mark) + 1):
        if is_here(data, at, stop, mark):
            return at
    return -1


@helper
def _last_place(data: Any, start: int, stop: int, mark: Any) -> int:
    for at in range(stop - len(mark), start - 1, -1):
        if is_here(data, at, stop, mark):
            return at
    return -1


@helper
def _is_space(data: Any, at: int, stop: int, classes: Any) -> bool:
    byte_classes, page_of, pages = classes
    if data[at] < 0x80:
        return (byte_classes[data[at]] & SPACE) != 0
    code, _ = code_point(data, at, stop)
    return (pages[page_of[code >> 8], code & 255] & SPACE) != 0


@helper
def _stripped(data: Any, start: int, stop: int, classes: Any) -> tuple[int, int]:
    while start < stop and _is_space(data, start, stop, classes):
        start = _index_place(data, start, stop, 1)
    while start < stop:
        before = _index_place(data, start, stop, -1)
        if not _is_space(data, before, stop, classes):
            break
        stop = before
    return start, stop


@helper
def _slice(data: Any, start: int, stop: int, ends: Any, left_mark: Any, right_mark: Any) -> tuple[int, int]:
    """Return the bounds of a slice; the same position twice if it is empty or a mark is missing."""
    left_kind, left, right_kind, right = ends
    begin, end = start, stop
    if left_kind == FROM_INDEX:
        begin = _index_place(data, start, stop, left)
    elif left_kind == FROM_MARK:
        place = _first_place(data, start, stop, left_mark)
        if place < 0:
            return start, start
        begin = place if left else place + len(left_mark)
    if right_kind == FROM_INDEX:
        end = _index_place(data, start, stop, right)
    elif right_kind == FROM_MARK:
        place = _last_place(data, start, stop, right_mark)
        if place < 0:
            return start, start
        end = place + len(right_mark) if right else place
    return begin, max(begin, end)


@kernel(types.int64(*SPAN, types.UniTuple(types.int64, 4), BYTES, BYTES, types.boolean, *COPIED))
def copy_slices(
    data: Any,
    offsets: Any,
    byte_classes: Any,
    page_of: Any,
    pages: Any,
    ends: Any,
    left_mark: Any,
    right_mark: Any,
    strip: bool,
    copied: Any,
    copied_offsets: Any,
) -> int:
    """Append a slice of each text; return how many changed.

    ``ends``: for the left end its kind (`FROM_INDEX` and so on), and its index or whether its mark is kept; then for the
    right end.
    """
    changed = 0
    for row in range(len(offsets) - 1):
        start, stop = _slice(data, offsets[row], offsets[row + 1], ends, left_mark, right_mark)
        if strip:
            start, stop = _stripped(data, start, stop, (byte_classes, page_of, pages))
        changed += stop - start < offsets[row + 1] - offsets[row]
        copied_offsets[row + 1] = append(data, start, stop, copied, copied_offsets[row])
    return changed

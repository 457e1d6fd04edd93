# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled counts of lines and paragraphs as NeMo Curator and dolma split them.

Both split at single line feeds. NeMo ignores lines of white space and counts distinct ones; dolma counts every
occurrence of a repeated line. Distinct lines are held as in `line_counts`; for dolma a bit for each byte of the
text marks the lines whose first occurrence has been counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.edits.boilerplate import A_PHRASE, LOREM_IPSUM, find_boilerplate
from curator_df.kernels.metrics.counts import (
    COUNT_DOLMA_LINES,
    COUNT_WEB_LINES,
    COUNT_WEB_PARAGRAPHS,
    COUNTS,
    WEB_LINE_COUNTS,
)
from curator_df.kernels.metrics.lines.line_counts import earlier_line, last_flags, piece_slots, read_line
from curator_df.kernels.metrics.words.word_counts import COUNTS_TYPE, SPAN, code_point
from curator_df.kernels.text.code_points import SPACE
from curator_df.kernels.text.word_reading import next_word

# nemo_curator 0.9.0, utils/constants.py, bullet_list.
BULLETS = "\u2022\u2023\u2043\u204c\u204d\u2219\u25cb\u25cf\u25d8\u25e6\u29be\u29bf"
_BULLETS = np.array([ord(bullet) for bullet in BULLETS])
# From the same file, ellipsis_marks, each as bytes; the ones before _READ_MORE are case-sensitive.
ELLIPSIS_ENDS = ("...", "\u2026", "[...]", "(...)", "[\u2026]", "-\xbb", "read more", "read more..")
_ENDS = [end.encode() for end in ELLIPSIS_ENDS]
_LETTERS = np.frombuffer(b"".join(_ENDS), dtype=np.uint8)
_LENGTHS = np.array([len(end) for end in _ENDS])
_STARTS = np.cumsum(_LENGTHS) - _LENGTHS
_MIX, _ADD = np.uint64(0xD6E8FEB86659FD93), np.uint64(0x9E3779B97F4A7C15)


@helper
def _ends_in(data: Any, start: int, stop: int, number: int) -> bool:
    length, first = _LENGTHS[number], _STARTS[number]
    if stop - start < length:
        return False
    for place in range(length):
        byte = data[stop - length + place]
        if 0x41 <= byte <= 0x5A:
            byte |= 0x20
        if byte != _LETTERS[first + place]:
            return False
    return True


@helper
def _ends_in_ellipsis_mark(data: Any, start: int, stop: int) -> bool:
    # The last bytes of the marks: . ] ) e, and those of the ellipsis and of the guillemet.
    if data[stop - 1] not in (0x2E, 0x5D, 0x29, 0x65, 0x45, 0xA6, 0xBB):
        return False
    for number in range(len(_LENGTHS)):  # noqa: SIM110 (numba)
        if _ends_in(data, start, stop, number):
            return True
    return False


@helper
def _stripped_stop(data: Any, start: int, stop: int, classes: Any) -> int:
    while stop > start:
        flags, before = last_flags(data, start, stop, classes)
        if not flags & SPACE:
            break
        stop = before
    return stop


@helper
def _is_bullet(data: Any, at: int, stop: int) -> bool:
    if data[at] != 0xE2:
        return False
    code, _ = code_point(data, at, stop)
    for bullet in _BULLETS:  # noqa: SIM110 (numba)
        if code == bullet:
            return True
    return False


@helper
def _count_web_lines(
    data: Any, start: int, stop: int, classes: Any, features: int, table: Any, slots: int, twice: Any, row: Any
) -> None:
    """Make the counts ``WEB_LINE_COUNTS`` and ``DOLMA_LINE_COUNTS``."""
    filled = unique = code_points = unique_code_points = unpunctuated = ellipsis_lines = bullets = 0
    pieces = feeds = dashes = dots = repeated = repeated_code_points = 0
    at = start
    while at < stop:
        line = at
        at, mixed, length = read_line(data, line, stop)
        feeds += at < stop
        if at > line:
            pieces += 1
            dashes += data[line] == 0x2A or data[line] == 0x2D
            dots += at - line >= 3 and data[at - 3] == 0xE2 and data[at - 2] == 0x80 and data[at - 1] == 0xA6
            place = earlier_line(data, start, stop, line, at, mixed, table, slots, 1) - 1
            first = next_word(data, line, at, classes)
            if first < at:
                last = _stripped_stop(data, first, at, classes)
                filled += 1
                code_points += length
                unique += place < 0
                unique_code_points += length if place < 0 else 0
                unpunctuated += data[last - 1] not in (0x2E, 0x3F, 0x21, 0x22, 0x27)
                ellipsis_lines += _ends_in_ellipsis_mark(data, first, last)
                bullets += _is_bullet(data, first, last)
            if place >= 0 and features & COUNT_DOLMA_LINES:
                bit = np.uint8(1 << (place & 7))
                times = 1 if twice[place >> 3] & bit else 2
                twice[place >> 3] |= bit
                repeated += times
                repeated_code_points += times * length
        at += 1
    row[0], row[1], row[2], row[3] = filled, unique, code_points, unique_code_points
    row[4], row[5], row[6] = unpunctuated, ellipsis_lines, bullets
    # Lines without a character: all of them for dolma's version 1; at most one at each end of the text for version 2.
    empty = feeds + 1 - pieces
    at_ends = types.int64(start == stop or data[start] == 0x0A) + types.int64(start < stop and data[stop - 1] == 0x0A)
    row[7], row[8], row[9], row[10] = feeds + 1, pieces + at_ends, dashes, dots
    row[11] = repeated + (empty if empty > 1 else 0)
    row[12] = repeated + (at_ends if at_ends > 1 else 0)
    row[13] = repeated_code_points


@helper
def _read_paragraph(data: Any, start: int, stop: int) -> tuple[int, int, int]:
    """Return the position of the next two line feeds, a hash of the bytes before them, and their code points."""
    at, code_points, mixed = start, -1, _ADD
    while True:
        line_stop, mixed_line, of_line = read_line(data, at, stop)
        mixed = (mixed ^ mixed_line) * _MIX
        code_points += of_line + 1
        if line_stop == stop or (line_stop + 1 < stop and data[line_stop + 1] == 0x0A):
            return line_stop, mixed, code_points
        at = line_stop + 1


@helper
def _count_web_paragraphs(data: Any, start: int, stop: int, table: Any, slots: int, row: Any) -> None:
    """Make the counts ``WEB_PARAGRAPH_COUNTS``."""
    paragraphs = unique = total = unique_code_points = boilerplate = empty = 0
    has_lorem_ipsum = False
    at = start
    while True:
        paragraph = at
        at, mixed, code_points = _read_paragraph(data, paragraph, stop)
        paragraphs += 1
        total += code_points
        if at == paragraph:
            unique += empty == 0
            empty += 1
        else:
            found = find_boilerplate(data, paragraph, at)
            boilerplate += found == A_PHRASE
            has_lorem_ipsum |= found == LOREM_IPSUM
            # Only the last paragraph can end in a line feed, so that no other is equal to it.
            is_new = data[at - 1] == 0x0A or not earlier_line(data, start, stop, paragraph, at, mixed, table, slots, 2)
            unique += is_new
            unique_code_points += code_points if is_new else 0
        if at == stop:
            break
        at += 2
    row[0], row[1], row[2], row[3] = paragraphs, unique, total, unique_code_points
    row[4] = paragraphs if has_lorem_ipsum else boilerplate


@helper
def count_web(data: Any, start: int, stop: int, classes: Any, features: int, table: Any, row: Any) -> Any:
    """Make the web counts in ``row``; return the table, larger if this text has more lines than any before."""
    slots = piece_slots(data, start, stop)
    if len(table) < slots:
        table = np.empty(slots, dtype=np.uint32)
    twice = np.empty(web_bytes(stop - start, features), dtype=np.uint8)
    count_web_within(data, start, stop, classes, features, table[:slots], twice, row)
    return table


@helper
def web_bytes(length: int, features: int) -> int:
    """Return the bytes that `count_web_within` needs for a text of ``length`` bytes: a bit for each."""
    return (length >> 3) + 1 if features & COUNT_DOLMA_LINES else 0


@helper
def count_web_within(
    data: Any, start: int, stop: int, classes: Any, features: int, table: Any, twice: Any, row: Any
) -> None:
    """Count like `count_web`, with a table of `piece_slots` slots and `web_bytes` bytes, which are overwritten."""
    if features & (COUNT_WEB_LINES | COUNT_DOLMA_LINES):
        table[:] = 0
        twice[:] = 0
        _count_web_lines(data, start, stop, classes, features, table, len(table), twice, row)
    if features & COUNT_WEB_PARAGRAPHS:
        table[:] = 0
        _count_web_paragraphs(data, start, stop, table, len(table), row[14:])


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

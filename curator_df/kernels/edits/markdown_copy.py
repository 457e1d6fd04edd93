# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled copy of texts without the marks of Markdown for bold, italic and links, in time linear in their length.

Each line is copied once and then shortened in place: ``**``, ``*``, ``_``, links. Importing this module imports numba
and compiles, or loads from the on-disk cache, one function. See `cut_texts`.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.edits.cut_copy import COPIED, OFFSETS, append
from curator_df.kernels.metrics.words.word_counts import BYTES

_STAR, _UNDERSCORE, _BRACKET, _END_BRACKET, _PAREN, _END_PAREN, _BANG = (ord(mark) for mark in "*_[]()!")


@helper
def _is_word(byte: int) -> bool:
    return 0x30 <= byte <= 0x39 or 0x61 <= byte | 0x20 <= 0x7A


@helper
def _is_blank(byte: int) -> bool:
    return byte == 0x20 or byte == 0x09  # noqa: PLR1714 - compiled: a tuple would be made in each call


@helper
def _is_mark(line: Any, at: int, stop: int, byte: int, width: int) -> bool:
    return at + width <= stop and line[at] == byte and line[at + width - 1] == byte


@helper
def _opens(line: Any, at: int, begin: int, stop: int, width: int) -> bool:
    """Return whether a mark precedes a word: nothing of a word before it, and no blank after it."""
    return at + width < stop and not _is_blank(line[at + width]) and (at == begin or not _is_word(line[at - 1]))


@helper
def _closes(line: Any, at: int, stop: int, width: int) -> bool:
    """Return whether a mark follows a word."""
    return not _is_blank(line[at - 1]) and (at + width == stop or not _is_word(line[at + width]))


@helper
def _next_mark(line: Any, at: int, begin: int, stop: int, byte: int, width: int, inside: bool, opening: bool) -> int:
    """Return the position of the next mark that opens (or closes), or ``stop``."""
    while at < stop:
        if _is_mark(line, at, stop, byte, width) and (
            inside or (_opens(line, at, begin, stop, width) if opening else _closes(line, at, stop, width))
        ):
            return at
        at += 1
    return stop


@helper
def _move(line: Any, at: int, stop: int, end: int) -> int:
    """Copy bytes to ``end``, which is not after them; return the new end."""
    while at < stop:
        line[end] = line[at]
        at += 1
        end += 1
    return end


@helper
def _without_marks(line: Any, begin: int, stop: int, byte: int, width: int, inside: bool) -> int:
    """Remove pairs of a mark from a line in place; return its new end."""
    at = end = begin
    while at < stop:
        opening = _next_mark(line, at, begin, stop, byte, width, inside, True)
        # There is text between two marks, except in NeMo.
        inner = opening + width + (0 if inside else 1)
        closing = _next_mark(line, inner, begin, stop, byte, width, inside, False) if opening < stop else stop
        if closing >= stop:
            break
        end = _move(line, at, opening, end)
        end = _move(line, opening + width, closing, end)
        at = closing + width
    return _move(line, at, stop, end)


@helper
def _without_links(line: Any, begin: int, stop: int, keep_url: bool) -> int:
    """Replace each link of a line with its text or its URL in place; return the line's new end."""
    at = end = begin
    while at < stop:
        bracket = at
        while bracket < stop and line[bracket] != _BRACKET:
            bracket += 1
        middle = bracket + 1
        while middle + 1 < stop and (line[middle] != _END_BRACKET or line[middle + 1] != _PAREN):
            middle += 1
        last = middle + 2
        while last < stop and line[last] != _END_PAREN:
            last += 1
        if last >= stop:
            break
        if keep_url:
            end = _move(line, at, bracket, end)
            end = _move(line, middle + 2, last, end)
        else:
            is_image = bracket > at and line[bracket - 1] == _BANG
            end = _move(line, at, bracket - 1 if is_image else bracket, end)
            end = _move(line, bracket + 1, middle, end)
        at = last + 1
    return _move(line, at, stop, end)


@helper
def _without_any(line: Any, begin: int, end: int, keep_url: bool, inside: bool) -> int:
    end = _without_marks(line, begin, end, _STAR, 2, inside)
    end = _without_marks(line, begin, end, _STAR, 1, inside)
    if not inside:
        end = _without_marks(line, begin, end, _UNDERSCORE, 2, inside)
    end = _without_marks(line, begin, end, _UNDERSCORE, 1, inside)
    return _without_links(line, begin, end, keep_url)


@kernel(types.int64(BYTES, OFFSETS, types.boolean, types.boolean, *COPIED))
def copy_without_markdown(
    data: Any, offsets: Any, keep_url: bool, inside: bool, copied: Any, copied_offsets: Any
) -> int:
    """Append each text without the marks; return how many changed.

    ``keep_url``: keep the URL of a link, not its text; ``inside``: also remove marks inside words and next to blanks.
    """
    changed = 0
    for row in range(len(offsets) - 1):
        at, stop, end = offsets[row], offsets[row + 1], copied_offsets[row]
        while at < stop:
            line_stop, has_marks = at, False
            while line_stop < stop and data[line_stop] != 0x0A:
                byte = data[line_stop]
                has_marks |= byte == _STAR or byte == _UNDERSCORE or byte == _BRACKET  # noqa: PLR1714 - compiled
                line_stop += 1
            begin = end
            end = append(data, at, line_stop, copied, end)
            if has_marks:
                end = _without_any(copied, begin, end, keep_url, inside)
            if line_stop < stop:
                copied[end] = 0x0A
                end += 1
            at = line_stop + 1
        changed += end - copied_offsets[row] < stop - offsets[row]
        copied_offsets[row + 1] = end
    return changed

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Remove quotation marks, boilerplate, listed lines, Markdown marks, or all text outside a slice from each text.

Each function returns the column (the same object if nothing changes) and the rows changed; memory: the column once more, at
most.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.edits.clean_texts import copied_texts
from curator_df.kernels.edits.cut_copy import (
    COPIED,
    FROM_INDEX,
    FROM_MARK,
    FROM_NOTHING,
    OFFSETS,
    append,
    copy_slices,
    copy_without_boilerplate,
    copy_without_lines,
    copy_without_quotation_marks,
)
from curator_df.kernels.metrics.words.word_counts import BYTES
from curator_df.kernels.text.buffers import TextSpan, read_only
from curator_df.kernels.text.code_points import word_byte_classes, word_classes
from curator_df.kernels.text.murmur_windows import murmur_64

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


@dataclass(frozen=True)
class SliceEnds:
    """Bounds of a slice of a text."""

    left: int | str | None
    """Index of the first character, the mark whose first occurrence begins the slice, or None for the text's beginning."""
    right: int | str | None
    """Index after the last character, the mark whose last occurrence ends the slice, or None for the text's end."""
    include_left: bool
    """Whether a left mark belongs to the slice."""
    include_right: bool
    """Whether a right mark belongs to the slice."""


def without_quotation_marks(texts: pd.Series) -> tuple[pd.Series, int]:
    """Remove the quotation marks around a whole text.

    Examples
    --------
    >>> without_quotation_marks(pd.Series(['"a"', '"a" or "b"'], dtype="string"))[0].tolist()
    ['a', 'a" or "b']
    """
    return copied_texts(
        texts, lambda span, *copied: int(copy_without_quotation_marks(span.data, span.offsets, *copied))
    )


def without_boilerplate(texts: pd.Series) -> tuple[pd.Series, int]:
    r"""Remove boilerplate paragraphs from one end of each text; empty texts with *lorem ipsum*.

    Examples
    --------
    >>> without_boilerplate(pd.Series(["Text.\n\nOur privacy policy.", "lorem ipsum"], dtype="string"))[0].tolist()
    ['Text.', '']
    """
    return copied_texts(texts, lambda span, *copied: int(copy_without_boilerplate(span.data, span.offsets, *copied)))


def without_markdown(texts: pd.Series, *, keep_url: bool, inside_words: bool) -> tuple[pd.Series, int]:
    """Remove the marks for bold, italic and links from each line.

    Examples
    --------
    >>> column = pd.Series(["**a** and [b](c)"], dtype="string")
    >>> without_markdown(column, keep_url=False, inside_words=False)[0].tolist()
    ['a and b']
    """
    return copied_texts(
        texts,
        lambda span, *copied: int(copy_without_markdown(span.data, span.offsets, keep_url, inside_words, *copied)),
    )


def without_lines(texts: pd.Series, lines: Collection[str]) -> tuple[pd.Series, int]:
    r"""Remove the lines that are equal to one of ``lines``.

    Examples
    --------
    >>> without_lines(pd.Series(["a\nb\na"], dtype="string"), ["a"])[0].tolist()
    ['b']
    """
    listed = _listed_lines(lines)
    return copied_texts(texts, lambda span, *copied: int(copy_without_lines(span.data, span.offsets, *listed, *copied)))


def slices_of(texts: pd.Series, ends: SliceEnds, *, strip: bool) -> tuple[pd.Series, int]:
    """Cut each text to a slice.

    Examples
    --------
    >>> slices_of(pd.Series(["a (b) c"], dtype="string"), SliceEnds("(", ")", False, False), strip=True)[0].tolist()
    ['b']
    """
    table, byte_classes = word_classes(), word_byte_classes("")
    left, right = _slice_end(ends.left, ends.include_left), _slice_end(ends.right, ends.include_right)
    numbers, marks = (*left[:2], *right[:2]), (left[2], right[2])

    def copy(span: TextSpan, copied: Any, offsets: Any) -> int:
        looked_up = (byte_classes, table.page_of, table.pages)
        return int(copy_slices(span.data, span.offsets, *looked_up, numbers, *marks, strip, copied, offsets))

    return copied_texts(texts, copy)


def _slice_end(end: int | str | None, include: bool) -> tuple[int, int, Any]:
    """Return the kind, the index (or whether the mark is kept) and the mark of one end."""
    if end is None:
        return FROM_NOTHING, 0, _bytes_of("")
    if isinstance(end, str):
        return FROM_MARK, int(include), _bytes_of(end)
    return FROM_INDEX, end, _bytes_of("")


def _listed_lines(lines: Collection[str]) -> tuple[Any, ...]:
    """Return the hashes of distinct lines, sorted; their bytes, the bounds of each, and a flag for each length."""
    distinct = sorted({line.encode() for line in lines})
    data = _bytes_of(b"".join(distinct).decode())
    sizes = np.array([len(line) for line in distinct], dtype=np.int64)
    stops = np.cumsum(sizes)
    hashes = [murmur_64(data, stop - size, size, 0) for stop, size in zip(stops, sizes, strict=True)]
    order = np.argsort(np.array(hashes, dtype=np.uint64), kind="stable")
    lengths = np.zeros(int(sizes.max(initial=0)) + 1, dtype=np.bool_)
    lengths[sizes] = True
    bounds = np.ascontiguousarray(np.stack([stops - sizes, stops], axis=1)[order])
    return np.array(hashes, dtype=np.uint64)[order], data, bounds, lengths


def _bytes_of(text: str) -> Any:
    return read_only(np.frombuffer(text.encode() or b"\0", dtype=np.uint8)[: len(text.encode())])

# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Remove URLs from a text column, limit line ends to two in a row, or collapse white space; copy texts that become shorter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.metrics.words.word_counts import SPAN, code_point
from curator_df.kernels.text.buffers import TextSpan, array_spans, large_strings, text_chunks, text_series
from curator_df.kernels.text.byte_search import are_same
from curator_df.kernels.text.code_points import LINE_END, SPACE, word_byte_classes, word_classes

WITHOUT_URLS, SHORT_LINE_ENDS, SINGLE_SPACES = range(3)
"""Kinds of cleaning."""

_SCHEME, _WWW, _AUTHORITY = (np.frombuffer(letters, dtype=np.uint8) for letters in (b"http", b"www.", b"://"))


@helper
def _is_here(data: Any, at: int, stop: int, letters: Any) -> bool:
    if at + len(letters) > stop:
        return False
    for place in range(len(letters)):
        byte = data[at + place]
        if 0x41 <= byte <= 0x5A:
            byte |= 0x20
        if byte != letters[place]:
            return False
    return True


@helper
def _after_text(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the position of the next white space, or ``stop``."""
    byte_classes, page_of, pages = classes
    while at < stop:
        flags, width = byte_classes[data[at]], 1
        if data[at] >= 0x80:
            code, width = code_point(data, at, stop)
            flags = pages[page_of[code >> 8], code & 255]
        if flags & SPACE:
            break
        at += width
    return at


@helper
def _url_stop(data: Any, at: int, stop: int, classes: Any) -> int:
    """Return the end of the URL that begins with this ``h`` or ``w``, or ``at``."""
    begin = at
    if data[at] | 0x20 == 0x77:
        begin = at + 4 if _is_here(data, at, stop, _WWW) else at
    elif _is_here(data, at, stop, _SCHEME):
        place = at + 4
        if place < stop and data[place] | 0x20 == 0x73:
            place += 1
        elif place + 1 < stop and data[place] == 0xC5 and data[place + 1] == 0xBF:
            place += 2  # The long s, which is an s in any case.
        begin = place + 3 if _is_here(data, place, stop, _AUTHORITY) else at
    end = _after_text(data, begin, stop, classes) if begin > at else at
    return end if end > begin else at


@helper
def _copy_without_urls(data: Any, at: int, stop: int, classes: Any, copied: Any, end: int) -> int:
    """Append a text to ``copied`` from ``end`` on; return its new end."""
    while at < stop:
        if data[at] | 0x20 in (0x68, 0x77):
            after = _url_stop(data, at, stop, classes)
            if after > at:
                at = after
                continue
        copied[end] = data[at]
        end += 1
        at += 1
    return end


@helper
def _copy_short_line_ends(data: Any, at: int, stop: int, copied: Any, end: int) -> int:
    """Append a text to ``copied`` from ``end`` on; return its new end."""
    feeds = pairs = 0
    begin, pair_end = end, -1
    while at < stop:
        byte = data[at]
        feeds = feeds + 1 if byte == 0x0A else 0
        if feeds <= 2:
            copied[end] = byte
            end += 1
            if feeds == 1 and end - 2 >= begin and copied[end - 2] == 0x0D:
                pairs = pairs + 1 if pair_end == end - 2 else 1
                if pairs > 2:
                    end -= 2
                pair_end = end
        at += 1
    return end


@helper
def _copy_single_spaces(data: Any, at: int, stop: int, classes: Any, copied: Any, end: int) -> int:
    """Append a text to ``copied`` from ``end`` on; return its new end."""
    byte_classes, page_of, pages = classes
    is_due = in_line = False  # a space precedes the next character; the line is not empty
    while at < stop:
        byte = data[at]
        flags, width = byte_classes[byte], 1
        if byte >= 0x80:
            code, width = code_point(data, at, stop)
            flags = pages[page_of[code >> 8], code & 255]
        if flags & SPACE and not flags & LINE_END:
            is_due = in_line
        else:
            in_line = not flags & LINE_END
            if is_due and in_line:
                copied[end] = 0x20
                end += 1
            is_due = False
            copied[end] = byte
            for more in range(1, width):
                copied[end + more] = data[at + more]
            end += width
        at += width
    return end


@kernel(types.int64(*SPAN, types.int64, types.uint8[::1], types.int64[::1]), allocates=False)
def copy_cleaned(
    data: Any, offsets: Any, byte_classes: Any, page_of: Any, pages: Any, what: int, copied: Any, copied_offsets: Any
) -> int:
    """Append each text of a span to ``copied``; return how many changed.

    ``copied_offsets`` has one more entry than there are texts; its first says where in ``copied`` to begin. ``copied`` has
    room for the unchanged texts.
    """
    classes = (byte_classes, page_of, pages)
    changed = 0
    for row in range(len(offsets) - 1):
        start, stop, begin = offsets[row], offsets[row + 1], copied_offsets[row]
        if what == WITHOUT_URLS:
            end = _copy_without_urls(data, start, stop, classes, copied, begin)
        elif what == SHORT_LINE_ENDS:
            end = _copy_short_line_ends(data, start, stop, copied, begin)
        else:
            end = _copy_single_spaces(data, start, stop, classes, copied, begin)
        changed += end - begin < stop - start or not are_same(data, start, copied, begin, stop - start)
        copied_offsets[row + 1] = end
    return changed


What = Literal["urls", "line_ends", "spaces"]
"""Kind of cleaning: remove URLs, line ends beyond two in a row, or white space beyond single spaces within lines."""

Copy = Callable[[TextSpan, Any, Any], int]
"""Function that appends the changed texts of a span to an array of bytes, fills in their offsets, and returns how many
changed."""


def clean_texts(texts: pd.Series, what: What) -> tuple[pd.Series, int]:
    r"""Clean a text column; return it (the same object if nothing changes) and the rows changed.

    Memory: the column once more, at most.

    Examples
    --------
    >>> clean_texts(pd.Series(["see https://a.b/c now"], dtype="string"), "urls")[0].tolist()
    ['see  now']
    >>> clean_texts(pd.Series(["a\n\n\n\nb"], dtype="string"), "line_ends")[0].tolist()
    ['a\n\nb']
    >>> clean_texts(pd.Series(["\ta  b \n c"], dtype="string"), "spaces")[0].tolist()
    ['a b\nc']
    """
    table, byte_classes = word_classes(), word_byte_classes("")
    mode = {"urls": WITHOUT_URLS, "line_ends": SHORT_LINE_ENDS, "spaces": SINGLE_SPACES}[what]

    def copy(span: TextSpan, copied: Any, offsets: Any) -> int:
        looked_up = (byte_classes, table.page_of, table.pages)
        return int(copy_cleaned(span.data, span.offsets, *looked_up, mode, copied, offsets))

    return copied_texts(texts, copy)


def copied_texts(texts: pd.Series, copy: Copy) -> tuple[pd.Series, int]:
    """Copy a text column, making no text longer; return it (the same object if nothing changes) and the rows changed.

    Memory: the column once more, at most.
    """
    chunks, rows_changed = [], 0
    for chunk in text_chunks(texts).chunks:
        copied, changed = _copied_chunk(chunk, copy)
        chunks.append(copied)
        rows_changed += changed
    return (text_series(chunks, texts), rows_changed) if rows_changed else (texts, 0)


def _copied_chunk(chunk: pa.Array, copy: Copy) -> tuple[pa.Array, int]:
    # Unwritten pages use zero memory: the pages of an empty array are allocated when they are touched.
    copied = np.empty(sum(int(span.offsets[-1] - span.offsets[0]) for span in array_spans(chunk)), dtype=np.uint8)
    offsets = np.zeros(len(chunk) + 1, dtype=np.int64)
    changed = 0
    for span in array_spans(chunk):
        changed += copy(span, copied, offsets[span.first_row : span.first_row + len(span) + 1])
    if not changed:
        return chunk, 0
    valid = chunk.is_valid().to_numpy(zero_copy_only=False) if chunk.null_count else None
    return large_strings(copied[: offsets[-1]], offsets, valid), changed

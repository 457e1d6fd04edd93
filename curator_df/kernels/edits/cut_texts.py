# SPDX-License-Identifier: Apache-2.0
"""Cut texts of a column: remove marks around them, parts at their ends, lines, or Markdown marks.

Each function returns the column (the same object if nothing changes) and the rows changed; memory: the column once more, at
most.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from curator_df.kernels.edits.clean_texts import copied_texts
from curator_df.kernels.edits.cut_copy import (
    FROM_INDEX,
    FROM_MARK,
    FROM_NOTHING,
    copy_slices,
    copy_without_boilerplate,
    copy_without_lines,
    copy_without_quotation_marks,
)
from curator_df.kernels.edits.markdown_copy import copy_without_markdown
from curator_df.kernels.text.buffers import TextSpan, read_only
from curator_df.kernels.text.code_points import word_byte_classes, word_classes
from curator_df.kernels.text.murmur_windows import murmur_64


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

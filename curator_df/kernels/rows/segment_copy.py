# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled search for the segments of texts between separators, copies of pieces of texts in any order, and joins of texts.

See `segments` and `joined_texts`.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.text.byte_search import is_here

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OFFSETS = types.Array(types.int64, 1, "C", readonly=True)
_MASK = types.Array(types.boolean, 1, "C", readonly=True)


@helper
def _next_separator(data: Any, at: int, stop: int, separator: Any) -> int:
    """Return the position of the next separator, or ``stop`` if there is none."""
    while at < stop and not (data[at] == separator[0] and is_here(data, at, stop, separator)):
        at += 1
    return at


@kernel(
    types.int64(
        _BYTES,
        _OFFSETS,
        _BYTES,
        _OFFSETS,
        types.int64,
        types.int64[::1],
        types.int64[::1],
        types.int64[::1],
        types.int64[::1],
        types.int64[::1],
    )
)
def find_segments(
    data: Any,
    offsets: Any,
    separator: Any,
    other_bytes: Any,
    most_bytes: int,
    place: Any,
    rows: Any,
    starts: Any,
    stops: Any,
    numbers: Any,
) -> int:
    """Find the next segments, up to the size of the arrays, and at least one; return their number.

    ``place`` has the next row, the byte in ``data`` at which its next segment begins (-1 for its first), and the
    number of that segment; it is updated. A segment takes its own bytes and the ``other_bytes`` of its row.
    """
    count, taken = 0, 0
    while place[0] < len(offsets) - 1 and count < len(rows):
        row = place[0]
        start, stop = (offsets[row] if place[1] < 0 else place[1]), offsets[row + 1]
        end = _next_separator(data, start, stop, separator)
        taken += end - start + other_bytes[row]
        if count > 0 and taken > most_bytes:
            break
        rows[count], starts[count], stops[count], numbers[count] = row, start, end, place[2]
        count += 1
        if end < stop:
            place[1], place[2] = end + len(separator), place[2] + 1
        else:
            place[0], place[1], place[2] = row + 1, -1, 0
    return count


@kernel(types.void(_BYTES, types.int64[::1], types.int64[::1], types.uint8[::1], types.int64[::1]))
def copy_pieces(data: Any, starts: Any, stops: Any, copied: Any, offsets: Any) -> None:
    """Copy pieces of ``data`` one after the other; ``offsets`` has one more entry than there are pieces, the first is 0."""
    for number in range(len(starts)):
        end = offsets[number] + stops[number] - starts[number]
        copied[offsets[number] : end] = data[starts[number] : stops[number]]
        offsets[number + 1] = end


@kernel(types.void(_BYTES, _OFFSETS, _MASK, types.int64, types.int64, types.boolean[::1]))
def begin_pieces(data: Any, offsets: Any, valid: Any, separator_length: int, most: int, begins: Any) -> None:
    """Mark in ``begins`` also the texts with which a joined text would have more than ``most`` characters."""
    characters, is_filled = 0, False
    for row in range(len(begins)):
        if begins[row]:
            characters, is_filled = 0, False
        if not valid[row]:
            continue
        length = 0
        for at in range(offsets[row], offsets[row + 1]):
            length += (data[at] & 0xC0) != 0x80
        longer = characters + separator_length + length if is_filled else length
        begins[row] |= is_filled and longer > most
        characters, is_filled = (length if begins[row] else longer), True


@kernel(types.void(_BYTES, _OFFSETS, _MASK, _MASK, _BYTES, types.uint8[::1], types.int64[::1], types.boolean[::1]))
def join_rows(
    data: Any, offsets: Any, valid: Any, begins: Any, separator: Any, copied: Any, ends: Any, known: Any
) -> None:
    """Join consecutive texts, from each that ``begins`` to the next; nulls are skipped.

    ``ends`` has one more entry than there are joined texts, the first is 0; ``known`` is True for those with any text.
    """
    number, at = -1, 0
    for row in range(len(begins)):
        if begins[row]:
            number += 1
            known[number] = False
        if valid[row]:
            if known[number]:
                copied[at : at + len(separator)] = separator
                at += len(separator)
            length = offsets[row + 1] - offsets[row]
            copied[at : at + length] = data[offsets[row] : offsets[row + 1]]
            at += length
            known[number] = True
        ends[number + 1] = at

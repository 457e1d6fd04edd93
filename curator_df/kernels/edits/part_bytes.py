# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled loops over the lines or paragraphs of texts: find them, and copy texts without some of them.

Both stop when an array is full (or used up) and continue from a state, even in the middle of a text, so that a text of any
length with any number of parts is processed in constant memory. See `text_parts` for the definition of a part.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import helper, kernel, types

NEWLINE, RETURN, TAB, SPACE = 10, 13, 9, 32
ROW, POSITION, ORDINAL, OUT, KEPT_END, KEPT, REMOVED, ENDS_REMOVED, REMOVED_BYTES = range(9)
"""Elements of the state: row; byte in its text (-1: not begun); number of the next part in it. For copies also: bytes written;
end of the content of the last kept part; for the current text, non-blank kept parts, removed parts, and whether the last
part was removed; bytes removed from all texts so far."""
STATE_WORDS = 9

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OFFSETS = types.Array(types.int64, 1, "A", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "A", readonly=True)
_NUMBERS = types.int64[::1]


@helper
def _is_blank(data: Any, start: int, stop: int) -> bool:
    for at in range(start, stop):
        byte = data[at]
        if not (byte == SPACE or TAB <= byte <= RETURN):
            return False
    return True


@helper
def _after_blank_lines(data: Any, start: int, stop: int) -> int:
    """Return the byte after the blank lines that start here, or ``start`` if there are none."""
    after = start
    for at in range(start, stop):
        byte = data[at]
        if byte == NEWLINE:
            after = at + 1
        elif not (byte == SPACE or TAB <= byte <= RETURN):
            break
    return after


@helper
def _next_part(data: Any, start: int, stop: int, paragraphs: bool) -> tuple[int, int]:
    """Return the end of the part that starts here, and the start of the next one, which is beyond ``stop`` if there is none."""
    for at in range(start, stop):
        if data[at] == NEWLINE:
            if not paragraphs:
                return at, at + 1
            after = _after_blank_lines(data, at + 1, stop)
            if after > at + 1:
                return at, after
    return stop, stop + 1


@kernel(types.int64(_BYTES, _OFFSETS, _FLAGS, types.boolean, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS))
def find_parts(
    data: Any, offsets: Any, valid: Any, paragraphs: bool, state: Any, bounds: Any, rows: Any, ordinals: Any
) -> int:
    """Fill ``bounds`` (start and end of each part), ``rows`` and ``ordinals`` with the next parts; return their number.

    Blank parts are numbered but skipped. If the arrays are not full, the texts have ended.
    """
    row, position, ordinal, count = state[ROW], state[POSITION], state[ORDINAL], 0
    while row < len(offsets) - 1:
        stop = offsets[row + 1]
        if position < 0:
            position, ordinal = offsets[row], 0
        while position <= stop and valid[row]:
            if count == len(rows):
                state[ROW], state[POSITION], state[ORDINAL] = row, position, ordinal
                return count
            end, following = _next_part(data, position, stop, paragraphs)
            if not _is_blank(data, position, end):
                bounds[2 * count], bounds[2 * count + 1] = position, end
                rows[count], ordinals[count] = row, ordinal
                count += 1
            position, ordinal = following, ordinal + 1
        row, position = row + 1, -1
    state[ROW], state[POSITION] = row, position
    return count


@helper
def _end_text(state: Any, offsets: Any, emptied: Any) -> None:
    row = state[ROW]
    if state[ENDS_REMOVED]:
        state[OUT] = state[KEPT_END]  # the line ends before a removed part are removed with it
    emptied[row] = state[REMOVED] > 0 and state[KEPT] == 0
    offsets[row + 1] = state[OUT]
    state[ROW], state[POSITION] = row + 1, -1


@helper
def _copy(data: Any, start: int, stop: int, out: Any, state: Any) -> None:
    at = state[OUT]
    out[at : at + stop - start] = data[start:stop]
    state[OUT] = at + stop - start


@kernel(
    types.int64(
        _BYTES,
        _OFFSETS,
        _FLAGS,
        types.boolean,
        _OFFSETS,
        _OFFSETS,
        types.boolean,
        types.int64[::1],
        types.uint8[::1],
        types.int64[::1],
        types.boolean[::1],
    )
)
def copy_without_parts(
    data: Any,
    offsets: Any,
    valid: Any,
    paragraphs: bool,
    drop_rows: Any,
    drop_ordinals: Any,
    is_last: bool,
    state: Any,
    out: Any,
    out_offsets: Any,
    emptied: Any,
) -> int:
    """Copy texts without the given parts (in order); return how many of these were reached.

    Stops when the given parts are used up, unless they are the last ones.
    """
    used, named = 0, len(drop_rows)
    while state[ROW] < len(offsets) - 1 and (is_last or used < named):
        row = state[ROW]
        start, stop = offsets[row], offsets[row + 1]
        if state[POSITION] < 0:
            if not valid[row] or used == named or drop_rows[used] > row:
                if valid[row]:
                    _copy(data, start, stop, out, state)
                state[REMOVED] = state[ENDS_REMOVED] = 0
                _end_text(state, out_offsets, emptied)
                continue
            state[POSITION], state[ORDINAL], state[KEPT_END] = start, 0, state[OUT]
            state[KEPT] = state[REMOVED] = state[ENDS_REMOVED] = 0
        while state[POSITION] <= stop and (is_last or used < named):
            position = state[POSITION]
            end, following = _next_part(data, position, stop, paragraphs)
            until = min(following, stop)
            if used < named and drop_rows[used] == row and drop_ordinals[used] == state[ORDINAL]:
                used += 1
                state[REMOVED] += 1
                state[REMOVED_BYTES] += until - position
                state[ENDS_REMOVED] = 1
            else:
                state[KEPT_END] = state[OUT] + end - position
                _copy(data, position, until, out, state)
                state[KEPT] += not _is_blank(data, position, end)
                state[ENDS_REMOVED] = 0
            state[POSITION], state[ORDINAL] = following, state[ORDINAL] + 1
        if state[POSITION] > stop:
            _end_text(state, out_offsets, emptied)
    return used

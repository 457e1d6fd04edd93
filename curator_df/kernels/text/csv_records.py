# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
r"""Compiled search for the ends of CSV records (RFC 4180), for text that arrives in pieces.

A quotation mark opens a field only at its beginning; anywhere else in a field without quotes it is text. A record ends with
``\n``, ``\r\n`` or ``\r`` outside of quotes.
"""

from __future__ import annotations

from typing import Any

from curator_df.kernels.compiling.compiled import helper, kernel, types

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
BEGIN, PLAIN, QUOTED, QUOTE, RETURN = range(5)
"""States: at the beginning of a field, in one without quotes, in quotes, after a quotation mark in quotes, after a return."""
STATE, FIELDS, FAULT, PLACE = range(4)
"""Entries: the state, the delimiters of the record so far, whether text follows closing quotes, and the next byte."""
LINE_FEED, CARRIAGE_RETURN = 10, 13


@helper
def _following(now: int, byte: int, delimiter: int, quote: int) -> int:
    """Return the state after a byte that is neither a line feed nor in quotes."""
    if byte == CARRIAGE_RETURN:
        return RETURN
    if byte == delimiter:
        return BEGIN
    if byte == quote and now in (BEGIN, QUOTE):
        return QUOTED
    return PLAIN


@kernel(
    types.int64(
        _BYTES,
        types.int64,
        types.int64,
        types.int64,
        types.int64[::1],
        types.int64[::1],
        types.int32[::1],
        types.uint8[::1],
    )
)
def find_records(
    data: Any, stop: int, delimiter: int, quote: int, state: Any, ends: Any, fields: Any, faults: Any
) -> int:
    """Find the ends of records from ``state[PLACE]`` on, up to the size of the arrays; return their number.

    For each, ``fields`` takes the number of its fields, and ``faults`` 1 if text follows the closing quotes of a field. The
    state is updated, so that the search goes on in the next piece.
    """
    now, count, fault, number = state[0], state[1], state[2], 0
    at = state[3]
    while at < stop and number < len(ends):
        byte = data[at]
        if now == RETURN:
            at += byte == LINE_FEED
            ends[number], fields[number], faults[number] = at, count + 1, fault
            number, now, count, fault = number + 1, BEGIN, 0, 0
            continue
        at += 1
        if now == QUOTED:
            while byte != quote and at < stop:
                byte = data[at]
                at += 1
            if byte == quote:
                now = QUOTE
        elif byte == LINE_FEED:
            ends[number], fields[number], faults[number] = at, count + 1, fault
            number, now, count, fault = number + 1, BEGIN, 0, 0
        else:
            before, now = now, _following(now, byte, delimiter, quote)
            count += byte == delimiter
            if before == QUOTE and now == PLAIN:
                fault = 1
    state[0], state[1], state[2], state[3] = now, count, fault, at
    return number

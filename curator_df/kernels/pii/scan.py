# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Compiled search for the segments of a text that may hold personal data or secrets.

A segment is a line; one longer than `SEGMENT_BYTES` is split at the next space after a small letter, or `REACH_BYTES`
later at any character. A private key in PEM form is in one segment, with its line ends. See `redaction`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.edits.cut_copy import OFFSETS
from curator_df.kernels.metrics.words.word_counts import BYTES
from curator_df.kernels.text.byte_search import is_here
from curator_df.kernels.text.murmur_windows import is_continuation

KEY_CAPITALS = 16
"""Minimum number of capitals of a key without a digit; that of Amazon has 16 letters and digits."""
SEGMENT_BYTES = 100_000
"""Number of bytes from which on a line is split, which limits Python's memory for a segment."""
REACH_BYTES = 4_096
"""Number of bytes in which a good position for the split is searched for."""
PEM_BYTES = 16_384
"""Maximum number of bytes of a private key in PEM form."""

AT_SIGN, NUMBER, DOTTED, COLONS, IBAN_HEAD, KEY = (1 << bit for bit in range(6))
"""Flags of a segment: it has an at sign; 7 digits with at most 6 bytes between two; 3 dots between digits; 2 colons near each
other; two capitals and two digits; a run of `KEY_RUN` characters of a key, or a key in PEM form."""
KEY_RUN = 20
"""Minimum number of consecutive characters of a key or a token."""

_DIGITS, _DIGIT_GAP, _DOTS, _DOT_GAP, _COLONS, _COLON_GAP = 7, 7, 3, 4, 2, 5
_RUN_START, _LAST_DIGIT, _DIGIT_COUNT, _LAST_DOT, _DOT_COUNT, _LAST_COLON, _COLON_COUNT, _STATE = range(8)
_PLAIN, _BREAK, _LINE_FEED, _AT, _DIGIT, _DOT, _COLON, _DASH = range(8)
_PEM_BEGIN, _PEM_END = (np.frombuffer(letters, dtype=np.uint8) for letters in (b"-----BEGIN ", b"-----END "))


def _kinds() -> Any:
    """Return the kind of each byte: `_PLAIN` are the letters and signs of keys."""
    kinds = np.full(256, _BREAK, dtype=np.uint8)
    letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_/+=~"
    for kind, held in enumerate((letters, b"", b"\n", b"@", b"0123456789", b".", b":", b"-")):
        kinds[list(held)] = kind
    return kinds


_KIND_OF = _kinds()


@helper
def _is_digit(byte: int) -> bool:
    return 0x30 <= byte <= 0x39


@helper
def _is_capital(byte: int) -> bool:
    return 0x41 <= byte <= 0x5A


@helper
def _is_word(byte: int) -> bool:
    return _is_digit(byte) or 0x61 <= byte | 0x20 <= 0x7A or byte == 0x5F


@helper
def _after_pem(data: Any, at: int, stop: int) -> int:
    """Return the start of the last line of the private key whose first line begins here, or ``at``."""
    if not is_here(data, at, stop, _PEM_BEGIN):
        return at
    for place in range(at + 1, min(stop, at + PEM_BYTES)):
        if data[place] == 0x2D and is_here(data, place, stop, _PEM_END):
            return place
    return at


@helper
def _cut(data: Any, at: int, stop: int) -> int:
    """Return the position, from ``at`` on, at which a long line is split."""
    reach = min(at + REACH_BYTES, stop)
    for place in range(at, reach):
        if data[place] == 0x20 and 0x61 <= data[place - 1] <= 0x7A:
            return place + 1
    while reach < stop and is_continuation(data[reach]):
        reach += 1
    return reach


@helper
def _is_iban_head(data: Any, at: int, start: int) -> bool:
    """Return whether two capitals and a digit precede the digit here."""
    return (
        at - 3 >= start
        and _is_digit(data[at - 1])
        and _is_capital(data[at - 2])
        and _is_capital(data[at - 3])
        and (at - 4 < start or not _is_word(data[at - 4]))
    )


@helper
def _count(state: Any, last: int, at: int, gap: int) -> int:
    """Increase the count at ``state[last]``, or restart it at 1 if the last position is too far away; return it."""
    state[last + 1] = state[last + 1] + 1 if at - state[last] <= gap else 1
    state[last] = at
    return state[last + 1]


@helper
def _number_flags(data: Any, at: int, start: int, stop: int, kind: int, state: Any) -> int:
    """Return the flags for a digit, a dot or a colon."""
    if kind == _DIGIT:
        is_number = _count(state, _LAST_DIGIT, at, _DIGIT_GAP) >= _DIGITS
        return (NUMBER if is_number else 0) | (IBAN_HEAD if _is_iban_head(data, at, start) else 0)
    if kind == _COLON:
        return COLONS if _count(state, _LAST_COLON, at, _COLON_GAP) >= _COLONS else 0
    if at > start and at + 1 < stop and _is_digit(data[at - 1]) and _is_digit(data[at + 1]):
        return DOTTED if _count(state, _LAST_DOT, at, _DOT_GAP) >= _DOTS else 0
    return 0


@helper
def _may_be_key(data: Any, at: int, stop: int) -> bool:
    """Return whether a run has a digit or `KEY_CAPITALS` capitals; otherwise it is a word or a line of signs."""
    capitals = 0
    while at < stop:
        if _is_digit(data[at]):
            return True
        capitals += _is_capital(data[at])
        at += 1
    return capitals >= KEY_CAPITALS


@helper
def _end_run(data: Any, at: int, state: Any) -> int:
    """Return the flag for a run of key characters that ends before this byte."""
    start = state[_RUN_START]
    state[_RUN_START] = at + 1
    return KEY if at - start >= KEY_RUN and _may_be_key(data, start, at) else 0


@helper
def _after_plain(data: Any, at: int, stop: int) -> int:
    while at < stop and _KIND_OF[data[at]] == _PLAIN:
        at += 1
    return at


@helper
def _scan_segment(data: Any, start: int, stop: int, state: Any) -> tuple[int, int]:
    """Return the end of a segment, and its flags."""
    at, end, flags, limit = start, stop, 0, start + SEGMENT_BYTES
    state[:] = start - 100
    state[_RUN_START] = start
    while at < end:
        if at >= limit:
            end, limit = _cut(data, at, stop), stop + 1
        at = _after_plain(data, at, min(end, limit))
        if at >= min(end, limit):
            continue
        kind = _KIND_OF[data[at]]
        if kind in (_DIGIT, _DOT, _COLON):
            flags |= _number_flags(data, at, start, stop, kind, state)
        elif kind == _DASH:
            after = _after_pem(data, at, stop)
            if after > at:
                flags |= KEY
                at, end, limit = after, max(end, after), max(limit, after)
        if kind in (_BREAK, _AT, _COLON, _LINE_FEED):
            flags |= _end_run(data, at, state) | (AT_SIGN if kind == _AT else 0)
        at += 1
        if kind == _LINE_FEED:
            return at, flags
    return at, flags | _end_run(data, at, state)


@kernel(types.UniTuple(types.int64, 4)(BYTES, OFFSETS, types.int64, types.int64, types.int64))
def next_suspect(data: Any, offsets: Any, row: int, at: int, wanted: int) -> tuple[int, int, int, int]:
    """Return the next segment with one of the flags ``wanted``, at or after byte ``at`` of a row: row, start, stop, flags.

    The row is the number of rows if there is none.
    """
    state = np.zeros(_STATE, dtype=np.int64)
    while row < len(offsets) - 1:
        while at < offsets[row + 1]:
            start = at
            at, flags = _scan_segment(data, at, offsets[row + 1], state)
            if flags & wanted:
                return row, start, at, flags
        row += 1
        at = offsets[row]
    return row, at, at, 0

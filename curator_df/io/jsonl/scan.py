# SPDX-License-Identifier: Apache-2.0
"""Find the bounds of the lines of a chunk, and the lines that cannot be JSON objects, before any is parsed.

`pyarrow.json` crashes the process on a line ``null``, reads one object on two lines as one row and does not check
UTF-8. So only lines that begin with ``{`` and end with ``}`` reach it: as ``}`` is never followed by ``{`` inside an
object, as many rows as lines then prove one object a line. All is numpy over windows, about 2 GB/s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from curator_df.io.jsonl.lines import WINDOW_BYTES, Bytes

JSON_SPACES = b" \t\r\n"
_JSON_SPACES = np.zeros(256, np.bool_)
_JSON_SPACES[list(JSON_SPACES)] = True
VECTOR_TRIMS = 4
"""Number of white space characters removed from all lines at once; lines with more of them are trimmed one by one."""
OPENING, CLOSING = ord("{"), ord("}")


@dataclass(frozen=True)
class Lines:
    """Lines of a chunk that are not blank."""

    starts: npt.NDArray[np.int64]
    """Start of each line, white space included."""
    stops: npt.NDArray[np.int64]
    """End of each line, white space and the line end excluded."""
    ordinals: npt.NDArray[np.int64]
    """Number of each line among all lines of the chunk, blank ones included, from 0."""

    def __len__(self) -> int:
        return len(self.starts)

    def keep(self, mask: npt.NDArray[np.bool_]) -> Lines:
        """Return the lines for which the mask is true."""
        return Lines(self.starts[mask], self.stops[mask], self.ordinals[mask])


def scan_lines(data: Bytes, stops: npt.NDArray[np.int64]) -> tuple[Lines, list[int]]:
    r"""Find the lines of a chunk.

    Parameters
    ----------
    data : ndarray of uint8
        Whole lines, each ending in ``\n``.
    stops : ndarray of int64
        Position of each ``\n``.

    Returns
    -------
    Lines
        Lines that are not blank.
    list of int
        Numbers, ascending, of those lines that cannot be JSON objects.
    """
    starts = np.concatenate(([0], stops[:-1] + 1)) if len(stops) else stops
    firsts, ends = _trimmed(data, starts, stops)
    if len(ends) and (firsts >= ends).any():
        filled = np.flatnonzero(firsts < ends)
        starts, firsts, ends = starts[filled], firsts[filled], ends[filled]
    else:
        filled = np.arange(len(starts))
    lines = Lines(starts, ends, filled)
    bad = np.flatnonzero((data[firsts] != OPENING) | (data[ends - 1] != CLOSING))
    return lines, sorted({*bad.tolist(), *_not_utf8(data, lines)})


def _trimmed(
    data: Bytes, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the bounds of the lines without the white space of JSON at both ends; a blank line gets first >= end."""
    firsts, ends = starts.copy(), stops.copy()
    for _ in range(VECTOR_TRIMS):
        firsts += (firsts < ends) & _JSON_SPACES[data[firsts]]
        ends -= (firsts < ends) & _JSON_SPACES[data[ends - 1]]
    for line in np.flatnonzero((firsts < ends) & (_JSON_SPACES[data[firsts]] | _JSON_SPACES[data[ends - 1]])):
        firsts[line], ends[line] = _trim_one(data, int(firsts[line]), int(ends[line]))
    return firsts, ends


def _trim_one(data: Bytes, first: int, end: int) -> tuple[int, int]:
    """Trim a line with much white space, in windows."""
    while first < end:
        window = data[first : min(first + WINDOW_BYTES, end)].tobytes()
        spaces = len(window) - len(window.lstrip(JSON_SPACES))
        first += spaces
        if spaces < len(window):
            break
    while first < end:
        window = data[max(first, end - WINDOW_BYTES) : end].tobytes()
        spaces = len(window) - len(window.rstrip(JSON_SPACES))
        end -= spaces
        if spaces < len(window):
            break
    return first, end


def _not_utf8(data: Bytes, lines: Lines) -> list[int]:
    if not len(lines) or is_utf8(data):
        return []
    found = []
    pending = [(0, len(lines))]
    while pending:
        low, high = pending.pop()
        if is_utf8(data[lines.starts[low] : lines.stops[high - 1]]):
            continue
        if high - low == 1:
            found.append(low)
        else:
            middle = (low + high) // 2
            pending += [(low, middle), (middle, high)]
    return found


def is_utf8(data: Bytes) -> bool:
    """Return whether bytes are UTF-8; Arrow checks 15 GB/s of ASCII and 2 GB/s of other text.

    Examples
    --------
    >>> import numpy as np
    >>> is_utf8(np.frombuffer("né".encode(), np.uint8)), is_utf8(np.frombuffer("né".encode("latin-1"), np.uint8))
    (True, False)
    """
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    array = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(np.ascontiguousarray(data))])
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True

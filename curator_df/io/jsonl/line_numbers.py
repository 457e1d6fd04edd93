# SPDX-License-Identifier: Apache-2.0
"""Line numbers of positions in files: counted once in a process, then from the nearest known position."""

from __future__ import annotations

import bisect
import threading
from typing import Any

from curator_df.io.jsonl.lines import count_lines

MOST_FILES = 256
"""Maximum number of files whose positions are remembered; the oldest is forgotten first."""

_known: dict[tuple[str, int], tuple[list[int], list[int]]] = {}
_lock = threading.Lock()


def note_lines(path: str, stamp: int, offset: int, lines: int) -> None:
    """Remember that ``lines`` line ends precede an offset, at which a line begins."""
    with _lock:
        if (path, stamp) not in _known and len(_known) >= MOST_FILES:
            del _known[next(iter(_known))]
        offsets, counts = _known.setdefault((path, stamp), ([], []))
        place = bisect.bisect_left(offsets, offset)
        if place == len(offsets) or offsets[place] != offset:
            offsets.insert(place, offset)
            counts.insert(place, lines)


def lines_before(path: str, stamp: int, offset: int, open_part: Any) -> int:
    """Return how many line ends precede an offset, reading only from the nearest known position.

    Parameters
    ----------
    path : str
        Path of the file.
    stamp : int
        Stamp of the file in the listing: a changed file is counted again.
    offset : int
        Offset in the decompressed file.
    open_part : callable
        Function from a path to a context manager of a `ByteStream`.
    """
    start, lines = 0, 0
    with _lock:
        offsets, counts = _known.get((path, stamp), ([], []))
        place = bisect.bisect_right(offsets, offset) - 1
        if place >= 0:
            start, lines = offsets[place], counts[place]
    if start < offset:
        lines += count_lines(path, open_part, start, offset)
        note_lines(path, stamp, offset, lines)
    return lines

# SPDX-License-Identifier: Apache-2.0
"""Numbers and booleans in text columns: they are put between quotation marks before the lines are parsed.

``{"id": 7}`` and ``{"id": "b7"}`` then go into one text column. A number is kept literally: ``1.50`` is ``"1.50"``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from curator_df.io.jsonl.lines import Bytes

WINDOW_BYTES = 1 << 14
"""Bytes searched at once for the beginning of a line."""
GROWTH = 1.4
"""Maximum growth of a line: 7 bytes from ``"":1,`` in the worst case, as far as it can still be parsed."""
_SPACES = rb"[ \t\r]*"
_SCALAR = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false"
_NOTHING = memoryview(b"")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


class ScalarsAsText:
    """Lines of JSON as a file in which the scalars of some fields of each line are strings; they are copied on reading.

    Parameters
    ----------
    data : ndarray of uint8
        Lines in valid UTF-8.
    names : sequence of str
        Fields of the line itself, not of objects in it.
    """

    closed = False

    def __init__(self, data: Bytes, names: Sequence[str]) -> None:
        spelled = {re.escape(way.encode()) for name in names for way in _spellings(name)}
        name = b"|".join(sorted(spelled))
        field = re.compile(rb'"(?:%s)"%s:%s(%s)(?=%s[,}])' % (name, _SPACES, _SPACES, _SCALAR, _SPACES))
        self._parts = _quoted(data.data, field)
        self._part = _NOTHING

    def read(self, size: int) -> bytes:
        """Return the next bytes, fewer than ``size`` only at the end."""
        taken: list[memoryview] = []
        while size and (self._part or self._next_part()):
            taken.append(self._part[:size])
            self._part = self._part[size:]
            size -= len(taken[-1])
        return b"".join(taken)

    def _next_part(self) -> bool:
        self._part = next(self._parts, _NOTHING)
        return bool(self._part)


def _quoted(data: memoryview, field: re.Pattern[bytes]) -> Iterator[memoryview]:
    """Yield all bytes in parts, none of which is empty."""
    done, brackets = 0, _Brackets(data)
    for found in field.finditer(data):
        if brackets.open_at(found.start()) == 1:
            start, stop = found.span(1)
            yield data[done:start]
            yield memoryview(b'"%s"' % data[start:stop])
            done = stop
    if done < len(data):
        yield data[done:]


class _Brackets:
    """Counter of brackets from left to right."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._counted_to = self._open = 0

    def open_at(self, at: int) -> int:
        """Return the number of open brackets of the line at a position outside strings, after the previous one."""
        begins = self._line_start(at)
        if begins > self._counted_to:
            self._counted_to = begins
            self._open = 0
        between = _STRING.sub(b"", self._data[self._counted_to : at])
        self._open += between.count(b"{") + between.count(b"[") - between.count(b"}") - between.count(b"]")
        self._counted_to = at
        return self._open

    def _line_start(self, at: int) -> int:
        """Return the start of the line, or the last position at which brackets were counted if that is later."""
        while at > self._counted_to:
            window = max(self._counted_to, at - WINDOW_BYTES)
            if (end := self._data[window:at].tobytes().rfind(b"\n")) >= 0:
                return window + end + 1
            at = window
        return at


def _spellings(name: str) -> tuple[str, str]:
    """Return the spellings of a name in quotation marks, with and without escapes for non-ASCII characters."""
    return json.dumps(name)[1:-1], json.dumps(name, ensure_ascii=False)[1:-1]

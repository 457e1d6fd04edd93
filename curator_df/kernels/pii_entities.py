# SPDX-License-Identifier: Apache-2.0
"""Names, places and the like in texts, as a model finds them: the pieces that it is given, and where in the column they are.

The model is not here: it is anything with the shape of `EntityFinder` (`models.presidio`). Where the pieces of a text are
follows from the text alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from curator_df.kernels.buffers import TextSpan

PIECE_BYTES = 4_000
"""Most of a text that a model is given at a time. What it holds meanwhile follows this, and not the text."""
RUN_BYTES = 500
"""Most bytes without white space in a piece: spaCy takes time with the square of them (6 s for 5,000 marks, 23 s for 10,000)."""

_LONG_RUN = re.compile(rb"(?:^|(?<=[ \t\r\n]))[^ \t\r\n]{%d}" % (RUN_BYTES + 1))
_SENTENCE_ENDS = (b". ", b"! ", b"? ")
_FULL_STOP = "。".encode()
_NO_CHARACTER = re.compile("[\ud800-\udfff]")


@runtime_checkable
class EntityFinder(Protocol):
    """A model that finds names, places and the like, as a value that goes to workers."""

    @property
    def entities(self) -> tuple[str, ...]:
        """Names of what it finds."""

    @property
    def held_bytes(self) -> int:
        """What a worker holds once."""

    @property
    def libraries(self) -> Mapping[str, int]:
        """What of that stays when the run is over."""

    @property
    def shared(self) -> Mapping[str, int]:
        """What of it other steps with this model hold too."""

    @property
    def call_bytes(self) -> int:
        """What a call holds for a piece."""

    def find(self, text: str) -> Sequence[tuple[int, int, str]]:
        """Return first character, the one after the last, and the name of each, in order and apart."""


class Find(NamedTuple):
    """Something that is to be replaced."""

    row: int
    """In the span."""
    start: int
    """First byte, in the span's data."""
    stop: int
    """Byte after the last."""
    kind: str
    value: str
    """With a surrogate for each byte that is no UTF-8."""


def entities_in(span: TextSpan, finder: EntityFinder) -> Iterator[Find]:
    """Yield what the model finds in the texts of a span, in order and apart."""
    for row in range(len(span)):
        if span.valid is not None and not span.valid[row]:
            continue
        for start, stop in pieces(span.data, int(span.offsets[row]), int(span.offsets[row + 1])):
            # Bytes that are no UTF-8 go through as they are; the model sees one character in the place of each.
            text = span.data[start:stop].tobytes().decode("utf-8", "surrogateescape")
            if any(map(str.isalnum, text)):
                yield from located(row, start, text, finder.find(_NO_CHARACTER.sub("\ufffd", text)))


def located(row: int, start: int, text: str, found: Sequence[tuple[int, int, str]]) -> Iterator[Find]:
    """Yield what was found by characters of a text, with the bytes where it is; the text begins at byte ``start``."""
    if text.isascii():
        for first, stop, kind in found:
            yield Find(row, start + first, start + stop, kind, text[first:stop])
        return
    at, seen = start, 0
    for first, stop, kind in found:
        at += _length(text[seen:first])
        begin = at
        at += _length(text[first:stop])
        seen = stop
        yield Find(row, begin, at, kind, text[first:stop])


def rules_first(rules: Iterator[Find], entities: Iterator[Find]) -> Iterator[Find]:
    """Yield both in order, without the entities that overlap something that a rule found. Each is in order and apart."""
    rule, ended = next(rules, None), -1
    for entity in entities:
        while rule is not None and rule.start < entity.stop:
            ended = rule.stop
            yield rule
            rule = next(rules, None)
        if ended <= entity.start:
            yield entity
    if rule is not None:
        yield rule
        yield from rules


def pieces(data: npt.NDArray[np.uint8], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the first byte and the one after the last of each piece of a text.

    Of a longer text a piece ends with the last line end in its second half, else with the last sentence, else with the last
    white space; and where more than `RUN_BYTES` are without white space, within these.
    """
    while start < stop:
        window = data[start : min(start + PIECE_BYTES, stop)].tobytes()
        taken = _taken(window, is_last=start + len(window) == stop)
        yield start, start + taken
        start += taken


def _taken(window: bytes, *, is_last: bool) -> int:
    if run := _LONG_RUN.search(window):
        return _cut_run(window, run.start())
    if is_last:
        return len(window)
    half = len(window) // 2
    if (line := window.rfind(b"\n", half)) >= 0:
        return line + 1
    if (sentence := max(window.rfind(mark, half) for mark in _SENTENCE_ENDS)) >= 0:
        return sentence + 2
    return max(window.rfind(space) for space in (b" ", b"\t", b"\r")) + 1


def _cut_run(window: bytes, start: int) -> int:
    """Return where what has no white space from ``start`` on is cut: after a full stop, else between two characters."""
    cut = start + RUN_BYTES
    if (sentence := window.rfind(_FULL_STOP, start + RUN_BYTES // 2, cut)) >= 0:
        return sentence + len(_FULL_STOP)
    return next((place for place in range(cut, cut - 4, -1) if window[place] & 0xC0 != 0x80), cut)


def _length(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))

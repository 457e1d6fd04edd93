# SPDX-License-Identifier: Apache-2.0
"""Names, places and other entities that a model finds in texts: the pieces passed to the model, and the positions in the column.

This module has no model: it uses any object with the interface of `EntityFinder` (`models.presidio`). The pieces
of a text depend only on the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from curator_df.kernels.text.buffers import TextSpan

PIECE_BYTES = 4_000
"""Maximum number of bytes of a text passed to a model in one call. The memory of a call depends on this, and not on the text."""
RUN_BYTES = 500
"""Maximum number of bytes without white space in a piece: spaCy takes quadratic time in them (6 s for 5,000 marks, 23 s for
10,000)."""

_LONG_RUN = re.compile(rb"(?:^|(?<=[ \t\r\n]))[^ \t\r\n]{%d}" % (RUN_BYTES + 1))
_SENTENCE_ENDS = (b". ", b"! ", b"? ")
_FULL_STOP = "。".encode()
_NO_CHARACTER = re.compile("[\ud800-\udfff]")


@runtime_checkable
class EntityFinder(Protocol):
    """Model that finds names, places and other entities, as a value that is sent to workers."""

    @property
    def entities(self) -> tuple[str, ...]:
        """Return the names of the entities that it finds."""

    @property
    def held_bytes(self) -> int:
        """Return the bytes that a worker holds once."""

    @property
    def libraries(self) -> Mapping[str, int]:
        """Return the part of these bytes that stays after the run, by library."""

    @property
    def shared(self) -> Mapping[str, int]:
        """Return the part of these bytes that is shared with other steps with this model."""

    @property
    def call_bytes(self) -> int:
        """Return the bytes that a call needs for a piece."""

    def find(self, text: str) -> Sequence[tuple[int, int, str]]:
        """Return the first character, the one after the last, and the name of each entity, in order and without overlaps."""


class Find(NamedTuple):
    """Text to be replaced."""

    row: int
    """Row in the span."""
    start: int
    """First byte, in the span's data."""
    stop: int
    """Byte after the last."""
    kind: str
    value: str
    """Value, with a surrogate for each byte that is not UTF-8."""


def entities_in(span: TextSpan, finder: EntityFinder) -> Iterator[Find]:
    """Yield the entities that the model finds in the texts of a span, in order and without overlaps."""
    for row in range(len(span)):
        if span.valid is not None and not span.valid[row]:
            continue
        for start, stop in pieces(span.data, int(span.offsets[row]), int(span.offsets[row + 1])):
            # Bytes that are not UTF-8 are kept; the model sees one character in place of each.
            text = span.data[start:stop].tobytes().decode("utf-8", "surrogateescape")
            if any(map(str.isalnum, text)):
                yield from located(row, start, text, finder.find(_NO_CHARACTER.sub("\ufffd", text)))


def located(row: int, start: int, text: str, found: Sequence[tuple[int, int, str]]) -> Iterator[Find]:
    """Yield findings given by characters with their byte positions; the text begins at byte ``start``."""
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
    """Yield both in order, without the entities that overlap a finding of a rule. Each input is in order and without overlaps."""
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

    In a longer text, a piece ends with the last line end in its second half, else with the last sentence, else with the last
    white space; more than `RUN_BYTES` without white space are split.
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
    """Return where a run without white space from ``start`` on is split: after a full stop, else between two characters."""
    cut = start + RUN_BYTES
    if (sentence := window.rfind(_FULL_STOP, start + RUN_BYTES // 2, cut)) >= 0:
        return sentence + len(_FULL_STOP)
    return next((place for place in range(cut, cut - 4, -1) if window[place] & 0xC0 != 0x80), cut)


def _length(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))

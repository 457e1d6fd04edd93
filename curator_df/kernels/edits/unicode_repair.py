# SPDX-License-Identifier: Apache-2.0
# numba has no types.
# mypy: disable-error-code="untyped-decorator,no-any-return"
"""Run ``ftfy.fix_text`` over a text column, passing only the segments that it might change to ftfy.

The result is, text by text, exactly what ftfy returns with these settings. A text takes its length once more if
it changes, nothing otherwise, and a segment of at most a million code points while ftfy processes it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.kernels.compiling.compiled import helper, kernel, types
from curator_df.kernels.edits.mojibake import CLASS_MASK, CONTROL, FORM, Form, suspect_tables
from curator_df.kernels.edits.splices import Splice, splice_texts
from curator_df.kernels.metrics.words.word_counts import code_point
from curator_df.kernels.text.buffers import TextSpan

SEGMENT_CODE_POINTS = 1_000_000
"""Maximum number of code points of a segment: ftfy's ``max_decode_length``."""

MOJIBAKE = 1
"""Flag: two neighbors that occur in mojibake. With `FORM` and `CONTROL` the flags of a suspect segment."""
ENTITY = 2
"""Flag: a possible HTML entity, if entities are to be replaced."""
CARRIAGE_RETURN = 4
"""Flag: a carriage return, if line breaks are to be fixed."""

PLAIN_BYTE, NEWLINE_BYTE, RETURN_BYTE, AMPERSAND_BYTE, LESS_THAN_BYTE, CONTROL_BYTE, HIGH_BYTE = range(7)
"""Kinds of bytes, in the table that the caller makes for its settings."""

_LONGEST_ENTITY = 24


@helper
def _is_alphanumeric(byte: int) -> bool:
    return 0x30 <= byte <= 0x39 or 0x41 <= byte <= 0x5A or 0x61 <= byte <= 0x7A


@helper
def _is_entity(data: Any, at: int, stop: int) -> bool:
    """Match ``&#?[0-9A-Za-z]{1,24};`` at an ampersand."""
    at += 1
    if at < stop and data[at] == 0x23:
        at += 1
    first = at
    while at < stop and at - first < _LONGEST_ENTITY and _is_alphanumeric(data[at]):
        at += 1
    return at > first and at < stop and data[at] == 0x3B


@helper
def _following_class(data: Any, at: int, stop: int) -> int:
    """Return the mojibake class of the ASCII character here, or -1 if there is none."""
    if at >= stop or data[at] >= 0x80:
        return -1
    if data[at] == 0x20:
        return 2
    return 1 if _is_alphanumeric(data[at]) and data[at] >= 0x41 else 0


@helper
def _scan_segment(
    data: Any, start: int, stop: int, may_unescape: bool, byte_kinds: Any, page_of: Any, pages: Any, pairs: Any
) -> tuple[int, int, bool]:
    """Return the end of the segment, its flags, and whether entities may still be replaced after it."""
    at, flags, before, continuation_bytes = start, 0, 0, 0
    cut = min(stop, start + SEGMENT_CODE_POINTS)
    while at < cut:
        kind = byte_kinds[data[at]]
        if kind == PLAIN_BYTE:
            at += 1
            continue
        if kind == HIGH_BYTE:
            code, width = code_point(data, at, stop)
            value = types.int64(pages[page_of[code >> 8], code & 255])
            flags |= value & (FORM | CONTROL)
            here = value & CLASS_MASK
            flags |= pairs[before, here]
            at += width
            continuation_bytes += width - 1
            cut = min(stop, start + SEGMENT_CODE_POINTS + continuation_bytes)
            following = _following_class(data, at, stop)
            before = here if following < 0 else 0
            if following >= 0:
                flags |= pairs[here, following]
            continue
        if kind == AMPERSAND_BYTE and may_unescape and _is_entity(data, at, stop):
            flags |= ENTITY
        elif kind == RETURN_BYTE:
            flags |= CARRIAGE_RETURN
        elif kind == CONTROL_BYTE:
            flags |= CONTROL
        elif kind == LESS_THAN_BYTE:
            may_unescape = False
        at += 1
        if kind == NEWLINE_BYTE:
            break
    return at, flags if may_unescape else flags & ~ENTITY, may_unescape


_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_SIGNATURE = types.Tuple((types.int64, types.int64, types.int64, types.int64, types.boolean))(
    _BYTES,
    types.Array(types.int64, 1, "C", readonly=True),
    types.int64,
    types.int64,
    types.boolean,
    types.boolean,
    _BYTES,
    types.Array(types.uint16, 1, "C", readonly=True),
    types.Array(types.uint8, 2, "C", readonly=True),
    types.Array(types.uint8, 2, "C", readonly=True),
)


@kernel(_SIGNATURE)
def next_suspect(
    data: Any,
    offsets: Any,
    row: int,
    at: int,
    may_unescape: bool,
    unescapes: bool,
    byte_kinds: Any,
    page_of: Any,
    pages: Any,
    pairs: Any,
) -> tuple[int, int, int, int, bool]:
    """Return the next suspect segment at or after byte ``at`` of a row: (row, start, stop, flags, may_unescape).

    ``may_unescape`` is ftfy's state for a text: entities are replaced until the first line with a ``<``. ``unescapes``
    is its value at the start of each text. The row is the number of rows if there are no more suspect segments.
    """
    while row < len(offsets) - 1:
        while at < offsets[row + 1]:
            start = at
            at, flags, may_unescape = _scan_segment(
                data, at, offsets[row + 1], may_unescape, byte_kinds, page_of, pages, pairs
            )
            if flags:
                return row, start, at, flags, may_unescape
        row += 1
        at = offsets[row]
        may_unescape = unescapes
    return row, at, at, 0, may_unescape


@dataclass(frozen=True)
class RepairSettings:
    """Settings of ftfy that a user may choose; the others are those of `ftfy_config`."""

    form: Form | None = "NFC"
    """Normalization form, or None for no normalization."""
    unescape_html: Literal["auto"] | bool = "auto"
    """Replace HTML entities: always, never, or until the text's first line with a ``<``."""
    fix_encoding: bool = True
    """Undo mojibake."""
    fix_line_breaks: bool = True
    r"""Turn ``\r\n``, ``\r``, U+2028, U+2029 and U+0085 into ``\n``."""


def repair_texts(texts: pd.Series, settings: RepairSettings) -> tuple[pd.Series, int]:
    """Repair a text column; return it (the same object if nothing changes) and the number of rows that changed.

    Examples
    --------
    >>> repaired, rows_changed = repair_texts(pd.Series(["plain", "cafÃ©"], dtype="string"), RepairSettings())
    >>> repaired.tolist(), rows_changed
    (['plain', 'café'], 1)
    """
    return splice_texts(texts, lambda span: _replacements(span, settings))


def ftfy_config(settings: RepairSettings) -> Any:
    """Return ftfy's configuration, which keeps what pretraining text should keep (curly quotes, ligatures, widths)."""
    from ftfy import TextFixerConfig

    return TextFixerConfig(
        unescape_html=settings.unescape_html,
        fix_encoding=settings.fix_encoding,
        fix_line_breaks=settings.fix_line_breaks,
        normalization=settings.form,
        uncurl_quotes=False,
        fix_latin_ligatures=False,
        fix_character_width=False,
        explain=False,
    )


def _replacements(span: TextSpan, settings: RepairSettings) -> Iterator[Splice]:
    """Find the segments that change."""
    looked_up = _looked_up(settings)
    unescapes = settings.unescape_html is not False
    row, at, may_unescape = 0, int(span.offsets[0]), unescapes
    while True:
        row, start, at, flags, may_unescape = next_suspect(
            span.data, span.offsets, row, at, may_unescape, unescapes, *looked_up
        )
        if row == len(span):
            return
        if span.valid is None or span.valid[row]:
            replacement = _repair_segment(span.data[start:at].tobytes(), flags, may_unescape, settings)
            if replacement is not None:
                yield row, start, at, replacement


def _repair_segment(segment: bytes, flags: int, may_unescape: bool, settings: RepairSettings) -> bytes | None:
    """Return the repaired segment, or None if it does not change."""
    if flags == CARRIAGE_RETURN:
        return segment.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    text = segment.decode()
    if not flags & ~(MOJIBAKE | FORM) and not _needs_ftfy(text, flags, settings.form):
        return None
    fixed = None if flags & MOJIBAKE else _without_mojibake(text, flags, may_unescape, settings)
    if fixed is None:
        import ftfy

        config = ftfy_config(settings)
        fixed = ftfy.fix_text_segment(text, config if may_unescape else config._replace(unescape_html=False))
    return None if fixed == text else fixed.encode()


def _without_mojibake(text: str, flags: int, may_unescape: bool, settings: RepairSettings) -> str | None:
    """Return what ftfy makes of a segment in which it would search for mojibake in vain, or None if that is not sure.

    The search, which `fix_text_segment` makes at least twice, reads 2 to 5 MB of text with accents in a second; the other
    fixes of ftfy read a hundred times as much.
    """
    from ftfy import fixes

    if flags & ENTITY:
        text = fixes.unescape_html(text)
        flags = _flags(text, may_unescape, settings) | flags & CONTROL
    if flags & (MOJIBAKE | CONTROL) and not text.isascii():  # C1 controls are mojibake, too
        return None
    text = fixes.fix_c1_controls(text)
    if settings.fix_line_breaks:
        text = fixes.fix_line_breaks(text)
    text = fixes.remove_terminal_escapes(fixes.fix_surrogates(text))
    text = fixes.remove_control_chars(text) if flags & CONTROL else text
    if settings.form is not None:
        text = unicodedata.normalize(settings.form, text)
    # ftfy begins again with what it made, until nothing changes.
    left = _flags(text, may_unescape, settings)
    if left & ~FORM or (left and settings.form is not None and not unicodedata.is_normalized(settings.form, text)):
        return None
    return text


def _flags(text: str, may_unescape: bool, settings: RepairSettings) -> int:
    """Return the flags of a segment that is not cut any more: all of them where it has a line break before its end."""
    if "\n" in text[:-1]:
        return MOJIBAKE | ENTITY | CARRIAGE_RETURN
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    offsets, flags, row, at = np.array([0, len(data)]), 0, 0, 0
    # Whether entities are replaced does not change within a segment, so a "<" is a character like any other.
    looked_up = _looked_up(replace(settings, unescape_html=may_unescape))
    while row == 0:
        row, _, at, found, _ = next_suspect(data, offsets, row, at, may_unescape, may_unescape, *looked_up)
        flags |= found
    return flags


def _needs_ftfy(text: str, flags: int, form: Form | None) -> bool:
    from ftfy.badness import is_bad

    if flags & FORM and form is not None and not unicodedata.is_normalized(form, text):
        return True
    return is_bad(text)


@lru_cache(maxsize=16)
def _looked_up(settings: RepairSettings) -> tuple[npt.NDArray[Any], ...]:
    """Return the tables of `next_suspect`: kinds of bytes, pages of code points, and pairs."""
    tables = suspect_tables(settings.form)
    pairs = tables.pairs if settings.fix_encoding else np.zeros_like(tables.pairs)
    return _byte_kinds(settings), tables.points.page_of, tables.points.pages, pairs


def _byte_kinds(settings: RepairSettings) -> npt.NDArray[np.uint8]:
    kinds = np.full(256, PLAIN_BYTE, dtype=np.uint8)
    kinds[:32] = kinds[127] = CONTROL_BYTE
    kinds[[0x09, 0x0C]] = PLAIN_BYTE
    kinds[0x0A] = NEWLINE_BYTE
    kinds[0x0D] = RETURN_BYTE if settings.fix_line_breaks else PLAIN_BYTE
    kinds[0x26] = AMPERSAND_BYTE
    kinds[0x3C] = LESS_THAN_BYTE if settings.unescape_html == "auto" else PLAIN_BYTE
    kinds[128:] = HIGH_BYTE
    return kinds

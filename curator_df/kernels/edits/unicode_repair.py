# SPDX-License-Identifier: Apache-2.0
"""Run ``ftfy.fix_text`` over a text column, passing only the segments that it might change to ftfy.

The result is, text by text, exactly what ftfy returns with these settings. A text takes its length once more if
it changes, nothing otherwise, and a segment of at most a million code points while ftfy processes it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.kernels.edits import unicode_scan as scan
from curator_df.kernels.edits.mojibake import FORM, Form, suspect_tables
from curator_df.kernels.edits.splices import Splice, splice_texts
from curator_df.kernels.edits.unicode_scan import CARRIAGE_RETURN, MOJIBAKE, next_suspect
from curator_df.kernels.text.buffers import TextSpan


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
    tables = suspect_tables(settings.form)
    pairs = tables.pairs if settings.fix_encoding else np.zeros_like(tables.pairs)
    looked_up = (_byte_kinds(settings), tables.points.page_of, tables.points.pages, pairs)
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
    import ftfy

    config = ftfy_config(settings)
    fixed = ftfy.fix_text_segment(text, config if may_unescape else config._replace(unescape_html=False))
    return None if fixed == text else fixed.encode()


def _needs_ftfy(text: str, flags: int, form: Form | None) -> bool:
    from ftfy.badness import is_bad

    if flags & FORM and form is not None and not unicodedata.is_normalized(form, text):
        return True
    return is_bad(text)


@lru_cache(maxsize=16)
def _byte_kinds(settings: RepairSettings) -> npt.NDArray[np.uint8]:
    kinds = np.full(256, scan.PLAIN_BYTE, dtype=np.uint8)
    kinds[:32] = kinds[127] = scan.CONTROL_BYTE
    kinds[[0x09, 0x0C]] = scan.PLAIN_BYTE
    kinds[0x0A] = scan.NEWLINE_BYTE
    kinds[0x0D] = scan.RETURN_BYTE if settings.fix_line_breaks else scan.PLAIN_BYTE
    kinds[0x26] = scan.AMPERSAND_BYTE
    kinds[0x3C] = scan.LESS_THAN_BYTE if settings.unescape_html == "auto" else scan.PLAIN_BYTE
    kinds[128:] = scan.HIGH_BYTE
    return kinds

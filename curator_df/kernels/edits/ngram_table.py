# SPDX-License-Identifier: Apache-2.0
"""Word n-grams of benchmarks as one table of hashes, and the passages of texts that contain one of them.

A *word* is the text between white space, in lower case (`lower_case`) and without punctuation (`code_points.SYMBOLS`); pure
punctuation is not a word. Hashes have 64 bits: with a table of ten million n-grams, one word in 10^12 is
a false match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from curator_df.kernels.edits.ngram_match import (
    DROP,
    DROP_STEP,
    PLACES,
    REGION,
    SPACE,
    START,
    STOP,
    WIDE,
    count_characters,
    find_regions,
    find_rows,
    keep_pieces,
    put_ngrams,
)
from curator_df.kernels.edits.splices import Splice, splice_texts
from curator_df.kernels.text.buffers import TextSpan, read_only
from curator_df.kernels.text.code_points import ASSIGNED_STOP, SYMBOLS, CodePointTable, paged
from curator_df.kernels.text.lower_case import SPACE_STEP, lower_steps

SLOT_BYTES = 12
"""Bytes of a slot: a hash and the number of a text."""
TEXT_BYTES = 16
"""Bytes for each text of a benchmark: its benchmark, and its item."""


@dataclass(frozen=True)
class NgramTable:
    """Table of the n-grams of the texts of benchmarks."""

    keys: npt.NDArray[np.uint64]
    """Hash of the n-gram in each slot, 0 for none."""
    numbers: npt.NDArray[np.int32]
    """Number of the first text that contains the n-gram."""
    sizes: npt.NDArray[np.int64]
    """Lengths of the n-grams in the table, in words."""
    benchmarks: npt.NDArray[np.int64]
    """Number of the benchmark of each text."""
    items: npt.NDArray[np.int64]
    """Number of the benchmark of each text."""


def count_ngrams(text: str, size: int, least: int) -> int:
    """Return an upper bound of the number of n-grams of a text: pure punctuation counts as a word here."""
    words = len(text.split())
    return 0 if words < least else max(words - size + 1, 1)


def table_slots(ngrams: int) -> int:
    """Return the slots of a table: a power of two, at most half of them used."""
    return 1 << max(2 * ngrams - 1, 1).bit_length()


def table_bytes(ngrams: int, texts: int) -> int:
    """Return the size of a table in bytes."""
    return SLOT_BYTES * table_slots(ngrams) + TEXT_BYTES * texts


def make_table(texts: Iterable[tuple[int, int, str]], *, ngrams: int, count: int, size: int, least: int) -> NgramTable:
    """Make the table of texts, each with the numbers of its benchmark and its item.

    ``ngrams``, ``count``: upper bounds of the n-grams and texts; ``size``: words of an n-gram; ``least``: minimum words of a
    shorter text that is one n-gram as a whole.
    """
    slots = table_slots(ngrams)
    keys, numbers = np.zeros(slots, dtype=np.uint64), np.zeros(slots, dtype=np.int32)
    benchmarks, items = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    sizes = set()
    for number, (benchmark, item, text) in enumerate(texts):
        benchmarks[number], items[number] = benchmark, item
        data = read_only(np.frombuffer(text.encode("utf-8", "replace") or b" ", dtype=np.uint8))
        sizes.add(put_ngrams(data, number, size, least, *_characters(), keys, numbers))
    return NgramTable(keys, numbers, np.array(sorted(sizes - {0}), dtype=np.int64), benchmarks, items)


def rows_with_passages(span: TextSpan, table: NgramTable) -> npt.NDArray[np.int64]:
    """Return the rows of a span, by position, whose text has an n-gram of the table."""
    rows = np.zeros(len(span), dtype=np.int64)
    valid = np.ones(len(span), dtype=np.bool_) if span.valid is None else span.valid
    return rows[: find_rows(span.data, span.offsets, valid, *_looked_up(table), rows)] if len(table.sizes) else rows[:0]


def find_passages(span: TextSpan, row: int, table: NgramTable, most: int) -> npt.NDArray[np.int64]:
    """Return the first passages of a text, at most ``most``, that have n-grams of the table: shape (passages, 4).

    They do not overlap; the columns are those of `ngram_match`, `START` and `STOP` in bytes of the span's data.
    """
    regions = np.empty((most, REGION), dtype=np.int64)
    start, stop = int(span.offsets[row]), int(span.offsets[row + 1])
    return regions[: find_regions(span.data, start, stop, *_looked_up(table), regions)]


def places_of(span: TextSpan, row: int, regions: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the first character of each passage of a text and the one after its last, counted from the start of the text."""
    places, characters, counted_to = [], 0, int(span.offsets[row])
    for start, stop in regions[:, [START, STOP]].tolist():
        first = characters + count_characters(span.data, counted_to, start)
        characters, counted_to = first + count_characters(span.data, start, stop), stop
        places.append((first, characters))
    return places


def without_passages(
    texts: pd.Series, table: NgramTable, *, margin: int, least: int
) -> tuple[pd.Series, dict[str, int]]:
    """Remove passages from texts; return the column (the same object if there are none), and counts.

    ``margin``: characters removed before and after a passage, up to the end of a sentence; ``least``: of the rest of a
    text, pieces with more characters are kept.
    """
    counts = {"passages": 0}
    changed, rows_changed = splice_texts(texts, lambda span: _cuts(span, table, margin, least, counts))
    return changed, {"rows_changed": rows_changed, **counts}


def _cuts(span: TextSpan, table: NgramTable, margin: int, least: int, counts: dict[str, int]) -> Iterator[Splice]:
    words = min(table.sizes, default=1)
    for row in rows_with_passages(span, table).tolist():
        start, stop = int(span.offsets[row]), int(span.offsets[row + 1])
        # Two passages have ``size`` words each, of a letter and a gap at least. Unwritten pages use zero memory.
        most = (stop - start) // (2 * int(words)) + 1
        regions = np.empty((most + 1, PLACES), dtype=np.int64)
        found = find_regions(span.data, start, stop, *_looked_up(table), regions[:most])
        counts["passages"] += found
        at = start
        for number in range(keep_pieces(span.data, start, stop, regions, found, margin, least)):
            yield row, at, int(regions[number, START]), b"\n\n" if number else b""
            at = int(regions[number, STOP])
        yield row, at, stop, b""


def _looked_up(table: NgramTable) -> tuple[Any, ...]:
    return (*_characters(), table.keys, table.numbers, table.sizes)


@lru_cache(maxsize=1)
def _characters() -> tuple[Any, Any, Any]:
    """Return the value of each byte and code point: `ngram_match.SPACE` and the like, and `ngram_match.DROP_STEP`."""
    lower = lower_steps()
    steps = np.array([lower[code] for code in range(ASSIGNED_STOP)], dtype=np.int32)
    symbols = [ord(symbol) for symbol in SYMBOLS]
    steps[[code for code in symbols if steps[code] != SPACE_STEP]] = DROP_STEP
    table: CodePointTable = paged(steps)
    byte_of = np.full(256, WIDE, dtype=np.uint8)
    for code in range(128):
        step = int(steps[code])
        byte_of[code] = {SPACE_STEP: SPACE, DROP_STEP: DROP}.get(step, (code + step) & 0xFF)
    return byte_of, table.page_of, table.pages

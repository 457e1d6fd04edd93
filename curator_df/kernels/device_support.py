# SPDX-License-Identifier: Apache-2.0
"""Which metrics and signatures have kernels for a device, and what they hold there: asked without loading any of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from curator_df.errors import UnsupportedBackendError
from curator_df.kernels.counts import (
    CHARACTER_COUNTS,
    CHARACTER_FEATURES,
    COUNT_DCLM_TEXT,
    COUNT_STOP_WORDS,
    DCLM_TEXT_COUNTS,
    GRAM_FEATURES,
    LENGTH_COUNTS,
    LINE_COUNTS,
    LINE_FEATURES,
    LONGEST_COUNTED_WORD,
    PARAGRAPH_COUNTS,
    REPEAT_COUNTS,
    REPEAT_FEATURES,
    REPEAT_WORK_COLUMNS,
    REPEATED_GRAM_COUNTS,
    SHORT_TEXT_BYTES,
    SOURCE_COUNTS,
    SOURCE_FEATURES,
    STOP_WORDS,
    TOP_GRAM_COUNTS,
    WORD_COUNTS,
    WORD_FEATURES,
)
from curator_df.kernels.metrics import METRICS, Words, features_of
from curator_df.kernels.minhash_scheme import Scheme

GROUPS = (
    (WORD_FEATURES, WORD_COUNTS),
    (LINE_FEATURES, LENGTH_COUNTS + LINE_COUNTS + PARAGRAPH_COUNTS),
    (CHARACTER_FEATURES, CHARACTER_COUNTS),
    (COUNT_DCLM_TEXT, DCLM_TEXT_COUNTS),
    (SOURCE_FEATURES, SOURCE_COUNTS),
    (GRAM_FEATURES, TOP_GRAM_COUNTS + REPEATED_GRAM_COUNTS),
    (REPEAT_FEATURES, REPEAT_COUNTS),
)
"""Feature bits of the counts that are made together, and their names."""
DEVICE_FEATURES = sum(features for features, _ in GROUPS)
"""Feature bits of the counts that have kernels for a device."""
DEVICE_METRICS = tuple(name for name in METRICS if not features_of([name]) & ~DEVICE_FEATURES)
"""Metrics that are made of those counts alone."""
_WAY_OUT = "convert the table first with to_backend(df, 'pandas')"

MOST_THREADS = 16_384
"""Threads of a launch in which each has an array of its own to work in. Not measured on a GPU."""
SPAN_ROWS = 65_536
"""Rows whose counts are held at a time: all groups together 48 MB."""
TABLE_SLOTS = 1 << 26
"""Slots, of 4 bytes, of the table of lines of as many texts as are looked at together; more only for one that needs more."""
COLUMN_FACTOR = 0.9
"""Of every 10 metrics, or fewer, of rows of 100 bytes: 8 bytes each."""
LONG_TEXT_FACTOR = 4.0
"""The table of lines or n-grams of one text, as a multiple of its bytes, where that is more than what is for all."""
GRAM_BYTES = 1 << 28
"""Bytes in which n-grams of as many texts as are looked at together are counted; more only for one that needs more."""
SHORT_GRAM_FACTOR = 36
"""Of a short text, what its n-grams need at most as a multiple of its bytes: words of one letter."""
LONG_GRAM_BYTES = 295_000
"""The window of a long text, and the table of as many words as are in a window; a table of more is in `LONG_TEXT_FACTOR`."""
REPEAT_BITS_FACTOR = 0.2
"""A bit for each byte of a long text, as NeMo's and dolma's n-grams need it."""
SIGNATURE_ROWS = 4_096
"""Rows whose signatures are held at a time, on the device and on the host."""
SHINGLE_ROW_BYTES = 24
"""Kept behind each text that is laid out for its shingles: `word_windows.fill_words` and `murmur_hash.fill_normalized` write
eight bytes at a time, and the first stops 16 before the end."""
HASH_FACTOR = 0.4
"""Hashes of rows of 40 bytes: 16 bytes each."""
NORMALIZED_BYTES = 1_032
"""Of each thread that hashes normalised texts: `murmur_hash.PIECE_ROOM`."""


@dataclass(frozen=True)
class Room:
    """How much is worked on at a time. Results do not depend on it."""

    span_rows: int = SPAN_ROWS
    """Rows."""
    table_slots: int = TABLE_SLOTS
    """Slots of a table of lines."""
    threads: int = MOST_THREADS
    """Threads of a launch."""
    gram_bytes: int = GRAM_BYTES
    """Bytes to count n-grams in."""
    short_text_bytes: int = SHORT_TEXT_BYTES
    """Longest text whose words are laid side by side for its n-grams; it only says which way they are counted."""


WHOLE_ROOM = Room()
"""Of an operator."""


def columns_of(group: int) -> int:
    """Return the columns of an array of the counts of a group, by its feature bits."""
    return len(dict(GROUPS)[group]) + (REPEAT_WORK_COLUMNS if group == REPEAT_FEATURES else 0)


def metrics_price(names: Sequence[str], room: Room = WHOLE_ROOM) -> tuple[float, int]:
    """Return what metrics take of a device's memory: a multiple of the block, and bytes whatever the block.

    Examples
    --------
    >>> metrics_price(["word_count"])[0]
    0.9
    """
    features, factor, fixed_bytes = features_of(names), COLUMN_FACTOR * -(-len(names) // 10), 0
    for group, _ in GROUPS:
        if features & group:
            fixed_bytes += room.span_rows * 8 * columns_of(group)
    if features & (LINE_FEATURES | GRAM_FEATURES | REPEAT_FEATURES):
        factor += LONG_TEXT_FACTOR + (REPEAT_BITS_FACTOR if features & REPEAT_FEATURES else 0.0)
    # Groups are counted one after the other: what one is counted in is gone before the next.
    return factor, fixed_bytes + max(_room_bytes(features & group, room) for group, _ in GROUPS)


def _room_bytes(features: int, room: Room) -> int:
    """Return what some features of one group are counted in."""
    if features & LINE_FEATURES:  # which slots each text needs, where they begin, and the table
        return room.span_rows * 16 + room.table_slots * 4
    if features & CHARACTER_FEATURES:
        return room.threads * (LONGEST_COUNTED_WORD + 1) * 4
    if not features & (GRAM_FEATURES | REPEAT_FEATURES):
        return 0
    # Four needs of each text, which row it is and where its room begins, and that room.
    most = max(room.gram_bytes, SHORT_GRAM_FACTOR * room.short_text_bytes + 128, LONG_GRAM_BYTES)
    return (room.span_rows + 1) * 56 + most


def hashes_price(*, normalized: bool) -> tuple[float, int]:
    """Return the same of content hashes of one column."""
    return HASH_FACTOR, MOST_THREADS * NORMALIZED_BYTES if normalized else 0


def require_device_metrics(
    operator: str,
    names: Sequence[str],
    words: Words = "whitespace",
    stop_words: tuple[str, ...] = STOP_WORDS,
    *,
    from_columns: bool = False,
) -> None:
    """Raise `UnsupportedBackendError`, naming the metrics, unless all can be made on a device.

    Examples
    --------
    >>> require_device_metrics("add_metrics", ["word_count", "duplicate_line_ratio"])
    """
    if from_columns:
        raise UnsupportedBackendError(
            f"{operator} reads metrics from columns of pandas blocks alone, and this table has cudf blocks; {_WAY_OUT}"
        )
    missing = [name for name in names if name not in DEVICE_METRICS]
    if missing:
        raise UnsupportedBackendError(
            f"{operator} has no kernel for cuDF blocks that measures {', '.join(missing)}; {_WAY_OUT}"
        )
    if words != "whitespace":
        raise UnsupportedBackendError(
            f"{operator} cuts the texts of cuDF blocks at white space alone, not as words={words!r} says; {_WAY_OUT}"
        )
    if stop_words != STOP_WORDS and features_of(names) & COUNT_STOP_WORDS:
        raise UnsupportedBackendError(
            f"{operator} counts the stop words {', '.join(STOP_WORDS)} in cuDF blocks, and no other list; {_WAY_OUT}"
        )


def signatures_price(scheme: Scheme) -> tuple[float, int]:
    """Return the same of the signatures of one column: of texts laid out anew for their shingles, and of the signatures.

    Examples
    --------
    >>> signatures_price(Scheme("characters", 24, 20, 13))
    (0.0, 4259840)
    >>> signatures_price(Scheme("words", 5, 14, 8, use_64_bit_hash=True, normalize="case_and_spaces"))[0]
    3.0
    """
    factor, row_bytes = 0.0, scheme.signature_bytes
    if scheme.ngrams == "words" or scheme.normalize:
        copies = 2 if scheme.ngrams == "words" else 1  # where words start is as long as the words
        factor = 1.5 * copies
        row_bytes += SHINGLE_ROW_BYTES * copies + 16
    return factor, SIGNATURE_ROWS * row_bytes

# SPDX-License-Identifier: Apache-2.0
"""Memory of metrics and signatures on a device, and arguments without device kernels; queried without loading any kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from curator_df.errors import UnsupportedBackendError
from curator_df.kernels.metrics.catalog import METRICS, Words, features_of
from curator_df.kernels.metrics.counts import (
    CHARACTERS,
    COUNT_STOP_WORDS,
    FAMILIES,
    GRAMS,
    LONGEST_COUNTED_WORD,
    REPEATS,
    SHORT_TEXT_BYTES,
    STOP_WORDS,
    CountFamily,
)
from curator_df.kernels.minhash.scheme import Scheme

_WAY_OUT = "convert the table first with to_backend(df, 'pandas')"

MOST_THREADS = 16_384
"""Threads of a launch in which each thread has a working array of its own. Not measured on a GPU."""
SPAN_ROWS = 65_536
"""Number of rows whose counts are held in each step: all families together 71 MB."""
TABLE_CELLS = 1 << 26
"""Cells, of 4 bytes, of the tables of the texts processed together; more only for a text that needs more."""
COLUMN_FACTOR = 0.9
"""Memory multiplier of up to 10 metrics, for rows of 100 bytes: 8 bytes each."""
LONG_GRAM_FACTOR = 4.0
"""Table of the n-grams of one text, as a multiple of its bytes."""
GRAM_BYTES = 1 << 28
"""Bytes in which the n-grams of the texts processed together are counted; more only for a text that needs more."""
SHORT_GRAM_FACTOR = 36
"""Maximum memory for the n-grams of a short text, as a multiple of its bytes: words of one letter."""
LONG_GRAM_BYTES = 295_000
"""Bytes for the window of a long text, and the table of a window's words; a larger table is in `LONG_GRAM_FACTOR`."""
REPEAT_BITS_FACTOR = 0.2
"""Memory multiplier of one bit for each byte of a long text, for NeMo's and dolma's n-grams."""
SIGNATURE_ROWS = 4_096
"""Number of rows whose signatures are held in each step, on the device and on the host."""
SHINGLE_ROW_BYTES = 24
"""Padding in bytes after each text that is laid out for its shingles: `word_windows.fill_words` and
`murmur_hash.fill_normalized` write eight bytes in each step, and the first stops 16 before the end."""
HASH_FACTOR = 0.4
"""Memory multiplier of hashes of rows of 40 bytes: 16 bytes each."""
NORMALIZED_BYTES = 1_032
"""Bytes for each thread that hashes normalized texts: `murmur_hash.PIECE_ROOM`."""


@dataclass(frozen=True)
class Room:
    """Sizes of the working memory. Results do not depend on them."""

    span_rows: int = SPAN_ROWS
    """Rows."""
    table_cells: int = TABLE_CELLS
    """Cells of the tables of texts."""
    threads: int = MOST_THREADS
    """Number of threads of a launch."""
    gram_bytes: int = GRAM_BYTES
    """Bytes for counting n-grams."""
    short_text_bytes: int = SHORT_TEXT_BYTES
    """Longest text whose words are stored contiguously for its n-grams; it only chooses how they are counted."""


WHOLE_ROOM = Room()
"""Working memory of an operator."""


def metrics_price(
    names: Sequence[str], room: Room = WHOLE_ROOM, stop_words: tuple[str, ...] = STOP_WORDS
) -> tuple[float, int]:
    """Return the device memory of metrics: a multiple of the block, and bytes independent of the block.

    Examples
    --------
    >>> metrics_price(["word_count"])[0]
    0.9
    """
    features, factor = features_of(names), COLUMN_FACTOR * -(-len(names) // 10)
    counted = [family for family in FAMILIES if features & family.features]
    fixed_bytes = sum(room.span_rows * 8 * family.columns for family in counted)
    # Families are counted one after the other: the memory of one is released before the next.
    factor += max(map(_room_factor, counted), default=0.0)
    most_bytes = max((_room_bytes(family, room) for family in counted), default=0)
    if features & COUNT_STOP_WORDS and stop_words != STOP_WORDS:
        most_bytes = max(most_bytes, room.threads * len(stop_words) * 4)
    return factor, fixed_bytes + most_bytes


def _room_factor(family: CountFamily) -> float:
    """Return the working memory of a family for a long text, as a multiple of its bytes."""
    if family in (GRAMS, REPEATS):
        return LONG_GRAM_FACTOR + (REPEAT_BITS_FACTOR if family == REPEATS else 0.0)
    return family.table_factor


def _room_bytes(family: CountFamily, room: Room) -> int:
    """Return the working memory of a family, whatever the texts."""
    if family.table_factor:  # which cells each text needs, where they begin, and these
        return room.span_rows * 16 + room.table_cells * 4
    if family == CHARACTERS:
        return room.threads * (LONGEST_COUNTED_WORD + 1) * 4
    if family not in (GRAMS, REPEATS):
        return 0
    # Four values for each text, its row and the start of its working memory, and that memory.
    most = max(room.gram_bytes, SHORT_GRAM_FACTOR * room.short_text_bytes + 128, LONG_GRAM_BYTES)
    return (room.span_rows + 1) * 56 + most


def hashes_price(*, normalized: bool) -> tuple[float, int]:
    """Return the device memory of content hashes of one column, as `metrics_price` does."""
    return HASH_FACTOR, MOST_THREADS * NORMALIZED_BYTES if normalized else 0


def require_device_metrics(
    operator: str,
    names: Sequence[str],
    words: Words = "whitespace",
    *,
    from_columns: bool = False,
) -> None:
    """Raise `UnsupportedBackendError` unless all metrics are in `METRICS` and the words are those between white space.

    Examples
    --------
    >>> require_device_metrics("add_metrics", ["word_count", "duplicate_line_ratio"])
    """
    if from_columns:
        raise UnsupportedBackendError(
            f"{operator} reads metrics from columns only in host memory (pandas blocks), and this table is on a GPU (cudf "
            f"blocks); {_WAY_OUT}"
        )
    missing = [name for name in names if name not in METRICS]
    if missing:
        raise UnsupportedBackendError(f"{operator} cannot measure {', '.join(missing)} on cuDF blocks; {_WAY_OUT}")
    if words != "whitespace":
        raise UnsupportedBackendError(
            f"{operator} splits the texts of cuDF blocks only at white space, and words={words!r} was set: "
            f"such words are found only on the CPU. Pass words='whitespace', or {_WAY_OUT}"
        )


def signatures_price(scheme: Scheme) -> tuple[float, int]:
    """Return the device memory of the signatures of one column: texts laid out again for their shingles, and signatures.

    Examples
    --------
    >>> signatures_price(Scheme("characters", 24, 20, 13))
    (0.0, 4259840)
    >>> signatures_price(Scheme("words", 5, 14, 8, use_64_bit_hash=True, normalize="case_and_spaces"))[0]
    3.0
    """
    factor, row_bytes = 0.0, scheme.signature_bytes
    if scheme.ngrams == "words" or scheme.normalize:
        copies = 2 if scheme.ngrams == "words" else 1  # the starts of words take as much as the words
        factor = 1.5 * copies
        row_bytes += SHINGLE_ROW_BYTES * copies + 16
    return factor, SIGNATURE_ROWS * row_bytes

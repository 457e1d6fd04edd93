# SPDX-License-Identifier: Apache-2.0
"""All-to-all of bucket rows: pair every row that shares a bucket with the first rows of that bucket.

A bucket is a key that many rows may have, and a row may be in many buckets: the bands of locality-sensitive hashing. Rows
come as key rows of an `Exchange` with ``keep="first"``: a `KeyWriter` takes (hash, number of the band) as the key of 128
bits, as often for a row as it has bands, and `reduce_buckets` stands where `reduce_keys` stands for duplicates. What comes
out are edges (row, anchor), with a slice for each range of rows, sorted; an edge that several bands give comes several
times. A bucket of n rows gives at most ``anchors * n`` edges.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from curator_df.core.exchange import DROP_WORDS, Exchange, drop_bounds
from curator_df.core.row_order import Rows
from curator_df.core.row_sort import PIECE_ROWS, RowSorter, merge_slices
from curator_df.core.slice_file import open_slices
from curator_df.core.storage import FileRecord
from curator_df.errors import ParameterError


@dataclass(frozen=True)
class Bucketed:
    """What one reduce task did."""

    number: int
    """Of the reducer."""
    file: FileRecord
    """Its edges; its ``rows`` are the edges."""
    rows: int
    """Bucket rows merged."""
    buckets: int
    """Distinct keys."""
    largest_bucket: int
    """Rows of the fullest bucket."""
    read_bytes: int
    """Read from the map tasks' files."""
    spilled_bytes: int
    """Edges that went through the scratch directory to be sorted."""
    seconds: float
    """Wall time."""


@dataclass(frozen=True)
class OpenBucket:
    """The bucket that was begun last, as far as it was seen."""

    first_rows: Rows = field(default_factory=lambda: np.empty((0, 3), dtype=np.uint64))
    """Shape (at most anchors, 3): its first rows."""
    rows: int = 0
    """How many it has so far."""


def reduce_buckets(
    exchange: Exchange,
    number: int,
    files: Sequence[FileRecord],
    *,
    anchors: int,
    memory_bytes: int,
    scratch: str | None = None,
) -> Bucketed:
    """Merge one reducer's slices of all map files, and write the edges of their buckets.

    Parameters
    ----------
    exchange : Exchange
        The exchange, with ``keep="first"``.
    number : int
        Of the reducer.
    files : sequence of FileRecord
        What every `KeyWriter` committed.
    anchors : int
        First rows of a bucket that each later one is paired with.
    memory_bytes : int
        To hold at most: one half merges, the other sorts the edges.
    scratch : str, optional
        Local directory for what does not fit; by default the system's for temporary files.

    Raises
    ------
    CorruptFileError
        If a page does not match its checksum; names file and offset. Nothing is committed.
    ParameterError
        If there is to be no anchor, or another row than the first would stay.
    """
    if anchors < 1 or exchange.keep != "first":
        raise ParameterError(
            f"reduce_buckets: anchors={anchors} and keep={exchange.keep!r}; needs 1 or more and 'first'"
        )
    started = time.perf_counter()
    slices = open_slices(exchange.folder, files, number)
    sorter = RowSorter(
        exchange.folder,
        f"edges/reduced-{number:06d}.slices",
        words=DROP_WORDS,
        bounds=drop_bounds(exchange.range_starts[:: exchange.ranges_per_drop_file]),
        memory_bytes=memory_bytes // 2,
        scratch=scratch,
    )
    rows = buckets = largest = 0
    last = OpenBucket()
    try:
        for merged in merge_slices(slices, memory_bytes=memory_bytes // 2, scratch=scratch):
            for start in range(0, len(merged), PIECE_ROWS):
                piece = merged[start : start + PIECE_ROWS]
                edges, begun, fullest, last = edges_of(piece, last, anchors)
                sorter.append(edges)
                rows, buckets, largest = rows + len(piece), buckets + begun, max(largest, fullest)
        file = sorter.commit()
    finally:
        sorter.discard()
    read_bytes = sum(piece.size_bytes for piece in slices)
    seconds = time.perf_counter() - started
    return Bucketed(number, file, rows, buckets, largest, read_bytes, sorter.spilled_bytes, seconds)


def edges_of(rows: Rows, before: OpenBucket, anchors: int) -> tuple[Rows, int, int, OpenBucket]:
    """Return the edges of some bucket rows, the buckets that begin here, rows of the fullest, and the last bucket.

    Parameters
    ----------
    rows : ndarray of uint64, shape (rows, 3)
        Sorted bucket rows (key, key, address) that follow those of the last call; at least one.
    before : OpenBucket
        What the last call returned.
    anchors : int
        As in `reduce_buckets`.

    Examples
    --------
    >>> rows = np.array([[1, 0, 10], [1, 0, 20], [1, 0, 30], [2, 0, 10]], dtype=np.uint64)
    >>> edges, buckets, fullest, _ = edges_of(rows, OpenBucket(), 2)
    >>> edges.tolist(), buckets, fullest
    ([[20, 10], [30, 10], [30, 20]], 2, 3)
    """
    held = len(before.first_rows)
    # The first rows of the open bucket stand in front, so that it goes on as any other.
    joined = np.concatenate([before.first_rows, rows])
    begins = np.ones(len(joined), dtype=np.bool_)
    begins[1:] = (joined[1:, 0] != joined[:-1, 0]) | (joined[1:, 1] != joined[:-1, 1])
    places = np.arange(len(joined))
    starts = np.maximum.accumulate(np.where(begins, places, 0))
    later = places >= held
    parts = []
    for anchor in range(anchors):
        members = np.flatnonzero(later & (places - starts > anchor))
        parts.append(np.stack([joined[members, 2], joined[starts[members] + anchor, 2]], axis=1))
    edges = np.concatenate(parts)
    # In the order of rows, as far as it comes cheaply: the sorter then has less to do.
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    sizes = np.diff(np.append(np.flatnonzero(begins), len(joined)))
    sizes[0] += before.rows - held
    last = starts[-1]
    after = OpenBucket(joined[last : last + anchors].copy(), int(sizes[-1]))
    return edges, int(begins[later].sum()), int(sizes.max()), after

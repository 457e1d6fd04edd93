# SPDX-License-Identifier: Apache-2.0
"""All-to-all exchange of bucket rows: pair every row of a bucket with the first rows of that bucket.

A bucket is a key that many rows may share, and a row may be in many buckets: the bands of locality-sensitive hashing. Rows
arrive as key rows of an `Exchange` with ``keep="first"``: a `KeyWriter` gets (bucket, hash of the content) as the 128-bit key,
once per row and band. `reduce_buckets` then takes the place of `reduce_keys`. Rows with the same content count as one row of a
bucket, the first. The result is a list of edges in both directions, sorted, with a slice for each group of ranges; an edge is
repeated for each band that yields it. A bucket of n contents yields fewer than ``2 * anchors * n`` edges, so nothing grows with
the square of its rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from curator_df.core.files.row_order import Rows
from curator_df.core.files.row_sort import PIECE_ROWS, RowSorter, merge_slices
from curator_df.core.files.slice_file import open_slices
from curator_df.core.files.storage import FileRecord
from curator_df.dedup.near.keys import ROW_BIT
from curator_df.dedup.near.settings import EDGE_WORDS
from curator_df.errors import ParameterError
from curator_df.exchange.exchange import Exchange
from curator_df.exchange.range_groups import RangeGroups


@dataclass(frozen=True)
class Bucketed:
    """Result of one reduce task."""

    number: int
    """Number of the reducer."""
    file: FileRecord
    """File of the edges; its ``rows`` counts them."""
    rows: int
    """Number of bucket rows merged."""
    buckets: int
    """Number of distinct buckets."""
    largest_bucket: int
    """Number of distinct contents in the fullest bucket; the number of rows if all have the same content."""
    read_bytes: int
    """Bytes read from the files of the map tasks."""
    spilled_bytes: int
    """Bytes of edges that were sorted in the scratch directory."""
    seconds: float
    """Wall time in seconds."""


@dataclass(frozen=True)
class OpenBucket:
    """State of the last bucket, which may continue in the next piece."""

    first_rows: Rows = field(default_factory=lambda: np.empty((0, 3), dtype=np.uint64))
    """Array of shape (at most 2 x anchors, 3): its first kept signatures and its first rows, with different contents."""
    rows: int = 0
    """Number of rows seen so far."""
    last: tuple[int, int] = (-1, -1)
    """Bucket and content of the last row."""


def reduce_buckets(
    exchange: Exchange,
    number: int,
    files: Sequence[FileRecord],
    *,
    groups: RangeGroups,
    anchors: int | None,
    memory_bytes: int,
    scratch: str | None = None,
) -> Bucketed:
    """Merge one reducer's slices of all map files, and write the edges of their buckets.

    Parameters
    ----------
    exchange : Exchange
        Exchange that the files belong to.
    number : int
        Number of the reducer.
    files : sequence of FileRecord
        Files that every `KeyWriter` committed, with ``keep="first"``.
    groups : RangeGroups
        Groups of the ranges, for the slices of the edges.
    anchors : int or None
        Number of first rows of a bucket that each later row is paired with. None: a bucket is the rows with the same content,
        each is paired with the first of them, and the similarity is 1.
    memory_bytes : int
        Maximum working memory: one half merges, the other sorts the edges.
    scratch : str, optional
        Local directory for spilled data. Default: the system's directory for temporary files.

    Raises
    ------
    CorruptFileError
        If a page does not match its checksum; names file and offset. Nothing is committed.
    ParameterError
        If anchors is less than 1.
    """
    if anchors is not None and anchors < 1:
        raise ParameterError(f"reduce_buckets: anchors={anchors} is less than 1")
    started = time.perf_counter()
    slices = open_slices(exchange.folder, files, number)
    sorter = RowSorter(
        exchange.folder,
        f"edges/reduced-{number:06d}.slices",
        words=EDGE_WORDS,
        bounds=groups.bounds,
        memory_bytes=memory_bytes // 2,
        scratch=scratch,
    )
    similarity = np.float64(np.nan if anchors is not None else 1.0).view(np.uint64)
    rows = buckets = largest = 0
    last = OpenBucket()
    try:
        for merged in merge_slices(slices, memory_bytes=memory_bytes // 2, scratch=scratch):
            for start in range(0, len(merged), PIECE_ROWS):
                piece = merged[start : start + PIECE_ROWS]
                if anchors is None:
                    edges, begun, fullest, last = same_contents(piece, last)
                    edges = edges[edges[:, 1] < groups.first_kept]  # two kept signatures are not a pair
                else:
                    edges, begun, fullest, last = edges_of(piece, last, anchors)
                sorter.append(both_ways(edges, np.full(len(edges), similarity)))
                rows, buckets, largest = rows + len(piece), buckets + begun, max(largest, fullest)
        file = sorter.commit()
    finally:
        sorter.discard()
    read_bytes = sum(piece.size_bytes for piece in slices)
    seconds = time.perf_counter() - started
    return Bucketed(number, file, rows, buckets, largest, read_bytes, sorter.spilled_bytes, seconds)


def both_ways(edges: Rows, similarities: Rows) -> Rows:
    """Return rows (row, other, bits of the similarity) for each edge, followed by the reversed edges."""
    rows = np.empty((2 * len(edges), EDGE_WORDS), dtype=np.uint64)
    rows[: len(edges), :2], rows[len(edges) :, :2] = edges, edges[:, ::-1]
    rows[: len(edges), 2] = rows[len(edges) :, 2] = similarities
    return rows


def edges_of(rows: Rows, before: OpenBucket, anchors: int) -> tuple[Rows, int, int, OpenBucket]:
    """Return the edges of some bucket rows, the number of new buckets, the size of the fullest one, and the last bucket.

    Parameters
    ----------
    rows : ndarray of uint64, shape (rows, 3)
        Sorted bucket rows (bucket, content, address) that follow those of the last call; at least one. Contents without
        `ROW_BIT` are kept signatures: rows are also paired with the first of these, but kept signatures are never paired
        with each other.
    before : OpenBucket
        Last bucket that the previous call returned.
    anchors : int
        Number of first rows, as in `reduce_buckets`.

    Examples
    --------
    >>> rows = np.array([[1, 3, 90], [1, 4, 10], [1, 5, 20], [1, 5, 25], [1, 6, 30], [2, 0, 10]], dtype=np.uint64)
    >>> rows[1:, 1] |= ROW_BIT
    >>> edges, buckets, fullest, _ = edges_of(rows, OpenBucket(), 2)
    >>> edges.tolist(), buckets, fullest
    ([[20, 10], [30, 10], [10, 90], [20, 90], [30, 90], [30, 20]], 2, 4)
    """
    begun, last = _buckets_begun(rows, before), (int(rows[-1, 0]), int(rows[-1, 1]))
    rows = _in_company(rows, before)
    is_other = np.empty(len(rows), dtype=np.bool_)
    is_other[0] = (int(rows[0, 0]), int(rows[0, 1])) != before.last
    is_other[1:] = (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] != rows[:-1, 1])
    # The first rows of the open bucket come first, so that it continues like any other bucket.
    joined = np.concatenate([before.first_rows, rows[is_other]])
    held, places, is_row = len(before.first_rows), np.arange(len(joined)), joined[:, 1] >= ROW_BIT
    begins = np.ones(len(joined), dtype=np.bool_)
    begins[1:] = joined[1:, 0] != joined[:-1, 0]
    starts = np.maximum.accumulate(np.where(begins, places, 0))
    rows_begin = begins.copy()
    rows_begin[1:] |= is_row[1:] != is_row[:-1]
    row_starts = np.maximum.accumulate(np.where(rows_begin, places, 0))
    later = is_row & (places >= held)
    parts = []
    for anchor in range(anchors):
        for first, stop in ((row_starts, places), (starts, row_starts)):
            members = np.flatnonzero(later & (stop - first > anchor))
            parts.append(np.stack([joined[members, 2], joined[first[members] + anchor, 2]], axis=1))
    sizes = np.diff(np.append(np.flatnonzero(begins), len(joined)))
    sizes[0] += before.rows - held
    open_rows, are_rows = joined[starts[-1] :], is_row[starts[-1] :]
    first_rows = np.concatenate([open_rows[~are_rows][:anchors], open_rows[are_rows][:anchors]])
    after = OpenBucket(first_rows, int(sizes[-1]), last)
    return np.concatenate(parts), begun, int(sizes.max()), after


def _buckets_begun(rows: Rows, before: OpenBucket) -> int:
    goes_on = int(rows[0, 0]) == before.last[0]
    return 1 - goes_on + int(np.count_nonzero(rows[1:, 0] != rows[:-1, 0]))


def _in_company(rows: Rows, before: OpenBucket) -> Rows:
    """Return the rows that share a bucket, and the last row: the buckets of most texts have only one row."""
    is_shared = np.empty(len(rows), dtype=np.bool_)
    is_shared[0] = int(rows[0, 0]) == before.last[0]
    is_shared[1:] = rows[1:, 0] == rows[:-1, 0]
    is_shared[:-1] |= is_shared[1:].copy()
    is_shared[-1] = True
    return rows[is_shared]


def same_contents(rows: Rows, before: OpenBucket) -> tuple[Rows, int, int, OpenBucket]:
    """Return edges as `edges_of` does, with the rows of the same two words as a bucket, each paired with the first of them.

    Examples
    --------
    >>> rows = np.array([[1, 3, 10], [1, 4, 20], [1, 4, 25], [1, 4, 30]], dtype=np.uint64)
    >>> same_contents(rows, OpenBucket())[0].tolist()
    [[25, 20], [30, 20]]
    """
    held = len(before.first_rows)
    joined = np.concatenate([before.first_rows, rows])
    begins = np.ones(len(joined), dtype=np.bool_)
    begins[1:] = (joined[1:, 0] != joined[:-1, 0]) | (joined[1:, 1] != joined[:-1, 1])
    starts = np.maximum.accumulate(np.where(begins, np.arange(len(joined)), 0))
    members = np.flatnonzero(~begins)
    members = members[members >= held]
    edges = np.stack([joined[members, 2], joined[starts[members], 2]], axis=1)
    sizes = np.diff(np.append(np.flatnonzero(begins), len(joined)))
    sizes[0] += before.rows - held
    after = OpenBucket(joined[starts[-1] : starts[-1] + 1].copy(), int(sizes[-1]))
    return edges, int(begins[held:].sum()), int(sizes.max()), after

# SPDX-License-Identifier: Apache-2.0
"""Edges of buckets are the same whatever the pieces, reducers and memory, and grow with the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.core.buckets import OpenBucket, edges_of, reduce_buckets
from curator_df.core.exchange import Exchange, KeyWriter
from curator_df.core.row_sort import merge_slices
from curator_df.core.slice_file import open_slices
from curator_df.core.storage import Folder
from curator_df.errors import ParameterError

ROWS = st.lists(st.tuples(st.sampled_from([0, 7, 2**64 - 1]), st.integers(0, 2), st.integers(0, 50)), max_size=40)


def expected_edges(rows, anchors):
    edges = []
    for number, (one, two, address) in enumerate(rows):
        first = [row[2] for row in rows[:number] if row[:2] == (one, two)][:anchors]
        edges += [(address, anchor) for anchor in first]
    return sorted(edges)


@given(ROWS, st.integers(1, 3), st.integers(1, 50))
def test_edges_whatever_the_pieces(rows, anchors, size):
    rows = sorted(set(rows))
    edges, buckets, fullest, last = [], 0, 0, OpenBucket()
    for start in range(0, len(rows), size):
        piece = np.array(rows[start : start + size], dtype=np.uint64)
        found, begun, most, last = edges_of(piece, last, anchors)
        edges += [tuple(edge) for edge in found.tolist()]
        buckets, fullest = buckets + begun, max(fullest, most)
    sizes = [sum(row[:2] == key for row in rows) for key in {row[:2] for row in rows}]
    assert sorted(edges) == expected_edges(rows, anchors)
    assert (buckets, fullest) == (len(sizes), max(sizes, default=0))


def bucket_files(exchange, hashes, addresses, cuts):
    files = []
    for number, part in enumerate(np.array_split(np.arange(len(addresses)), cuts)):
        writer = KeyWriter(exchange, number, memory_bytes=50_000)
        for band in range(hashes.shape[1]):
            keys = np.stack([hashes[part, band], np.full(len(part), band, dtype=np.uint64)], axis=1)
            writer.append(keys, addresses[part])
        files.append(writer.commit())
    return files


@pytest.mark.parametrize(("reducers", "cuts", "memory_bytes"), [(1, 1, 2_000_000), (4, 3, 40_000)])
def test_bands_go_through_an_exchange(tmp_path, reducers, cuts, memory_bytes):
    random = np.random.default_rng(1)
    hashes = random.integers(0, 1 << 63, (3000, 3), dtype=np.uint64)
    hashes[1000:, 0] = hashes[0, 0]
    hashes[:, 1] = hashes[random.integers(0, 1500, 3000), 1]
    addresses = np.arange(3000, dtype=np.int64) * 10
    exchange = Exchange(Folder(str(tmp_path)), "first", reducers, np.array([0, 9_000, 20_000], dtype=np.int64))
    files = bucket_files(exchange, hashes, addresses, cuts)
    reduced = [
        reduce_buckets(exchange, number, files, anchors=2, memory_bytes=memory_bytes) for number in range(reducers)
    ]
    found = []
    for number in range(3):
        slices = open_slices(exchange.folder, [one.file for one in reduced], number)
        rows = [tuple(row) for piece in merge_slices(slices, memory_bytes=100_000) for row in piece.tolist()]
        assert all(9_000 <= row[0] < 20_000 for row in rows) or number != 1
        found += rows
    rows = [(int(hashes[row, band]), band, int(addresses[row])) for band in range(3) for row in range(3000)]
    by_bucket = {}
    for one, two, address in rows:
        by_bucket.setdefault((one, two), []).append(address)
    expected = sorted(
        (address, anchor)
        for members in by_bucket.values()
        for number, address in enumerate(members)
        for anchor in members[: min(number, 2)]
    )
    assert found == expected
    assert sum(one.rows for one in reduced) == 9000
    assert sum(one.buckets for one in reduced) == len(by_bucket)
    assert max(one.largest_bucket for one in reduced) == 2001
    assert sum(one.file.rows for one in reduced) <= 2 * 9000


def test_a_policy_by_value_is_refused(tmp_path):
    exchange = Exchange(Folder(str(tmp_path)), "largest", 1, np.zeros(1, dtype=np.int64))
    with pytest.raises(ParameterError, match="anchors=1 and keep='largest'; needs 1 or more and 'first'"):
        reduce_buckets(exchange, 0, [], anchors=1, memory_bytes=100_000)

# SPDX-License-Identifier: Apache-2.0
"""Edges of buckets are the same whatever the pieces, reducers and memory, and grow with the rows."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.dedup.near.keys import ROW_BIT, band_words
from curator_df.dedup.near.settings import IN_CROWD, UNKNOWN
from curator_df.dedup.near.tasks import OpenBucket, edges_of, reduce_buckets, same_contents
from curator_df.errors import ParameterError
from curator_df.exchange.exchange import Exchange, KeyWriter
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.row_sort import merge_slices
from curator_df.files.slice_file import open_slices
from curator_df.files.storage import Folder

IS_ROW = int(ROW_BIT)
CONTENTS = st.sampled_from([1, 2, 3, 4, IS_ROW, IS_ROW + 1, IS_ROW + 2, IS_ROW + 3])
ROWS = st.lists(st.tuples(st.sampled_from([0, 7, 2**64 - 1]), CONTENTS, st.integers(0, 50)), max_size=40)


def members_of(rows):
    """Return content and address of each member of each bucket: of each content the first."""
    buckets = {}
    for one, two, address in rows:
        buckets.setdefault(one, {}).setdefault(two, address)
    return {key: list(members.items()) for key, members in buckets.items()}


def expected_edges(rows, anchors):
    """Return row, anchor, and whether the row is in a crowd."""
    found = []
    for members in members_of(rows).values():
        kept = [address for content, address in members if content < IS_ROW]
        ours = [address for content, address in members if content >= IS_ROW]
        for number, address in enumerate(ours):
            in_crowd = number >= anchors and len(ours) > anchors + 1
            found += [(address, anchor, in_crowd) for anchor in ours[: min(number, anchors)]]
            found += [(address, anchor, False) for anchor in kept[:anchors]]
    return sorted(found)


def merged(edges):
    """Return edges as a merge leaves them, which prefers those of crowds: the last row of a piece may come in both kinds."""
    found = {}
    for row, anchor, bits in sorted(edges, key=lambda edge: edge[2]):
        found.setdefault((row, anchor), bits == int(IN_CROWD))
    return sorted((*pair, in_crowd) for pair, in_crowd in found.items())


def in_pieces(rows, size, function, *arguments):
    """Return edges, buckets and rows of the fullest."""
    edges, buckets, fullest, last = [], 0, 0, OpenBucket()
    for start in range(0, len(rows), size):
        piece = np.array(rows[start : start + size], dtype=np.uint64)
        found, begun, most, last = function(piece, last, *arguments)
        edges += [tuple(edge) for edge in found.tolist()]
        buckets, fullest = buckets + begun, max(fullest, most)
    return sorted(edges), buckets, fullest


@given(ROWS, st.sampled_from([1, 2, 3]), st.integers(1, 50))
def test_edges_whatever_the_pieces(rows, anchors, size):
    rows = sorted(set(rows))
    sizes = [len(members) for members in members_of(rows).values()]
    edges, buckets, fullest = in_pieces(rows, size, edges_of, anchors)
    wanted = [(*edge[:2], int(IN_CROWD if edge[2] else UNKNOWN)) for edge in expected_edges(rows, anchors)]
    assert merged(edges) == merged(wanted)
    assert (buckets, fullest) == (len(sizes), max(sizes, default=0))


@given(ROWS, st.integers(1, 50))
def test_same_contents_whatever_the_pieces(rows, size):
    rows = sorted(set(rows))
    texts = {}
    for one, two, address in rows:
        texts.setdefault((one, two), []).append(address)
    edges = sorted((address, members[0]) for members in texts.values() for address in members[1:])
    expected = (edges, len(texts), max(map(len, texts.values()), default=0))
    assert in_pieces(rows, size, same_contents) == expected


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.integers(1, 40))
def test_words_of_a_band_lie_between_its_bounds(hashes, kinds):
    words = [band_words(np.array(hashes, dtype=np.uint64), band, kinds).tolist() for band in range(kinds)]
    for band in range(kinds):
        assert all(band * 2**64 <= word * kinds < (band + 1) * 2**64 for word in words[band])
    small = [number for number in hashes if number < 2**64 // kinds - 1]
    assert len(set(small)) == len({word for number, word in zip(hashes, words[0], strict=True) if number in small})


def bucket_files(exchange, hashes, contents, addresses, cuts):
    files = []
    for number, part in enumerate(np.array_split(np.arange(len(addresses)), cuts)):
        writer = KeyWriter(exchange, number, memory_bytes=50_000)
        for band in range(hashes.shape[1]):
            words = band_words(hashes[part, band], band, hashes.shape[1])
            writer.append(np.stack([words, contents[part]], axis=1), addresses[part])
        files.append(writer.commit())
    return files


@pytest.mark.parametrize(("each", "cuts", "memory_bytes"), [(1, 1, 2_000_000), (4, 3, 40_000)])
def test_bands_go_through_an_exchange(tmp_path, each, cuts, memory_bytes):
    random = np.random.default_rng(1)
    hashes = random.integers(0, 1 << 60, (3000, 3), dtype=np.uint64)
    hashes[1000:, 0] = hashes[0, 0]
    hashes[:, 1] = hashes[random.integers(0, 1500, 3000), 1]
    contents = random.integers(0, 1 << 63, 3000, dtype=np.uint64) | ROW_BIT
    contents[2000:2500], hashes[2000:2500] = contents[1000], hashes[1000]
    addresses = np.arange(3000, dtype=np.int64) * 10
    starts = np.array([0, 9_000, 20_000], dtype=np.int64)
    exchange = Exchange(Folder(str(tmp_path)), "first", 3 * each, starts)
    files = bucket_files(exchange, hashes, contents, addresses, cuts)
    reduced = [
        reduce_buckets(exchange, number, files, groups=RangeGroups(starts, 1), anchors=2, memory_bytes=memory_bytes)
        for number in range(exchange.reducers)
    ]
    found = []
    for number in range(3):
        slices = open_slices(exchange.folder, [one.file for one in reduced], number)
        rows = [tuple(row[:2]) for piece in merge_slices(slices, memory_bytes=100_000) for row in piece.tolist()]
        assert all(9_000 <= row[0] < 20_000 for row in rows) or number != 1
        found += rows
    rows = sorted(
        (int(band_words(hashes[row : row + 1, band], band, 3)[0]), int(contents[row]), int(addresses[row]))
        for band in range(3)
        for row in range(3000)
    )
    expected = [edge[:2] for edge in expected_edges(rows, 2)]
    expected += [(anchor, address) for address, anchor in expected]
    more = collections.Counter(found)
    more.subtract(expected)
    assert set(more.values()) <= {0, 1}
    assert sum(more.values()) <= 2 * 2 * 3  # the last row of a piece twice, if a crowd goes on after it
    assert sum(one.rows for one in reduced) == 9000
    assert sum(one.buckets for one in reduced) == len(members_of(rows))
    assert max(one.largest_bucket for one in reduced) == 2001 - 500
    assert sum(one.file.rows for one in reduced) <= 2 * 2 * 9000


def test_a_bucket_without_an_anchor_is_refused(tmp_path):
    exchange = Exchange(Folder(str(tmp_path)), "first", 1, np.zeros(1, dtype=np.int64))
    with pytest.raises(ParameterError, match="anchors=0 is less than the minimum of 1"):
        reduce_buckets(exchange, 0, [], groups=RangeGroups(exchange.range_starts, 1), anchors=0, memory_bytes=100_000)

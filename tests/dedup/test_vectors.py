# SPDX-License-Identifier: Apache-2.0
"""Cosines in tiles and rows of clusters: the same whatever fits into memory."""

from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest

from curator_df.core.fingerprint import fingerprint
from curator_df.dedup.vectors.cluster_rows import ClusterRows
from curator_df.dedup.vectors.settings import require_room
from curator_df.dedup.vectors.stages import VectorDrop, VectorFound
from curator_df.dedup.vectors.tasks import CLUSTER_HEAD
from curator_df.dedup.vectors.vector_math import (
    from_words,
    hash_words,
    most_similar_earlier,
    nearest_centroids,
    roots_of,
    tile_rows,
    to_words,
    unit_rows,
)
from curator_df.errors import BudgetError
from curator_df.exchange.exchange import Exchange
from curator_df.exchange.range_groups import RangeGroups
from curator_df.files.slice_file import SliceWriter
from curator_df.files.storage import Folder
from curator_df.memory.budget import Layout, choose_layout

# NeMo Curator 0.9, tests/test_semdedup.py: vectors, the largest cosine with an earlier one, and which that is.
NEMO = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [1, 2, 3], [1, 2, 3]], dtype=np.float32)
COSINES = [0.974631, 0.998190, 0.999618, 1.0, 1.0]
EARLIER = [0, 1, 2, 0, 0]


def reader(vectors):
    return lambda start, stop: unit_rows(vectors[start:stop])


def similar(vectors, tile):
    pieces = most_similar_earlier(reader(vectors), len(vectors), tile)
    return [np.concatenate(made) for made in zip(*pieces, strict=True)]


@pytest.mark.parametrize("tile", [1, 2, 3, 4, 5, 6, 100])
def test_the_cosines_of_nemo_curators_tests(tile):
    cosines, places = similar(NEMO, tile)
    np.testing.assert_allclose(cosines[1:], COSINES, atol=1e-6)
    assert cosines[0] == -np.inf
    assert places[1:].tolist() == EARLIER


def test_tiles_change_nothing():
    vectors = np.random.default_rng(0).normal(size=(300, 17)).astype(np.float32)
    vectors[200:250] = vectors[20:70]
    whole = similar(vectors, 300)
    for tile in (7, 64, 128):
        for found, wanted in zip(similar(vectors, tile), whole, strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert whole[1][200:250].tolist() == list(range(20, 70))


def test_a_tile_fits_into_its_memory():
    for width in (3, 384, 4096):
        for memory_bytes in (3_000_000, 20_000_000, 200_000_000):
            rows = tile_rows(width, memory_bytes)
            assert rows == 16 or rows * (2 * 8 * width + 12 * rows) <= memory_bytes


def test_nearest_centroids_are_those_of_all_distances():
    chance = np.random.default_rng(1)
    units, centroids = unit_rows(chance.normal(size=(500, 8))), chance.normal(size=(2_500, 8))
    clusters, distances = nearest_centroids(units, centroids)
    expected = ((units[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert (clusters == expected).all()
    chosen = centroids[clusters]
    cosines = (units * chosen).sum(axis=1) / np.linalg.norm(chosen, axis=1)
    np.testing.assert_allclose(distances, 1 - cosines, atol=1e-6)


def test_hashes_spread_and_tell_rows_apart():
    rows = np.random.default_rng(2).normal(size=(20_000, 3)).astype(np.float32)
    words = to_words(rows)
    assert (from_words(words, 3, "float32") == rows).all()
    hashes = hash_words(words, 42)
    assert len(np.unique(hashes)) == 20_000
    assert np.abs(np.histogram(hashes / 2.0**64, bins=10)[0] - 2_000).max() < 250
    assert (hashes != hash_words(words, 43)).all()
    small = to_words(np.arange(20_000, dtype=np.float32)[:, None])
    assert np.abs(np.histogram(hash_words(small, 1) / 2.0**64, bins=10)[0] - 2_000).max() < 250


def pending(width: int) -> VectorDrop:
    return VectorDrop(None, None, None, {}, width, "float32", (0.001, 0.1), None, "easy", 1, "")


def cluster_rows(vectors: np.ndarray) -> np.ndarray:
    rows = np.zeros((len(vectors), CLUSTER_HEAD), dtype=np.uint64)
    rows[:, 2] = np.arange(len(vectors)) + 1_000
    return np.column_stack([rows, to_words(vectors)])


def members(vectors: np.ndarray, memory_bytes: int) -> tuple[np.ndarray, int]:
    """Return the rows in groups, and the bytes that lay in files; of a cluster that another one followed in the same place."""
    asked = pending(vectors.shape[1])
    with ClusterRows(asked, memory_bytes) as cluster:
        found = []
        for _ in range(2):
            for start in range(0, len(vectors), 997):
                cluster.append(cluster_rows(vectors)[start : start + 997])
            found.append(np.concatenate(list(cluster.members(memory_bytes // 8))))
            spilled = cluster.spilled_bytes
            cluster.clear()
    np.testing.assert_array_equal(*found)
    return found[0], spilled


def plain_members(vectors: np.ndarray) -> np.ndarray:
    """The same from all cosines in memory, row by row."""
    units = unit_rows(vectors)
    cosines = np.tril((units @ units.T).astype(np.float32), -1)
    cosines[np.triu_indices(len(units))] = -np.inf
    nearest, best = cosines.argmax(axis=1), cosines.max(axis=1)
    nearest[0] = 0
    by_eps = []
    for eps in (0.001, 0.1):
        roots = []
        for row in range(len(units)):
            roots.append(roots[nearest[row]] if best[row] >= np.float32(1 - eps) else row)
        counted = np.bincount(roots, minlength=len(units))
        by_eps.append((np.array(roots), counted[roots]))
    rows = np.flatnonzero(by_eps[-1][1] > 1)
    going = by_eps[-1][0][rows] != rows
    known = [rows, np.where(going, nearest[rows], rows)]
    for roots, counted in by_eps:
        known += [roots[rows], counted[rows] - 1_000]
    known[:] = [each.astype(np.uint64) + np.uint64(1_000) for each in known]
    found = np.where(going, best[rows].astype(np.float64), np.nan)
    return np.column_stack([*known[:2], found.view(np.uint64), *known[2:]])


def test_a_cluster_of_any_size_is_compared_in_the_same_memory():
    chance = np.random.default_rng(3)
    vectors = chance.normal(size=(4_000, 6)).astype(np.float32)
    near = chance.normal(size=(3_000, 6)).astype(np.float32) / 20
    vectors[1_000:] = vectors[chance.integers(0, 1_000, size=3_000)] + near * (chance.random((3_000, 1)) < 0.8)
    wanted = plain_members(vectors)
    assert 3_000 < len(wanted) < 4_000
    for memory_bytes in (10**9, 500_000, 2_000):
        found, spilled = members(vectors, memory_bytes)
        np.testing.assert_array_equal(found, wanted)
        assert (spilled > 0) == (memory_bytes < 10**9)


def peak_bytes(rows: int, memory_bytes: int) -> int:
    """Return the most that was held for a cluster, of which nine rows in ten repeat the one before."""
    numbers = np.random.default_rng(1).normal(size=(rows // 10, 2)).astype(np.float32)
    tracemalloc.start()
    try:
        with ClusterRows(pending(2), memory_bytes) as cluster:
            for start in range(0, len(numbers), 100):
                cluster.append(cluster_rows(np.repeat(numbers[start : start + 100], 10, axis=0)))
            assert cluster.rows == rows
            assert sum(map(len, cluster.members(memory_bytes // 8))) > rows // 2
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_is_held_does_not_grow_with_the_cluster():
    memory_bytes = 4_000_000
    small, large = (peak_bytes(rows, memory_bytes) for rows in (20_000, 100_000))
    assert large < memory_bytes
    assert large < 1.2 * max(small, memory_bytes // 2)


def test_rows_follow_their_parents_to_where_they_end():
    chance = np.random.default_rng(5)
    parents = np.array([chance.integers(0, row + 1) for row in range(500)])
    whole = roots_of(parents)
    assert (whole[whole] == whole).all()
    known = np.empty(0, dtype=np.int64)
    for start in range(0, 500, 70):
        found = roots_of(parents[start : start + 70], start)
        before = found < start
        found[before] = known[found[before]]
        known = np.concatenate([known, found])
    np.testing.assert_array_equal(known, whole)


def test_a_vector_that_repeats_costs_no_comparison():
    count = 200_000
    vectors = np.ones((count, 2), dtype=np.float32)
    vectors[-1] = (1, -1)
    with ClusterRows(pending(2), 10**8) as cluster:
        cluster.append(cluster_rows(vectors))
        assert (cluster.rows, cluster.different) == (count, 2)
        found = np.concatenate(list(cluster.members(10**7)))
    assert len(found) == count - 1
    assert (found[:, 3] == 1_000).all()
    assert (found[:, 4] == count - 1).all()


def on_gpu(layout: Layout, device_bytes: int) -> Layout:
    return dataclasses.replace(layout, device_bytes=device_bytes)


def test_clusters_that_are_found_on_a_gpu_need_one_with_room():
    layout = choose_layout(4_000_000_000, cpus=2, held_bytes=0)
    asked = dataclasses.replace(pending(384), fits_on_device=True)
    require_room("drop", asked, 100, on_gpu(layout, 2_000_000_000))
    with pytest.raises(BudgetError, match=r"k_means='cuml' needs a GPU, and these workers have none"):
        require_room("drop", asked, 100, layout)
    with pytest.raises(BudgetError, match=r"num_clusters=100 and vectors of 384 .* on a GPU, but may use only 300 MB"):
        require_room("drop", asked, 100, on_gpu(layout, 300_000_000))
    assert fingerprint(asked) != fingerprint(pending(384))


def test_rejects_find_what_the_rows_of_a_range_matched(tmp_path):
    folder, starts = Folder(str(tmp_path)), np.arange(6, dtype=np.int64) * 100
    groups = RangeGroups(starts, 3)
    files = []
    for group in range(2):
        addresses = np.arange(group * 300, group * 300 + 300, 7, dtype=np.uint64)
        cosines = np.linspace(0.9, 1, len(addresses))
        rows = np.stack([addresses, addresses // 2, cosines.view(np.uint64), addresses, addresses], axis=1)
        with folder.create(f"members-{group}.slices") as file:
            writer = SliceWriter(file, rows.shape[1], np.zeros(1, dtype=np.uint64))
            writer.append(rows)
            writer.finish()
            files.append(file.commit(len(rows)))
    exchange = Exchange(folder, "first", 1, starts)
    counts = np.zeros(6, dtype=np.int64)
    found = VectorFound(exchange, (), counts, counts.view(np.uint64), groups=groups, members=tuple(files), pending=None)
    for number in range(6):
        rows = np.concatenate(list(found.matched_rows(number, memory_bytes=10**6)))
        rows = rows[(rows[:, 0] >= starts[number]) & (rows[:, 0] < starts[number] + 100)]
        first = number // 3 * 300
        wanted = np.arange(first, first + 300, 7)
        wanted = wanted[(wanted >= starts[number]) & (wanted < starts[number] + 100)]
        assert rows[:, 0].tolist() == wanted.tolist()
        assert rows[:, 1].tolist() == (wanted // 2).tolist()
        assert (np.diff(rows[:, 2].copy().view(np.float64)) > 0).all()

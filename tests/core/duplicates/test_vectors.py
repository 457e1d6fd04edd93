# SPDX-License-Identifier: Apache-2.0
"""Cosines in tiles and rows of clusters: the same whatever fits into memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from curator_df.core.duplicates.vector_compare import CLUSTER_HEAD, ClusterRows, _members, _require_room
from curator_df.core.exchange.vector_barrier import VectorBarrier, require_room
from curator_df.core.exchange.vector_math import (
    from_words,
    hash_words,
    most_similar_earlier,
    nearest_centroids,
    tile_rows,
    to_words,
    unit_rows,
)
from curator_df.core.fingerprint import fingerprint
from curator_df.core.memory.budget import Layout, choose_layout
from curator_df.errors import BudgetError

# NeMo Curator 0.9, tests/test_semdedup.py: vectors, the largest cosine with an earlier one, and which that is.
NEMO = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [1, 2, 3], [1, 2, 3]], dtype=np.float32)
COSINES = [0.974631, 0.998190, 0.999618, 1.0, 1.0]
EARLIER = [0, 1, 2, 0, 0]


def reader(vectors):
    return lambda start, stop: unit_rows(vectors[start:stop])


@pytest.mark.parametrize("tile", [1, 2, 3, 4, 5, 6, 100])
def test_the_cosines_of_nemo_curators_tests(tile):
    cosines, places = most_similar_earlier(reader(NEMO), 6, tile)
    np.testing.assert_allclose(cosines[1:], COSINES, atol=1e-6)
    assert cosines[0] == -np.inf
    assert places[1:].tolist() == EARLIER


def test_tiles_change_nothing():
    vectors = np.random.default_rng(0).normal(size=(300, 17)).astype(np.float32)
    vectors[200:250] = vectors[20:70]
    whole = most_similar_earlier(reader(vectors), 300, 300)
    for tile in (7, 64, 128):
        for found, wanted in zip(most_similar_earlier(reader(vectors), 300, tile), whole, strict=True):
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


def barrier(width: int) -> VectorBarrier:
    return VectorBarrier(None, None, None, {}, width, "float32", (0.001, 0.1), None, "easy", 1, "", None)


def cluster_rows(vectors: np.ndarray) -> np.ndarray:
    rows = np.zeros((len(vectors), CLUSTER_HEAD), dtype=np.uint64)
    rows[:, 2] = np.arange(len(vectors)) + 1_000
    return np.column_stack([rows, to_words(vectors)])


def test_a_cluster_that_does_not_fit_is_compared_from_a_file():
    chance = np.random.default_rng(3)
    vectors = chance.normal(size=(400, 6)).astype(np.float32)
    vectors[100:] = vectors[chance.integers(0, 100, size=300)] + chance.normal(size=(300, 6)).astype(np.float32) / 20
    found = []
    for memory_bytes in (10**9, 2_000):
        with ClusterRows(barrier(6), memory_bytes) as cluster:
            for _ in range(2):  # the second cluster in the same place
                for start in range(0, 400, 37):
                    cluster.append(cluster_rows(vectors)[start : start + 37])
                assert (cluster.spilled_bytes > 0) == (memory_bytes < 10**6)
                found.append(_members(cluster._barrier, cluster, memory_bytes // 8))
                cluster.clear()
    assert len(found[0]) > 200
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_a_vector_that_repeats_costs_no_comparison():
    count = 200_000
    vectors = np.ones((count, 2), dtype=np.float32)
    vectors[-1] = (1, -1)
    with ClusterRows(barrier(2), 10**8) as cluster:
        cluster.append(cluster_rows(vectors))
        assert (cluster.rows, cluster.different) == (count, 2)
        members = _members(cluster._barrier, cluster, 10**7)
    assert len(members) == count - 1
    assert (members[:, 3] == 1_000).all()
    assert (members[:, 4] == count - 1).all()


def test_a_cluster_whose_rows_cannot_be_counted_in_memory_says_what_to_do():
    _require_room(1_000, 10**6, alone=False)
    with pytest.raises(MemoryError):
        _require_room(100_000, 10**6, alone=False)
    with pytest.raises(BudgetError, match="num_clusters="):
        _require_room(100_000, 10**6, alone=True)


def on_gpu(layout: Layout, device_bytes: int) -> Layout:
    return dataclasses.replace(layout, device_bytes=device_bytes)


def test_clusters_that_are_found_on_a_gpu_need_one_with_room():
    layout = choose_layout(4_000_000_000, cpus=2, held_bytes=0)
    asked = dataclasses.replace(barrier(384), fits_on_device=True)
    require_room("drop", asked, 100, on_gpu(layout, 2_000_000_000))
    with pytest.raises(BudgetError, match=r"k_means='cuml' computes on a GPU, and the workers here have none"):
        require_room("drop", asked, 100, layout)
    with pytest.raises(
        BudgetError, match=r"100 clusters of 384 numbers needs .* of a GPU, and 300 MB of each may be used"
    ):
        require_room("drop", asked, 100, on_gpu(layout, 300_000_000))
    assert fingerprint(asked) != fingerprint(barrier(384))

# SPDX-License-Identifier: Apache-2.0
"""Cosines in tiles and rows of clusters: the same whatever fits into memory."""

from __future__ import annotations

import dataclasses
import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.core.fingerprint import fingerprint
from curator_df.dedup.vectors import cluster_rows as row_module
from curator_df.dedup.vectors.cluster_rows import EPS_WORDS, ClusterRows, eps_word
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


EPS = (0.001, 0.1)


def pending(width: int, linkage: str = "transitive") -> VectorDrop:
    return VectorDrop(None, None, None, {}, width, "float32", EPS, None, "easy", 1, "", linkage)


def cluster_rows(vectors: np.ndarray) -> np.ndarray:
    rows = np.zeros((len(vectors), CLUSTER_HEAD), dtype=np.uint64)
    rows[:, 2] = np.arange(len(vectors)) + 1_000
    return np.column_stack([rows, to_words(vectors)])


def members(vectors: np.ndarray, memory_bytes: int, linkage: str) -> tuple[np.ndarray, int]:
    """Return the rows in groups, and the bytes that lay in files; of a cluster that another one followed in the same place."""
    asked = pending(vectors.shape[1], linkage)
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


def plain_groups(vectors: np.ndarray, eps: float, linkage: str) -> np.ndarray:
    """Return (group, match, cosine) of each row from all cosines in memory, row by row; a kept row has no cosine."""
    units, threshold = unit_rows(vectors), np.float32(1 - eps)
    cosines = (units @ units.T).astype(np.float32)
    groups = np.empty((len(units), 3))
    is_candidate = np.zeros(len(units), dtype=np.bool_)
    for row in range(len(units)):
        of_candidates = np.where(is_candidate, cosines[row], -np.inf)
        nearest = of_candidates.argmax()  # of equal ones the first
        if of_candidates[nearest] < threshold:
            groups[row] = (row, row, np.nan)
        else:
            groups[row] = (groups[nearest, 0], nearest, cosines[row, nearest])
        is_candidate[row] = linkage == "transitive" or np.isnan(groups[row, 2])
    return groups


def plain_members(vectors: np.ndarray, linkage: str) -> np.ndarray:
    """Return the rows in groups, as the clusters do."""
    columns, inside = [np.arange(len(vectors)) + 1_000], np.zeros(len(vectors), dtype=np.bool_)
    for eps in EPS:
        roots, matches, cosines = plain_groups(vectors, eps, linkage).T
        sizes = np.bincount(roots.astype(int), minlength=len(vectors))[roots.astype(int)]
        columns += [roots + 1_000, sizes, matches + 1_000, cosines.view(np.uint64)]
        inside |= sizes > 1
    return np.column_stack([column.astype(np.uint64) for column in columns])[inside]


@pytest.mark.parametrize("linkage", ["direct", "transitive"])
def test_a_cluster_of_any_size_is_compared_in_the_same_memory(linkage):
    chance = np.random.default_rng(3)
    vectors = chance.normal(size=(4_000, 6)).astype(np.float32)
    near = chance.normal(size=(3_000, 6)).astype(np.float32) / 20
    vectors[1_000:] = vectors[chance.integers(0, 1_000, size=3_000)] + near * (chance.random((3_000, 1)) < 0.8)
    wanted = plain_members(vectors, linkage)
    assert 3_000 < len(wanted) < 4_000
    for memory_bytes in (10**9, 500_000, 2_000):
        found, spilled = members(vectors, memory_bytes, linkage)
        np.testing.assert_array_equal(found, wanted)
        assert (spilled > 0) == (memory_bytes < 10**9)


def chain(count: int, step: float) -> np.ndarray:
    """Return vectors on an arc, each ``step`` radians from the next: similar to its neighbors, and not to those far away."""
    angles = np.arange(count) * step
    return np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


def test_a_chain_is_cut_where_no_kept_vector_is_similar():
    vectors = chain(300, 0.01)
    direct, transitive = (members(vectors, 10**6, linkage)[0] for linkage in ("direct", "transitive"))
    reach = int(np.arccos(0.9) / 0.01)  # a kept vector covers as many that follow it
    word = eps_word(1)
    assert np.unique(direct[:, word]).tolist() == list(range(1_000, 1_300, reach + 1))
    assert np.unique(transitive[:, word]).tolist() == [1_000]


@st.composite
def few_vectors(draw: st.DrawFn) -> np.ndarray:
    """Draw vectors of which many are similar: chains, copies, and clouds around some centers."""
    seed, count, width = draw(st.integers(0, 2**32 - 1)), draw(st.integers(1, 90)), draw(st.integers(2, 5))
    chance = np.random.default_rng(seed)
    made = chance.normal(size=(count, width))
    for row in range(1, count):
        step = draw(st.sampled_from([0.0, 0.03, 0.2, 2.0]))
        made[row] = made[chance.integers(max(row - 4, 0), row)] + step * chance.normal(size=width)
    made[(made == 0).all(axis=1)] = 1
    return made.astype(np.float32)


@given(few_vectors(), st.sampled_from([16, 90]), st.lists(st.integers(1, 89), max_size=3))
def test_each_dropped_vector_is_similar_to_one_that_is_kept(vectors, tile, cuts):
    units = unit_rows(vectors)
    cosines = (units @ units.T).astype(np.float32)
    with pytest.MonkeyPatch.context() as patched, ClusterRows(pending(vectors.shape[1], "direct"), 10**6) as cluster:
        patched.setattr(row_module, "tile_rows", lambda *_: tile)
        for start, stop in itertools.pairwise([0, *sorted(cut for cut in cuts if cut < len(vectors)), len(vectors)]):
            if stop > start:
                cluster.append(cluster_rows(vectors)[start:stop])
        found = np.concatenate(list(cluster.members(10**6)))
    for place, eps in enumerate(EPS):
        table = found[found[:, eps_word(place) + 1] > 1]
        rows, roots, matches = (
            table[:, word].astype(int) - 1_000 for word in (0, eps_word(place), eps_word(place) + 2)
        )
        going = rows[roots != rows]
        kept = np.setdiff1d(np.arange(len(vectors)), going)
        similar = np.triu(cosines >= np.float32(1 - eps), 1)
        assert (matches == roots).all()
        assert np.isin(roots, kept).all()
        assert similar[roots[roots != rows], going].all()  # the match is kept, similar, and earlier
        assert not similar[np.ix_(kept, kept)].any()  # no two kept rows are similar
        assert going.tolist() == np.flatnonzero(similar[kept].any(axis=0)).tolist()


def peak_bytes(rows: int, memory_bytes: int, linkage: str) -> int:
    """Return the most that was held for a cluster, of which nine rows in ten repeat the one before."""
    numbers = np.random.default_rng(1).normal(size=(rows // 10, 2)).astype(np.float32)
    tracemalloc.start()
    try:
        with ClusterRows(pending(2, linkage), memory_bytes) as cluster:
            for start in range(0, len(numbers), 100):
                cluster.append(cluster_rows(np.repeat(numbers[start : start + 100], 10, axis=0)))
            assert cluster.rows == rows
            assert sum(map(len, cluster.members(memory_bytes // 8))) > rows // 2
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("linkage", ["direct", "transitive"])
def test_what_is_held_does_not_grow_with_the_cluster(linkage):
    memory_bytes = 4_000_000
    small, large = (peak_bytes(rows, memory_bytes, linkage) for rows in (20_000, 100_000))
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


@pytest.mark.parametrize("linkage", ["direct", "transitive"])
def test_a_vector_that_repeats_costs_no_comparison(linkage):
    count = 200_000
    vectors = np.ones((count, 2), dtype=np.float32)
    vectors[-1] = (1, -1)
    with ClusterRows(pending(2, linkage), 10**8) as cluster:
        cluster.append(cluster_rows(vectors))
        assert (cluster.rows, cluster.different) == (count, 2)
        found = np.concatenate(list(cluster.members(10**7)))
    assert len(found) == count - 1
    for place in range(len(EPS)):
        assert (found[:, eps_word(place)] == 1_000).all()
        assert (found[:, eps_word(place) + 1] == count - 1).all()
        assert (found[:, eps_word(place) + 2] == 1_000).all()


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
        unchosen = np.zeros((len(addresses), EPS_WORDS), dtype=np.uint64)
        rows = np.column_stack([addresses, unchosen, addresses, addresses, addresses // 2, cosines.view(np.uint64)])
        with folder.create(f"members-{group}.slices") as file:
            writer = SliceWriter(file, rows.shape[1], np.zeros(1, dtype=np.uint64))
            writer.append(rows)
            writer.finish()
            files.append(file.commit(len(rows)))
    exchange = Exchange(folder, "first", 1, starts)
    counts = np.zeros(6, dtype=np.int64)
    asked = dataclasses.replace(pending(3), chosen=1)
    found = VectorFound(
        exchange, (), counts, counts.view(np.uint64), groups=groups, members=tuple(files), pending=asked
    )
    for number in range(6):
        rows = np.concatenate(list(found.matched_rows(number, memory_bytes=10**6)))
        rows = rows[(rows[:, 0] >= starts[number]) & (rows[:, 0] < starts[number] + 100)]
        first = number // 3 * 300
        wanted = np.arange(first, first + 300, 7)
        wanted = wanted[(wanted >= starts[number]) & (wanted < starts[number] + 100)]
        assert rows[:, 0].tolist() == wanted.tolist()
        assert rows[:, 1].tolist() == (wanted // 2).tolist()
        assert (np.diff(rows[:, 2].copy().view(np.float64)) > 0).all()

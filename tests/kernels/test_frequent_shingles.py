# SPDX-License-Identifier: Apache-2.0
"""Counts of documents by shingle, held against sets in memory, and similarities without ignored shingles."""

from __future__ import annotations

import collections

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.kernels.minhash.frequent_shingles import ShingleCells, ShingleCounts, listed_hashes, passing_cells
from curator_df.kernels.minhash.jaccard import hash_table, jaccard_similarities
from curator_df.kernels.minhash.residuals import residual_hashes
from curator_df.kernels.minhash.scheme import Scheme

SCHEMES = [
    Scheme("words", 2, 1, 1),
    Scheme("characters", 4, 1, 1),
    Scheme("characters", 4, 1, 1, normalize="case_and_spaces"),
]
TEXTS = st.lists(st.one_of(st.none(), st.text("ab é😀", max_size=30)), min_size=1, max_size=40)


def series(texts: list) -> pd.Series:
    return pd.Series(texts, dtype="string[pyarrow]")


def shingles(text: str | None, scheme: Scheme) -> set[int]:
    return set(listed_hashes(text or "", scheme).tolist())


def counted(texts: list, scheme: Scheme) -> collections.Counter:
    return collections.Counter(shingle for text in texts for shingle in shingles(text, scheme))


@pytest.mark.parametrize("scheme", SCHEMES, ids=["words", "characters", "normalized"])
@given(texts=TEXTS, limit=st.integers(0, 5), cut=st.integers(0, 40))
def test_shingles_of_many_documents_are_counted_exactly(scheme, texts, limit, cut):
    parts = [ShingleCells(scheme), ShingleCells(scheme)]
    parts[0].add(series(texts[:cut]))
    parts[1].add(series(texts[cut:]))
    assert parts[0].documents + parts[1].documents == len(texts)
    passing = passing_cells(parts[0].counts + parts[1].counts, limit)
    truth = counted(texts, scheme)
    for slots in (64, 1024):  # the smaller table is full after 48 shingles, and a text may have more
        found: collections.Counter = collections.Counter()
        counts = ShingleCounts(scheme, passing, slots)
        for rows in [*counts.add(series(texts[:cut])), *counts.add(series(texts[cut:])), counts.taken()]:
            for shingle, documents in rows.tolist():
                found[shingle] += documents
        assert all(truth[shingle] == documents for shingle, documents in found.items())
        wanted = {shingle for shingle, documents in truth.items() if documents > limit}
        assert wanted <= set(found)


def test_a_text_with_more_shingles_than_the_table_has_slots_is_counted_once():
    scheme = Scheme("characters", 4, 1, 1)
    long = "".join(map(chr, np.random.default_rng(0).integers(97, 123, 3_000)))
    texts = ["abcd", long, "abcd", long + "!", "xyz"]
    counts = ShingleCounts(scheme, passing_cells(np.ones(1 << 22), 0), slots=64)
    found: collections.Counter = collections.Counter()
    for rows in [*counts.add(series(texts)), counts.taken()]:
        found.update(dict(rows.tolist()))
    assert found == counted(texts, scheme)


@pytest.mark.parametrize("scheme", SCHEMES, ids=["words", "characters", "normalized"])
@given(texts=TEXTS, every=st.integers(1, 4))
def test_similarities_without_ignored_shingles(scheme, texts, every):
    ignored = set(sorted(counted(texts, scheme))[::every])
    table = hash_table(np.array(sorted(ignored), dtype=np.uint64))
    pairs = np.array([(one, other) for one in range(len(texts)) for other in range(len(texts))])
    column = series(texts)
    found = jaccard_similarities(column, column, pairs, scheme, table_bytes=1024, ignored=table)
    np.testing.assert_array_equal(found[:, 0], jaccard_similarities(column, column, pairs, scheme))
    for (one, other), (of_all, of_rest) in zip(pairs.tolist(), found.tolist(), strict=True):
        left, right = shingles(texts[one], scheme), shingles(texts[other], scheme)
        rest = (left | right) - ignored
        assert of_rest == pytest.approx(len((left & right) - ignored) / len(rest) if rest else of_all)
    hashes, numbers = residual_hashes(column, pairs, scheme, table_bytes=4096, ignored=table)
    assert not set(hashes.tolist()) & ignored
    plain, of_plain = residual_hashes(column, pairs, scheme, table_bytes=4096)
    assert set(zip(hashes.tolist(), numbers.tolist(), strict=True)) <= {
        (shingle, number) for shingle, number in zip(plain.tolist(), of_plain.tolist(), strict=True)
    } or len(plain) > len(hashes)

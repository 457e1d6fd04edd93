# SPDX-License-Identifier: Apache-2.0
"""Similarities are those of Python sets, in a table of any size, and those of the exact truth on real texts."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from curator_df.errors import ParameterError
from curator_df.kernels.minhash.jaccard import jaccard_similarities
from curator_df.kernels.minhash.scheme import Scheme
from tests.kernels.minhash_reference import character_shingles
from tests.kernels.test_content_hash import normalized
from tests.kernels.test_minhash import SCHEMES, TEXTS

CHARACTERS = Scheme("characters", 24, 1, 1)
WORDS = Scheme("words", 5, 1, 1, normalize="case_and_spaces")


def shingle_set(text, scheme):
    text = normalized(text) if scheme.normalize else text
    if scheme.ngrams == "characters":
        return set(character_shingles(text, scheme.ngram_size))
    words, size = text.split(), scheme.ngram_size
    return {tuple(words[at : at + size]) for at in range(max(len(words) - size + 1, 1))} - {()}


def jaccard(one, other):
    return len(one & other) / len(one | other) if one | other else 1.0


def all_pairs(count):
    return np.array([(one, other) for one in range(count) for other in range(count)], dtype=np.int64).reshape(-1, 2)


@given(TEXTS, SCHEMES, st.sampled_from([1 << 10, 1 << 12, 8 << 20]))
@example(["x y z " * 900, "x y " * 2000, "".join(map(str, range(3000))), "", " "], CHARACTERS, 1 << 10)
@example([" ".join(map(str, range(first, first + 2000))) for first in (0, 100, 5000)], WORDS, 1 << 10)
def test_any_pair_of_texts(texts, scheme, table_bytes):
    texts = [(text or "").encode("utf-8", "ignore").decode() for text in texts]
    sets = [shingle_set(text, scheme) for text in texts]
    pairs = all_pairs(len(texts))
    series = pd.Series(texts, dtype="string[pyarrow]")
    found = jaccard_similarities(series, series, pairs, scheme, table_bytes=table_bytes)
    assert found.tolist() == [jaccard(sets[one], sets[other]) for one, other in pairs.tolist()]


def test_two_columns_in_several_chunks_with_nulls():
    left = pd.concat([pd.Series(["abc", None], dtype="string[pyarrow]"), pd.Series(["abd"], dtype="string[pyarrow]")])
    right = pd.Series(["abc", ""], dtype=object)
    pairs = np.array([[0, 0], [1, 0], [1, 1], [2, 0]])
    assert jaccard_similarities(left, right, pairs, Scheme("characters", 2, 1, 1)).tolist() == [1, 0, 1, 1 / 3]
    assert jaccard_similarities(left, right, np.empty((0, 2)), CHARACTERS).tolist() == []


def test_rows_that_are_not_there_are_refused():
    texts = pd.Series(["a"])
    with pytest.raises(ParameterError, match="rows 0 to 1 of right, which has 1 rows"):
        jaccard_similarities(texts, texts, np.array([[0, 0], [0, 1]]), CHARACTERS)
    with pytest.raises(ParameterError, match="table_bytes=100 is less than the minimum of 1024"):
        jaccard_similarities(texts, texts, np.array([[0, 0]]), CHARACTERS, table_bytes=100)


@pytest.mark.parametrize(("name", "scheme"), [("char24", CHARACTERS), ("word5", WORDS)])
def test_the_exact_truth_on_real_texts(shared_data, name, scheme):
    texts = {}
    for file in ("news_4k", "docs_neardup"):
        with gzip.open(shared_data / f"{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
            texts |= {row["id"]: row["text"] for row in map(json.loads, lines)}
    truth = pd.read_parquet(shared_data / f"truth_{name}.parquet")
    places = {number: place for place, number in enumerate(texts)}
    pairs = truth[["id_a", "id_b"]].map(places.__getitem__).to_numpy(dtype=np.int64)
    series = pd.Series(list(texts.values()), dtype="string[pyarrow]")
    found = jaccard_similarities(series, series, pairs, scheme, table_bytes=1 << 18)
    errors = np.abs(found - truth["jaccard"].to_numpy())
    assert errors.max() < 1e-9, truth.assign(found=found)[errors > 1e-9]

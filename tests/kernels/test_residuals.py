# SPDX-License-Identifier: Apache-2.0
"""Hashes of shingles that one text has and another lacks are those of the difference of two sets, the smallest of them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.kernels.minhash.residuals import RESIDUALS, residual_hashes
from curator_df.kernels.minhash.scheme import Scheme

WORDS = st.lists(st.sampled_from(["one", "two", "three", "four", "five", "six"]), max_size=60).map(" ".join)
CHARACTERS = st.text("abc é", max_size=80)
SCHEMES = {
    "words": Scheme("words", 2, 1, 1),
    "characters": Scheme("characters", 3, 1, 1),
    "normalized": Scheme("characters", 3, 1, 1, normalize="case_and_spaces"),
}


def shingles(text: str, scheme: Scheme) -> set:
    text = " ".join(text.lower().split()) if scheme.normalize else text
    parts = text.split() if scheme.ngrams == "words" else text
    if not len(parts):
        return set()
    last = max(len(parts) - scheme.ngram_size + 1, 1)
    return {tuple(parts[at : at + scheme.ngram_size]) for at in range(last)}


def residuals(texts: list[str], pairs: list, scheme: Scheme, table_bytes: int = 1 << 16) -> list[list[int]]:
    series = pd.Series(texts, dtype="string[pyarrow]")
    hashes, numbers = residual_hashes(series, np.array(pairs).reshape(-1, 2), scheme, table_bytes=table_bytes)
    return [hashes[numbers == number].tolist() for number in range(len(pairs))]


@pytest.mark.parametrize("kind", SCHEMES)
@given(data=st.data())
def test_as_many_as_the_difference_has(kind, data):
    scheme = SCHEMES[kind]
    texts = data.draw(st.lists(WORDS if kind == "words" else CHARACTERS, min_size=2, max_size=2))
    found = residuals(texts, [(0, 1), (1, 0), (0, 0)], scheme)
    one, two = (shingles(text, scheme) for text in texts)
    assert [len(hashes) for hashes in found] == [min(len(one - two), RESIDUALS), min(len(two - one), RESIDUALS), 0]
    assert all(hashes == sorted(set(hashes)) for hashes in found)


def test_texts_that_share_shingles_of_their_own_share_hashes():
    template, own = " ".join(f"t{number}" for number in range(300)), " ".join(f"o{number}" for number in range(40))
    texts = [f"{template} {own}", f"{template} new {own}", f"{template} end", f"{template} another {own} end"]
    found = residuals(texts, [(0, 2), (1, 2), (3, 2)], SCHEMES["words"])
    assert all(len(hashes) == RESIDUALS for hashes in found)
    assert len(set(found[0]) & set(found[1])) >= RESIDUALS - 3
    assert len(set(found[0]) & set(found[2])) >= RESIDUALS - 4


def test_long_texts_give_the_smallest_hashes_in_little_memory():
    chance = np.random.default_rng(1)
    texts = [" ".join(chance.integers(0, 10**9, 5_000).astype(str)) for _ in range(2)]
    whole = residuals(texts, [(0, 1)], SCHEMES["words"], table_bytes=1 << 20)
    assert residuals(texts, [(0, 1)], SCHEMES["words"], table_bytes=1 << 14) == whole

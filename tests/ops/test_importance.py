# SPDX-License-Identifier: Apache-2.0
"""Importance weights are those of DSIR's formulas, written out in plain Python and NumPy, on any blocks."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import curator_df as cdf
from curator_df.errors import ColumnError, InputError, ParameterError
from curator_df.kernels.text.lower_case import SPACE_STEP, lower_steps
from tests.core.runner.fake_client import inline_cluster

MASK = (1 << 64) - 1
TARGET = [
    "A river runs through the old town.",
    "The river, the town: water_and stone!",
    "Ships came from the sea in 1984.",
]
RAW = [
    *("Buy now! Buy cheap pills now, 50% off...", "CLICK here; click HERE", None, "", "the river is cheap"),
    *TARGET[:1],
    *(f"offer {number} of the town" for number in range(20)),
]


def ngrams(text):
    r"""Return words (``\w+|[^\w\s]+`` of the text in lower case, as NLTK's WordPunctTokenizer) and pairs of words."""
    table = lower_steps()
    lowered = "".join(one if table[ord(one)] == SPACE_STEP else chr(ord(one) + table[ord(one)]) for one in text or "")
    words = re.findall(r"\w+|[^\w\s]+", lowered)
    return words, list(itertools.pairwise(words))


def mixed(value):
    value ^= value >> 30
    value = value * 0xBF58476D1CE4E5B9 & MASK
    value ^= value >> 27
    value = value * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


def hash_of(word):
    found = 0xCBF29CE484222325
    for one in word:
        found = (found ^ ord(one)) * 0x100000001B3 & MASK
    return mixed(found)


def buckets_of(text, num_buckets):
    words, pairs = ngrams(text)
    hashes = [hash_of(word) for word in words]
    hashes += [mixed((hash_of(first) * 0x9E3779B97F4A7C15 + hash_of(second)) & MASK) for first, second in pairs]
    return [one % num_buckets for one in hashes]


def counted(texts, num_buckets):
    return np.bincount([one for text in texts for one in buckets_of(text, num_buckets)], minlength=num_buckets)


def frame(texts):
    return pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")})


@pytest.mark.parametrize("num_buckets", [2, 64, 10_000])
def test_weights_follow_the_formula_of_dsir(num_buckets):
    found = cdf.describe_importance(frame(RAW), frame(TARGET), num_buckets=num_buckets)
    target, raw = counted(TARGET, num_buckets), counted(RAW, num_buckets)
    assert found["bucket"].tolist() == list(range(num_buckets))
    assert found["target_count"].tolist() == target.tolist()
    assert found["raw_count"].tolist() == raw.tolist()
    expected = np.log(target / target.sum() + 1e-8) - np.log(raw / raw.sum() + 1e-8)
    np.testing.assert_allclose(found["log_weight"], expected, rtol=1e-12)
    made = dd.from_pandas(frame(RAW), npartitions=3).pipe(cdf.add_importance, found).compute()["importance"]
    assert str(made.dtype) == "Float64"
    for text, importance in zip(RAW, made, strict=True):
        if text is None:
            assert pd.isna(importance)
        else:
            features = np.bincount(buckets_of(text, num_buckets), minlength=num_buckets)
            assert importance == pytest.approx(np.inner(features, expected), rel=1e-9, abs=1e-9)


def test_without_collisions_the_hash_does_not_matter():
    """The package data-selection hashes n-grams otherwise; with a bucket for each n-gram the importance is the same."""
    found = cdf.describe_importance(frame(RAW), frame(TARGET), num_buckets=1 << 20)
    shares = []
    for texts in (TARGET, RAW):
        counts = Counter(one for text in texts for part in ngrams(text) for one in part)
        shares.append({one: count / counts.total() for one, count in counts.items()})
    made = dd.from_pandas(frame(RAW), npartitions=1).pipe(cdf.add_importance, found).compute()["importance"]
    for text, importance in zip(RAW, made, strict=True):
        if text is not None:
            every = [one for part in ngrams(text) for one in part]
            expected = sum(np.log(shares[0].get(one, 0) + 1e-8) - np.log(shares[1].get(one, 0) + 1e-8) for one in every)
            assert importance == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert made.idxmax() == RAW.index(TARGET[0])


ODD = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.just("\u0130\u03a3 _a\u00a0b"), max_size=5
)


@given(ODD)
def test_any_text_is_split_and_hashed_as_the_reference_does(texts):
    found = cdf.describe_importance(frame([*texts, "a"]), frame(["a"]), num_buckets=97)
    assert found["raw_count"].tolist() == counted([*texts, "a"], 97).tolist()


def test_counts_and_weights_do_not_depend_on_blocks(tmp_path):
    texts = [f"{word} {number} of the river, {number % 7} towns" for number in range(300) for word in ("One", "two")]
    frame(texts).to_json(tmp_path / "raw.jsonl", orient="records", lines=True)
    expected = cdf.describe_importance(frame(texts), frame(TARGET), num_buckets=500)
    with inline_cluster():
        for blocksize in ("1MB", "4kB"):
            docs = cdf.read_jsonl(tmp_path / "raw.jsonl", blocksize=blocksize)
            found = cdf.describe_importance(docs, frame(TARGET), num_buckets=500, workdir=tmp_path / blocksize)
            pd.testing.assert_frame_equal(found, expected)
        stored = list(tmp_path.glob("4kB/describe_importance-*"))
        assert len(stored) == 1
        before = {path: path.stat().st_mtime_ns for path in stored[0].glob("part-*")}
        again = cdf.describe_importance(docs, frame(TARGET), num_buckets=500, workdir=tmp_path / "4kB")
        pd.testing.assert_frame_equal(again, expected)
        assert before == {path: path.stat().st_mtime_ns for path in stored[0].glob("part-*")}
        found.to_parquet(tmp_path / "weights.parquet")
        scored = docs.pipe(cdf.add_importance, tmp_path / "weights.parquet")
        cdf.write_parquet(scored, tmp_path / "out")
    written = cdf.read_parquet(tmp_path / "out").compute()["importance"]
    whole = dd.from_pandas(frame(texts), npartitions=1).pipe(cdf.add_importance, expected).compute()["importance"]
    assert written.tolist() == whole.tolist()


def test_what_is_not_a_table_of_weights_is_refused(tmp_path):
    docs = dd.from_pandas(frame(RAW), npartitions=1)
    found = cdf.describe_importance(frame(RAW), frame(TARGET), num_buckets=8)
    for wrong, message in (
        (found.drop(columns="log_weight"), "the table has no column 'log_weight'"),
        (found[:1], "the table has 1 rows"),
        (found[::-1], "the table must have one row for each bucket, in order"),
        (found.assign(log_weight=np.inf), "with a finite weight"),
    ):
        with pytest.raises(InputError, match=message):
            cdf.add_importance(docs, wrong)
    (tmp_path / "a.parquet").write_bytes(b"no")
    with pytest.raises(InputError, match=r"a\.parquet' is not a Parquet file"):
        cdf.add_importance(docs, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"missing\.parquet"):
        cdf.add_importance(docs, tmp_path / "missing.parquet")
    with pytest.raises(ColumnError, match="importance"):
        cdf.add_importance(docs.assign(importance=1), found)


def test_tables_without_words_are_refused():
    with pytest.raises(ParameterError, match="target= has no words in the column 'text'"):
        cdf.describe_importance(frame(RAW), frame(["", " \n", None]))
    with pytest.raises(ParameterError, match="num_buckets=1 must be from 2 to 1,048,576"):
        cdf.describe_importance(frame(RAW), frame(TARGET), num_buckets=1)

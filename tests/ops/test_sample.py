# SPDX-License-Identifier: Apache-2.0
"""`sample_rows`."""

import zlib

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.errors import ColumnError, ParameterError, SchemaError
from curator_df.kernels.row_sample import sampled
from curator_df.ops.sample import sample_rows

ROWS = pd.DataFrame({"text": pd.array([f"text {number % 500}" for number in range(1000)], "string[pyarrow]")})
DOCS = dd.from_pandas(ROWS, npartitions=3)


def kept(docs, **arguments):
    return docs.pipe(sample_rows, **arguments).compute()


def splitmix64(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) % 2**64
    return value ^ value >> 31


def test_two_samples_are_no_split_and_a_condition_on_each_row_is():
    docs = DOCS.assign(id=DOCS["text"])
    small, large = (set(kept(docs, fraction=part).index) for part in (0.1, 0.9))
    assert small <= large
    other = set(kept(docs, fraction=0.9, seed=1).index)
    assert small & other
    tenth, rest = (docs.map_partitions(rows_in_the_tenth, is_in, meta=docs._meta).compute() for is_in in (True, False))
    assert not set(tenth.index) & set(rest.index)
    assert len(tenth) + len(rest) == len(ROWS)
    assert 0 < len(tenth) < len(rest)


def rows_in_the_tenth(block, is_in):
    return block[[(zlib.crc32(name.encode()) % 10 == 0) == is_in for name in block["id"]]]


@given(st.lists(st.integers(0, 2**64 - 1)), st.floats(0, 1), st.integers(-(2**63), 2**63 - 1))
def test_the_hash_is_splitmix64(identities, fraction, seed):
    start = splitmix64(seed % 2**64)
    wanted = [fraction == 1 or splitmix64(identity ^ start) < int(fraction * 2**64) for identity in identities]
    assert sampled(np.array(identities, dtype=np.uint64), fraction, seed).tolist() == wanted


@given(st.floats(0.001, 1), st.floats(0.001, 1), st.integers(0, 9))
def test_a_larger_sample_has_the_smaller_one(one, other, seed):
    rows = np.arange(300, dtype=np.uint64)
    smaller, larger = (sampled(rows.copy(), fraction, seed) for fraction in sorted((one, other)))
    assert not (smaller & ~larger).any()


@pytest.mark.parametrize("by", ["address", "content"])
def test_samples_are_of_the_size_asked_for_and_in_order(by):
    table = kept(DOCS, fraction=0.25, by=by)
    assert 200 <= len(table) <= 300
    pd.testing.assert_frame_equal(table, ROWS.loc[table.index])
    assert table.index.is_monotonic_increasing


def test_seeds_are_independent():
    first, second = (set(kept(DOCS, fraction=0.5, seed=seed).index) for seed in (0, 1))
    assert 200 <= len(first & second) <= 300


def test_what_was_dropped_before_changes_nothing():
    half = dd.from_pandas(ROWS[::2], npartitions=2)
    assert set(kept(half, fraction=0.3).index) == {row for row in kept(DOCS, fraction=0.3).index if row % 2 == 0}


def test_equal_texts_stay_or_go_together_in_any_order():
    table = kept(DOCS, fraction=0.3, by="content")
    assert set(table["text"].value_counts()) == {2}
    turned = dd.from_pandas(ROWS[::-1].reset_index(drop=True), npartitions=2, sort=False)
    assert set(kept(turned, fraction=0.3, by="content")["text"]) == set(table["text"])


def test_all_rows_are_the_block_itself():
    kernel = DOCS.pipe(sample_rows, fraction=1).expr.operand("func")
    assert kernel.run(ROWS).block is ROWS


@pytest.mark.parametrize("fraction", [0, -0.1, 1.5, float("nan")])
def test_fractions_are_checked(fraction):
    with pytest.raises(ParameterError, match="is not more than 0 and at most 1"):
        sample_rows(DOCS, fraction=fraction)


def test_arguments_are_checked_at_the_door():
    with pytest.raises(ParameterError, match="seed='a' is not an integer of 64 bits"):
        sample_rows(DOCS, fraction=0.5, seed="a")
    with pytest.raises(ParameterError, match="by='hash' is not one of 'address', 'content'"):
        sample_rows(DOCS, fraction=0.5, by="hash")
    with pytest.raises(ColumnError, match="sample_rows needs the column 'body'"):
        sample_rows(DOCS, fraction=0.5, by="content", text="body")
    with pytest.raises(SchemaError, match="needs an index of integers"):
        sample_rows(DOCS.set_index("text"), fraction=0.5)

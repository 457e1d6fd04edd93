# SPDX-License-Identifier: Apache-2.0
"""`sample_rows` and `split_rows`."""

import math

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.errors import ColumnError, ParameterError, SchemaError
from curator_df.kernels.rows.row_sample import sampled
from curator_df.ops.rows.sample import sample_rows, split_rows

ROWS = pd.DataFrame({"text": pd.array([f"text {number % 500}" for number in range(1000)], "string[pyarrow]")})
DOCS = dd.from_pandas(ROWS, npartitions=3)


def kept(docs, **arguments):
    return docs.pipe(sample_rows, **arguments).compute()


def splitmix64(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) % 2**64
    return value ^ value >> 31


def test_two_samples_are_no_split():
    small, large = (set(kept(DOCS, fraction=part).index) for part in (0.1, 0.9))
    assert small <= large
    assert small & set(kept(DOCS, fraction=0.9, seed=1).index)


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
    with pytest.raises(ParameterError, match="must be more than 0 and at most 1"):
        sample_rows(DOCS, fraction)


def test_arguments_are_checked_at_the_door():
    with pytest.raises(ParameterError, match="seed='a' is not a 64-bit integer"):
        sample_rows(DOCS, 0.5, seed="a")
    with pytest.raises(ParameterError, match="by='hash' is not one of 'address', 'content'"):
        sample_rows(DOCS, 0.5, by="hash")
    with pytest.raises(ColumnError, match="sample_rows needs the column 'body'"):
        sample_rows(DOCS, 0.5, by="content", subset="body")
    with pytest.raises(SchemaError, match="needs the index of whole numbers"):
        sample_rows(DOCS.set_index("text"), fraction=0.5)


def parts_of(docs, *arguments, **options):
    return {name: part.compute() for name, part in split_rows(docs, *arguments, **options).items()}


@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=6),
    st.sampled_from(["content", "address"]),
    st.integers(-(2**63), 2**63 - 1),
)
def test_every_row_is_in_exactly_one_part(weights, by, seed):
    shares = {str(number): weight / math.fsum(weights) for number, weight in enumerate(weights)}
    kernels = [part.expr.operand("func") for part in split_rows(DOCS, shares, by=by, seed=seed).values()]
    kept_rows = [kernel.run(ROWS).block.index for kernel in kernels]
    assert sorted(row for rows in kept_rows for row in rows) == list(ROWS.index)


def test_parts_have_their_shares_and_are_in_order():
    parts = parts_of(DOCS, {"train": 0.7, "validation": 0.1, "test": 0.1}, by="address")
    assert list(parts) == ["train", "validation", "test"]
    assert 650 <= len(parts["train"]) <= 750
    assert 70 <= len(parts["validation"]) <= 130
    assert 70 <= len(parts["test"]) <= 130
    for part in parts.values():
        pd.testing.assert_frame_equal(part, ROWS.loc[part.index])
        assert part.index.is_monotonic_increasing


def test_equal_texts_are_in_one_part_in_any_order():
    parts = parts_of(DOCS, {"train": 0.6, "test": 0.4})
    texts = {name: set(part["text"]) for name, part in parts.items()}
    assert not texts["train"] & texts["test"]
    assert len(texts["train"]) + len(texts["test"]) == 500
    turned = dd.from_pandas(ROWS[::-1].reset_index(drop=True), npartitions=2, sort=False)
    assert {name: set(part["text"]) for name, part in parts_of(turned, {"train": 0.6, "test": 0.4}).items()} == texts


def test_a_group_is_in_one_part_and_rows_without_one_go_by_their_texts():
    table = ROWS.assign(domain=pd.array([None if row % 3 == 0 else row % 40 for row in range(len(ROWS))], "Int64"))
    parts = parts_of(dd.from_pandas(table, npartitions=4), {"a": 0.5, "b": 0.5}, group_column="domain")
    domains = {name: set(part["domain"].dropna()) for name, part in parts.items()}
    assert not domains["a"] & domains["b"]
    assert len(domains["a"]) + len(domains["b"]) == 40
    alone = {name: set(part["text"][part["domain"].isna()]) for name, part in parts.items()}
    by_text = {name: set(part["text"]) for name, part in parts_of(DOCS, {"a": 0.5, "b": 0.5}).items()}
    assert alone["a"] <= by_text["a"]
    assert alone["b"] <= by_text["b"]


def test_the_first_part_is_the_sample_of_its_share():
    first = parts_of(DOCS, {"a": 0.3, "b": 0.7}, seed=5)["a"]
    pd.testing.assert_frame_equal(first, kept(DOCS, fraction=0.3, seed=5, by="content"))


def test_rejects_say_which_part_and_why():
    kernel = split_rows(DOCS, {"a": 0.3, "b": 0.5}, by="address")["b"].expr.operand("func")
    outcome = kernel.run(ROWS)
    rows, why = outcome.rejects()
    assert outcome.dropped == {"other_part": len(rows)}
    assert set(why["rule"]) == {"part=b, seed=0"}
    values, thresholds = np.array(why["value"]), np.array(why["threshold"])
    assert ((values < 0.3) == (thresholds == 0.3)).all()
    assert ((values >= 0.8) == (thresholds == 0.8)).all()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "must be a mapping of names to shares"),
        ([0.9, 0.1], "must be a mapping of names to shares"),
        ({"a": 0.9, "b": 0.2}, r"add up to 1\.1, which is more than 1"),
        ({"a": 0}, "parts.'a'.=0 must be a share of the rows, more than 0 and at most 1"),
        ({"a": float("nan")}, r"parts\['a'\]=nan must be"),
        ({"a": "half"}, "must be a number, not str"),
    ],
)
def test_shares_are_checked(parts, message):
    with pytest.raises(ParameterError, match=message):
        split_rows(DOCS, parts)


def test_split_rows_names_a_missing_column():
    with pytest.raises(ColumnError, match="split_rows needs the column 'domain'"):
        split_rows(DOCS, {"a": 1.0}, group_column="domain")

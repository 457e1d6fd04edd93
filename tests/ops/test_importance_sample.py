# SPDX-License-Identifier: Apache-2.0
"""Samples by importance are the largest sums of weights and Gumbel's random numbers, whatever the blocks, workers and files."""

from __future__ import annotations

from unittest import mock

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import curator_df as cdf
from curator_df.core.runner import run as run_module
from curator_df.errors import ColumnError, ExpressionError, ParameterError, RowCountError, SchemaError
from curator_df.kernels.rows.row_sample import random_numbers
from curator_df.ops.rows import importance_sample
from curator_df.ops.rows.importance_sample import largest, sortable
from tests.core.runner.fake_client import inline_cluster


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster() as running:
        yield running


@pytest.fixture(autouse=True)
def several_ranges(monkeypatch):
    monkeypatch.setattr(run_module, "SMALL_RANGE_BYTES", 1_000)


def write_weights(folder, weights):
    folder.mkdir()
    rows = pd.DataFrame({"id": range(len(weights)), "importance": pd.array(weights, "Float64")})
    for number, places in enumerate(np.array_split(np.arange(len(rows)), 4)):
        rows.iloc[places].to_parquet(folder / f"{number}.parquet", index=False, row_group_size=50)
    return folder


def sampled(docs, target, rows=None, **options):
    receipt = cdf.write_parquet(docs.pipe(cdf.sample_by_importance, rows=rows, **options), target)
    parts = [pd.read_parquet(path) for path in sorted(target.glob("*.parquet"))]
    return pd.concat(parts)["id"].tolist(), receipt


def test_the_largest_weights_are_kept_in_order(tmp_path):
    weights = [(n * 37 % 101) / 7 - 5 for n in range(400)]
    weights[5] = weights[250] = None
    docs = cdf.read_parquet(write_weights(tmp_path / "in", weights))
    found, receipt = sampled(docs, tmp_path / "out", 30, noise=False)
    order = sorted((n for n in range(400) if weights[n] is not None), key=lambda n: (-weights[n], n))
    assert found == sorted(order[:30])  # of equal weights the first
    assert receipt.reasons().set_index("reason")["rows"].to_dict() == {"not_sampled": 368, "no_importance": 2}
    assert sampled(docs, tmp_path / "all", 1_000, noise=False)[0] == sorted(order)
    assert len(sampled(docs, tmp_path / "half", fraction=0.5)[0]) == 199


def gumbel(index, seed):
    identities = np.asarray(index).astype(np.int64).view(np.uint64)
    return -np.log(-np.log(random_numbers(identities.copy(), seed, "sample_by_importance")))


@pytest.mark.parametrize("seed", [0, 7])
def test_a_sample_is_gumbel_top_k(tmp_path, seed):
    weights = np.random.default_rng(3).normal(0, 2, 600)
    docs = cdf.read_parquet(write_weights(tmp_path / "in", weights))
    sums = weights + gumbel(docs.compute().index, seed)
    expected = np.sort(np.argsort(-sums)[:100]).tolist()
    assert sampled(docs, tmp_path / "out", 100, seed=seed)[0] == expected
    small = cdf.read_parquet(tmp_path / "in", blocksize="2kB")
    assert sampled(small, tmp_path / "small", 100, seed=seed)[0] == expected
    assert set(sampled(docs, tmp_path / "nested", 40, seed=seed)[0]) < set(expected)
    assert docs.pipe(cdf.sample_by_importance, rows=100, seed=seed).compute()["id"].tolist() == expected


def test_rows_are_drawn_in_proportion_to_their_weight(tmp_path):
    """One row of two is drawn with the odds of its weight: e against 1."""
    weights = np.zeros(4_000)
    weights[::2] = 1
    docs = cdf.read_parquet(write_weights(tmp_path / "in", weights))
    found, _ = sampled(docs, tmp_path / "out", 400)
    # Without replacement of a tenth: the share of the heavy rows is a little less than e / (e + 1) = 0.731.
    assert np.mean([n % 2 == 0 for n in found]) == pytest.approx(0.72, abs=0.06)


def test_a_resumed_sample_uses_the_weights_of_the_first_pass(tmp_path, monkeypatch):
    docs = cdf.read_parquet(write_weights(tmp_path / "in", np.random.default_rng(5).normal(size=500)))
    expected, _ = sampled(docs, tmp_path / "whole", 60)
    with monkeypatch.context() as broken:
        broken.setattr(importance_sample, "largest", mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sampled(docs, tmp_path / "out", 60)
    monkeypatch.setattr(
        importance_sample, "NewFile", mock.Mock(side_effect=AssertionError("the weights are written again"))
    )
    cdf.write_parquet(docs.pipe(cdf.sample_by_importance, rows=60), tmp_path / "out", on_existing="resume")
    parts = [pd.read_parquet(path) for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert pd.concat(parts)["id"].tolist() == expected


def test_weights_that_change_between_the_passes_are_an_error(tmp_path):
    docs = cdf.read_parquet(write_weights(tmp_path / "in", np.arange(200.0)))
    seen = tmp_path / "seen"

    def changing(block):
        with seen.open("a") as file:
            file.write("x")
        return block.assign(importance=block["importance"] + seen.stat().st_size)

    moved = docs.map_partitions(changing, meta=docs._meta)
    with pytest.raises(RowCountError, match="gave different results when the input was read twice"):
        cdf.write_parquet(moved.pipe(cdf.sample_by_importance, rows=20), tmp_path / "out")


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=40), st.integers(0, 50), st.integers(1, 9))
def test_the_limit_is_that_of_a_sorted_list(values, wanted, size):
    keys = sortable(np.array(values, dtype=np.float64))
    known = [value for value in values if value == value]
    wanted = min(wanted, len(known))
    limit, ties = largest(lambda: (keys[at : at + size] for at in range(0, len(keys), size)), wanted)
    assert int((keys > np.uint64(limit)).sum()) + ties == wanted
    if wanted:
        nth = sorted(known)[-wanted]
        assert limit == int(sortable(np.array([nth]))[0])
    ordered = sortable(np.sort(np.array(known, dtype=np.float64)))
    assert (ordered == np.sort(ordered)).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ParameterError, "give either rows= or fraction="),
        ({"rows": 3, "fraction": 0.5}, ParameterError, "give either rows= or fraction="),
        ({"rows": 0}, ParameterError, "rows=0 must be at least 1"),
        ({"fraction": 1.5}, ParameterError, r"fraction=1\.5 must be more than 0 and at most 1"),
        ({"rows": 1, "importance": "text"}, SchemaError, "needs numbers, but the column holds"),
        ({"rows": 1, "importance": "score"}, ColumnError, "score"),
        ({"rows": 1, "seed": 1 << 63}, ParameterError, "is not a 64-bit integer"),
        ({"rows": 1, "noise": "yes"}, ParameterError, "noise='yes' must be True or False"),
    ],
)
def test_arguments_that_make_no_sense(options, error, message):
    docs = dd.from_pandas(pd.DataFrame({"text": ["a"], "importance": [1.0]}), npartitions=1)
    with pytest.raises(error, match=message):
        cdf.sample_by_importance(docs, **options)
    with pytest.raises(ExpressionError, match="split_documents"):
        cdf.sample_by_importance(docs.pipe(cdf.split_documents, separator=" "), rows=1)

# SPDX-License-Identifier: Apache-2.0
"""Operators that draw a number for each row draw independent ones, although they have the same default seed."""

import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from tests.core.runner.fake_client import inline_cluster

ROWS = 20_000


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with inline_cluster(memory="2GB", cpus=2) as running:
        yield running


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """Rows of two tiers and of two weights, in turns."""
    numbers = np.arange(ROWS)
    table = pd.DataFrame(
        {"id": numbers, "tier": np.where(numbers % 2, "low", "high"), "weight": (numbers // 2 % 2) * 1.0}
    )
    path = tmp_path_factory.mktemp("in") / "rows.parquet"
    table.to_parquet(path)
    return cdf.read_parquet(path)


def test_a_sample_is_repeated_as_often_as_any_rows(docs, tmp_path):
    chosen = docs.pipe(cdf.sample_rows, 0.1).pipe(cdf.repeat_rows, by="tier", times={"low": 0.2, "high": 0})
    receipt = cdf.write_parquet(chosen, tmp_path / "out")
    assert receipt.rows_written == pytest.approx(0.1 * 0.2 * ROWS / 2, rel=0.3)


def test_a_sample_by_importance_is_repeated_as_often_as_any_rows(docs, tmp_path):
    chosen = docs.pipe(cdf.sample_by_importance, importance="weight", fraction=0.5)
    receipt = cdf.write_parquet(
        chosen.pipe(cdf.repeat_rows, by="tier", times={"low": 0.2, "high": 0}), tmp_path / "out"
    )
    assert receipt.rows_written == pytest.approx(0.5 * 0.2 * ROWS / 2, rel=0.2)


def test_a_sample_has_the_importance_of_all_rows(docs, tmp_path):
    share = {}
    for name, rows in (("all", docs), ("sample", docs.pipe(cdf.sample_rows, 0.2))):
        cdf.write_parquet(rows.pipe(cdf.sample_by_importance, importance="weight", fraction=0.1), tmp_path / name)
        share[name] = pd.read_parquet(tmp_path / name).weight.mean()
    assert 0.6 < share["all"] < 0.85
    assert share["sample"] == pytest.approx(share["all"], abs=0.08)

# SPDX-License-Identifier: Apache-2.0
"""Percentiles of nullable columns: Dask's statistics of them are those of pandas."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from curator_df import read_parquet  # noqa: F401 - whatever makes a table makes them computable

VALUES = {
    "Int64": pd.array([3, None, 1, 2, 5, None, 4, 9007199254740993], dtype="Int64"),
    "UInt64": pd.array([3, 1, 2, 5, None, 4, 7, 2**63], dtype="UInt64"),
    "Float64": pd.array([0.5, None, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5], dtype="Float64"),
    "int64": np.arange(8),
    "float64": np.array([0.5, np.nan, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5]),
}


@pytest.mark.parametrize("kind", VALUES)
def test_extremes_of_a_column_are_exact(kind):
    values = pd.Series(VALUES[kind], name="n")
    found = dd.from_pandas(values.to_frame(), npartitions=3)["n"].quantile([0.0, 1.0]).compute(scheduler="synchronous")
    assert found.tolist() == [float(values.min()), float(values.max())]


@pytest.mark.parametrize("kind", VALUES)
def test_describe_counts_values_without_nulls(kind):
    values = pd.Series(VALUES[kind], name="n")
    found = dd.from_pandas(values.to_frame(), npartitions=1)["n"].describe().compute(scheduler="synchronous")
    expected = values.astype("float64").describe()
    assert found["count"] == expected["count"]
    assert found[["min", "50%", "max"]].astype("float64").tolist() == pytest.approx(
        expected[["min", "50%", "max"]].tolist()
    )


def test_a_column_of_nulls_has_no_median():
    values = pd.DataFrame({"n": pd.array([None, None], dtype="Int64")})
    assert pd.isna(dd.from_pandas(values, npartitions=1)["n"].quantile(0.5).compute(scheduler="synchronous"))

# SPDX-License-Identifier: Apache-2.0
"""Corrections of Dask's optimizer: its values are those of pandas. No cluster."""

from __future__ import annotations

import dask.dataframe as dd
import pandas as pd
import pytest

from curator_df import read_parquet  # noqa: F401 - whatever makes a table corrects Dask's optimizer

TABLE = pd.DataFrame(
    {
        "n": pd.array(range(20), dtype="Int64"),
        "f": pd.array([None if n % 7 == 0 else n / 4 for n in range(20)], dtype="Float64"),
        "group": ["g1", "g2"] * 10,
        "text": ["a word"] * 20,
    }
)
STEPS = {
    "fillna by column": lambda table: table.fillna({"f": 0})["f"],
    "fillna by a pandas column": lambda table: table.fillna(pd.Series({"f": 0}))["f"],
    "replace by column": lambda table: table.replace({"group": {"g1": "one"}})["group"],
    "replace of a column": lambda table: table.replace({"n": 1}, 99)["n"],
    "round by column": lambda table: table[["n", "f"]].round({"f": 1})["f"],
    "isin by column": lambda table: table.isin({"n": [1, 2]})["n"],
    "where of a table": lambda table: table[["n", "f"]].where(table[["n", "f"]] > 3)["n"],
    "mask of a table": lambda table: table[["n", "f"]].mask(table[["n", "f"]] > 3, 0)["n"],
    "nlargest, another column": lambda table: table.nlargest(2, "n")["group"],
    "nlargest, other columns": lambda table: table.nlargest(2, ["n", "f"])[["group"]],
    "nsmallest, its column": lambda table: table.nsmallest(2, "n")["n"],
    "correlations of one column": lambda table: table[["n", "f"]].corr()["f"],
    "covariances of one column": lambda table: table[["n", "f"]].cov()[["n"]],
    "groupby of two columns": lambda table: table.groupby("group")[["n", "f"]].sum()["f"],
    "groupby of two columns, agg": lambda table: table.groupby("group")[["n", "f"]].mean()[["n"]],
    "groupby, covariances of one column": lambda table: (
        table[["group", "n", "f"]].fillna({"f": 9}).groupby("group").cov()["f"]
    ),
    "groupby, correlations of one column": lambda table: (
        table[["group", "n", "f"]].fillna({"f": 9}).groupby("group").corr()[["f"]]
    ),
    "deviations of a table": lambda table: table[["n", "f"]].std(),
    "variances of a table": lambda table: table[["n", "f"]].var(),
    "errors of a table": lambda table: table[["n", "f"]].sem(),
}


@pytest.mark.filterwarnings("ignore:invalid value encountered in scalar divide:RuntimeWarning")  # in Dask's groupby
@pytest.mark.parametrize("step", STEPS)
def test_values_are_those_of_pandas(step):
    found = STEPS[step](dd.from_pandas(TABLE, npartitions=4)).compute(scheduler="synchronous")
    expected = STEPS[step](TABLE)
    compare = pd.testing.assert_series_equal if isinstance(expected, pd.Series) else pd.testing.assert_frame_equal
    compare(found.sort_index(), expected.sort_index(), check_dtype=False, check_index_type=False)


@pytest.mark.parametrize(
    ("step", "columns"),
    [
        ("fillna by column", ["f"]),
        ("nlargest, another column", ["n", "group"]),
        ("groupby of two columns", ["f", "group"]),
        ("groupby of two columns, agg", ["n", "group"]),
    ],
)
def test_only_the_columns_that_are_needed_are_read(step, columns):
    optimized = STEPS[step](dd.from_pandas(TABLE, npartitions=4)).optimize(fuse=False).expr
    assert list(next(node for node in optimized.walk() if type(node).__name__ == "FromPandas").columns) == columns


@pytest.mark.filterwarnings("ignore:invalid value encountered in scalar divide:RuntimeWarning")  # of Dask's empty table
@pytest.mark.parametrize("method", ["cov", "corr"])
@pytest.mark.parametrize("key", ["group", "k"])
def test_a_covariance_of_groups_in_many_partitions_is_that_of_pandas(method, key):
    rows = pd.DataFrame({"k": range(60), "n": range(60), "f": [number**1.5 for number in range(60)]})
    rows["k"] %= 4
    table = rows.assign(group=pd.array([f"g{number}" for number in rows["k"]], dtype="string"))[[key, "n", "f"]]
    found = getattr(dd.from_pandas(table, npartitions=20).groupby(key), method)().compute(scheduler="synchronous")
    expected = getattr(table.groupby(key), method)()
    pd.testing.assert_frame_equal(found.sort_index(), expected.sort_index(), check_index_type=False)


@pytest.mark.parametrize("look", ["head", "tail"])
def test_the_first_rows_of_each_group_in_many_partitions_are_those_of_pandas(look):
    rows = pd.DataFrame({"k": [number % 7 for number in range(60)], "n": range(60)})
    found = getattr(dd.from_pandas(rows, npartitions=20).groupby("k")["n"], look)(2).compute(scheduler="synchronous")
    expected = getattr(rows.groupby("k")["n"], look)(2)
    pd.testing.assert_series_equal(found.sort_index(), expected.sort_index(), check_dtype=False, check_names=False)


def groups_of_numbers():
    """Return a table in 20 partitions, of whose groups Dask makes two partitions."""
    rows = pd.DataFrame({"k": [number % 7 for number in range(60)], "n": range(60)})
    return rows.groupby("k")["n"], dd.from_pandas(rows, npartitions=20).groupby("k")["n"]


@pytest.mark.parametrize("look", ["head", "tail"])
@pytest.mark.parametrize("count", [2, 5, 100, -2])
def test_a_look_at_groups_in_several_partitions_has_rows_of_all(look, count):
    expected, groups = groups_of_numbers()
    for found in (
        getattr(groups.sum(), look)(count, compute=False),
        getattr(groups.sum().reset_index(), look)(count, compute=False).set_index("k")["n"],
    ):
        table = found.compute(scheduler="synchronous")
        assert len(table) == len(getattr(expected.sum(), look)(count))
        assert (table == expected.sum()[table.index]).all()
    index = getattr(groups.sum().index, look)(2, compute=False).compute(scheduler="synchronous")
    assert len(set(index) & set(range(7))) == 2

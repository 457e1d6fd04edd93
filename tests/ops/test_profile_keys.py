# SPDX-License-Identifier: Apache-2.0
"""Keys of a mapping of profiles."""

import datetime as dt

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import curator_df as cdf
from curator_df import Profile, Rule, UserMetric
from curator_df.errors import ParameterError
from tests.contracts.operator_cases import fingerprints_of

SHORT = Profile("short", "1", "ours", (Rule("word_count", ">=", 2, "too_short"),))
LONG = Profile("long", "1", "ours", (Rule("word_count", "<=", 2, "too_long"),))


def table(values, dtype):
    made = pd.DataFrame({"text": ["one", "one two three"], "key": pd.array(values, dtype=dtype)})
    return dd.from_pandas(made.astype({"text": "string[pyarrow]"}), npartitions=1)


def reasons(df, profiles):
    found = cdf.add_profile(df, profiles, by="key").compute(scheduler="synchronous")["reason"]
    return [None if pd.isna(reason) else reason for reason in found]


def test_the_order_and_the_type_of_keys_are_no_part_of_the_step():
    df = table([1, 2], "int64")
    orders = ({1: SHORT, 2: LONG}, {2: LONG, 1: SHORT}, {np.int64(1): SHORT, 2.0: LONG})
    assert len({str(fingerprints_of(cdf.keep_profile(df, profiles, by="key"))) for profiles in orders}) == 1


@pytest.mark.parametrize(
    ("values", "dtype", "key"),
    [
        ([1, 2], "int64", np.int32(1)),
        ([1, 2], "Int64", 1.0),
        ([1.0, 2.0], "float64", 1),
        ([0.1, 2.0], "float32", 0.1),
        ([0.1, 2.0], "Float32", np.float32(0.1)),
        ([True, False], "bool", np.bool_(True)),
        (["a", "b"], "category", np.str_("a")),
        ([1, 2], "category", 1),
        (["a", "b"], pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string())), "a"),
        ([pd.Timestamp("2026-01-31"), pd.Timestamp("2026-02-01")], "datetime64[ns]", dt.datetime(2026, 1, 31)),
        ([pd.Timestamp("2026-01-31"), pd.Timestamp("2026-02-01")], "datetime64[ns]", np.datetime64("2026-01-31")),
        (
            [pd.Timestamp("2026-01-31"), pd.Timestamp("2026-02-01")],
            pd.ArrowDtype(pa.timestamp("us")),
            dt.datetime(2026, 1, 31),
        ),
        ([dt.date(2026, 1, 31), dt.date(2026, 2, 1)], pd.ArrowDtype(pa.date32()), dt.date(2026, 1, 31)),
    ],
)
def test_a_key_of_the_type_of_the_values_matches(values, dtype, key):
    assert reasons(table(values, dtype), {key: SHORT}) == ["too_short", "no_profile"]


@pytest.mark.parametrize("key", [None, float("nan"), pd.NA, pd.NaT])
def test_a_null_key_is_for_other_values(key):
    assert reasons(table([1, None], "Int64"), {1: SHORT, key: LONG}) == ["too_short", "too_long"]


@pytest.mark.parametrize(
    ("values", "dtype", "key", "said"),
    [
        ([1, 2], "int64", "1", "such as 1, or name another column with by="),
        ([1, 2], "int64", 1.5, "such as 1, or"),
        ([1, 2], "int64", float("inf"), "such as 1, or"),
        ([1.0, 2.0], "float64", "a", r"Use keys of the column's type, such as 1\.0, or"),
        (["a", "b"], "category", 1, "such as 'de', or"),
        ([1, 2], "category", "1", "such as 1, or"),
        (["a", "b"], pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string())), 1, "such as 'de', or"),
        ([pd.Timestamp("2026-01-31")] * 2, "datetime64[ns]", dt.date(2026, 1, 31), r"such as pd\.Timestamp"),
        ([pd.Timestamp("2026-01-31", tz="UTC")] * 2, "datetime64[ns, UTC]", pd.Timestamp("2026-01-31"), "such as"),
    ],
)
def test_a_key_that_matches_no_row_is_refused(values, dtype, key, said):
    with pytest.raises(ParameterError, match=said):
        cdf.keep_profile(table(values, dtype), {key: SHORT}, by="key")


def test_a_key_of_numpy_is_shown_as_a_plain_value():
    with pytest.raises(ParameterError, match="the key 1 of the profiles is of the type int64"):
        cdf.keep_profile(table(["a", "b"], "string"), {np.int64(1): SHORT}, by="key")


def test_two_keys_for_null_are_refused():
    with pytest.raises(ParameterError, match="two profiles for null"):
        cdf.keep_profile(table([1, 2], "int64"), {None: SHORT, float("nan"): LONG}, by="key")


def count_a(text):
    return text.count("a")


def count_b(text):
    return text.count("b")


def test_two_metrics_of_one_name_are_refused():
    metrics = (UserMetric("letters", count_a), UserMetric("letters", count_b))
    one, two = (Profile("p", "1", "ours", (Rule(metric, ">=", 1, "few"),)) for metric in metrics)
    with pytest.raises(
        ParameterError,
        match=r"the profiles have two different metrics of your own \(UserMetric\) with the name 'letters'",
    ):
        cdf.keep_profile(table([1, 2], "int64"), {1: one, 2: two}, by="key")
    cdf.keep_profile(table([1, 2], "int64"), {1: one, 2: one.replace(few=2)}, by="key")

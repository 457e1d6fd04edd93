# SPDX-License-Identifier: Apache-2.0
"""What thresholds keep: the same numbers from every table, and a picture of them."""

import base64
import json
import sys

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import curator_df as cdf
from curator_df import errors
from curator_df.errors import MissingExtraError
from curator_df.ops.filters.rules import Profile, Rule
from curator_df.ops.filters.thresholds import bucket_of, value_of

RANDOM = np.random.default_rng(3)
ROWS = 3_000
TABLE = pd.DataFrame(
    {
        "word_count": pd.array(RANDOM.lognormal(5, 1.2, ROWS).astype(int), "Int64"),
        "hash_ratio": pd.array(RANDOM.beta(0.5, 20, ROWS), "Float64"),
        "other": RANDOM.normal(0, 1, ROWS),
        "text": ["a"] * ROWS,
    }
)
TABLE.loc[:9, ["word_count", "hash_ratio"]] = pd.NA
RULES = Profile(
    "ours",
    "1",
    "example",
    (
        Rule("word_count", ">=", 50, "too_short"),
        Rule("word_count", "<=", 2_000, "too_long"),
        Rule("hash_ratio", "<=", 0.1, "hashes"),
    ),
)


@pytest.mark.parametrize("npartitions", [None, 1, 4])
def test_kept_is_what_a_filter_would_keep(npartitions):
    table = TABLE if npartitions is None else dd.from_pandas(TABLE, npartitions=npartitions)
    found = cdf.explore_thresholds(table, metrics=["word_count", "hash_ratio", "other"])
    assert (found.rows, found.missing) == (ROWS, {"word_count": 10, "hash_ratio": 10, "other": 0})
    for threshold in (0, 1, 50, 51, 400):
        for keep, kept in (
            (">=", TABLE["word_count"].ge),
            ("<=", TABLE["word_count"].le),
            ("<", TABLE["word_count"].lt),
        ):
            assert found.kept("word_count", threshold, keep) == kept(threshold).sum() / ROWS
    for name, threshold in (("hash_ratio", 0.02), ("other", -0.7), ("other", 0.0), ("other", 1.3)):
        assert found.kept(name, threshold) == pytest.approx((TABLE[name] >= threshold).sum() / ROWS, abs=0.001)


def test_partitions_and_the_order_of_rows_change_nothing():
    frames = [
        cdf.explore_thresholds(table).to_frame()
        for table in (
            TABLE,
            dd.from_pandas(TABLE.sample(frac=1, random_state=1), npartitions=7),
            dd.from_pandas(TABLE, npartitions=2).curate.keep_where("other > -99"),
        )
    ]
    assert frames[0].equals(frames[1])
    assert frames[0].equals(frames[2])


def test_the_frame_has_the_counts():
    found = cdf.explore_thresholds(pd.DataFrame({"word_count": [5, 1, 5, None, 7]})).to_frame()
    assert found.to_dict("list") == {
        "metric": ["word_count"] * 3,
        "value": [1.0, 5.0, 7.0],
        "rows": [1, 2, 1],
        "share_at_least": [0.8, 0.6, 0.2],
        "share_at_most": [0.2, 0.6, 0.8],
    }


def test_the_profile_says_which_metrics_and_which_way():
    found = cdf.explore_thresholds(TABLE, RULES)
    assert found.metrics == ("word_count", "hash_ratio")
    assert found.kept("hash_ratio", 0.1) == found.kept("hash_ratio", 0.1, "<=")  # its only rule
    assert found.kept("word_count", 50) == found.kept("word_count", 50, ">=")
    funnel = cdf.describe_drops(dd.from_pandas(TABLE, npartitions=1), RULES, from_metrics=True)
    breaking = dict(zip(funnel["reason"], funnel["rows_breaking"], strict=True))
    assert round((1 - found.kept("word_count", 50)) * ROWS) == breaking["too_short"] + 10
    assert "word_count >= 50 keeps " in repr(found)


def test_metrics_of_the_catalogue_are_explored_unless_others_are_named():
    assert cdf.explore_thresholds(TABLE).metrics == ("word_count", "hash_ratio")
    assert cdf.explore_thresholds(TABLE, metrics="other").metrics == ("other",)


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        ({"metrics": ["nothing"]}, errors.ColumnError, "nothing"),
        ({"metrics": ["text"]}, errors.SchemaError, "numbers in the column 'text'"),
        ({"metrics": []}, errors.ParameterError, "found no metric in the table, which has: word_count, hash_ratio"),
        (
            {"profile": "gopher"},
            errors.ParameterError,
            "profile='gopher' is neither .* Did you mean 'datatrove_gopher",
        ),
    ],
)
def test_what_cannot_be_explored_is_refused(arguments, kind, said):
    with pytest.raises(kind, match=said):
        cdf.explore_thresholds(TABLE, **arguments)


def test_unknown_metrics_and_comparisons_are_named():
    found = cdf.explore_thresholds(TABLE)
    with pytest.raises(errors.ParameterError, match=r"'x' was not explored\. Use one of: word_count, hash_ratio"):
        found.kept("x", 1)
    with pytest.raises(errors.ParameterError, match="'=='"):
        found.kept("word_count", 1, "==")


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_buckets_keep_the_order_of_values_and_are_narrow(numbers):
    values = np.sort(np.array(numbers))
    buckets = bucket_of(values)
    assert (np.diff(buckets) >= 0).all()
    nearest = value_of(buckets)
    normal = np.isfinite(values) & (np.abs(values) > 1e-300)
    assert (np.abs(nearest[normal] / values[normal] - 1) <= 0.001).all()
    assert (np.abs(nearest) <= np.abs(values)).all()


@pytest.mark.parametrize(
    "values", [[1.0], [], [None, None], [0.0, 0.0], [1, 2, 3], [0.5, 1e9], [float("inf"), 1.0], [-5.0, 1e-12]]
)
def test_every_table_has_a_picture(values):
    pytest.importorskip("matplotlib", reason="matplotlib is in the monitor extra")
    found = cdf.explore_thresholds(pd.DataFrame({"word_count": pd.array(values, "Float64")}), metrics=["word_count"])
    bundle = found._repr_mimebundle_()
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert "word_count" in bundle["text/plain"]


def test_the_picture_has_the_thresholds_of_the_profile():
    pytest.importorskip("matplotlib", reason="matplotlib is in the monitor extra")
    figure = cdf.explore_thresholds(TABLE, RULES).plot()
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0].startswith("word_count\n>= 50 keeps ")
    drawn = [line.get_xdata()[0] for line in figure.axes[0].lines]
    assert drawn == [50, 2_000]


def test_widgets_move_the_threshold():
    pytest.importorskip("matplotlib", reason="matplotlib is in the monitor extra")
    pytest.importorskip("ipywidgets", reason="ipywidgets is in the notebooks extra")
    from curator_df.ops.filters.thresholds import threshold_widget

    found = cdf.explore_thresholds(TABLE, RULES)
    widget = threshold_widget(found)
    (metric, keep), (slider, exact), picture = (
        widget.children[0].children,
        widget.children[1].children,
        widget.children[2],
    )
    assert (metric.value, keep.value, exact.value) == ("word_count", ">=", 50)
    before = picture.value
    exact.value = 400.0
    assert slider.value == 400
    assert picture.value != before
    metric.value = "hash_ratio"
    assert (keep.value, exact.value) == ("<=", 0.1)
    assert slider.min <= 0.1 <= slider.max < 1
    assert "application/vnd.jupyter.widget-view+json" in found._repr_mimebundle_()


def test_without_ipywidgets_there_is_the_picture_and_without_matplotlib_the_text(monkeypatch):
    pytest.importorskip("matplotlib", reason="matplotlib is in the monitor extra")
    found = cdf.explore_thresholds(TABLE, RULES)
    import importlib.util as finder

    real = finder.find_spec
    monkeypatch.setattr(finder, "find_spec", lambda name: None if name == "ipywidgets" else real(name))
    assert set(found._repr_mimebundle_()) == {"text/plain", "image/png"}
    monkeypatch.setattr(finder, "find_spec", lambda name: None)
    assert json.dumps(found._repr_mimebundle_())
    assert set(found._repr_mimebundle_()) == {"text/plain"}
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[monitor\]"):
        found.plot()


def test_a_table_without_the_metrics_of_a_profile_is_told_of_add_profile():
    with pytest.raises(
        errors.ColumnError, match=r"lacks .*hash_ratio.*\. Add them first with add_profile\(df, profile\)"
    ):
        cdf.explore_thresholds(TABLE[["word_count"]], RULES)
    with pytest.raises(errors.ParameterError, match="Make some with add_profile or add_metrics"):
        cdf.explore_thresholds(pd.DataFrame({"text": ["word"]}))

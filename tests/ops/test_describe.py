# SPDX-License-Identifier: Apache-2.0
"""`describe`: counts and lengths of texts, in all and by a column, compared with those of pandas."""

import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import curator_df as cdf
from curator_df import errors
from curator_df.ops import describe as module
from curator_df.ops.describe import describe_block, rounded_down


def table(rows):
    columns = {"text": pd.array([row[0] for row in rows], "string[pyarrow]"), "group": [row[1] for row in rows]}
    return pd.DataFrame({**columns, "n": pd.array([row[2] for row in rows], "Int64")})


def plain(docs):
    """Return the figures of a table as pandas has them, with quantiles of the rounded lengths."""
    lengths = docs["text"].str.len().dropna().astype("int64").to_numpy()
    figures = {
        "rows": len(docs),
        "missing_texts": int(docs["text"].isna().sum()),
        "characters": int(lengths.sum()),
        "tokens": int(docs["n"].fillna(0).sum()),
    }
    if len(lengths):
        rounded = np.sort(rounded_down(lengths))
        figures |= {"mean_chars": lengths.mean(), "max_chars": lengths.max()}
        for name, share in module.QUANTILES.items():
            figures[name] = np.quantile(rounded, share, method="inverted_cdf")
    return figures


def of_blocks(docs, cuts, **options):
    """Return the description of a table whose blocks are counted apart."""
    parameters = {"text": "text", "by": options.get("by"), "tokens": options.get("token_column")}
    ends = [0, *cuts, len(docs)]
    blocks = [describe_block(docs[a:b], **parameters).block for a, b in itertools.pairwise(ends)]
    batches = [pa.Table.from_pandas(block, preserve_index=False) for block in blocks]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "count_blocks", lambda *_: lambda: iter(batches))
        return cdf.describe(docs, **options)


TEXTS = st.one_of(st.none(), st.text(max_size=30), st.integers(0, 130_000).map(lambda length: "é" * length))
ROWS = st.lists(
    st.tuples(TEXTS, st.sampled_from(["de", "en", None, ""]), st.one_of(st.none(), st.integers(0, 9))), max_size=12
)


@given(ROWS, st.lists(st.integers(0, 12), max_size=2).map(sorted))
def test_figures_are_those_of_pandas_however_the_table_is_cut(rows, cuts):
    docs = table(rows)
    cuts = [min(cut, len(docs)) for cut in cuts]
    (whole,) = of_blocks(docs, cuts, token_column="n").to_dict("records")
    expected = plain(docs)
    assert {name: whole[name] for name in expected} == pytest.approx(expected)
    found = of_blocks(docs, cuts, by="group", token_column="n")
    if not rows:
        assert len(found) == 0
        return
    groups = dict(list(docs.groupby("group", dropna=False)))
    assert len(found) == len(groups)
    for row in found.to_dict("records"):
        key = next(name for name in groups if (pd.isna(name) and pd.isna(row["group"])) or name == row["group"])
        own = plain(groups[key])
        assert {name: row[name] for name in own} == pytest.approx(own)
        assert row["share_of_rows"] == pytest.approx(own["rows"] / len(docs))
    assert found["rows"].is_monotonic_decreasing


def test_texts_are_counted_by_length():
    docs = table([("", "a", 1), ("x", "a", 1), ("x" * 9, "a", 1), ("x" * 60, "a", 1), (None, "a", 1)])
    lengths = cdf.describe(docs).attrs["lengths"]
    assert lengths.to_dict("split")["data"] == [
        [0, 0, 1],
        [1, 1, 1],
        [2, 4, 0],
        [5, 9, 1],
        [10, 19, 0],
        [20, 49, 0],
        [50, 99, 1],
    ]


def test_values_that_are_no_text_are_shown_as_text():
    docs = table([("a", 3, 1), ("b", 1, 1), ("c", 3, 1)])
    assert cdf.describe(docs, by="group")["group"].tolist() == ["3", "1"]
    docs["group"] = docs["group"].astype("category")
    assert cdf.describe(docs, by="group")["rows"].tolist() == [2, 1]


def test_what_is_wrong_is_said(monkeypatch):
    docs = table([("a", "x", 1), ("b", "y", 1), ("c", "z", 1)])
    with pytest.raises(errors.ColumnError, match="'language'"):
        cdf.describe(docs, by="language")
    with pytest.raises(errors.SchemaError, match="token_column='group' must be a column of integers"):
        cdf.describe(docs, token_column="group")
    with pytest.raises(errors.ParameterError, match="by='rows' is also the name of a column that the result adds"):
        cdf.describe(docs.assign(rows=1), by="rows")
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    with pytest.raises(errors.ParameterError, match=r"more than 2 different values \(3 so far\)"):
        cdf.describe(docs, by="group")


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([b"\xff", b"a"]),
        pd.Series([b"\xff", b"a"], dtype=pd.ArrowDtype(pa.binary())),
        pd.Series([["a"], None]),
        pd.Series([["a"], ["b"]], dtype=pd.ArrowDtype(pa.list_(pa.string()))),
        pd.Series([{"a": 1}, {"a": 2}], dtype=pd.ArrowDtype(pa.struct({"a": pa.int64()}))),
        pd.Series([b"a", b"b"], dtype="category"),
    ],
    ids=["bytes", "binary", "lists", "arrow lists", "structs", "categories of bytes"],
)
def test_binary_and_nested_values_are_no_groups(values):
    docs = table([("a", "x", 1), ("b", "y", 1)]).assign(group=values)
    with pytest.raises(errors.SchemaError, match="by='group' must be a column of text, numbers, booleans, dates or"):
        cdf.describe(docs, by="group")


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([True, None]),
        pd.Series([1.5, 2.5]),
        pd.to_datetime(pd.Series(["2026-01-01", "2026-01-02"])),
        pd.Series([1, 2], dtype="category"),
        pd.Series(["a", None], dtype=object),
        pd.Series([0, 1], dtype=pd.ArrowDtype(pa.date32())),
    ],
    ids=["booleans", "numbers", "times", "categories", "objects", "dates"],
)
def test_values_of_every_plain_type_are_groups(values):
    docs = table([("a", "x", 1), ("b", "y", 1)]).assign(group=values)
    assert cdf.describe(docs, by="group")["rows"].tolist() == [1, 1]


def test_many_counts_lose_digits_and_keep_their_sums(monkeypatch):
    docs = table([("x" * (1_000 + 7 * place), f"g{place % 4}", 1) for place in range(400)])
    cuts = list(range(20, 400, 20))
    exact = of_blocks(docs, cuts, by="group", token_column="n")
    assert exact.attrs["digits"] == 3
    monkeypatch.setattr(module, "MOST_COUNTS", 130)
    coarse = of_blocks(docs, cuts, by="group", token_column="n")
    assert coarse.attrs["digits"] == 2
    sums = ["group", "rows", "characters", "tokens", "mean_chars", "max_chars"]
    pd.testing.assert_frame_equal(coarse[sums], exact[sums])
    pd.testing.assert_frame_equal(coarse.attrs["lengths"], exact.attrs["lengths"])
    assert coarse["median_chars"].tolist() == rounded_down(exact["median_chars"].to_numpy(np.int64), 2).tolist()


def test_counts_of_many_blocks_are_added_up_together(monkeypatch):
    docs = table([("x" * place, "a", 1) for place in range(60)])
    merged, merge = [], module._merged
    monkeypatch.setattr(module, "MOST_COUNTS", 100)
    monkeypatch.setattr(module, "_merged", lambda counts: merged.append(1) or merge(counts))
    assert of_blocks(docs, list(range(1, 60)))["rows"].tolist() == [60]
    assert len(merged) == 1

# SPDX-License-Identifier: Apache-2.0
"""`describe`: counts and lengths of texts, in all and by a column, beside what pandas says."""

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
    with pytest.raises(errors.ParameterError, match="by='rows' is the name of a figure of the result"):
        cdf.describe(docs.assign(rows=1), by="rows")
    monkeypatch.setattr(module, "MOST_GROUPS", 2)
    with pytest.raises(errors.ParameterError, match=r"more than 2 different values \(3 so far\)"):
        cdf.describe(docs, by="group")

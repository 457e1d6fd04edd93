# SPDX-License-Identifier: Apache-2.0
"""`describe_drops`."""

import dask.dataframe as dd
import pandas as pd
import pytest

from curator_df.errors import ColumnError, ParameterError
from curator_df.ops.filters.drops import SPLIT_EVERY, describe_drops
from curator_df.ops.filters.metrics import add_metrics
from curator_df.ops.filters.rules import Profile, Rule

OURS = Profile(
    "ours",
    "1",
    "example",
    (Rule("word_count", ">=", 2, "too_short"), Rule("hash_ratio", "<=", 0.5, "too_many_hashes")),
)
TEXTS = ["good text", "short", None, "# a # #", "", "漢字 です", "#"]
BLOCK = pd.DataFrame({"text": pd.array(TEXTS, "string[pyarrow]")})
FUNNEL = [
    ["missing_text", pd.NA, 1, 1, 6, 0, 0, 27],
    ["too_short", "word_count >= 2", 3, 3, 3, 6, 6, 21],
    ["too_many_hashes", "hash_ratio <= 0.5", 1, 2, 2, 7, 8, 14],
    [pd.NA, pd.NA, 0, 0, 2, 0, 0, 14],
]


@pytest.fixture(params=[1, 3, 7])
def docs(request):
    return dd.from_pandas(BLOCK, npartitions=request.param)


def test_the_funnel_counts_first_and_any_hits(docs):
    table = docs.pipe(describe_drops, OURS)
    assert list(table.columns) == [
        "reason",
        "rule",
        "rows_dropped",
        "rows_breaking",
        "rows_left",
        "characters_dropped",
        "characters_breaking",
        "characters_left",
    ]
    assert table.to_numpy().tolist() == FUNNEL


def test_stored_metrics_give_the_same_with_and_without_the_text(docs):
    measured = docs.pipe(add_metrics, OURS)
    assert describe_drops(measured, OURS, from_metrics=True).to_numpy().tolist() == FUNNEL
    table = describe_drops(measured.drop(columns="text"), OURS, from_metrics=True)
    assert table.iloc[:, :5].to_numpy().tolist() == [row[:5] for row in FUNNEL]
    assert table.iloc[:, 5:].isna().all(axis=None)


def test_many_blocks_are_added_up_and_empty_ones_count_nothing():
    blocks = [BLOCK.iloc[:0], *[BLOCK] * (2 * SPLIT_EVERY + 3)]
    docs = dd.from_map(lambda number: blocks[number], range(len(blocks)), meta=BLOCK.iloc[:0])
    table = describe_drops(docs, OURS)
    assert table["rows_dropped"].tolist() == [35, 105, 35, 0]
    assert table["characters_left"].tolist() == [27 * 35, 21 * 35, 14 * 35, 14 * 35]


def test_a_table_without_rows_drops_nothing():
    table = describe_drops(dd.from_pandas(BLOCK.iloc[:0], npartitions=1), OURS)
    assert table["reason"].tolist() == ["missing_text", "too_short", "too_many_hashes", pd.NA]
    assert table["rows_left"].tolist() == [0, 0, 0, 0]


def test_arguments_are_checked_at_the_door(docs):
    with pytest.raises(ColumnError, match="describe_drops needs the column 'body'"):
        describe_drops(docs, OURS, text="body")
    with pytest.raises(ParameterError, match=r"describe_drops: profile=.* is neither a Profile nor"):
        describe_drops(docs, "gopher")

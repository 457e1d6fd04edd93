# SPDX-License-Identifier: Apache-2.0
"""`keep_where`."""

import dask.dataframe as dd
import pandas as pd
import pytest

from curator_df.errors import ColumnError, OperatorError, ParameterError
from curator_df.ops.filters.where import keep_where, keep_where_block

BLOCK = pd.DataFrame(
    {"text": pd.array(["a", "bb", None, "dddd"], "string[pyarrow]"), "score": [1, 2, 3, 4]}, index=[5, 6, 7, 8]
)


@pytest.mark.parametrize("npartitions", [1, 3])
@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        ("score > 2", [7, 8]),
        ("score > 2 and text == 'dddd'", [8]),
        ("text.notna()", [5, 6, 8]),
        (lambda block: block["text"].str.len() > 1, [6, 8]),
        (lambda block: (block["text"] == "a").astype("boolean"), [5]),
        (lambda block: block["score"] > 9, []),
    ],
)
def test_rows_for_which_it_is_true_are_kept(npartitions, predicate, kept):
    result = dd.from_pandas(BLOCK, npartitions=npartitions).pipe(keep_where, predicate).compute()
    pd.testing.assert_frame_equal(result, BLOCK.loc[kept])


def test_drops_are_counted_under_the_reason():
    outcome = keep_where_block(BLOCK, predicate="score > 2", reason="low")
    assert outcome.dropped == {"low": 2}
    removed, why = outcome.rejects()
    pd.testing.assert_frame_equal(removed, BLOCK.loc[[5, 6]])
    assert why == {"reason": ["low", "low"], "rule": ["score > 2", "score > 2"]}
    everything = keep_where_block(BLOCK, predicate="score > 0", reason="low")
    assert everything.block is BLOCK and everything.dropped == {}


def test_empty_block():
    assert len(keep_where_block(BLOCK.iloc[:0], predicate="score > 2", reason="low").block) == 0


@pytest.mark.parametrize(
    ("predicate", "found"),
    [
        (lambda block: True, "it returned a bool"),
        (lambda block: (block["score"] > 2).to_numpy(), "it returned a ndarray"),
        (lambda block: block["score"], "it returned values of int64"),
        (lambda block: (block["score"] > 2).iloc[1:], "it returned 3 values with another index"),
        (lambda block: (block["score"] > 2).reset_index(drop=True), "it returned 4 values with another index"),
    ],
)
def test_anything_but_one_boolean_a_row_is_refused(predicate, found):
    with pytest.raises(OperatorError, match=f"one boolean for each of the 4 rows.*{found}"):
        keep_where_block(BLOCK, predicate=predicate, reason="x")


def test_the_users_function_cannot_change_the_block():
    def careless(block):
        block["new"] = 1
        block["score"] = 0
        return block["new"] == 1

    before = BLOCK.copy(deep=True)
    keep_where_block(BLOCK, predicate=careless, reason="x")
    pd.testing.assert_frame_equal(BLOCK, before)


@pytest.mark.parametrize(
    ("predicate", "error", "message"),
    [
        ("scores > 2", ColumnError, "name 'scores' is not defined.*the table has: 'text', 'score'"),
        ("word_count > 2", ColumnError, r"word_count is a metric: .* add_metrics\(df, \['word_count'\]\)$"),
        ("score >", ParameterError, "cannot evaluate 'score >'"),
        ("score > @least", ParameterError, "uses @, a variable of this process"),
        (3, ParameterError, "needs an expression, .*; found 3"),
        ("text = 'a'", ParameterError, r"assigns a column with =\. Compare with ==, as in \"text == 'a'\"$"),
        ("text = 'a=b'", ParameterError, r"as in \"text == 'a=b'\"$"),
        ("score >= 2 and text == a", ColumnError, r"A text needs quotation marks: 'a'$"),
        (
            dd.from_pandas(BLOCK, npartitions=1)["score"] > 2,
            ParameterError,
            r"index the table with it: df\[condition\]$",
        ),
    ],
)
def test_wrong_predicates_are_refused_when_the_operator_is_called(predicate, error, message):
    with pytest.raises(error, match=message):
        dd.from_pandas(BLOCK, npartitions=1).pipe(keep_where, predicate)


def test_a_function_of_one_row_is_told_that_it_gets_a_block():
    with pytest.raises(
        OperatorError, match=r"returned a bool\. It is called with a block of rows \(a DataFrame\), not with"
    ):
        keep_where_block(BLOCK, predicate=lambda row: len(row["text"]) > 1, reason="x")


def test_empty_reason_is_refused():
    with pytest.raises(ParameterError, match=r"reason= is empty\. Give the rows that are dropped a reason"):
        dd.from_pandas(BLOCK, npartitions=1).pipe(keep_where, "score > 2", reason="")

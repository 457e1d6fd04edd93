# SPDX-License-Identifier: Apache-2.0
"""Metrics that a user wrote, in rules and as columns, beside those of the catalogue."""

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.fingerprint import fingerprint
from curator_df.errors import ColumnError, OperatorError, ParameterError
from curator_df.ops.filters.rules import Profile, Rule
from curator_df.ops.filters.user_metrics import UserMetric
from tests.core.runner.fake_client import inline_cluster

TEXTS = ["aeiou and", "rhythm", None, "", "a b c", "ouï ouï ouï"]
BLOCK = pd.DataFrame(
    {"text": pd.array(TEXTS, "string[pyarrow]"), "score": pd.array([1, 2, 3, None, 0, 9], "Int64")},
    index=range(10, 70, 10),
)
VOWELS = UserMetric("vowel_count", lambda text: sum(map(text.count, "aeiou")))
SCORES = UserMetric("score_twice", lambda block: block["score"] * 2, of="block")
MINE = Profile("mine", "1", "ours", (Rule(VOWELS, ">=", 1, "no_vowel"), Rule(SCORES, ">", 0, "low_score")))
WORDS = Profile("words", "1", "ours", (Rule("word_count", "<=", 2, "too_long"),))


@pytest.fixture(params=[1, 4])
def docs(request):
    return dd.from_pandas(BLOCK, npartitions=request.param)


def test_a_rule_may_be_on_a_function_of_a_text_or_of_a_block(docs):
    added = docs.pipe(cdf.add_profile, MINE).compute()
    assert added["reason"].tolist() == [pd.NA, "no_vowel", "missing_text", "missing_metric", "low_score", pd.NA]
    assert added["vowel_count"].tolist() == [6, 0, pd.NA, 0, 1, 6]  # a row that lacks a metric has the others
    assert added["score_twice"].tolist() == [2, 4, pd.NA, pd.NA, 0, 18]
    assert added.dtypes["vowel_count"] == added.dtypes["score_twice"] == "Float64"
    assert docs.pipe(cdf.keep_profile, MINE).compute().index.tolist() == [10, 60]


def test_a_row_that_lacks_a_metric_keeps_the_others(docs):
    profile = WORDS + MINE
    added = docs.pipe(cdf.add_profile, profile).compute()
    metrics = docs.pipe(cdf.add_metrics, profile).compute()
    pd.testing.assert_frame_equal(added[metrics.columns], metrics)
    assert added["reason"].tolist()[3] == "missing_metric" and added["word_count"].tolist()[3] == 0
    by = docs.assign(kind="a").pipe(cdf.add_profile, {"a": profile}, by="kind").compute()
    pd.testing.assert_frame_equal(by[metrics.columns], metrics)


def test_plus_combines_them_with_the_catalogue(docs):
    both = WORDS + MINE + Rule("digit_ratio", "<=", 0.1, "digits")
    kept = docs.pipe(cdf.keep_profile, both, add_metrics=True).compute()
    assert kept.index.tolist() == [10]
    assert kept.columns.tolist() == ["text", "score", "word_count", "vowel_count", "score_twice", "digit_ratio"]
    assert kept.iloc[0, 2:].tolist() == [2, 6, 2, 0]
    assert both.text_metrics == ("word_count", "digit_ratio") and both.user_metrics == (VOWELS, SCORES)
    assert str((MINE + WORDS).replace(vowel_count=3).rules[0]) == "vowel_count >= 3"
    assert MINE.replace(no_vowel=None).user_metrics == (SCORES,)


def test_they_are_columns_in_the_order_asked_for(docs):
    added = docs.pipe(cdf.add_metrics, [SCORES, "word_count", VOWELS])
    table = added.compute()
    assert table.columns.tolist() == ["text", "score", "score_twice", "word_count", "vowel_count"]
    assert table.dtypes.equals(added.dtypes)
    assert table["score_twice"].tolist() == [2, 4, pd.NA, pd.NA, 0, 18]
    assert table["vowel_count"].tolist() == [6, 0, pd.NA, 0, 1, 6]
    assert docs.pipe(cdf.add_metrics, MINE).columns.tolist() == ["text", "score", "vowel_count", "score_twice"]


@pytest.mark.parametrize("changed", [{}, {"no_vowel": 6}, {"low_score": -1}])
def test_stored_ones_give_the_same_verdicts_and_no_function_is_called(docs, changed):
    profile = (WORDS + MINE).replace(**changed)
    wanted = docs.pipe(cdf.add_profile, profile).compute()["reason"]
    stored = docs.pipe(cdf.add_metrics, WORDS + MINE).drop(columns=["text", "score"])
    found = stored.pipe(cdf.add_profile, profile, from_metrics=True).compute()["reason"]
    assert found.tolist() == wanted.tolist()
    assert cdf.describe_drops(stored, profile, from_metrics=True)["rows_left"].tolist()[-1] == wanted.isna().sum()
    assert not stored.pipe(cdf.keep_profile, profile, from_metrics=True).expr.operand("func").is_users


def test_drops_are_counted_and_rejects_say_the_value(docs):
    funnel = cdf.describe_drops(docs, MINE)
    assert funnel["reason"].tolist()[:2] == ["missing_text", "missing_metric"]
    assert funnel["rows_dropped"].tolist() == [1, 1, 1, 1, 0]
    assert funnel["rows_left"].tolist() == [5, 4, 3, 2, 2]
    kernel = docs.pipe(cdf.keep_profile, MINE).expr.operand("func")
    outcome = kernel.run(BLOCK)
    assert dict(outcome.dropped) == {"no_vowel": 1, "low_score": 1, "missing_text": 1, "missing_metric": 1}
    _, why = outcome.rejects()
    assert list(why["rule"])[:1] == ["vowel_count >= 1"] and why["value"][0] == 0


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA])
def test_a_text_may_have_no_value(docs, nothing):
    metric = UserMetric("odd", lambda text: nothing if "b" in text else np.int64(3))
    table = docs.pipe(cdf.add_metrics, [metric, "word_count"]).compute()
    assert table["odd"].tolist() == [3, 3, pd.NA, 3, pd.NA, 3]
    assert table["word_count"].tolist() == [2, 1, pd.NA, 0, 3, 3]


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (UserMetric("m", lambda text: "3"), "must return a number, or None where there is none; it returned '3'"),
        (UserMetric("m", lambda block: 3, of="block"), "it returned a int"),
        (UserMetric("m", lambda block: block["text"], of="block"), "it returned values of string"),
        (UserMetric("m", lambda block: block["score"][:0], of="block"), "it returned 0 values with another index"),
    ],
)
def test_what_is_no_number_is_an_error(docs, metric, message):
    with pytest.raises(OperatorError, match=message):
        docs.pipe(cdf.add_metrics, [metric]).compute()


def test_a_function_of_a_block_cannot_change_it(docs):
    def greedy(block):
        block["more"] = 1
        return block["more"]

    table = docs.pipe(cdf.add_metrics, [UserMetric("greedy", greedy, of="block")]).compute()
    assert table.columns.tolist() == ["text", "score", "greedy"]
    assert BLOCK.columns.tolist() == ["text", "score"]


def test_arguments_are_checked_at_the_door(docs):
    with pytest.raises(ParameterError, match="'word_count' is already the name of a built-in metric"):
        UserMetric("word_count", len)
    with pytest.raises(ParameterError, match="name='' is not a name"):
        UserMetric("", len)
    with pytest.raises(ParameterError, match="needs a function; found 3"):
        UserMetric("m", 3)
    with pytest.raises(ParameterError, match="of='row' is not one of 'document', 'block'"):
        UserMetric("m", len, of="row")
    with pytest.raises(ParameterError, match=r"unknown metric 'vowel_count'. Did you mean '"):
        Rule("vowel_count", ">=", 1, "no_vowel")
    with pytest.raises(
        ParameterError, match=r"has two different metrics of your own \(UserMetric\) with the name 'vowel_count'"
    ):
        MINE + Rule(UserMetric("vowel_count", len), ">=", 1, "other")
    with pytest.raises(ParameterError, match="add_metrics: two metrics have the same name: vowel_count, vowel_count"):
        docs.pipe(cdf.add_metrics, [VOWELS, UserMetric("vowel_count", len)])
    with pytest.raises(ParameterError, match=r"add_metrics needs a list of names, such as \[UserMetric"):
        docs.pipe(cdf.add_metrics, VOWELS)
    with pytest.raises(ColumnError, match="add_metrics would overwrite 'text'"):
        docs.pipe(cdf.add_metrics, [UserMetric("text", len)])
    with pytest.raises(ColumnError, match="'vowel_count', 'score_twice'"):
        docs.pipe(cdf.keep_profile, MINE, from_metrics=True)


def test_the_function_is_part_of_the_programs_identity():
    again = UserMetric("vowel_count", lambda text: sum(map(text.count, "aeiou")))
    other = UserMetric("vowel_count", lambda text: sum(map(text.count, "aeiouy")))
    assert fingerprint(VOWELS) == fingerprint(again) != fingerprint(other)


def test_explain_says_that_a_function_of_a_document_is_slow(tmp_path):
    (tmp_path / "docs.jsonl").write_text('{"text": "a"}\n')
    docs = cdf.read_jsonl(tmp_path)
    plan = cdf.explain(docs.pipe(cdf.keep_profile, WORDS + MINE).pipe(cdf.add_metrics, [SCORES]), memory="1GB", cpus=1)
    assert "slow    keep_profile: slow path: Python for each document (vowel_count)" in str(plan)
    assert plan.remarks == (("slow", "keep_profile: slow path: Python for each document (vowel_count)"),)
    assert "keep_profile: 5.4 x block (measured)" in str(plan)
    assert not cdf.explain(docs.pipe(cdf.keep_profile, WORDS), memory="1GB", cpus=1).remarks


def test_a_run_sets_texts_aside_on_which_the_function_raises(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(f'{{"text": "a{number}"}}\n' for number in range(5)))
    metric = UserMetric("tenth", lambda text: 1 / (int(text[1:]) - 3))
    docs = cdf.read_jsonl(tmp_path / "in.jsonl").pipe(cdf.add_metrics, [metric])
    with inline_cluster(memory="2GB", cpus=1):
        receipt = cdf.write_jsonl(docs, tmp_path / "out", on_error="quarantine")
    assert (receipt.rows_written, receipt.rows_quarantined) == (4, 1)

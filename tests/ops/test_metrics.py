# SPDX-License-Identifier: Apache-2.0
"""`add_metrics`, and judging by what it added."""

import dask.dataframe as dd
import pandas as pd
import pytest

from curator_df.errors import ColumnError, ParameterError, SchemaError
from curator_df.ops.filters.metrics import add_metrics
from curator_df.ops.filters.profile import add_profile, keep_profile
from curator_df.ops.filters.rules import Profile, Rule
from curator_df.profiles import NEMO_ENGLISH

OURS = Profile(
    "ours",
    "1",
    "example",
    (Rule("word_count", ">=", 2, "too_short"), Rule("hash_ratio", "<=", 0.5, "too_many_hashes")),
)
TEXTS = ["good text", "short", None, "# a # #", "", "漢字 です", "#"]
BLOCK = pd.DataFrame({"id": range(7), "text": pd.array(TEXTS, "string[pyarrow]")}, index=range(10, 80, 10))


@pytest.fixture(params=[1, 3])
def docs(request):
    return dd.from_pandas(BLOCK, npartitions=request.param)


@pytest.fixture
def measured(docs):
    return docs.pipe(add_metrics, OURS)


def test_metrics_are_columns_null_where_the_text_is(measured):
    table = measured.compute()
    assert table.dtypes.equals(measured.dtypes)
    assert table["word_count"].tolist() == [2, 1, pd.NA, 4, 0, 2, 1]
    assert table["hash_ratio"].tolist() == [0, 0, pd.NA, 0.75, 0, 0, 1]
    pd.testing.assert_frame_equal(table[["id", "text"]], BLOCK)


@pytest.mark.parametrize(
    "profile", [OURS, OURS.replace(too_short=1), OURS.replace(too_short=None), OURS.replace(too_many_hashes=0.8)]
)
def test_stored_metrics_give_the_verdicts_of_the_text(docs, measured, profile):
    stored = measured.drop(columns="text")
    kept = stored.pipe(keep_profile, profile, from_metrics=True).compute()
    assert kept.index.tolist() == docs.pipe(keep_profile, profile).compute().index.tolist()
    reasons = stored.pipe(add_profile, profile, from_metrics=True).compute()["reason"]
    assert reasons.tolist() == docs.pipe(add_profile, profile).compute()["reason"].tolist()


def test_stored_metrics_may_be_of_any_numbers(measured):
    table = measured.compute().astype({"word_count": "float64", "hash_ratio": "Float32"})
    kept = dd.from_pandas(table, npartitions=2).pipe(keep_profile, OURS, from_metrics=True).compute()
    assert kept["id"].tolist() == [0, 5]


def test_rejects_of_stored_metrics_have_value_and_threshold(measured):
    kernel = measured.pipe(keep_profile, OURS, from_metrics=True).expr.operand("func")
    rows, why = kernel.run(measured.compute()).rejects()
    assert rows["id"].tolist() == [1, 2, 3, 4, 6]
    assert list(why["reason"]) == ["too_short", "missing_text", "too_many_hashes", "too_short", "too_short"]
    assert why["threshold"].tolist()[:1] == [2] and why["value"].tolist()[2] == 0.75


def test_a_chain_of_many_metrics_is_one_column_each(docs):
    table = docs.pipe(add_metrics, NEMO_ENGLISH).compute()
    assert list(table.columns) == ["id", "text", *NEMO_ENGLISH.metrics]
    assert table["longest_word_length"].tolist() == [4, 5, pd.NA, 1, 0, 2, 1]


def test_arguments_are_checked_at_the_door(docs, measured):
    with pytest.raises(ParameterError, match=r"unknown metric 'words_count'\. Did you mean 'word_count'"):
        docs.pipe(add_metrics, ["words_count"])
    with pytest.raises(ParameterError, match=r"needs a list of names, such as \['word_count'\]"):
        docs.pipe(add_metrics, "word_count")
    with pytest.raises(ColumnError, match="add_metrics would overwrite 'word_count'"):
        measured.pipe(add_metrics, ["word_count"])
    with pytest.raises(ColumnError, match="keep_profile needs the columns 'word_count', 'hash_ratio'"):
        docs.pipe(keep_profile, OURS, from_metrics=True)
    with pytest.raises(
        ParameterError,
        match="from_metrics=True reads metrics from columns that the table has already, but add_metrics=True would add them",
    ):
        measured.pipe(keep_profile, OURS, from_metrics=True, add_metrics=True)
    with pytest.raises(SchemaError, match="add_profile needs numbers in the column 'word_count'"):
        docs.assign(word_count="a", hash_ratio=0.5).pipe(add_profile, OURS, from_metrics=True)

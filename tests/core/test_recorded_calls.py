# SPDX-License-Identifier: Apache-2.0
"""Calls of public functions are kept with the tables that they return."""

import gc
import pickle
import weakref

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.recorded_calls import call_of, current_call, is_size


@pytest.fixture
def docs():
    return dd.from_pandas(pd.DataFrame({"n": [1, 2, 3], "text": ["a", "b", "c"]}), npartitions=1)


def test_a_table_knows_the_call_that_made_it(docs):
    kept = docs.pipe(cdf.keep_where, "n > 1", reason="small")
    call = call_of(kept.expr)
    assert (call.name, call.part) == ("keep_where", None)
    assert {name: value for name, value in call.arguments.items() if name != "df"} == {
        "predicate": "n > 1",
        "reason": "small",
    }
    assert call.arguments["df"] is docs
    assert call_of(docs.expr) is None
    assert call_of(kept[kept.n > 2].expr) is None
    assert call_of(kept.curate.normalize_unicode().expr).name == "normalize_unicode"


def test_what_the_caller_changes_later_is_not_recorded(docs):
    names, parts, limits = ["a"], {"train": 0.5, "test": 0.5}, {"en": 0.5}
    kept = cdf.keep_language(docs, limits)
    removed = cdf.remove_lines(docs, names)
    split = cdf.split_rows(docs, parts, by="content")
    names.append("b")
    parts["more"] = 0.1
    limits.clear()
    assert call_of(removed.expr).arguments["lines"] == ["a"]
    assert call_of(kept.expr).arguments["languages"] == {"en": 0.5}
    assert call_of(split["test"].expr).arguments["parts"] == {"train": 0.5, "test": 0.5}


def test_each_table_of_several_knows_its_part(docs):
    parts = cdf.split_rows(docs, {"a": 0.5, "b": 0.5}, by="content")
    assert [(call_of(parts[name].expr).name, call_of(parts[name].expr).part) for name in parts] == [
        ("split_rows", "a"),
        ("split_rows", "b"),
    ]


def test_a_function_that_returns_its_table_is_not_a_call(docs):
    kept = cdf.keep_where(docs, "n > 1")
    assert call_of(cdf.to_backend(kept, "pandas").expr).name == "keep_where"


def test_a_call_that_fails_leaves_nothing(docs):
    with pytest.raises(TypeError, match="multiple values"):
        cdf.keep_where(docs, "n > 1", df=docs)
    with pytest.raises(cdf.errors.ParameterError):
        cdf.sample_rows(docs, 7)
    assert current_call() is None


def test_a_call_lives_as_long_as_its_table(docs):
    def predicate(block):
        return block.n > 1

    kept, gone = cdf.keep_where(docs, predicate), weakref.ref(predicate)
    del predicate
    gc.collect()
    assert gone() is not None
    del kept
    gc.collect()
    assert gone() is None


def test_a_table_is_pickled_without_its_call(docs):
    kept = cdf.keep_where(docs, "n > 1")
    again = pickle.loads(pickle.dumps(kept.expr))
    assert again._name == kept.expr._name


def test_sizes_are_parameters_that_are_numbers_of_bytes_or_text():
    assert is_size("memory", "str | int | None")
    assert is_size("target_file_size", "str | int")
    assert not is_size("recycle_after", "str | int")  # a number is one of tasks
    assert not is_size("sample_size", "str")

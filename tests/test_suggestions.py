# SPDX-License-Identifier: Apache-2.0
"""Misspelled names of modules, attributes, constructors and expressions are errors that suggest the right name."""

import copy
import inspect
import pickle
import re

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.calls import NOT_NEEDED
from curator_df.errors import CuratorError
from curator_df.suggestions import MADE_BY, OTHERS, did_you_mean, name_of_ours, suggests_names

CLASSES = [kind for name in cdf.__all__ if inspect.isclass(kind := getattr(cdf, name))]


@pytest.mark.parametrize(
    ("look", "meant"),
    [
        (lambda: cdf.errors.Budgeterror, "BudgetError"),
        (lambda: cdf.errors.exit_cod, "exit_code"),
        (lambda: cdf.profiles.GOPHER_QUALTY, "DATATROVE_GOPHER_QUALITY"),
        (lambda: cdf.minhash.FINWEB, "FINEWEB"),
        (lambda: cdf.classifiers.FINEWEB_ED, "FINEWEB_EDU"),
        (lambda: cdf.write_parqet, "write_parquet"),
        (lambda: cdf.minhash.FINEWEB.num_band, "num_bands"),
        (lambda: cdf.profiles.FINEWEB_C4.ruls, "rules"),
    ],
)
def test_a_misspelled_name_suggests_the_right_one(look, meant):
    with pytest.raises(AttributeError, match=rf"Did you mean '{meant}'\?"):
        look()


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_objects_of_every_public_class_suggest_their_attributes(kind):
    made = object.__new__(kind)
    names = [name for name in (*dir(kind), *getattr(kind, "__dataclass_fields__", ())) if not name.startswith("_")]
    name = max(names, key=len)
    with pytest.raises(AttributeError, match=rf"'{kind.__name__}' object has no attribute .* Did you mean .*'{name}'"):
        getattr(made, name + "x")


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_constructors_of_every_public_class_suggest_their_parameters(kind):
    first = next(iter(inspect.signature(kind).parameters))
    with pytest.raises(TypeError, match=rf"{kind.__name__} has no parameter '{first}x'. Did you mean .*'{first}'"):
        kind(**{f"{first}x": 1})


def test_the_error_of_a_property_is_not_replaced():
    @suggests_names
    class Table:
        @property
        def rows(self):
            return None.count

    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'count'"):
        _ = Table().rows


def test_values_are_copied_and_pickled():
    profile = cdf.profiles.FINEWEB_C4
    assert pickle.loads(pickle.dumps(profile)) == profile == copy.deepcopy(profile)
    assert not hasattr(profile, "_repr_mimebundle_")


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda df: cdf.keep_where(df, "txt == 'a'"), "text"),
        (lambda df: cdf.drop_exact_duplicates(df, subset=["url", "titel"]), "title"),
        (lambda df: cdf.drop_exact_duplicates(df, keep=cdf.best("titel")), "title"),
        (lambda df: cdf.add_metrics(df, ["word_cont"]), "word_count"),
        (lambda df: cdf.Rule("word_cont", ">", 3, "short"), "word_count"),
        (lambda df: cdf.profiles.DATATROVE_GOPHER_QUALITY.replace(gopher_shrt_doc=1), "gopher_short_doc"),
        (lambda df: cdf.profiles.fineweb_2("deu_Latin"), "deu_Latn"),
        (lambda df: cdf.Scheme("word", 5, num_bands=2, minhashes_per_band=2), "words"),
    ],
)
def test_a_misspelled_value_suggests_the_right_one(call, meant):
    df = dd.from_pandas(pd.DataFrame({"text": ["a"], "url": ["b"], "title": ["c"]}), npartitions=1)
    with pytest.raises(CuratorError, match=rf"Did you mean '{meant}'"):
        call(df)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda df: cdf.read_json("a.jsonl"), "Did you mean 'read_jsonl'?"),
        (lambda df: cdf.load_dataset("a"), "Did you mean 'read_parquet' or 'read_jsonl'?"),
        (lambda _: cdf.drop_duplicates, "Did you mean 'drop_exact_duplicates' or 'drop_near_duplicates'?"),
        (lambda df: df.curate.filter("text"), "Did you mean 'keep_where' or 'keep_profile'?"),
        (lambda df: cdf.keep_language(df, "en", column="text"), "Did you mean 'text'?"),
        (lambda df: cdf.drop_exact_duplicates(df, text_field="text"), "Did you mean 'subset'?"),
        (lambda df: cdf.write_parquet(df, "out", mode="overwrite"), "Did you mean 'on_existing'?"),
        (lambda df: cdf.write_by(df, "out", column="text"), "Did you mean 'partition_on'?"),
        (lambda df: cdf.sample_rows(df, 0.1, random_state=3), "Did you mean 'seed'?"),
        (lambda df: cdf.start_cluster(n_workers=2), "Did you mean 'cpus'?"),
        (lambda df: cdf.read_csv("a.csv", sep=";"), "Did you mean 'delimiter'?"),
        (
            lambda df: cdf.write_parquet(df, "out", index=False),
            "Readers create an index, and it is never written. Leave it out, or add an ID",
        ),
        (
            lambda df: cdf.add_embedding(df, "a", batch_size=8),
            "model_inference_batch_size= is a setting of a Model, which model= takes; see help(curator_df.Model)",
        ),
        (lambda df: cdf.model("a", batch_size=8), "Did you mean 'model_inference_batch_size'?"),
        (lambda df: cdf.drop_exact_duplicates(df, id="a"), "It is a setting of an Index, which index= takes"),
        (
            lambda df: cdf.read_jsonl("a.jsonl", nrows=5),
            "To look at some rows, use preview(df, rows=1000) or df.head()",
        ),
    ],
)
def test_what_other_libraries_call_otherwise_is_answered_with_our_name(call, answer):
    df = dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1)
    with pytest.raises((AttributeError, TypeError), match=re.escape(answer)):
        call(df)


def test_every_answer_is_a_name_of_ours_and_every_question_is_not():
    parameters = {
        each.name
        for name in cdf.__all__
        if inspect.isfunction(getattr(cdf, name))
        for each in inspect.signature(getattr(cdf, name)).parameters.values()
    }
    assert {one for answers in OTHERS.values() for one in answers} <= {*cdf.__all__, *parameters, *dir(cdf.Cluster)}
    assert not {*OTHERS} & {*cdf.__all__} - {"join"}  # a parameter of pandas.concat
    assert not {*NOT_NEEDED} & {*OTHERS}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda df: cdf.read_parquet("a", lines=True),
            "has no parameter 'lines'. JSON Lines files, with one row on each",
        ),
        (
            lambda df: cdf.write_parquet(df, "a", orient="records"),
            "has no parameter 'orient'. JSON files have one row on",
        ),
        (lambda df: cdf.read_parquet("a", index="id"), "has no parameter 'index'. Readers create an index, and"),
    ],
)
def test_what_is_not_needed_is_said_of_every_function(call, said):
    with pytest.raises(TypeError, match=re.escape(said)):
        call(None)


def test_names_of_columns_and_values_are_compared_with_no_words_of_other_tools():
    df = dd.from_pandas(pd.DataFrame({"a": ["a"], "subset": ["a"], "rows": [1]}), npartitions=1)
    with pytest.raises(CuratorError, match=r"the table has: 'a', 'subset', 'rows'$"):
        cdf.keep_where(df, "n > 1")
    with pytest.raises(CuratorError, match="'text'") as caught:
        cdf.keep_language(df, "en")
    assert "Did you mean" not in str(caught.value)


def test_the_same_name_in_other_case_comes_before_names_of_other_tools():
    assert name_of_ours("Text", ["subset", "text"]) == " Did you mean 'text'?"
    assert name_of_ours("Join", ["how", "join"]) == " Did you mean 'join'?"


@pytest.mark.parametrize(
    ("look", "said"),
    [
        (
            lambda: cdf.Pipeline,
            "has no attribute 'Pipeline'. Apply functions to a table, as in read_parquet('in/').pipe(",
        ),
        (lambda: cdf.from_pandas, "Convert a table of pandas with dask.dataframe.from_pandas(df, npartitions=1)"),
        (lambda: cdf.Cluster(memory="4GB"), "no parameter 'memory'. Call start_cluster(), which returns one"),
        (cdf.Plan, "Plan objects are not created directly. Call explain(), which returns one"),
    ],
)
def test_the_advice_is_a_call_where_no_name_is_similar(look, said):
    with pytest.raises((AttributeError, TypeError), match=re.escape(said)):
        look()


def test_objects_are_made_by_the_functions_that_return_them():
    functions_of_ours = filter(inspect.isfunction, (getattr(cdf, name) for name in cdf.__all__))
    returned = {each.__name__: inspect.signature(each).return_annotation for each in functions_of_ours}
    for kind, functions in MADE_BY.items():
        assert kind in cdf.__all__
        for function in functions.replace("()", "").split(" or "):
            assert re.search(rf"\b{kind}\b", str(returned[function])), (kind, function)


def test_an_invalid_choice_names_the_function_that_was_called(tmp_path):
    df = dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1)
    with pytest.raises(
        CuratorError, match=r"^write_jsonl: on_existing='overwrit' is not one of .* mean 'overwrite'\?$"
    ):
        cdf.write_jsonl(df, tmp_path / "out", on_existing="overwrit")
    with pytest.raises(CuratorError, match=r"^write_many: on_oom='stop' is not one of 'retry', 'raise'"):
        cdf.write_many({tmp_path / "out": df}, on_oom="stop")


def test_nothing_is_suggested_for_what_is_not_similar():
    assert did_you_mean("zebra", ["first", "last"]) == ""


def test_private_names_that_programs_look_for_are_compared_with_no_other(monkeypatch):
    """Notebooks and test runners ask every object for some, and comparing one with all public names takes milliseconds."""
    monkeypatch.setattr("curator_df.suggestions.name_of_ours", lambda name, names: pytest.fail(f"{name} was compared"))
    assert not any(hasattr(module, "_mock_name") for module in (cdf, cdf.profiles, cdf.minhash))

# SPDX-License-Identifier: Apache-2.0
"""Calls as users write them: the right name in the error, the choices in the signature, and nothing else changed."""

from __future__ import annotations

import inspect
import pickle
import warnings

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.arguments import did_you_mean_path
from curator_df.errors import ExpressionError, ParameterError

DOCS = dd.from_pandas(pd.DataFrame({"text": ["a"]}), npartitions=1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: cdf.write_parquet(DOCS, "x", overwrite=True), r"Did you mean on_existing='overwrite'\?"),
        (lambda: DOCS.curate.write_parquet("x", overwrite=True), r"Did you mean on_existing='overwrite'\?"),
        (
            lambda: cdf.keep_language(DOCS, language="en"),
            r"^keep_language has no parameter 'language'\. .*'languages'\?",
        ),
        (lambda: DOCS.pipe(cdf.keep_language, language="en"), r"Did you mean 'languages'\?"),
        (lambda: cdf.read_jsonl("x", column=["a"]), r"Did you mean 'columns'\?"),
        (lambda: cdf.drop_near_duplicates(DOCS, threshold=0.7), r"Did you mean 'jaccard_threshold'\?"),
        (lambda: cdf.drop_near_duplicates(DOCS, num_bands=7), r"setting of a Scheme, which scheme= takes"),
        (lambda: cdf.add_embedding(DOCS, "a", max_tokens=7), r"setting of a Model, which model= takes"),
        (lambda: cdf.add_class(DOCS, "a", revision="b"), r"setting of a Model, which classifier= takes"),
        (lambda: cdf.best("a", quickly=True), r"no parameter 'quickly'\. Its parameters are: column, which"),
        (lambda: cdf.write_parquet(DOCS, "x", "gzip"), r"'gzip' is number 3\. .*such as compression='gzip'"),
        (
            lambda: DOCS.curate.write_parquet("x", "gzip"),
            r"^write_parquet takes at most 1 argument without a name, and 'gzip' is number 2\. .*such as compression='gzip'",
        ),
        (
            lambda: DOCS.curate.checkpoint("x", DOCS),
            r"at most 1 argument without a name, and the DataFrame is number 2",
        ),
        (lambda: cdf.checkpoint(DOCS, "x", DOCS), r"at most 2 arguments without a name, and the DataFrame is number 3"),
        (
            lambda: cdf.start_cluster("1GB"),
            r"^start_cluster does not accept arguments without their names, .* such as memory='1GB'$",
        ),
        (lambda: DOCS.curate.keep_urls(["a"]), r"the list has none\. Pass it by name\. Its names are: block_lists, "),
        (lambda: cdf.concat(DOCS, DOCS), r"^concat takes its tables in one argument\. Pass a list or a dict of them$"),
        (
            lambda: cdf.write_many({"out": DOCS}, "jsonl"),
            r"^write_many takes at most 1 argument without a name, .* such as format='jsonl'$",
        ),
        (
            lambda: cdf.write_many(DOCS, "out"),
            r"^write_many takes one dict of folders and their tables, such as \{'train/': train, 'test/': test\}$",
        ),
        (lambda: cdf.keep_language(DOCS, "en", threshold=0.5), r"Did you mean 'min_score'\?"),
        (lambda: cdf.redact_pii(DOCS, entities=["email"]), r"Did you mean 'kinds' or 'presidio'\?"),
        (cdf.keep_where, r"^keep_where needs a table\. Call keep_where\(df, \.\.\.\), or "),
    ],
)
def test_a_call_that_does_not_fit_names_what_does(call, said):
    with pytest.raises(TypeError, match=said):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: DOCS.pipe(cdf.keep_where("text == 'a'")),
        lambda: cdf.keep_where("text == 'a'", DOCS),
        lambda: cdf.write_parquet("out", DOCS),
        lambda: cdf.keep_where(len, DOCS),
    ],
)
def test_a_call_without_its_table_in_the_first_place_says_so(call):
    said = r"^(\w+) expected a Dask DataFrame as its first argument; got \w+\. Call \1\(df, \.\.\.\), or write df\.pipe\(\1, "
    with pytest.raises(ExpressionError, match=said):
        call()


@pytest.mark.parametrize(
    ("look_up", "said"),
    [
        (lambda: cdf.drop_near_duplicate, r"Did you mean 'drop_near_duplicates'\?"),
        (lambda: cdf.profiles.GOFER, r"Did you mean 'DATATROVE_GOPHER_QUALITY', 'DATATROVE_GOPHER_REPETITION' or"),
        (lambda: cdf.profiles.DATATROVE_GOFER_QUALITY, r"Did you mean 'DATATROVE_GOPHER_QUALITY'\?"),
        (lambda: cdf.minhash.FINWEB, r"module 'curator_df\.minhash' .*Did you mean 'FINEWEB'\?"),
        (lambda: cdf.classifiers.DOMAN, r"module 'curator_df\.classifiers' .*Did you mean 'DOMAIN'\?"),
        (lambda: DOCS.keep_profile, r"use df\.curate\.keep_profile\(\.\.\.\) or df\.pipe\(curator_df\.keep_profile, "),
        (lambda: DOCS.keep_profil, r"keep_profile is an operator of curator_df"),
        (lambda: DOCS.curate.keep_profil, r"Did you mean 'keep_profile'\?"),
    ],
)
def test_a_name_that_is_misspelt_is_corrected(look_up, said):
    with pytest.raises(AttributeError, match=said):
        look_up()


def test_other_attributes_of_a_table_are_as_dask_has_them():
    assert DOCS.text.name == "text"
    assert not hasattr(DOCS, "keep_profile")
    with pytest.raises(AttributeError, match=r"^'DataFrame' object has no attribute 'rows'$"):
        DOCS.rows  # noqa: B018 - the look-up is the test


def test_signatures_show_the_choices():
    shown = inspect.signature(cdf.write_parquet).parameters
    assert shown["on_existing"].annotation == "Literal['raise', 'resume', 'overwrite']"
    assert shown["path"].annotation == "str | os.PathLike[str]"
    assert inspect.signature(cdf.model).parameters["model_inference_batch_size"].annotation == "int | Literal['auto']"
    method = inspect.signature(DOCS.curate.write_parquet).parameters
    assert method["on_existing"].annotation == shown["on_existing"].annotation


def test_public_functions_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(cdf.keep_language)) is cdf.keep_language


def test_warnings_show_the_line_of_the_user(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "number": 1}\n')
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cdf.read_jsonl(str(tmp_path), dtype={"numbr": "int64"})
    assert [each.filename for each in caught] == [__file__]


def test_paths_are_corrected(tmp_path):
    (tmp_path / "corpus" / "2026").mkdir(parents=True)
    (tmp_path / "corpus" / "2026" / "a.jsonl").write_text('{"text": "a"}\n')
    for wrong, right in (
        ("corpsu", "corpus"),
        ("corpsu/2026/*.jsonl", "corpus/2026/*.jsonl"),
        ("corpus/2025", "corpus/2026"),
    ):
        with pytest.raises(cdf.errors.InputError) as caught:
            cdf.read_jsonl(f"{tmp_path}/{wrong}")
        assert str(caught.value).endswith(f"Did you mean '{tmp_path}/{right}'?")
    with pytest.raises(cdf.errors.InputError, match=f"Did you mean '{tmp_path}/corpus'"):
        cdf.read_receipt(tmp_path / "corpsu")
    assert did_you_mean_path(f"{tmp_path}/nothing alike") == did_you_mean_path(f"{tmp_path}/*.jsonl") == ""


def test_relative_paths_are_corrected_too(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    assert did_you_mean_path("modle") == ". Did you mean 'model'?"


def test_a_table_in_the_place_of_a_folder_is_named_without_its_repr():
    with pytest.raises(ParameterError, match=r"^a table \(DataFrame\) was given where an output folder is needed"):
        cdf.push_to_hub(DOCS, "name/data")

# SPDX-License-Identifier: Apache-2.0
"""Operators as methods of a table, and what misspelt names say."""

import copy
import pickle

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf

DOCS = dd.from_pandas(pd.DataFrame({"text": ["to be or not to be", "a"]}), npartitions=1)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("keep_profil", "keep_profile"),
        ("drop_exact_duplicate", "drop_exact_duplicates"),
        ("write_parquets", "write_parquet"),
    ],
)
def test_a_misspelt_operator_is_corrected(name, meant):
    with pytest.raises(AttributeError, match=f"'{name}'.* Did you mean '{meant}'"):
        getattr(DOCS.curate, name)
    with pytest.raises(AttributeError, match=f"'{name}'.* Did you mean '{meant}'"):
        getattr(cdf, name)


def test_a_name_like_no_other_has_no_suggestion():
    with pytest.raises(AttributeError, match=r"has no attribute 'qqqq'\.$"):
        _ = cdf.qqqq
    assert not hasattr(DOCS.curate, "qqqq")
    with pytest.raises(AttributeError, match=r"has no operator 'qqqq'\. dir\(df\.curate\) lists the operators"):
        DOCS.curate.qqqq  # noqa: B018
    assert not hasattr(cdf, "qqqq")


@pytest.mark.parametrize(
    ("operator", "keyword", "meant"),
    [
        ("keep_language", "language", "Did you mean 'languages'"),
        ("write_parquet", "overwrite", "Did you mean on_existing='overwrite'"),
        ("normalize_unicode", "forms", "Did you mean 'form'"),
    ],
)
def test_an_unknown_keyword_is_corrected(operator, keyword, meant):
    with pytest.raises(TypeError, match=f"{operator} has no parameter '{keyword}'. {meant}"):
        getattr(DOCS.curate, operator)("x", **{keyword: "en"})


def test_the_accessor_can_be_copied_as_before():
    for made in (copy.copy(DOCS), pickle.loads(pickle.dumps(DOCS))):
        assert made.curate.normalize_whitespace().compute()["text"].tolist() == ["to be or not to be", "a"]

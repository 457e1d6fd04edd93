# SPDX-License-Identifier: Apache-2.0
"""Published profiles and schemes by name."""

from typing import get_args

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.errors import ParameterError
from curator_df.ops.duplicates import near_scheme
from curator_df.ops.filters.published import profile_of, scheme_of, schemes
from curator_df.ops.filters.rules import ProfileName
from tests.contracts.operator_cases import kernels_of

DOCS = dd.from_pandas(pd.DataFrame({"text": ["to be or not to be", "a"]}), npartitions=1)
PROFILES = [getattr(cdf.profiles, name) for name in cdf.profiles.__all__ if name.isupper()]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_profile_is_found_by_its_name(profile):
    assert profile_of("keep_profile", profile.name) is profile_of("keep_profile", profile) is profile


def test_every_scheme_is_found_by_its_name():
    published = {name.lower() for name in cdf.minhash.__all__ if name.isupper()}
    assert set(schemes()) == published == {"default", "nemo", "fineweb", "data_juicer", "redpajama_v2"}
    assert scheme_of("add_minhash", "fineweb") is cdf.minhash.FINEWEB


def test_operators_take_names():
    (named,), (given,) = (
        kernels_of(cdf.keep_profile(DOCS, one)) for one in ("fineweb_paper", cdf.profiles.FINEWEB_PAPER)
    )
    assert named.parameters["profile"] == given.parameters["profile"]
    assert len(cdf.describe_drops(DOCS, "fineweb_paper")) == len(cdf.describe_drops(DOCS, cdf.profiles.FINEWEB_PAPER))
    (kernel,) = kernels_of(cdf.add_minhash(DOCS, scheme="fineweb"))
    assert kernel.parameters["scheme"] == cdf.minhash.FINEWEB


@pytest.mark.parametrize("name", ["fineweb-paper", "FINEWEB_PAPER", "fineweb_pap"])
def test_a_misspelt_name_is_corrected(name):
    with pytest.raises(ParameterError, match="Did you mean 'fineweb_paper'"):
        cdf.keep_profile(DOCS, name)


@pytest.mark.parametrize("value", [None, 5, "", ["fineweb"]])
def test_other_values_are_refused(value):
    for operator in (cdf.keep_profile, cdf.add_profile, cdf.describe_drops):
        wrong = (
            "is a list. To apply several profiles, add them" if isinstance(value, list) else "is neither a Profile nor"
        )
        with pytest.raises(ParameterError, match=rf"{operator.__name__}: profile=.*{wrong}"):
            operator(DOCS, value)
    with pytest.raises(ParameterError, match=r"scheme=.* is neither a Scheme nor"):
        cdf.add_minhash(DOCS, scheme=value)


@pytest.mark.parametrize("many", [False, True])
def test_the_default_scheme_alone_follows_the_number_of_rows(monkeypatch, many):
    monkeypatch.setattr(near_scheme, "has_many_rows", lambda df: many)
    for scheme, wide in (("default", many), (cdf.minhash.DEFAULT, many), ("nemo", False), ("fineweb", True)):
        (kernel,) = kernels_of(cdf.add_minhash(DOCS, scheme=scheme))
        assert kernel.parameters["scheme"].use_64_bit_hash is wide


def test_a_changed_scheme_is_another():
    changed = cdf.minhash.FINEWEB.replace(num_bands=20)
    assert (changed.num_bands, changed.ngram_size, changed.name) == (20, 5, "custom")
    with pytest.raises(ParameterError, match=r"a scheme has no parameter 'bands'\. Did you mean 'num_bands'"):
        cdf.minhash.FINEWEB.replace(bands=20)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_profiles_named_after_a_system_have_its_words(profile):
    of_datatrove = profile.name.startswith(("datatrove_", "fineweb_"))
    assert profile.words == ("datatrove" if of_datatrove else "whitespace")


def test_words_are_an_argument_of_what_applies_a_profile():
    # Ten words between white space, and twenty tokens with the marks.
    docs = dd.from_pandas(pd.DataFrame({"text": ["the, " * 10]}), npartitions=1)
    profile = cdf.Profile("few", "1", "example", (cdf.Rule("word_count", "<=", 15, "many"),), words="datatrove")
    for words, reason in ((None, "many"), ("datatrove", "many"), ("whitespace", None)):
        found = cdf.add_profile(docs, profile, words=words).compute(scheduler="synchronous")["reason"].iloc[0]
        assert (None if found is pd.NA else found) == reason
        assert len(cdf.keep_profile(docs, profile, words=words).compute(scheduler="synchronous")) == (reason is None)
        funnel = cdf.describe_drops(docs, profile, words=words).set_index("reason")
        assert funnel.loc["many", "rows_dropped"] == (reason == "many")
    with pytest.raises(ParameterError, match="words='spacy'"):
        cdf.keep_profile(docs, profile, words="spacy")
    counted = docs.assign(word_count=10)
    with pytest.raises(ParameterError, match=r"words='icu' changes nothing with from_metrics=True.*to add_metrics"):
        cdf.keep_profile(counted, profile, words="icu", from_metrics=True)


def test_a_profile_without_rules_on_words_takes_those_of_the_other():
    digits = cdf.Profile("digits", "1", "ours", (cdf.Rule("digit_ratio", "<=", 0.5, "digits"),))
    for profile in (digits + cdf.profiles.DATATROVE_C4, cdf.profiles.DATATROVE_C4 + digits):
        assert profile.words == "datatrove"
    short = cdf.Profile("short", "1", "ours", (cdf.Rule("word_count", ">=", 3, "short"),))
    with pytest.raises(ParameterError, match=r"Give both the same words, as with short\.replace\(words='datatrove'\)"):
        cdf.profiles.DATATROVE_C4 + short
    assert (cdf.profiles.DATATROVE_C4 + short.replace(words="datatrove")).words == "datatrove"


def test_the_names_in_signatures_are_those_of_the_published_profiles():
    assert sorted(get_args(ProfileName)) == sorted(profile.name for profile in PROFILES)

# SPDX-License-Identifier: Apache-2.0
"""Limits by file extension, from a table of the user; and the same of NeMo Curator, run by a Python that has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import curator_df as cdf
from curator_df.errors import InputError, ParameterError
from curator_df.ops.filters.profile import add_profile_block, keep_profile_block
from curator_df.profiles import nemo_per_extension
from tests.profiles.peers import SHORT_TEXTS, Peer, real_texts, running

TABLE = """,extension,language,count,Include,Alphanum_threshold,Long_line_threshold,,Alpha filter
0,py,python,1000,1,0.25,40,,0.5
1,pyx,python,10,1,0.25,remove,,
2,pyw,python,10,1,,"Custom! Can, we",,0.25
3,pyc,python,10,0,,,,
4,pyi,python,10,1,,,,
5,py3,python,10,1,nan,0,,0.25
6,,dockerfile,10,1,0.25,1000,,
7,cs,c-sharp,10,1,0.25,1000,,
8,py3,python,10,1,nan,12,,0
"""
"""Values of this test, in the columns of BigCode's table and with notes where numbers are expected, as there."""
FILES = (("python", "py"), ("python", "pyx"), ("python", "pyw"), ("python", "py3"), ("dockerfile", ""))
PYTHON = os.environ.get("CURATOR_DF_NEMO_PYTHON", "")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "code_meta.csv"
    path.write_text(TABLE)
    return path


def rules(table: Path, language: str, extension: str) -> list[str]:
    return [str(rule) for rule in nemo_per_extension(table, language=language, extension=extension).rules]


def test_a_row_is_a_profile(table):
    longest, mean = "longest_line_length <= 40", "mean_line_length <= 100"
    assert rules(table, "Python", "py") == [longest, mean, "alphanumeric_ratio >= 0.25", "letter_ratio >= 0.5"]
    assert rules(table, "python", "pyx") == ["alphanumeric_ratio >= 0.25"]
    assert rules(table, "python", "pyw") == ["letter_ratio >= 0.25"]
    assert rules(table, "python", "py3") == ["longest_line_length <= 12", mean], "the last of two rows"
    assert rules(table, "Dockerfile", "")[0] == "longest_line_length <= 1000"
    assert rules(table, "C#", "cs") == rules(table, "Dockerfile", "")
    profile = nemo_per_extension(table, language="python", extension="py")
    assert (profile.name, profile.version) == ("nemo_per_extension python py", "0.9.0")
    assert all("code_meta.csv, python, 'py'" in rule.source for rule in profile.rules)


def test_what_the_table_does_not_keep_is_an_error(table, tmp_path):
    for extension, message in (
        ("pyc", r"marks python files \.pyc as excluded .*Drop rows with this extension first"),
        ("pyi", r"sets no limit for python files \.pyi, so all of them are kept\. Leave this language and"),
        (
            "rs",
            r"no row for the extension 'rs' of 'python'\. Use another .* for this language: 'py', 'py3', 'pyc'",
        ),
    ):
        with pytest.raises(ParameterError, match=message):
            nemo_per_extension(table, language="python", extension=extension)
    with pytest.raises(ParameterError, match="an extension that the table has for this language: none"):
        nemo_per_extension(table, language="Rust", extension="rs")
    with pytest.raises(InputError, match="cannot be read"):
        nemo_per_extension(tmp_path / "none.csv", language="python", extension="py")
    short = tmp_path / "short.csv"
    short.write_text("language,extension\n")
    with pytest.raises(
        InputError, match="has no column 'Include', 'Long_line_threshold', 'Alphanum_threshold', 'Alpha filter'"
    ):
        nemo_per_extension(short, language="python", extension="py")


def test_rows_are_dropped_for_their_lines_and_letters(table):
    texts = ["x = 1 # a comment\n" * 3, "a" * 41, "\n" * 9 + "+ - ( )" * 5, "x1234567\n" * 4, "", None]
    docs = dd.from_pandas(pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}), npartitions=2)
    profile = nemo_per_extension(table, language="python", extension="py").replace(letter_ratio=0.2)
    reasons = docs.pipe(cdf.add_profile, profile, add_metrics=False).compute()["reason"]
    assert [None if reason is pd.NA else reason for reason in reasons] == [
        None,
        "per_extension_line_max",
        "per_extension_alphanum",
        "per_extension_alpha",
        "per_extension_alphanum",
        "missing_text",
    ]
    block = pd.DataFrame({"text": pd.array(texts[1:2], "string[pyarrow]")})
    _, why = keep_profile_block(block, profile=profile, text="text", add_metrics=False).rejects()
    assert (list(why["rule"]), list(why["value"])) == (["longest_line_length <= 40"], [41.0])


@pytest.fixture(scope="module")
def nemo() -> Iterator[Peer]:
    if not PYTHON:
        pytest.skip("needs CURATOR_DF_NEMO_PYTHON: a Python that has nemo_curator 0.9.0")
    with running(PYTHON, "nemo_scores.py") as peer:
        assert peer.hear()[0] == "0.9.0"
        yield peer


def assert_equal(peer: Peer, table: Path, texts: list[str]) -> None:
    block = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")})
    for language, extension in FILES:
        profile = nemo_per_extension(table, language=language, extension=extension)
        ours = add_profile_block(block, profile=profile, text="text", reason="reason", add_metrics=False)["reason"]
        for text, reason in zip(texts, ours, strict=True):
            score = peer.ask(["extension", [str(table), language, extension, text]])
            assert (score is None and text == "") or score == pd.isna(reason), (extension, text)


@pytest.mark.peer
@settings(max_examples=200)
@given(
    st.lists(
        st.lists(SHORT_TEXTS | st.sampled_from(["\n", "x" * 38, "word,", "Ⅷ", "é\u0301"]), max_size=12).map("".join)
    )
)
@example(["", "\n", "x" * 40, "x" * 41, "a\n" * 3, "x" * 101, ("y" * 100 + "\n") * 3, "ab+-", "a+-*", "\r\n"])
def test_any_text_is_judged_as_by_nemo(nemo, table, texts):
    assert_equal(nemo, table, texts)


@pytest.mark.peer
def test_real_documents_are_judged_as_by_nemo(nemo, table, shared_data):
    assert_equal(nemo, table, real_texts(shared_data)[::40])

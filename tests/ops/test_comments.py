# SPDX-License-Identifier: Apache-2.0
"""`add_comment_ratio`: what is counted in each language, and what a plan knows of it. Parity is in tests/profiles."""

from __future__ import annotations

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.errors import ColumnError, ParameterError
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.metrics.source.comments import (
    FAMILIES,
    NOT_ENDED,
    PYTHON_FACTOR,
    comment_ratios,
    python_comments,
)
from curator_df.profiles import NEMO_CODE, NEMO_CODE_COMMENTS, NEMO_CODE_TOKENS
from tests.contracts.operator_cases import computed, kernels_of


def table(texts):
    return dd.from_pandas(pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}), npartitions=1)


def characters(language, text):
    ratios, failed = comment_ratios(pd.Series([text], dtype="string[pyarrow]"), language, 1000)
    return NOT_ENDED if failed else ratios[0] * len(text)


@pytest.mark.parametrize(
    ("language", "text", "count"),
    [
        ("c", 'x = "// no"; // yes', 4),
        ("c", "/* \u6f22 */ a /*b*/", 5),
        ("c", "/* a", NOT_ENDED),
        ("c", "'// yes'", 5),
        ("c++", "//a\n//b", 3),
        ("c#", "a // b", 2),
        ("java", "a // b", 2),
        ("go", "`\n// no`; // yes", 4),
        ("javascript", "'// no' // yes", 4),
        ("javascript", "`// yes", 4),
        ("html", "<p><!-- a --></p>", 3),
        ("xml", "<!-- a", NOT_ENDED),
        ("ruby", "x = '# no' # yes", 4),
        ("shell", "echo \\# '# no' # yes", 4),
        ("python", "# a\ndef f():\n    'doc'\n", 6),
        ("python", "def", NOT_ENDED),
    ],
)
def test_what_is_a_comment(language, text, count):
    assert characters(language, text) == pytest.approx(count)


def test_the_languages_are_those_of_the_kernel():
    from curator_df.kernels.metrics.source import comments as comment_scan

    families = ("C", "GO", "JAVASCRIPT", "HTML", "RUBY", "SHELL")
    assert sorted(set(FAMILIES.values())) == [getattr(comment_scan, name) for name in families]


@pytest.mark.parametrize("language", sorted(set(FAMILIES) - {"c++", "c#", "java", "xml"}))
@pytest.mark.parametrize("piece", ['"', "'", "/*", "/", "*", "#", "<!--", "\\", "//\n", "/**/", '"\\'])
def test_one_piece_over_and_over_is_read_to_the_end(language, piece):
    """A time that grows with the square of a text would end no test."""
    comment_ratios(pd.Series([piece * (2_000_000 // len(piece))], dtype="string[pyarrow]"), language, 1000)


def test_source_that_python_cannot_parse_has_none():
    assert python_comments("(" * 1000) is None
    assert python_comments("-" * 100_000 + "1") is None
    assert python_comments("a\0b") is None
    ratios, failed = comment_ratios(pd.Series(["# long", "#", None, ""], dtype="string[pyarrow]"), "python", 5)
    assert (ratios.tolist(), failed) == ([0, 1, 0, 0], 1)


def test_the_plan_has_room_for_a_parsed_file():
    [kernel] = kernels_of(cdf.add_comment_ratio(table(["a"]), language="python", max_file_size="1MB"))
    assert kernel.price.fixed_bytes == PYTHON_FACTOR * 10**6
    [kernel] = kernels_of(cdf.add_comment_ratio(table(["a"]), language="c"))
    assert (kernel.price.fixed_bytes, kernel.compiled) == (0, kernel_sets.COMMENTS)


def test_rules_of_the_code_chain_are_on_the_columns():
    code = "x = 1\n" * 6
    docs = table([code + "# a comment", code, "def\n" * 6, None, "# a"])
    with pytest.raises(ColumnError, match="keep_profile needs the column 'comment_ratio'"):
        cdf.keep_profile(docs, NEMO_CODE + NEMO_CODE_COMMENTS)
    added = docs.pipe(cdf.add_comment_ratio, "python")
    judged = computed(added.pipe(cdf.add_profile, NEMO_CODE + NEMO_CODE_COMMENTS))
    assert judged["reason"].astype(object).where(judged["reason"].notna(), None).tolist() == [
        None,
        "alpha_filter",
        "comment_ratio_min",
        "missing_text",
        "num_lines_min",
    ]
    assert NEMO_CODE_TOKENS.metrics == ("characters_per_token",)


def test_what_cannot_be_asked_for():
    with pytest.raises(ParameterError, match="language='perl' is not one of 'c', 'c\\+\\+'"):
        cdf.add_comment_ratio(table(["a"]), language="perl")
    with pytest.raises(ParameterError, match="max_file_size=0 must be more than zero"):
        cdf.add_comment_ratio(table(["a"]), language="python", max_file_size=0)


def by_extension(*rows, npartitions=1):
    made = pd.DataFrame(rows, columns=["ext", "text"]).astype("string[pyarrow]")
    return dd.from_pandas(made, npartitions=npartitions)


@pytest.mark.parametrize("npartitions", [1, 3])
def test_the_language_of_each_text_may_come_from_a_column(npartitions):
    rows = [("py", "x = 1  # one"), (".C", "// a"), ("zig", "// a"), (None, "// a"), ("Python", "# b"), ("cpp", None)]
    added = computed(cdf.add_comment_ratio(by_extension(*rows, npartitions=npartitions), language="ext"))
    alone = [
        computed(cdf.add_comment_ratio(by_extension(rows[number]), language=language))["comment_ratio"].iloc[0]
        for number, language in ((0, "python"), (1, "c"), (4, "python"))
    ]
    assert added["comment_ratio"].iloc[[0, 1, 4]].tolist() == alone
    assert added["comment_ratio"].isna().tolist() == [False, False, True, True, False, True]


def test_texts_in_other_languages_are_counted():
    df = by_extension(("py", "("), ("zig", "// a"), (None, "// a"))
    [kernel] = kernels_of(cdf.add_comment_ratio(df, language="ext", max_file_size="1MB"))
    outcome = kernel.run(computed(df))
    assert outcome.counters == {"texts_not_parsed": 1, "texts_in_other_languages": 2}
    assert kernel.price.fixed_bytes == PYTHON_FACTOR * 1_000_000
    assert kernel.compiled == kernel_sets.COMMENTS


def test_a_name_that_is_neither_a_language_nor_a_column_is_refused():
    with pytest.raises(ParameterError, match=r"language='pyton' is not one of .* Did you mean 'python'"):
        cdf.add_comment_ratio(by_extension(("py", "a")), language="pyton")
    with pytest.raises(ParameterError, match=r"language='etx' is not one of .*, nor a column.* Did you mean 'ext'"):
        cdf.add_comment_ratio(by_extension(("py", "a")), language="etx")
    with pytest.raises(ParameterError, match=r"language=\['python'\] is not one of"):
        cdf.add_comment_ratio(by_extension(("py", "a")), language=["python"])

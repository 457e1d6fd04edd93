# SPDX-License-Identifier: Apache-2.0
"""Operators on cuDF blocks: on stand-ins for them in numba's simulator, and on real ones where there is a GPU."""

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest

import curator_df as cdf
from curator_df.profiles import (
    DATATROVE_C4,
    DATATROVE_FINEWEB,
    DATATROVE_GOPHER_QUALITY,
    DATATROVE_GOPHER_REPETITION,
    DCLM_REPETITION,
    NEMO_CODE,
)
from tests.contracts.operator_cases import CASES
from tests.contracts.operator_rows import ROWS
from tests.gpu.chains import TEXTS as CHAIN_TEXTS
from tests.gpu.scripts import STOP_WORDS_OF_TEST, put_texts, run_script

METRICS = ["word_count", "mean_word_length", "duplicate_line_ratio", "digit_ratio"]
TEXTS = [*CHAIN_TEXTS, "\U0001f600 " * 20, "\n\n\n", None, "http://a.b/c" * 4, "1234 5678"]
OPERATORS = {
    "add_metrics": lambda df: cdf.add_metrics(df, METRICS),
    "keep_profile": lambda df: cdf.keep_profile(df, DATATROVE_FINEWEB, words="whitespace", add_metrics=True),
    "keep_code": lambda df: cdf.keep_profile(df, NEMO_CODE),
    "keep_repetition": lambda df: cdf.keep_profile(
        df, DATATROVE_GOPHER_REPETITION, words="whitespace", add_metrics=True
    ),
    "keep_dclm": lambda df: cdf.keep_profile(df, DCLM_REPETITION, add_metrics=True),
    "add_c4": lambda df: cdf.add_profile(df, DATATROVE_C4, words="whitespace", add_metrics=True),
    "add_stop_words": lambda df: cdf.add_metrics(
        df, DATATROVE_GOPHER_QUALITY.replace(words="whitespace", stop_words=STOP_WORDS_OF_TEST)
    ),
    "add_profile": lambda df: cdf.add_profile(df, DATATROVE_FINEWEB, words="whitespace"),
    "add_ids": lambda df: cdf.add_ids(df, into="number"),
    "sample_rows": lambda df: cdf.sample_rows(df, 0.5),
    "sample_content": lambda df: cdf.sample_rows(df, 0.5, by="content"),
    "split_rows": lambda df: cdf.split_rows(df, {"a": 0.5, "b": 0.5}, by="address")["b"],
    "split_groups": lambda df: cdf.split_rows(df, {"a": 0.5, "b": 0.5}, by="address", group_column="text")["b"],
    "keep_where": lambda df: cdf.keep_where(df, "id > 3"),
    "keep_where_null": lambda df: cdf.keep_where(df, lambda block: block["text"] > "a"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    put_texts(pa.array(TEXTS, pa.large_string()), folder / "texts.arrow")
    run_script("simulated_blocks", folder / "texts.arrow", folder, simulated=True)
    return folder


def rows():
    index = pd.Index(range(10, 10 + 3 * len(TEXTS), 3), name="address")
    return pd.DataFrame({"id": range(len(TEXTS)), "text": pd.array(TEXTS, "string[pyarrow]")}, index=index)


def plain(block):
    """Return numbers as floats with NaN for null, which is how both kinds of blocks can be compared."""
    texts = [name for name in ("text", "reason") if name in block]
    numbers = block.drop(columns=texts).astype("Float64").astype(float)
    return numbers.assign(**{name: block[name].astype("string[pyarrow]") for name in texts})


@pytest.mark.parametrize("name", OPERATORS)
def test_stand_ins_in_the_simulator_give_the_rows_of_the_cpu(folder, name):
    found = pd.read_pickle(folder / f"{name}.pickle")
    expected = OPERATORS[name](dd.from_pandas(rows(), npartitions=1)).compute()
    assert len(expected) > 0
    assert name.startswith("add_") or len(expected) < len(TEXTS)
    pd.testing.assert_frame_equal(plain(found), plain(expected), check_exact=True)


def test_what_has_no_kernel_is_refused_with_the_way_out(folder):
    said = pd.read_pickle(folder / "refusals.pickle")
    for message, expected in zip(
        said,
        [
            r"add_metrics cannot measure short on cuDF blocks; .*'pandas'\)",
            r"only at white space, and words='datatrove' was set.* Pass words='whitespace', or convert",
            r"keep_profile cannot measure html_text_ratio on cuDF blocks;",
            r"keep_profile reads metrics from columns only in host memory",
            r"add_profile cannot measure html_text_ratio on cuDF blocks;",
            r"sample_rows can hash only one column of text of a table on a GPU \(cudf blocks\), but was given 'id', 'text'; ",
            r"add_ids works on pandas blocks, and this table has cudf blocks",
            r"remove_repeated_parts works on pandas blocks",
        ],
        strict=True,
    ):
        assert pd.Series([message]).str.contains(expected)[0], message


@pytest.mark.parametrize("name", OPERATORS)
def test_real_blocks_give_the_rows_of_the_cpu(backend, npartitions, name):
    docs = dd.from_pandas(rows(), npartitions=npartitions)
    found = OPERATORS[name](docs.to_backend(backend)).to_backend("pandas").compute()
    pd.testing.assert_frame_equal(plain(found), plain(OPERATORS[name](docs).compute()), check_exact=True)


@pytest.mark.parametrize("case", [case for case in CASES if "cudf" in case.backends and not case.waits], ids=str)
def test_cases_give_the_rows_of_the_cpu(backend, case):
    docs = dd.from_pandas(ROWS, npartitions=2)
    found = case(docs.to_backend(backend)).to_backend("pandas").compute()
    pd.testing.assert_frame_equal(
        plain(found.drop(columns="title")), plain(case(docs).compute().drop(columns="title")), check_exact=True
    )

# SPDX-License-Identifier: Apache-2.0
"""Run operators on blocks that stand in for cuDF's, in numba's CUDA simulator, and write what comes out: a script."""

import sys
import warnings
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

import curator_df as cdf
from curator_df.errors import UnsupportedBackendError
from curator_df.ops.filters.rules import Profile, Rule
from curator_df.ops.filters.user_metrics import UserMetric
from curator_df.profiles import (
    DATATROVE_C4,
    DATATROVE_FINEWEB,
    DATATROVE_GOPHER_QUALITY,
    DATATROVE_GOPHER_REPETITION,
    DCLM_REPETITION,
    NEMO_CODE,
    NEMO_CODE_HTML,
)
from tests.gpu.scripts import STOP_WORDS_OF_TEST
from tests.gpu.simulator import take_turns
from tests.gpu.stand_ins import DataFrame, stand_in_for_cudf


def table(texts):
    """Return a Dask table of such blocks."""
    index = pd.Index(range(10, 10 + 3 * len(texts), 3), name="address")
    block = DataFrame({"id": range(len(texts)), "text": pd.array(texts, "string[pyarrow]")}, index=index)
    return dd.from_map(lambda part: block.iloc[part], [slice(0, 9), slice(9, 9), slice(9, None)], meta=block.iloc[:0])


def starts_late(block):
    """Tell where a text is greater than a word: null where it is null."""
    return block["text"] > "a"


SHORT = UserMetric("short", lambda text: int(len(text) < 9))


def refusals(docs):
    """Yield what is said of calls that have no kernel, and of Dask's own moves in a run."""
    for call in (
        lambda: cdf.add_metrics(docs, ["word_count", SHORT]),
        lambda: cdf.add_metrics(docs, ["word_count"], words="datatrove"),
        lambda: cdf.keep_profile(docs.assign(html_text_ratio=0.5), NEMO_CODE_HTML),
        lambda: cdf.keep_profile(docs.assign(word_count=1), LENGTHS, from_metrics=True),
        lambda: cdf.add_profile(docs.assign(html_text_ratio=0.5), NEMO_CODE_HTML),
        lambda: cdf.sample_rows(docs, 0.5, by="content", subset=["id", "text"]),
        lambda: cdf.add_ids(docs, identity="content"),
        lambda: cdf.remove_repeated_parts(docs, "lines"),
    ):
        try:
            call()
        except UnsupportedBackendError as exc:
            yield str(exc)
        else:
            raise AssertionError("a call was not refused")


LENGTHS = Profile("lengths", "1", "ours", (Rule("word_count", ">", 0, "empty"),))


def main(source, folder):
    folder = Path(folder)
    warnings.simplefilter("ignore")
    take_turns()
    stand_in_for_cudf()
    docs = table(pa.ipc.open_file(source).get_batch(0).column(0).to_pylist())
    metrics = ["word_count", "mean_word_length", "duplicate_line_ratio", "digit_ratio"]
    results = {
        "add_metrics": cdf.add_metrics(docs, metrics),
        "keep_profile": cdf.keep_profile(docs, DATATROVE_FINEWEB, words="whitespace", add_metrics=True),
        "keep_code": cdf.keep_profile(docs, NEMO_CODE),
        "keep_repetition": cdf.keep_profile(docs, DATATROVE_GOPHER_REPETITION, words="whitespace", add_metrics=True),
        "keep_dclm": cdf.keep_profile(docs, DCLM_REPETITION, add_metrics=True),
        "add_profile": cdf.add_profile(docs, DATATROVE_FINEWEB, words="whitespace"),
        "add_c4": cdf.add_profile(docs, DATATROVE_C4, words="whitespace", add_metrics=True),
        "add_stop_words": cdf.add_metrics(
            docs, DATATROVE_GOPHER_QUALITY.replace(words="whitespace", stop_words=STOP_WORDS_OF_TEST)
        ),
        "add_ids": cdf.add_ids(docs, into="number"),
        "sample_rows": cdf.sample_rows(docs, 0.5),
        "sample_content": cdf.sample_rows(docs, 0.5, by="content"),
        "split_rows": cdf.split_rows(docs, {"a": 0.5, "b": 0.5}, by="address")["b"],
        "split_groups": cdf.split_rows(docs, {"a": 0.5, "b": 0.5}, by="address", group_column="text")["b"],
        "keep_where": cdf.keep_where(docs, "id > 3"),
        "keep_where_null": cdf.keep_where(docs, starts_late),
    }
    for name, result in results.items():
        found = result.compute(scheduler="synchronous")
        assert type(found) is DataFrame
        assert list(found.dtypes.index) == list(result.dtypes.index)
        pd.DataFrame(found).to_pickle(folder / f"{name}.pickle")
    pd.Series(list(refusals(docs))).to_pickle(folder / "refusals.pickle")


if __name__ == "__main__":
    main(*sys.argv[1:])

# SPDX-License-Identifier: Apache-2.0
"""Kept rows are those of pandas, in every dtype, in chunks and slices."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curator_df.kernels.rows.keep_rows import keep_rows
from tests.examples import examples

DTYPES = [
    "str",
    "string[pyarrow]",
    "string[python]",
    pd.ArrowDtype(pa.string()),
    pd.ArrowDtype(pa.large_string()),
    object,
    "category",
]


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=5)), st.booleans()), max_size=12), st.sampled_from(DTYPES)
)
def test_kept_rows_are_those_of_pandas(rows, dtype):
    texts = [text for text, _ in rows]
    block = pd.DataFrame({"number": np.arange(len(rows)), "text": pd.Series(texts, dtype=dtype), "flag": True})
    block.index = pd.Index(np.arange(len(rows)) * 3, name="address")
    keep = np.array([kept for _, kept in rows], dtype=bool)
    pd.testing.assert_frame_equal(keep_rows(block, keep), block[keep])


def test_many_rows_over_spans_chunks_and_slices():
    rows = 10_000
    array = pa.array([None if number % 7 == 0 else f"text {number}" for number in range(rows + 2)], pa.large_string())
    chunked = pa.chunked_array([array.slice(1, 3000), array.slice(3001, 7000)])
    block = pd.DataFrame({"text": pd.Series(pd.StringDtype("pyarrow").__from_arrow__(chunked))})
    keep = np.random.default_rng(0).random(rows) < 0.5
    kept = keep_rows(block, keep)
    pd.testing.assert_frame_equal(kept, block[keep])
    for chunk in kept["text"].array.__arrow_array__().chunks:
        chunk.validate(full=True)


@pytest.mark.parametrize("keep", [[True, True], []])
def test_a_block_of_which_all_rows_are_kept_is_returned(keep):
    block = pd.DataFrame({"text": ["a", "b"][: len(keep)]})
    assert keep_rows(block, np.array(keep, dtype=bool)) is block

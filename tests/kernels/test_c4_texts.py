# SPDX-License-Identifier: Apache-2.0
"""`keep_c4_lines` on columns of every kind."""

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from curator_df.kernels.metrics.c4.c4_texts import keep_c4_lines

LINES = st.sampled_from(
    [
        "It was the best of times.",
        "It was the best of times",
        "[1] The end.[12]",
        "[citation needed] a b c.[",
        "two words.",
        "wait for it...",
        'He said "no more."',
        "It uses cookies on this site.",
        "use of c[1]ookies here.",
        "JAVAscript is needed here.",
        "java[edit]script is needed here.",
        "a lorem  ipsum text.",
        "a Lorem Ipsum text.",
        "a curly { bracket.",
        "\u3000an ideographic space.\u2003",
        "漢字 です 。.",
        "",
        " ",
    ]
)
BREAKS = st.sampled_from(["\n", "\n", "\r\n", "\r", "\x0b", "\x1c", "\x85", "\u2028", "\x1f", " "])
TEXTS = st.lists(st.one_of(LINES, st.text(max_size=6)).flatmap(lambda line: BREAKS.map(line.__add__)), max_size=8).map(
    "".join
)


@pytest.mark.parametrize(
    "dtype",
    ["str", "string[pyarrow]", "string[python]", pd.ArrowDtype(pa.string()), pd.ArrowDtype(pa.large_string()), object],
)
def test_every_text_dtype_gives_the_same(dtype):
    texts = pd.Series(["A line that stays.\nnot this", None, "é"], dtype=dtype, index=[5, 6, 7], name="body")
    kept, rows_changed = keep_c4_lines(texts)
    assert rows_changed == 2
    assert kept.dropna().tolist() == ["A line that stays.", ""]
    assert kept.isna().tolist() == [False, True, False]
    assert (kept.index.tolist(), kept.name) == ([5, 6, 7], "body")


def test_chunks_and_slices_are_respected():
    chunk = pa.chunked_array([pa.array(["x", "A line that stays.\nno", None, "y z"]).slice(1), pa.array(["b c d."])])
    texts = pd.Series(pd.StringDtype("pyarrow").__from_arrow__(chunk))
    kept, rows_changed = keep_c4_lines(texts)
    assert rows_changed == 2
    assert kept.fillna("null").tolist() == ["A line that stays.", "null", "", "b c d."]


def test_a_column_that_stays_is_the_same_object():
    texts = pd.Series(["A line that stays.", None], dtype="string[pyarrow]")
    kept, rows_changed = keep_c4_lines(texts)
    assert kept is texts and rows_changed == 0

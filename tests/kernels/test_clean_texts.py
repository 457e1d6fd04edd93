# SPDX-License-Identifier: Apache-2.0
"""Cleaned texts are those of the regular expressions that define them."""

import re

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.kernels.edits.clean_texts import clean_texts
from tests.examples import examples

# nemo_curator 0.9.0: modifiers/url_remover.py and modifiers/newline_normalizer.py.
URL = re.compile(r"https?://\S+|www\.\S+", re.IGNORECASE)
PIECES = st.one_of(
    st.sampled_from(
        ["\n", "\r\n", "\r", "\n\n", "\r\n\r\n", " ", "\u3000", "a", "HTTPS://", "http://", "www.", "Www.a", "h"]
    ),
    st.sampled_from(["http\u017f://", "http\u017f", "https:/", "://x", "wwww.b", "é", "漢", "\x1f", "\u200b"]),
    st.text(max_size=3),
)
TEXTS = st.lists(PIECES, max_size=20).map("".join)


def without_urls(text: str) -> str:
    return URL.sub("", text)


def short_line_ends(text: str) -> str:
    return re.sub(r"(\r\n){3,}", "\r\n\r\n", re.sub(r"\n{3,}", "\n\n", text))


@pytest.mark.parametrize(("what", "reference"), [("urls", without_urls), ("line_ends", short_line_ends)])
@settings(max_examples=examples(400))
@given(texts=st.lists(st.none() | TEXTS, max_size=4))
@example(
    texts=[
        "",
        None,
        "\r\n\r\n\r\n\n\n",
        "\r\n\n\r\n\r\n\r\n",
        "\n\r\n\r\n\r\n\r\n\r",
        "www. x",
        "https://",
        "hhttp://a b",
    ]
)
def test_any_text_is_cleaned_as_the_expression_says(what, reference, texts):
    column = pd.Series(texts, dtype="string[pyarrow]", name="text", index=range(5, 5 + len(texts)))
    cleaned, rows_changed = clean_texts(column, what)
    wanted = [None if text is None else reference(text) for text in texts]
    assert [None if text is pd.NA else text for text in cleaned] == wanted
    assert rows_changed == sum(text != after for text, after in zip(texts, wanted, strict=True))
    assert cleaned.index.equals(column.index) and cleaned.name == "text"
    assert rows_changed or cleaned is column


def test_slices_and_long_texts_are_cleaned():
    column = pd.Series(["x", "a\n\n\nb" * 10_000, "http://a " * 5000, "y"], dtype="string[pyarrow]")[1:3]
    assert clean_texts(column, "line_ends")[0].tolist() == ["a\n\nb" * 10_000, "http://a " * 5000]
    assert clean_texts(column, "urls")[0].tolist() == ["a\n\n\nb" * 10_000, " " * 5000]

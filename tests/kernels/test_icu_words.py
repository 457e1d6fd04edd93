# SPDX-License-Identifier: Apache-2.0
"""Words by ICU, of languages with white space between words and of those without."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("icu4py", reason="needs icu4py: pip install 'curator-df[icu]'")

from curator_df.kernels.english_tokens import spans as icu_words
from curator_df.kernels.english_tokens.spans import token_spans
from curator_df.kernels.metrics.measure import measure
from curator_df.kernels.text.buffers import text_spans

SCRIPTS = st.sampled_from(
    ["我喜欢学习。", "ภาษาไทย", "東京へ行く", "l'homme", "can't", " ", "\n", "\r\n", "🇩🇪", "e\u0301", "\0"]
)
TEXTS = st.lists(SCRIPTS | st.text(max_size=4), max_size=12).map("".join)


def tokens(texts: list[str | None]) -> list[list[str]]:
    found: list[list[str]] = []
    for span in text_spans(pd.Series(texts, dtype="string[pyarrow]")):
        for rows in token_spans(span, "icu"):
            places = zip(rows.offsets[:-1], rows.offsets[1:], strict=True)
            found += [rows.data[start:stop].tobytes().decode().split() for start, stop in places]
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("我喜欢学习。", ["我", "喜欢", "学习", "。"]),
        ("東京へ行く", ["東京", "へ", "行く"]),
        ("ภาษาไทย", ["ภาษา", "ไทย"]),
        ("ພາສາລາວ", ["ພາສາ", "ລາວ"]),
        ("ភាសាខ្មែរ", ["ភាសាខ្មែរ"]),
        ("I can't, 3.5 (e.g.)", ["I", "can't", ",", "3.5", "(", "e.g", ".", ")"]),
        (" \t\n ", []),
        ("", []),
    ],
)
def test_words_are_those_of_icu(text, words):
    assert tokens([text]) == [words]


@given(st.lists(TEXTS | st.none(), max_size=4))
def test_nothing_of_a_text_is_lost_but_white_space(texts):
    joined = ["".join(words) for words in tokens(texts)]
    assert joined == ["".join((text or "").split()) for text in texts]


@given(TEXTS, st.integers(4, 9))
def test_pieces_are_the_text_and_end_between_characters(text, size):
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(icu_words, "PIECE_BYTES", size)
        cut = [data[start:stop].tobytes() for start, stop in icu_words.pieces(data, 0, len(data))]
    assert b"".join(cut) == text.encode()
    assert all(0 < len(piece) <= size and piece.decode() for piece in cut)


def test_lines_are_cut_as_if_they_were_texts(monkeypatch):
    lines = ["我喜欢学习。", "ภาษาไทย", "to be or not"] * 20
    whole = tokens(["\n".join(lines)])
    monkeypatch.setattr(icu_words, "PIECE_BYTES", 64)
    assert tokens(["\n".join(lines)]) == whole


def test_bytes_that_are_no_text_are_left_out():
    room, stops = np.zeros(64, dtype=np.uint8), np.zeros(2, dtype=np.int64)
    data = np.frombuffer(b"a\xff b\xe2\x82", dtype=np.uint8)
    icu_words.split_texts(data, np.array([0, len(data)]), room, stops)
    assert room[: stops[1]].tobytes().split() == [b"a", b"b"]


def test_a_long_text_takes_twice_itself_and_no_more():
    text = "我喜欢学习。 " * 40_000
    [span] = text_spans(pd.Series([text], dtype="string[pyarrow]"))
    list(token_spans(span, "icu"))
    tracemalloc.start()
    list(token_spans(span, "icu"))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Measured 1.5 MB beside the room for tokens; the words of the whole text would be 14 MB.
    assert peak_bytes < 2 * len(text.encode()) + 4_000_000


def test_metrics_count_the_words():
    names = ["word_count", "alpha_word_ratio", "non_symbol_word_mean_length", "line_feed_word_ratio"]
    [found] = measure(pd.Series(["我喜欢\n学习。"], dtype="string[pyarrow]"), names, words="icu")
    assert {name: values.tolist()[0] for name, values in found.values.items()} == {
        "word_count": 4,
        "alpha_word_ratio": 0.75,
        "non_symbol_word_mean_length": 5 / 3,
        "line_feed_word_ratio": 0.25,
    }

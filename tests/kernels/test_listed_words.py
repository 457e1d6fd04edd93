# SPDX-License-Identifier: Apache-2.0
"""Stop words of any language: how many different words of a list a text has."""

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.metrics.counts import WORDS as WORD_FAMILY
from curator_df.kernels.metrics.measure import measure, metric_kernels
from curator_df.kernels.metrics.words.listed_words import word_list

WORDS = ("de", "la", "l'", "\u0432", "\u0e43\u0e19", "\U0001f600", "de-la")
PIECES = st.sampled_from([*WORDS, "DE", "del", "d", "la\u0301", "", "x" * 40])
BREAKS = st.sampled_from([" ", "\n", "\u3000", "\u2028", "\t\t", ",", ""])
TEXTS = st.lists(st.tuples(PIECES | st.text(max_size=3), BREAKS).map("".join), max_size=12).map("".join)


def counted(texts: list[str | None], words: tuple[str, ...]) -> list[int]:
    column = pd.Series(texts, dtype="string[pyarrow]")
    return [
        int(value)
        for span in measure(column, ["stop_word_count"], stop_words=words)
        for value in span.values["stop_word_count"]
    ]


@given(st.lists(TEXTS, max_size=4), st.lists(st.sampled_from(WORDS), min_size=1, unique=True).map(tuple))
@example(["", "de", " de de la", "de\u3000la"], ("de", "la"))
def test_words_are_counted_once_each(texts, words):
    assert counted(texts, words) == [len(set(words) & set(text.split())) for text in texts]


def test_a_long_list_finds_each_of_its_words():
    words = tuple(f"word{number}" for number in range(1000))
    assert len(word_list(words).slots) >= 2000
    assert counted([" ".join(words), " ".join(f"{word}s" for word in words), words[-1]], words) == [1000, 0, 1]


def test_the_pass_is_asked_for_by_other_words_alone():
    assert metric_kernels(["stop_word_count"]) == WORD_FAMILY.kernels
    assert metric_kernels(["stop_word_count"], stop_words=("de",)) == WORD_FAMILY.kernels + kernel_sets.LISTED_WORDS
    assert metric_kernels(["word_count"], stop_words=("de",)) == WORD_FAMILY.kernels


@pytest.mark.parametrize("words", ["whitespace", "datatrove"])
def test_other_metrics_of_words_are_as_they_were(words):
    column = pd.Series(["to be or not", "la la"], dtype="string[pyarrow]")
    names = ["stop_word_count", "word_count", "hash_ratio"]
    [usual] = measure(column, names, words=words)
    [other] = measure(column, names, words=words, stop_words=("la",))
    assert usual.values.pop("stop_word_count").tolist() == [2, 0]
    assert other.values.pop("stop_word_count").tolist() == [0, 1]
    assert {name: values.tolist() for name, values in usual.values.items()} == {
        name: values.tolist() for name, values in other.values.items()
    }

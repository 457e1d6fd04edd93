# SPDX-License-Identifier: Apache-2.0
"""Long and odd texts: the same numbers as short ones. What they cost is in ``tests/contracts/test_odd_texts.py``."""

from __future__ import annotations

import random

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curator_df.errors import ParameterError
from curator_df.kernels.metrics import measure as module
from curator_df.kernels.metrics.catalog import METRICS, require_metrics, work_factor
from curator_df.kernels.metrics.counts import SHORT_TEXT_BYTES
from curator_df.kernels.metrics.measure import measure
from curator_df.kernels.text.word_reading import WINDOW
from tests.examples import examples
from tests.kernels.plain_metrics import plain_metrics, repetition_metrics


def measured(text: str, names: list[str]) -> dict[str, float]:
    [span] = measure(pd.Series([text], dtype="string[pyarrow]"), names)
    return {name: values[0].item() for name, values in span.values.items()}


def words_of(alphabet: list[str], count: int, seed: int) -> str:
    choose = random.Random(seed)
    return "".join(choose.choice(alphabet) + choice for choice in choose.choices([" ", "  ", "\n", "\u2003"], k=count))


@pytest.mark.parametrize(
    "text",
    [
        "x" * (SHORT_TEXT_BYTES + 1),
        " " * (SHORT_TEXT_BYTES + 1),
        "\n" * (SHORT_TEXT_BYTES + 1),
        "a " * (SHORT_TEXT_BYTES // 2 + 1),
        "a\n" * (SHORT_TEXT_BYTES // 2) + "b",
        "to be or not to be " * 5000,
        "漢字 " * 12_000,
        words_of(["a", "b", "ab", "ba", "aab"], 6 * WINDOW + 5, 1),
        words_of(["a", "b", "ab"], WINDOW, 2) * 6,
        words_of([f"word{number}" for number in range(3000)], 2 * WINDOW, 3),
        words_of([f"w{number}" for number in range(40)], 1000, 4) * 20,
        " ".join(f"word{number}" for number in [*range(2 * WINDOW + 9), *range(11)]),
        "{[1] lorem ipsum javascript}" * 3000,
        "a\xb2" * (SHORT_TEXT_BYTES // 3 + 1),
        " a \n\n" * 5000 + " a\nb \n\na\t\n\n" * 5000,
    ],
    ids=range(15),
)
def test_long_texts_equal_plain_python(text):
    assert len(text.encode()) >= SHORT_TEXT_BYTES
    assert measured(text, list(METRICS)) == plain_metrics(text)


@settings(max_examples=examples(60))
@given(
    st.lists(st.sampled_from(["a", "b", "ab", "ba", "é", "\u201c", "漢"]), min_size=1, max_size=12),
    st.sampled_from([" ", "\n", "\u2003", "\u3000 "]),
)
def test_windows_join_as_if_there_were_none(pattern, separator):
    text = separator.join(pattern * (SHORT_TEXT_BYTES // len(pattern) // 2)) + " x" + " y" * WINDOW
    text += "z" * max(SHORT_TEXT_BYTES + 1 - len(text), 0)
    wanted = repetition_metrics(text)
    assert measured(text, list(wanted)) == wanted


def test_a_text_that_is_too_long_is_an_error(monkeypatch):
    monkeypatch.setattr(module, "LONGEST_TEXT_BYTES", 10)
    with pytest.raises(ParameterError, match="a text of 11 bytes is too long"):
        measured("x" * 11, ["word_count"])


def test_a_text_whose_words_are_written_out_may_be_half_as_long(monkeypatch):
    monkeypatch.setattr(module, "LONGEST_TEXT_BYTES", 20)
    texts = pd.Series(["x" * 11], dtype="string[pyarrow]")
    assert len(list(measure(texts, ["word_count"]))) == 1
    with pytest.raises(ParameterError, match=r"a text of 11 bytes is too long to be measured: the limit is 10 bytes"):
        list(measure(texts, ["word_count"], words="datatrove"))


def test_work_is_stated_for_every_metric():
    require_metrics(METRICS)
    factors = {name: work_factor([name]) for name in METRICS}
    assert {factors[name] for name in repetition_metrics("")} == {4.0}
    assert factors["line_feed_word_ratio"] == factors["hash_ratio"] == 0
    assert factors["dclm_repeated_line_ratio"] == 4.25
    assert (factors["sentence_count"], work_factor(["sentence_count"], "datatrove")) == (0, 2)
    assert work_factor(METRICS) == factors["dclm_top_2_gram_character_ratio"] == 16.0

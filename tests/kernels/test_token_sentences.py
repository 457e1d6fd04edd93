# SPDX-License-Identifier: Apache-2.0
"""Sentences of C4's lines by datatrove's tokens: what spaCy 3.8.18's sentencizer makes of them."""

import numpy as np
import pandas as pd
import pytest

from curator_df.kernels.metrics.c4.c4_texts import token_sentences
from curator_df.kernels.metrics.measure import measure


def count(*texts):
    data = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, data)])
    return token_sentences(np.frombuffer(b"".join(data), np.uint8), offsets, require_punctuation=False).tolist()


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("one two three", 1),
        ("One of them. Another one!", 2),
        ("Mr. Smith went (e.g. home) at 5 p.m. and slept.", 1),
        ("Is it so?! Yes ... or no...", 2),
        ("He said so. (Not that again.) And went.", 3),
        ("It ends. ) and goes on", 2),
        ("It ends.  ) after two spaces", 2),
        ("It ends.\t) after a tab", 2),
        ("It ends. ) \u2014 \u201d", 1),
        ("It ends.\u00a0) after another space", 2),
        ("end.Next and more words", 2),
        ("\u0645\u0631\u062d\u0628\u0627 \u0647\u0644 \u0623\u0646\u062a \u061f \u0646\u0639\u0645", 2),
        ("one two three. \u00b4 four", 2),
    ],
)
def test_sentences_of_a_line(line, sentences):
    assert count(line) == [sentences]


def test_sentences_of_a_text_go_on_over_the_ends_of_lines():
    texts = pd.Series(["A heading\n\nOne (e.g. this\none). Two!\nThree?\n\n", None, " \n", "one two"])
    [whole] = measure(texts, ["sentence_count", "word_count"], words="datatrove")
    assert whole.values["sentence_count"].tolist() == [3, 0, 0, 1]


def test_lines_count_by_themselves_and_only_those_that_stay():
    text = "One two three. Four\nfive six seven\ntoo short.\nOne more line [2] here. And. More."
    assert count(text, "", "gone", text) == [2 + 1 + 3, 0, 0, 2 + 1 + 3]


def test_a_metric_of_the_catalogue_has_them_with_datatroves_words():
    texts = pd.Series(["It ends.  ) after a space here. Now.", None, "", "A { brace. And so on. Here.", "x " * 100_000])
    by_words = {}
    for words in ("whitespace", "datatrove"):
        [measured] = measure(texts, ["c4_unpunctuated_sentence_count", "c4_sentence_count"], words=words)
        by_words[words] = {name: values.tolist() for name, values in measured.values.items()}
    assert by_words["datatrove"]["c4_sentence_count"][0] == 3
    assert by_words["datatrove"]["c4_unpunctuated_sentence_count"][-1] == 1
    failed = [values["c4_sentence_count"][3] for values in by_words.values()]
    assert failed[0] == failed[1]  # a line fails that text: as far as the rule of words came


def test_many_rows_are_those_of_each_alone():
    texts = [f"Line {number} is here. So (it) is.\n\nAnd {number}!" * (number % 7) for number in range(3_000)]
    whole = measure(pd.Series(texts), ["c4_sentence_count"], words="datatrove")
    found = np.concatenate([part.values["c4_sentence_count"] for part in whole])
    each = [next(iter(measure(pd.Series([text]), ["c4_sentence_count"], words="datatrove"))) for text in texts[:14]]
    assert found[:14].tolist() == [one.values["c4_sentence_count"][0] for one in each]
    assert len(found) == 3_000


def test_a_text_that_a_line_fails_adds_nothing_to_the_next():
    texts = ["int main() {\n}\n", "One two three. And four.", "{ again, and so on.\n"]
    assert count(*texts)[1] == 2

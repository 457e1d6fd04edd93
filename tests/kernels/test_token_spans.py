# SPDX-License-Identifier: Apache-2.0
"""Words as datatrove cuts them: what can be said without datatrove. Parity is in tests/profiles."""

from __future__ import annotations

import time

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.errors import ParameterError
from curator_df.kernels.english_tokens import spans as token_spans_module
from curator_df.kernels.english_tokens.spans import token_spans
from curator_df.kernels.metrics.counts import GRAMS, LINES, WORDS
from curator_df.kernels.metrics.measure import measure, metric_kernels
from curator_df.kernels.text.buffers import text_spans
from curator_df.ops.filters.rules import Profile, Rule
from curator_df.profiles import DATATROVE_GOPHER_REPETITION, NEMO_ENGLISH
from tests.profiles.token_texts import TOKEN_TEXTS


def tokens(texts: list[str | None]) -> list[list[str]]:
    found: list[list[str]] = []
    for span in text_spans(pd.Series(texts, dtype="string[pyarrow]")):
        for rows in token_spans(span):
            assert rows.first_row == len(found)
            places = zip(rows.offsets[:-1], rows.offsets[1:], strict=True)
            found += [rows.data[start:stop].tobytes().decode().split() for start, stop in places]
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('He said: "I can\'t."', ["He", "said", ":", '"', "I", "ca", "n't", ".", '"']),
        ("It’s 5km, or 3.5mph...", ["It", "’s", "5", "km", ",", "or", "3.5", "mph", "..."]),
        ("well-known (e.g. Mr. A.B.)", ["well", "-", "known", "(", "e.g.", "Mr.", "A.B.", ")"]),
        ("end.Next a,b 1,000 and/or x/y", ["end", ".", "Next", "a", ",", "b", "1,000", "and/or", "x", "/", "y"]),
        ("see http://a.org/b-c?d=e, ok", ["see", "http://a.org/b-c?d=e", ",", "ok"]),
        ("US$5 -- $5 5€ +1", ["US$", "5", "--", "$", "5", "5", "€", "+1"]),
        (":-) foo:) ''", [":-)", "foo", ":)", "''"]),
        (" \t\n ", []),
        ("", []),
    ],
)
def test_words_are_those_of_the_rules(text, words):
    assert tokens([text]) == [words]


@given(st.lists(TOKEN_TEXTS | st.none(), max_size=4))
def test_nothing_of_a_text_is_lost_but_white_space(texts):
    joined = ["".join(words) for words in tokens(texts)]
    assert joined == ["".join((text or "").split()) for text in texts]


def test_texts_that_do_not_fit_together_are_cut_one_by_one(monkeypatch):
    monkeypatch.setattr(token_spans_module, "BATCH_BYTES", 8)
    texts = ["a, bb.", "!" * 40, None, "", "can't", "c"]
    assert tokens(texts) == [["a", ",", "bb", "."], ["!"] * 40, [], [], ["ca", "n't"], ["c"]]


def test_marks_and_lines_are_those_of_the_text_and_words_are_tokens():
    names = ["word_count", "hash_ratio", "ellipsis_ratio", "bullet_line_ratio", "stop_word_count"]
    texts = pd.Series(['- # it\'s... the\n"be"'], dtype="string[pyarrow]")
    [found] = measure(texts, names, words="datatrove")
    values = {name: column.tolist()[0] for name, column in found.values.items()}
    assert values["word_count"] == len(tokens(texts.tolist())[0]) == 9
    assert values["hash_ratio"] == values["ellipsis_ratio"] == pytest.approx(1 / 9)
    assert values["bullet_line_ratio"] == 0.5
    assert values["stop_word_count"] == 2


def test_metrics_that_have_words_of_their_own_are_refused():
    with pytest.raises(ParameterError, match="words='datatrove' cannot be used for mean_word_length"):
        Profile("ours", "1", "example", (Rule("mean_word_length", ">=", 3, "short"),), words="datatrove")
    with pytest.raises(ParameterError, match="nemo_top_2_gram_character_ratio"):
        NEMO_ENGLISH.replace(words="datatrove")


def test_the_kernels_of_words_are_compiled_when_words_are_read():
    assert metric_kernels(["word_count"], "datatrove") == WORDS.token_kernels
    assert metric_kernels(["duplicate_line_ratio"], "datatrove") == LINES.kernels
    assert metric_kernels(DATATROVE_GOPHER_REPETITION.metrics) == LINES.kernels + GRAMS.kernels


@pytest.mark.parametrize("piece", ["'", ")", ":)", "a@", "a.", "1.", "...x", "can't", "$", "5--", "("])
def test_one_piece_over_and_over_is_cut_to_the_end(piece):
    """A time that grows with the square of a word, as spaCy's does, would end no test."""
    text = piece * (1_000_000 // len(piece))
    assert "".join(tokens([text])[0]) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # Put back where no longer sequence, and no earlier one as long, has its first or last token.
        ("(:)):)", ["(", ":))", ":)"]),
        ("x:):)", ["x", ":)", ":", ")"]),
        ("(a.m.) 4a.m.!", ["(", "a.m.", ")", "4", "a.m.", "!"]),
        # A word of letters and one mark, with and without an exception in it.
        ("cant, cant words. A$ US$ dont.", ["ca", "nt", ",", "ca", "nt", "words", ".", "A$", "US$", "do", "nt", "."]),
    ],
)
def test_exceptions_among_other_tokens(text, words):
    assert tokens([text]) == [words]


@pytest.mark.proof
@pytest.mark.parametrize("piece", [":)", "(it's)", "a. m. ", "8)", "x", ".", "word, "])
def test_a_pathological_text_is_cut_in_a_time_that_grows_with_it(piece):
    """Quadratic time would be days: a minute says linear on any machine."""
    text = piece * (20_000_000 // len(piece))
    start = time.process_time()
    [span] = text_spans(pd.Series([text], dtype="string[pyarrow]"))
    [rows] = token_spans(span)
    assert len(rows) == 1
    assert time.process_time() - start < 60

# SPDX-License-Identifier: Apache-2.0
"""The DCLM profiles against the libraries that DCLM calls, run by a Python that ``CURATOR_DF_DCLM_PYTHON`` names.

To make one: ``python -m venv peer && peer/bin/pip install uniseg==0.10.1 fasttext-wheel==0.9.2 nltk``, of the same version of
Python, whose letters and digits the filters go by. DCLM itself is no package: `dclm_scores.py` has its filters. Metrics
are equal on every text, to the rounding of a quotient.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.kernels.metrics.measure import measure
from curator_df.kernels.text.code_points import code_points_of
from curator_df.kernels.text.word_break import EXTENDED_PICTOGRAPHIC, WORD_BREAK
from curator_df.profiles import DCLM_QUALITY, DCLM_REPETITION
from tests.profiles.peers import TEXTS, Peer, real_texts, running

PYTHON = os.environ.get("CURATOR_DF_DCLM_PYTHON", "")
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        not PYTHON, reason="needs CURATOR_DF_DCLM_PYTHON: a Python that has uniseg 0.10.1, fastText and nltk"
    ),
]
METRICS = (DCLM_QUALITY + DCLM_REPETITION).metrics
# Some of each kind, marks and joiners more often than not, so that rules of three characters meet.
KINDS = st.sampled_from([*WORD_BREAK.values(), EXTENDED_PICTOGRAPHIC]).flatmap(
    lambda ranges: st.sampled_from(code_points_of(ranges).tolist()).map(chr)
)
MARKS = st.sampled_from([*"'’.:,;·\"_-aאבア12²の漢", "\u05f4", "\u200d", "\u0308", "\xad", "❤", "ℹ", "\u202f", "🇩🇪"])
SPACES = st.sampled_from([*" \n\t\r\x0b\x00\x1c\x85\xa0\u3000", "\n\n", "\r\n"])
WORDS = st.sampled_from(
    ["the", "The", "that", "can't", "don’t", "e.g.", "3.14", "...", ". . .", ". . . . .", "....", "#"]
)
ODD_TEXTS = st.lists(st.one_of(KINDS, MARKS, MARKS, SPACES, WORDS), max_size=60).map("".join)
REPEATING_TEXTS = st.lists(st.one_of(KINDS, MARKS, SPACES, WORDS), min_size=1, max_size=4).flatmap(
    lambda pieces: st.lists(st.sampled_from(pieces), max_size=60).map("".join)
)


@pytest.fixture(scope="module")
def dclm() -> Iterator[Peer]:
    with running(PYTHON, "dclm_scores.py") as peer:
        assert peer.hear() == "0.10.1"
        yield peer


def assert_equal(peer: Peer, texts: list[str]) -> None:
    for span in measure(pd.Series(texts, dtype="string[pyarrow]"), METRICS):
        for row in range(span.rows):
            text = texts[span.first_row + row]
            for name, wanted in peer.ask(text).items():
                value = span.values[name][row].item()
                assert math.isclose(value, wanted, rel_tol=0, abs_tol=1e-12), (name, text)


def test_code_points_have_the_values_of_uniseg():
    with running(PYTHON, "word_break_ranges.py") as peer:
        assert peer.hear() == {**WORD_BREAK, "Extended_Pictographic": EXTENDED_PICTOGRAPHIC}


@settings(max_examples=400)
@given(st.lists(st.one_of(TEXTS, ODD_TEXTS, REPEATING_TEXTS), min_size=1, max_size=4))
@example(["", " ", "\n", "\n\n\n", "a", "a\n", "\r\n", "-\n-\n…\n…\n\n", "Hello, World.\nHello, World.\n\nHello"])
def test_any_text_is_measured_alike(dclm, texts):
    assert_equal(dclm, texts)


def test_real_documents_are_measured_alike(dclm, shared_data):
    assert_equal(dclm, real_texts(shared_data)[::200])


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_thousands_of_real_documents_are_measured_alike(dclm, shared_data):
    texts = real_texts(shared_data)[::8]
    assert len(texts) > 3_000
    assert_equal(dclm, texts)

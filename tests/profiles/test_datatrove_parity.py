# SPDX-License-Identifier: Apache-2.0
"""Our profiles against datatrove 0.10.0 itself, run by a Python of its own that ``CURATOR_DF_DATATROVE_PYTHON`` names.

To make one: ``python -m venv peer && peer/bin/pip install datatrove==0.10.0 spacy nltk``. datatrove gets our words
(white space) and our sentences in place of spaCy's; its filters are as released. Verdict, reason and C4's text are equal
on every text but the empty one, on which its repetition filter divides by zero. ``words="datatrove"`` is held to its own
words in `test_datatrove_words`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.kernels.metrics.c4.c4_texts import keep_c4_lines
from curator_df.kernels.metrics.lines.sentences import ABBREVIATIONS, CLOSERS
from curator_df.ops.filters.profile import add_profile_block
from curator_df.profiles import (
    DATATROVE_C4,
    DATATROVE_FINEWEB,
    DATATROVE_GOPHER_QUALITY,
    DATATROVE_GOPHER_REPETITION,
    FINEWEB_C4,
    fineweb_2,
)
from tests.profiles.peers import Peer, real_texts, running

PYTHON = os.environ.get("CURATOR_DF_DATATROVE_PYTHON", "")
PROFILES = {
    "gopher_quality": DATATROVE_GOPHER_QUALITY.replace(words="whitespace"),
    "gopher_repetition": DATATROVE_GOPHER_REPETITION.replace(words="whitespace"),
    "c4": DATATROVE_C4.replace(words="whitespace"),
    "c4, unpunctuated": FINEWEB_C4.replace(words="whitespace"),
    "fineweb": DATATROVE_FINEWEB.replace(words="whitespace"),
}

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        not PYTHON, reason="needs CURATOR_DF_DATATROVE_PYTHON: a Python that has datatrove 0.10.0 and spaCy"
    ),
]

LINES = st.sampled_from(
    [
        "It was the best of times, and it was the worst of times; that we have to be with all of it.",
        "It was the best of times.",
        "wait for it...",
        "The end.[1]",
        "Is it [citation needed] so? Yes! No.",
        "one two",
        "We use cookies. See our Privacy Policy.",
        "Enable JavaScript to go on, please.",
        "lorem ipsum dolor sit amet.",
        "function () { return 1; }.",
        "Mr. Smith met J. R. Jones at 5 p.m. in the U.S. He left.Then he came back!",
        "- a bullet •",
        "#",
        "",
        " ",
        "\t\x1f",
        "a b c d e f g h i j k",
        "ab c d e f g h i j k",
        "a bc d e f g h i j k",
        "漢字 です。 日本",
        "x" * 1001 + " is a long word.",
    ]
)
BREAKS = st.sampled_from(["\n", "\n", "\n\n", "\n\n\n", "\r\n", " ", "\u2028", "\u3000", "\x0b"])
TEXTS = st.lists(st.one_of(LINES, st.text(max_size=8)).flatmap(lambda line: BREAKS.map(line.__add__)), max_size=14).map(
    "".join
)


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with running(PYTHON, "datatrove_verdicts.py") as answering:
        assert answering.ask([CLOSERS, ABBREVIATIONS]) == "0.10.0"
        yield answering


def reasons(texts: list[str]) -> dict[str, list[str | None]]:
    block = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")})
    found = {}
    for name, profile in PROFILES.items():
        added = add_profile_block(block, profile=profile, text="text", reason="reason", add_metrics=False)
        found[name] = [None if reason is pd.NA else reason for reason in added["reason"]]
    return found


def assert_equal(peer: Peer, texts: list[str]) -> None:
    ours = reasons(texts)
    column = pd.Series(texts, dtype="string[pyarrow]")
    kept = {
        name: keep_c4_lines(column, require_punctuation=name == "c4")[0].tolist() for name in ("c4", "c4, unpunctuated")
    }
    for number, text in enumerate(texts):
        theirs = peer.ask([text, list(PROFILES)])
        for name, (reason, changed_text) in theirs.items():
            if reason == "ZeroDivisionError":
                assert text == ""
                continue
            assert ours[name][number] == reason, (name, text)
            if reason is None and name in kept:
                assert kept[name][number] == changed_text, (name, text)


@settings(max_examples=300)
@given(st.lists(TEXTS, min_size=1, max_size=3))
@example(["", " ", "\n", "\n\n\n", "a", "a\n", "\na", "\r\n"])
@example(["a b cd e f g h i j k l m\n" * 6 + "a bc d e f g h i j k l m\n" * 6])
def test_any_text_is_judged_alike(peer, texts):
    assert_equal(peer, texts)


def test_real_documents_are_judged_alike(peer, shared_data):
    assert_equal(peer, real_texts(shared_data)[::40])


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_twenty_thousand_real_documents_are_judged_alike(peer, shared_data):
    texts = real_texts(shared_data)
    assert len(texts) > 20_000
    assert_equal(peer, texts)


@pytest.mark.parametrize("language", ["deu_Latn", "fra_Latn", "rus_Cyrl"])
def test_fineweb_2_judges_as_its_pipeline(peer, shared_data, language):
    profile = fineweb_2(language, words="whitespace")
    stop_words = " ".join(profile.stop_words[:2])
    texts = [text for english in real_texts(shared_data)[::200] for text in (english, f"{english} {stop_words}")]
    texts += ["a", " \n", "- a...\n" * 60, f"# {stop_words} " * 30, f"{stop_words}.\n" * 40]
    block = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")})
    ours = add_profile_block(block, profile=profile, text="text", reason="reason", add_metrics=False)["reason"]
    name = f"fineweb_2 {language}"
    theirs = [peer.ask([text, [name]])[name][0] for text in texts]
    assert [None if reason is pd.NA else reason for reason in ours] == theirs
    assert len(set(theirs)) > 5


def test_sentences_of_words_change_few_verdicts_of_c4(peer, shared_data):
    texts = real_texts(shared_data)[::20]
    ours = reasons(texts)["c4"]
    theirs = [peer.ask([text, ["c4, spaCy"]])["c4, spaCy"][0] for text in texts]
    differing = sum(one != other for one, other in zip(ours, theirs, strict=True))
    assert differing <= 0.005 * len(texts), f"{differing} of {len(texts)}"

# SPDX-License-Identifier: Apache-2.0
"""``words="datatrove"`` against datatrove 0.10.0 as it is, run by the Python that ``CURATOR_DF_DATATROVE_PYTHON`` names.

Tokens are equal, and so are sentences, verdicts and reasons, on every text without the token ``IS_ALPHA``: on that one spaCy
may fail, and datatrove then takes it out of the text. The empty text divides by zero in its repetition filter.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.kernels.english_tokens.rules import rules
from curator_df.kernels.english_tokens.spans import token_spans
from curator_df.kernels.metrics.c4.c4_texts import keep_c4_lines
from curator_df.kernels.metrics.lines.sentences import ABBREVIATIONS, CLOSERS
from curator_df.kernels.metrics.measure import measure
from curator_df.kernels.text.buffers import text_spans
from curator_df.ops.filters.profile import add_profile_block
from curator_df.profiles import DATATROVE_C4, DATATROVE_FINEWEB, DATATROVE_GOPHER_QUALITY, DATATROVE_GOPHER_REPETITION
from tests.profiles.peers import Peer, real_texts, running
from tests.profiles.token_texts import TOKEN_TEXTS

PYTHON = os.environ.get("CURATOR_DF_DATATROVE_PYTHON", "")
PROFILES = {
    "gopher_quality, spaCy": DATATROVE_GOPHER_QUALITY,
    "gopher_repetition, spaCy": DATATROVE_GOPHER_REPETITION,
    "fineweb, spaCy": DATATROVE_FINEWEB,
    "c4, spaCy": DATATROVE_C4,
}

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        not PYTHON, reason="needs CURATOR_DF_DATATROVE_PYTHON: a Python that has datatrove 0.10.0 and spaCy"
    ),
]


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with running(PYTHON, "datatrove_verdicts.py") as answering:
        assert answering.ask([CLOSERS, ABBREVIATIONS]) == "0.10.0"
        yield answering


def tokens(texts: list[str]) -> list[list[str]]:
    found = []
    for span in text_spans(pd.Series(texts, dtype="string[pyarrow]")):
        for rows in token_spans(span):
            places = zip(rows.offsets[:-1], rows.offsets[1:], strict=True)
            found += [rows.data[start:stop].tobytes().decode().split() for start, stop in places]
    return found


def sentence_counts(texts: list[str]) -> list[int]:
    spans = measure(pd.Series(texts, dtype="string[pyarrow]"), ["sentence_count"], words="datatrove")
    return [count for span in spans for count in span.values["sentence_count"].tolist()]


def reasons(texts: list[str]) -> dict[str, list[str | None]]:
    block = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")})
    found = {}
    for name, profile in PROFILES.items():
        added = add_profile_block(block, profile=profile, text="text", reason="reason", add_metrics=False)
        found[name] = [None if reason is pd.NA else reason for reason in added["reason"]]
    return found


def assert_equal(peer: Peer, texts: list[str]) -> None:
    words, counts, ours = tokens(texts), sentence_counts(texts), reasons(texts)
    kept = keep_c4_lines(pd.Series(texts, dtype="string[pyarrow]"))[0].tolist()
    for number, text in enumerate(texts):
        theirs = peer.ask([text, ["words", "sentences", *PROFILES]])
        assert words[number] == theirs.pop("words"), text
        assert counts[number] == theirs.pop("sentences"), text
        for name, (reason, left) in theirs.items():
            if reason == "ZeroDivisionError":
                assert text == ""
                continue
            assert ours[name][number] == reason, (name, text)
            if name.startswith("c4") and reason is None:
                assert kept[number] == left, text


@settings(max_examples=300)
@given(st.lists(TOKEN_TEXTS, min_size=1, max_size=4))
@example(["", " ", "\n", "a ' ' '\n''", "'''''", ":-))) (:", "foo-Mr. St.)", "((*_*))", "x°C. (°F.) 20°C."])
@example(
    ["a.b.Com/x user@a.co:80/ http://8.8.8.8/a 10.0.0.1/a 172.16.1.1:80 1٢.1.1.1/a", "5km. 5US$ +5 5+ a--b 5--b ……"]
)
@example(["it 's . Mr . Mr.. (a.m.) 4a.m.!", "\x85a\u3000b\x1c \x1c", "can't've y'all'd've' can’t"])
def test_any_text_has_the_same_tokens_and_verdicts(peer, texts):
    assert_equal(peer, texts)


def test_every_exception_has_the_same_tokens_wherever_it_stands(peer):
    words = [item.replace(" ", "") for item in rules()["exceptions"]]
    templates = ("{0}", "({0}),", "x-{0}", "{0}{0}", "'{0}'.")
    texts = [" ".join(template.format(word) for word in words) for template in templates]
    assert tokens(texts) == [peer.ask([text, ["words"]])["words"] for text in texts]


def test_real_documents_have_the_same_tokens_and_verdicts(peer, shared_data):
    assert_equal(peer, real_texts(shared_data)[::40])


@pytest.mark.proof
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("part", range(8))
def test_twenty_thousand_real_documents_have_the_same_tokens_and_verdicts(peer, shared_data, part):
    """In parts, for processes of their own: with pytest -n 2 on two cores."""
    texts = real_texts(shared_data)
    assert len(texts) > 20_000
    start = time.perf_counter()
    assert_equal(peer, texts[part::8])
    print(f"{len(texts[part::8]):,} of {len(texts):,} texts: {time.perf_counter() - start:.0f} s")  # noqa: T201


def test_the_rules_are_those_of_the_installed_package():
    printed = subprocess.check_output([PYTHON, str(Path(__file__).with_name("spacy_rules.py"))], text=True)
    assert json.loads(printed) == rules()

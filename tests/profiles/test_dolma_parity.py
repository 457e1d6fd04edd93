# SPDX-License-Identifier: Apache-2.0
"""The dolma profiles against dolma 1.2.1 itself, run by a Python that ``CURATOR_DF_DOLMA_PYTHON`` names.

To make one: ``python -m venv peer && peer/bin/pip install --no-deps dolma==1.2.1 typing_extensions``. Its taggers are as
released. Tags are equal on every text, where dolma tags it: it leaves out n-grams that a text is too short for. Without
words it divides the characters of repeated lines by 1.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.ops.filters.profile import add_profile_block
from curator_df.profiles import DOLMA_C4, DOLMA_GOPHER_V1, DOLMA_GOPHER_V2
from tests.profiles.peers import TEXTS, Peer, real_texts, running

PYTHON = os.environ.get("CURATOR_DF_DOLMA_PYTHON", "")
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not PYTHON, reason="needs CURATOR_DF_DOLMA_PYTHON: a Python that has dolma 1.2.1"),
]
PROFILES = {"gopher_v1": DOLMA_GOPHER_V1, "gopher_v2": DOLMA_GOPHER_V2, "c4_v2": DOLMA_C4}


@pytest.fixture(scope="module")
def dolma() -> Iterator[Peer]:
    with running(PYTHON, "dolma_scores.py") as peer:
        assert peer.hear() == "1.2.1"
        yield peer


def tag_of(reason: str) -> str:
    """Return the tag that a reason of ours is about."""
    for name in ("most_common", "duplicate"):
        if reason.startswith(name):
            return f"fraction_of_characters_in_{reason.removesuffix('s')}s"
    return reason.removesuffix("_min").removesuffix("_max")


def assert_equal(peer: Peer, texts: list[str]) -> None:
    block = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")})
    added = {
        name: add_profile_block(block, profile=profile, text="text", reason="reason", add_metrics=True)
        for name, profile in PROFILES.items()
    }
    for number, text in enumerate(texts):
        theirs = peer.ask(text)
        for name, profile in PROFILES.items():
            for rule in profile.rules:
                if rule.metric == "dolma_repeated_line_character_ratio" and not text.split():
                    continue
                wanted = theirs[name].get(tag_of(rule.reason), 0)
                value = added[name][rule.metric].iloc[number]
                assert math.isclose(value, wanted, rel_tol=0, abs_tol=1e-12), (name, rule.reason, text)


@settings(max_examples=300)
@given(st.lists(TEXTS, min_size=1, max_size=3))
@example(["", " ", "\n", "\n\n\n", "a", "a\n", "\na", "\r\n", "-\n-\n…\n…\n\n", "*\n *\n"])
@example(["a b c " * 40, "aa a aa a aa a", "to be or not to be " * 30, "javascripts LOREM ipsum {"])
def test_any_text_is_tagged_alike(dolma, texts):
    assert_equal(dolma, texts)


def test_real_documents_are_tagged_alike(dolma, shared_data):
    assert_equal(dolma, real_texts(shared_data)[::40])


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_twenty_thousand_real_documents_are_tagged_alike(dolma, shared_data):
    texts = real_texts(shared_data)
    assert len(texts) > 20_000
    assert_equal(dolma, texts)

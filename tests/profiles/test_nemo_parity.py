# SPDX-License-Identifier: Apache-2.0
"""NEMO_ENGLISH and NEMO_CODE against nemo_curator 0.9.0 itself, run by a Python that ``CURATOR_DF_NEMO_PYTHON`` names.

To make one: ``python -m venv peer && peer/bin/pip install --no-deps nemo_curator==0.9.0 regex``. Its filters are as
released, but for ties between n-grams, which it leaves to chance. Scores are equal on every text but those on which it
fails: texts without words or lines, and empty ones.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.ops.filters.profile import add_profile_block
from curator_df.ops.filters.rules import Profile
from curator_df.profiles import NEMO_CODE, NEMO_ENGLISH
from tests.profiles.peers import TEXTS, Peer, real_texts, running

PYTHON = os.environ.get("CURATOR_DF_NEMO_PYTHON", "")
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not PYTHON, reason="needs CURATOR_DF_NEMO_PYTHON: a Python that has nemo_curator 0.9.0"),
]
COUNTED_TO_TWO = "common_english_words"


@pytest.fixture(scope="module")
def nemo() -> Iterator[tuple[Peer, list[str]]]:
    with running(PYTHON, "nemo_scores.py") as peer:
        version, policies, _ = peer.hear()
        assert version == "0.9.0"
        yield peer, policies


def filter_of(reason: str) -> str:
    return reason.removesuffix("_min").removesuffix("_max")


def ours(texts: list[str], profile: Profile) -> list[dict[str, Any]]:
    block = pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")})
    added = add_profile_block(block, profile=profile, text="text", reason="reason", add_metrics=True)
    return added.to_dict("records")


def assert_equal(peer: Peer, texts: list[str]) -> None:
    rows = {profile.name: ours(texts, profile) for profile in (NEMO_ENGLISH, NEMO_CODE)}
    for number, text in enumerate(texts):
        theirs = peer.ask(text)
        for profile in (NEMO_ENGLISH, NEMO_CODE):
            row = rows[profile.name][number]
            for rule in profile.rules:
                score, _ = theirs[filter_of(rule.reason)]
                value = min(row[rule.metric], 2) if filter_of(rule.reason) == COUNTED_TO_TWO else row[rule.metric]
                if score is None:
                    assert not text.strip()
                else:
                    assert math.isclose(value, score, rel_tol=0, abs_tol=1e-12), (rule.reason, text)
            if all(theirs[filter_of(reason)][1] is not None for reason in profile.reasons):
                dropped_by = [filter_of(reason) for reason in profile.reasons if not theirs[filter_of(reason)][1]]
                reason = None if pd.isna(row["reason"]) else filter_of(row["reason"])
                assert reason == (dropped_by[0] if dropped_by else None), text


@settings(max_examples=300)
@given(st.lists(TEXTS, min_size=1, max_size=3))
@example(["", " ", "\n", "\n\n\n", "a", "a\n", "\na", "\r\n", "a\n\n\nb\n\n\n\n", "\n\n\n\nx\n"])
@example(["a b c " * 40, "aa a aa a aa a", "a  b a b a\nb", "to be or not to be " * 30])
def test_any_text_scores_alike(nemo, texts):
    assert_equal(nemo[0], texts)


def test_phrases_of_boilerplate_are_those_of_nemo(nemo):
    peer, policies = nemo
    assert len(policies) == 14
    texts = [text for phrase in policies for text in (f"a\n\n{phrase.upper()}x\n\nb", phrase[:-1], phrase[1:], phrase)]
    assert_equal(
        peer, [*texts, "\n\n".join(policies), "use coo\u212aies", "use cook\u0130es", "Lorem Ipsum", "lorem\0ipsum"]
    )


def test_real_documents_score_alike(nemo, shared_data):
    assert_equal(nemo[0], real_texts(shared_data)[::40])


@pytest.mark.proof
@pytest.mark.timeout(1200)
def test_twenty_thousand_real_documents_score_alike(nemo, shared_data):
    texts = real_texts(shared_data)
    assert len(texts) > 20_000
    assert_equal(nemo[0], texts)

# SPDX-License-Identifier: Apache-2.0
"""Operators that change texts against the modifiers of nemo_curator 0.9.0, run by the Python of ``CURATOR_DF_NEMO_PYTHON``.

See ``test_nemo_parity.py`` for how to make one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import dask.dataframe as dd
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import curator_df as cdf
from tests.kernels.test_cut_texts import TEXTS as MARKED_TEXTS
from tests.profiles.peers import TEXTS, Peer, real_texts, running

PYTHON = os.environ.get("CURATOR_DF_NEMO_PYTHON", "")
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not PYTHON, reason="needs CURATOR_DF_NEMO_PYTHON: a Python that has nemo_curator 0.9.0"),
]
OPERATORS = {
    "newlines": lambda docs: docs.pipe(cdf.normalize_newlines),
    "urls": lambda docs: docs.pipe(cdf.remove_urls),
    "lines": lambda docs: docs.pipe(cdf.remove_lines, ["It was the best of times.", "", "one two"]),
    "markdown": lambda docs: docs.pipe(cdf.remove_markdown, links="url", inside_words=True),
    "quotation_marks": lambda docs: docs.pipe(cdf.remove_quotation_marks),
    "boilerplate": lambda docs: docs.pipe(cdf.remove_boilerplate),
    "slice": lambda docs: docs.pipe(cdf.remove_outside, left=2, right=-3),
    "marks": lambda docs: docs.pipe(
        cdf.remove_outside, left="the", right="e", include_left=False, include_right=False, strip=False
    ),
}


@pytest.fixture(scope="module")
def nemo() -> Iterator[Peer]:
    with running(PYTHON, "nemo_modifiers.py") as peer:
        assert peer.hear() == "0.9.0"
        yield peer


def assert_equal(peer: Peer, texts: list[str]) -> None:
    docs = dd.from_pandas(pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}), npartitions=1)
    theirs = [peer.ask(text) for text in texts]
    for name, operator in OPERATORS.items():
        ours = operator(docs).compute(scheduler="synchronous")["text"].tolist()
        assert ours == [answer[name] for answer in theirs], name


@settings(max_examples=200)
@given(st.lists(st.one_of(TEXTS, MARKED_TEXTS), min_size=1, max_size=4))
@example(['"a"', '""', '"\n"x"', "[a](b) [c", "***a***", "\n\n\n\n", "Terms of use\n\na\n\nb", "the me", ""])
def test_any_text_is_changed_alike(nemo, texts):
    assert_equal(nemo, texts)


def test_real_documents_are_changed_alike(nemo, shared_data):
    assert_equal(nemo, real_texts(shared_data)[::20])

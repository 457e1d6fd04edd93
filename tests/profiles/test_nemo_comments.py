# SPDX-License-Identifier: Apache-2.0
"""`add_comment_ratio` against the filters of nemo_curator 0.9.0, run by a Python that ``CURATOR_DF_NEMO_PYTHON`` names.

Beside what `test_nemo_parity` needs, that one has comment_parser, and for Python is of the version that runs the tests.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.kernels.metrics.source.comments import comment_ratios
from tests.profiles.peers import Peer, running

PYTHON = os.environ.get("CURATOR_DF_NEMO_PYTHON", "")
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not PYTHON, reason="needs CURATOR_DF_NEMO_PYTHON: a Python that has nemo_curator 0.9.0"),
]
MARKS = [
    "/",
    "*",
    "#",
    '"',
    "'",
    "`",
    "\\",
    "\n",
    "\r",
    "<!--",
    "-->",
    "/*",
    "*/",
    "//",
    "-",
    "a",
    "\u00e9",
    "\u6f22",
    " ",
]
CODE = st.lists(st.sampled_from(MARKS), max_size=24).map("".join)
LINES = [
    "# a",
    "x = 1",
    '"""d\u00e9j\u00e0\n   vu\n"""',
    "def f():",
    "    'doc'",
    "class C:",
    "  # b",
    "    return 1",
    "",
    "(",
    "\0",
]
PYTHON_CODE = st.lists(st.sampled_from(LINES), max_size=8).map("\n".join)


@pytest.fixture(scope="module")
def nemo() -> Iterator[Peer]:
    with running(PYTHON, "nemo_scores.py") as peer:
        version, _, has_comment_parser = peer.hear()
        assert version == "0.9.0"
        if not has_comment_parser:
            pytest.skip("the Python of CURATOR_DF_NEMO_PYTHON has no comment_parser")
        yield peer


def assert_equal(peer: Peer, language: str, texts: list[str]) -> None:
    ratios, _ = comment_ratios(pd.Series(texts, dtype="string[pyarrow]"), language, 10**6)
    for ratio, text in zip(ratios, texts, strict=True):
        score = peer.ask([language, text])
        assert (score is None and text == "") or math.isclose(ratio, score, abs_tol=1e-12), (language, text)


@pytest.mark.parametrize("language", ["c", "go", "html", "javascript", "ruby", "shell"])
@settings(max_examples=300)
@given(texts=st.lists(CODE, min_size=1, max_size=4))
@example(texts=["/*/", "/**/", "/***/", "//", "//\n//", '"//"', '"\\"//"', "'//'", '/"//', "`//`//", "a/*b*/c/*d*/"])
@example(texts=["<!-->", "<!---->", "<!--\n-->", '"<!--"-->', "<!--a--><!--b-->", "<!--a"])
@example(texts=["#", "\\#", "'#'#", '"\\"#"#', "'\\'#'", "'\\\\'#", "'a\n#'", "#a\n#b"])
def test_any_text_has_the_same_share_of_comments(nemo, language, texts):
    assert_equal(nemo, language, texts)


@settings(max_examples=200)
@given(texts=st.lists(PYTHON_CODE, min_size=1, max_size=4))
@example(
    texts=["#", "", "\n", "'a'", '"""\n"""', "def f(): 'x'", "async def f():\n  'x'\n", "-" * 9000 + "1", "(" * 300]
)
def test_any_python_has_the_same_share_of_comments(nemo, texts):
    assert_equal(nemo, "python", texts)


def test_real_files_have_the_same_share_of_comments(nemo):
    files = sorted(Path(os.__file__).parent.glob("*.py"))[::6]
    assert len(files) > 20
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    for language in ("python", "shell", "ruby", "javascript"):
        assert_equal(nemo, language, texts)

# SPDX-License-Identifier: Apache-2.0
"""`add_html_text_ratio` against the filter of nemo_curator 0.9.0, run by the Python of ``CURATOR_DF_NEMO_PYTHON``.

Beside what `test_nemo_parity` needs, that one has beautifulsoup4, and is of the version that runs the tests: both read pages with
Python's own parser.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from curator_df.ops.filters.source_code import html_text_ratios
from tests.profiles.peers import Peer, running

PYTHON = os.environ.get("CURATOR_DF_NEMO_PYTHON", "")


def has_parser() -> bool:
    asked = [PYTHON, "-c", "import bs4"]
    return bool(PYTHON) and subprocess.run(asked, check=False, stderr=subprocess.DEVNULL).returncode == 0


pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        not has_parser(), reason="needs CURATOR_DF_NEMO_PYTHON: a Python that has nemo_curator 0.9.0 and beautifulsoup4"
    ),
]
ELEMENTS = ("p", "pre", "textarea", "script", "style", "template", "rt", "rp", "ruby", "br", "img", "svg", "b", "div")
MARKUP = st.sampled_from([f"<{name}>" for name in ELEMENTS] + [f"</{name}>" for name in ELEMENTS])
PIECES = st.sampled_from(
    [
        "text \u00e9 ",
        " ",
        "\n",
        "\n ",
        "\u00a0",
        "&amp;",
        "&amp",
        "&nbsp;",
        "&bogus;",
        "&notit;",
        "&fjlig;",
        "&#32;",
        "&#x41;",
        "&#x3C;D",
        "&#X2A b",
        "&#65 x",
        "&#xZ;",
        "&#;",
        "&#0;",
        "<!-- c -->",
        "<!DOCTYPE html>",
        "<![CDATA[ x ]]>",
        "<![CDATA[ ]]>",
        "<?pi x?>",
        "<br/>",
        "<script/>",
        "<a href='b c'>",
        "<",
        "&",
        "</",
        "<!",
        "<x",
        "]]>",
    ]
)
PAGES = st.lists(MARKUP | PIECES, max_size=16).map("".join)


@pytest.fixture(scope="module")
def nemo() -> Iterator[Peer]:
    with running(PYTHON, "nemo_scores.py") as peer:
        assert peer.hear()[0] == "0.9.0"
        yield peer


def assert_equal(peer: Peer, pages: list[str]) -> None:
    ratios, _ = html_text_ratios(pd.Series(pages, dtype="string[pyarrow]"), 3, 10**6)
    for ratio, page in zip(ratios.tolist(), pages, strict=True):
        assert ratio == (peer.ask(["page", page]) or 0), page


@settings(max_examples=500)
@given(st.lists(PAGES, min_size=1, max_size=6))
@example(["", "<pre> \n </pre>   <p> </p>", "<script>x</script>abc", "<template>a<b>c</template>def", "<![foo bar["])
def test_any_page_has_the_same_share(nemo, pages):
    assert_equal(nemo, pages)


def test_real_pages_have_the_same_share(nemo):
    found = [
        path for path in sorted(Path("/usr/share").rglob("*.html")) if path.is_file() and path.stat().st_size < 300_000
    ]
    pages = [path.read_text(encoding="utf-8", errors="ignore") for path in found[:: max(len(found) // 200, 1)]]
    if not pages:
        pytest.skip("there is no HTML below /usr/share")
    assert_equal(nemo, pages)

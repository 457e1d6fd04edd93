# SPDX-License-Identifier: Apache-2.0
"""`remove_html` and `remove_markdown`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from unittest import mock

import dask.dataframe as dd
import pandas as pd
import pytest

from curator_df.errors import MissingExtraError, ParameterError
from curator_df.kernels.edits.html_texts import HtmlSettings, text_of_html
from curator_df.ops.cleaning.markup import PARSED_FACTOR, remove_html, remove_markdown
from tests.contracts.operator_cases import kernels_of

PAGE = """<html><head><title>Page</title><style>p {}</style><script>let x = 1 < 2;</script></head><body>
<nav><ul><li><a href="/">Home</a></li><li><a href="/b">Blog</a></li></ul></nav>
<main><h1>A story &amp; more</h1><p>It was the <b>best</b> of times,
it was the worst.</p><ul><li>one</li><li>two</li></ul><img src="a.png" alt="A picture"><!-- a comment --></main>
<footer>Terms of use</footer></body></html>"""
STORY = "A story & more\n\nIt was the best of times, it was the worst."


def table(*texts: str | None):
    return dd.from_pandas(pd.DataFrame({"text": pd.array(texts, "string[pyarrow]")}), npartitions=1)


def test_a_page_becomes_its_text():
    docs = table(PAGE, None, "a text & no page", "")
    story, *others = docs.pipe(remove_html).compute()["text"]
    assert story.strip() == STORY
    assert others[0] is pd.NA and others[1:] == ["a text & no page", ""]
    everything = docs.pipe(remove_html, main_content=False, alt_texts=True).compute()["text"][0]
    assert all(part in everything for part in ("Home", "Terms of use", "A picture", "best of times", "• one"))
    assert "let x" not in everything and "a comment" not in everything


def test_broken_pages_have_texts_too():
    for page in (
        "<p>open <b>never closed",
        "<",
        "a < b",
        "<p",
        "</p>",
        "<!-- ",
        "<p>\x00\ud7ff</p>",
        "&#xD800;<p>",
        "<table><p>a",
    ):
        assert isinstance(table(page).pipe(remove_html).compute()["text"][0], str)


def test_of_a_long_page_the_beginning_is_read():
    page = "<p>" + "é word " * 1_000 + "</p>"
    (kernel,) = kernels_of(table().pipe(remove_html, max_page_size="1kB"))
    outcome = kernel.run(pd.DataFrame({"text": pd.array([page, "<p>a"], "string[pyarrow]")}))
    cut, short = outcome.block["text"]
    assert cut.startswith("é word é word") and 900 < len(cut.encode()) <= 1_000 and short == "a"
    assert outcome.counters == {"rows_changed": 2, "pages_cut": 1, "pages_without_main_content": 0}


@pytest.mark.timeout(60)
def test_deeply_nested_pages_take_no_time_with_the_square():
    page = "<div>" * 150_000 + "<p>deep</p>"
    texts, counts = text_of_html(pd.Series([page], dtype="string[pyarrow]"), HtmlSettings(True, False, 1_000_000))
    assert counts["pages_without_main_content"] == 1 and len(texts) == 1


PEAKS_IN_A_WORKER = """
import sys
import pandas as pd
from curator_df.cluster.preload import prepare_process
from curator_df.memory.limits import peak_of_call
from curator_df.kernels.edits.html_texts import HtmlSettings, text_of_html

prepare_process()
settings = HtmlSettings(main_content=True, alt_texts=False, max_page_bytes=1_000_000)
text_of_html(pd.Series(["<p>warm</p>"], dtype="string[pyarrow]"), settings)
for piece in sys.argv[1:]:
    texts = pd.Series([piece * (1_000_000 // len(piece))], dtype="string[pyarrow]")
    print(peak_of_call(lambda: text_of_html(texts, settings))[0])
"""


def test_a_parsed_page_takes_no_more_than_is_planned():
    """In a process prepared as workers are: malloc's own threshold, which earlier tests raise, costs up to 17 MB more."""
    pieces = ("<p>prose of some length</p>", "<p>", "<table><tr><td>", "<b>", "<a href=x>")
    command = [sys.executable, "-c", PEAKS_IN_A_WORKER, *pieces]
    peaks = [int(line) for line in subprocess.check_output(command, text=True, timeout=280).split()]
    assert len(peaks) == len(pieces)
    assert all(0 < peak <= PARSED_FACTOR * 1_000_000 + 2 * 1_000_000 for peak in peaks), peaks


def test_what_is_missing_or_wrong_is_said():
    with pytest.raises(ParameterError, match="max_page_size='10B' is less than 1 kB"):
        table().pipe(remove_html, max_page_size="10B")
    with (
        mock.patch.object(importlib.util, "find_spec", return_value=None),
        pytest.raises(MissingExtraError, match=r"pip install .*\[html\]"),
    ):
        table().pipe(remove_html)
    with pytest.raises(ParameterError, match="links='both' is not one of 'text', 'url'"):
        table().pipe(remove_markdown, links="both")


def test_marks_of_markdown():
    text = "**Bold** and *italic* and _too_, see [here](https://a.b/c_d_e) ![x](y).\nsnake_case_name, 2 * 3 * 4"
    plain = "Bold and italic and too, see here x.\nsnake_case_name, 2 * 3 * 4"
    nemo = "Bold and italic and too, see https://a.b/cde !y.\nsnakecasename, 2  3  4"
    assert table(text).pipe(remove_markdown).compute()["text"][0] == plain
    assert table(text).pipe(remove_markdown, links="url", inside_words=True).compute()["text"][0] == nemo

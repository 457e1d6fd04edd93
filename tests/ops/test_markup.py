# SPDX-License-Identifier: Apache-2.0
"""`remove_html` and `remove_markdown`."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from unittest import mock

import dask.dataframe as dd
import pandas as pd
import pytest

import curator_df as cdf
from curator_df.errors import ColumnError, MissingExtraError, OperatorError, ParameterError
from curator_df.ops.cleaning.markup import (
    CALL_FACTOR,
    PARSED_FACTOR,
    HtmlSettings,
    remove_html,
    remove_markdown,
    text_of_html,
)
from tests.contracts.operator_cases import kernels_of
from tests.core.runner.fake_client import inline_cluster

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
from curator_df.ops.cleaning.markup import HtmlSettings, text_of_html

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
    with pytest.raises(ParameterError, match="max_page_size='10B' is less than the minimum of 1 kB"):
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


STORIES = "It was the best of times, and it was the worst of times; that we have to be with all of it. "
LONG = f"""<html><head><title>Page</title></head><body><nav><a href="/">Home</a> <a href="/b">Blog</a></nav>
<article><h1>A story</h1><p>{STORIES * 2}</p>
<pre><code>def f(x):
    return x  *  2</code></pre>
<p>A formula \\(a_1 + b\\), one of MathJax <script type="math/tex">\\alpha_1</script>, and another:
<script type="math/tex; mode=display">E &lt; mc^2</script> {STORIES}</p>
<table><tr><th>Name</th><th>Value</th></tr><tr><td>one</td><td>1</td></tr></table>
<p>{STORIES * 3}</p></article><footer>Terms of use</footer></body></html>"""


@pytest.fixture
def extractors():
    """Leave a test out where the extractors are not installed."""
    for package in ("trafilatura", "justext"):
        pytest.importorskip(package, reason="needs the html extra")


def extracted(*pages, **options):
    return table(*pages).pipe(remove_html, **options).compute(scheduler="synchronous")["text"].tolist()


@pytest.mark.usefixtures("extractors")
def test_the_four_outputs():
    texts = {name: extracted(LONG, extractor=name)[0] for name in ("resiliparse", "trafilatura", "justext")}
    texts["markdown"] = extracted(LONG, extractor="trafilatura", output="markdown")[0]
    assert len(set(texts.values())) == 4
    for text in texts.values():
        assert STORIES.strip() in text
        assert "Terms of use" not in text and "Blog" not in text
    markdown = texts["markdown"]
    assert markdown.startswith("# A story\n")
    assert "```\ndef f(x):\n    return x  *  2\n```" in markdown
    assert "| Name | Value |" in markdown and "|---|---|" in markdown and "| one | 1 |" in markdown
    for formula in ("a_1 + b", "\\alpha_1", "E < mc^2"):
        assert formula in markdown


@pytest.mark.usefixtures("extractors")
def test_favor_is_passed_on():
    aside = f"<div><p>Share.</p></div><aside><p>{STORIES}Aside.</p></aside>"
    page = f"<html><body><article><p>{STORIES * 3}</p>{aside}</article></body></html>"
    precise, balanced, more = (
        extracted(page, extractor="trafilatura", favor=favor)[0] for favor in ("precision", None, "recall")
    )
    assert len(precise) <= len(balanced) <= len(more)
    (kernel,) = kernels_of(table().pipe(remove_html, extractor="trafilatura", favor="recall"))
    assert kernel.parameters["settings"].extraction.favor == "recall"


ODD = {
    "empty": "<html></html>",
    "a bracket": "<",
    "no element": "<!-- -->",
    "binary": bytes(range(256)).decode("latin-1") * 20 + "<p>a",
    "zeros": "<p>a\0b</p>" * 50,
    "malformed": "<table><p>a<b></table></i></p><div" + "<![CDATA[" * 9,
    "declaration": '<?xml version="1.0" encoding="utf-16"?><html><body><p>a</p></body></html>',
    "deep": "<div>" * 20_000 + f"<p>{STORIES}</p>",
    "deep inline": "<b>" * 20_000 + STORIES,
    "attributes": "<p " + " ".join(f"a{n}=1" for n in range(5_000)) + f">{STORIES}</p>",
    "surrogates": "<p>&#xD800;&#x110000;&#0;</p>",
}


@pytest.mark.usefixtures("extractors")
@pytest.mark.parametrize(
    "options",
    [{"extractor": "trafilatura"}, {"extractor": "trafilatura", "output": "markdown"}, {"extractor": "justext"}],
)
def test_odd_pages_have_a_text_and_harm_no_other(options):
    alone = extracted(LONG, **options)
    texts = extracted(*ODD.values(), LONG, **options)
    assert all(isinstance(text, str) for text in texts)
    assert texts[-1:] == alone


@pytest.mark.usefixtures("extractors")
def test_null_and_text_without_markup_stay():
    options = {"extractor": ("trafilatura", "justext"), "extractor_into": "by"}
    made = table(None, "plain text", "", LONG).pipe(remove_html, **options).compute(scheduler="synchronous")
    assert made["text"].isna().tolist() == [True, False, False, False]
    assert made["text"].tolist()[1:3] == ["plain text", ""]
    assert made["by"].isna().tolist() == [True, True, True, False]


@pytest.mark.usefixtures("extractors")
def test_of_several_extractors_the_first_long_text_or_the_longest_is_kept():
    short = "<html><body><div><p>Short.</p></div></body></html>"
    names = ("justext", "trafilatura", "resiliparse")
    (kernel,) = kernels_of(table().pipe(remove_html, extractor=names, min_chars=100, extractor_into="by"))
    outcome = kernel.run(pd.DataFrame({"text": pd.array([LONG, short], "string[pyarrow]")}))
    alone = {name: extracted(LONG, short, extractor=name) for name in names}
    longest = max(names, key=lambda name: len(alone[name][1].strip()))
    assert alone["justext"][1] == ""
    assert outcome.block["by"].tolist() == ["justext", longest]
    assert outcome.block["text"].tolist() == [alone["justext"][0], alone[longest][1]]
    counted = {name: [("justext"), longest].count(name) for name in names}
    assert outcome.counters == {
        "rows_changed": 2,
        "pages_cut": 0,
        **{f"kept_{name}": count for name, count in counted.items()},
    }


@pytest.mark.usefixtures("extractors")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"extractor": "trafilatura", "favor": "precision"}, marks=pytest.mark.proof),
        {"extractor": ("justext", "trafilatura")},
    ],
)
def test_a_text_depends_on_its_page_alone(options):
    """A page 1,000 times between others, in any order and partitioning: no cache, and no removal of duplicates, changes it."""
    variants = [LONG.replace("best", f"best {number}").replace("one", f"n{number}") for number in range(3)]
    pages = [LONG] * 1_000 + variants * 5
    random.Random(1).shuffle(pages)
    alone = {page: extracted(page, **options)[0] for page in (LONG, *variants)}
    assert len(set(alone.values())) == 4
    frame = pd.DataFrame({"text": pd.array(pages, "string[pyarrow]")})
    for partitions in (1, 3):
        made = (
            dd.from_pandas(frame, npartitions=partitions).pipe(remove_html, **options).compute(scheduler="synchronous")
        )
        assert made["text"].tolist() == [alone[page] for page in pages]


@pytest.mark.linux
@pytest.mark.usefixtures("extractors")
def test_a_page_of_tags_alone_fails_where_it_needs_more_memory_than_planned():
    (kernel,) = kernels_of(table().pipe(remove_html, extractor="trafilatura", timeout_seconds=60))
    page = "<html><body>" + "<a href=x>" * 100_000
    outcome = kernel.run(pd.DataFrame({"text": pd.array([page, LONG], "string[pyarrow]")}))
    assert list(outcome.failed) == [0]
    assert "of memory that are planned for a call" in outcome.failed[0]
    assert outcome.block["text"].tolist() == extracted(LONG, extractor="trafilatura")
    (bytes_each,) = kernel.price.held_by_task.values()
    assert bytes_each > CALL_FACTOR * 1_000_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"extractor": "readability"}, "extractor='readability' is not one of 'resiliparse', 'trafilatura', 'justext'"),
        ({"extractor": ()}, "extractor is empty"),
        ({"extractor": ("justext", "justext")}, "names an extractor twice"),
        ({"favor": "recall"}, "favor= is an option of trafilatura, which is not in extractor="),
        ({"extractor": "trafilatura", "favor": "most"}, "favor='most' is not one of 'precision', 'recall'"),
        ({"extractor": "trafilatura", "main_content": False}, "main_content= is an option of resiliparse"),
        ({"extractor": "justext", "alt_texts": True}, "alt_texts= is an option of resiliparse"),
        ({"stop_words": "German"}, "stop_words= is an option of justext"),
        ({"output": "markdown"}, "output='markdown' is made by trafilatura only"),
        ({"extractor": ("trafilatura", "justext"), "output": "markdown"}, "names justext, which returns plain text"),
        ({"extractor_into": "by"}, "extractor_into='by' names the column for the extractor of each text"),
        ({"timeout_seconds": 0}, "timeout_seconds=0 is not from 0.01 to 3,600"),
        ({"min_chars": 1.5}, "min_chars=1.5 must be a whole number"),
    ],
)
def test_wrong_options_are_errors(options, said):
    with pytest.raises(ParameterError) as info:
        table().pipe(remove_html, **options)
    assert said in str(info.value)


@pytest.mark.usefixtures("extractors")
def test_errors_that_need_the_extractors():
    with pytest.raises(ParameterError, match="stop_words='Klingon' is not one of 'Afrikaans'"):
        table().pipe(remove_html, extractor="justext", stop_words="Klingon")
    with pytest.raises(ColumnError, match="extractor_into"):
        table().pipe(remove_html, extractor=("justext", "trafilatura"), extractor_into="text")


def test_an_extractor_that_is_not_installed_is_named():
    found = importlib.util.find_spec
    with (
        mock.patch.object(importlib.util, "find_spec", lambda name: None if name == "justext" else found(name)),
        pytest.raises(MissingExtraError, match=r"needs the package justext.*\[html\]"),
    ):
        table().pipe(remove_html, extractor="justext")


FAKE = """
import re, time

def extract(page, **options):
    if "endless" in page:
        re.match(r"(a+)+$", "a" * 60 + "b")
    if "broken" in page:
        raise ValueError("a broken page")
    if "slow" in page:
        time.sleep(0.05)
    return page.replace("<p>", "text of ")
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """An extractor that does not return from some pages, instead of trafilatura."""
    package = tmp_path / "fake/trafilatura"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE)
    info = tmp_path / "fake/trafilatura-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trafilatura\nVersion: 2.0\n")
    monkeypatch.syspath_prepend(str(tmp_path / "fake"))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'fake'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    sys.modules.pop("trafilatura", None)
    return package


def write_pages(path, *pages):
    path.mkdir()
    (path / "a.jsonl").write_text("".join(json.dumps({"text": page}) + "\n" for page in pages))
    return str(path)


@pytest.mark.usefixtures("fake")
def test_a_page_that_never_ends_costs_its_limit_and_one_quarantined_row(tmp_path):
    pages = ["<p>one", "<p>endless", "<p>two", "<p>broken", "<p>three"]
    docs = cdf.read_jsonl(write_pages(tmp_path / "in", *pages))
    chain = docs.pipe(remove_html, extractor="trafilatura", timeout_seconds=0.5)
    started = time.monotonic()
    with inline_cluster():
        receipt = cdf.write_parquet(chain, tmp_path / "out", on_error="quarantine")
    assert 0.4 < time.monotonic() - started < 30
    assert (receipt.rows_read, receipt.rows_written, receipt.rows_quarantined) == (5, 3, 2)
    assert pd.read_parquet(tmp_path / "out")["text"].tolist() == ["text of one", "text of two", "text of three"]
    (aside,) = (tmp_path / "out/_quarantine").iterdir()
    records = [json.loads(line) for line in aside.read_text().splitlines()]
    content = (tmp_path / "in/a.jsonl").read_bytes()
    for record, page, reason in zip(
        records,
        (pages[1], pages[3]),
        ("took more than 0.5 CPU seconds", "raised ValueError: a broken page"),
        strict=True,
    ):
        assert record["file"] == str(tmp_path / "in/a.jsonl")
        assert json.loads(content[record["offset"] :].split(b"\n")[0]) == {"text": page} == json.loads(record["raw"])
        assert record["reason"] == f"step 'remove_html' {reason}"


@pytest.mark.usefixtures("fake")
def test_a_page_that_never_ends_stops_the_run_with_its_place(tmp_path):
    docs = cdf.read_jsonl(write_pages(tmp_path / "in", "<p>one", "<p>endless"))
    chain = docs.pipe(remove_html, extractor="trafilatura", timeout_seconds=0.3)
    with (
        inline_cluster(),
        pytest.raises(OperatorError, match=r"'remove_html' took more than 0\.3 CPU seconds on .*a\.jsonl offset 19"),
    ):
        cdf.write_parquet(chain, tmp_path / "out")


RUN = """
import sys
import curator_df as cdf

if __name__ == "__main__":
    source, target = sys.argv[1:3]
    options = {"extractor": "trafilatura", "timeout_seconds": 0.3}
    with cdf.start_cluster(memory="1.5GB", cpus=1):
        chain = cdf.read_jsonl(source, blocksize="20kB").pipe(cdf.remove_html, **options)
        receipt = cdf.write_parquet(chain, target, on_existing="resume", on_error="quarantine")
    print(receipt.rows_written, receipt.rows_quarantined, receipt.measured_bytes, receipt.projected_bytes)
"""


@pytest.mark.linux
@pytest.mark.usefixtures("fake")
def test_a_killed_run_resumes_and_leaves_no_process(tmp_path):
    import psutil

    source = tmp_path / "in"
    source.mkdir()
    for part in range(4):
        rows = [f"<p>slow {part} {number} " + "word " * 200 for number in range(8)]
        rows[5] = f"<p>endless {part}"
        (source / f"{part:02d}.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    script = tmp_path / "run.py"
    script.write_text(RUN)
    command = [sys.executable, str(script), str(source), str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        deadline = time.monotonic() + 90
        helpers = []
        while not helpers:
            assert time.monotonic() < deadline and first.poll() is None, first.stderr.read()
            time.sleep(0.05)
            below = psutil.Process(first.pid).children(recursive=True)
            for one in below:
                with contextlib.suppress(psutil.Error):  # it ended in the meantime
                    helpers += [one] if "killable_process" in " ".join(one.cmdline()) else []
        for one in [psutil.Process(first.pid), *(each for each in below if each not in helpers)]:
            with contextlib.suppress(psutil.Error):
                one.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(below, timeout=10)
    assert alive == []
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    written, quarantined, measured, projected = map(int, done.stdout.split()[-4:])
    assert (written, quarantined) == (4 * 7, 4)
    assert 0 < measured <= projected <= 1_500_000_000
    texts = pd.read_parquet(tmp_path / "out")["text"]
    assert len(set(texts)) == 4 * 7
    assert texts.str.startswith("text of slow").all()

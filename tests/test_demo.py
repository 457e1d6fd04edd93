# SPDX-License-Identifier: Apache-2.0
"""The demo: what it prints, keeps and leaves behind."""

import io
import os
import sys
import time

import pytest
from rich.console import Console

from curator_df import demo, demo_corpus
from curator_df.demo_corpus import read_corpus
from tests.test_demo_corpus import rows_of


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A cache folder and a folder for temporary files, for this process and those that it starts."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("CURATOR_DF_CACHE", os.environ.get("CURATOR_DF_CACHE", str(demo_corpus.kept_folder("kernels"))))
    monkeypatch.setattr(demo_corpus, "kept_folder", lambda name: tmp_path / "cache" / name)
    return tmp_path


def printed_by(folder=None):
    console = Console(file=io.StringIO(), width=200, markup=False)
    assert demo.run_demo(console, folder, "datatrove_gopher_quality", "4GB", 1)  # the process of the tests may be large
    return console.file.getvalue()


def test_the_second_demo_collects_nothing_and_no_demo_leaves_temporary_files(environment):
    target = environment / "named"  # the second one has a folder, and with it a copy of the corpus
    (target / "corpus").mkdir(parents=True)
    (target / "corpus" / "manuals.jsonl").write_text("of an earlier demo\n")
    first, second = printed_by(), printed_by(target)
    kept = list((environment / "cache" / "demo").iterdir())
    assert len(kept) == 1
    corpus, copied = read_corpus(kept[0]), read_corpus(target / "corpus")
    assert corpus.is_enough
    assert corpus.text_bytes < demo_corpus.DEMO_BYTES
    for shown, folder in ((first, kept[0]), (second, target / "corpus")):
        assert f"Corpus: {corpus.documents:,} documents, 20 MB of text in {folder}" in shown
        assert f"{corpus.documents:,} read" in shown
        assert "Some of the rows that were dropped:" in shown
    assert first.startswith("Collecting text")
    assert "Collecting" not in second
    assert list((environment / "tmp").iterdir()) == []
    rows = [row for path in corpus.files for row in rows_of(path)]
    assert len({row["id"] for row in rows}) == len(rows) == corpus.documents >= 2_000
    assert sum(len(row["text"].encode()) for row in rows) == corpus.text_bytes >= 19_000_000
    assert {path.name for path in (target / "corpus").iterdir()} == {path.name for path in copied.files} | {
        demo_corpus.ABOUT
    }
    assert copied.documents == corpus.documents
    assert list((target / "clean").glob("*.parquet"))


def test_progress_is_shown_as_lines_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(demo, "TOLD_SECONDS", -1.0)
    console, bar = Console(file=io.StringIO()), []
    tell = demo._shown(console, lambda done, text: bar.append((done, text)))
    tell(1_200, 3_400_000)
    tell(9_000, 21_000_000)
    assert console.file.getvalue() == "3 of 20 MB, 1,200 documents\n21 of 20 MB, 9,000 documents\n"
    assert bar == [(3, "MB, 1,200 documents"), (20, "MB, 9,000 documents")]


def test_a_line_says_that_work_goes_on_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(demo, "TOLD_SECONDS", 0.001)
    console = Console(file=io.StringIO(), width=100)
    with demo._alive(console, "compiling kernels", has_bar=True):
        while console.file.getvalue().count("\n") < 2:
            time.sleep(0.001)
    shown = console.file.getvalue()
    assert set(shown.splitlines()) == {"compiling kernels: 0 s"}
    time.sleep(0.01)
    assert console.file.getvalue() == shown


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("has_bar", [False, True])
def test_a_spinner_shows_in_a_terminal_that_work_goes_on(monkeypatch, has_bar):
    monkeypatch.setattr(sys, "stderr", Terminal())
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with demo._alive(console, "starting the cluster", has_bar=has_bar):
        pass
    assert ("starting the cluster" in console.file.getvalue()) == (not has_bar)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"could not be collected: File exists: .*/file"):
        demo._gather(tmp_path / "file", lambda *_: None)

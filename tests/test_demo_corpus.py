# SPDX-License-Identifier: Apache-2.0
"""The demo corpus: what counts as text, and that there is enough of it wherever the package is installed."""

from __future__ import annotations

import gzip
import io
import json
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from curator_df import demo_corpus
from curator_df.demo_corpus import header_comments, kept_corpus, python_prose, read_text, roff_text, write_demo_corpus

PROSE = "All of these words were written by somebody who wanted that another person could follow the program. "


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if path.suffix == ".zst":
        content = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content)).read()
    yield from (json.loads(line) for line in io.BytesIO(content))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that takes the place of everything installed."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setattr(sysconfig, "get_paths", lambda: dict.fromkeys(("purelib", "platlib", "stdlib"), str(folder)))
    monkeypatch.setattr(demo_corpus, "SYSTEM_FOLDERS", {"man": str(tmp_path / "man")})
    return folder


@pytest.mark.proof  # tests/test_demo.py checks the 20 MB of a demo in the same way
def test_this_environment_holds_enough(tmp_path: Path) -> None:
    corpus = write_demo_corpus(tmp_path)
    assert corpus.is_enough
    assert 20_000_000 <= corpus.text_bytes <= 60_000_000
    assert {"comments.jsonl.gz", "docstrings.jsonl", "documents.jsonl.zst"} <= {path.name for path in corpus.files}
    ids: list[str] = []
    text_bytes = 0
    for path in corpus.files:
        for row in rows_of(path):
            ids.append(row["id"])
            text_bytes += len(row["text"].encode())
    assert len(set(ids)) == len(ids) == corpus.documents >= 2_000
    assert text_bytes == corpus.text_bytes


def test_one_document_of_each_kind(packages: Path, tmp_path: Path) -> None:
    (packages / "a.py").write_text(f'"""{PROSE}"""\n# {PROSE}\n')
    (packages / "LICENSE").write_text(PROSE)
    (packages / "a.dist-info").mkdir()
    (packages / "a.dist-info" / "METADATA").write_text(f"Name: a\n\n{PROSE}")
    (tmp_path / "man" / "man1").mkdir(parents=True)
    (tmp_path / "man" / "man1" / "a.1.gz").write_bytes(gzip.compress(f".TH A 1\n{PROSE}\n".encode()))
    corpus = write_demo_corpus(tmp_path / "out")
    assert corpus.documents_by_kind == dict.fromkeys(["comments", "docstring", "documentation", "license", "manual"], 1)
    assert {path.name: [row["id"] for row in rows_of(path)] for path in corpus.files} == {
        "comments.jsonl.gz": ["purelib/a.py#comments-1"],
        "docstrings.jsonl": ["purelib/a.py#docstring-1"],
        "documents.jsonl.zst": ["purelib/LICENSE#license-1", "purelib/a.dist-info/METADATA#documentation-1"],
        "manuals.jsonl": ["man/man1/a.1.gz#manual-1"],
    }
    assert {row["text"].strip() for path in corpus.files for row in rows_of(path)} == {PROSE.strip()}


def test_too_little_is_said(packages: Path, tmp_path: Path) -> None:
    (packages / "readme.md").write_text(PROSE)
    assert not write_demo_corpus(tmp_path / "out", min_bytes=len(PROSE) + 1, min_documents=1).is_enough
    assert not write_demo_corpus(tmp_path / "out", min_bytes=1, min_documents=2).is_enough
    assert write_demo_corpus(tmp_path / "out", min_bytes=len(PROSE), min_documents=1).is_enough


def test_the_same_installation_gives_the_same_bytes(packages: Path, tmp_path: Path) -> None:
    for number in range(20):
        (packages / f"{number}.py").write_text(f'"""{number} {PROSE}"""\n# {number} {PROSE}\n')
    first, second, other = (
        write_demo_corpus(tmp_path / name, seed=seed) for name, seed in [("a", 0), ("b", 0), ("c", 1)]
    )
    assert [path.read_bytes() for path in first.files] == [path.read_bytes() for path in second.files]
    assert list(rows_of(first.files[1])) != list(rows_of(other.files[1]))


def test_no_more_than_the_most_bytes(packages: Path, tmp_path: Path) -> None:
    for number in range(20):
        (packages / f"{number}.py").write_text(f'"""{PROSE}"""\n')
    corpus = write_demo_corpus(tmp_path / "out", max_bytes=4 * 5 * len(PROSE))
    assert corpus.documents == 5


def test_unreadable_files_are_skipped_and_counted(packages: Path, tmp_path: Path) -> None:
    man = tmp_path / "man" / "man1"
    man.mkdir(parents=True)
    (man / "cut.1.gz").write_bytes(gzip.compress(PROSE.encode() * 50)[:-20])
    (man / "no-gzip.1.gz").write_bytes(b"plain")
    (man / "good.1").write_text(PROSE)
    (packages / "loop").symlink_to(packages)
    (packages / "gone.py").symlink_to(packages / "nowhere.py")
    corpus = write_demo_corpus(tmp_path / "out")
    assert (corpus.skipped_files, corpus.documents) == (2, 1)
    assert [path.name for path in corpus.files] == ["manuals.jsonl"]


def test_a_second_call_replaces_the_first(packages: Path, tmp_path: Path) -> None:
    page = packages / "page.py"
    page.write_text(f'"""{PROSE}"""\n')
    write_demo_corpus(tmp_path / "out")
    page.unlink()
    assert write_demo_corpus(tmp_path / "out").files == ()
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("naïve".encode(), "naïve"),
        ("naïve".encode("latin-1"), "naïve"),
        (b"", ""),
        (b"PNG\0\0", ""),
        ("née 👍".encode(), "née 👍"),
    ],
)
def test_read_text(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "page"
    path.write_bytes(content)
    assert read_text(path) == text


def test_a_file_that_unpacks_to_much_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "page.gz"
    path.write_bytes(gzip.compress(b"a" * 10 * demo_corpus.MAX_FILE_BYTES))
    assert len(read_text(path)) == demo_corpus.MAX_FILE_BYTES


@pytest.mark.parametrize(
    ("source", "prose"),
    [
        ('x = """no\ndocstring"""\n', []),
        ('def f():\n    r"""Raw \\d."""\n', ["Raw \\d."]),
        ("'''Single.'''\n", ["Single."]),
        ('"""Has "quotes" and ""two""."""\n', ['Has "quotes" and ""two"".']),
        ('add_doc(f,\n    """Handed over.""")\n', ["Handed over."]),
        ("x = '#'  # trailing\n# Whole.\n", ["Whole."]),
        ("#!/bin/python\n# One\n# block.\nx = 1\n# Another.\n", ["One\nblock.\n\nAnother."]),
        ('x = "open\n# After it.\n', ["After it."]),
        ('"""never closed\n', []),
    ],
)
def test_python_prose(source: str, prose: list[str]) -> None:
    assert [text for _, text in python_prose(source) if text] == prose


def test_header_comments() -> None:
    assert header_comments('/// \\brief Adds.\nint add(); // to it\nchar *s = "/* no */";\n/* unclosed') == (
        "\\brief Adds.\nto it"
    )


def test_roff_text() -> None:
    page = '.\\" a comment\n.TH CAT 1\n.SH "SEE ALSO"\n.PP\n.PP\n\\fIcat\\fP(1), file\\ name \\(bu a\\-b\n'
    assert roff_text(page) == "SEE ALSO\n\ncat(1), file name  a-b"


def test_gathering_stops_with_enough_and_reports_progress(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        (packages / f"{number}.py").write_text(f'"""{number} {PROSE}"""\n')
    (tmp_path / "man" / "man1").mkdir(parents=True)
    for number in range(50):
        (tmp_path / "man" / "man1" / f"{number}.1").write_text(f"{number} {PROSE}")
    monkeypatch.setattr(demo_corpus, "PROGRESS_SECONDS", -1.0)
    told: list[tuple[int, int]] = []
    corpus = write_demo_corpus(
        tmp_path / "out",
        min_bytes=10 * len(PROSE),
        min_documents=12,
        only_enough=True,
        on_progress=lambda *found: told.append(found),
    )
    assert corpus.is_enough
    assert corpus.documents == 12
    assert corpus.documents_by_kind == {"docstring": 6, "manual": 6}  # folders are visited in turn
    assert told[0] == (0, 0)
    assert told == sorted(told)
    assert told[-1][0] == 11


class Gathering:
    """Stands for the process that gathers, and counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        demo_corpus.write_for_demo(folder)


@pytest.fixture
def cache(packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user in which the corpus of one small package is kept."""
    (packages / "one-1.0.dist-info").mkdir()
    (packages / "one.py").write_text(f'"""{PROSE}"""\n')
    monkeypatch.setenv("CURATOR_DF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "demo"


def test_the_text_of_the_demo_is_gathered_once(cache: Path) -> None:
    gather = Gathering()
    first, second = kept_corpus(gather), kept_corpus(gather)
    assert first is not None
    assert first == second
    assert gather.calls == 1
    assert [path.parent for path in first.files] == [first.folder]
    assert list(cache.iterdir()) == [first.folder]
    assert [row["text"].strip() for path in first.files for row in rows_of(path)] == [PROSE.strip()]


def test_it_is_gathered_again_when_other_packages_are_installed(cache: Path, packages: Path) -> None:
    gather = Gathering()
    first = kept_corpus(gather)
    (packages / "one-1.0.dist-info").rename(packages / "one-1.1.dist-info")
    second = kept_corpus(gather)
    assert gather.calls == 2
    assert first is not None
    assert second is not None
    assert first.folder != second.folder


def test_a_kept_corpus_that_is_not_whole_is_gathered_again(cache: Path) -> None:
    gather = Gathering()
    first = kept_corpus(gather)
    assert first is not None
    first.files[0].write_bytes(b"")
    again = kept_corpus(gather)
    assert gather.calls == 2
    assert again is not None
    assert again.files[0].stat().st_size > 0
    (first.folder / demo_corpus.ABOUT).write_text("{")
    kept_corpus(gather)
    assert gather.calls == 3
    assert list(cache.iterdir()) == [first.folder]


def test_few_corpora_are_kept_and_nothing_unfinished(cache: Path, packages: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "docstrings.jsonl").write_text("{")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        kept_corpus(fail)
    assert list(cache.iterdir()) == []
    (cache / "old.part").mkdir()
    os.utime(cache / "old.part", (0, 0))
    (cache / "of-another-process.part").mkdir()
    for number in range(demo_corpus.KEPT_CORPORA + 2):
        (packages / f"more-{number}.dist-info").mkdir()
        latest = kept_corpus(Gathering())
        assert latest is not None
        os.utime(latest.folder, (number + 1, number + 1))
    left = {path.name for path in cache.iterdir()}
    assert len(left) == demo_corpus.KEPT_CORPORA + 1
    assert {latest.folder.name, "of-another-process.part"} <= left


def test_nothing_is_kept_where_the_user_has_no_folder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.parent.mkdir()
    (cache.parent / "file").write_text("")
    monkeypatch.setenv("CURATOR_DF_CACHE", str(cache.parent / "file"))
    assert kept_corpus(Gathering()) is None

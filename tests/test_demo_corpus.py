# SPDX-License-Identifier: Apache-2.0
"""The demo corpus: what counts as text, and that there is enough of it wherever the package is installed."""

from __future__ import annotations

import gzip
import io
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from curator_df import demo_corpus
from curator_df.demo_corpus import header_comments, python_prose, read_text, roff_text, write_demo_corpus

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
    assert corpus.documents_by_kind == dict.fromkeys(["comments", "docstring", "documentation", "licence", "manual"], 1)
    assert {path.name: [row["id"] for row in rows_of(path)] for path in corpus.files} == {
        "comments.jsonl.gz": ["purelib/a.py#comments-1"],
        "docstrings.jsonl": ["purelib/a.py#docstring-1"],
        "documents.jsonl.zst": ["purelib/LICENSE#licence-1", "purelib/a.dist-info/METADATA#documentation-1"],
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

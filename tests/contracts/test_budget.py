# SPDX-License-Identifier: Apache-2.0
"""Measured <= projected <= allowed: whole runs, from the reader to the files, under the number that a user names."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
CORPUS_BYTES = 80_000_000
FILES = 4
COMMON_WORDS = ["the", "and", "of", "to", "that", "with"] * 300


def prose(letters: random.Random) -> str:
    """Return a megabyte of sentences."""
    words = ["".join(letters.choices("etaoinshrdlucmf", k=letters.randint(2, 9))) for _ in range(5_000)]
    return "".join(f"{' '.join(letters.choices(words + COMMON_WORDS, k=14))}.\n" for _ in range(12_000))


def slices(text: str, letters: random.Random, shortest: int, longest: int) -> Iterator[str]:
    """Yield random pieces of a text for ever."""
    while True:
        start = letters.randrange(len(text) - longest)
        yield text[start : start + letters.randint(shortest, longest)]


def prose_documents(text: str, letters: random.Random) -> Iterator[str]:
    return slices(text, letters, 100, 6_000)


def short_rows(text: str, letters: random.Random) -> Iterator[str]:
    return slices(text, letters, 60, 100)


def broken_documents(text: str, letters: random.Random) -> Iterator[str]:
    for document in slices(text, letters, 100, 6_000):
        yield document.replace("\n", "\r\n") + "cafÃ© noir\n"


def with_huge_rows(text: str, letters: random.Random) -> Iterator[str]:
    for number, document in enumerate(slices(text, letters, 100, 6_000)):
        yield text * 4 if number % 4_000 == 1 else document


SHAPES = {
    "prose": prose_documents,
    "rows of 60 to 100 bytes": short_rows,
    "every row is repaired": broken_documents,
}
CUT = {"prose": 2, "rows of 60 to 100 bytes": 2, "every row is repaired": 4}
"""So much less text of each."""


def write_corpus(folder: Path, documents: Callable[[str, random.Random], Iterator[str]], cut: int = 1) -> Path:
    """Write about 80 MB (or a part of that) of JSON Lines, the same in every run."""
    letters = random.Random(0)
    texts = documents(prose(letters), letters)
    for part in range(FILES):
        with open(folder / f"part-{part}.jsonl", "wb") as file:
            while file.tell() < CORPUS_BYTES // FILES // cut:
                file.write(orjson.dumps({"id": file.tell(), "text": next(texts)}) + b"\n")
    return folder


def run_under(memory: str, corpus: Path, output: Path, *how: str) -> dict[str, Any]:
    """Run once in a process of its own; return its receipt, after what must hold of every run."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.contracts.budget_run", memory, str(corpus), str(output), *how],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=240,
    )
    receipt: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    assert receipt["rows_read"] == sum(path.read_bytes().count(b"\n") for path in corpus.iterdir())
    assert 0 < receipt["rows_written"] < receipt["rows_read"], receipt
    assert 0 < receipt["measured_bytes"] <= receipt["projected_bytes"] <= receipt["allowed_bytes"], receipt
    return receipt


@pytest.fixture(scope="module", params=SHAPES)
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), SHAPES[request.param], CUT.get(request.param, 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "memory", ["450MB", *(pytest.param(memory, marks=pytest.mark.proof) for memory in ("700MB", "1.4GB"))]
)
def test_measured_is_at_most_projected_and_projected_at_most_allowed(corpus, memory, tmp_path):
    assert run_under(memory, corpus, tmp_path / "out")["retries"] == {}


@pytest.mark.slow
def test_a_drop_of_duplicates_too(tmp_path):
    (tmp_path / "in").mkdir()
    corpus = write_corpus(tmp_path / "in", short_rows, cut=2)  # the shape with the most keys
    assert run_under("450MB", corpus, tmp_path / "out", "drop")["retries"] == {}


@pytest.mark.proof
@pytest.mark.parametrize("memory", ["450MB", "1.4GB"])
def test_a_drop_of_duplicates_of_any_shape_too(corpus, memory, tmp_path):
    assert run_under(memory, corpus, tmp_path / "out", "drop")["retries"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["450MB", pytest.param("1.4GB", marks=pytest.mark.proof)])
def test_a_drop_of_near_duplicates_too(memory, tmp_path):
    (tmp_path / "in").mkdir()
    corpus = write_corpus(tmp_path / "in", prose_documents, cut=4)
    assert run_under(memory, corpus, tmp_path / "out", "near")["retries"] == {}


@pytest.mark.proof
@pytest.mark.parametrize("memory", ["450MB", "1.4GB"])
def test_four_outputs_at_once_too(corpus, memory, tmp_path):
    assert run_under(memory, corpus, tmp_path / "out", "many")["retries"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["460MB", "560MB"])  # two threads: of the process itself, of a worker process
def test_rows_too_long_to_run_beside_others_run_alone_within_the_budget(memory, tmp_path):
    (tmp_path / "in").mkdir()
    receipt = run_under(memory, write_corpus(tmp_path / "in", with_huge_rows, cut=2), tmp_path / "out")
    assert set(receipt["retries"]) == {"exclusive"}, receipt

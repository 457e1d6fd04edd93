# SPDX-License-Identifier: Apache-2.0
"""A corpus of any size out of the real text of this machine, with duplicates that are known: nothing is downloaded.

    python benchmarks/make_corpus.py OUT [--bytes 10_000_000_000] [--files 32] [--exact 0.05] [--near 0.1] [--seed 0]

Paragraphs of the demo's corpus (docstrings, comments, documentation, licences, manuals) are recombined, and lengths are drawn
from those of its documents, so words, punctuation and skew are real, and what crosses a paragraph is not. Shares of the
documents come again: word for word, or with one word in twenty changed for another. OUT has JSON Lines with ``id`` and ``text``,
and ``OUT-copies.jsonl`` beside it says which document is whose copy. Same arguments on the same machine, same
bytes.
"""

from __future__ import annotations

import argparse
import collections
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pyarrow.parquet as pq

import curator_df as cdf
from curator_df.demo_corpus import write_demo_corpus

LATEST = 5_000
"""Documents of which one may come again: copies are further apart than a block, and what is held stays small."""
NEAR_EDITS = 20
"""Words of a near duplicate for each that is changed."""
MOST_CHARACTERS = 60_000


def real_paragraphs(folder: Path) -> tuple[list[str], list[int]]:
    """Return paragraphs of the demo's corpus, and how long its documents are."""
    write_demo_corpus(folder / "demo")
    with cdf.start_cluster(memory="2GB"):
        cdf.write_parquet(cdf.read_jsonl(str(folder / "demo"))[["text"]], folder / "texts")
    paragraphs, lengths = [], []
    for text in pq.read_table(folder / "texts", columns=["text"])["text"].to_pylist():
        lengths.append(min(len(text), MOST_CHARACTERS))
        paragraphs += [part for part in text.split("\n\n") if part.strip()]
    return paragraphs, lengths


def documents(
    paragraphs: list[str], lengths: list[int], exact: float, near: float, seed: int
) -> Iterator[tuple[str, str, int]]:
    """Yield texts without end: the text, its kind, and of a copy the number of the document that it is a copy of."""
    chosen = random.Random(seed)  # noqa: S311
    latest: collections.deque[tuple[int, str]] = collections.deque(maxlen=LATEST)
    number = 0
    while True:
        draw = chosen.random()
        if latest and draw < exact + near:
            of, text = latest[chosen.randrange(len(latest))]
            yield (text, "exact", of) if draw < exact else (edited(text, chosen), "near", of)
        else:
            wanted, parts, size = chosen.choice(lengths), [], 0
            while size < wanted:
                parts.append(chosen.choice(paragraphs))
                size += len(parts[-1]) + 2
            text = "\n\n".join(parts)[:MOST_CHARACTERS]
            latest.append((number, text))
            yield text, "", number
        number += 1


def edited(text: str, chosen: random.Random) -> str:
    """Return a text with one word in `NEAR_EDITS` changed for another of its own."""
    words = text.split(" ")
    for _ in range(max(1, len(words) // NEAR_EDITS)):
        words[chosen.randrange(len(words))] = chosen.choice(words)
    return " ".join(words)


def main() -> None:
    """Write the corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a folder, made here")
    parser.add_argument(
        "--bytes", type=lambda said: int(float(said)), default=10_000_000_000, help="of all files together"
    )
    parser.add_argument("--files", type=int, default=32)
    parser.add_argument("--exact", type=float, default=0.05, help="share of documents that are copies")
    parser.add_argument("--near", type=float, default=0.1, help="share of documents that are edited copies")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.out.mkdir(parents=True)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        paragraphs, lengths = real_paragraphs(Path(folder))
    made = documents(paragraphs, lengths, given.exact, given.near, given.seed)
    number = written = 0
    with open(given.out.with_name(f"{given.out.name}-copies.jsonl"), "wb") as copies:
        for part in range(given.files):
            with open(given.out / f"part-{part:04d}.jsonl", "wb") as file:
                while written < given.bytes * (part + 1) // given.files:
                    text, kind, of = next(made)
                    written += file.write(orjson.dumps({"id": number, "text": text}) + b"\n")
                    if kind:
                        copies.write(orjson.dumps({"id": number, "of": of, "kind": kind}) + b"\n")
                    number += 1
    seconds = time.perf_counter() - started
    print(f"{number:,} documents, {written:,} bytes in {given.files} files, {seconds:.0f} s")


if __name__ == "__main__":
    main()

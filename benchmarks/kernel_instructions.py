# SPDX-License-Identifier: Apache-2.0
"""What bounds the text kernels: instructions, branches and cache misses for each byte of text, counted by valgrind.

    python benchmarks/kernel_instructions.py --data ../shared/data

Each kernel runs over the same texts once, and then six times, in processes of their own under ``valgrind
--tool=cachegrind``; the difference is what five passes cost, without Python's start. The compiler is told of a CPU that
valgrind knows (AVX2). Mispredictions and misses are those of cachegrind's models of a branch predictor and of the caches,
not of this machine's. Time is measured without valgrind, with the same code.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
from kernel_throughput import best_seconds, english_prose, text_bytes

from curator_df.kernels.measure import measure
from curator_df.profiles import (
    DATATROVE_C4,
    DATATROVE_FINEWEB,
    DATATROVE_GOPHER_QUALITY,
    DATATROVE_GOPHER_REPETITION,
)

TEXTS = 400
PASSES = 6
KERNELS = {
    "Gopher quality": DATATROVE_GOPHER_QUALITY,
    "Gopher, FineWeb and C4": DATATROVE_GOPHER_QUALITY + DATATROVE_GOPHER_REPETITION + DATATROVE_FINEWEB + DATATROVE_C4,
}
COUNTS = {
    "instructions": r"I\s+refs:\s+([\d,]+)",
    "branches": r"Branches:\s+[\d,]+\s+\(\s*([\d,]+) cond",
    "mispredicted": r"Mispredicts:\s+[\d,]+\s+\(\s*([\d,]+) cond",
    "L1 misses": r"D1\s+misses:\s+([\d,]+)",
}


def make_passes(texts: Path, kernel: str, passes: int) -> None:
    """Measure the texts so often; the last line says how long a pass takes."""
    column = pd.read_parquet(texts)["text"]
    metrics = list(KERNELS[kernel].metrics)
    for _ in range(passes):
        list(measure(column, metrics))
    if "VALGRIND" not in os.environ:
        print(best_seconds(lambda: list(measure(column, metrics)), 20))


def counted(command: list[str], environment: dict[str, str]) -> dict[str, int]:
    """Run a command under cachegrind; return its counts."""
    cachegrind = [
        "valgrind",
        "--tool=cachegrind",
        "--cache-sim=yes",
        "--branch-sim=yes",
        "--cachegrind-out-file=/dev/null",
    ]
    run = subprocess.run(
        [*cachegrind, *command], env={**environment, "VALGRIND": "1"}, check=True, stderr=subprocess.PIPE, text=True
    )
    found = {name: re.search(pattern, run.stderr) for name, pattern in COUNTS.items()}
    return {name: int(match[1].replace(",", "")) for name, match in found.items() if match}


def main() -> None:
    """Print a table row for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="directory of the sample files")
    parser.add_argument("--passes", nargs=3, metavar=("TEXTS", "KERNEL", "PASSES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.passes:
        make_passes(Path(given.passes[0]), given.passes[1], int(given.passes[2]))
        return
    texts = english_prose(given.data)[:TEXTS]
    print(f"{len(texts)} texts, {text_bytes(texts) / 1e6:.1f} MB; for each byte of text:")
    print(f"{'':24}{''.join(f'{name:>14}' for name in COUNTS)}{'ns':>8}{'instructions a ns':>20}")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/texts.parquet"
        pd.DataFrame({"text": texts}).to_parquet(path)
        environment = {
            **os.environ,
            "NUMBA_CPU_NAME": "haswell",
            "NUMBA_CPU_FEATURES": "+avx2,+bmi,+bmi2,+popcnt,+sse4.2",
            "NUMBA_CACHE_DIR": f"{folder}/compiled",
            "OPENBLAS_NUM_THREADS": "1",
        }
        for kernel in KERNELS:
            command = [sys.executable, __file__, "--passes", path, kernel]
            timed = subprocess.run([*command, "1"], env=environment, check=True, stdout=subprocess.PIPE, text=True)
            once, often = (counted([*command, str(passes)], environment) for passes in (1, PASSES))
            size = text_bytes(texts)
            each = {name: (often[name] - once[name]) / (PASSES - 1) / size for name in COUNTS}
            nanoseconds = 1e9 * float(timed.stdout) / size
            row = "".join(f"{value:14.2f}" for value in each.values())
            print(f"{kernel:24}{row}{nanoseconds:8.2f}{each['instructions'] / nanoseconds:20.2f}", flush=True)


if __name__ == "__main__":
    main()

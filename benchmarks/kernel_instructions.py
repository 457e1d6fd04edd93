# SPDX-License-Identifier: Apache-2.0
"""What bounds the text kernels: instructions, branches and cache misses for each byte of text, counted by valgrind.

    python benchmarks/kernel_instructions.py --data ../shared/data
    python benchmarks/kernel_instructions.py --data ../shared/data --kernel "Gopher quality"

Each kernel runs over the same texts once, and then six times, in processes of their own under ``valgrind
--tool=cachegrind``; the difference is what five passes cost, without Python's start. The compiler is told of a CPU that
valgrind knows (AVX2). Mispredictions and misses are those of cachegrind's models of a branch predictor and of the caches,
not of this machine's. Time is measured without valgrind, with the same code.

Nearly all of the time is that of Python's start in valgrind. What is compiled and counted stays in the folder, under the
state of the sources: a run that was ended goes on where it was, and the table has what is counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
from kernel_throughput import best_seconds, english_prose, groups, text_bytes

import curator_df.kernels
from curator_df.kernels.metrics.measure import measure
from curator_df.profiles import (
    DATATROVE_C4,
    DATATROVE_FINEWEB,
    DATATROVE_GOPHER_QUALITY,
    DATATROVE_GOPHER_REPETITION,
    NEMO_ENGLISH,
)

TEXTS = 400
PASSES = 6
GOPHER = DATATROVE_GOPHER_QUALITY + DATATROVE_GOPHER_REPETITION
KERNELS = {
    "Gopher quality": list(DATATROVE_GOPHER_QUALITY.metrics),
    "Gopher, FineWeb and C4": list((GOPHER + DATATROVE_FINEWEB + DATATROVE_C4).metrics),
    **{name: metrics for name, metrics in groups().items() if name != "words and lines of words"},
    "NeMo's English chain": list(NEMO_ENGLISH.metrics),
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
    metrics = KERNELS[kernel]
    for _ in range(passes):
        list(measure(column, metrics))
    if "VALGRIND" not in os.environ:
        print(best_seconds(lambda: list(measure(column, metrics)), 20))


def counted(command: list[str], environment: dict[str, str]) -> dict[str, float]:
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


def timed(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Run a command; return the seconds of a pass."""
    run = subprocess.run([*command, "1"], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return {"seconds": float(run.stdout)}


def count_once(kernel: str, folder: Path, texts: Path, environment: dict[str, str]) -> dict[str, dict[str, float]]:
    """Return what one pass takes, and the counts of one pass and of several: of the folder, or made now and put there."""
    kept = folder / f"{re.sub(r'[^a-z0-9]+', '-', kernel.lower())}.json"
    found = json.loads(kept.read_text()) if kept.exists() else {}
    command = [sys.executable, __file__, "--passes", str(texts), kernel]
    for name, count in {
        "time": lambda: timed(command, environment),
        "once": lambda: counted([*command, "1"], environment),
        "often": lambda: counted([*command, str(PASSES)], environment),
    }.items():
        if name not in found:
            found[name] = count()
            kept.write_text(json.dumps(found))
    return found


def state_of_kernels(size: int) -> str:
    """Return a digest of the kernels' sources and of how many bytes they read: other code is counted again."""
    [root] = curator_df.kernels.__path__
    sources = b"".join(path.read_bytes() for path in sorted(Path(root).glob("*.py")))
    return hashlib.blake2b(sources + str(size).encode(), digest_size=6).hexdigest()


def main() -> None:
    """Print a table row for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="directory of the sample files")
    parser.add_argument(
        "--folder", type=Path, default=Path("benchmarks/results/counted"), help="where what was counted stays"
    )
    parser.add_argument("--kernel", action="append", choices=KERNELS, help="by default all, one after the other")
    parser.add_argument("--texts", type=int, default=TEXTS, help="how many texts of the sample")
    parser.add_argument("--passes", nargs=3, metavar=("TEXTS", "KERNEL", "PASSES"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.passes:
        make_passes(Path(asked.passes[0]), asked.passes[1], int(asked.passes[2]))
        return
    texts = english_prose(asked.data)[: asked.texts]
    size = text_bytes(texts)
    folder = asked.folder / state_of_kernels(size)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "texts.parquet"
    pd.DataFrame({"text": texts}).to_parquet(path)
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx2,+bmi,+bmi2,+popcnt,+sse4.2",
        "NUMBA_CACHE_DIR": str((folder / "compiled").resolve()),
        "OPENBLAS_NUM_THREADS": "1",
    }
    print(f"{len(texts)} texts, {size / 1e6:.1f} MB; for each byte of text:")
    print(f"{'':32}{''.join(f'{name:>14}' for name in COUNTS)}{'ns':>8}{'instructions a ns':>20}", flush=True)
    for kernel in asked.kernel or KERNELS:
        found = count_once(kernel, folder, path, environment)
        each = {name: (found["often"][name] - found["once"][name]) / (PASSES - 1) / size for name in COUNTS}
        nanoseconds = 1e9 * found["time"]["seconds"] / size
        row = "".join(f"{value:14.2f}" for value in each.values())
        print(f"{kernel:32}{row}{nanoseconds:8.2f}{each['instructions'] / nanoseconds:20.2f}", flush=True)


if __name__ == "__main__":
    main()

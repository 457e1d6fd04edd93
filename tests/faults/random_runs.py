# SPDX-License-Identifier: Apache-2.0
"""Random runs on one random cluster, in a process of its own: ``-m tests.faults.random_runs SEED RUNS FOLDER``.

Everything follows from the seed: memory, CPUs, files, lengths and repeats of texts, block size, steps, and another block
size for a second part of some runs. What should come out is worked out in plain Python. Prints a line of JSON for each run.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import curator_df as cdf
from curator_df.core.runner import run as runner

MEMORY_MB = (430, 450, 540, 600, 800, 1_200, 2_000)


def make_input(seed: str, folder: Path) -> dict[str, Any]:
    """Write the input of a run, and return what should come out."""
    command = [sys.executable, "-m", "tests.faults.random_inputs", seed, str(folder / "in")]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def run_once(made: dict[str, Any], seed: str, folder: Path) -> dict[str, Any]:
    """Run a chain over an input, perhaps in two parts, and compare."""
    kind, drops, modulus, expected = made["kind"], made["drops"], made["modulus"], made["expected"]
    chance = random.Random(f"{seed} run")
    runner.SMALL_RANGE_BYTES = chance.choice([50_000, 300_000, 8_000_000])
    stops = chance.random() < 0.3

    def docs() -> Any:
        sizes = [None, "20kB", "200kB", "1MB", "5MB"]
        read = cdf.read_parquet if kind == "parquet" else cdf.read_jsonl
        for size in (chance.choice(sizes), None):  # where the memory has no room for 5 MB, the run is refused
            table = read(str(folder / "in"), blocksize=size).curate.keep_where(f"id % {modulus} != 0")
            table = table.pipe(cdf.drop_exact_duplicates) if drops else table
            with contextlib.suppress(cdf.errors.BudgetError):
                cdf.explain(table)
                break
        return table

    out = str(folder / "out")
    if stops:  # as if the run had been interrupted: some notes and files are gone
        cdf.write_parquet(docs(), out)
        journal = folder / "out/_curator"
        (journal / "receipt.json").unlink()
        lines = (journal / "done.jsonl").read_bytes().splitlines(keepends=True)
        (journal / "done.jsonl").write_bytes(b"".join(chance.sample(lines, len(lines) // 2)))
        for path in sorted((folder / "out").glob("part-*"))[::3]:
            path.unlink()
    receipt = cdf.write_parquet(docs(), out, on_existing="resume" if stops else "raise")
    files = sorted((folder / "out").glob("*.parquet"))
    found = [number for path in files for number in pq.read_table(path, columns=["id"])["id"].to_pylist()]
    told = {
        "seed": seed,
        "kind": kind,
        "rows": made["rows"],
        "drops": drops,
        "resumed": stops,
        "same": found == expected,
        "allowed_bytes": receipt.allowed_bytes,
        "measured_bytes": receipt.measured_bytes,
        "projected_bytes": receipt.projected_bytes,
        "retries": receipt.retries,
        "aside": receipt.rows_quarantined,
    }
    shutil.rmtree(folder)
    return told


def main(seed: str, runs: str, folder: str) -> None:
    """Start a random cluster, and run on it."""
    chance = random.Random(seed)
    memory, cpus = chance.choice(MEMORY_MB) * 1_000_000, chance.choice([1, 2])
    named = [(f"{seed}-{number}", Path(folder) / str(number)) for number in range(int(runs))]
    made = [make_input(*one) for one in named]  # before the start, as the budget covers child processes
    with cdf.start_cluster(memory=memory, cpus=cpus):
        for one, (name, place) in zip(made, named, strict=True):
            told = run_once(one, name, place)
            sys.stdout.write(json.dumps({**told, "cpus": cpus}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

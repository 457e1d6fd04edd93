# SPDX-License-Identifier: Apache-2.0
"""Random runs on one random cluster, in a process of its own: ``-m tests.faults.random_runs SEED RUNS FOLDER``.

Everything follows from the seed: memory, CPUs, files, lengths and repeats of texts, block size, steps, and another block
size for a second part of some runs. What should come out is worked out in plain Python. Prints a line of JSON for each run.
"""

from __future__ import annotations

import bz2
import gzip
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import curator_df as cdf
from curator_df.core import run as runner

OPENERS: dict[str, Callable[..., Any]] = {"jsonl": open, "jsonl.gz": gzip.open, "jsonl.bz2": bz2.open}
MEMORY_MB = (430, 450, 520, 600, 800, 1_200, 2_000)
MEAN_CHARACTERS = (20, 300, 3_000, 40_000)
MOST_CHARACTERS = 6_000_000
MOST_ROW_CHARACTERS = 400_000
"""4.8 MB of a JSON line, where each is written as two escapes: the least memory above has room for a row of 6 MB, alone."""
ALPHABETS = ("abcdefgh ", "привет мир ", "日本語のテキスト", '🙂é \n\t"\\')

Row = tuple[int, str]


def make_rows(chance: random.Random) -> list[Row]:
    """Return rows whose texts have random lengths; some are empty, some are long, some come again."""
    alphabet, mean = chance.choice(ALPHABETS), chance.choice(MEAN_CHARACTERS)
    rows: list[Row] = []
    characters = chance.randrange(MOST_CHARACTERS)
    word = [chance.choice(alphabet) for _ in range(997)]
    while characters > 0 and len(rows) < 20_000:
        length = int(chance.expovariate(1 / mean)) * (50 if chance.random() < 0.002 else 1)
        length = min(length, MOST_ROW_CHARACTERS)
        start = chance.randrange(len(word))
        text = ("".join(word[start:] + word[:start]) * (length // len(word) + 1))[:length]
        if rows and chance.random() < 0.2:
            text = chance.choice(rows)[1]
        rows.append((len(rows), text))
        characters -= len(text) + 10
    return rows or [(0, "only")]


def write_files(rows: list[Row], folder: Path, chance: random.Random) -> str:
    """Write the rows in order into a few files of one kind, one of which may have no row; return the kind."""
    kind = chance.choice([*OPENERS, "parquet"])
    cuts = sorted(chance.randrange(len(rows) + 1) for _ in range(chance.randrange(5)))
    folder.mkdir(parents=True)
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(rows)], strict=True)):
        path, part = folder / f"{number:03d}.{kind}", rows[start:stop]
        if kind == "parquet":
            table = pa.table({"id": pa.array([n for n, _ in part], pa.int64()), "text": pa.array([t for _, t in part])})
            pq.write_table(table.cast(pa.schema([("id", pa.int64()), ("text", pa.string())])), path, row_group_size=500)
            continue
        with OPENERS[kind](path, "wt", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"id": n, "text": t}, ensure_ascii=chance.random() < 0.5) + "\n" for n, t in part
            )
    return kind


def expected_rows(rows: list[Row], drops: bool, modulus: int) -> list[int]:
    """Return the ids that should come out, in order."""
    kept, seen = [], set()
    for number, text in rows:
        if number % modulus and not (drops and text in seen):
            seen.add(text)
            kept.append(number)
    return kept


def run_once(seed: str, folder: Path) -> dict[str, Any]:
    """Make an input, run a chain over it, perhaps in two parts, and compare."""
    chance = random.Random(seed)
    rows = make_rows(chance)
    kind = write_files(rows, folder / "in", chance)
    drops, modulus = chance.random() < 0.4, chance.choice([2, 5, 1_000_003])
    runner.SMALL_RANGE_BYTES = chance.choice([50_000, 300_000, 8_000_000])
    stops = chance.random() < 0.3

    def docs() -> Any:
        sizes = [None, "20kB", "200kB", "1MB", "5MB"]
        read = cdf.read_parquet if kind == "parquet" else cdf.read_jsonl
        table = read(str(folder / "in"), blocksize=chance.choice(sizes)).curate.keep_where(f"id % {modulus} != 0")
        return table.pipe(cdf.drop_exact_duplicates) if drops else table

    out = str(folder / "out")
    if stops:  # as if the run had been interrupted: some notes and files are gone
        cdf.write_parquet(docs(), out)
        journal = folder / "out/_curator"
        (journal / "receipt.json").unlink()
        lines = (journal / "done.jsonl").read_bytes().splitlines(keepends=True)
        (journal / "done.jsonl").write_bytes(b"".join(chance.sample(lines, len(lines) // 2)))
        for path in sorted((folder / "out").glob("part-*"))[::3]:
            path.unlink()
    receipt = cdf.write_parquet(docs(), out, on_existing="resume" if stops else "error")
    files = sorted((folder / "out").glob("*.parquet"))
    found = [number for path in files for number in pq.read_table(path, columns=["id"])["id"].to_pylist()]
    told = {
        "seed": seed,
        "kind": kind,
        "rows": len(rows),
        "drops": drops,
        "resumed": stops,
        "same": found == expected_rows(rows, drops, modulus),
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
    with cdf.start_cluster(memory=memory, cpus=cpus):
        for number in range(int(runs)):
            told = run_once(f"{seed}-{number}", Path(folder) / str(number))
            sys.stdout.write(json.dumps({**told, "cpus": cpus}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])

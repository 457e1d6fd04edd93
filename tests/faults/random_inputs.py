# SPDX-License-Identifier: Apache-2.0
"""The input of a random run, and what should come out: ``-m tests.faults.random_inputs SEED FOLDER``.

In a process of its own, so that the one that runs holds nothing of it. Prints a line of JSON.
"""

from __future__ import annotations

import bz2
import gzip
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

OPENERS: dict[str, Callable[..., Any]] = {"jsonl": open, "jsonl.gz": gzip.open, "jsonl.bz2": bz2.open}
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


def main(seed: str, folder: str) -> None:
    """Write the files into a folder, and tell what they are and which rows should come out."""
    chance = random.Random(seed)
    rows = make_rows(chance)
    kind = write_files(rows, Path(folder), chance)
    drops, modulus = chance.random() < 0.4, chance.choice([2, 5, 1_000_003])
    told = {"kind": kind, "rows": len(rows), "drops": drops, "modulus": modulus}
    sys.stdout.write(json.dumps({**told, "expected": expected_rows(rows, drops, modulus)}))


if __name__ == "__main__":
    main(*sys.argv[1:])

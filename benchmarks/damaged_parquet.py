# SPDX-License-Identifier: Apache-2.0
"""Read thousands of damaged Parquet files: no crash, no hang, no rows lost silently, and only errors of curator_df.

Files of several kinds are changed at random places: bits flipped, bytes replaced, ranges removed or repeated, ends cut off,
in footers and in pages. Each is read in a process that the script watches::

    python benchmarks/damaged_parquet.py --files 10000 --seed 1

What is wrong is printed with the number of the file, and the file is kept in ``--keep``. With ``--runs`` so many of the files go
through a run on a cluster instead.
"""

from __future__ import annotations

import argparse
import collections
import random
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from curator_df.errors import CuratorError
from curator_df.io.parquet.reader import read_parquet

SECONDS = 60
"""A file that takes longer counts as a hang."""
ROWS = 400


def tables() -> dict[str, tuple[pa.Table, dict[str, object]]]:
    """Return tables, and how to write them."""
    numbers = list(range(ROWS))
    plain = pa.table(
        {
            "id": numbers,
            "text": [f"row {row} has a text " + "word " * (row % 17) for row in numbers],
            "list": [[row] * (row % 4) for row in numbers],
            "struct": [{"a": row, "b": str(row)} if row % 3 else None for row in numbers],
            "lang": ["en", "de", None, "fr"] * (ROWS // 4),
        }
    )
    long = pa.table({"text": ["the same long text " * 100] * ROWS, "number": [row / 3 for row in numbers]})
    return {
        "groups": (plain, {"row_group_size": 100}),
        "plain": (
            plain,
            {"compression": "none", "use_dictionary": False, "data_page_size": 1000, "write_batch_size": 32},
        ),
        "v2": (plain, {"data_page_version": "2.0", "compression": "zstd", "write_page_index": True}),
        "checksums": (plain, {"write_page_checksum": True, "compression": "none"}),
        "bare": (plain, {"store_schema": False, "write_statistics": False, "compression": "gzip"}),
        "dictionary": (long, {"compression": "snappy"}),
    }


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return a file with some damage."""
    changed = bytearray(data)
    footer = 8 + int.from_bytes(data[-8:-4], "little")
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        low = len(changed) - footer if rng.random() < 0.6 and len(changed) > footer else 0
        place = rng.randrange(max(low, 0), len(changed))
        how = rng.random()
        if how < 0.5:
            changed[place] ^= 1 << rng.randrange(8)
        elif how < 0.8:
            changed[place] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        elif how < 0.87:
            del changed[place : place + rng.choice((1, 2, 8, 100))]
        elif how < 0.94:
            changed[place:place] = changed[place : place + rng.choice((1, 2, 8, 100))]
        else:
            del changed[place:]
        if len(changed) < 12:
            break
    return bytes(changed)


def outcome(path: Path) -> str:
    """Read a file in every way; return what happened, beginning with WRONG where it must not."""
    told = []
    for how in ({}, {"columns": ["text"]}, {"blocksize": "4kB"}):
        try:
            promised = pq.read_metadata(path).num_rows
        except Exception:  # noqa: BLE001 - whatever pyarrow says: then there is no promise
            promised = None
        try:
            rows = len(read_parquet(path, **how).compute(scheduler="synchronous"))
        except CuratorError as exc:
            told.append(type(exc).__name__ if str(exc) else f"WRONG {type(exc).__name__} without words")
        except Exception as exc:  # noqa: BLE001 - any other error is what is looked for
            told.append(f"WRONG {type(exc).__module__}.{type(exc).__name__}: {str(exc)[:200]}")
        else:
            told.append("read" if rows == promised else f"WRONG {rows} rows of {promised}")
    wrong = [said for said in told if said.startswith("WRONG")]
    return wrong[0] if wrong else "/".join(told)


def files_of(seed: int, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers and bytes of the damaged files of a seed."""
    with tempfile.TemporaryDirectory() as folder:
        originals = []
        for table, how in tables().values():
            pq.write_table(table, Path(folder, "a.parquet"), **how)
            originals.append(Path(folder, "a.parquet").read_bytes())
    for number in range(first, last):
        yield number, damaged(originals[number % len(originals)], random.Random(f"{seed} {number}"))  # noqa: S311


def read_all(seed: int, first: int, last: int, folder: Path) -> None:
    """Read damaged files one after the other, and print what happened to each."""
    warnings.simplefilter("ignore")
    path = folder / "damaged.parquet"
    for number, data in files_of(seed, first, last):
        path.write_bytes(data)
        print(number, "begins", flush=True)
        signal.alarm(SECONDS)  # ends this process
        print(number, outcome(path), flush=True)


def watched(seed: int, first: int, last: int, folder: Path) -> Iterator[tuple[int, str]]:
    """Yield the number of each file and what happened to it; a process that ends or hangs is started again after it."""
    while first < last:
        command = [sys.executable, __file__, "--seed", str(seed), "--first", str(first), "--files", str(last)]
        with subprocess.Popen([*command, "--in", str(folder)], stdout=subprocess.PIPE, text=True) as process:
            begun = first
            for line in process.stdout or ():
                number, _, said = line.rstrip("\n").partition(" ")
                if said == "begins":
                    begun = int(number)
                    continue
                yield int(number), said
                first = int(number) + 1
        if first < last:
            yield begun, f"WRONG the process ended with {process.returncode}"
            first = begun + 1


def run_all(seed: int, files: int) -> Iterator[tuple[int, str]]:
    """Write damaged files to Parquet on a cluster, each in a run of its own, and yield what happened."""
    import curator_df as cdf

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder, cdf.start_cluster(memory="1GB", cpus=1):
        for number, data in files_of(seed, 0, files):
            path = Path(folder, f"{number}.parquet")
            path.write_bytes(data)
            try:
                promised = pq.read_metadata(path).num_rows
            except Exception:  # noqa: BLE001 - whatever pyarrow says: then there is no promise
                promised = None
            try:
                rows = cdf.write_parquet(read_parquet(path), Path(folder, f"out{number}")).rows_written
            except CuratorError as exc:
                yield number, type(exc).__name__
            except Exception as exc:  # noqa: BLE001 - any other error is what is looked for
                yield number, f"WRONG {type(exc).__module__}.{type(exc).__name__}: {str(exc)[:200]}"
            else:
                yield number, "read" if rows == promised else f"WRONG {rows} rows of {promised}"


def main() -> None:
    """Read the files and say what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--runs", action="store_true")
    parser.add_argument("--in", type=Path, dest="folder")
    asked = parser.parse_args()
    if asked.folder is not None:
        read_all(asked.seed, asked.first, asked.files, asked.folder)
        return
    found: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        said_of = (
            run_all(asked.seed, asked.files)
            if asked.runs
            else watched(asked.seed, asked.first, asked.files, Path(folder))
        )
        for number, said in said_of:
            found[said] += 1
            if said.startswith("WRONG"):
                print(number, said, flush=True)
                if asked.keep is not None:
                    ((_, data),) = files_of(asked.seed, number, number + 1)
                    asked.keep.mkdir(parents=True, exist_ok=True)
                    (asked.keep / f"{asked.seed}-{number}.parquet").write_bytes(data)
    for said, count in found.most_common():
        print(f"{count:>8,}  {said}")
    sys.exit(any(said.startswith("WRONG") for said in found))


if __name__ == "__main__":
    main()

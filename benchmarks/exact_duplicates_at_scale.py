# SPDX-License-Identifier: Apache-2.0
"""Exact duplicates of inputs that break others: one text very often, very many tiny texts, all alike, none alike.

    python benchmarks/exact_duplicates_at_scale.py FOLDER --memory 1GB [--shape "one-word documents"] [--share 0.1]

Each input is made, deduplicated under the budget in a process of its own, watched from outside, and deleted. The rows that
come out are known; the exit code is 1 if a count is wrong, or a run held more than it was allowed. ``--share`` makes all of
them smaller, to see whether time grows in proportion.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sampled_process import run_sampled

RUN = """
import json, sys, curator_df as cdf
if __name__ == "__main__":
    docs = cdf.drop_exact_duplicates(cdf.read_jsonl(sys.argv[1]))
    with cdf.start_cluster(memory=sys.argv[3], cpus=2):
        receipt = cdf.write_parquet(docs, sys.argv[2])
    print(json.dumps(receipt.to_json()))
"""
PROSE = "The quick brown fox jumps over the lazy dog, again and again, and nobody minds. "
SHAPES: dict[str, tuple[int, Callable[[int], str], Callable[[int], int]]] = {
    "one text 1,000,000 times": (1_000_000, lambda _: PROSE * 8, lambda _: 1),
    "one-word documents": (10_000_000, lambda n: f"w{n * 7919 % 500_000}", lambda rows: min(rows, 500_000)),
    "all unlike": (2_000_000, lambda n: f"{n} {PROSE * 3}", lambda rows: rows),
    "all alike but one": (2_000_000, lambda n: "x" if n else "y", lambda rows: min(rows, 2)),
    "half are one text": (2_000_000, lambda n: PROSE if n % 2 else f"{n} {PROSE}", lambda rows: rows // 2 + 1),
}
"""For each shape: rows, the text of a row, and how many texts are unlike."""


def write_input(path: Path, rows: int, text: Callable[[int], str]) -> None:
    """Write rows of ``id`` and ``text``."""
    with open(path, "w") as file:
        file.writelines(f'{{"id": {number}, "text": "{text(number)}"}}\n' for number in range(rows))


def main() -> int:
    """Print a table row for each shape."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", help="where inputs and outputs are made")
    options.add_argument("--memory", default="1GB")
    options.add_argument("--shape", action="append", choices=SHAPES)
    options.add_argument("--share", type=float, default=1.0)
    given = options.parse_args()
    failed = False
    print("shape | rows | input | rows written | run s | rows/s | outside peak | projected | exchange | ok")
    for name in given.shape or SHAPES:
        most, text, unlike = SHAPES[name]
        rows = int(most * given.share)
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            source, script = Path(folder) / "in.jsonl", Path(folder) / "run.py"
            write_input(source, rows, text)
            script.write_text(RUN)
            started = time.monotonic()
            done = run_sampled([sys.executable, str(script), str(source), f"{folder}/out", given.memory])
            if done.returncode:
                print(f"{name} | failed after {time.monotonic() - started:.0f} s: {done.err.strip().splitlines()[-1:]}")
                failed = True
                continue
            run = json.loads(done.out.splitlines()[-1])
            ok = run["rows_written"] == unlike(rows) and done.peak_bytes <= run["allowed_bytes"]
            failed |= not ok
            exchange = run["exchanges"][0]
            print(
                f"{name} | {rows:,} | {source.stat().st_size / 1e6:,.0f} MB | {run['rows_written']:,} | "
                f"{run['seconds']:.1f} | {rows / run['seconds']:,.0f} | {done.peak_bytes / 1e6:.0f} MB | "
                f"{run['projected_bytes'] / 1e6:.0f} MB | {exchange['hash_ranges']} ranges, skew {exchange['skew']:.1f}, "
                f"{exchange['key_bytes'] / 1e6:.0f} MB of keys, {exchange['seconds']:.1f} s | {ok}",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

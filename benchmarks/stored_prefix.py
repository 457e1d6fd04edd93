# SPDX-License-Identifier: Apache-2.0
"""What it saves to run the first steps of a chain once for all passes of a drop of near duplicates.

    python benchmarks/stored_prefix.py corpus/ --pairs 3
    python benchmarks/stored_prefix.py corpus/ --steps normalize_unicode --pairs 3

The chain (language, Unicode, personal data, near duplicates) is written with ``reuse="never"`` and ``"always"`` in turns, in one
cluster. For each pair a line shows wall time, CPU time of the workers, peak memory, and the size of the stored rows. At the end,
the time to read the stored rows back, as a share of the time to write them: `core.runner.prefix.READ_SHARE`.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq

import curator_df as cdf
from curator_df.core.host_blocks import pandas_block
from curator_df.core.ranges.source import Range
from curator_df.core.ranges.stored_blocks import BlockSink, StoredBlocks, blocks_name
from curator_df.files.storage import Folder

STEPS = ("add_language", "normalize_unicode", "redact_pii")


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all its running children, in seconds."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def measure(corpus: str, steps: list[str], folder: Path, reuse: str) -> tuple[float, float, float]:
    """Write the chain; return its wall time, its CPU time, and its peak memory in MB."""
    shutil.rmtree(folder, ignore_errors=True)
    docs: Any = cdf.read_jsonl(corpus)
    for name in steps:
        docs = docs.pipe(getattr(cdf, name))
    started, before = time.monotonic(), cpu_seconds()
    receipt = cdf.write_parquet(docs.pipe(cdf.drop_near_duplicates), folder, reuse=reuse)
    return time.monotonic() - started, cpu_seconds() - before, receipt.measured_bytes / 1e6


def read_share(written: Path, folder: Path) -> float:
    """Store the rows of one output file, read them back, and return the time of reading as a share of writing."""
    block = pandas_block(pq.read_table(next(written.glob("*.parquet"))))
    block.index = block.index.astype("int64").rename("address")
    home, seconds = Folder(str(folder)), []
    for _ in range(5):
        started = time.perf_counter()
        writer = BlockSink(home).open(0, None, 0)
        writer.append(block)
        (file,) = writer.commit()
        between = time.perf_counter()
        stored = StoredBlocks.of(home, blocks_name, 1, {0: file})
        rows = sum(len(part) for part in stored.blocks(Range(0, 0, 0, 0, 0), [""], block_bytes=16_000_000))
        seconds.append((time.perf_counter() - between) / (between - started))
        if rows != len(block):
            raise SystemExit("rows were lost")
    return float(np.median(seconds))


def main() -> None:
    """Print a line for each pair."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", help="folder of JSON Lines files with a column text")
    parser.add_argument("--steps", nargs="+", default=list(STEPS), help="operators before the drop")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--memory", default="2GB")
    given = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as temporary, cdf.start_cluster(memory=given.memory):
        folder = Path(temporary, "out")
        for pair in range(given.pairs):
            wall = {}
            for reuse in ("never", "always") if pair % 2 else ("always", "never"):
                wall[reuse], cpu, peak = measure(given.corpus, given.steps, folder, reuse)
                print(f"{reuse}: {wall[reuse]:.1f} s, {cpu:.1f} CPU s, peak {peak:.0f} MB", flush=True)
            ratios.append(wall["always"] / wall["never"])
        print(f"always / never: {statistics.median(ratios):.2f} (median of {len(ratios)})")
        print(f"reading / writing stored rows: {read_share(folder, Path(temporary, 'stored')):.2f}")


if __name__ == "__main__":
    main()

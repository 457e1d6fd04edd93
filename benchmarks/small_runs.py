# SPDX-License-Identifier: Apache-2.0
"""Whole processes on small inputs: from the start of Python to its end, with everything that a cluster starts and ends.

    python benchmarks/small_runs.py CORPUS.jsonl [--sizes 1MB 100MB 1GB] [--repeat 5] [--peers-python PYTHON]
    python benchmarks/small_runs.py CORPUS.jsonl --sizes 1MB --only curator_df --baseline OTHER_CHECKOUT

Two jobs, JSON Lines to Parquet (zstd), and the same without exact duplicates, on the first bytes of the corpus: as a script, as a
command, and with DuckDB, Polars, Daft and pyarrow streaming, in turns. The scripts are those of `peers_jsonl_to_parquet` and
`peers_exact_duplicates`. With ``--baseline``, our scripts also run with the curator_df of another checkout.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import contest
import peers_exact_duplicates
import peers_jsonl_to_parquet

from curator_df.memory.sizes import read_size

COMMAND = """
import sys
if __name__ == "__main__":
    from curator_df import __version__
    from curator_df.cli import main
    print("seconds", 0, __version__, flush=True)
    sys.argv = ["curator-df", {words}, sys.argv[1], sys.argv[2], "--memory", sys.argv[3], "--cpus", "2"]
    main()
"""
"""Script of a command; ``argv`` is that of every contestant."""
PEERS = ("duckdb", "polars streaming", "daft", "pyarrow streaming")
"""Peers, each with its own settings."""
JOBS = {
    "JSON Lines to Parquet": (peers_jsonl_to_parquet, '"curate", "--profile", "none"'),
    "exact duplicates": (peers_exact_duplicates, '"dedup", "--exact"'),
}
"""For each job, the benchmark with the scripts, and the words of its command."""
OTHER = "import sys; sys.path.insert(0, {path!r})\n"


def scripts(job: str, memory_bytes: int, baseline: str | None) -> dict[str, str]:
    """Return a script for each contestant."""
    benchmark, words = JOBS[job]
    shared = benchmark.contestants(memory_bytes)
    ours = {contest.OURS: shared[contest.OURS], f"{contest.OURS}, command": COMMAND.format(words=words)}
    if baseline is not None:
        path = os.path.abspath(baseline)
        ours |= {f"{name}, baseline": OTHER.format(path=path) + script for name, script in ours.items()}
    return ours | {name: shared[name] for name in PEERS if name in shared}


def write_start(corpus: str, size_bytes: int, path: str) -> None:
    """Write the first rows of a file, up to a size."""
    with open(corpus, "rb") as file, open(path, "wb") as written:
        for line in file:
            if written.tell() + len(line) > size_bytes:
                return
            written.write(line)
        if written.tell() < size_bytes:
            raise SystemExit(f"{corpus} has only {written.tell():,} bytes. Name a file with at least {size_bytes:,}")


def main() -> None:
    """Print a table for each job and size."""
    options = contest.options(__doc__)
    options.add_argument("--sizes", nargs="+", default=["1MB", "100MB", "1GB"], help="sizes of the inputs")
    options.add_argument("--baseline", help="folder of another checkout")
    options.set_defaults(repeat=5)
    given = options.parse_args()
    corpus = given.corpus
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/start.jsonl"
            write_start(corpus, read_size("sizes", size), path)
            for job in JOBS:
                print(f"\n{job}, {size}, load {os.getloadavg()[0]:.1f}", flush=True)
                now = argparse.Namespace(**vars(given) | {"corpus": path})
                contest.hold(scripts(job, given.memory, given.baseline), now, is_whole=True)


if __name__ == "__main__":
    main()

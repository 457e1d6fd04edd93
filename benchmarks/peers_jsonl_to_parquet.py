# SPDX-License-Identifier: Apache-2.0
"""JSON Lines to Parquet (zstd), no operators: time and peak beside DuckDB, Polars, Daft and pyarrow, in the same run.

    python benchmarks/peers_jsonl_to_parquet.py CORPUS.jsonl --memory 1GB --repeat 3 [--peers-python PYTHON]

Peers run with 2 threads, as they come and with a limit equal to ours where they know one. The peers' Python is one that
has them installed (``pip install duckdb polars daft pyarrow``). Runs take turns, so that a machine that slows down slows
all of them; medians are printed, and time and peak as ratios to ours. Peak is PSS of the process tree every 50 ms.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time

from curator_df.core import peak
from curator_df.core.sizes import read_size, show_size

OURS = """
import sys, curator_df as cdf
if __name__ == "__main__":
    docs = cdf.read_jsonl(sys.argv[1])
    with cdf.start_cluster(memory=sys.argv[3], cpus=2):
        print("seconds", cdf.write_parquet(docs, sys.argv[2]).seconds)
"""
DUCKDB = """
import sys, time, duckdb
db = duckdb.connect()
db.execute("SET threads=2")
{settings}
started = time.perf_counter()
db.execute(f"COPY (SELECT * FROM read_json('{{sys.argv[1]}}', format='newline_delimited', maximum_object_size=300000000)) "
           f"TO '{{sys.argv[2]}}.parquet' (FORMAT parquet, COMPRESSION zstd)")
print("seconds", time.perf_counter() - started, duckdb.__version__)
"""
POLARS = """
import os, sys, time
os.environ["POLARS_MAX_THREADS"] = "2"
import polars
started = time.perf_counter()
polars.scan_ndjson(sys.argv[1]).sink_parquet(sys.argv[2] + ".parquet", compression="zstd")
print("seconds", time.perf_counter() - started, polars.__version__)
"""
DAFT = """
import os, sys, time
os.environ["DAFT_PROGRESS_BAR"] = "0"
import daft
started = time.perf_counter()
daft.read_json(sys.argv[1]).write_parquet(sys.argv[2], compression="zstd")
print("seconds", time.perf_counter() - started, daft.__version__)
"""
PYARROW = """
import sys, time, pyarrow, pyarrow.json as pj, pyarrow.parquet as pq
pyarrow.set_cpu_count(2)
started = time.perf_counter()
reader = pj.open_json(sys.argv[1], read_options=pj.ReadOptions(block_size=16 << 20))
with pq.ParquetWriter(sys.argv[2] + ".parquet", reader.schema, compression="zstd") as writer:
    for batch in reader:
        writer.write_batch(batch)
print("seconds", time.perf_counter() - started, pyarrow.__version__)
"""


def contestants(memory_bytes: int) -> dict[str, str]:
    """Return a script for each peer and setting."""
    limit = f"db.execute(\"SET memory_limit='{memory_bytes}B'\")"
    tuned = f'{limit}\ndb.execute("SET preserve_insertion_order=false")'
    return {
        "curator_df": OURS,
        "duckdb": DUCKDB.format(settings=""),
        "duckdb, our limit": DUCKDB.format(settings=limit),
        "duckdb, our limit, order given up": DUCKDB.format(settings=tuned),
        "polars streaming": POLARS,
        "daft": DAFT,
        "pyarrow streaming": PYARROW,
    }


def one_run(python: str, script: str, corpus: str, memory: str) -> tuple[float, int, str]:
    """Return the seconds of the conversion itself, the peak bytes of the process tree and the version or the error."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/script.py", "w") as file:
            file.write(script)
        process = subprocess.Popen(
            [python, f"{folder}/script.py", corpus, f"{folder}/out", memory],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        sampler = subprocess.Popen(
            [sys.executable, "-S", "-E", peak.__file__, str(process.pid), "--exact"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        seen = 0
        while process.poll() is None:
            time.sleep(0.1)
            sampler.stdin.write("peak\n")
            seen = max(seen, int(sampler.stdout.readline() or 0))
        out, err = process.communicate()
        sampler.kill()
        sampler.communicate()
        said = next((line.split() for line in out.splitlines() if line.startswith("seconds")), None)
        if process.returncode != 0 or said is None:
            return float("nan"), seen, f"failed: {(err.strip().splitlines() or ['no message'])[-1][:100]}"
        return float(said[1]), seen, " ".join(said[2:])


def main() -> None:
    """Print a table of medians."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("corpus")
    options.add_argument("--memory", default="1GB")
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--peers-python", default=sys.executable)
    given = options.parse_args()
    scripts = contestants(read_size("memory", given.memory))
    runs: dict[str, list[tuple[float, int, str]]] = {name: [] for name in scripts}
    for _ in range(given.repeat):
        for name, script in scripts.items():
            python = sys.executable if name == "curator_df" else given.peers_python
            runs[name].append(one_run(python, script, given.corpus, given.memory))
    ours = statistics.median(run[0] for run in runs["curator_df"])
    our_peak = statistics.median(run[1] for run in runs["curator_df"])
    print("peer | version | median s | time / ours | median peak | peak / ours")
    for name, results in runs.items():
        seconds, seen = (statistics.median(result[part] for result in results) for part in (0, 1))
        print(
            f"{name} | {results[-1][2]} | {seconds:.1f} | {seconds / ours:.2f} | {show_size(seen)} | {seen / our_peak:.2f}"
        )


if __name__ == "__main__":
    main()

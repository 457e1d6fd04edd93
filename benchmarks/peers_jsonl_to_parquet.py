# SPDX-License-Identifier: Apache-2.0
"""JSON Lines to Parquet (zstd), no operators: time and peak beside DuckDB, Polars, Daft and pyarrow, in the same run.

    python benchmarks/peers_jsonl_to_parquet.py CORPUS.jsonl --memory 1000000000 --repeat 3 [--peers-python PYTHON]

Peers run with 2 threads, as they come and with a limit equal to ours where they know one.
"""

from __future__ import annotations

import contest

OURS = """
import sys, curator_df as cdf
if __name__ == "__main__":
    docs = cdf.read_jsonl(sys.argv[1])
    with cdf.start_cluster(memory=int(sys.argv[3]), cpus=2):
        print("seconds", cdf.write_parquet(docs, sys.argv[2]).seconds, cdf.__version__)
"""
DUCKDB = """
import sys, time, duckdb
db = duckdb.connect()
db.execute("SET threads=2")
{settings}
started = time.perf_counter()
db.execute(f"COPY (SELECT * FROM read_json('{{sys.argv[1]}}', format='newline_delimited')) "
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


if __name__ == "__main__":
    given = contest.options(__doc__).parse_args()
    contest.hold(contestants(given.memory), given)

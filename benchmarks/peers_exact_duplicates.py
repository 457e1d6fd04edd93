# SPDX-License-Identifier: Apache-2.0
"""Exact duplicates out of JSON Lines into Parquet (zstd): time and peak beside DuckDB, Polars and Daft, in the same run.

    python benchmarks/peers_exact_duplicates.py CORPUS.jsonl --memory 1000000000 --repeat 3 [--peers-python PYTHON] [--copies 4]

Every contestant keeps one row of each text, and says how many it wrote; ours keeps the first in input order, and writes in
that order. "tuned" is what an expert makes of DuckDB under our limit: md5 keys, a semi-join on the ids that stay, order
given up. Peers run with 2 threads. First the number of unique texts is counted in plain Python, with a set of digests.
With ``--copies``, the input has each row several times, each time in another order and with an ``id`` of its own.
"""

from __future__ import annotations

import array
import hashlib
import itertools
import json
import tempfile

import contest
import numpy as np

OURS = """
import sys, curator_df as cdf
if __name__ == "__main__":
    docs = cdf.drop_exact_duplicates(cdf.read_jsonl(sys.argv[1]))
    with cdf.start_cluster(memory=int(sys.argv[3]), cpus=2):
        receipt = cdf.write_parquet(docs, sys.argv[2])
    print("seconds", receipt.seconds, cdf.__version__)
    print("rows", receipt.rows_written)
"""
DUCKDB = """
import sys, time, duckdb
db = duckdb.connect()
db.execute("SET threads=2")
{settings}
source = f"read_json('{{sys.argv[1]}}', format='newline_delimited')"
started = time.perf_counter()
db.execute(f"COPY ({query}) TO '{{sys.argv[2]}}.parquet' (FORMAT parquet, COMPRESSION zstd)")
print("seconds", time.perf_counter() - started, duckdb.__version__)
print("rows", db.execute(f"SELECT count(*) FROM '{{sys.argv[2]}}.parquet'").fetchone()[0])
"""
DISTINCT = "SELECT DISTINCT ON (text) * FROM {source}"
BY_KEYS = "SELECT * FROM {source} WHERE id IN (SELECT min(id) FROM {source} GROUP BY md5_number(text))"
POLARS = """
import os, sys, time
os.environ["POLARS_MAX_THREADS"] = "2"
import polars
started = time.perf_counter()
table = polars.scan_ndjson(sys.argv[1]).unique(subset="text", keep="any")
table.sink_parquet(sys.argv[2] + ".parquet", compression="zstd")
print("seconds", time.perf_counter() - started, polars.__version__)
print("rows", polars.scan_parquet(sys.argv[2] + ".parquet").select(polars.len()).collect().item())
"""
DAFT = """
import os, sys, time
os.environ["DAFT_PROGRESS_BAR"] = "0"
import daft
started = time.perf_counter()
daft.read_json(sys.argv[1]).distinct("text").write_parquet(sys.argv[2], compression="zstd")
print("seconds", time.perf_counter() - started, daft.__version__)
print("rows", daft.read_parquet(sys.argv[2] + "/*.parquet").count_rows())
"""


def contestants(memory_bytes: int) -> dict[str, str]:
    """Return a script for each peer and setting."""
    limit = f"db.execute(\"SET memory_limit='{memory_bytes}B'\")"
    tuned = f'{limit}\ndb.execute("SET preserve_insertion_order=false")'
    return {
        contest.OURS: OURS,
        "duckdb": DUCKDB.format(settings="", query=DISTINCT),
        "duckdb, our limit": DUCKDB.format(settings=limit, query=DISTINCT),
        "duckdb, our limit, tuned": DUCKDB.format(settings=tuned, query=BY_KEYS),
        "polars streaming": POLARS,
        "daft": DAFT,
    }


def count_unique(corpus: str) -> int:
    """Count the texts of a file that differ, one line at a time."""
    with open(corpus, "rb") as file:
        return len({hashlib.blake2b(json.loads(line)["text"].encode(), digest_size=16).digest() for line in file})


def write_copies(corpus: str, copies: int, path: str) -> None:
    """Write the rows of a file several times, each time in another order; only their positions are held in memory."""
    starts, at, rows = array.array("q"), 0, itertools.count()
    with open(corpus, "rb") as file, open(path, "wb") as written:
        for line in file:
            starts.append(at)
            at += len(line)
        for copy in range(copies):
            for place in np.random.default_rng(copy).permutation(len(starts)):
                file.seek(starts[place])
                row = {**json.loads(file.readline()), "id": f"r{next(rows):012d}"}
                written.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


if __name__ == "__main__":
    options = contest.options(__doc__)
    options.add_argument("--copies", type=int, default=1, help="how often the input has each row of the corpus")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.copies > 1:
            write_copies(given.corpus, given.copies, f"{folder}/copies.jsonl")
            given.corpus = f"{folder}/copies.jsonl"
        print(f"{count_unique(given.corpus):,} unique texts")
        contest.hold(contestants(given.memory), given)

# SPDX-License-Identifier: Apache-2.0
"""Near duplicates out of JSON Lines into Parquet: time and peak beside Daft and datatrove, in the same run.

    python benchmarks/near_duplicates.py CORPUS.jsonl --repeat 3 [--peers-python PYTHON] [--datatrove-python PYTHON]

Every contestant makes 112 32-bit MinHashes (datatrove: 64-bit, as its own pipeline does) of 5 words, 14 bands of 8, joins
what agrees in a band, and keeps one row of each group. Ours compares candidates exactly besides and joins at 0.8;
"candidates" is ours without that. Daft's is its published recipe up to the edges, with the components in plain Python;
datatrove's are the four stages of its example, with 2 workers. Peers run with 2 threads. Take a small corpus for datatrove:
2.5 MB took it 20 s. It needs xxhash below 4.
"""

from __future__ import annotations

import contest

OURS = """
import dataclasses, sys, curator_df as cdf
if __name__ == "__main__":
    scheme = cdf.minhash.FINEWEB.replace(use_64_bit_hash=False)
    docs = cdf.drop_near_duplicates(cdf.read_jsonl(sys.argv[1]), scheme=scheme, jaccard_threshold={jaccard_threshold})
    with cdf.start_cluster(memory=int(sys.argv[3]), cpus=2):
        receipt = cdf.write_parquet(docs, sys.argv[2])
    print("seconds", receipt.seconds, cdf.__version__)
    print("rows", receipt.rows_written)
"""
DAFT = """
import os, sys, time
os.environ["DAFT_PROGRESS_BAR"] = "0"
import daft
from daft import col
from daft.functions import monotonically_increasing_id
started = time.perf_counter()
docs = daft.read_json(sys.argv[1]).with_column("row", monotonically_increasing_id())
text = col("text").normalize(remove_punct=False, lowercase=True, nfd_unicode=False, white_space=True)
hashes = docs.select(col("row"), text.minhash(num_hashes=112, ngram_size=5, seed=1).alias("hashes"))
bands = hashes.with_column("bands", col("hashes").chunk(8))
bands = bands.with_column("band", daft.lit(list(range(14)))).select("row", "bands", "band").explode("bands", "band")
buckets = bands.groupby("band", "bands").agg(col("row").list_agg().alias("rows"))
edges = buckets.where(col("rows").list_count() > 1).select("rows").to_pydict()["rows"]
parents = {}
def root(row):
    while parents.setdefault(row, row) != row:
        parents[row] = row = parents[parents[row]]
    return row
for rows in edges:
    first = min(rows)
    for row in rows:
        one, two = sorted((root(first), root(row)))
        parents[two] = one
going = daft.from_pydict({"row": [row for row in parents if root(row) != row] or [-1]})
docs.join(going, on="row", how="anti").exclude("row").write_parquet(sys.argv[2], compression="zstd")
print("seconds", time.perf_counter() - started, daft.__version__)
print("rows", daft.read_parquet(sys.argv[2] + "/*.parquet").count_rows())
"""
DATATROVE = """
import importlib.metadata, os, shutil, sys, time
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import ParquetWriter
from datatrove.utils.hashing import HashConfig
if __name__ == "__main__":
    config = MinhashConfig(hash_config=HashConfig(precision=64), num_buckets=14, hashes_per_bucket=8, n_grams=5)
    corpus, out = os.path.split(sys.argv[1])[0] if os.path.isfile(sys.argv[1]) else sys.argv[1], sys.argv[2]
    name = os.path.basename(sys.argv[1])
    read = lambda: JsonlReader(corpus, glob_pattern=name)
    steps = [
        ([read(), MinhashDedupSignature(f"{out}/signatures", config=config)], 1),
        ([MinhashDedupBuckets(f"{out}/signatures", f"{out}/buckets", config=config, lines_to_buffer=-1)], 14),
        ([MinhashDedupCluster(f"{out}/buckets", f"{out}/remove", config=config)], 1),
        ([read(), MinhashDedupFilter(f"{out}/remove"), ParquetWriter(f"{out}/kept")], 1),
    ]
    started = time.perf_counter()
    for number, (pipeline, tasks) in enumerate(steps):
        workers, logs = min(tasks, 2), f"{out}/logs/{number}"
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=workers, logging_dir=logs, skip_completed=False).run()
    print("seconds", time.perf_counter() - started, importlib.metadata.version("datatrove"))
    import pyarrow.dataset
    print("rows", pyarrow.dataset.dataset(f"{out}/kept").count_rows())
"""

if __name__ == "__main__":
    options = contest.options(__doc__)
    options.add_argument(
        "--datatrove-python", help="a Python that has datatrove[processing]; without it datatrove is left out"
    )
    given = options.parse_args()
    scripts = {
        contest.OURS: OURS.format(jaccard_threshold=0.8),
        f"{contest.OURS}, candidates": OURS.format(jaccard_threshold=None),
        "daft": DAFT,
    }
    pythons = {}
    if given.datatrove_python:
        scripts["datatrove"], pythons["datatrove"] = DATATROVE, given.datatrove_python
    contest.hold(scripts, given, pythons)

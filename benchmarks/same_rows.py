# SPDX-License-Identifier: Apache-2.0
"""The same rows in the same order whatever the blocks and the workers: a digest of every output of the Gopher chain.

    python benchmarks/same_rows.py CORPUS [--drop]

With ``--drop`` the chain ends with drop_exact_duplicates. The exit code is 1 if any two digests differ.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

import curator_df as cdf

SETTINGS = (
    ("1MB", 1, "2GB"),
    ("1MB", 2, "4GB"),
    ("1MB", 4, "4GB"),
    ("16MB", 1, "2GB"),
    ("16MB", 2, "4GB"),
    ("16MB", 4, "6GB"),
    ("256MB", 1, "6GB"),
    ("256MB", 2, "12GB"),
    ("256MB", 4, "22GB"),
)
"""Block size, CPUs and memory allowed."""


def digest_of(folder: Path) -> tuple[int, str]:
    """Return how many rows there are, and a digest of them in order."""
    digest, rows = hashlib.blake2b(digest_size=16), 0
    for path in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(2_000):
            rows += len(batch)
            for row in batch.to_pylist():
                digest.update(repr(row).encode())
    return rows, digest.hexdigest()


def main() -> int:
    """Print a line for each setting."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("corpus")
    options.add_argument("--drop", action="store_true")
    given = options.parse_args()
    seen = set()
    for blocksize, cpus, memory in SETTINGS:
        docs = cdf.read_jsonl(given.corpus, blocksize=blocksize).curate.normalize_unicode()
        docs = docs.curate.keep_profile(cdf.profiles.DATATROVE_GOPHER_QUALITY, words="whitespace")
        docs = docs.curate.drop_exact_duplicates() if given.drop else docs
        with tempfile.TemporaryDirectory() as folder, cdf.start_cluster(memory=memory, cpus=cpus) as cluster:
            receipt = cdf.write_parquet(docs, folder)
            rows, digest = digest_of(Path(folder))
        seen.add((rows, digest))
        print(f"{blocksize} | {cluster.layout.shape} | {receipt.ranges} ranges | {rows:,} rows | {digest}", flush=True)
    return int(len(seen) > 1)


if __name__ == "__main__":
    sys.exit(main())

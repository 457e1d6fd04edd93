# SPDX-License-Identifier: Apache-2.0
"""How near the time that `recommend` tells comes to the run it is about: cleaning, dropping near duplicates, to Parquet.

    python benchmarks/recommended_time.py CORPUS [CORPUS ...] --memory 1.5GB --cpus 2

For each input, a folder or a file: the time, memory and disk told, the time from a sample that is run in a process of its own;
then the run itself, with what was recommended, into a folder that is deleted after it. The exit code is 1 if any run took more
than ``--most`` times what was told, or less than that part of it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time

import curator_df as cdf
from curator_df.io.kinds import holds_parquet


def measure(corpus: str, memory: str, cpus: int) -> float:
    """Print the line of one input; return the seconds it took as a multiple of those told."""
    began = time.monotonic()
    found = cdf.recommend(corpus, memory=memory, cpus=cpus)
    asked_seconds = time.monotonic() - began
    folder = tempfile.mkdtemp()
    read = cdf.read_parquet if holds_parquet(corpus, None) else cdf.read_jsonl
    try:
        with cdf.start_cluster(memory=found.memory_bytes, cpus=found.cpus):
            docs = read(corpus, blocksize=found.block_bytes).pipe(cdf.normalize_unicode)
            docs = docs.pipe(
                cdf.drop_near_duplicates,
                bands_per_iteration=found.bands_per_iteration,
                scheme=cdf.minhash.DEFAULT.replace(use_64_bit_hash=found.use_64_bit_hash),
            )
            receipt = cdf.write_parquet(docs, f"{folder}/out")
    finally:
        shutil.rmtree(folder)
    assert found.projected_seconds is not None
    ratio = receipt.seconds / found.projected_seconds
    print(
        f"{corpus} | {found.text_bytes / 1e6:,.0f} MB | {found.projected_seconds:.1f} | {receipt.seconds:.1f} | {ratio:.2f} | "
        f"{asked_seconds:.1f} | {found.rows:,} of {receipt.rows_read:,} | "
        f"{found.projected_bytes / 1e6:,.0f}, {receipt.measured_bytes / 1e6:,.0f} | "
        f"{found.disk_bytes / 1e6:,.0f}, {sum(one.key_bytes + one.drop_bytes for one in receipt.exchanges) / 1e6:,.0f}",
        flush=True,
    )
    return ratio


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("corpus", nargs="+")
    options.add_argument("--memory", default="1.5GB")
    options.add_argument("--cpus", type=int, default=2)
    options.add_argument("--most", type=float, default=2.0)
    given = options.parse_args()
    print(
        "input | text | seconds told | seconds taken | ratio | seconds to tell | rows told, of | MB held told, held | "
        "MB of temporary files told, written",
        flush=True,
    )
    ratios = [measure(corpus, given.memory, given.cpus) for corpus in given.corpus]
    return int(max(ratios) > given.most or min(ratios) < 1 / given.most)


if __name__ == "__main__":
    sys.exit(main())

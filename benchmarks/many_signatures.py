# SPDX-License-Identifier: Apache-2.0
"""Very many signatures, without a text: bands, exchange and components under a budget.

    python benchmarks/many_signatures.py FOLDER --rows 20000000 --bands 20 --memory 4GB

Each row has the band hashes of a text that is not there: made from its number, at random, except that every tenth row of each
second thousand agrees in about half of its bands with the row a thousand before it. The run is watched from outside (every
50 ms). The exit code is 1 if the rows are not those expected, or more was held than allowed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sampled_process import run_sampled

RUN = """
import dataclasses, json, sys
import numpy as np
import curator_df as cdf
from curator_df.exchange.keys import Keys
from curator_df.dedup.near.stages import NearDrop
from curator_df.core.ranges.blocks import BlockKernel, map_blocks
from curator_df.ops.duplicates.exact import refuse_block

def mixed(numbers):
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

class NumberDrop(NearDrop):
    def contents(self, block):
        numbers = block["key"].to_numpy(dtype=np.int64)
        return Keys(np.stack([mixed(numbers), mixed(~numbers)], axis=1))

    of = contents

    def bands(self, block):
        numbers = block["key"].to_numpy(dtype=np.int64)
        hashes = np.empty((len(numbers), self.num_bands), dtype=np.uint64)
        copies = (numbers % 10 == 0) & (numbers // 1000 % 2 == 1)
        for band in range(self.num_bands):
            same = copies & (mixed(numbers * 64 + band) & np.uint64(1)).astype(bool)
            if band == 0:
                same = copies
            source = np.where(same, numbers - 1000, numbers)
            hashes[:, band] = mixed(source * 64 + band)
        return hashes, np.ones(len(numbers), dtype=bool)

if __name__ == "__main__":
    rows = cdf.read_parquet(sys.argv[1])
    scheme = cdf.minhash.Scheme("words", 1, num_bands=int(sys.argv[4]), minhashes_per_band=1)
    pending = NumberDrop(
        text="key", scheme=scheme, ranked_by=None, signatures=None, anchors=2, verify=None, keep="first", linkage="transitive",
        reason="near_duplicate", columns=("key",),
    )
    kernel = BlockKernel("drop_near_duplicates", refuse_block, {}, peak_factor=1.4, pending=pending)
    with cdf.start_cluster(memory=sys.argv[3], cpus=2):
        receipt = cdf.write_parquet(map_blocks(rows, kernel, meta=rows._meta), sys.argv[2])
    print(json.dumps(receipt.to_json()))
"""
ROWS_A_FILE = 2_000_000


def main() -> int:
    """Run, and print what came of it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder")
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--bands", type=int, default=20)
    options.add_argument("--memory", default="4GB")
    given = options.parse_args()
    folder = Path(given.folder)
    source, target, script = folder / f"rows-{given.rows}", folder / "out", folder / "run.py"
    if not source.exists():
        source.mkdir(parents=True)
        for number, start in enumerate(range(0, given.rows, ROWS_A_FILE)):
            keys = pa.table({"key": np.arange(start, min(start + ROWS_A_FILE, given.rows))})
            pq.write_table(keys, source / f"{number:05d}.parquet", row_group_size=250_000)
    script.write_text(RUN)
    subprocess.run(["rm", "-rf", str(target)], check=True)
    done = run_sampled([sys.executable, str(script), str(source), str(target), given.memory, str(given.bands)])
    if done.returncode:
        print(done.err.strip().splitlines()[-3:])
        return 1
    run = json.loads(done.out.splitlines()[-1])
    exchange = run["exchanges"][0]
    details = exchange["details"]
    numbers = np.arange(0, given.rows, 10)
    expected = given.rows - int((numbers // 1000 % 2 == 1).sum())
    ok = run["rows_written"] == expected and done.peak_bytes <= run["allowed_bytes"]
    print(
        f"{given.rows:,} rows x {given.bands} bands, {run['rows_written']:,} written, {done.seconds:.0f} s in all "
        f"({exchange['seconds']:.0f} s to find), peak {done.peak_bytes / 1e6:.0f} MB seen, {run['projected_bytes'] / 1e6:.0f} "
        f"projected, {run['allowed_bytes'] / 1e6:.0f} allowed; keys {exchange['key_bytes'] / 1e6:,.0f} MB, "
        f"{exchange['projected_bytes'] / 1e6:,.0f} projected, {exchange['spilled_bytes'] / 1e6:,.0f} spilled; "
        f"{details['bands_per_iteration']} bands an iteration, {details['iterations']} iterations, "
        f"{details['candidate_pairs']:,} pairs, {details['groups']:,} groups; retries {run['retries']}; ok {ok}"
    )
    return int(not ok)


if __name__ == "__main__":
    sys.exit(main())

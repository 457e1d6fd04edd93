# SPDX-License-Identifier: Apache-2.0
"""Measured peak of whole runs against the allowed bytes: counted memory of the process tree every 50 ms, from outside.

    python benchmarks/peak_memory.py CORPUS [CORPUS ...] --memory 1GB --memory 1.5GB --repeat 10

Each run is a process of its own: read_jsonl, normalize_unicode, keep_profile, write_parquet. A table row is one run;
the exit code is 1 if any run held more than it was allowed, or did not end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from sampled_process import run_sampled

CHAIN = """
import json, sys
import curator_df as cdf

if __name__ == "__main__":
    source, target, memory, cpus, chain, blocksize = sys.argv[1:7]
    docs = cdf.read_jsonl(source, blocksize=None if blocksize == "-" else blocksize)
    if chain == "gopher":
        docs = docs.pipe(cdf.normalize_unicode).pipe(cdf.keep_profile, cdf.profiles.DATATROVE_GOPHER_QUALITY, words="whitespace")
    with cdf.start_cluster(memory=memory, cpus=int(cpus)):
        receipt = cdf.write_parquet(docs, target)
    print(json.dumps(receipt.to_json()))
"""


def one_run(
    corpus: str, memory: str, cpus: int, chain: str, blocksize: str, timeout_seconds: float
) -> dict[str, object]:
    """Run the chain once; return its receipt, its wall time and the peak that an outside process saw."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "chain.py"
        script.write_text(CHAIN)
        command = [sys.executable, str(script), corpus, f"{folder}/out", memory, str(cpus), chain, blocksize]
        done = run_sampled(command, timeout_seconds)
        if done.returncode == 0:
            receipt = json.loads(done.out.splitlines()[-1])
        else:
            receipt = {"error": done.err.strip().splitlines()[-1:] or f"killed after {done.seconds:.0f} s"}
        shutil.rmtree(f"{folder}/out", ignore_errors=True)
        return {**receipt, "wall_seconds": done.seconds, "outside_bytes": done.peak_bytes}


def main() -> int:
    """Print a table row for each run."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("corpus", nargs="+")
    options.add_argument("--memory", action="append", required=True)
    options.add_argument("--repeat", type=int, default=1)
    options.add_argument("--cpus", type=int, default=2)
    options.add_argument("--chain", choices=("gopher", "none"), default="gopher")
    options.add_argument("--blocksize", default="-")
    options.add_argument("--timeout", type=float, default=600)
    given = options.parse_args()
    failed = False
    print("corpus | memory | outside peak | receipt's peak | projected | run s | wall s | rows written | retries | ok")
    for corpus in given.corpus:
        for memory in given.memory:
            for _ in range(given.repeat):
                run = one_run(corpus, memory, given.cpus, given.chain, given.blocksize, given.timeout)
                ok = "error" not in run and run["outside_bytes"] <= run["allowed_bytes"]
                failed |= not ok
                if "error" in run:
                    print(f"{corpus} | {memory} | {run['outside_bytes'] / 1e6:.0f} MB | {run['error']}", flush=True)
                    continue
                sizes = (f"{run[k] / 1e6:.0f} MB" for k in ("outside_bytes", "measured_bytes", "projected_bytes"))
                print(
                    f"{corpus} | {memory} | {' | '.join(sizes)} | {run['seconds']:.1f} | {run['wall_seconds']:.1f} | "
                    f"{run['rows_written']:,} | {run['retries']} | {ok}",
                    flush=True,
                )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Measured peak of whole runs against the allowed bytes: PSS of the process tree every 50 ms, from outside.

    python benchmarks/peak_memory.py CORPUS [CORPUS ...] --memory 1GB --memory 1.5GB --repeat 10

Each run is a process of its own: read_jsonl, normalize_unicode, keep_profile, write_parquet. A table row is one run;
the exit code is 1 if any run held more than it was allowed, or did not end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from curator_df.core import peak
from curator_df.core.sizes import read_size, show_size

CHAIN = """
import json, sys
import curator_df as cdf

if __name__ == "__main__":
    source, target, memory, cpus, chain, blocksize = sys.argv[1:7]
    docs = cdf.read_jsonl(source, blocksize=None if blocksize == "-" else blocksize)
    if chain == "gopher":
        docs = docs.pipe(cdf.normalize_unicode).pipe(cdf.keep_profile, cdf.profiles.DATATROVE_GOPHER_QUALITY)
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
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        sampler = subprocess.Popen(
            [sys.executable, "-S", "-E", peak.__file__, str(process.pid), "--exact"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        seen = 0
        while process.poll() is None and time.monotonic() - started < timeout_seconds:
            time.sleep(0.1)
            sampler.stdin.write("peak\n")
            seen = max(seen, int(sampler.stdout.readline() or 0))
        process.kill()
        out, err = process.communicate()
        sampler.kill()
        sampler.communicate()
        receipt = (
            json.loads(out.splitlines()[-1]) if process.returncode == 0 else {"error": err.strip().splitlines()[-1:]}
        )
        shutil.rmtree(f"{folder}/out", ignore_errors=True)
        return {**receipt, "wall_seconds": time.monotonic() - started, "outside_bytes": seen}


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
                ok = "error" not in run and run["outside_bytes"] <= read_size("memory", memory)
                failed |= not ok
                if "error" in run:
                    print(f"{corpus} | {memory} | {show_size(run['outside_bytes'])} | {run['error']}", flush=True)
                    continue
                sizes = (show_size(run[k]) for k in ("outside_bytes", "measured_bytes", "projected_bytes"))
                print(
                    f"{corpus} | {memory} | {' | '.join(sizes)} | {run['seconds']:.1f} | {run['wall_seconds']:.1f} | "
                    f"{run['rows_written']:,} | {run['retries']} | {ok}",
                    flush=True,
                )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Very many keys through the real thing: drop_exact_duplicates by a column of integers, under a budget, with kill -9.

    python benchmarks/many_keys.py FOLDER --rows 200000000 --memory 1GB [--kill worker|run] [--stage keys|merge|write]

Three quarters of the keys are unlike. The run is watched from outside (PSS every 50 ms). With ``--kill`` the workers, or the
whole process group, get SIGKILL when a stage has finished a few tasks; a run that was killed is resumed. The exit code is 1
if the rows are not those expected, or more was held than allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sampled_process import run_sampled

RUN = """
import json, os, sys, curator_df as cdf
if __name__ == "__main__":
    open(sys.argv[2] + ".pid", "w").write(str(os.getpid()))
    rows = cdf.drop_exact_duplicates(cdf.read_parquet(sys.argv[1]), text="key")
    with cdf.start_cluster(memory=sys.argv[3], cpus=2):
        receipt = cdf.write_parquet(rows, sys.argv[2], on_existing=sys.argv[4])
    print(json.dumps(receipt.to_json()))
"""
ROWS_A_FILE = 10_000_000
JOURNALS = {
    "keys": "_curator/stages/*/_curator/done.jsonl",
    "merge": "_curator/stages/*/merge/_curator/done.jsonl",
    "collect": "_curator/stages/*/collect/_curator/done.jsonl",
    "write": "_curator/done.jsonl",
}


def write_input(folder: Path, rows: int) -> None:
    """Write files of ten million keys; key ``n`` of the first three quarters comes again in the last."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, ROWS_A_FILE)):
        numbers = np.arange(start, min(start + ROWS_A_FILE, rows)) % (rows * 3 // 4)
        table = pa.table({"key": numbers * 2_654_435_761 % (1 << 61)})
        pq.write_table(table, folder / f"{number:05d}.parquet", use_dictionary=False, row_group_size=1_000_000)


def kill_in(stage: str, whom: str, target: Path) -> None:
    """Wait for a stage, and kill."""
    while not any(len(path.read_bytes().splitlines()) >= 3 for path in target.glob(JOURNALS[stage])):
        time.sleep(0.05)
    pid = int(Path(f"{target}.pid").read_text())
    listing = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True, check=True)
    workers = [int(line.split()[0]) for line in listing.stdout.splitlines() if "--multiprocessing-fork" in line]
    for victim in workers if whom == "worker" else [pid, *workers]:
        os.kill(victim, signal.SIGKILL)
    print(f"killed {whom} in {stage}", flush=True)


def main() -> int:
    """Run, and print what came of it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder")
    options.add_argument("--rows", type=int, default=200_000_000)
    options.add_argument("--memory", default="1GB")
    options.add_argument("--kill", choices=("worker", "run"))
    options.add_argument("--stage", choices=JOURNALS, default="merge")
    given = options.parse_args()
    folder = Path(given.folder)
    source, target, script = folder / f"keys-{given.rows}", folder / "out", folder / "run.py"
    if not source.exists():
        write_input(source, given.rows)
    script.write_text(RUN)
    subprocess.run(["rm", "-rf", str(target)], check=True)
    command = [sys.executable, str(script), str(source), str(target), given.memory]
    if given.kill:
        threading.Thread(target=kill_in, args=(given.stage, given.kill, target), daemon=True).start()
    done = run_sampled([*command, "error"])
    seconds, peak = done.seconds, done.peak_bytes
    if given.kill == "run":
        done = run_sampled([*command, "resume"])
        seconds, peak = seconds + done.seconds, max(peak, done.peak_bytes)
    if done.returncode:
        print(done.err.strip().splitlines()[-1:])
        return 1
    run = json.loads(done.out.splitlines()[-1])
    exchange = run["exchanges"][0]
    ok = run["rows_written"] == given.rows * 3 // 4 and peak <= run["allowed_bytes"]
    print(
        f"{given.rows:,} rows, {run['rows_written']:,} written, {seconds:.0f} s in all ({exchange['seconds']:.0f} s to find), "
        f"peak {peak / 1e6:.0f} MB seen, {run['projected_bytes'] / 1e6:.0f} projected, {run['allowed_bytes'] / 1e6:.0f} "
        f"allowed; disk {(exchange['key_bytes'] + exchange['drop_bytes']) / 1e6:,.0f} MB, "
        f"{exchange['projected_bytes'] / 1e6:,.0f} projected, {exchange['spilled_bytes'] / 1e6:,.0f} spilled; "
        f"{exchange['hash_ranges']} hash ranges, skew {exchange['skew']:.2f}; retries {run['retries']}; ok {ok}"
    )
    return int(not ok)


if __name__ == "__main__":
    sys.exit(main())

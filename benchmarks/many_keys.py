# SPDX-License-Identifier: Apache-2.0
"""Very many keys through the real thing: drop_exact_duplicates by a column of integers, under a budget, with kill -9.

    python benchmarks/many_keys.py FOLDER --rows 200000000 --memory 1GB [--kill worker|run] [--stage keys merge write]

Three quarters of the keys are unlike. The run is watched from outside (every 50 ms). With ``--kill`` the workers, or the
whole process group, get SIGKILL when a stage has finished a few tasks, in each of the stages that are named; a run that was
killed is resumed. The exit code is 1 if the rows are not those expected, in their order, if more was held than allowed, or
if a stage ended before its kill.
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
    rows = cdf.drop_exact_duplicates(cdf.read_parquet(sys.argv[1]), subset="key")
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


def key_of(numbers: np.ndarray, rows: int) -> np.ndarray:
    """Return the keys of rows: key ``n`` of the first three quarters comes again in the last."""
    return numbers % (rows * 3 // 4) * 2_654_435_761 % (1 << 61)


def write_input(folder: Path, rows: int) -> None:
    """Write files of ten million keys."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, rows, ROWS_A_FILE)):
        table = pa.table({"key": key_of(np.arange(start, min(start + ROWS_A_FILE, rows)), rows)})
        pq.write_table(table, folder / f"{number:05d}.parquet", use_dictionary=False, row_group_size=1_000_000)


def is_right(folder: Path, rows: int) -> bool:
    """Tell whether a folder holds the first row of each key, in the order of the input."""
    seen = 0
    for path in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(1_000_000):
            keys = batch.column(0).to_numpy()
            if not np.array_equal(keys, key_of(np.arange(seen, seen + len(keys)), rows)):
                return False
            seen += len(keys)
    return seen == rows * 3 // 4


def kill_in(stages: list[str], whom: str, target: Path, killed: list[str]) -> None:
    """Wait for each stage, and kill."""
    for stage in stages:
        kill_once(stage, whom, target)
        killed.append(stage)


def kill_once(stage: str, whom: str, target: Path) -> None:
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
    options.add_argument("--stage", choices=JOURNALS, nargs="+", default=["merge"])
    given = options.parse_args()
    folder = Path(given.folder)
    source, target, script = folder / f"keys-{given.rows}", folder / "out", folder / "run.py"
    if not source.exists():
        write_input(source, given.rows)
    script.write_text(RUN)
    subprocess.run(["rm", "-rf", str(target)], check=True)
    command = [sys.executable, str(script), str(source), str(target), given.memory]
    seconds, peak, how, killed = 0.0, 0, "error", list[str]()
    stages = given.stage if given.kill else []
    for due in [*([stage] for stage in stages), []] if given.kill == "run" else [stages]:
        threading.Thread(target=kill_in, args=(due, given.kill, target, killed), daemon=True).start()
        done = run_sampled([*command, how], timeout_seconds=4 * 3600)
        seconds, peak, how = seconds + done.seconds, max(peak, done.peak_bytes), "resume"
    if done.returncode:
        print(done.err.strip().splitlines()[-1:])
        return 1
    run = json.loads(done.out.splitlines()[-1])
    exchange = run["exchanges"][0]
    ok = is_right(target, given.rows) and killed == stages and peak <= run["allowed_bytes"]
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

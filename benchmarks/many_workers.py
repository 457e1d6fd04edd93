# SPDX-License-Identifier: Apache-2.0
"""What a range costs the scheduler, the journals and an exchange, with very many of them and many workers.

    python benchmarks/many_workers.py [--workers 64] [--processes] [--ranges 1000 2000 4000 ...]

The workers are threads of one process on the loopback interface, so nothing but the work of the scheduler, of the client and
of small files is measured. Each range has three short rows. Every run drops exact duplicates, so that there are two passes
and an exchange. Prints milliseconds for each range and pass, on the clock and of the processor, bytes of the exchange for each
row, and resident bytes of the process; the last column compares the processor's time with that of the fewest ranges: other
processes on the machine change it less than the clock's. With ``--processes`` the workers are processes of their own, and
what is left in this one is the scheduler and the client. The exit code is 1 if the rows are not those expected.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import dask
from distributed import Client, LocalCluster

import curator_df as cdf
from curator_df.cluster.settings import LOG_MESSAGES
from curator_df.core.runner import run
from curator_df.memory import freed_pages
from curator_df.memory.system import status_bytes

ROW_BYTES = 80
ROWS_A_RANGE = 3
QUIET = {
    "distributed.admin.low-level-log-length": LOG_MESSAGES,  # as clusters of ours have it
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.tick.interval": "60s",
    "distributed.worker.memory.monitor-interval": "60s",
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
}
"""What every worker does for itself many times a second would be done 64 times in this process."""


def write_input(path: Path, ranges: int) -> None:
    """Write rows of equal length; every third text comes twice."""
    with open(path, "w") as file:
        for number in range(ranges * ROWS_A_RANGE):
            text = f"text {number - (number % 3 == 2):012d}"
            row = f'{{"id": {number}, "text": "{text}"'
            file.write(row + " " * (ROW_BYTES - len(row) - 2) + "}\n")


def measure(folder: Path, ranges: int) -> tuple[float, float, float, bool]:
    """Return seconds, those of the processor, bytes of the exchange for each row, and whether the rows are right."""
    path = folder / f"{ranges}.jsonl"
    write_input(path, ranges)
    # The least of a small input's ranges, made as small as three rows.
    run.SMALL_RANGE_BYTES = run.RANGE_BYTES = ROW_BYTES * ROWS_A_RANGE
    run.MOST_RANGES = ranges
    docs = cdf.read_jsonl(str(path), blocksize="1MB").pipe(cdf.drop_exact_duplicates)
    started, used = time.perf_counter(), time.process_time()
    receipt = cdf.write_jsonl(docs, folder / f"out-{ranges}")
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - used
    exchange = receipt.exchanges[0]
    rows = ranges * ROWS_A_RANGE
    right = (receipt.ranges, receipt.rows_read, receipt.rows_written) == (ranges, rows, rows - ranges)
    return seconds, cpu_seconds, (exchange.key_bytes + exchange.drop_bytes) / rows, right


def main() -> int:
    """Print a line for each number of ranges."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--workers", type=int, default=64)
    options.add_argument("--processes", action="store_true")
    options.add_argument("--ranges", type=int, nargs="+", default=[1_000, 2_000, 4_000, 8_000, 16_000])
    given = options.parse_args()
    dask.config.set(QUIET)
    # It collects the garbage of a process: here that of all workers, after each few tasks.
    freed_pages.release_free_memory = lambda **_: None
    cluster = LocalCluster(
        n_workers=given.workers,
        threads_per_worker=1,
        processes=given.processes,
        memory_limit="1GB",
        dashboard_address="127.0.0.1:0",
    )
    fewest = 0.0
    titles = ("seconds", "ms a range and pass", "CPU ms", "bytes a key", "resident MB", "ratio")
    print(f"{'ranges':>8}" + "".join(f"{title:>{len(title) + 3}}" for title in titles), flush=True)
    with cluster, Client(cluster) as client, cdf.connect(client), tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), given.workers)  # what every worker does once: imports, and compiled code from the cache
        for ranges in given.ranges:
            seconds, cpu_seconds, row_bytes, right = measure(Path(folder), ranges)
            each, cpu_each = (1_000 * total / ranges / 2 for total in (seconds, cpu_seconds))
            fewest = fewest or cpu_each
            resident = status_bytes("VmRSS") / 1e6
            figures = (f"{seconds:.1f}", f"{each:.2f}", f"{cpu_each:.2f}", f"{row_bytes:.1f}", f"{resident:,.0f}")
            columns = zip(titles, (*figures, f"{cpu_each / fewest:.2f}"), strict=True)
            print(f"{ranges:8,}" + "".join(f"{figure:>{len(title) + 3}}" for title, figure in columns), flush=True)
            if not right:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

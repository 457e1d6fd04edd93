# SPDX-License-Identifier: Apache-2.0
"""What `monitor_memory` costs: the same run with and without it, in pairs, on one cluster.

    python benchmarks/monitor_cost.py CORPUS [CORPUS ...] --memory 1.5GB --pairs 11

Each run is the README's chain to Parquet, into a folder that is deleted after it. The first one does not count; then each
pair is one run with the monitor and one without, and the order changes from pair to pair. A line is a pair: wall seconds
of both, and CPU seconds of all processes together. At the end the medians of the ratios, and the smallest and the largest;
the exit code is 1 if the median of the wall seconds is above ``--most``. Runs should take ten seconds and more each.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass

import psutil

import curator_df as cdf
from curator_df.cluster.local import Cluster


@dataclass(frozen=True)
class Cost:
    """What one run took."""

    wall_seconds: float
    cpu_seconds: float
    samples: int


def cpu_seconds() -> float:
    """Return the CPU seconds so far of this process and of those below it; all of them live as long as the cluster."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def run_once(cluster: Cluster, corpus: list[str], *, monitored: bool, interval_seconds: float) -> Cost:
    docs = cdf.read_jsonl(corpus).pipe(cdf.normalize_unicode)
    docs = docs.pipe(cdf.keep_profile, cdf.profiles.DATATROVE_GOPHER_QUALITY)
    folder = tempfile.mkdtemp()
    try:
        with contextlib.ExitStack() as stack:
            before, monitor = cpu_seconds(), None
            if monitored:
                monitor = stack.enter_context(cdf.monitor_memory(cluster, interval_seconds=interval_seconds))
            receipt = cdf.write_parquet(docs, f"{folder}/out")
            used = cpu_seconds() - before
        samples = 0 if monitor is None else int(monitor.to_frame().seconds.nunique())
        return Cost(receipt.seconds, used, samples)
    finally:
        shutil.rmtree(folder)


def summary(name: str, ratios: list[float]) -> str:
    return f"{name}: median {statistics.median(ratios):.4f}, from {min(ratios):.4f} to {max(ratios):.4f}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("corpus", nargs="+")
    options.add_argument("--memory", default="1.5GB")
    options.add_argument("--cpus", type=int, default=2)
    options.add_argument("--pairs", type=int, default=11)
    options.add_argument(
        "--interval", type=float, default=0.5, help="seconds between samples; 0.5 is the default of the monitor"
    )
    options.add_argument("--most", type=float, default=1.02)
    given = options.parse_args()
    wall: list[float] = []
    cpu: list[float] = []
    with cdf.start_cluster(memory=given.memory, cpus=given.cpus) as cluster:
        run_once(cluster, given.corpus, monitored=False, interval_seconds=given.interval)
        print("pair | wall s with | without | ratio | CPU s with | without | ratio | samples", flush=True)
        for number in range(given.pairs):
            order = (True, False) if number % 2 else (False, True)
            taken = {
                monitored: run_once(cluster, given.corpus, monitored=monitored, interval_seconds=given.interval)
                for monitored in order
            }
            watched, alone = taken[True], taken[False]
            wall.append(watched.wall_seconds / alone.wall_seconds)
            cpu.append(watched.cpu_seconds / alone.cpu_seconds)
            print(
                f"{number + 1} | {watched.wall_seconds:.2f} | {alone.wall_seconds:.2f} | {wall[-1]:.4f} | "
                f"{watched.cpu_seconds:.2f} | {alone.cpu_seconds:.2f} | {cpu[-1]:.4f} | {watched.samples}",
                flush=True,
            )
    print(summary("wall seconds with the monitor, as a multiple of those without", wall))
    print(summary("CPU seconds", cpu))
    return int(statistics.median(wall) > given.most)


if __name__ == "__main__":
    sys.exit(main())

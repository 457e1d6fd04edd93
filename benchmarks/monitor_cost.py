# SPDX-License-Identifier: Apache-2.0
"""What `monitor_memory` costs: the same run with and without it, in pairs of runs at the same time.

    python benchmarks/monitor_cost.py CORPUS [CORPUS ...] --memory 900MB --pairs 11

Two processes have a cluster each and do the README's chain to Parquet, into a folder that is deleted after it. The two runs of
a pair begin together, one with the monitor and one without, and the roles change from pair to pair, so that whatever else the
machine does befalls both; the first run of each does not count. A line is a pair: wall seconds of both, CPU seconds of all
processes of each, and the CPU seconds of the monitor's own thread. At the end the medians of the ratios, the quarter and
three-quarter points, and a 95% interval of the median from the order of the pairs; the exit code is 1 if the median of the CPU
seconds is above ``--most``. Runs should take ten seconds and more each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import psutil

import curator_df as cdf
from curator_df.cluster.local import Cluster


def cpu_seconds() -> float:
    """Return the CPU seconds so far of this process and of those below it; all of them live as long as the cluster."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def thread_seconds(name: str) -> float:
    """Return the CPU seconds of a thread of this process that runs now; 0 if there is none."""
    for thread in threading.enumerate():
        if thread.name == name and thread.ident is not None:
            return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return 0.0


def run_once(cluster: Cluster, corpus: list[str], *, monitored: bool, interval_seconds: float) -> dict[str, Any]:
    docs = cdf.read_jsonl(corpus).pipe(cdf.normalize_unicode)
    docs = docs.pipe(cdf.keep_profile, cdf.profiles.DATATROVE_GOPHER_QUALITY, words="whitespace")
    folder = tempfile.mkdtemp()
    try:
        before, began = cpu_seconds(), time.monotonic()
        with contextlib.ExitStack() as stack:
            if monitored:
                stack.enter_context(cdf.monitor_memory(cluster, interval_seconds=interval_seconds))
            cdf.write_parquet(docs, f"{folder}/out")
            own = thread_seconds("curator-df-monitor")
        return {"wall": time.monotonic() - began, "cpu": cpu_seconds() - before, "own": own}
    finally:
        shutil.rmtree(folder)


def serve(given: argparse.Namespace) -> None:
    """Run once for each line of standard input, with the monitor or without, and print what it took."""
    with cdf.start_cluster(memory=given.memory, cpus=given.cpus, dashboard_port=None) as cluster:
        for line in sys.stdin:
            taken = run_once(cluster, given.corpus, monitored=line.strip() == "with", interval_seconds=given.interval)
            sys.stdout.write(json.dumps(taken) + "\n")
            sys.stdout.flush()


def interval_of_median(values: list[float]) -> tuple[float, float]:
    """Return the ordered values between which the median lies with 95%, whatever the distribution."""
    ordered, count = sorted(values), len(values)
    cut = 0
    while sum(math.comb(count, k) for k in range(cut + 1)) / 2**count <= 0.025:
        cut += 1
    return ordered[max(cut - 1, 0)], ordered[min(count - cut, count - 1)]


def summary(name: str, ratios: list[float]) -> str:
    low, high = interval_of_median(ratios)
    quarters = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
    return (
        f"{name}: median {statistics.median(ratios):.4f} (95% interval {low:.4f} to {high:.4f}), "
        f"half of the pairs from {quarters[0]:.4f} to {quarters[2]:.4f}"
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("corpus", nargs="+")
    options.add_argument("--memory", default="900MB", help="of each of the two clusters")
    options.add_argument("--cpus", type=int, default=1, help="of each of the two clusters")
    options.add_argument("--pairs", type=int, default=11)
    options.add_argument(
        "--interval", type=float, default=0.5, help="seconds between samples; 0.5 is the default of the monitor"
    )
    options.add_argument("--most", type=float, default=1.02)
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.serve:
        serve(given)
        return 0
    both = [
        subprocess.Popen(
            [sys.executable, *sys.argv, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    wall: list[float] = []
    cpu: list[float] = []
    own: list[float] = []
    with contextlib.ExitStack() as stack:
        for process in both:
            stack.callback(process.wait)
            assert process.stdin is not None
            stack.callback(process.stdin.close)
        _together(both, ("without", "without"))
        print(
            "pair | wall s with | without | ratio | CPU s with | without | ratio | CPU s of the monitor's thread",
            flush=True,
        )
        for number in range(given.pairs):
            watched, alone = _together(both[:: 1 if number % 2 else -1], ("with", "without"))
            wall.append(watched["wall"] / alone["wall"])
            cpu.append(watched["cpu"] / alone["cpu"])
            own.append(watched["own"] / watched["wall"])
            print(
                f"{number + 1} | {watched['wall']:.2f} | {alone['wall']:.2f} | {wall[-1]:.4f} | {watched['cpu']:.2f} | "
                f"{alone['cpu']:.2f} | {cpu[-1]:.4f} | {watched['own']:.3f}",
                flush=True,
            )
    print(summary("wall seconds with the monitor, as a multiple of those without", wall))
    print(summary("CPU seconds", cpu))
    print(f"CPU seconds of the monitor's thread for each second: median {statistics.median(own):.4f}")
    return int(statistics.median(cpu) > given.most)


def _together(both: list[subprocess.Popen[str]], roles: tuple[str, str]) -> list[dict[str, Any]]:
    """Let both processes run at the same time; return what each took."""
    for process, role in zip(both, roles, strict=True):
        assert process.stdin is not None
        process.stdin.write(role + "\n")
        process.stdin.flush()
    taken = []
    for process in both:
        assert process.stdout is not None
        taken.append(json.loads(process.stdout.readline()))
    return taken


if __name__ == "__main__":
    sys.exit(main())

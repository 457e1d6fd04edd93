# SPDX-License-Identifier: Apache-2.0
"""What compiling costs a newcomer: seconds of CPU from an empty folder of compiled kernels, for a chain, an operator, and all.

    python benchmarks/first_minutes.py
    python benchmarks/first_minutes.py --kernels
    python benchmarks/first_minutes.py drop_near_duplicates redact_pii

Each line is a process of its own, which compiles its kernels into an empty folder; its CPU time includes the start of
Python and of numba. With ``--kernels``, each kernel is timed after others in one process, as `kernel_sets.COMPILE_SECONDS` lists.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from curator_df import profiles
from curator_df.kernels.compiling import kernel_sets
from curator_df.kernels.compiling.compiled import compile_named
from curator_df.kernels.compiling.kernel_sets import (
    COMPILE_SECONDS,
    EVERY_RUN,
    JSON_LINES,
    METRICS,
    OPERATORS,
    UNICODE,
)
from curator_df.kernels.metrics.counts import WORDS
from curator_df.kernels.metrics.measure import metric_kernels
from curator_df.ops.filters.rules import Profile

DEMO = (*EVERY_RUN, *JSON_LINES, *UNICODE, *WORDS.kernels)
FINEWEB = kernel_sets.near_duplicates("words", use_64_bit_hash=True, compares_texts=True)
WHOLE = (METRICS, OPERATORS["drop_near_duplicates"])
"""Kernels of operators that no single call needs together: profiles and schemes are measured instead."""
PROFILES = [profile for profile in vars(profiles).values() if isinstance(profile, Profile)]
LINES = {
    "demo's chain": (DEMO, 8.0),
    "demo's chain and drop_near_duplicates": ((*DEMO, *FINEWEB), 15.0),
    **{name: ((*kernel_sets.EVERY_RUN, *kernels), 20.0) for name, kernels in OPERATORS.items() if kernels not in WHOLE},
    **{f"profile {profile.name}": (metric_kernels(profile.text_metrics, profile.words), 20.0) for profile in PROFILES},
    "all kernels": (tuple(COMPILE_SECONDS), 90.0),
}
"""Kernels, and the seconds of CPU that they may take."""
COMPILE = (
    "import sys; from curator_df.kernels.compiling.compiled import compile_named; list(compile_named(sys.argv[1:]))"
)


def cpu_seconds(kernels: Sequence[str]) -> tuple[float, int]:
    """Compile kernels in a process of its own, into an empty folder; return its CPU time and its most resident bytes."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "CURATOR_DF_CACHE": folder}
        process = subprocess.Popen([sys.executable, "-c", COMPILE, *dict.fromkeys(kernels)], env=environment)
        _, status, used = os.wait4(process.pid, 0)
        if status:
            raise SystemExit("a kernel could not be compiled")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def print_kernels() -> None:
    """Compile all kernels in this process, and print the seconds of each, as a table of Python."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CURATOR_DF_CACHE"] = folder
        list(compile_named(["rows.keep_rows.copy_rows"]))
        for kernel in COMPILE_SECONDS:
            started = time.process_time()
            list(compile_named([kernel]))
            print(f'    "{kernel}": {time.process_time() - started:.1f},', flush=True)


def main() -> None:
    """Print a line for each chain or operator."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lines", nargs="*", help="operators or chains; without any, all")
    parser.add_argument("--kernels", action="store_true", help="time each kernel instead")
    asked = parser.parse_args()
    if asked.kernels:
        print_kernels()
        return
    empty = cpu_seconds([])[0]
    print(
        f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; a process that compiles nothing takes {empty:.1f} s of CPU"
    )
    for name in asked.lines or LINES:
        kernels, most = LINES[name]
        seconds, resident = cpu_seconds(kernels)
        verdict = "" if seconds <= most else f"   over the goal of {most:.0f} s"
        print(f"{name:<40} {seconds:6.1f} s of CPU {resident / 1e6:6.0f} MB resident{verdict}", flush=True)


if __name__ == "__main__":
    main()

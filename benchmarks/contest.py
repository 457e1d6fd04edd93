# SPDX-License-Identifier: Apache-2.0
"""The same work by several libraries, in turn: medians of time and peak, and their ratios to ours.

A contestant is a script: ``argv`` is corpus, target and memory, and it prints ``seconds S VERSION`` and, if it has rows to
tell, ``rows N``. Where whole processes are compared, its seconds are those from its start to its end. Peers run in a Python
that has them installed (``pip install duckdb polars daft pyarrow``); runs take turns, so that a machine that slows down slows
all of them. CPU seconds are those of the whole process tree, with its start and end: they tell more than the time if other
programs run, too.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from dataclasses import dataclass

from sampled_process import run_sampled

OURS = "curator_df"


@dataclass(frozen=True)
class Result:
    """One run of one contestant."""

    seconds: float
    """Wall time of the work itself, or of the whole process, in seconds; NaN if the run failed."""
    cpu_seconds: float
    """CPU time of its process tree, with its start and end."""
    peak_bytes: int
    """Most bytes of its process tree."""
    version: str
    """Of the library, or why it failed."""
    rows: str
    """As it said."""


def options(description: str) -> argparse.ArgumentParser:
    """Return the command line that all contests share."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("corpus")
    found.add_argument("--memory", type=int, default=1_000_000_000, help="bytes")
    found.add_argument("--repeat", type=int, default=3)
    found.add_argument("--peers-python", default=sys.executable)
    found.add_argument("--only", action="append", help="names of contestants")
    return found


def hold(
    scripts: dict[str, str],
    given: argparse.Namespace,
    pythons: dict[str, str] | None = None,
    *,
    is_whole: bool = False,
) -> dict[str, list[Result]]:
    """Run all contestants and print a table of medians; ``pythons`` names those that need another Python.

    With ``is_whole``, the seconds are those of whole processes, in which Python starts and imports, and workers start and end.
    """
    chosen = {name: script for name, script in scripts.items() if not given.only or name in given.only}
    results: dict[str, list[Result]] = {name: [] for name in chosen}
    for _ in range(given.repeat):
        for name, script in chosen.items():
            python = sys.executable if name.startswith(OURS) else (pythons or {}).get(name, given.peers_python)
            results[name].append(_run(python, script, given.corpus, given.memory, is_whole))
    print("contestant | version | median s | least s | time / ours | median CPU s | median peak | peak / ours | rows")
    ours = next((found for name, found in results.items() if name.startswith(OURS)), None)
    for name, found in results.items():
        seconds, cpu_seconds, peak = _medians(found)
        our_seconds, _, our_peak = _medians(ours) if ours else (math.nan, math.nan, math.nan)
        print(
            f"{name} | {found[-1].version} | {seconds:.2f} | {min(one.seconds for one in found):.2f} | "
            f"{seconds / our_seconds:.2f} | {cpu_seconds:.2f} | "
            f"{peak / 1e6:,.0f} MB | {peak / our_peak:.2f} | {found[-1].rows}",
            flush=True,
        )
    return results


def _medians(found: list[Result]) -> tuple[float, float, float]:
    """Return the median time, CPU time and peak."""
    seconds, cpu_seconds, peaks = zip(*((one.seconds, one.cpu_seconds, one.peak_bytes) for one in found), strict=True)
    return statistics.median(seconds), statistics.median(cpu_seconds), statistics.median(peaks)


def _run(python: str, script: str, corpus: str, memory: int, is_whole: bool) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/script.py"
        with open(path, "w") as file:
            file.write(script)
        done = run_sampled([python, path, corpus, f"{folder}/out", str(memory)], exact=False)
    said = {words[0]: words[1:] for line in done.out.splitlines() if len(words := line.split()) > 1}
    if done.returncode != 0 or "seconds" not in said:
        reason = (done.err.strip().splitlines() or ["no message"])[-1][:100]
        return Result(math.nan, done.cpu_seconds, done.peak_bytes, f"failed: {reason}", "")
    return Result(
        done.seconds if is_whole else float(said["seconds"][0]),
        done.cpu_seconds,
        done.peak_bytes,
        " ".join(said["seconds"][1:]),
        " ".join(said.get("rows", [])),
    )

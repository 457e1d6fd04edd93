# SPDX-License-Identifier: Apache-2.0
"""Run a command and see from outside what its process tree holds: counted memory, every 50 ms.

Exact samples cost about a quarter of a core. Where time is measured too, what no file backs is read at every sample, and the
shared rest, which changes slowly, once a second.

Nothing here imports curator_df: pages of libraries that the measuring process shared with the measured one would count
for it only in part. For the same reason nothing else of that Python environment should run meanwhile.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sampled:
    """A command that has ended, or was ended."""

    out: str
    """What it printed."""
    err: str
    """What it said on standard error."""
    returncode: int
    """Negative when it was killed."""
    seconds: float
    """Wall time."""
    peak_bytes: int
    """Most bytes seen at a time."""


def run_sampled(command: list[str], timeout_seconds: float = 3600, exact: bool = True) -> Sampled:
    """Run a command to its end, or kill it after a time."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    sampler = subprocess.Popen(
        [sys.executable, "-S", "-E", str(_sampler()), str(process.pid), *["--exact"] * exact],
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
    return Sampled(out, err, process.returncode, time.monotonic() - started, seen)


def _sampler() -> Path:
    """Return the path of the library's own sampler, which needs the standard library alone, without importing it."""
    [folder] = importlib.util.find_spec("curator_df").submodule_search_locations
    return Path(folder) / "core" / "memory" / "peak.py"

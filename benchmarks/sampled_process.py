# SPDX-License-Identifier: Apache-2.0
"""Run a command and see from outside what its process tree holds: counted memory, every 50 ms.

Exact samples cost about a quarter of a core. Where time is measured too, what no file backs is read at every sample, and the
shared rest, which changes slowly, once a second.

Nothing here imports curator_df: pages of libraries that the measuring process shared with the measured one would count
for it only in part. For the same reason nothing else of that Python environment should run meanwhile.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import select
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
    cpu_seconds: float
    """CPU time of its process tree, as far as each process waited for those that it started."""
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
    seen, used_before = 0, _cpu_seconds()
    end = os.pidfd_open(process.pid)  # can be read when the process ends, so that the wall time is exact
    while process.poll() is None and time.monotonic() - started < timeout_seconds:
        select.select([end], [], [], 0.1)
        sampler.stdin.write("peak\n")
        seen = max(seen, int(sampler.stdout.readline() or 0))
    seconds = time.monotonic() - started
    os.close(end)
    process.kill()
    out, err = process.communicate()
    cpu_seconds = _cpu_seconds() - used_before
    sampler.kill()
    sampler.communicate()
    return Sampled(out, err, process.returncode, seconds, cpu_seconds, seen)


def _cpu_seconds() -> float:
    """Return the CPU time of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _sampler() -> Path:
    """Return the path of the library's own sampler, which needs the standard library alone, without importing it."""
    [folder] = importlib.util.find_spec("curator_df").submodule_search_locations
    return Path(folder) / "memory" / "counted_memory.py"

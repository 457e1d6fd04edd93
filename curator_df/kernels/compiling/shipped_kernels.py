# SPDX-License-Identifier: Apache-2.0
"""Kernels that came compiled with the package, in a wheel that was built for a CPU baseline (``hatch_build.py``).

They are used where Python, numba, llvmlite and NumPy are those that the wheel was built with, and the CPU has what the baseline
has. Anywhere else, and with a wheel without them, kernels are compiled when they are needed. Nothing here imports numba.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path

from curator_df.kernels.compiling.kernel_sets import COMPILE_SECONDS

FOLDER = Path(__file__).parents[1] / "machine_code"
"""Folder of the package that a wheel fills: a folder for each environment, with a file for each kernel."""
PROCESSES = 4
"""Maximum number of processes that compile at once: each takes 400 MB."""
BASELINES: Mapping[str, tuple[str, str, frozenset[str]]] = {
    "x86-64-v3": (
        "x86_64",
        "x86-64-v3",
        frozenset(
            {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "popcnt", "sse4_1", "sse4_2", "ssse3"}
        ),
    ),
    "aarch64": ("aarch64", "generic", frozenset({"asimd", "fp"})),
}
"""Machine of each baseline, its name in LLVM, and the flags of ``/proc/cpuinfo`` that a CPU with the baseline has."""


def shipped_path(kernel: str, digest: str) -> Path | None:
    """Return the file of a kernel that came with the package and that this machine can run; None if there is none."""
    for folder in _usable_folders():
        path = folder / f"{kernel}-{digest}.nbc"
        if path.exists():
            return path
    return None


def environment_of(baseline: str) -> str:
    """Return the name of the folder of a baseline, for Python and the packages of this process."""
    versions = [f"{package}{version(package)}" for package in ("numba", "llvmlite", "numpy")]
    return "-".join([baseline, str(sys.implementation.cache_tag), sys.platform, *versions])


def lacking(baseline: str) -> str:
    """Return why this machine cannot run code for a baseline; empty if it can."""
    machine, _, needed = BASELINES[baseline]
    if machine != platform.machine():
        return f"it is for {machine}, and this machine is {platform.machine()}"
    missing = sorted(needed - cpu_flags())
    return f"this CPU lacks {', '.join(missing)}" if missing else ""


def compile_for(baseline: str, folder: Path, kernels: Iterable[str] = tuple(COMPILE_SECONDS)) -> Path:
    """Compile kernels, by default all, for a baseline into a folder below another one, and return it.

    Raises
    ------
    ValueError
        If there is no such baseline, or this machine cannot run its code.
    subprocess.CalledProcessError
        If a kernel cannot be compiled.
    """
    if baseline not in BASELINES:
        raise ValueError(f"{baseline!r} is not a CPU baseline. The baselines are {', '.join(BASELINES)}")
    if why := lacking(baseline):
        raise ValueError(
            f"kernels for {baseline} cannot be compiled on this machine: {why}. Use another baseline or machine"
        )
    made = folder / environment_of(baseline)
    made.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as cache:
        # For the baseline alone: without these settings numba compiles for the CPU at hand.
        settings = {"NUMBA_CPU_NAME": BASELINES[baseline][1], "NUMBA_CPU_FEATURES": "", "CURATOR_DF_CACHE": cache}
        program = "import sys; from curator_df.kernels.compiling.compiled import compile_named; list(compile_named(sys.argv[1:]))"
        environment = {**os.environ, **settings, "PYTHONPATH": str(Path(__file__).parents[3])}
        names, processes = sorted(kernels), min(PROCESSES, len(os.sched_getaffinity(0)))
        parts = [
            names[len(names) * part // processes : len(names) * (part + 1) // processes] for part in range(processes)
        ]
        commands = [[sys.executable, "-c", program, *part] for part in parts]
        running = [subprocess.Popen(command, env=environment) for command in commands]
        for command, process in zip(commands, running, strict=True):
            if code := process.wait():
                raise subprocess.CalledProcessError(code, command)
        for path in Path(cache).glob("*/*.nbc"):
            shutil.copyfile(path, made / path.name)
    return made


@functools.cache
def _usable_folders() -> tuple[Path, ...]:
    here = [(FOLDER / environment_of(baseline), baseline) for baseline in BASELINES] if FOLDER.is_dir() else []
    return tuple(folder for folder, baseline in here if folder.is_dir() and not lacking(baseline))


@functools.cache
def cpu_flags() -> frozenset[str]:
    """Return the features of this machine's processor, as Linux names them; empty where nothing says so."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        lines = (line.partition(":") for line in file)
        return frozenset(
            flag for name, _, flags in lines if name.strip() in ("flags", "Features") for flag in flags.split()
        )
    return frozenset()

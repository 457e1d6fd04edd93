# SPDX-License-Identifier: Apache-2.0
"""Compile kernels in a separate process, before workers need them."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Sequence

from curator_df.core.runner.progress import progress_bar
from curator_df.core.sizes import show_duration
from curator_df.kernels.warm import GROUPS, is_compiled

LOG = logging.getLogger("curator_df.cluster")

COMPILER_BYTES = 420_000_000
"""Maximum memory of the compiler of kernels in its separate process. Measured (PSS): 326 MB for the basic group, 403 MB for
that of near duplicates."""


def compile_kernels(group: str) -> None:
    """Make sure that a group of kernels is in numba's cache on disk; log a message if it has to be compiled."""
    if not is_compiled(group):
        _compile([group], "so that no worker has to hold the compiler")


def compile_all_kernels() -> None:
    """Make sure that all kernels are in the cache, one group after the other; log a message, since the first time is slow."""
    if missing := [group for group in GROUPS if not is_compiled(group)]:
        _compile(missing, "because this budget has no room for the compiler later")


def _compile(groups: Sequence[str], why: str) -> None:
    say_compiling(groups, why)
    started = time.monotonic()
    with progress_bar("compiling kernels", len(groups)) as show:
        for done, group in enumerate(groups):
            show(done, group)
            wait_for(start_compiler(group))
    LOG.warning("compiled the kernels in %s", show_duration(time.monotonic() - started))


def say_compiling(groups: Sequence[str], why: str) -> None:
    """Log that the user has to wait, the reason, and how to compile beforehand."""
    LOG.warning(
        "Compiling %d group%s of kernels (%s). This takes up to a minute each, once per machine: %s "
        "(to compile beforehand, run python -m curator_df.kernels.warm)",
        len(groups),
        "s" * (len(groups) > 1),
        ", ".join(groups),
        why,
    )


def start_compiler(group: str) -> subprocess.Popen[str]:
    """Fill numba's cache on disk in a separate process, because the compiler would stay in memory (about 100 MB)."""
    # Use this process's own path: "-m" would use a curator_df in the working directory.
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; from curator_df.kernels import warm; warm.compile_group({group!r})"
    )
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for(compiler: subprocess.Popen[str]) -> None:
    """Wait until a compiler has ended; raise with its output if it failed."""
    _, said = compiler.communicate()
    if compiler.returncode != 0:
        raise RuntimeError(f"the kernels could not be compiled (python -m curator_df.kernels.warm):\n{said}")

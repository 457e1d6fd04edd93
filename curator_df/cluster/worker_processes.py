# SPDX-License-Identifier: Apache-2.0
"""The worker processes of this one."""

from __future__ import annotations

import contextlib

import psutil


def worker_processes() -> int:
    """Count the living worker processes, by their command line: asking multiprocessing would reap them."""
    count = 0
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended while we looked
            count += child.status() != psutil.STATUS_ZOMBIE and "--multiprocessing-fork" in child.cmdline()
    return count

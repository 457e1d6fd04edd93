# SPDX-License-Identifier: Apache-2.0
"""Inputs so small that worker processes would take longer to start than to work."""

from __future__ import annotations

import os
from contextvars import ContextVar

SMALL_INPUT_BYTES = 32_000_000
"""Size of an input, on disk, up to which a command starts no worker processes: they would take longer to start than to work.

Measured on two cores: the demo, 20 MB of text, takes 3.1 s of CPU in threads of this process, and 4.4 s with one worker.
"""
small_input: ContextVar[bool] = ContextVar("small_input", default=False)
"""Whether what is planned or started now is for a small input alone, see `memory.budget.choose_layout`."""


def bytes_of_files(source: str) -> int | None:
    """Return the size of a local file, or of all files in a local folder; None for anything else."""
    if os.path.isfile(source):
        return os.path.getsize(source)
    if not os.path.isdir(source):
        return None
    files = (os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names)
    return sum(os.path.getsize(path) for path in files if os.path.isfile(path))

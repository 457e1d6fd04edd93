# SPDX-License-Identifier: Apache-2.0
"""Inputs so small that worker processes would take longer to start than to work."""

from __future__ import annotations

import os
from contextlib import suppress
from contextvars import ContextVar

SMALL_INPUT_BYTES = 32_000_000
"""Size of an input, as text, up to which a command starts no worker processes: they would take longer to start than to work.

Measured on two cores: the demo, 20 MB of text, takes 3.1 s of CPU in threads of this process, and 4.4 s with one worker.
"""
COMPRESSED = (".gz", ".zst", ".bz2", ".xz")
"""Endings of compressed files."""
COMPRESSED_SHARE = 4
"""Bytes of text that stand for a byte of a compressed file. Measured with gzip: 2.9 for news, 3.7 and 4.8 for documentation."""
WHY_THREADS = "worker processes would take longer to start than the small input takes"
"""Reason of a layout without worker processes for a small input."""
WHY_ASKED = "processes=False: tasks run in threads of this process"
"""Reason of a layout without worker processes because the caller wants none."""
threads_asked: ContextVar[bool] = ContextVar("threads_asked", default=False)
"""Whether what is planned now will run in a cluster with ``processes=False``."""
small_input: ContextVar[bool] = ContextVar("small_input", default=False)
"""Whether what is planned or started now is for a small input alone, see `memory.budget.choose_layout`."""


def bytes_of_files(source: str) -> int | None:
    """Return about the bytes of text in a local file or folder; None for anything else, or with linked folders.

    Files are counted until they are not small in total: a folder may have millions of them.
    """
    if os.path.isfile(source):
        return _weighed_bytes(source)
    if not os.path.isdir(source):
        return None
    total = 0
    for folder, inner, names in os.walk(source):
        if any(os.path.islink(os.path.join(folder, name)) for name in inner):  # readers follow these links
            return None
        for path in (os.path.join(folder, name) for name in names):
            with suppress(OSError):  # deleted meanwhile, or a link that leads nowhere: the reader reports it
                total += _weighed_bytes(path)
            if total > SMALL_INPUT_BYTES:
                return total
    return total


def _weighed_bytes(path: str) -> int:
    return os.path.getsize(path) * (COMPRESSED_SHARE if path.endswith(COMPRESSED) else 1)

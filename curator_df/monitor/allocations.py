# SPDX-License-Identifier: Apache-2.0
"""Lines of code that hold the most memory at the peak of a call, measured with memray if it is installed."""

from __future__ import annotations

import collections
import importlib.util
import os
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

MOST_LINES = 5
"""Maximum number of lines reported for a call."""
LEAST_BYTES = 100_000
"""Minimum number of bytes that a line holds to be reported."""

Frame = tuple[str, str, int]
"""Function, file and line of a stack frame."""


def has_memray() -> bool:
    """Return whether memray is installed, without importing it."""
    return importlib.util.find_spec("memray") is not None


def peak_allocations(call: Callable[[], Any]) -> list[tuple[str, int]]:
    """Run a call under memray; return the lines that hold the most memory at its peak, with their bytes, largest first.

    Memory that pandas, numpy and other libraries allocate is counted for the line that called them.
    """
    import memray

    held: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="curator-df-memray-") as folder:
        path = os.path.join(folder, "allocations.bin")
        with memray.Tracker(path):
            result = call()
        del result
        with memray.FileReader(path) as reader:
            for record in reader.get_high_watermark_allocation_records(merge_threads=True):
                held[_named(record.stack_trace())] += record.size
    return [(line, size) for line, size in held.most_common(MOST_LINES) if size >= LEAST_BYTES]


def _named(stack: Sequence[Frame]) -> str:
    """Return the innermost line outside libraries and outside the code that runs steps; otherwise the innermost line."""
    if not stack:
        return "outside of Python"
    function, path, line = next((frame for frame in stack if _is_own(frame[1])), stack[0])
    return f"{os.path.basename(path)}:{line} ({function})"


def _is_own(path: str) -> bool:
    package = os.path.dirname(os.path.dirname(__file__))
    if path.startswith(package):
        return not path.startswith((os.path.join(package, "core"), os.path.join(package, "monitor")))
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not path.startswith(tuple(libraries)) and "-packages" not in path and not path.startswith("<frozen")

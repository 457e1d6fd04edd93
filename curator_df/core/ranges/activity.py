# SPDX-License-Identifier: Apache-2.0
"""Which step each thread of this process works on now, so that one can look from outside while a task runs."""

from __future__ import annotations

import collections
import threading

READ = "read"
"""Between two blocks: the reader has the word."""

_steps: dict[int, str] = {}


def enter_step(name: str) -> None:
    """Note what this thread works on from now on."""
    _steps[threading.get_ident()] = name


def leave_task() -> str:
    """Forget this thread; return what it worked on last, or an empty string."""
    return _steps.pop(threading.get_ident(), "")


def threads_by_step() -> dict[str, int]:
    """Return how many threads of this process work on each step now."""
    return dict(collections.Counter(list(_steps.values())))

# SPDX-License-Identifier: Apache-2.0
"""Current step of each thread of this process, so that it can be observed from outside while a task runs."""

from __future__ import annotations

import collections
import threading

READ = "read"
"""Name of the state between two blocks, in which the reader works."""

_steps: dict[int, str] = {}


def enter_step(name: str) -> None:
    """Register the step that this thread works on from now on."""
    _steps[threading.get_ident()] = name


def leave_task() -> str:
    """Unregister this thread; return the step that it worked on last, or an empty string."""
    return _steps.pop(threading.get_ident(), "")


def threads_by_step() -> dict[str, int]:
    """Return the number of threads of this process that currently work on each step."""
    return dict(collections.Counter(list(_steps.values())))

# SPDX-License-Identifier: Apache-2.0
"""Tasks of a worker beside those that have its threads, where the work of a step is done elsewhere (`core.planning.balance`).

A task that leaves its thread to the next one goes on in a thread of its own (`distributed.secede`). It never asks for the other
one back: that would make it wait until some task has done its whole range.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from distributed import secede

_lock = threading.Lock()
_beside = 0
"""Tasks of this process that have left their threads."""
_task = threading.local()


@contextlib.contextmanager
def may_leave(most: int) -> Iterator[None]:
    """Say how many tasks of this worker may be beside its threads, while this thread runs one of them."""
    _task.most, _task.has_left = most, False
    try:
        leave_if_room()
        yield
    finally:
        if _task.has_left:
            _count(-1)
        _task.most, _task.has_left = 0, False


def leave_if_room() -> None:
    """Leave this task's thread to the next one, if it has not, and fewer have than may."""
    if _task.has_left or not _task.most:
        return
    if _count(1) > _task.most:
        _count(-1)
        return
    _task.has_left = True
    secede()


def beside() -> int:
    """Return how many tasks of this process have left their threads."""
    return _beside


def _count(more: int) -> int:
    global _beside  # noqa: PLW0603 - of this process, whatever runs in it
    with _lock:
        _beside += more
        return _beside

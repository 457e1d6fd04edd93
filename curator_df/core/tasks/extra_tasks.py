# SPDX-License-Identifier: Apache-2.0
"""Additional tasks of a worker beyond those of its threads, if a step's work is done elsewhere (`core.planning.concurrency`).

A task that leaves its thread to the next one continues in a separate thread (`distributed.secede`). It never requests the other
thread back: it would have to wait until some task has finished its whole range.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from distributed import secede

_lock = threading.Lock()
_beside = 0
"""Number of tasks of this process that have left their threads."""
_task = threading.local()


@contextlib.contextmanager
def may_leave(most: int) -> Iterator[None]:
    """Set the number of additional tasks of this worker, while this thread runs one of them."""
    _task.most, _task.has_left = most, False
    try:
        leave_if_room()
        yield
    finally:
        if _task.has_left:
            _count(-1)
        _task.most, _task.has_left = 0, False


def leave_if_room() -> None:
    """Leave this task's thread to the next task, unless it has already done so or the maximum is reached."""
    if _task.has_left or not _task.most:
        return
    if _count(1) > _task.most:
        _count(-1)
        return
    _task.has_left = True
    secede()


def beside() -> int:
    """Return the number of tasks of this process that have left their threads."""
    return _beside


def _count(more: int) -> int:
    global _beside  # noqa: PLW0603 - one per process
    with _lock:
        _beside += more
        return _beside

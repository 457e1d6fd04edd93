# SPDX-License-Identifier: Apache-2.0
"""Workaround that keeps Dask's profiler from blocking a worker.

A Dask worker checks every 10 ms which code its tasks run, with ``sys._current_frames``. Python 3.11 holds an internal lock in it
while it creates objects. If that starts a garbage collection, the code that the collector calls may release the interpreter
(Dask's own measurement of collections does). A thread that starts or ends at that moment waits for the lock and keeps the
interpreter: a deadlock (seen with Python 3.11.7 and distributed 2026.7.1; https://github.com/python/cpython/issues/106883; not in
3.12 and later, which collect at other moments). On 3.11, Dask itself disables its profiler of event loops. Clusters that
curator_df starts have neither; on other clusters each task applies the workaround, because workers join and leave.
"""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

from distributed import get_worker

_one_at_a_time = threading.Lock()
COLLECTS_AT_ALLOCATIONS = sys.version_info < (3, 12)


class _Profile:
    """Profiler call that lets a worker profile its tasks while the garbage collector is disabled."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def __call__(self) -> None:
        with _one_at_a_time:  # workers of one process
            collects = gc.isenabled()
            gc.disable()
            try:
                self._worker.trigger_profile()
            finally:
                if collects:
                    gc.enable()


def profile_without_collections() -> None:
    """Disable the garbage collector while the worker of this task is being profiled, if the two may block each other."""
    if not COLLECTS_AT_ALLOCATIONS:
        return
    try:
        worker = get_worker()
    except ValueError:  # not on a worker
        return
    timer = worker.periodic_callbacks.get("profile")
    if timer is not None and not isinstance(timer.callback, _Profile):
        timer.callback = _Profile(worker)

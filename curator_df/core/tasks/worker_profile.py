# SPDX-License-Identifier: Apache-2.0
"""Dask's profiler must not bring a worker to a standstill.

A worker of Dask asks each 10 ms where its tasks are, by ``sys._current_frames``. Python 3.11 holds a lock of its own there while
it makes objects, and if that starts a collection, what the collector calls may let go of the interpreter (Dask's own measure
of collections does). A thread that starts or ends just then waits for that lock and keeps the interpreter: for ever (seen with
Python 3.11.7 and distributed 2026.7.1; https://github.com/python/cpython/issues/106883; not in 3.12 and later, which collect at
other moments). Dask itself does without its other profiler, that of event loops, on 3.11. Clusters started here have
neither; on others each task sees to it, as workers come and go.
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
    """Lets a worker profile its tasks while the collector is away."""

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
    """Keep the collector away while the worker of this task profiles it, where the two may lock each other out."""
    if not COLLECTS_AT_ALLOCATIONS:
        return
    try:
        worker = get_worker()
    except ValueError:  # no worker runs this
        return
    timer = worker.periodic_callbacks.get("profile")
    if timer is not None and not isinstance(timer.callback, _Profile):
        timer.callback = _Profile(worker)

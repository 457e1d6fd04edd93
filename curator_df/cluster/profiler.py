# SPDX-License-Identifier: Apache-2.0
"""Dask's profiler must not bring a worker to a standstill.

A worker of Dask asks each 10 ms where its tasks are, by ``sys._current_frames``. Python 3.11 holds a lock of its own there while
it makes objects, and if that starts a collection, what the collector calls may let go of the interpreter (Dask's own measure
of collections does). A thread that starts or ends just then waits for that lock and keeps the interpreter: for ever (seen with
Python 3.11.7 and distributed 2026.7.1; https://github.com/python/cpython/issues/106883; not in 3.12 and later, which collect at
other moments). Dask itself does without its other profiler, that of event loops, on 3.11. Clusters started here have neither.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

from distributed import WorkerPlugin

NAME = "curator_df-profiler"


class ProfileWithoutCollections(WorkerPlugin):  # type: ignore[misc] # Dask takes only what derives from its class
    """Keeps the collector away while a worker profiles its tasks, on a Python where the two may lock each other out."""

    name = NAME

    def setup(self, worker: Any) -> None:
        """Begin (called by Dask on the worker)."""
        timer = worker.periodic_callbacks.get("profile")
        if timer is None or sys.version_info[:2] != (3, 11):
            return

        def profile() -> None:
            collects = gc.isenabled()
            gc.disable()
            try:
                worker.trigger_profile()
            finally:
                if collects:
                    gc.enable()

        timer.callback = profile

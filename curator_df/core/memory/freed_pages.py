# SPDX-License-Identifier: Apache-2.0
"""When a process gives freed pages back: not after every task while others of it go on.

Giving back takes the pages of all threads, also those that a task beside has freed and is about to use again: it then gets
them anew, a fault for each 4 kB. Near duplicates in 268 MB of text, two threads: 290,000 faults and 5.4 s of CPU with it after
every task, 5.1 s with it after every fourth. What is kept meanwhile is within the process's data limit, which counts pages
that malloc keeps whether they are resident or not.

Garbage of the oldest generation is looked for less often where that is slow. A worker of ours has frozen what it imported, and
a look takes 1 ms; one of a cluster that was connected to walks all its modules, which took 160 ms of a task's 175.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from curator_df.core.memory.limits import release_free_memory

ENDS_EACH = 2
"""Tasks that end for each one that runs, until pages are given back: one floor of each window of `leaks.LeakWatch` is
taken after that."""
WHOLE_SHARE = 0.05
"""Of the time, what looking for all garbage may take."""
WHOLE_EACH = 4
"""Times that pages are given back, one of which at least looks for all garbage."""


class FreedPages:
    """Tasks of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = self._ended = 0
        self._young = 0
        self._whole_due = 0.0

    @contextmanager
    def task(self) -> Iterator[None]:
        """Run a task; when it ends give pages back if that is due, or if it is the last one that runs."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._ended += 1
                is_due = self._running == 0 or self._ended >= ENDS_EACH * (self._running + 1)
                if is_due:
                    self._ended = 0
            if is_due:
                self._give_back()

    def _give_back(self) -> None:
        began = time.monotonic()
        if began < self._whole_due and self._young < WHOLE_EACH - 1:
            self._young += 1
            release_free_memory(generation=1)
            return
        self._young = 0
        release_free_memory()
        ended = time.monotonic()
        self._whole_due = ended + (ended - began) / WHOLE_SHARE


of_process = FreedPages()
"""Those of this one."""

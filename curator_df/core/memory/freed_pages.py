# SPDX-License-Identifier: Apache-2.0
"""When a process gives freed pages back: not after every task while others of it go on.

Giving back takes the pages of all threads, also those that a task beside has freed and is about to use again: it then gets
them anew, a fault for each 4 kB. Near duplicates in 268 MB of text, two threads: 290,000 faults and 5.4 s of CPU with it after
every task, 5.1 s with it after every fourth. What is kept meanwhile is within the process's data limit, which counts pages
that malloc keeps whether they are resident or not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from curator_df.core.memory.limits import release_free_memory

ENDS_EACH = 2
"""Tasks that end for each one that runs, until pages are given back: one floor of each window of `leaks.LeakWatch` is
taken after that."""


class FreedPages:
    """Tasks of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = self._ended = 0

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
                release_free_memory()


of_process = FreedPages()
"""Those of this one."""

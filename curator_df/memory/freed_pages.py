# SPDX-License-Identifier: Apache-2.0
"""Schedule by which a process returns freed pages to the system: not after every task while other tasks run.

Returning takes the pages of all threads, including those that a concurrent task has freed and is about to use again: each 4 kB of
these then costs a page fault. Near-duplicates in 268 MB of text, two threads: 290,000 faults and 5.4 s of CPU time if pages are
returned after every task, 5.1 s after every fourth. Pages kept in the meantime count towards the process's data limit, which
includes the pages that malloc keeps, whether they are resident or not.

Garbage of the oldest generation is collected less often if that is slow. A worker that curator_df started has frozen its imported
objects, and a collection takes 1 ms; one of a cluster that was connected to walks all its modules: 160 ms of a task's 175.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from curator_df.memory.limits import release_free_memory

ENDS_EACH = 2
"""Number of finished tasks per running task after which pages are returned: each window of `leaks.LeakWatch` takes one
floor after that.
"""
WHOLE_SHARE = 0.05
"""Maximum fraction of the time for full garbage collections."""
WHOLE_EACH = 4
"""Number of times pages are returned, of which at least one includes a full garbage collection."""


class FreedPages:
    """Schedule of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = self._ended = 0
        self._young = 0
        self._whole_due = 0.0

    @contextmanager
    def task(self) -> Iterator[None]:
        """Run a task; when it ends, return pages if that is due or no other task runs."""
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
"""Schedule of this process."""

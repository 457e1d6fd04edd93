# SPDX-License-Identifier: Apache-2.0
"""Memory of one process of this machine, read often and cheaply.

Resident and private pages come from ``statm`` (0.1 ms). PSS, USS and counted memory need ``smaps_rollup``, which walks all pages
(5-15 ms for a process of 300 MB), so the part of them that is not anonymous, which changes slowly, is read every
`ROLLUP_SECONDS`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from curator_df.memory.counted_memory import changes_files, counted
from curator_df.memory.system import read_stat, rollup, statm

ROLLUP_SECONDS = 10.0
"""Maximum age in seconds of the part of PSS, USS and counted memory that is not anonymous."""


@dataclass(frozen=True)
class ProcessMemory:
    """Memory of one process at one time, in bytes."""

    rss_bytes: int
    """Resident memory: every page in memory, shared ones in full. Dask's thresholds use it."""
    pss_bytes: int
    """Proportional memory: private pages, and the process's share of each shared page. It can be summed over processes."""
    uss_bytes: int
    """Unique memory: private pages only, which would be free if the process ended."""
    counted_bytes: int
    """Memory that the kernel cannot reclaim: the proportional pages without clean file pages. Budgets count it."""


class ProcessReader:
    """Reader of the memory of one process, for repeated use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._shared = self._unique = self._counted = 0
        self._due = 0.0

    def read(self) -> ProcessMemory | None:
        """Return the memory of the process now, or None if the process has ended."""
        try:
            resident, shared = statm(self.pid)
            if not resident:  # it has ended
                return None
            private = resident - shared
            if time.monotonic() >= self._due:
                fields = rollup(self.pid)
                unique = fields["Private_Clean"] + fields["Private_Dirty"]
                held = counted(fields, lambda: changes_files(self.pid))
                # Some private pages may be shared with a fork, which makes this difference negative.
                self._shared, self._unique = max(0, fields["Pss"] - private), max(0, unique - private)
                self._counted = max(0, held - private)
                self._due = time.monotonic() + ROLLUP_SECONDS
        except (OSError, ValueError):
            return None
        return ProcessMemory(resident, private + self._shared, private + self._unique, private + self._counted)


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the machine did; None if it has ended, even if not yet reaped.

    Unlike the time of day, this does not change when somebody sets the clock.
    """
    try:
        state, _, started = read_stat(pid)
    except OSError:
        return None
    return None if state in "ZX" else started

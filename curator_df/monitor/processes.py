# SPDX-License-Identifier: Apache-2.0
"""What one process of this machine holds, read often and cheaply (Linux).

Resident and private pages come from ``statm`` (0.1 ms). PSS, USS and counted memory need ``smaps_rollup``, which walks all pages
(5-15 ms for a process of 300 MB), so the part of them that is not anonymous, which changes slowly, is read every
`ROLLUP_SECONDS`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from curator_df.core.memory.peak import changes_files, counted, rollup

ROLLUP_SECONDS = 10.0
"""How old the part of PSS, USS and counted memory that is not anonymous may be."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessMemory:
    """Bytes of one process at one time."""

    rss_bytes: int
    """Resident: every page in memory, shared ones in full. What Dask's thresholds look at."""
    pss_bytes: int
    """Proportional: private pages, and of each shared page its share. Sums up over processes."""
    uss_bytes: int
    """Unique: private pages only. What would be free if the process ended."""
    counted_bytes: int
    """Memory that the kernel cannot take back: the proportional pages without clean ones of files. What a budget counts."""


class ProcessReader:
    """Reads the memory of one process, again and again."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._shared = self._unique = self._counted = 0
        self._due = 0.0

    def read(self) -> ProcessMemory | None:
        """Return what the process holds now; None when it is gone."""
        try:
            _, resident, shared, *_ = (int(word) for word in Path(f"/proc/{self.pid}/statm").read_text().split())
            private = (resident - shared) * _PAGE_BYTES
            if time.monotonic() >= self._due:
                fields = rollup(self.pid)
                unique = fields["Private_Clean"] + fields["Private_Dirty"]
                held = counted(fields, lambda: changes_files(self.pid))
                # A part of the private pages may be shared with a fork: then these are less than nothing.
                self._shared, self._unique = max(0, fields["Pss"] - private), max(0, unique - private)
                self._counted = max(0, held - private)
                self._due = time.monotonic() + ROLLUP_SECONDS
        except (OSError, ValueError):
            return None
        return ProcessMemory(
            resident * _PAGE_BYTES, private + self._shared, private + self._unique, private + self._counted
        )


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the machine did; None when it has ended, collected or not.

    Unlike the time of day, this does not move when somebody sets the clock.
    """
    try:
        # The name before the last bracket may hold brackets and spaces.
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(fields[18])

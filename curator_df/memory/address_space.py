# SPDX-License-Identifier: Apache-2.0
"""Address space under ``ulimit -v``, checked when curator_df is imported (`refuse_import`, at the end) and when a cluster starts.

With too little address space, errors end threads and event loops of libraries at any point, and a start may wait for ever.
"""

from __future__ import annotations

import resource
from pathlib import Path

IMPORT_ADDRESS_BYTES = 700_000_000
"""Address space to import curator_df: 580 MB measured, and what allocators reserve differs from run to run."""
START_ADDRESS_BYTES = 850_000_000
"""Address space that a start and a run add to this process: 740 MB were too little, for libraries and stacks of threads."""
WAY_OUT = "Hardly any of it is used. Set ulimit -v unlimited; memory= limits the memory in use"


def lacking_address_space(more_bytes: int) -> str:
    """Return what ``ulimit -v`` allows and this process maps, if that leaves less than ``more_bytes``; empty if it does not."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed == resource.RLIM_INFINITY:
        return ""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if allowed - mapped >= more_bytes:
        return ""
    return f"ulimit -v allows {allowed // 1024:,} kB of address space, of which this process maps {mapped // 1024:,} kB"


def refuse_import() -> None:
    """Raise `ImportError` if the libraries that curator_df imports would not fit.

    Their own errors would be any of MemoryError, SystemError and "failed to map segment", or the end of the process.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed != resource.RLIM_INFINITY and allowed < IMPORT_ADDRESS_BYTES:
        raise ImportError(
            f"ulimit -v allows {allowed // 1024:,} kB of address space, and the libraries that curator_df imports need "
            f"{IMPORT_ADDRESS_BYTES // 1024:,} kB. {WAY_OUT}"
        )


refuse_import()

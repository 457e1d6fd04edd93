# SPDX-License-Identifier: Apache-2.0
"""What a session holds before any work, by layout: PSS and counted memory of the process tree, for memory/budget.py.

python benchmarks/floors.py

Nothing else of this Python environment may run meanwhile: pages that are shared with it would count only in part.
"""

from __future__ import annotations

import os
import subprocess
import sys

LAYOUTS = (("460MB", 2), ("800MB", 2), ("2GB", 2), ("4GB", 4))


def measure(memory: str, cpus: int) -> None:
    """Start a cluster, and print what its processes hold."""
    # Imported here: pages that the measuring process shares with the measured ones would count only in part.
    import curator_df as cdf
    from curator_df.core.runner.session import current_session
    from curator_df.memory.counted_memory import counted_bytes
    from curator_df.memory.sizes import show_size
    from curator_df.memory.system import processes, rollup, status_bytes

    with cdf.start_cluster(memory=memory, cpus=cpus) as cluster:
        # Children of this process are the workers, Dask's resource tracker and the sampler, which is not counted.
        tree = processes(os.getpid(), current_session().sampler.pid)
        held = [rollup(pid)["Pss"] for pid in tree]
        counted = [counted_bytes(pid) for pid in tree]
        resident = max(status_bytes("VmRSS", pid) for pid in tree)
        print(
            f"{memory} on {cpus} CPUs, {cluster.layout.shape}: {show_size(sum(held))} held, "
            f"{show_size(cluster.layout.reserved_bytes)} reserved; PSS of each {[show_size(one) for one in held]}, "
            f"{show_size(sum(counted))} counted, of each {[show_size(one) for one in counted]}, "
            f"largest RSS {show_size(resident)}",
            flush=True,
        )


def main() -> None:
    """Measure each layout in a process of its own: what one leaves behind would count for the next."""
    if len(sys.argv) > 1:
        measure(sys.argv[1], int(sys.argv[2]))
        return
    for memory, cpus in LAYOUTS:
        subprocess.run([sys.executable, __file__, memory, str(cpus)], check=False)


if __name__ == "__main__":
    main()

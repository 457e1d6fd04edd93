# SPDX-License-Identifier: Apache-2.0
"""Time `import curator_df` beside `import dask.dataframe, distributed`, each in fresh processes.

Run as a script: ``python benchmarks/import_time.py``. The mark is at most 0.5 s on top of Dask's own import.
"""

from __future__ import annotations

import subprocess
import sys
import time

ROUNDS = 7
DASK = "import dask.dataframe, distributed"
OURS = "import dask.dataframe, distributed, curator_df"
MARK_SECONDS = 0.5


def import_seconds(statement: str) -> float:
    """Return the wall time of one fresh process that runs a statement."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - started


def time_imports() -> tuple[float, float]:
    """Return the best of `ROUNDS` seconds with Dask alone and with curator_df, taken in turns."""
    rounds = [(import_seconds(DASK), import_seconds(OURS)) for _ in range(ROUNDS)]
    return min(dask for dask, _ in rounds), min(ours for _, ours in rounds)


if __name__ == "__main__":
    dask_seconds, ours_seconds = time_imports()
    print(f"{DASK}: {dask_seconds:.2f} s; with curator_df: {ours_seconds:.2f} s")
    print(
        f"on top: {ours_seconds - dask_seconds:.2f} s (mark: {MARK_SECONDS} s), ratio {ours_seconds / dask_seconds:.2f}"
    )

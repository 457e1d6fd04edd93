# SPDX-License-Identifier: Apache-2.0
"""`import curator_df` loads nothing heavy, and a command ends without a walk of all that was imported.

How long that takes is measured in ``benchmarks/import_time.py`` and ``benchmarks/small_runs.py``.
"""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {
    "IPython", "cudf", "cuml", "cupy", "dask_cuda", "dask_cudf", "dask_jobqueue", "ftfy", "ipywidgets", "matplotlib", "numba",
    "prometheus_client", "pylibcudf", "rmm", "sklearn", "torch", "transformers",
}  # fmt: skip


def packages_after(statement: str) -> set[str]:
    """Return the top-level packages that a fresh process holds after a statement."""
    script = f"{statement}; import json, sys; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_import_loads_nothing_heavy() -> None:
    loaded = packages_after("import curator_df")
    assert "curator_df" in loaded
    # What Dask itself loads where it is installed is not ours to answer for.
    assert not (HEAVY & loaded) - packages_after("import dask.dataframe, distributed")


def test_a_command_freezes_what_python_would_walk_at_its_end() -> None:
    script = (
        "import atexit, gc, sys; atexit.register(lambda: print(gc.get_freeze_count() > len(sys.modules)));"
        "sys.argv = ['curator-df', '--version']; from curator_df.cli import main; main()"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout.splitlines()[-1] == "True"

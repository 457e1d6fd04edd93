# SPDX-License-Identifier: Apache-2.0
"""Warming the on-disk cache covers every compiled module, also where the package cannot be written."""

import os
import subprocess
import sys
from pathlib import Path

import curator_df.kernels
from curator_df.kernels.warm import GROUPS, sources_of

PACKAGE = Path(curator_df.kernels.__file__).parent


def test_every_module_that_imports_numba_is_warmed():
    compiled = {f"curator_df.kernels.{path.stem}" for path in PACKAGE.glob("*.py") if "from numba" in path.read_text()}
    assert compiled == {f"curator_df.kernels.{module}" for modules in GROUPS.values() for module in modules}


def test_what_a_module_is_compiled_of_is_all_that_it_imports():
    """Imports of numba's modules among each other are found by their text; Python itself says whether these are all."""
    script = (
        "import sys, curator_df; from importlib import import_module; before = set(sys.modules)\n"
        "import_module('curator_df.kernels.' + sys.argv[1])\n"
        "print(*(name.rpartition('.')[2] for name in set(sys.modules) - before if name.startswith('curator_df.kernels.')))"
    )
    for module in ("minhash_sketch", "repeat_pass"):
        imported = subprocess.check_output([sys.executable, "-c", script, module], text=True, cwd=PACKAGE.parents[1])
        assert len(imported.split()) > 2
        assert set(imported.split()) <= {path.stem for path in sources_of(module)}


def test_kernels_are_compiled_once_and_a_process_need_not_import_numba_to_know(tmp_path):
    make = (
        "from curator_df.kernels.warm import compile_group; compile_group('segments')\n"
        "from curator_df.kernels.segment_copy import copy_pieces, find_segments, join_rows\n"
        "print(sum(sum(f.stats.cache_hits.values()) for f in (copy_pieces, find_segments, join_rows)))\n"
    )
    ask = "import sys; from curator_df.kernels.warm import is_compiled; print(is_compiled('segments'), 'numba' in sys.modules)"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(PACKAGE.parents[1])}
    said = [
        subprocess.check_output([sys.executable, "-c", script], env=environment, text=True).split()
        for script in (ask, make, ask, make)
    ]
    assert said == [["False", "False"], ["0"], ["True", "False"], ["3"]]
    for path in tmp_path.rglob("segment_copy.copy_pieces-*.nbc"):
        path.unlink()
    said = [
        subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)
        for script in (ask, make, ask)
    ]
    assert [line.split()[0] for line in said] == ["False", "2", "True"]


def test_the_command_is_run_without_a_warning():
    asked = "import runpy, sys, curator_df.kernels.warm as warm; warm.GROUPS = {}; sys.argv = ['warm']; "
    asked += "runpy.run_module('curator_df.kernels.warm', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-W", "error", "-c", asked]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parents[1], check=False)
    assert (done.returncode, done.stderr) == (0, "")

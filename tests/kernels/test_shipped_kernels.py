# SPDX-License-Identifier: Apache-2.0
"""Kernels that came with the package are loaded where they fit, and compiled everywhere else."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import curator_df
from curator_df.kernels.compiling import compile_cache, shipped_kernels
from curator_df.kernels.compiling.shipped_kernels import BASELINES, compile_for, environment_of, lacking

KERNEL = "minhash.graphs.name_roots"
BASELINE = next((name for name in BASELINES if not lacking(name)), "")
needs_baseline = pytest.mark.skipif(not BASELINE, reason="this CPU has none of the baselines")
USE = """
import sys
import numpy as np
from pathlib import Path
from curator_df.kernels.compiling import compile_cache
from curator_df.kernels.compiling import shipped_kernels
shipped_kernels.FOLDER = Path(sys.argv[1])
from curator_df.kernels.minhash.graphs import name_roots
print(compile_cache.is_compiled("minhash.graphs.name_roots"), end=" ")
name_roots.ready()
print(name_roots.was_loaded)
"""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A folder with one kernel that was compiled for a baseline."""
    folder = tmp_path_factory.mktemp("machine_code")
    compile_for(BASELINE, folder, [KERNEL])
    return folder


def use(folder, cache, **settings):
    environment = {**os.environ, "CURATOR_DF_CACHE": str(cache), **settings}
    return subprocess.check_output([sys.executable, "-c", USE, folder], env=environment, text=True).split()


@needs_baseline
def test_a_kernel_of_the_package_is_loaded_and_not_compiled(shipped, tmp_path):
    assert [path.name.partition("-")[0] for path in shipped.glob("*/*.nbc")] == [KERNEL]
    assert use(shipped, tmp_path) == ["True", "True"]
    assert list(tmp_path.iterdir()) == []


@needs_baseline
@pytest.mark.parametrize("way", ["versions", "sources", "settings"])
def test_where_it_does_not_fit_it_is_compiled_as_without(shipped, tmp_path, way):
    other, settings = tmp_path / "other", {}
    shutil.copytree(shipped, other)
    (folder,) = other.iterdir()
    if way == "versions":
        folder.rename(other / f"{folder.name}.1")
    elif way == "sources":
        (kernel,) = folder.iterdir()
        kernel.rename(folder / f"{KERNEL}-{'0' * 24}.nbc")
    else:
        settings = {"NUMBA_OPT": "2"}
    assert use(other, tmp_path / "cache", **settings) == ["False", "False"]
    assert len(list((tmp_path / "cache").glob("*/*.nbc"))) == 1


@needs_baseline
def test_a_cpu_without_the_baseline_does_not_use_it(shipped, monkeypatch):
    monkeypatch.setattr(shipped_kernels, "FOLDER", shipped)
    monkeypatch.setattr(compile_cache, "_SETTINGS", set())
    shipped_kernels._usable_folders.cache_clear()
    assert compile_cache.shipped(KERNEL) is not None
    least = min(BASELINES[BASELINE][2])
    monkeypatch.setattr(shipped_kernels, "cpu_flags", lambda: BASELINES[BASELINE][2] - {least})
    shipped_kernels._usable_folders.cache_clear()
    assert compile_cache.shipped(KERNEL) is None
    assert lacking(BASELINE) == f"this CPU lacks {least}"
    shipped_kernels._usable_folders.cache_clear()


def test_the_folder_names_what_the_code_depends_on():
    from importlib.metadata import version

    name = environment_of("x86-64-v3")
    for package in ("numba", "llvmlite", "numpy"):
        assert f"{package}{version(package)}" in name
    assert sys.implementation.cache_tag in name


def test_a_baseline_that_is_unknown_or_of_another_machine_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'x86-64-v9' is not a CPU baseline\. The baselines are x86-64-v3, aarch64"):
        compile_for("x86-64-v9", tmp_path)
    other = next(name for name, (machine, *_) in BASELINES.items() if machine != platform.machine())
    with pytest.raises(ValueError, match=f"kernels for {other} cannot be compiled on this machine: it is for "):
        compile_for(other, tmp_path)


def test_a_checkout_ships_no_kernels():
    assert not (Path(curator_df.__file__).parent / "kernels" / "machine_code").exists()

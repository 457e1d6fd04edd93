# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the whole suite."""

from __future__ import annotations

import gc
import importlib.util
import mmap
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import dask
import pytest
from distributed import Client
from hypothesis import HealthCheck, settings

from curator_df.kernels.warm import BASIC, GROUPS, is_compiled, sources_of

CHECKOUT = Path(__file__).resolve().parents[1]

collect_ignore = [
    "profiles/datatrove_verdicts.py",
    "profiles/dclm_scores.py",
    "profiles/dolma_scores.py",
    "profiles/nemo_modifiers.py",
    "profiles/nemo_scores.py",
    "profiles/nemo_segments.py",
    "profiles/spacy_rules.py",
    "profiles/word_break_ranges.py",
]
"""A script for another Python, which imports what is not installed here."""

# What an example takes says more of the machine than of the code: how fast it is stands in benchmarks/.
settings.register_profile("curator_df", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("curator_df")


def pytest_configure(config: pytest.Config) -> None:
    """See that processes which tests start find this checkout, and its compiled kernels.

    Kernels that are older than a source of theirs are forgotten: numba itself looks only at the file of the outermost.
    """
    ask = "import importlib.util as u; print(u.find_spec('curator_df').origin)"
    found = subprocess.check_output([sys.executable, "-P", "-c", ask], text=True, cwd="/").strip()
    if Path(found) != CHECKOUT / "curator_df/__init__.py":
        pytest.exit(f"processes that tests start would import {found}: pip install -e '.[test]' in {CHECKOUT}", 4)
    kernels = CHECKOUT / "curator_df" / "kernels"
    for compiled in kernels.glob("__pycache__/*.nb[ic]"):
        module = compiled.name.partition(".")[0]
        known = (kernels / f"{module}.py").exists()
        if not known or compiled.stat().st_mtime < max(path.stat().st_mtime for path in sources_of(module)):
            compiled.unlink(missing_ok=True)
    # In other processes, two at a time: the compiler would stay in the memory of this one, the client of the tests' clusters.
    wanted = [BASIC] if config.option.markexpr.startswith("quick") else GROUPS
    missing = [group for group in wanted if not is_compiled(group)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(_compile, missing))


def pytest_collection_finish() -> None:
    """Leave what is here out of later collections of garbage: each walked all modules and tests, for 0.1 to 0.4 s."""
    gc.collect()
    gc.freeze()


def _compile(group: str) -> None:
    command = f"from curator_df.kernels.warm import compile_group; compile_group({group!r})"
    subprocess.run([sys.executable, "-c", command], check=True, cwd=CHECKOUT)


@pytest.fixture(params=["pandas", pytest.param("cudf", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend; cuDF is skipped where it cannot run: ``df.to_backend(backend)`` makes the blocks."""
    if request.param == "cudf" and (reason := _why_no_gpu()):
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture(params=[1, 3])
def npartitions(request: pytest.FixtureRequest) -> int:
    """One partition, and more than one."""
    return int(request.param)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The text samples that lie beside the checkout where the project is developed, and are no part of it."""
    folder = CHECKOUT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the text samples of the developers (../shared/data), which are not distributed")
    return folder


@pytest.fixture
def raise_if_dask_computes() -> Callable[[], AbstractContextManager[None]]:
    """``with raise_if_dask_computes(): ...`` fails if anything in it is computed, here or on a cluster."""
    return _no_computing


@contextmanager
def _no_computing() -> Iterator[None]:
    submit, submit_many = (mock.patch.object(Client, name, _refuse_to_compute) for name in ("submit", "map"))
    # A scheduler that is set wins over a running client.
    with dask.config.set(scheduler=_refuse_to_compute), submit, submit_many:
        yield


def _refuse_to_compute(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("something was computed where only building was allowed")


def _why_no_gpu() -> str:
    for module in ("cudf", "pynvml"):
        if importlib.util.find_spec(module) is None:
            return f"needs an NVIDIA GPU and the gpu extra ({module} is not installed)"
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as exc:
        return f"needs an NVIDIA GPU ({exc})"
    return "" if pynvml.nvmlDeviceGetCount() else "needs an NVIDIA GPU (the driver lists none)"


@pytest.fixture
def take_pages() -> Callable[[int], mmap.mmap]:
    """Take so many bytes from the system: an allocator may have as many at hand, from tests that went before."""

    def take(size_bytes: int) -> mmap.mmap:
        pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for start in range(0, size_bytes, mmap.PAGESIZE):
            pages[start] = 1
        return pages

    return take

# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the whole suite."""

from __future__ import annotations

import gc
import importlib.util
import logging
import math
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import dask
import pytest
from distributed import Client
from hypothesis import HealthCheck, settings

from curator_df.cluster.compiling import compile_kernels
from curator_df.core.runner.session import close_session, current_session, has_session
from curator_df.io import listing
from curator_df.kernels.compiling.kernel_sets import (
    COMPILE_SECONDS,
    CONTENT,
    JSON_LINES,
    NORMALIZED_CONTENT,
    PARTS,
    UNICODE,
)
from curator_df.kernels.metrics.counts import WORDS
from curator_df.memory.budget import CLIENT_PRIVATE_BYTES, MARGIN_FRACTION
from curator_df.memory.counted_memory import tree_bytes
from curator_df.memory.system import PORTABLE, PORTABLE_VARIABLE
from tests.examples import THOROUGH_EXAMPLES

QUICK_KERNELS = (*CONTENT, *JSON_LINES, *NORMALIZED_CONTENT, *PARTS, *UNICODE, *WORDS.kernels)
"""What the tests marked quick call; other kernels are compiled when they are called."""
CHECKOUT = Path(__file__).resolve().parents[1]

collect_ignore = [
    "profiles/datatrove_url_filter.py",
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

FIRST = (
    "tests/test_notebooks.py",
    "tests/faults/test_object_store.py",
    "tests/io/test_object_store.py",
    "tests/models/tokens/test_memory.py",
    "tests/models/",
    "tests/dedup/",
    "tests/io/test_throttled_store.py",
    "tests/ops/test_audit.py",
    "tests/ops/test_duplicate_report.py",
    "tests/core/ranges/test_journal_format.py",
    "tests/test_programs.py",
    "tests/contracts/test_memory.py",
    "tests/contracts/test_budget.py",
    "tests/cluster/test_surroundings.py",
    "tests/gpu/test_device_kernels.py",
    "tests/cluster/test_local.py",
    "tests/faults/test_runs.py",
    "tests/faults/test_wall.py",
    "tests/monitor/test_metrics_server.py",
    "tests/io/test_pages.py",
    "tests/gpu/test_device_runs.py",
    "tests/faults/test_memory.py",
    "tests/interactive/test_operations.py",
    "tests/monitor/test_memory_profile.py",
    "tests/test_cli.py",
    "tests/io/test_reader_memory.py",
    "tests/test_how_to.py",
    "tests/ops/test_near_duplicates.py",
    "tests/test_typed_notebook.py",
    "tests/cluster/test_connect.py",
)
"""Files and folders that run in this order, before all others. First come the notebooks, which pages wait for, and what `.ci/run`
runs again in an environment with more packages: what has passed when that one is installed is left out there. Then come
the files that take longest."""

# A reader waits until a file that was just written is older than a tick of any file system's clock, 20 ms. Tests read thousands
# of such files, on this system, whose files get the time of this clock.
CLOCK_REALTIME_COARSE = 5
if sys.platform == "linux":
    listing.CLOCK_TICK_NS = min(listing.CLOCK_TICK_NS, round(2e9 * time.clock_getres(CLOCK_REALTIME_COARSE)))

# What an example takes says more of the machine than of the code: how fast it is stands in benchmarks/.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", PATIENT, max_examples=THOROUGH_EXAMPLES)
settings.register_profile("curator_df", PATIENT, max_examples=40)
settings.load_profile("curator_df")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options by which a second run, in an environment with more packages, leaves out what passed in the first."""
    group = parser.getgroup("curator_df")
    group.addoption(
        "--note-passed", type=Path, metavar="FILE", help="write the names of the tests that pass, a line each"
    )
    group.addoption("--except-passed", type=Path, metavar="FILE", help="do not run the tests that such a file names")


class Passed:
    """Plugin that writes the names of the tests that pass to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_text("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that passed."""
        if report.when == "call" and report.passed:
            with self._path.open("a") as file:
                file.write(f"{report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    """See, once for all processes of pytest, that processes which tests start find this checkout, and compiled kernels."""
    if hasattr(config, "workerinput"):
        return
    ask = "import importlib.util as u; print(u.find_spec('curator_df').origin)"
    found = subprocess.check_output([sys.executable, "-P", "-c", ask], text=True, cwd="/").strip()
    if Path(found) != CHECKOUT / "curator_df/__init__.py":
        pytest.exit(f"processes that tests start would import {found}: pip install -e '.[test]' in {CHECKOUT}", 4)
    if config.option.note_passed is not None:
        config.pluginmanager.register(Passed(config.option.note_passed))
    # In other processes: the compiler would stay in the memory of this one, the client of the tests' clusters.
    compile_kernels(QUICK_KERNELS if config.option.markexpr.startswith("quick") else COMPILE_SECONDS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files as `FIRST` says: at the end, the other processes would wait for a file that takes long."""
    if config.option.except_passed is not None:
        passed = set(config.option.except_passed.read_text().splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
    items.sort(key=_place)
    if PORTABLE:
        reason = (
            f"needs what only Linux tells or enforces: this is {sys.platform} with {PORTABLE_VARIABLE}={PORTABLE:d}"
        )
        for item in items:
            if item.get_closest_marker("linux"):
                item.add_marker(pytest.mark.skip(reason=reason))


def _place(item: pytest.Item) -> int:
    """Return the place of the file of a test, or of its folder, in `FIRST`; all others come last."""
    path = item.path.relative_to(CHECKOUT).as_posix()
    places = (place for place, name in enumerate(FIRST) if path.startswith(name))
    return next(places, len(FIRST))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a failed test at once: a run that is ended from outside prints no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        reason = str(getattr(report.longrepr, "reprcrash", report.longrepr)).splitlines()[0][:300]
        sys.stderr.write(f"\nfailed in {report.duration:.0f} s: {report.nodeid}: {reason}\n")


def pytest_collection_finish() -> None:
    """Leave what is here out of later collections of garbage: each walked all modules and tests, for 0.1 to 0.4 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _logs_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `caplog` see what the package logs, whatever an earlier test did to its loggers in this process."""
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "curator_df"]:
        monkeypatch.setattr(logging.getLogger(name), "disabled", False)
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)


@pytest.fixture(scope="module", autouse=True)
def _what_stays_is_not_collected_again() -> None:
    """Leave what earlier files have left, such as modules, out of later collections: every run of a test makes several."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _no_cluster_stays_open() -> Iterator[None]:
    """Close a cluster that the tests of a file have left open, and fail: later files would compute on it, or wait for it."""
    assert not has_session(), "a cluster was left open before this file"
    yield
    left = []
    while has_session():
        session = current_session()
        left.append(session.client.scheduler)
        close_session(session)
    assert not left, f"the tests of this file left {len(left)} clusters open: {left}"
    scheduler = dask.config.get("scheduler", None)
    if scheduler == "dask.distributed":
        dask.config.set(scheduler=None)
    assert scheduler is None, "the tests of this file left a scheduler as Dask's default"


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


@pytest.fixture(scope="session")
def beside_tests() -> Callable[[int], int]:
    """``memory=beside_tests(1_000_000_000)`` names so many bytes for a cluster, and what this process and its children hold."""

    def named(size_bytes: int) -> int:
        gc.collect()
        held = max(0, tree_bytes(os.getpid()) - CLIENT_PRIVATE_BYTES)
        return size_bytes + math.ceil(held / (1 - MARGIN_FRACTION))

    return named


@pytest.fixture
def take_pages() -> Callable[[int], mmap.mmap]:
    """Take so many bytes from the system: an allocator may have as many at hand, from tests that went before."""

    def take(size_bytes: int) -> mmap.mmap:
        pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for start in range(0, size_bytes, mmap.PAGESIZE):
            pages[start] = 1
        return pages

    return take

# SPDX-License-Identifier: Apache-2.0
"""The folder of compiled kernels: each kernel is compiled once, whoever asks, and a folder that fails ends nothing."""

import errno
import fcntl
import os
import resource
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from curator_df.kernels.compiling import compile_cache
from curator_df.kernels.compiling.compile_cache import (
    cache_folder,
    can_write,
    claimed,
    is_compiled,
    missing_kernels,
    path_of,
    prune,
    read_kernel,
    write_kernel,
)

KERNEL = "minhash.graphs.name_roots"
USE = """
import logging, sys
import numpy as np
from curator_df.kernels.minhash.graphs import name_roots
logging.basicConfig(format="LOG %(message)s", stream=sys.stdout)
parents = np.array([0, 0, 1])
name_roots(np.array([5, 6, 7]), parents)
print(parents.tolist(), name_roots.was_loaded)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of compiled kernels, for this process and those that it starts."""
    monkeypatch.setenv("CURATOR_DF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compile_cache, "_warned", set())
    return tmp_path / "cache"


def used(**environment: str) -> str:
    """Use a kernel in a process of its own; return what it prints."""
    return subprocess.check_output([sys.executable, "-c", USE], env={**os.environ, **environment}, text=True)


def test_of_processes_that_start_together_one_compiles_and_a_later_one_loads(folder):
    command = [sys.executable, "-c", USE]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = [process.communicate()[0].split()[-1] for process in processes]
    assert sorted(said) == ["False", *["True"] * 3]
    assert used() == used() == "[5, 5, 5] True\n"
    assert [path.suffix for path in folder.glob("*/*")] == [".nbc"]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-100], lambda data: b"", lambda data: data[:99] + b"x" + data[100:]]
)
def test_a_damaged_file_is_no_kernel(damage):
    data = bytes(range(256)) * 4
    path = path_of(KERNEL)
    assert write_kernel(path, data)
    assert read_kernel(path) == data
    path.write_bytes(damage(path.read_bytes()))
    assert read_kernel(path) is None


def test_a_damaged_file_is_compiled_again():
    path = path_of(KERNEL)
    assert write_kernel(path, bytes(range(256)) * 4)
    path.write_bytes(path.read_bytes()[:-100])
    assert used() == "[5, 5, 5] False\n".replace(
        "[5", f"LOG the compiled kernel {path} is damaged: it is compiled again\n[5"
    )
    assert used() == "[5, 5, 5] True\n"


def test_a_folder_that_cannot_be_written_to_is_named_once_and_the_kernel_is_compiled_in_memory():
    said = used(CURATOR_DF_CACHE="/proc/none").splitlines()
    assert said[-1] == "[5, 5, 5] False"
    assert len(said) == 2
    assert said[0].startswith("LOG compiled kernels cannot be written to /proc/none/")
    assert "Set CURATOR_DF_CACHE to a folder that you can write to" in said[0]


def test_a_full_disk_leaves_no_half_file(folder, monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(compile_cache.os, "replace", fail)
    assert not write_kernel(path_of(KERNEL), b"code")
    assert not write_kernel(path_of(KERNEL), b"code")
    assert list(folder.glob("*/*")) == []
    assert [message.count("No space left on device") for message in caplog.messages] == [1]


def test_a_file_system_without_locks_is_named_and_nobody_waits(monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with claimed(path_of(KERNEL)):
        pass
    assert "has no file locks (No locks available)" in caplog.text


def test_a_process_waits_for_another_one_only_so_long(monkeypatch, caplog):
    monkeypatch.setattr(compile_cache, "WAIT_SECONDS", 0.2)
    path = path_of(KERNEL)
    with claimed(path):
        started = time.monotonic()
        with claimed(path):
            assert 0.2 <= time.monotonic() - started < 5
    assert "it is compiled here too" in caplog.text


def test_old_kernels_go_and_the_oldest_beyond_the_limit(folder, monkeypatch):
    home = folder / "numba"
    home.mkdir(parents=True)
    now = time.time()
    days = {
        "new.nbc": 0,
        "week.nbc": 7,
        "month.nbc": 30,
        "year.nbc": 365,
        "left.tmp": 2,
        "writing.tmp": 0,
        "held.lock": 2,
    }
    for name, age in days.items():
        (home / name).write_bytes(b"x" * 100)
        os.utime(home / name, (now - age * 86400, now - age * 86400))
    prune(folder)
    assert {path.name for path in home.iterdir()} == {"new.nbc", "week.nbc", "month.nbc", "writing.tmp"}
    monkeypatch.setattr(compile_cache, "MOST_BYTES", 300)
    prune(folder)
    assert {path.name for path in home.iterdir()} == {"new.nbc", "week.nbc", "writing.tmp"}


def test_a_kernel_that_is_loaded_is_not_old(folder):
    path = path_of(KERNEL)
    write_kernel(path, b"code")
    os.utime(path, (1, 1))
    assert read_kernel(path) == b"code"
    assert time.time() - path.stat().st_mtime < 60


def test_what_is_missing_is_known_without_numba():
    script = (
        "import sys; from curator_df.kernels.compiling.compile_cache import missing_kernels; "
        f"print(missing_kernels(['{KERNEL}', '{KERNEL}']), 'numba' in sys.modules)"
    )
    run = lambda: subprocess.check_output([sys.executable, "-c", script], text=True)  # noqa: E731
    assert run() == f"['{KERNEL}'] False\n"
    used()
    assert run() == "[] False\n"


def test_where_numba_compiles_nothing_nothing_is_missing(monkeypatch):
    assert missing_kernels([KERNEL]) == [KERNEL]
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert missing_kernels([KERNEL]) == []


def test_a_worker_refuses_to_compile_and_loads_what_is_compiled():
    refuse = "from curator_df.kernels.compiling.compile_cache import refuse_to_compile; refuse_to_compile('it is a worker')\n"
    command = [sys.executable, "-c", refuse + USE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    expected = (
        f"the function {KERNEL} of curator_df is not compiled, and this process may not compile it: it is a worker."
    )
    assert f"KernelNotCompiledError: {expected} Compile it first with `curator-df warm --all`" in done.stderr
    used()
    assert subprocess.check_output(command, text=True) == "[5, 5, 5] True\n"


def test_a_worker_compiles_in_memory_where_nothing_can_be_kept():
    refuse = "from curator_df.kernels.compiling.compile_cache import refuse_to_compile; refuse_to_compile('it is a worker')\n"
    environment = {**os.environ, "CURATOR_DF_CACHE": "/proc/none"}
    said = subprocess.check_output([sys.executable, "-c", refuse + USE], env=environment, text=True)
    assert said.splitlines()[-1] == "[5, 5, 5] False"
    assert can_write(KERNEL)


def test_a_folder_with_room_for_a_few_bytes_only_cannot_be_written_to():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        assert not can_write(KERNEL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_folder_is_that_of_the_user(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("CURATOR_DF_CACHE")
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/numbas")
    assert cache_folder() == Path("/numbas/curator_df")
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg/curator_df/kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache/curator_df/kernels"
    assert not is_compiled(KERNEL)


@pytest.mark.parametrize("home", ["unset", "read-only"])
def test_kernels_are_kept_in_a_folder_of_this_user_where_nothing_else_can_be_written(
    monkeypatch, tmp_path, home, caplog
):
    writable = {str(tmp_path)}
    monkeypatch.setattr(compile_cache.os, "access", lambda path, mode: str(path) in writable)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("CURATOR_DF_CACHE", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/root" if home == "read-only" else "")
    chosen = cache_folder()
    assert chosen == tmp_path / f"curator-df-kernels-{os.getuid()}"
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o700
    assert os.environ["CURATOR_DF_CACHE"] == str(chosen)  # also for processes that this one starts
    assert cache_folder() == chosen
    assert caplog.text.count("compiled kernels are kept in") == 1
    monkeypatch.delenv("CURATOR_DF_CACHE")
    chosen.chmod(0o777)  # others may have put code there
    other = cache_folder()
    assert other != chosen
    assert stat.S_IMODE(other.stat().st_mode) == 0o700


def test_a_home_that_may_not_be_entered_is_no_error(monkeypatch, tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0)
    monkeypatch.setenv("HOME", str(home))
    for name in ("CURATOR_DF_CACHE", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    is_root = os.geteuid() == 0  # before whom no permission counts
    if is_root:
        os.seteuid(65534)
    try:
        assert cache_folder().name in ("kernels", f"curator-df-kernels-{os.getuid()}")
        assert not is_compiled(KERNEL)
    finally:
        if is_root:
            os.seteuid(0)
        home.chmod(0o700)

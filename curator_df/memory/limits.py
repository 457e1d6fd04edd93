# SPDX-License-Identifier: Apache-2.0
"""Memory of one process, and its hard limit (on Linux; other systems have none).

The limit is ``RLIMIT_DATA``: the kernel refuses an allocation beyond it (`MemoryError` in Python, pyarrow and numba), where a
cgroup or the OOM killer would kill the process. It counts requested private writable pages, touched or not, so it is set
relative to the value when the process was idle (``VmData``).
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from curator_df.memory.sizes import show_size
from curator_df.memory.system import (
    NO_LIMIT,
    PORTABLE,
    cpus_of_process,
    data_limit,
    reset_peak,
    set_data_limit,
    status_bytes,
    threads_of_user,
)

Result = TypeVar("Result")

M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
"""Parameter number of ``mallopt`` (malloc.h)."""
CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUP_FILE = Path("/proc/self/cgroup")
"""File in which the kernel lists the cgroups of this process."""
SAMPLE_SECONDS = 0.002
"""Interval at which memory is read during a call where the system keeps no peak."""
_full_limit = 0
"""Last limit that `limit_data` set in this process; 0 if it was not called."""
_idle_bytes = 0
"""Private resident bytes of this process when that limit was set."""
_steps_running = 0
_limits_before: dict[int, tuple[int, int]] = {}
"""Memory limits of this process from before the user's steps that are running; empty if none is."""
_limits_lock = threading.Lock()
THREAD_STACK_BYTES = 8 << 20
"""Address space of the stack of a thread that starts later, in bytes (the default size), nearly all of it never touched."""


def limit_data(extra_bytes: int, *, threads: int = 0) -> int:
    """Allow this process to allocate ``extra_bytes`` more than now, and no more.

    Parameters
    ----------
    extra_bytes : int
        Bytes that may be allocated from now on.
    threads : int
        Number of threads that will still be started, whose stacks are added to the limit.

    Returns
    -------
    int
        The limit in bytes, as ``RLIMIT_DATA`` counts.
    """
    limit = status_bytes("VmData") + extra_bytes + threads * THREAD_STACK_BYTES
    _, hard = data_limit()
    if hard != NO_LIMIT:
        limit = min(limit, hard)
    _change_data_limit(limit, hard)
    global _full_limit, _idle_bytes
    _full_limit, _idle_bytes = limit, status_bytes("RssAnon")
    return limit


def lower_data_limit(by_bytes: int) -> None:
    """Reduce the limit of `limit_data` by ``by_bytes``, or restore it (0).

    Existing allocations stay; if they exceed the limit, the next allocation fails. A process without a limit is not changed.
    """
    soft, hard = data_limit()
    if _full_limit and soft != NO_LIMIT:
        _change_data_limit(max(_full_limit - by_bytes, 0), hard)


def lift_data_limit() -> None:
    """Lift the limit of `limit_data`, also for after the steps that are running."""
    _change_data_limit(NO_LIMIT, data_limit()[1])


def _change_data_limit(soft: int, hard: int) -> None:
    """Set the data limit, also as the one that is restored after the user's steps that are running."""
    with _limits_lock:
        set_data_limit(soft, hard)
        if _limits_before:
            _limits_before[resource.RLIMIT_DATA] = soft, hard


@contextmanager
def same_limits() -> Iterator[None]:
    """Restore the memory limits of this process afterwards, whatever a user's function has set with ``resource.setrlimit``.

    A worker would keep them: after a function that allowed 50 MB, all later tasks ran out of memory.
    """
    global _steps_running  # noqa: PLW0603 - of this process, as the limits are
    with _limits_lock:
        if not _steps_running:
            _limits_before.update(_memory_limits())
        _steps_running += 1
    try:
        yield
    finally:
        with _limits_lock:
            _steps_running -= 1
            before = dict(_limits_before)
            if not _steps_running:
                _limits_before.clear()
            _restore(before)


def refuse_hard_limit(kind: int, limits: Any) -> None:
    """Raise `ValueError` if a hard memory limit of this process is about to be lowered: most users cannot raise it again."""
    if kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        hard, asked = resource.getrlimit(kind)[1], list(limits)[-1]
        if asked != NO_LIMIT and (hard == NO_LIMIT or asked < hard):
            raise ValueError(
                f"resource.setrlimit with a hard limit of {show_size(asked)} would hold for all later tasks of this worker. Keep "
                "the hard limit, as in resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1])), or set limits in a "
                "process that the function starts"
            )


def _memory_limits() -> dict[int, tuple[int, int]]:
    return {resource.RLIMIT_DATA: data_limit(), resource.RLIMIT_AS: resource.getrlimit(resource.RLIMIT_AS)}


def _restore(before: dict[int, tuple[int, int]]) -> None:
    try:
        for kind, limits in before.items():
            if _memory_limits()[kind] != limits:
                set_data_limit(*limits) if kind == resource.RLIMIT_DATA else resource.setrlimit(kind, limits)
    except (ValueError, OSError) as exc:
        raise RuntimeError(
            "the function lowered a hard memory limit of its process with resource.setrlimit, and only an administrator can "
            "raise it again. Set limits in a process that the function starts, and restart the cluster"
        ) from exc


def give_back_large_buffers() -> None:
    """Make malloc request every buffer of at least 1 MB directly from the system, and return it when it is freed (glibc).

    By default, malloc raises that threshold to 32 MB with use and keeps freed memory: a chain planned at 436 MB peaked
    at 532 to 542 MB, and at 435 MB with the threshold fixed, in the same time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 1 << 20)
        # Every arena keeps freed pages of its own, and malloc makes up to eight for each CPU.
        mallopt(M_ARENA_MAX, 2)


@contextmanager
def raised_data_limit(extra_bytes: int | None) -> Iterator[None]:
    """Allow an exclusive task ``extra_bytes`` more than the process used when it was idle; do nothing without a limit.

    What earlier tasks have left in the process is part of these bytes: next to it, a task would pass the budget.
    """
    soft, hard = data_limit()
    if extra_bytes is None or soft == NO_LIMIT:
        yield
        return
    left_bytes = max(0, status_bytes("RssAnon") - _idle_bytes) if _idle_bytes else 0
    raised = max(soft, status_bytes("VmData") + extra_bytes - left_bytes)
    _change_data_limit(raised if hard == NO_LIMIT else min(raised, hard), hard)
    try:
        yield
    finally:
        _change_data_limit(soft, hard)


def release_free_memory(generation: int = 2) -> None:
    """Return freed pages to the system: garbage up to a generation, then Arrow's pool and malloc's arenas (1-5 ms).

    Python's and Arrow's allocators keep freed pages. Dask's thresholds and the budget use resident bytes, so a worker with
    such pages would look full, and be paused with nothing left to spill.
    """
    import pyarrow as pa

    gc.collect(generation)
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only; musl lacks it
    if trim is not None:
        trim(0)


def peak_of_call(call: Callable[[], Result]) -> tuple[int, Result]:
    """Return the increase in resident bytes during a call at its peak, and the result of the call.

    The result still exists when the peak is read, so it is included. One-time costs of a first call (imports, compilation,
    first use of a library's pages) count as well: make a small call before.
    """
    release_free_memory()
    if PORTABLE:
        return _sampled_peak_of_call(call)
    reset_peak()
    before = status_bytes("VmRSS")
    result = call()
    return status_bytes("VmHWM") - before, result


def _sampled_peak_of_call(call: Callable[[], Result]) -> tuple[int, Result]:
    """Return what `peak_of_call` does where the system keeps no peak: a thread looks every few milliseconds."""
    ended, most = threading.Event(), status_bytes("VmRSS")
    before = most

    def sample() -> None:
        nonlocal most
        while not ended.wait(SAMPLE_SECONDS):
            most = max(most, status_bytes("VmRSS"))

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        result = call()
    finally:
        ended.set()
        sampler.join()
    return max(most, status_bytes("VmRSS")) - before, result


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use, including quotas of its cgroups (at least 1)."""
    cpus = float(cpus_of_process())
    for folder in _cgroup_folders("cpu"):
        words = _first_line(f"{folder}/cpu.max").split()  # "max 100000" or "150000 100000"
        words = words or [_first_line(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period")]
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
            cpus = min(cpus, int(words[0]) / int(words[1]))
    return max(1, int(cpus))


def machine_bytes() -> int:
    """Return the memory of this machine or of its cgroups, whichever is smallest, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in _cgroup_folders("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _first_line(f"{folder}/{name}")
            if text.isdigit():
                total = min(total, int(text))
    return total


def thread_limit(room: int = 1) -> str:
    """Return a description of the limit that prevents this user from starting ``room`` more threads; empty if none does.

    Python reports "can't start new thread" in this case, and also if there is no memory for the stack of a thread.
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if os.geteuid() and allowed != resource.RLIM_INFINITY:  # root is exempt
        count = threads_of_user()
        if count + room > allowed:
            return (
                f"ulimit -u allows this user {allowed:,} processes and threads, and {count:,} exist. Set a higher limit, or "
                "stop some of them"
            )
    for folder in _cgroup_folders("pids"):
        most, now = _first_line(folder / "pids.max"), _first_line(folder / "pids.current")
        if most.isdigit() and now.isdigit() and int(now) + room > int(most):
            return (
                f"the container or cgroup may have {int(most):,} processes and threads (pids.max), and {int(now):,} exist. "
                "Raise the limit (docker run --pids-limit)"
            )
    return ""


def _cgroup_folders(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroup and of its ancestors, of versions 2 and 1.

    Outside of a namespace (a Slurm job, a systemd slice, a login session) the limit is not at the root.
    """
    for line in _lines(CGROUP_FILE):
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        tops = (controller, controllers) if controllers else ("", "unified")
        for top in {CGROUP_ROOT / name for name in tops}:
            # In a container, the path may be the host's, of which only the end or nothing is mounted: the root counts.
            below = PurePosixPath(path.lstrip("/"))
            yield from (top / folder for folder in (below, *below.parents) if ".." not in folder.parts)


def _first_line(path: str | Path) -> str:
    return next(iter(_lines(path)), "")


def _lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []

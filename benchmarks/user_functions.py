# SPDX-License-Identifier: Apache-2.0
"""Functions of users that take memory in ways that a worker does not expect: peak, seconds and end of each, as a table.

    python benchmarks/user_functions.py [--memory 1GB] [--megabytes 600] [--only FUNCTION ...]

The peak is measured from outside: PSS of all processes of the tree, and what shared memory of the machine has grown beyond what
they map. The load of the machine is printed, since it decides what the seconds mean.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import importlib.util
import json
import mmap
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

import curator_df as cdf
from curator_df.memory.sizes import read_size

ROWS = 60_000
FROM_MANY_FILES = ("leaks", "leaks_much", "leaks_arrays", "leaks_in_c")
PAGE_BYTES = mmap.PAGESIZE
LEFT = "curator-df-benchmark-"
"""Beginning of the names of files that a function leaves in /dev/shm."""


def functions(size_bytes: int) -> list[Callable[[Any], Any]]:
    """Return the functions, each of which takes so many bytes in its way."""
    return [
        *processes(size_bytes),
        *orphans(size_bytes),
        *many_processes(size_bytes),
        *lasting_processes(size_bytes),
        *shared(size_bytes),
        *files(size_bytes),
        *private(size_bytes),
        *libraries(size_bytes),
        *failing(),
        *leaking(),
    ]


def program(size_bytes: int) -> str:
    """Return a program that takes so many bytes for half a second."""
    return f"x = bytearray({size_bytes})\nfor i in range(0, len(x), 4096): x[i] = 1\nimport time; time.sleep(0.5)"


def processes(size_bytes: int) -> list[Callable[[Any], Any]]:
    """Return functions that start processes."""
    code, half = program(size_bytes), program(size_bytes // 2)

    def starts_a_program(block: Any) -> Any:
        subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.DEVNULL)
        return block

    def starts_through_a_shell(block: Any) -> Any:
        subprocess.run(["sh", "-c", f"{sys.executable} -c '{code}'; true"], check=True, stderr=subprocess.DEVNULL)
        return block

    def starts_a_pool(block: Any) -> Any:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(exec, [half] * 2)
        return block

    def forks(block: Any) -> Any:
        pid = os.fork()
        if pid == 0:
            _touch(bytearray(size_bytes))
            time.sleep(0.5)
            os._exit(0)
        os.waitpid(pid, 0)
        return block

    return [starts_a_program, starts_through_a_shell, starts_a_pool, forks]


def orphans(size_bytes: int) -> list[Callable[[Any], Any]]:
    """Return functions that start processes in threads, or that outlive what started them."""

    def spawns(block: Any) -> Any:
        pid = os.posix_spawn(sys.executable, [sys.executable, "-c", program(size_bytes)], os.environ)
        os.waitpid(pid, 0)
        return block

    def leaves_a_daemon(block: Any) -> Any:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            time.sleep(0.1)
            _touch(bytearray(size_bytes))
            time.sleep(2)
            os._exit(0)
        os.waitpid(pid, 0)
        return block

    def forks_in_a_thread(block: Any) -> Any:
        def forks() -> None:
            pid = os.fork()
            if pid == 0:
                try:
                    _touch(bytearray(size_bytes))
                finally:
                    os._exit(0)  # otherwise the thread of the pool would wait in the fork for more work
            os.waitpid(pid, 0)

        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda _: forks(), range(2)))
        return block

    return [spawns, leaves_a_daemon, forks_in_a_thread]


def many_processes(size_bytes: int) -> list[Callable[[Any], Any]]:
    """Return functions that start many processes, or that lift their limits."""

    def frees_a_program(block: Any) -> Any:
        no_limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        lifts = lambda: resource.setrlimit(resource.RLIMIT_DATA, no_limit)  # noqa: E731
        subprocess.run(
            [sys.executable, "-c", program(size_bytes)], preexec_fn=lifts, check=False, stderr=subprocess.DEVNULL
        )
        return block

    def starts_many_programs(block: Any) -> Any:
        command = [sys.executable, "-c", program(size_bytes // 5)]
        started = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(10)]
        if any([one.wait() for one in started]):  # noqa: C419 - all are waited for
            raise RuntimeError("a program failed")
        return block

    def starts_an_executor(block: Any) -> Any:
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            list(pool.map(bytes, [size_bytes] * 2))
        return block

    return [frees_a_program, starts_many_programs, starts_an_executor]


def lasting_processes(size_bytes: int) -> list[Callable[[Any], Any]]:
    """Return functions whose processes go on after the function has returned, or free the worker of its limit."""
    grows = "import time\nheld = []\nfor _ in range({}): held.append(bytearray(b'1') * 10**7); time.sleep(0.02)"

    def grows_in_a_session(block: Any) -> Any:
        code = grows.format(size_bytes // 10**7)
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stderr=subprocess.DEVNULL)
        return block

    def fills_a_manager(block: Any) -> Any:
        left = sys.__dict__.setdefault("_left_managers", [])
        if not left:
            manager = multiprocessing.get_context("fork").Manager()
            left[:] = [manager, manager.list()]
        left[1].append(b"1" * (size_bytes // 6))
        return block

    def leaves_a_memfd_to_a_daemon(block: Any) -> Any:
        file = os.memfd_create("benchmark")
        os.ftruncate(file, size_bytes)
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            _touch(mmap.mmap(file, size_bytes))
            time.sleep(3)
            os._exit(0)
        os.close(file)
        return block

    def is_freed_by_its_child(block: Any) -> Any:
        worker = os.getpid()
        pid = os.fork()
        if pid == 0:
            resource.prlimit(worker, resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            os._exit(0)
        os.waitpid(pid, 0)
        held = bytearray(b"1") * (2 * size_bytes)
        time.sleep(0.5)
        return block if held else None

    return [grows_in_a_session, fills_a_manager, leaves_a_memfd_to_a_daemon, is_freed_by_its_child]


def shared(size_bytes: int) -> list[Callable[[Any], Any]]:
    """Return functions that take memory which other processes can have, too."""

    def shares_memory(block: Any) -> Any:
        from multiprocessing import shared_memory

        memory = shared_memory.SharedMemory(create=True, size=size_bytes)
        try:
            _touch(memory.buf)
            time.sleep(0.5)
        finally:
            memory.close()
            memory.unlink()
        return block

    def maps_memory(block: Any) -> Any:
        with mmap.mmap(-1, size_bytes) as memory:
            _touch(memory)
            time.sleep(0.5)
        return block

    def shares_by_system_v(block: Any) -> Any:
        libc = ctypes.CDLL(None)
        libc.shmat.restype = ctypes.c_void_p
        number = libc.shmget(0, ctypes.c_size_t(size_bytes), 0o1600)  # IPC_CREAT
        place = libc.shmat(number, None, 0)
        try:
            ctypes.memset(place, 1, size_bytes)
            time.sleep(0.5)
        finally:
            libc.shmdt(ctypes.c_void_p(place))
            libc.shmctl(number, 0, None)
        return block

    def leaves_system_v(block: Any) -> Any:
        libc = ctypes.CDLL(None)
        libc.shmat.restype = ctypes.c_void_p
        number = libc.shmget(0, ctypes.c_size_t(size_bytes), 0o1600)
        place = libc.shmat(number, None, 0)
        ctypes.memset(place, 1, size_bytes)
        libc.shmdt(ctypes.c_void_p(place))
        return block

    return [shares_memory, maps_memory, shares_by_system_v, leaves_system_v]


def files(size_bytes: int) -> list[Callable[[Any], Any]]:
    """Return functions that write files that are memory, or that map files."""
    piece = 10_000_000

    def writes_a_memfd(block: Any) -> Any:
        file = os.memfd_create("benchmark")
        try:
            for _ in range(size_bytes // piece):
                os.write(file, bytes(piece))
            time.sleep(0.5)
        finally:
            os.close(file)
        return block

    def leaves_a_file_in_shm(block: Any) -> Any:
        with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix=LEFT, delete=False) as file:
            for _ in range(size_bytes // piece):
                file.write(bytes(piece))
        return block

    def maps_a_file(block: Any) -> Any:
        with tempfile.TemporaryFile() as file:
            file.truncate(size_bytes)
            with mmap.mmap(file.fileno(), size_bytes) as memory:
                _touch(memory)
                time.sleep(0.5)
        return block

    def maps_an_array(block: Any) -> Any:
        with tempfile.NamedTemporaryFile() as file:
            array = np.memmap(file.name, dtype=np.uint8, mode="w+", shape=(size_bytes,))
            array[:] = 1
            time.sleep(0.5)
        return block

    return [writes_a_memfd, leaves_a_file_in_shm, maps_a_file, maps_an_array]


def private(size_bytes: int) -> list[Callable[[Any], Any]]:
    """Return functions that take private memory in ways that the limit of a worker does not expect."""

    def lifts_its_limit(block: Any) -> Any:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        held = [np.ones(1_250_000) for _ in range(3 * size_bytes // 10_000_000)]
        time.sleep(0.5)
        return block if held else None

    def leaves_a_thread(block: Any) -> Any:
        def goes_on() -> None:
            held = [bytearray(b"1") * 1_000_000 for _ in range(size_bytes // 1_000_000)]
            time.sleep(0.5)
            del held

        threading.Thread(target=goes_on, daemon=True).start()
        return block

    def lifts_its_limit_in_c(block: Any) -> Any:
        no_limit = (ctypes.c_uint64 * 2)(2**64 - 1, 2**64 - 1)
        ctypes.CDLL(None).setrlimit(resource.RLIMIT_DATA, no_limit)
        held = [np.ones(1_250_000) for _ in range(3 * size_bytes // 10_000_000)]
        time.sleep(0.5)
        return block if held else None

    def fills_threads(block: Any) -> Any:
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            held = list(threads.map(lambda _: np.ones(size_bytes // 32), range(8)))
        return block if held else None

    def maps_a_stack(block: Any) -> Any:
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        private, anonymous, grows_down = 2, 32, 256
        place = libc.mmap(None, ctypes.c_size_t(size_bytes), 3, private | anonymous | grows_down, -1, 0)
        ctypes.memset(place, 1, size_bytes)
        time.sleep(0.5)
        libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(size_bytes))
        return block

    def maps_huge_pages(block: Any) -> Any:
        with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory.madvise(mmap.MADV_HUGEPAGE)
            _touch(memory)
            time.sleep(0.5)
        return block

    named = [lifts_its_limit, leaves_a_thread, lifts_its_limit_in_c]
    return [*named, fills_threads, maps_a_stack, maps_huge_pages]


def libraries(size_bytes: int) -> list[Callable[[Any], Any]]:
    """Return functions that take memory through the allocator of a library."""

    def fills_the_pool_of_arrow(block: Any) -> Any:
        import pyarrow as pa

        pools = [pa.default_memory_pool(), pa.system_memory_pool()]
        held = [pa.allocate_buffer(size_bytes // 2, memory_pool=pool) for pool in pools]
        for buffer in held:
            ctypes.memset(buffer.address, 1, buffer.size)
        return block

    def uses_joblib(block: Any) -> Any:
        import joblib

        joblib.Parallel(2)(joblib.delayed(bytes)(size_bytes) for _ in range(2))
        return block

    def uses_torch(block: Any) -> Any:
        import torch

        return block if torch.ones(size_bytes // 4).sum() else None

    with_library = {"joblib": uses_joblib, "torch": uses_torch}
    found = [function for name, function in with_library.items() if importlib.util.find_spec(name) is not None]
    return [fills_the_pool_of_arrow, *found]


def failing() -> list[Callable[[Any], Any]]:
    """Return functions that crash the process, or need much memory for each row."""

    def crashes(block: Any) -> Any:
        if len(block):
            os.abort()
        return block

    def crashes_on_a_row(block: Any) -> Any:
        if (block["id"] == 31_234).any():
            os.abort()
        return block

    def crashes_without_memory(block: Any) -> Any:
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        ctypes.memset(libc.malloc(ctypes.c_size_t(4_000_000_000)), 1, 4_000_000_000)  # of address 0
        return block

    def needs_much_for_a_row(block: Any) -> Any:
        held = [np.ones(125_000) for _ in range(len(block))]
        return block if held else None

    def needs_much_for_each_block(block: Any) -> Any:
        return block if np.ones(500_000_000).any() else None

    def recurses(block: Any) -> Any:
        sys.setrecursionlimit(10**9)

        def deeper(depth: int) -> int:
            return deeper(depth + 1) + 1

        return block if deeper(0) else None

    return [
        *(crashes, crashes_on_a_row, crashes_without_memory),
        *(needs_much_for_a_row, needs_much_for_each_block, recurses),
    ]


def leaking() -> list[Callable[[Any], Any]]:
    """Return functions that leave memory behind at each block."""

    def leaks(block: Any) -> Any:
        _leave(2_000_000)
        return block

    def leaks_much(block: Any) -> Any:
        _leave(8_000_000)
        return block

    def leaks_arrays(block: Any) -> Any:
        sys.__dict__.setdefault("_left_arrays", []).append(np.ones(1_000_000))
        return block

    def leaks_in_c(block: Any) -> Any:
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        place = libc.malloc(ctypes.c_size_t(8_000_000))
        if place:
            ctypes.memset(place, 1, 8_000_000)
        return block

    def leaks_in_one_range(block: Any) -> Any:
        _leave(40_000_000)
        return block

    return [leaks, leaks_much, leaks_arrays, leaks_in_c, leaks_in_one_range]


def _leave(size_bytes: int) -> None:
    """Leave memory behind in this process, as a library with a leak does."""
    left: list[bytearray] = sys.__dict__.setdefault("_left_behind", [])
    left.append(bytearray(b"1") * size_bytes)


def _touch(memory: Any) -> None:
    for place in range(0, len(memory), PAGE_BYTES):
        memory[place] = 1


class Peak(threading.Thread):
    """The most memory of this process and all below it, every 30 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = 0
        self.pids: set[int] = set()
        self.over = threading.Event()

    def run(self) -> None:
        """Sample until it is over."""
        me, before = psutil.Process(), _shared_memory()
        while not self.over.wait(0.03):
            tree = [me, *me.children(recursive=True)]
            self.pids.update(one.pid for one in tree)
            found = [_pss(one) for one in tree]
            unmapped = _shared_memory() - before - sum(shared for _, shared in found)
            self.bytes = max(self.bytes, sum(pss for pss, _ in found) + max(0, unmapped))


def _pss(process: psutil.Process) -> tuple[int, int]:
    """Return the PSS of a process, and the part of it that is shared memory."""
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", encoding="utf-8") as lines:
            fields = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss")}
    except OSError:
        return 0, 0
    return fields.get("Pss", 0), fields.get("Pss_Shmem", 0)


def _shared_memory() -> int:
    """Return the shared memory of the machine."""
    with open("/proc/meminfo", encoding="utf-8") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Shmem:"))


def _delete_left(pids: set[int]) -> None:
    """Delete the shared memory that functions have left in these processes."""
    for name in os.listdir("/dev/shm"):  # noqa: S108
        if name.startswith(LEFT):
            os.unlink(f"/dev/shm/{name}")  # noqa: S108
    with open("/proc/sysvipc/shm", encoding="utf-8") as lines:
        for line in list(lines)[1:]:
            _, number, _, _, creator, _, attached, *_ = line.split()
            if attached == "0" and int(creator) in pids:
                ctypes.CDLL(None).shmctl(int(number), 0, None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--only", nargs="*", default=[], metavar="FUNCTION")
    parser.add_argument("--files", type=int, default=150, help="input files of functions that leak")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    allowed_bytes = read_size("memory", arguments.memory)
    with tempfile.TemporaryDirectory() as folder, cdf.start_cluster(memory=arguments.memory, cpus=2) as cluster:
        path = os.path.join(folder, "in.jsonl")
        with open(path, "w", encoding="utf-8") as out:
            out.writelines(json.dumps({"id": n, "text": f"row {n} " + "word " * 120}) + "\n" for n in range(ROWS))
        many = os.path.join(folder, "many")
        os.mkdir(many)
        for number in range(arguments.files):
            with open(os.path.join(many, f"{number:04}.jsonl"), "w", encoding="utf-8") as out:
                out.writelines(json.dumps({"id": n, "text": f"row {n} " + "word " * 120}) + "\n" for n in range(400))
        print(cluster)
        print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
        print("| in a step | peak, MB | share of the number | seconds | end |\n|---|---|---|---|---|")
        for function in functions(arguments.megabytes * 1_000_000):
            if arguments.only and function.__name__ not in arguments.only:
                continue
            in_range = {"blocksize": "1MB"} if function.__name__ == "leaks_in_one_range" else {}
            docs = cdf.read_jsonl(many if function.__name__ in FROM_MANY_FILES else path, **in_range)
            docs = docs.map_partitions(function, meta=docs._meta)
            peak, began = Peak(), time.monotonic()
            peak.start()
            try:
                end = f"{cdf.write_parquet(docs, os.path.join(folder, function.__name__)).rows_written:,} rows"
            except cdf.errors.CuratorError as exc:
                end = f"{type(exc).__name__}: {str(exc)[:110]}"
            except Exception as exc:  # noqa: BLE001 - which errors come is what is measured
                end = f"FOREIGN {type(exc).__name__}: {str(exc)[:110]}"
            peak.over.set()
            peak.join()
            _delete_left(peak.pids)
            seconds, share = time.monotonic() - began, peak.bytes / allowed_bytes
            print(
                f"| {function.__name__} | {peak.bytes / 1e6:,.0f} | {share:.2f} | {seconds:.1f} | {end} |", flush=True
            )


if __name__ == "__main__":
    main()

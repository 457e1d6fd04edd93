# SPDX-License-Identifier: Apache-2.0
"""Functions of users that take memory outside of their worker: peak (PSS, from outside), seconds and end of each, as a table.

``python benchmarks/user_functions.py [--memory 1GB] [--megabytes 600]``
"""

from __future__ import annotations

import argparse
import ctypes
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


def functions(size_bytes: int) -> list[Callable[[Any], Any]]:
    """Return the functions, each of which takes so many bytes in its way."""
    return [*processes(size_bytes), *shared(size_bytes), *private(size_bytes), *leaking()]


def processes(size_bytes: int) -> list[Callable[[Any], Any]]:
    """Return functions that start processes."""
    code, half = (
        f"x = bytearray({each})\nfor i in range(0, len(x), 4096): x[i] = 1\nimport time; time.sleep(0.5)"
        for each in (size_bytes, size_bytes // 2)
    )

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

    return [shares_memory, maps_memory]


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

    return [lifts_its_limit, leaves_a_thread]


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
    """The most PSS of this process and all below it, every 30 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = 0
        self.over = threading.Event()

    def run(self) -> None:
        """Sample until it is over."""
        me = psutil.Process()
        while not self.over.wait(0.03):
            self.bytes = max(self.bytes, sum(_pss(one) for one in [me, *me.children(recursive=True)]))


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


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
            peak.over.set()
            peak.join()
            seconds, share = time.monotonic() - began, peak.bytes / allowed_bytes
            print(
                f"| {function.__name__} | {peak.bytes / 1e6:,.0f} | {share:.2f} | {seconds:.1f} | {end} |", flush=True
            )


if __name__ == "__main__":
    main()

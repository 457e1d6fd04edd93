# SPDX-License-Identifier: Apache-2.0
"""Key rows per second and core through an exchange, its peak memory against the projected, and the content hash.

    ARROW_DEFAULT_MEMORY_POOL=system python benchmarks/exchange_throughput.py --rows 50_000_000 --memory 100_000_000

One process, one thread: map tasks, then reduce tasks, then reading the drops of each range, as the runner's tasks do
them. Half of all rows have a key that occurs before. ``--hot`` gives one key to half of all rows, ``--keep largest`` adds
a value. Peaks are resident bytes over those before the first task.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from curator_df.core.planning.price import TASK_SLACK_BYTES
from curator_df.core.runner.passes import skew
from curator_df.exchange.drops import DropReader, collect_drops
from curator_df.exchange.exchange import Exchange, KeyWriter
from curator_df.exchange.exchange_plan import project_exchange
from curator_df.exchange.key_stages import reduce_keys
from curator_df.files.storage import FileRecord, Folder
from curator_df.kernels.rows.content_hash import column_hashes
from curator_df.memory.limits import give_back_large_buffers, release_free_memory
from curator_df.memory.system import reset_peak, status_bytes

BLOCK_ROWS = 50_000


def keys_of(addresses: np.ndarray, total: int, *, hot: bool) -> np.ndarray:
    """Return a key for each address: half of them occur twice, or one of them in half of all rows."""
    numbers = (addresses % (total * 3 // 4)).astype(np.uint64)
    if hot:
        numbers[::2] = 0
    keys = np.empty((len(addresses), 2), dtype=np.uint64)
    for word, seed in enumerate((0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)):
        mixed = (numbers + np.uint64(1)) * np.uint64(seed)
        mixed ^= mixed >> np.uint64(31)
        keys[:, word] = mixed * np.uint64(0x94D049BB133111EB)
    return keys


def write_keys(exchange: Exchange, number: int, starts: np.ndarray, rows: int, memory: int, hot: bool) -> FileRecord:
    """Run one map task."""
    writer = KeyWriter(exchange, number, memory_bytes=memory, scratch=exchange.folder.url)
    stop = int(starts[number + 1]) if number + 1 < len(starts) else rows
    for start in range(int(starts[number]), stop, BLOCK_ROWS):
        addresses = np.arange(start, min(start + BLOCK_ROWS, stop), dtype=np.int64)
        writer.append(keys_of(addresses, rows, hot=hot), addresses, addresses % 1000)
    return writer.commit()


def count_drops(exchange: Exchange, number: int, starts: np.ndarray, rows: int, files: list[FileRecord]) -> int:
    """Run the reading side of one task of the second pass."""
    reader = DropReader(exchange, number, files, memory_bytes=2_000_000)
    stop = int(starts[number + 1]) if number + 1 < len(starts) else rows
    dropped = 0
    for start in range(int(starts[number]), stop, BLOCK_ROWS):
        dropped += int(reader.drops(np.arange(start, min(start + BLOCK_ROWS, stop), dtype=np.int64)).sum())
    assert reader.finish() == 0
    return dropped


def stage(name: str, rows: int, run: Callable[[], list], before: int, projected: int) -> list:
    """Run the tasks of a stage; print its rate and its peak."""
    release_free_memory()
    reset_peak()
    started = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - started
    peak = status_bytes("VmHWM") - before
    print(
        f"{name:8} {rows / seconds / 1e6:6.2f} M rows/s {seconds:7.1f} s   peak {peak / 1e6:6.1f} MB, "
        f"projected {projected / 1e6:.1f} MB ({peak / projected:.2f})",
        flush=True,
    )
    return result


def time_hashes(data: Path) -> None:
    """Print the rate of the content hash on prose, beside mmh3's where it is installed."""
    rows = []
    for name in ("news_4k.jsonl.gz", "mdn_3k.jsonl.gz"):
        with gzip.open(data / name, "rt", encoding="utf-8") as lines:
            rows += [json.loads(line)["text"] for line in lines]
    texts, size = pd.Series(rows, dtype="string[pyarrow]"), sum(len(row.encode()) for row in rows)
    calls: dict[str, Callable[[], object]] = {
        "content hash": lambda: column_hashes(texts),
        "content hash, case_and_spaces": lambda: column_hashes(texts, normalize="case_and_spaces"),
    }
    try:
        import mmh3
    except ImportError:
        print("mmh3 is not installed")
    else:
        calls["mmh3.hash64 row by row"] = lambda: [mmh3.hash64(row) for row in rows]
    for name, call in calls.items():
        call()
        times = []
        for _ in range(5):
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        print(f"{name:32} {size / min(times) / 1e6:8.0f} MB/s")


def main() -> None:
    """Print rates, peaks and projections."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--memory", type=int, default=100_000_000, help="bytes that a task may hold")
    parser.add_argument("--rows-per-range", type=int, default=500_000)
    parser.add_argument("--keep", default="first", choices=("first", "last", "largest", "smallest"))
    parser.add_argument("--hot", action="store_true", help="one key in half of all rows")
    parser.add_argument("--directory", default=None, help="where the files go")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="directory of the sample files")
    given = parser.parse_args()
    give_back_large_buffers()
    starts = np.arange(0, given.rows, given.rows_per_range, dtype=np.int64)
    with tempfile.TemporaryDirectory(dir=given.directory) as home:
        plan = project_exchange(
            given.rows, keep=given.keep, map_files=len(starts), work_bytes=given.memory, folder=Folder(home)
        )
        exchange = Exchange(Folder(home), given.keep, plan.reducers, starts, plan.ranges_per_drop_file)
        print(f"{given.rows:,} rows, {len(starts)} map files, {plan.reducers} reducers, {plan.passes} passes")
        memory, numbers = given.memory - TASK_SLACK_BYTES, range(len(starts))
        write_keys(exchange, 0, starts, min(given.rows, 1000), memory, given.hot)
        release_free_memory()
        before = status_bytes("VmRSS")
        files = stage(
            "map",
            given.rows,
            lambda: [write_keys(exchange, n, starts, given.rows, memory, given.hot) for n in numbers],
            before,
            plan.task_bytes,
        )
        reduced = stage(
            "reduce",
            given.rows,
            lambda: [reduce_keys(exchange, n, files, memory_bytes=memory, scratch=home) for n in range(plan.reducers)],
            before,
            plan.task_bytes,
        )
        drops = [one.file for one in reduced]
        if plan.ranges_per_drop_file > 1:
            drops = stage(
                "collect",
                sum(file.rows for file in drops),
                lambda: [collect_drops(exchange, n, drops, memory_bytes=memory) for n in range(exchange.drop_files)],
                before,
                plan.task_bytes,
            )
        found = stage(
            "pass 2",
            given.rows,
            lambda: [count_drops(exchange, n, starts, given.rows, drops) for n in numbers],
            before,
            plan.task_bytes,
        )
        assert sum(found) == sum(one.file.rows for one in reduced) == given.rows - sum(one.groups for one in reduced)
        written = sum(file.size_bytes for file in files), sum(one.file.size_bytes for one in reduced)
        print(f"keys {written[0] / 1e9:.2f} GB, projected {plan.key_bytes / 1e9:.2f}")
        print(f"drops {written[1] / 1e9:.2f} GB, projected at most {plan.drop_bytes / 1e9:.2f}")
        print(f"{sum(found):,} rows dropped, skew {skew([one.rows for one in reduced]):.2f}")
    if given.data.is_dir():
        time_hashes(given.data)  # last: what it leaves of the heap would count as a peak of the exchange


if __name__ == "__main__":
    main()

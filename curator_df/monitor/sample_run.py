# SPDX-License-Identifier: Apache-2.0
"""Time a user's chain on a small sample in a process of its own, and extrapolate the time of the whole input.

All of the sample runs first, which includes the loading of libraries and kernels that a new cluster needs too. Then a
quarter runs, and then all of it again; the two times give the time of a run independent of its size, and the time per byte
of a thread that runs concurrently with the others: threads that share a core or a disk are slower than a single one.

The duplicates of an input are mostly not among the few rows of a sample, but comparing them takes time. So some rows of
the sample get a near duplicate.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import cloudpickle
import pyarrow as pa
import pyarrow.parquet as pq

from curator_df.cluster.local import start_cluster
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.row_estimate import LARGEST_SAMPLED_ROW_BYTES, sampled_ranges
from curator_df.core.ranges.source import Ranges, Source
from curator_df.core.runner import run
from curator_df.errors import CuratorError, OperatorError
from curator_df.io.jsonl.reader import read_jsonl
from curator_df.io.output.formats import JsonlFormat
from curator_df.io.output.write import write_parquet
from curator_df.io.parquet.reader import read_parquet
from curator_df.memory.budget import Layout
from curator_df.monitor.fresh_process import FreshProcessError, run_fresh

MEMORY_BYTES = 1_000_000_000
"""Minimum memory budget of the sample run: enough for one worker process, and for compiling kernels one group after another."""
THREAD_MEMORY_BYTES = 500_000_000
"""Maximum additional budget for each thread: enough for a process of its own."""
THREAD_SAMPLE_BYTES = 2_000_000
"""Bytes of the sample for each thread; with a smaller sample, fewer threads run."""
COPY_EVERY = 10
"""Number of rows per near duplicate. Assumed: without near duplicates, 1 GB took 1.4 and 1.7 times the estimate, and comparing
was a fifth of it."""
COPY_LEAVES_OUT = 20
"""Number of parts of the text of which a near duplicate lacks the last."""
EVERY = (1, 4, 1)
"""Rows per row taken, for each run. The first run takes all rows: when a quarter was the first to have pairs, it seemed slow
and each byte fast (100 MB took 3 to 8 times the estimate)."""


@dataclass(frozen=True)
class SampleTime:
    """Time of a run over a sample."""

    text_bytes: int
    """Bytes of text of the sample."""
    run_seconds: float
    """Seconds of the run of the whole sample."""
    fixed_seconds: float
    """Seconds independent of the size, loading included."""
    byte_seconds: float
    """Seconds of a thread for each additional byte, while the others run."""
    threads: int = 1
    """Threads that worked on the sample."""

    def seconds(self, text_bytes: int, ranges: int, threads: int) -> float:
        """Return the estimated seconds for a number of text bytes in a number of input splits, each processed by one thread."""
        rounds = -(-ranges // threads)
        return self.fixed_seconds + self.byte_seconds * text_bytes * rounds / max(ranges, 1)


@dataclass(frozen=True)
class SampleJob:
    """Job of the separate process."""

    chain: Callable[[Any], Any]
    """Function from a lazy table to a lazy table."""
    is_parquet: bool
    """Whether the files are Parquet; otherwise they are JSON Lines."""
    files: tuple[str, ...]
    """Input file of each run."""
    threads: int
    """Threads of each run."""
    memory_bytes: int
    """Memory budget in bytes."""


def measure_sample(
    source: Source,
    ranges: Ranges,
    chain: Callable[[Any], Any],
    *,
    text: str,
    is_parquet: bool,
    sample_bytes: int,
    layout: Layout,
) -> SampleTime | None:
    """Run a chain over rows from the first blocks of a few input splits; return None if no row could be read.

    Some rows get a near duplicate in the column ``text``. The number of threads is that of the layout, or fewer if the sample is
    too small.

    Raises
    ------
    OperatorError
        If the run fails; the message has its last output.
    """
    with tempfile.TemporaryDirectory(prefix="curator-df-sample-") as folder:
        blocks = list(_blocks(source, ranges, sample_bytes))
        if not blocks:
            return None
        rows = pa.concat_tables(blocks)
        parts = (with_near_duplicates(_one_of(rows, every), text) for every in EVERY)
        files = tuple(_write(part, folder, is_parquet) for part in parts)
        threads = max(min(layout.workers * layout.threads, len(ranges), sample_bytes // THREAD_SAMPLE_BYTES), 1)
        most = MEMORY_BYTES + threads * THREAD_MEMORY_BYTES
        memory_bytes = min(max(layout.allowed_bytes, MEMORY_BYTES), most)
        try:
            lines = run_fresh(__name__, SampleJob(chain, is_parquet, files, threads, memory_bytes))
        except FreshProcessError as exc:
            raise OperatorError(
                f"recommend: the run of the sample failed. For advice without this run, use sample_size=None. The cause: {exc}"
            ) from None
    first, part, whole = ((line["text_bytes"], line["seconds"]) for line in lines)
    time = fit_time(part, whole)
    fixed_seconds = time.fixed_seconds + max(first[1] - time.run_seconds, 0.0)
    return dataclasses.replace(
        time, fixed_seconds=fixed_seconds, byte_seconds=time.byte_seconds * threads, threads=threads
    )


def with_near_duplicates(rows: pa.Table, text: str) -> pa.Table:
    """Return the rows, followed by a near duplicate of one row in `COPY_EVERY`.

    Examples
    --------
    >>> with_near_duplicates(pa.table({"text": ["a" * 20, None]}), "text")["text"].to_pylist()[2] == "a" * 19
    True
    """
    copies, field = _one_of(rows, COPY_EVERY), rows.schema.field(text)
    cut = [one and one[: len(one) - len(one) // COPY_LEAVES_OUT] for one in copies[text].to_pylist()]
    place = rows.column_names.index(text)
    return pa.concat_tables([rows, copies.set_column(place, field, pa.array(cut, field.type))])


def _one_of(rows: pa.Table, every: int) -> pa.Table:
    return rows.take(pa.array(range(0, len(rows), every)))


def fit_time(part: tuple[int, float], whole: tuple[int, float]) -> SampleTime:
    """Return the estimate that follows from the bytes and seconds of two runs.

    If the larger run was not slower, which is noise, its whole time counts as time per byte.

    Examples
    --------
    >>> fit_time((2_000_000, 1.5), (8_000_000, 4.5)).seconds(1_000_000_000, ranges=64, threads=2)
    250.5
    >>> fit_time((2_000, 1.5), (8_000, 1.0)).seconds(16_000, ranges=1, threads=4)
    2.0
    """
    (part_bytes, part_seconds), (text_bytes, run_seconds) = part, whole
    if run_seconds <= part_seconds or text_bytes <= part_bytes:
        return SampleTime(text_bytes, run_seconds, 0.0, run_seconds / max(text_bytes, 1))
    each = (run_seconds - part_seconds) / (text_bytes - part_bytes)
    fixed = max(run_seconds - each * text_bytes, 0.0)
    return SampleTime(text_bytes, run_seconds, fixed, (run_seconds - fixed) / text_bytes)


def _blocks(source: Source, ranges: Ranges, sample_bytes: int) -> Iterator[pa.Table]:
    numbers = sampled_ranges(ranges)
    for number in numbers:
        try:
            blocks = source.blocks(
                ranges[number],
                block_bytes=max(sample_bytes // len(numbers), 1),
                largest_row_bytes=LARGEST_SAMPLED_ROW_BYTES,
            )
            for block in blocks:
                yield pa.Table.from_pandas(block, preserve_index=False)
                break
        except CuratorError:  # the run reports the error, with the details
            continue


def _write(rows: pa.Table, folder: str, is_parquet: bool) -> str:
    path = Path(folder) / f"{len(rows)}.{'parquet' if is_parquet else 'jsonl'}"
    if is_parquet:
        pq.write_table(rows, path)
    else:
        with open(path, "wb") as file:
            JsonlFormat("none").open(cast("Any", file), rows.schema).write(rows)
    return str(path)


def main() -> None:
    """Run the job on standard input; print the bytes and seconds of each run."""
    job: SampleJob = cloudpickle.loads(sys.stdin.buffer.read())
    read = read_parquet if job.is_parquet else read_jsonl
    with start_cluster(memory=job.memory_bytes, cpus=job.threads, dashboard_port=None):
        for number, path in enumerate(job.files):
            run.SMALL_RANGE_BYTES = -(-os.path.getsize(path) // job.threads)  # one input split for each thread
            docs = read(path)
            receipt = write_parquet(job.chain(docs), f"{path}-{number}")
            line = {"text_bytes": lower(docs).source.text_bytes, "seconds": receipt.seconds}
            os.write(1, json.dumps(line).encode() + b"\n")

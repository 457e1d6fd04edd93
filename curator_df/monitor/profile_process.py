# SPDX-License-Identifier: Apache-2.0
"""Separate process of `profile_memory`: runs steps on a sample in three sizes and prints the memory that each call needed.

Reads a pickle of `ProfileJob` from standard input and prints one JSON object per line: ``step`` (its position), ``block_bytes``
and ``extra_bytes`` for each call; first ``held_bytes`` instead, for a first call on a small block; and, if memray is installed,
``allocations`` at the end, for one more call on the largest block: lines of code and bytes.
"""

from __future__ import annotations

import collections
import functools
import importlib.util
import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import cloudpickle
import numpy as np
import pyarrow as pa

from curator_df.cluster.preload import prepare_process
from curator_df.core.planning.program import Step, run_step
from curator_df.core.ranges.source import Source
from curator_df.io.frames import to_block
from curator_df.memory.limits import peak_of_call, release_free_memory
from curator_df.memory.system import status_bytes

MOST_LINES = 5
"""Maximum number of lines reported for a call."""
LEAST_BYTES = 100_000
"""Minimum number of bytes that a line holds to be reported."""

Frame = tuple[str, str, int]
"""Function, file and line of a stack frame."""


def has_memray() -> bool:
    """Return whether memray is installed, without importing it."""
    return importlib.util.find_spec("memray") is not None


def peak_allocations(call: Callable[[], Any]) -> list[tuple[str, int]]:
    """Run a call under memray; return the lines that hold the most memory at its peak, with their bytes, largest first.

    Memory that pandas, numpy and other libraries allocate is counted for the line that called them.
    """
    import memray

    held: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="curator-df-memray-") as folder:
        path = os.path.join(folder, "allocations.bin")
        with memray.Tracker(path):
            result = call()
        del result
        with memray.FileReader(path) as reader:
            for record in reader.get_high_watermark_allocation_records(merge_threads=True):
                held[_named(record.stack_trace())] += record.size
    return [(line, size) for line, size in held.most_common(MOST_LINES) if size >= LEAST_BYTES]


def _named(stack: Sequence[Frame]) -> str:
    """Return the innermost line outside libraries and outside the code that runs steps; otherwise the innermost line."""
    if not stack:
        return "outside of Python"
    function, path, line = next((frame for frame in stack if _is_own(frame[1])), stack[0])
    return f"{os.path.basename(path)}:{line} ({function})"


def _is_own(path: str) -> bool:
    package = os.path.dirname(os.path.dirname(__file__))
    if path.startswith(package):
        return not path.startswith(tuple(os.path.join(package, folder) for folder in RUNS_STEPS))
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not path.startswith(tuple(libraries)) and "-packages" not in path and not path.startswith("<frozen")


RUNS_STEPS = ("core", "files", "interactive", "memory", "monitor")
"""Folders of the package whose code runs steps, and is none."""
SMALL_BYTES = 100_000
"""Bytes of the block of the first call."""
SIZES = (0.25, 0.5, 1.0)
"""Sizes of the measured blocks, as shares of the sample."""


class CallLine(TypedDict, total=False):
    """Line that is printed of a call; each kind of call has some of these fields."""

    step: int
    """Position of the step."""
    held_bytes: int
    """Bytes that the first call left in the process."""
    block_bytes: int
    """Bytes of the block."""
    extra_bytes: int
    """Peak of the call over what the process held with the block."""
    allocations: list[tuple[str, int]]
    """Lines of code with the bytes that they hold at the peak."""


class NoRowsError(Exception):
    """Error for an empty sample, on which nothing can be measured."""


@dataclass(frozen=True)
class ProfileJob:
    """Steps and sample of a measurement."""

    source: Source
    """Source of the sample."""
    steps: tuple[Step, ...]
    """All steps of the chain."""
    first: int
    """Position of the first step that is measured; those before it only prepare its block."""
    sample_bytes: int
    """Bytes of the largest block."""


def sample_table(source: Source, wanted_bytes: int) -> pa.Table:
    """Read the first rows of a source, and repeat them until there are enough, in one chunk for each column."""
    tables: list[pa.Table] = []
    for block in _blocks(source, wanted_bytes):
        tables.append(pa.Table.from_pandas(block, preserve_index=False))
        if sum(table.nbytes for table in tables) >= wanted_bytes:
            break
    if not any(len(table) for table in tables):
        raise NoRowsError
    table = pa.concat_tables(tables)
    times = -(-wanted_bytes // max(table.nbytes, 1))
    return pa.concat_tables([table] * times).combine_chunks()


def measure(job: ProfileJob) -> Iterator[CallLine]:
    """Yield the memory of each step for each block size."""
    table = sample_table(job.source, job.sample_bytes)
    row_bytes = max(table.nbytes // len(table), 1)
    for place, _, step_bytes in _run(job, _block(table, max(1, SMALL_BYTES // row_bytes))):
        yield {"step": place, "held_bytes": step_bytes}
    for share in SIZES:
        rows = max(1, int(len(table) * share * job.sample_bytes / max(table.nbytes, job.sample_bytes)))
        block = _block(table, rows)
        block_bytes = table.slice(0, rows).nbytes
        for place, extra_bytes, _ in _run(job, block):
            yield {"step": place, "block_bytes": block_bytes, "extra_bytes": extra_bytes}
    if has_memray():  # separately, because it would disturb the calls above
        yield from _allocations(job, block)


def _run(job: ProfileJob, block: Any) -> Iterator[tuple[int, int, int]]:
    """Run all steps on a block; yield the position, peak and retained bytes (without the result) of each measured step."""
    for place, step in enumerate(job.steps):
        if step.pending is not None:  # a deferred operation does nothing to a single block
            continue
        before = status_bytes("VmRSS")
        extra_bytes, (outcome, _) = peak_of_call(functools.partial(run_step, step, block))
        block = outcome.block
        del outcome
        release_free_memory()
        if place >= job.first:
            yield place, extra_bytes, max(0, status_bytes("VmRSS") - before)


def _allocations(job: ProfileJob, block: Any) -> Iterator[CallLine]:
    for place, step in enumerate(job.steps):
        if step.pending is not None:
            continue
        if place >= job.first:
            call = functools.partial(run_step, step, block)
            yield {"step": place, "allocations": peak_allocations(call)}
        block = run_step(step, block)[0].block


def _blocks(source: Source, block_bytes: int) -> Iterator[Any]:
    for piece in source.cut(block_bytes):
        yield from source.blocks(piece, block_bytes=block_bytes)


def _block(table: pa.Table, rows: int) -> Any:
    """Return the first rows as a separate block, as readers make it."""
    return to_block(table.take(pa.array(np.arange(rows))), np.arange(rows) * 1_000)


def main() -> None:
    """Measure the job on standard input."""
    prepare_process()
    job: ProfileJob = cloudpickle.loads(sys.stdin.buffer.read())
    for line in measure(job):
        os.write(1, json.dumps(line).encode() + b"\n")

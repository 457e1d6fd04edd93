# SPDX-License-Identifier: Apache-2.0
"""What 100,000 ranges cost the client, without running them: planning, journaling every one, and reading that back.

    python benchmarks/many_ranges.py [--ranges 100000]

The input is a sparse file of 6.4 TB (no disk is used). Prints seconds and resident bytes after each part.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import curator_df as cdf
from curator_df.core.planning.lowering import lower
from curator_df.core.ranges.journal import Identity, Journal
from curator_df.core.ranges.manifest import TaskRecord
from curator_df.core.ranges.step_counts import StepCounts
from curator_df.files.storage import FileRecord, Folder
from curator_df.memory.sizes import show_size
from curator_df.memory.system import status_bytes


def record(number: int) -> TaskRecord:
    """Return what the journal stores of a finished range of an ordinary run."""
    steps = (
        StepCounts(50_000, 50_000, 1.5, {}, {"rows_changed": 12}),
        StepCounts(50_000, 30_000, 0.8, {"gopher_short_doc": 20_000}),
    )
    file = FileRecord(f"part-{number:06d}-000.parquet", 30_000, 20_000_000, 123_456_789)
    return TaskRecord(number, rows_read=50_000, rows_written=30_000, steps=steps, files=(file,), block_bytes=32_000_000)


def main() -> None:
    """Print a line for each part."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranges", type=int, default=100_000)
    count = options.parse_args().ranges
    base, started = status_bytes("VmRSS"), time.perf_counter()

    def report(part: str) -> None:
        nonlocal started
        seconds = time.perf_counter() - started
        print(f"{part:<32} {seconds:6.2f} s   {show_size(status_bytes('VmRSS') - base)} more resident", flush=True)
        started = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.jsonl"
        with open(path, "wb") as file:
            file.write(b'{"id": 1, "text": "one"}\n')
            os.truncate(file.fileno(), count * 10_000_000)
        docs = cdf.read_jsonl(str(path)).pipe(cdf.normalize_unicode)
        docs = docs.pipe(cdf.keep_profile, cdf.profiles.DATATROVE_GOPHER_QUALITY, words="whitespace")
        program = lower(docs)
        cdf.explain(docs, memory="1GB")
        ranges = program.source.cut(path.stat().st_size // count)
        report(f"plan and cut {len(ranges):,} ranges")
        with Journal(Folder(f"{folder}/out")) as journal:
            journal.start(Identity("input", "program", "sink", ()), ranges)
            report("pin them in the journal")
            for number in range(len(ranges)):
                journal.record([record(number)])
            report("journal each")
            rows = sum(done.rows_read for done in journal.done())
            report(f"read the journal ({rows:,} rows)")


if __name__ == "__main__":
    main()

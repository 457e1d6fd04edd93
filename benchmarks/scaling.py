# SPDX-License-Identifier: Apache-2.0
"""What a terabyte and more would take, computed from what a gigabyte took: hours, disk, memory, traffic and files.

    python benchmarks/scaling.py [OUTPUT ...] [--terabytes 1 10 100] [--cores 64 640] [--document-bytes 5900]

Nothing is run. OUTPUT is a folder that a run of yours has written: its receipt says how fast a core was (of a run on GPUs, a
GPU), how often the input was read, and what lay on temporary disks. Without one the speeds are those of docs/benchmarks.md, on
one machine with two cores, and what a row needs is what the library counts on when it plans: the table of docs/scaling.md. Its
rows of GPUs are bounds: what is left for the one core that reads and writes for each, if all that a GPU does took no time. A
second table says what the cores are: nodes, worker processes and memory, which do not depend on the input.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import curator_df as cdf
from curator_df.core.runner.run import MOST_RANGES, RANGE_BYTES
from curator_df.dedup.near.settings import KEY_WORDS
from curator_df.memory.budget import GOOD_THREAD_BYTES, Layout, choose_layout
from curator_df.memory.sizes import show_size

NODE_CPUS = 16
"""Cores of a node."""
KEY_BYTES = 8 * KEY_WORDS
"""Of a key in an exchange, with the address of its row."""
DISPATCH_SECONDS = 0.007
"""Of a scheduler and its client, for a range and pass: what many_workers.py measures with worker processes of their own. A run
takes as long as this, however many cores there are."""
PAIRED_SHARE = 0.25
"""Assumed: of the text, what is compared, and then lies in temporary files once more."""


@dataclass(frozen=True)
class Work:
    """A chain, and what it was seen to do."""

    name: str
    """As the table says it."""
    core_mb: float
    """Megabytes of input that a core does in a second, all passes together."""
    passes: int
    """How often the input is read."""
    row_bytes: int
    """On temporary disks, for each row."""
    text_share: float = 0.0
    """Of the input that lies on temporary disks besides."""
    of_gpus: bool = False
    """Whether what does that is a GPU instead of a core."""


CONVERT_SECONDS = 2 * 3.8
"""Of a core: to read a gigabyte of JSON Lines and write it as Parquet."""
READ_SECONDS = CONVERT_SECONDS * 0.98 / 3.28
"""Of a core: to read it and keep nothing. The share is that of medians of five runs of each in turn."""


def bound(name: str, reads: int, row_bytes: int, text_share: float = 0.0) -> Work:
    """Return a chain on GPUs of which only the host's work takes time: to read the input so often, and once more to write it."""
    seconds = reads * READ_SECONDS + CONVERT_SECONDS
    return Work(f"{name}, on GPUs at best", 1_000 / seconds, reads + 1, row_bytes, text_share, of_gpus=True)


NEAR_ROW_BYTES = KEY_BYTES * (cdf.minhash.FINEWEB.num_bands + 1)
WORKS = (
    Work("JSON Lines to Parquet", 1_000 / CONVERT_SECONDS, 1, 0),
    Work("all rules of Gopher, FineWeb and C4 in one pass", 1 / (1 / 63.2 + CONVERT_SECONDS / 1_000), 1, 0),
    bound("any rules in one pass", 0, 0),
    Work("exact duplicates", 1_000 / 5.7 / 2, 2, KEY_BYTES),
    bound("exact duplicates", 1, KEY_BYTES),
    Work("near duplicates, FineWeb's scheme", 268 / 3.4 / 2, 3, NEAR_ROW_BYTES, PAIRED_SHARE),
    bound("near duplicates, FineWeb's scheme", 2, NEAR_ROW_BYTES, PAIRED_SHARE),
)


def work_of(output: str) -> Work:
    """Return what the receipt of a run says."""
    receipt = cdf.read_receipt(output)
    if receipt.ranges_resumed:
        sys.exit(f"{output}: this run was resumed, and its seconds are those of the last part alone")
    of_gpus = "gpus" in receipt.arguments
    keys = sum(exchange.key_bytes + exchange.drop_bytes for exchange in receipt.exchanges)
    texts = [exchange.details.get("text_bytes_fetched") for exchange in receipt.exchanges]
    return Work(
        " > ".join(step.name for step in receipt.steps) + (", on GPUs" if of_gpus else ""),
        receipt.input_bytes / 1e6 / receipt.seconds / receipt.tasks_at_a_time,
        1 + len(texts) + sum(size is not None for size in texts),
        round(keys / max(receipt.rows_read, 1)),
        sum(size or 0 for size in texts) / receipt.input_bytes,
        of_gpus=of_gpus,
    )


def line(work: Work, terabytes: float, cores: list[int], document_bytes: int) -> str:
    """Return one row of the table."""
    total = terabytes * 1e12
    ranges = min(MOST_RANGES, total / RANGE_BYTES)
    least = ranges * work.passes * DISPATCH_SECONDS
    hours = [max(total / (work.core_mb * 1e6 * count), least) / 3600 for count in cores]
    traffic = work.passes * total / hours[0] / 3600 / 1e9
    disk = total / document_bytes * work.row_bytes + work.text_share * total
    shown = " | ".join(f"{count:,.2f}" for count in hours)
    return f"| {work.name} | {terabytes:g} | {shown} | {traffic:.1f} | {disk / 1e12:.2f} | {ranges:,.0f} |"


def least_layout(cpus: int) -> Layout:
    """Return the layout of the least memory, in steps of 100 MB, with which a node has a process for each CPU."""
    memory = next(size for size in range(10**8, 10**12, 10**8) if has_a_process_for_each(size, cpus))
    return choose_layout(memory, cpus=cpus)


def has_a_process_for_each(memory: int, cpus: int) -> bool:
    try:
        layout = choose_layout(memory, cpus=cpus)
    except cdf.errors.BudgetError:
        return False
    return layout.workers == cpus and layout.thread_bytes >= GOOD_THREAD_BYTES


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("outputs", nargs="*", metavar="OUTPUT", help="folders that runs have written")
    options.add_argument("--terabytes", type=float, nargs="+", default=[1, 10, 100])
    options.add_argument("--cores", type=int, nargs="+", default=[64, 640])
    options.add_argument("--document-bytes", type=int, default=5_900)
    given = options.parse_args()
    works = [work_of(output) for output in given.outputs] or WORKS
    kind = "cores or GPUs" if any(work.of_gpus for work in works) else "cores"
    hours = " | ".join(f"hours, {count} {kind}" for count in given.cores)
    print(f"| chain | TB | {hours} | GB/s read with {given.cores[0]} | TB of temporary disk | ranges |")
    print("|" + "---|" * (len(given.cores) + 5))
    for work in works:
        for terabytes in given.terabytes:
            print(line(work, terabytes, given.cores, given.document_bytes))
    print()
    print(f"| cores | nodes of {NODE_CPUS} | worker processes | memory of a node | memory in all |")
    print("|" + "---|" * 5)
    layout = least_layout(NODE_CPUS)
    for count in given.cores:
        nodes = -(-count // NODE_CPUS)
        shown = f"{show_size(layout.allowed_bytes)} | {show_size(nodes * layout.allowed_bytes)}"
        print(f"| {count:,} | {nodes:,} | {nodes * layout.workers:,} | {shown} |")


if __name__ == "__main__":
    main()

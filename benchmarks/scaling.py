# SPDX-License-Identifier: Apache-2.0
"""What a terabyte and more would take, computed from what a gigabyte took: hours, disk, memory, traffic and files.

    python benchmarks/scaling.py [--terabytes 1 10 100] [--cores 64 640] [--document-bytes 5900]

Nothing is run. The speeds of a core are those of docs/benchmarks.md, on one machine with two of them; what a row needs on disk
and in memory is what the library counts on when it plans. Prints the tables of docs/scaling.md.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import curator_df as cdf
from curator_df.core.near_stages import KEY_WORDS
from curator_df.core.run import MOST_RANGES, RANGE_BYTES

KEY_BYTES = 8 * KEY_WORDS
"""Of a key in an exchange, with the address of its row."""
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


WORKS = (
    Work("JSON Lines to Parquet", 1_000 / 10.3 / 2, 1, 0),
    Work("all rules of Gopher, FineWeb and C4 in one pass", 1 / (1 / 43.8 + 2 * 10.3 / 1_000), 1, 0),
    Work("exact duplicates", 1_000 / 12.5 / 2, 2, KEY_BYTES),
    Work(
        "near duplicates, FineWeb's scheme",
        268 / 9.2 / 2,
        3,
        KEY_BYTES * (cdf.minhash.FINEWEB.num_bands + 1),
        PAIRED_SHARE,
    ),
)


def line(work: Work, terabytes: float, cores: list[int], document_bytes: int) -> str:
    """Return one row of the table."""
    total = terabytes * 1e12
    hours = [total / (work.core_mb * 1e6 * count) / 3600 for count in cores]
    traffic = work.passes * work.core_mb * cores[0] / 1e3
    disk = total / document_bytes * work.row_bytes + work.text_share * total
    ranges = min(MOST_RANGES, total / RANGE_BYTES)
    shown = " | ".join(f"{count:,.1f}" for count in hours)
    return f"| {work.name} | {terabytes:g} | {shown} | {traffic:.1f} | {disk / 1e12:.2f} | {ranges:,.0f} |"


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--terabytes", type=float, nargs="+", default=[1, 10, 100])
    options.add_argument("--cores", type=int, nargs="+", default=[64, 640])
    options.add_argument("--document-bytes", type=int, default=5_900)
    given = options.parse_args()
    hours = " | ".join(f"hours, {count} cores" for count in given.cores)
    print(f"| chain | TB | {hours} | GB/s read with {given.cores[0]} | TB of temporary disk | ranges |")
    print("|" + "---|" * (len(given.cores) + 5))
    for work in WORKS:
        for terabytes in given.terabytes:
            print(line(work, terabytes, given.cores, given.document_bytes))


if __name__ == "__main__":
    main()

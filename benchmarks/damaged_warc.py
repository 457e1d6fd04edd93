# SPDX-License-Identifier: Apache-2.0
"""WARC files, plain, gzip and zstd, with bytes changed at random: each is read, or is an error of ours.

    PYTHONPATH=. python benchmarks/damaged_warc.py [--files 10000] [--seed 0] [--kinds a.warc a.warc.gz ...]

A zstd file may begin with the dictionary of the WARC-zstd specification. Half of the files are changed after they were
compressed, and half in one record before. Each is read with and without quarantine: no record vanishes uncounted, no two have one
address, no text of a file with checksums is altered, and each file takes little time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

from tests.io.test_warc_fuzz import PACKERS, RECORDS, fuzz


def main() -> int:
    """Run, and print what became of the files of each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(PACKERS), choices=list(PACKERS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    failed = []

    def fails(name: str, seed: str, exc: Exception) -> None:
        failed.append(seed)
        print(f"{name}, seed {seed!r}: {type(exc).__name__}: {str(exc)[:400]}", flush=True)

    for name in given.kinds:
        with tempfile.TemporaryDirectory() as folder:
            seeds = (f"{given.seed} {number}" for number in range(given.files))
            print(name, dict(fuzz(Path(folder), RECORDS, seeds, (name,), fails)[name]), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

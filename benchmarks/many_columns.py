# SPDX-License-Identifier: Apache-2.0
"""Read tables with thousands of columns and few rows: CPU time for each column, which should not grow with their number.

::

    python benchmarks/many_columns.py --columns 1000 10000
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import curator_df as cdf


def write_parquet_file(folder: Path, columns: int) -> Path:
    path = folder / f"{columns}.parquet"
    pq.write_table(pa.table({f"c{place}": [place, place + 1] for place in range(columns)}), path)
    return path


def write_jsonl_file(folder: Path, columns: int) -> Path:
    path = folder / f"{columns}.jsonl"
    path.write_text(
        "".join(json.dumps({f"c{place}": place + row for place in range(columns)}) + "\n" for row in range(5))
    )
    return path


def time_read(read: Callable[[Path], Any], path: Path) -> tuple[float, float]:
    """Return the CPU seconds until there is a lazy table, and of its rows."""
    begun = time.process_time()
    df = read(path)
    opened = time.process_time()
    df.compute(scheduler="synchronous")
    return opened - begun, time.process_time() - opened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, nargs="+", default=[1_000, 10_000])
    with tempfile.TemporaryDirectory() as folder:
        for read, write in ((cdf.read_parquet, write_parquet_file), (cdf.read_jsonl, write_jsonl_file)):
            for columns in parser.parse_args().columns:
                table, rows = time_read(read, write(Path(folder), columns))
                print(
                    f"{read.__name__} {columns:>7,} columns: {table:6.2f} s to the table, {rows:6.2f} s for its rows, "
                    f"{(table + rows) / columns * 1000:.3f} ms a column"
                )


if __name__ == "__main__":
    main()

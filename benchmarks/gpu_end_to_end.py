# SPDX-License-Identifier: Apache-2.0
"""One chain from JSON Lines to Parquet on the CPU and on GPUs of the same machine, one after the other.

    python benchmarks/gpu_end_to_end.py corpus/ --memory 64GB --device-memory 60GB --page end-to-end.md

The corpus is yours: JSON Lines with a column ``text``, plain or compressed. Read, Unicode made regular (on the host in
both), Gopher's rules, exact duplicates, near duplicates, Parquet. Each part starts a cluster of its own after a run over
the first file that compiles and is not counted. Prints seconds, MB/s of the input and the ratio to the CPU, for the whole
and for each step (seconds of all its tasks together), and what a GPU held. The rows written must be the same.

The exit code is 1 if they are not, and 2 where there is no GPU: then the CPU's part is measured and printed all the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpu_options import options, said_on
from same_rows import digest_of

import curator_df as cdf
from curator_df.core.memory.gpus import read_gpus
from curator_df.errors import ParameterError

HEAD = "| what | who | seconds | MB/s of input | ratio to the CPU |\n|---|---|---|---|---|"


def chain(source: str, backend: str) -> Any:
    """Return the table that is written."""
    docs = cdf.read_jsonl(source).pipe(cdf.normalize_unicode)
    docs = cdf.to_backend(docs, "cudf") if backend == "cudf" else docs
    kept = docs.pipe(cdf.keep_profile, cdf.profiles.DATATROVE_GOPHER_QUALITY)
    return kept.pipe(cdf.drop_exact_duplicates).pipe(cdf.drop_near_duplicates)


def measure(given: argparse.Namespace, backend: str) -> tuple[Any, tuple[int, str]]:
    """Return the receipt of the run, and a digest of its rows."""
    devices = {"gpus": given.gpus, "device_memory": given.device_memory} if backend == "cudf" else {}
    with (
        tempfile.TemporaryDirectory(dir=given.folder) as folder,
        cdf.start_cluster(memory=given.memory, spill_directory=folder, **devices),
    ):
        cdf.write_parquet(chain(first_file(given.corpus), backend), f"{folder}/first")
        receipt = cdf.write_parquet(chain(given.corpus, backend), f"{folder}/all")
        return receipt, digest_of(Path(folder) / "all")


def first_file(corpus: str) -> str:
    """Return the file of the corpus that compiles what the run will call."""
    files = [corpus] if Path(corpus).is_file() else [str(path) for path in Path(corpus).rglob("*.jsonl*")]
    return min(files)


def rows(who: str, receipt: Any, cpu: Any) -> Iterator[str]:
    """Yield the lines of one run."""
    before = {step.name: step.seconds for step in cpu.steps}
    megabytes = receipt.input_bytes / 1e6
    ratio = f"{cpu.seconds / receipt.seconds:.2f}"
    yield f"| whole run | {who} | {receipt.seconds:.2f} | {megabytes / receipt.seconds:,.0f} | {ratio} |"
    for step in receipt.steps:
        if step.seconds > 0:
            ratio = f"{before[step.name] / step.seconds:.2f}" if before.get(step.name) else "-"
            yield f"| {step.name} | {who} | {step.seconds:.2f} | {megabytes / step.seconds:,.0f} | {ratio} |"
    if receipt.measured_device_bytes is not None:
        held, projected = receipt.measured_device_bytes / 1e9, receipt.projected_device_bytes / 1e9
        yield f"\n{who}: a GPU held {held:.2f} GB, {projected:.2f} projected"


def main() -> int:
    """Measure, print and write the page."""
    parser = options(__doc__, "JSON Lines, or a folder of them")
    given = parser.parse_args()
    page: list[str] = []
    say = said_on(page)
    say(
        f"curator-df {version('curator-df')}; GPUs: {', '.join(f'{g.total_bytes / 1e9:.0f} GB' for g in read_gpus()) or 'none'}\n"
    )
    cpu, rows_of_cpu = measure(given, "pandas")
    say(f"{cpu.rows_read:,} rows, {cpu.input_bytes / 1e6:,.0f} MB; {cpu.rows_written:,} written\n\n{HEAD}")
    for line in rows("CPU", cpu, cpu):
        say(line)
    code = 0
    try:
        gpu, rows_of_gpu = measure(given, "cudf")
    except ParameterError as exc:
        say(f"\nThe GPU's part was not run: {exc}")
        code = 2
    else:
        for line in rows("GPU", gpu, cpu):
            say(line)
        code = int(rows_of_gpu != rows_of_cpu)
        say(f"\nRows: {'not ' * code}the same")
    if given.page:
        given.page.write_text("\n".join(page) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Two chains from JSON Lines to Parquet on the CPU and on GPUs of the same machine, and plain dask-cudf beside the second.

    python benchmarks/gpu_end_to_end.py corpus/ --memory 64GB --device-memory 60GB --page end-to-end.md

The corpus is yours: JSON Lines with a column ``text``, plain or compressed. First: read, Unicode made regular (on the host in
both), Gopher's rules, exact duplicates, near duplicates, Parquet. Second: the texts alone, each once, which dask-cudf's
``drop_duplicates`` does too, in a cluster that is started the same way. Each part starts a cluster of its own after a run over
the first file that compiles and is not counted. Prints seconds, MB/s of the input and the ratio to the CPU, for the whole
and for each step (seconds of all its tasks together), and what a GPU held. The rows written must be the same: those of the
second chain in any order, because dask-cudf keeps none.

The exit code is 1 if they are not, and 2 where there is no GPU: then the CPU's part is measured and printed all the same.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from gpu_options import options, said_on
from same_rows import digest_of

import curator_df as cdf
from curator_df.errors import ParameterError
from curator_df.memory.gpus import read_gpus

HEAD = "| what | who | seconds | MB/s of input | ratio to the CPU |\n|---|---|---|---|---|"
PEER = "dask-cudf drop_duplicates"
PEER_BLOCK = "256MB"
"""Of plain JSON Lines that dask-cudf reads at a time, as its documentation does; a compressed file is read whole."""


def chain(source: str, backend: str) -> Any:
    """Return the table of the first chain."""
    docs = cdf.read_jsonl(source).pipe(cdf.normalize_unicode)
    docs = cdf.to_backend(docs, "cudf") if backend == "cudf" else docs
    kept = docs.pipe(cdf.keep_profile, cdf.profiles.DATATROVE_GOPHER_QUALITY, words="whitespace")
    return kept.pipe(cdf.drop_exact_duplicates).pipe(cdf.drop_near_duplicates)


def each_text_once(source: str, backend: str) -> Any:
    """Return the table of the second chain."""
    docs = cdf.read_jsonl(source, columns=["text"])
    docs = cdf.to_backend(docs, "cudf") if backend == "cudf" else docs
    return docs.pipe(cdf.drop_exact_duplicates)


def write_plainly(read_json: Callable[..., Any], files: list[str], target: str) -> None:
    """Write each text once with what Dask has itself; ``read_json``: dask-cudf's, or Dask's of pandas."""
    is_plain = all(path.endswith((".json", ".jsonl")) for path in files)
    docs = read_json(files, lines=True, blocksize=PEER_BLOCK if is_plain else None)[["text"]]
    docs.drop_duplicates(subset=["text"]).to_parquet(target, write_index=False)


def texts_of(folder: Path) -> tuple[int, str]:
    """Return how many rows there are, and a digest of their texts in any order."""
    rows, total = 0, 0
    for path in folder.glob("*.parquet"):
        for batch in pq.ParquetFile(path).iter_batches(2_000, columns=["text"]):
            rows += len(batch)
            for text in batch.column(0).to_pylist():
                total += int.from_bytes(hashlib.blake2b(repr(text).encode(), digest_size=16).digest(), "little")
    return rows, f"{total % (1 << 128):032x}"


def measure(
    given: argparse.Namespace, backend: str, made: Callable[[str, str], Any], digest: Callable[[Path], tuple[int, str]]
) -> tuple[Any, tuple[int, str]]:
    """Return the receipt of the run, and a digest of its rows."""
    devices = {"gpus": given.gpus, "device_memory": given.device_memory} if backend == "cudf" else {}
    with (
        tempfile.TemporaryDirectory(dir=given.folder) as folder,
        cdf.start_cluster(memory=given.memory, spill_directory=folder, **devices),
    ):
        cdf.write_parquet(made(min(files_of(given.corpus)), backend), f"{folder}/first")
        receipt = cdf.write_parquet(made(given.corpus, backend), f"{folder}/all")
        return receipt, digest(Path(folder) / "all")


def measure_peer(given: argparse.Namespace) -> tuple[float, tuple[int, str]]:
    """Return the seconds of dask-cudf, and a digest of its rows."""
    import dask_cudf

    files = files_of(given.corpus)
    with (
        tempfile.TemporaryDirectory(dir=given.folder) as folder,
        cdf.start_cluster(
            memory=given.memory, spill_directory=folder, gpus=given.gpus, device_memory=given.device_memory
        ),
    ):
        write_plainly(dask_cudf.read_json, [min(files)], f"{folder}/first")
        started = time.perf_counter()
        write_plainly(dask_cudf.read_json, files, f"{folder}/all")
        return time.perf_counter() - started, texts_of(Path(folder) / "all")


def files_of(corpus: str) -> list[str]:
    """Return the files of the corpus; the first compiles what the run will call."""
    files = [corpus] if Path(corpus).is_file() else [str(path) for path in Path(corpus).rglob("*.jsonl*")]
    return sorted(files)


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


def contest(
    given: argparse.Namespace,
    say: Callable[[str], None],
    made: Callable[[str, str], Any],
    digest: Callable[[Path], tuple[int, str]],
) -> tuple[int, Any, tuple[int, str]]:
    """Measure a chain on the CPU and on GPUs; return the exit code, the CPU's receipt and the digest of its rows."""
    cpu, rows_of_cpu = measure(given, "pandas", made, digest)
    say(f"{cpu.rows_read:,} rows, {cpu.input_bytes / 1e6:,.0f} MB; {cpu.rows_written:,} written\n\n{HEAD}")
    for line in rows("CPU", cpu, cpu):
        say(line)
    try:
        gpu, rows_of_gpu = measure(given, "cudf", made, digest)
    except ParameterError as exc:
        say(f"\nThe GPU's part was not run: {exc}")
        return 2, cpu, rows_of_cpu
    for line in rows("GPU", gpu, cpu):
        say(line)
    code = int(rows_of_gpu != rows_of_cpu)
    say(f"\nRows: {'not ' * code}the same")
    return code, cpu, rows_of_cpu


def peer_contest(given: argparse.Namespace, say: Callable[[str], None], cpu: Any, texts: tuple[int, str]) -> int:
    """Measure dask-cudf beside the second chain; return the exit code."""
    try:
        seconds, found = measure_peer(given)
    except Exception as exc:  # noqa: BLE001 - whatever it ends with is its result
        say(f"\n{PEER} ended with {type(exc).__name__}: {str(exc).partition(chr(10))[0]}")
        return 0
    megabytes, code = cpu.input_bytes / 1e6, int(found != texts)
    say(f"\n{HEAD}\n| whole run | {PEER} | {seconds:.2f} | {megabytes / seconds:,.0f} | {cpu.seconds / seconds:.2f} |")
    say(f"\nTexts: {'not ' * code}the same, in any order; dask-cudf {version('dask-cudf-cu12')}")
    return code


def main() -> int:
    """Measure, print and write the page."""
    parser = options(__doc__, "JSON Lines, or a folder of them")
    given = parser.parse_args()
    page: list[str] = []
    say = said_on(page)
    say(
        f"curator-df {version('curator-df')}; GPUs: {', '.join(f'{g.total_bytes / 1e9:.0f} GB' for g in read_gpus()) or 'none'}\n"
    )
    code, _, _ = contest(given, say, chain, digest_of)
    say("\n### Each text once\n")
    second, cpu, texts = contest(given, say, each_text_once, texts_of)
    codes = {code, second}
    if 2 not in codes:
        codes.add(peer_contest(given, say, cpu, texts))
    if given.page:
        given.page.write_text("\n".join(page) + "\n", encoding="utf-8")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""All there is to see on a machine with a GPU, by one command: the tests, the kernels, whole runs; and a page of results.

    python benchmarks/gpu_suite.py CORPUS --page gpu-results.md [--memory 64GB] [--device-memory 60GB]

CORPUS is JSON Lines with a column ``text``, a file or a folder, such as ``make_corpus.py`` makes; 10 GB or more say most. One
after the other:

1. ``pytest`` on `TESTS`, or on what ``--tests`` names; slow ones too;
2. ``gpu.py`` on the first ``--kernel-bytes`` of the corpus, which are to fit on the device three times;
3. ``gpu_end_to_end.py`` on all of it;
4. ``gpu_models.py`` on the first ``--model-bytes``, where the models extra is installed.

A part that fails does not keep the others from running; its last words are on the page. The exit code is 0 where all went
well, 1 where something failed, and 2 where there is no GPU: then the page says what was skipped.
"""

from __future__ import annotations

import argparse
import collections
import datetime as dt
import importlib.metadata
import importlib.util
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from curator_df.memory.gpus import read_gpus

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    "tests/gpu",
    "tests/contracts",
    "tests/cluster/test_protocols.py",
    "tests/cluster/test_worker_devices.py",
    "tests/memory/test_gpus.py",
    "tests/models/test_devices.py",
)
"""What runs kernels and models on a GPU, starts CUDA workers, or asks for their devices and limits."""
PACKAGES = (
    "curator-df",
    "cudf-cu12",
    "dask-cudf-cu12",
    "dask-cuda",
    "rmm-cu12",
    "cuml-cu12",
    "numba-cuda",
    "torch",
    "dask",
    "pandas",
)
LAST_LINES = 30
"""Of what a part said that failed."""


def main() -> int:
    """Run everything, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="JSON Lines, or a folder of them")
    parser.add_argument("--page", type=Path, required=True, help="where to write the results as Markdown")
    parser.add_argument("--memory", help="of the host, for each part of the whole runs")
    parser.add_argument("--device-memory", help="of each GPU")
    parser.add_argument("--kernel-bytes", type=int, default=2_000_000_000, help="of text, for the kernels alone")
    parser.add_argument("--model-bytes", type=int, default=50_000_000, help="of text, for a model")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files and folders of tests, instead of those above")
    given = parser.parse_args()
    gpus = read_gpus()
    page = ["# Results on a GPU", "", *machine(len(gpus)), ""]
    codes = []
    with tempfile.TemporaryDirectory() as folder:
        report, part, texts = Path(folder, "tests.xml"), Path(folder, "part.md"), Path(folder, "texts.parquet")
        command = [sys.executable, "-m", "pytest", *given.tests, "-m", "slow or not slow", f"--junitxml={report}", "-q"]
        codes.append(run("Tests", command, page))
        page += [*outcomes(report), ""] if report.exists() else []
        if gpus:
            write_texts(given.corpus, texts, given.kernel_bytes)
            command = [sys.executable, "benchmarks/gpu.py", str(texts), "--page", str(part)]
            codes.append(run("Kernels", command, page, part))
        else:
            page += skipped("Kernels", "needs a GPU")
        limits = []
        for name in ("memory", "device_memory"):
            if (value := getattr(given, name)) is not None:
                limits += [f"--{name.replace('_', '-')}", value]
        command = [sys.executable, "benchmarks/gpu_end_to_end.py", str(given.corpus.resolve()), "--page", str(part)]
        codes.append(run("Whole runs", [*command, *limits], page, part))
        if importlib.util.find_spec("torch") is not None:
            write_texts(given.corpus, texts, given.model_bytes)
            command = [sys.executable, "benchmarks/gpu_models.py", str(texts), "--page", str(part)]
            codes.append(run("Models", [*command, *limits], page, part))
        else:
            page += skipped("Models", "needs the models extra (torch is not installed)")
    given.page.write_text("\n".join(page) + "\n", encoding="utf-8")
    print(f"written: {given.page}")
    return 2 if not gpus else int(any(codes))


def machine(gpus: int) -> Iterator[str]:
    """Yield what ran where."""
    packages = []
    for name in PACKAGES:
        try:
            packages.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            packages.append(f"no {name}")
    yield f"{dt.datetime.now(dt.UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()}"
    yield ", ".join(packages)
    if gpus:
        ask = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        yield subprocess.check_output(ask, text=True).strip()
    else:
        yield "There is no GPU here: what needs one was skipped."


def run(title: str, command: list[str], page: list[str], part: Path | None = None) -> int:
    """Run a part from the root of the checkout; put its page on the page, or its last words if it failed without one."""
    print(f"== {title}: {shlex.join(command)}", flush=True)
    if part is not None:
        part.unlink(missing_ok=True)
    last: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            last.append(line.rstrip())
        code = process.wait()
    page += [f"## {title}", ""]
    if part is not None and part.exists():
        page += [part.read_text(encoding="utf-8").rstrip(), ""]
        page += [f"Exit code {code}.", ""] if code else []
    elif code:
        page += [f"Exit code {code}. Its last words:", "", "```text", *last, "```", ""]
    return code


def skipped(title: str, why: str) -> list[str]:
    """Return what is on the page of a part that was not run."""
    return [f"## {title}", "", f"Skipped: {why}.", ""]


def outcomes(report: Path) -> Iterator[str]:
    """Yield how many tests passed, which failed, and why some were skipped."""
    skipped: collections.Counter[str] = collections.Counter()
    failed, passed = [], 0
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it a moment ago
        found = {child.tag: child for child in case}
        if "skipped" in found:
            skipped[found["skipped"].get("message", "")] += 1
        elif "failure" in found or "error" in found:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        else:
            passed += 1
    yield f"{passed:,} passed, {len(failed):,} failed, {skipped.total():,} skipped."
    yield from ("", *(f"- failed: `{name}`" for name in failed))
    yield from (f"- skipped, {count}: {reason}" for reason, count in skipped.most_common())


def write_texts(corpus: Path, target: Path, most_bytes: int) -> None:
    """Write the first texts of a corpus as a Parquet file with one column."""
    files = [corpus] if corpus.is_file() else sorted(corpus.rglob("*.jsonl"))
    schema, taken = pa.schema([("text", pa.large_string())]), 0
    with pq.ParquetWriter(target, schema) as writer:
        for path in files:
            with path.open("rb") as file:
                while taken < most_bytes and (lines := file.readlines(64_000_000)):
                    texts = [orjson.loads(line)["text"] for line in lines]
                    taken += sum(map(len, lines))
                    writer.write_table(pa.table({"text": pa.array(texts, pa.large_string())}, schema=schema))
    if not taken:
        sys.exit(f"{corpus}: no plain JSON Lines (*.jsonl) there")


if __name__ == "__main__":
    sys.exit(main())

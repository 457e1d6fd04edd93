# SPDX-License-Identifier: Apache-2.0
"""The run that faults are put into, as a script of its own, and what looks at it from outside."""

import contextlib
import json
import random
import time
from pathlib import Path

import pandas as pd
import psutil
import pyarrow.parquet as pq
import pytest

ROWS = 4000

SCRIPT = """
import json, mmap, os, signal, sys, time
import numpy as np
import curator_df as cdf
from curator_df.core.runner import run

run.SMALL_RANGE_BYTES = 100_000  # many ranges from a small corpus

def slow(block):
    time.sleep(float(os.environ.get("SLEEP", "0.05")))
    return block.id % 5 != 0

def hungry(block):  # a whole split wants more than the memory of any cluster here, 64 kB of it next to nothing
    wanted = np.ones(100_000_000 if len(block) > 220 else len(block) * 10_000)
    return block.id >= wanted[0] - 1

def hungry_at_first(block):
    wanted = np.ones((len(block) if block.id.min() < 100 else 1) * 40_000)
    return block.id >= wanted[0] - 1

def swells_at_first(block):
    size = 720_000_000 if block.id.min() < 100 and len(block) > 100 else 8
    wanted = np.frombuffer(mmap.mmap(-1, size))  # shared memory, which no limit of a process covers
    wanted[:] = 1
    time.sleep(2 if size > 8 else 0)  # time to see it
    return block.id >= wanted[0] - 1

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests are a background job of a shell
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
    source, target, memory, step, on_existing = sys.argv[1:6]
    docs = cdf.read_jsonl(source, blocksize=os.environ.get("BLOCK", "50kB"))
    docs = docs.curate.keep_where(globals()[step])
    if "DROP" in os.environ:
        docs = docs.curate.drop_exact_duplicates()
    if "ADDRESS" in os.environ:
        cluster = cdf.connect(os.environ["ADDRESS"])
    else:
        cluster = cdf.start_cluster(memory=memory, cpus=2, spill_directory=os.environ.get("SPILL"))
    with cluster:
        folders = {"workdir": os.environ.get("WORKDIR"), "rejects": os.environ.get("REJECTS")}
        receipt = cdf.write_parquet(docs, target, on_existing=on_existing, **folders)
    print(json.dumps(receipt.to_json()))
"""

PATIENCE_SECONDS = 600
"""What a run may take on a machine that has much else to do; more is a hang."""

EXPECTED = [number for number in range(ROWS) if number % 5 != 0]


def finish(process):
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def rows(target):
    files = sorted(path for path in Path(target).glob("*.parquet"))
    return pd.concat([pq.read_table(path).to_pandas() for path in files], ignore_index=True)


def ids(target):
    return rows(target).id.tolist()


def write_corpus(path, texts=ROWS):
    """Write the rows of the runs; with fewer texts than rows the later rows have those of the earlier."""
    with open(path, "w") as file:
        file.writelines(
            json.dumps({"id": number, "text": random.Random(number % texts).randbytes(150).hex()}) + "\n"
            for number in range(ROWS)
        )


def workers_of(process):
    """Return the worker processes of a run's own cluster."""
    return [child for child in psutil.Process(process.pid).children() if "--multiprocessing-fork" in child.cmdline()]


def living(processes):
    """Return those that have not ended; one that nobody has collected has."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended while we looked
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def wait_for_ranges(target, count, process, journal="_curator/done.jsonl"):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if any(len(path.read_bytes().splitlines()) >= count for path in Path(target).glob(journal)):
            return
        if process.poll() is not None:
            pytest.fail(f"the run ended early: {process.communicate()[1]}")
        time.sleep(0.02)
    pytest.fail("no range was finished")

# SPDX-License-Identifier: Apache-2.0
"""Real faults: processes killed with real signals, a disk that is really full, allocations that really fail."""

import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pyarrow.parquet as pq
import pytest

ROWS = 4000

SCRIPT = """
import json, os, sys, time
import numpy as np
import curator_df as cdf
from curator_df.core import run

run.SMALL_RANGE_BYTES = 100_000  # many ranges from a small corpus

def slow(block):
    time.sleep(float(os.environ.get("SLEEP", "0.05")))
    return block.id % 5 != 0

def hungry(block):
    wanted = np.ones(len(block) * 40_000)  # 320 kB for each row of the block
    return block.id >= wanted[0] - 1

if __name__ == "__main__":
    source, target, memory, step, on_existing = sys.argv[1:6]
    docs = cdf.read_jsonl(source, blocksize=os.environ.get("BLOCK", "50kB")).curate.keep_where(globals()[step])
    with cdf.start_cluster(memory=memory, cpus=2):
        receipt = cdf.write_parquet(docs, target, on_existing=on_existing)
    print(json.dumps(receipt.to_json()))
"""


TWO_OUTPUTS = """
import json, os, sys, time
import curator_df as cdf
from curator_df.core import run

run.SMALL_RANGE_BYTES = 100_000  # many ranges from a small corpus

def slow(block):
    time.sleep(float(os.environ.get("SLEEP", "0.05")))
    return block.id % 5 != 0

def is_even(block):
    return block.id % 2 == 0

if __name__ == "__main__":
    source, target, memory, _, on_existing = sys.argv[1:6]
    docs = cdf.read_jsonl(source, blocksize=os.environ.get("BLOCK", "50kB"))
    kept = docs.curate.drop_exact_duplicates().curate.keep_where(slow)
    tables = {target + "/all": kept, target + "/even": kept.curate.keep_where(is_even)}
    with cdf.start_cluster(memory=memory, cpus=2):
        receipts = cdf.write_many(tables, on_existing=on_existing, rejects={target + "/even": target + "/rejects"})
    print(json.dumps([receipt.to_json() for receipt in receipts.values()]))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    with open(folder / "a.jsonl", "w") as file:
        file.writelines(
            json.dumps({"id": number, "text": random.Random(number).randbytes(150).hex()}) + "\n"
            for number in range(ROWS)
        )
    return folder


@pytest.fixture
def start():
    """Start the script in a process group of its own, which is killed at the end if the test did not end it."""
    started = []

    def start(script, corpus, target, memory="600MB", step="slow", on_existing="error", **variables):
        command = [sys.executable, str(script), str(corpus), str(target), memory, step, on_existing]
        started.append(
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def finish(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def ids(target):
    files = sorted(path for path in Path(target).glob("*.parquet"))
    return pd.concat([pq.read_table(path).to_pandas() for path in files]).id.tolist()


def wait_for_ranges(target, count, process):
    journal = Path(target) / "_curator/done.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if journal.exists() and len(journal.read_bytes().splitlines()) >= count:
            return
        if process.poll() is not None:
            pytest.fail(f"the run ended early: {process.communicate()[1]}")
        time.sleep(0.02)
    pytest.fail("no range was finished within a minute")


EXPECTED = [number for number in range(ROWS) if number % 5 != 0]


def test_a_worker_killed_in_mid_run_changes_nothing(start, script, corpus, tmp_path):
    process = start(script, corpus, tmp_path / "out")
    wait_for_ranges(tmp_path / "out", 3, process)
    workers = [child for child in psutil.Process(process.pid).children() if "--multiprocessing-fork" in child.cmdline()]
    assert workers
    for worker in workers:
        worker.send_signal(signal.SIGKILL)
    receipt = finish(process)
    assert receipt["rows_read"] == ROWS
    assert ids(tmp_path / "out") == EXPECTED


def test_a_killed_run_is_resumed_with_another_memory(start, script, corpus, tmp_path):
    process = start(script, corpus, tmp_path / "out")
    wait_for_ranges(tmp_path / "out", 3, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    journal = tmp_path / "out/_curator/done.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"number": 11, "rows_re')  # what a crash in mid-write leaves
    (tmp_path / "out/part-000012-007.parquet").write_bytes(b"a file of a range that was not finished")
    receipt = finish(
        start(script, corpus, tmp_path / "out", memory="450MB", on_existing="resume", SLEEP="0", BLOCK="20kB")
    )
    assert receipt["ranges_resumed"] >= 3
    assert receipt["rows_read"] == ROWS
    assert receipt["rows_written"] == len(EXPECTED)
    assert ids(tmp_path / "out") == EXPECTED


def test_a_killed_run_with_two_outputs_is_resumed_with_another_memory(start, corpus, tmp_path):
    script, out = tmp_path / "two.py", tmp_path / "out"
    script.write_text(TWO_OUTPUTS)
    process = start(script, corpus, out)
    wait_for_ranges(out / "even", 3, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    # What a crash between the two journals leaves: a range that one output has and the other does not.
    journal = out / "even/_curator/done.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))
    (out / "all/part-000012-007.parquet").write_bytes(b"a file of a range that was not finished")
    receipts = finish(start(script, corpus, out, memory="450MB", on_existing="resume", SLEEP="0", BLOCK="20kB"))
    even = [number for number in EXPECTED if number % 2 == 0]
    assert ids(out / "all") == EXPECTED
    assert ids(out / "even") == even
    assert sorted(ids(out / "rejects")) == sorted(set(range(ROWS)) - set(even))
    assert [receipt["rows_read"] for receipt in receipts] == [ROWS, ROWS]
    assert [receipt["rows_written"] for receipt in receipts] == [len(EXPECTED), len(even)]
    assert receipts[0]["ranges_resumed"] >= receipts[1]["ranges_resumed"] >= 2


def test_ctrl_c_gives_the_prompt_back_and_says_how_to_resume(start, script, corpus, tmp_path):
    process = start(script, corpus, tmp_path / "out")
    wait_for_ranges(tmp_path / "out", 2, process)
    process.send_signal(signal.SIGINT)
    interrupted = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "on_existing='resume'" in err
    assert time.monotonic() - interrupted < 20
    assert finish(start(script, corpus, tmp_path / "out", on_existing="resume", SLEEP="0"))["rows_written"] == len(
        EXPECTED
    )
    assert ids(tmp_path / "out") == EXPECTED


def test_two_runs_cannot_write_to_one_folder(start, script, corpus, tmp_path):
    (tmp_path / "out/_curator").mkdir(parents=True)
    with open(tmp_path / "out/_curator/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = start(script, corpus, tmp_path / "out", on_existing="resume")
        _, err = second.communicate(timeout=120)
    assert second.returncode != 0
    assert "OutputExistsError: another run is writing to" in err


def test_allocations_that_fail_halve_the_block_and_change_no_row(start, script, corpus, tmp_path):
    # One block of 1.5 MB is all 4,000 rows, for which the step wants 1.3 GB: far beyond the process limit.
    receipt = finish(start(script, corpus, tmp_path / "out", step="hungry", BLOCK="1500kB"))
    assert receipt["retries"]["memory"] > 0
    assert receipt["measured_bytes"] < 600_000_000
    assert ids(tmp_path / "out") == list(range(ROWS))


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("by nature: only root can mount a file system of its own size")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"by nature: this machine does not let us mount ({mounted.stderr.decode().strip()})")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_a_clear_error_and_the_run_resumes(start, script, corpus, tmp_path, small_disk):
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 500_000)
    process = start(script, corpus, small_disk / "out", SLEEP="0")
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "DiskFullError: no space left in" in err
    assert "on_existing='resume'" in err
    filler.unlink()
    receipt = finish(start(script, corpus, small_disk / "out", on_existing="resume", SLEEP="0"))
    assert receipt["rows_written"] == len(EXPECTED)
    assert ids(small_disk / "out") == EXPECTED


@pytest.mark.proof
def test_a_step_that_kills_every_worker_ends_in_an_error_that_names_the_range(start, corpus, tmp_path):
    deadly = tmp_path / "deadly.py"
    deadly.write_text(SCRIPT.replace("def hungry", "def deadly(block):\n    os._exit(9)\n\ndef hungry"))
    process = start(deadly, corpus, tmp_path / "out", step="deadly")
    _, err = process.communicate(timeout=240)  # ten workers die: so many until it is known that it is not the rows
    assert process.returncode != 0
    assert re.search(r"WorkerLostError: range \d+ ended its worker again, alone", err), err

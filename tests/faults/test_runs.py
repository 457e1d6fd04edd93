# SPDX-License-Identifier: Apache-2.0
"""Real faults: processes killed with real signals, a disk that is really full, allocations that really fail."""

import fcntl
import os
import re
import signal
import time

import pandas as pd
import psutil
import pytest

from tests.faults.runs import (
    EXPECTED,
    PATIENCE_SECONDS,
    ROWS,
    SCRIPT,
    finish,
    ids,
    living,
    rows,
    wait_for_ranges,
    workers_of,
)

TWO_OUTPUTS = """
import json, os, sys, time
import curator_df as cdf
from curator_df.core.runner import run

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


def test_a_worker_killed_in_mid_run_changes_nothing(start, script, corpus, tmp_path):
    process = start(script, corpus, tmp_path / "out")
    wait_for_ranges(tmp_path / "out", 3, process)
    workers = workers_of(process)
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


@pytest.mark.proof
@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_a_run_whose_driver_alone_is_killed_is_resumed_at_once(start, script, corpus, tmp_path):
    out, undisturbed = tmp_path / "out", tmp_path / "undisturbed"
    finish(start(script, corpus, undisturbed, SLEEP="0"))
    process = start(script, corpus, out, SLEEP="0.5")  # so that its workers are in a block
    wait_for_ranges(out, 3, process)
    workers, below = workers_of(process), psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()  # for it alone: its workers have not been told
    receipt = finish(start(script, corpus, out, on_existing="resume", SLEEP="0"))
    deadline = time.monotonic() + 60
    while (left := living(below)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for one in left:
        one.kill()
    process.communicate(timeout=PATIENCE_SECONDS)
    assert workers
    assert left == []
    assert receipt["ranges_resumed"] >= 3
    assert receipt["rows_read"] == ROWS
    pd.testing.assert_frame_equal(rows(out), rows(undisturbed))
    assert ids(out) == EXPECTED


@pytest.mark.proof  # a run with one output is killed above, and tests/io/test_write_many.py resumes two that differ
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
    process = start(script, corpus, tmp_path / "out", SLEEP="0.5")  # so that it cannot be over before the signal
    wait_for_ranges(tmp_path / "out", 2, process)
    process.send_signal(signal.SIGINT)
    interrupted = time.monotonic()
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0
    assert "on_existing='resume'" in err
    assert time.monotonic() - interrupted < 60  # its tasks end with their blocks, and not with all there is to do
    assert finish(start(script, corpus, tmp_path / "out", on_existing="resume", SLEEP="0"))["rows_written"] == len(
        EXPECTED
    )
    assert ids(tmp_path / "out") == EXPECTED


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.proof)])
def test_a_signal_in_mid_run_ends_all_processes_and_the_run_resumes(start, script, corpus, tmp_path, number):
    process = start(script, corpus, tmp_path / "out", SLEEP="0.2")
    wait_for_ranges(tmp_path / "out", 2, process)
    below = psutil.Process(process.pid).children(recursive=True)
    assert workers_of(process)
    process.send_signal(number)
    assert process.wait(60) == -number
    process.communicate()
    deadline = time.monotonic() + 60
    while living(below) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert living(below) == []
    receipt = finish(start(script, corpus, tmp_path / "out", on_existing="resume", SLEEP="0"))
    assert receipt["ranges_resumed"] >= 2
    assert ids(tmp_path / "out") == EXPECTED


@pytest.mark.proof  # a run that finds the lock is refused in tests/test_cli.py
def test_two_runs_cannot_write_to_one_folder(start, script, corpus, tmp_path):
    (tmp_path / "out/_curator").mkdir(parents=True)
    with open(tmp_path / "out/_curator/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = start(script, corpus, tmp_path / "out", on_existing="resume")
        _, err = second.communicate(timeout=PATIENCE_SECONDS)
    assert second.returncode != 0
    assert "OutputInUseError: another run is writing to" in err


@pytest.mark.proof  # tests/faults/test_memory.py, whose steps halve their blocks as well, runs always
def test_allocations_that_fail_halve_the_block_and_change_no_row(start, script, corpus, tmp_path):
    # A block of 1.5 MB is a whole split of 250 rows, for which the step wants 800 MB, more than memory= is.
    receipt = finish(start(script, corpus, tmp_path / "out", step="hungry", BLOCK="1500kB"))
    assert receipt["retries"]["memory"] > 0
    assert receipt["measured_bytes"] < 600_000_000
    assert ids(tmp_path / "out") == list(range(ROWS))


def test_a_full_disk_is_a_clear_error_and_the_run_resumes(start, script, corpus, tmp_path, small_disk):
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 500_000)
    process = start(script, corpus, small_disk / "out", SLEEP="0")
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
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
    assert re.search(r"WorkerLostError: input split \d+ .*crashed its worker again", err), err

# SPDX-License-Identifier: Apache-2.0
"""Workers and whole runs killed with real signals in every stage of a drop; what comes out is what an undisturbed run writes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.proof

ROWS = 6_000
KINDS = 900
SCRIPT = """
import json, sys, time
import curator_df as cdf
from curator_df.core import exchange_plan, run, stages

run.SMALL_RANGE_BYTES = 20_000             # many ranges from a small corpus,
exchange_plan.MOST_DIRECT_READS = 1        # a stage that collects drops,
exchange_plan.choose_reducers = lambda *_: 24  # and many tasks in each
merge = stages.run_merge

def slow_merge(*arguments):
    time.sleep(0.15)
    return merge(*arguments)

def slow(block):
    time.sleep(0.05)
    return block.id >= 0

stages.run_merge = slow_merge

if __name__ == "__main__":
    source, target, memory, on_existing = sys.argv[1:5]
    docs = cdf.read_jsonl(source).curate.keep_where(slow).curate.drop_exact_duplicates(keep="last")
    with cdf.start_cluster(memory=memory, cpus=2):
        receipt = cdf.write_parquet(docs, target, on_existing=on_existing)
    print(json.dumps(receipt.to_json()))
"""
JOURNALS = {
    "keys": "_curator/stages/*/_curator/done.jsonl",
    "merge": "_curator/stages/*/merge/_curator/done.jsonl",
    "collect": "_curator/stages/*/collect/_curator/done.jsonl",
    "write": "_curator/done.jsonl",
}


@pytest.fixture
def script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    with open(tmp_path / "in.jsonl", "w") as file:
        file.writelines(
            json.dumps({"id": n, "text": f"{n * n % KINDS} " + "a few words " * 9}) + "\n" for n in range(ROWS)
        )
    return tmp_path / "script.py"


@pytest.fixture
def start(script):
    started = []

    def start(memory="800MB", on_existing="error"):
        folder = script.parent
        command = [sys.executable, str(script), str(folder / "in.jsonl"), str(folder / "out"), memory, on_existing]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, start_new_session=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def finish(process):
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def wait_for(stage, target, process):
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if any(len(path.read_bytes().splitlines()) >= 2 for path in Path(target).glob(JOURNALS[stage])):
            return
        if process.poll() is not None:
            pytest.fail(f"the run ended before {stage}: {process.communicate()[1]}")
        time.sleep(0.02)
    pytest.fail(f"{stage} did not begin within 90 s")


def ids_in(folder):
    return [number for path in sorted(folder.glob("*.parquet")) for number in pq.read_table(path)["id"].to_pylist()]


def expected():
    last = {n * n % KINDS: n for n in range(ROWS)}
    return sorted(last.values())


@pytest.mark.parametrize("stage", JOURNALS)
def test_a_worker_killed_in_any_stage_changes_nothing(start, tmp_path, stage):
    process = start()
    wait_for(stage, tmp_path / "out", process)
    for child in psutil.Process(process.pid).children():
        if "--multiprocessing-fork" in child.cmdline():
            child.send_signal(signal.SIGKILL)
    receipt = finish(process)
    assert ids_in(tmp_path / "out") == expected()
    assert receipt["exchanges"][0]["unique"] == len(expected())
    assert not (tmp_path / "out/_curator/stages").exists()


@pytest.mark.parametrize("stage", JOURNALS)
def test_a_run_killed_in_any_stage_is_resumed_with_other_memory(start, tmp_path, stage):
    process = start()
    wait_for(stage, tmp_path / "out", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    receipt = finish(start(memory="460MB", on_existing="resume"))
    assert ids_in(tmp_path / "out") == expected()
    assert (receipt["rows_read"], receipt["rows_written"]) == (ROWS, len(expected()))
    assert not (tmp_path / "out/_curator/stages").exists()

# SPDX-License-Identifier: Apache-2.0
"""A worker and a whole run are killed while duplicates are dropped in input order; the output is that of an undisturbed run."""

import json
import os
import signal
import subprocess

import psutil
import pytest

from tests.faults.test_stages import finish, ids_in, script, start, wait_for  # noqa: F401 - fixtures

pytestmark = pytest.mark.proof

SCRIPT = """
import json, sys, time
import curator_df as cdf
from curator_df.core.planning import one_pass
from curator_df.core.runner import run

run.SMALL_RANGE_BYTES = 20_000   # many ranges from a small corpus, and time to kill in each
one_pass.LEAST_BYTES = 0

def slow(block):
    time.sleep(0.3)
    return block.id >= 0

if __name__ == "__main__":
    source, target, memory, on_existing = sys.argv[1:]
    docs = cdf.read_jsonl(source).curate.keep_where(slow).curate.drop_exact_duplicates()
    with cdf.start_cluster(memory=memory, cpus=2):
        receipt = cdf.write_parquet(docs, target, on_existing=on_existing)
    print(json.dumps(receipt.to_json()))
"""
JOURNALS = {"write": "_curator/done.jsonl"}
ROWS, KINDS = 6_000, 900


@pytest.mark.timeout(400)
@pytest.mark.parametrize("memory", ["800MB", "1500MB"], ids=["a worker with threads", "two workers"])
def test_killed_workers_and_a_killed_run_keep_the_first_rows(script, start, tmp_path, memory):  # noqa: F811
    script.write_text(SCRIPT)
    expected = sorted({n * n % KINDS: n for n in reversed(range(ROWS))}.values())
    process = start(memory)
    wait_for("write", tmp_path / "out", process, JOURNALS)
    workers = [one for one in psutil.Process(process.pid).children() if "--multiprocessing-fork" in one.cmdline()]
    workers[0].send_signal(signal.SIGKILL)
    receipt = finish(process)
    assert ids_in(tmp_path / "out") == expected
    assert [one["hash_ranges"] for one in receipt["exchanges"]] == [0]
    subprocess.run(["rm", "-rf", str(tmp_path / "out")], check=True)
    process = start(memory)
    wait_for("write", tmp_path / "out", process, JOURNALS)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    receipt = finish(start(memory, "resume"))
    assert receipt["ranges_resumed"] >= 2
    assert [one["hash_ranges"] for one in receipt["exchanges"]] == [0]
    assert ids_in(tmp_path / "out") == expected
    assert json.dumps(receipt["events"]).count("passes") == 0

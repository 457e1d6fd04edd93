# SPDX-License-Identifier: Apache-2.0
"""What a notebook loads after its cluster has started goes from the memory for work, and the plan says so.

In a process of its own, for that of the tests holds much.
"""

import json
import re
import subprocess
import sys

import pytest

TAKEN_BYTES = 200_000_000
SCRIPT = """
import json
import os
import sys

import numpy as np

import curator_df as cdf
from curator_df import errors

if __name__ == "__main__":
    corpus, out, taken_bytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
    docs = cdf.read_jsonl(corpus).curate.keep_where("id % 2 == 0")
    with cdf.start_cluster(memory="1GB", cpus=2):
        plans = [cdf.explain(docs)]
        table = np.ones(taken_bytes, dtype=np.uint8)
        plans.append(cdf.explain(docs))
        receipt = cdf.write_parquet(docs, out + "/beside")
        del table
        plans.append(cdf.explain(docs))
    with cdf.start_cluster(memory="700MB", cpus=2):
        table = np.ones(taken_bytes, dtype=np.uint8)
        try:
            cdf.write_parquet(docs, out + "/refused")
            refused = ""
        except errors.BudgetError as error:
            refused = str(error)
        is_there = os.path.exists(out + "/refused")
        del table
        rows = cdf.write_parquet(docs, out + "/refused").rows_written
    told = {
        "work": [plan.layout.work_bytes for plan in plans],
        "taken": [plan.layout.client_bytes for plan in plans],
        "said": str(plans[1]),
        "rows": [receipt.rows_written, rows],
        "bytes": [receipt.measured_bytes, receipt.projected_bytes, receipt.allowed_bytes],
        "refused": refused,
        "is_there": is_there,
    }
    print(json.dumps(told))
"""
ALONE = """
import json
import sys

import numpy as np

import curator_df as cdf
from curator_df.memory.system import status_bytes

docs = cdf.read_jsonl(sys.argv[1]).curate.keep_where("id % 2 == 0")
with cdf.start_cluster(memory="500MB", cpus=1) as cluster:
    # Its own pages, without those of libraries, and without room for the dashboard, which nobody has visited.
    reserved_bytes = cluster.layout.reserved_bytes - cluster.layout.library_bytes - cluster._later_bytes
    plans = [cdf.explain(docs).layout.client_bytes]
    room = max(0, reserved_bytes - status_bytes("RssAnon"))
    sizes = [room // 2, room + 60_000_000, room + 80_000_000]
    for size in sizes:
        table = np.ones(size, dtype=np.uint8)
        plans.append(cdf.explain(docs).layout.client_bytes)
        held = status_bytes("RssAnon")
        del table
    print(json.dumps({"in_process": cluster.layout.in_process, "plans": plans, "free": held - plans[-1] - reserved_bytes}))
"""


def test_what_is_loaded_after_the_start_goes_from_the_memory_for_work(tmp_path):
    corpus, script = tmp_path / "a.jsonl", tmp_path / "script.py"
    corpus.write_text("".join(json.dumps({"id": n, "text": f"line {n} " * 400}) + "\n" for n in range(8_000)))
    script.write_text(SCRIPT)
    command = [sys.executable, script, corpus, tmp_path, str(TAKEN_BYTES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    before, taken, after = told["taken"]
    assert abs(taken - TAKEN_BYTES) < 20_000_000 > max(before, after)
    assert told["work"][1] == told["work"][0] - (taken - before)
    assert re.search(rf"\nclient +{taken / 1e6:.0f} MB used by this process since the cluster started\n", told["said"])
    measured, projected, allowed = told["bytes"]
    assert TAKEN_BYTES < measured <= projected <= allowed
    assert "; this process has used " in told["refused"]
    assert not told["is_there"]
    assert told["rows"] == [4_000, 4_000]


def test_a_process_without_workers_may_grow_into_what_is_reserved_for_it(tmp_path):
    corpus = tmp_path / "a.jsonl"
    corpus.write_text("".join(json.dumps({"id": n, "text": f"line {n}"}) + "\n" for n in range(100)))
    said = subprocess.check_output([sys.executable, "-c", ALONE, corpus], text=True, timeout=300)
    told = json.loads(said.splitlines()[-1])
    assert told["in_process"]
    assert told["plans"][:2] == [0, 0]
    assert (
        -15_000_000 < told["free"] < 55_000_000
    )  # what it has held for a moment while the cluster started is counted, too
    assert told["plans"][3] - told["plans"][2] == pytest.approx(20_000_000, abs=3_000_000)

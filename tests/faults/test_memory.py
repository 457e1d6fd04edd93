# SPDX-License-Identifier: Apache-2.0
"""Memory that really runs out under ``RLIMIT_DATA``, and workers that are really killed, again and again, by one row."""

import json
import os
import random
import re
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from curator_df.memory.sizes import read_size

ROWS, ODD_ROW = 4000, 1234

SCRIPT = """
import json, os, signal, sys, warnings
import numpy as np
import pandas as pd
import pyarrow as pa
import curator_df as cdf
from curator_df.core.runner import run

run.SMALL_RANGE_BYTES = 100_000  # many ranges from a small corpus
ODD_ROW = 1234

def fits(block):
    return block.id % 5 != 0

def wants_much(block):  # 3 GB for one row
    if (block.id == ODD_ROW).any():
        np.ones(400_000_000)
    return block.id % 5 != 0

def grows(block):  # so that the step has room for the row, and the writer has not
    if not (block.id == ODD_ROW).any():
        return block
    if len(block) > 1:
        raise MemoryError("not beside others")
    data = pa.py_buffer(np.full(70_000_000, 120, np.uint8))
    text = pa.LargeStringArray.from_buffers(1, pa.py_buffer(np.array([0, len(data)])), data)
    return block.assign(text=pd.Series(pd.array(text, dtype="string[pyarrow]"), index=block.index))

def kills(block):
    if (block.id == ODD_ROW).any():
        os.kill(os.getpid(), signal.SIGKILL)
    return block.id % 5 != 0

def hungry(block):  # a whole split wants more than the memory of any cluster here, 64 kB of it next to nothing
    held = np.ones(100_000_000 if len(block) > 220 else len(block) * 10_000)
    return block.id >= held[0] - 1

if __name__ == "__main__":
    source, target, step, on_oom = sys.argv[1:5]
    docs = cdf.read_jsonl(source, blocksize=os.environ.get("BLOCK", "50kB"))
    if step == "grows":
        docs = docs.map_partitions(grows, meta=docs._meta)
    docs = docs.curate.keep_where(globals().get(step, fits) if step != "grows" else fits)
    with cdf.start_cluster(memory=os.environ.get("MEMORY", "600MB"), cpus=2), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        receipt = cdf.write_parquet(docs, target, on_oom=on_oom, on_existing=os.environ.get("EXISTING", "raise"))
    said = [str(one.message) for one in said if "did not fit" in str(one.message)]
    print(json.dumps({**receipt.to_json(), "said": said, "shown": str(receipt)}))
"""

EXPECTED = [number for number in range(ROWS) if number % 5 != 0]
WITHOUT_IT = [number for number in EXPECTED if number != ODD_ROW]


@pytest.fixture
def run(tmp_path):
    """Run the script in a process group of its own, of which nothing is left."""
    (tmp_path / "script.py").write_text(SCRIPT)
    started = []

    def run(step, on_oom="retry", **variables):
        command = [
            sys.executable,
            str(tmp_path / "script.py"),
            str(tmp_path / "in"),
            str(tmp_path / "out"),
            step,
            on_oom,
        ]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        started.append(process)
        out, err = process.communicate(timeout=200)
        return json.loads(out.splitlines()[-1]) if process.returncode == 0 else err

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    with open(folder / "a.jsonl", "w") as file:
        file.writelines(
            json.dumps({"id": number, "text": random.Random(number).randbytes(150).hex()}) + "\n"
            for number in range(ROWS)
        )
    return folder / "a.jsonl"


def ids(target):
    files = sorted(target.glob("*.parquet"))
    return [number for path in files for number in pq.read_table(path, columns=["id"])["id"].to_pylist()]


def rows_aside(target):
    return [json.loads(line) for path in (target / "_quarantine").glob("*") for line in path.read_text().splitlines()]


def require_one_row_aside(receipt, tmp_path, corpus, reason):
    """Check that all rows but one came out, and that file, offset, size and step of that one are told everywhere."""
    assert ids(tmp_path / "out") == WITHOUT_IT
    assert (receipt["rows_read"], receipt["rows_quarantined"], receipt["rows_out_of_memory"]) == (ROWS, 1, 1)
    (record,) = rows_aside(tmp_path / "out")
    assert record["file"] == str(corpus)
    assert record["offset"] == sum(map(len, corpus.read_bytes().splitlines(keepends=True)[:ODD_ROW]))
    assert record["bytes"] > 300
    assert reason in record["reason"]
    assert "1 quarantined (1 out of memory)" in " ".join(receipt["shown"].split())
    (said,) = receipt["said"]
    assert "1 row did not fit into the memory budget, even when it ran exclusively, and went to" in said
    assert not (tmp_path / "out/_temporary").exists()


def test_a_row_that_never_fits_is_set_aside_and_all_others_come_out(run, corpus, tmp_path):
    receipt = run("wants_much")
    require_one_row_aside(receipt, tmp_path, corpus, "step 'keep_where' raised")
    assert receipt["retries"]["exclusive"] == 1
    assert receipt["measured_bytes"] < 600_000_000


def test_a_row_that_cannot_be_written_is_set_aside(run, corpus, tmp_path):
    receipt = run("grows")
    require_one_row_aside(receipt, tmp_path, corpus, "writing this row exclusively raised")
    assert receipt["measured_bytes"] < 600_000_000


@pytest.mark.proof
def test_a_row_that_kills_its_worker_is_found_and_set_aside(run, corpus, tmp_path):
    receipt = run("kills")
    require_one_row_aside(
        receipt, tmp_path, corpus, "its worker process ended when step 'keep_where' ran exclusively on this row"
    )
    assert 0 < receipt["retries"]["worker lost"] <= 8  # ranges beside it on the same worker are lost with it


def test_the_smaller_block_is_remembered_for_later_ranges(run, corpus, tmp_path):
    # Blocks of 100 kB are 250 rows or more, for which the step wants 800 MB: more than memory= is. Blocks of 64 kB are fewer.
    receipt = run("hungry", BLOCK="400kB")
    assert ids(tmp_path / "out") == list(range(ROWS))
    assert "after input splits ran out of memory" in receipt["settings"]["blocks"]
    # By itself each range would be halved three times.
    assert receipt["retries"]["memory"] < 2 * receipt["ranges"]
    assert receipt["rows_out_of_memory"] == 0


def test_a_row_too_long_for_the_node_is_set_aside(run, corpus, tmp_path):
    lines = corpus.read_text().splitlines(keepends=True)
    lines[ODD_ROW] = json.dumps({"id": ODD_ROW, "text": "x" * 40_000_000}) + "\n"
    corpus.write_text("".join(lines))
    require_one_row_aside(run("fits"), tmp_path, corpus, "does not fit even when it is processed exclusively")


@pytest.mark.slow
def test_the_memory_that_is_named_for_a_long_row_is_enough(run, corpus, tmp_path):
    lines = corpus.read_text().splitlines(keepends=True)
    lines[ODD_ROW] = json.dumps({"id": ODD_ROW, "text": "x" * 90_000_000}) + "\n"
    corpus.write_text("".join(lines))
    said = run("fits", on_oom="raise")
    assert f"{corpus} line {ODD_ROW + 1:,} (byte " in said
    named = re.search(r"Start the cluster with memory='([0-9.]+[MG]B)'", said)
    receipt = run("fits", on_oom="raise", MEMORY=named.group(1), EXISTING="resume")
    assert isinstance(receipt, dict), receipt
    assert ids(tmp_path / "out") == EXPECTED
    assert (
        receipt["measured_bytes"]
        <= receipt["projected_bytes"]
        <= receipt["allowed_bytes"]
        == read_size("memory", named.group(1))
    )


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("wants_much", "MemoryError"),
        pytest.param(
            "kills",
            r"WorkerLostError: input split [0-9]+ .*crashed its worker",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_on_oom_fail_stops_at_the_first_failure(run, corpus, tmp_path, step, error):
    said = run(step, on_oom="raise")
    assert isinstance(said, str)
    assert re.search(error, said)
    assert not (tmp_path / "out/_quarantine").exists()

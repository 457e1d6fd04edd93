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
import json, os, signal, sys, traceback, warnings
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

def outcome(source, target, step, on_oom="retry", block="50kB"):
    docs = cdf.read_jsonl(source, blocksize=block)
    if step == "grows":
        docs = docs.map_partitions(grows, meta=docs._meta)
    docs = docs.curate.keep_where(globals().get(step, fits) if step != "grows" else fits)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            receipt = cdf.write_parquet(docs, target, on_oom=on_oom, on_existing=os.environ.get("EXISTING", "raise"))
        except (cdf.errors.CuratorError, MemoryError):
            return traceback.format_exc()
    said = [str(one.message) for one in said if "did not fit" in str(one.message)]
    return {**receipt.to_json(), "said": said, "shown": str(receipt)}

if __name__ == "__main__":
    with cdf.start_cluster(memory=os.environ.get("MEMORY", "600MB"), cpus=2):
        print(json.dumps([outcome(**asked) for asked in json.loads(sys.argv[1])]))
"""

EXPECTED = [number for number in range(ROWS) if number % 5 != 0]
WITHOUT_IT = [number for number in EXPECTED if number != ODD_ROW]


def outcomes(folder, *asked, **variables):
    """Run the script, whose runs are on one cluster and write to a folder each; it is a process group that is ended as one."""
    (folder / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, folder / "script.py", json.dumps(asked)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=280)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture
def run(tmp_path):
    """Run one step on a cluster of its own."""

    def run(step, on_oom="retry", **variables):
        asked = {"source": str(tmp_path / "in"), "target": str(tmp_path / "out"), "step": step, "on_oom": on_oom}
        (found,) = outcomes(tmp_path, asked, **variables)
        return found

    return run


def write_corpus(folder, odd_text=None):
    folder.mkdir()
    with open(folder / "a.jsonl", "w") as file:
        for number in range(ROWS):
            text = odd_text if odd_text and number == ODD_ROW else random.Random(number).randbytes(150).hex()
            file.write(json.dumps({"id": number, "text": text}) + "\n")
    return folder / "a.jsonl"


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "in")


TOGETHER = {
    "wants_much": {},
    "grows": {},
    "hungry": {"block": "400kB"},
    "fits": {"source": "long"},
    "stops": {"step": "wants_much", "on_oom": "raise"},
}


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Return the folder of several runs on one cluster, and what each returned or raised."""
    folder = tmp_path_factory.mktemp("together")
    write_corpus(folder / "in")
    write_corpus(folder / "long", "x" * 40_000_000)
    asked = [
        {"step": name, "target": str(folder / name), **how, "source": str(folder / how.get("source", "in"))}
        for name, how in TOGETHER.items()
    ]
    return folder, dict(zip(TOGETHER, outcomes(folder, *asked), strict=True))


def ids(target):
    files = sorted(target.glob("*.parquet"))
    return [number for path in files for number in pq.read_table(path, columns=["id"])["id"].to_pylist()]


def rows_aside(target):
    return [json.loads(line) for path in (target / "_quarantine").glob("*") for line in path.read_text().splitlines()]


def require_one_row_aside(receipt, out, corpus, reason):
    """Check that all rows but one came out, and that file, offset, size and step of that one are told everywhere."""
    assert ids(out) == WITHOUT_IT
    assert (receipt["rows_read"], receipt["rows_quarantined"], receipt["rows_out_of_memory"]) == (ROWS, 1, 1)
    (record,) = rows_aside(out)
    assert record["file"] == str(corpus)
    assert record["offset"] == sum(map(len, corpus.read_bytes().splitlines(keepends=True)[:ODD_ROW]))
    assert record["bytes"] > 300
    assert reason in record["reason"]
    assert "1 quarantined (1 out of memory)" in " ".join(receipt["shown"].split())
    (said,) = receipt["said"]
    assert "1 row did not fit into the memory budget, even when it ran exclusively, and went to" in said
    assert not (out / "_temporary").exists()


def test_a_row_that_never_fits_is_set_aside_and_all_others_come_out(together):
    folder, found = together
    receipt = found["wants_much"]
    require_one_row_aside(receipt, folder / "wants_much", folder / "in/a.jsonl", "step 'keep_where' raised")
    assert receipt["retries"]["exclusive"] == 1
    assert receipt["measured_bytes"] < 600_000_000


def test_a_row_that_cannot_be_written_is_set_aside(together):
    folder, found = together
    receipt = found["grows"]
    require_one_row_aside(receipt, folder / "grows", folder / "in/a.jsonl", "writing this row exclusively raised")
    assert receipt["measured_bytes"] < 600_000_000


@pytest.mark.proof
def test_a_row_that_kills_its_worker_is_found_and_set_aside(run, corpus, tmp_path):
    receipt = run("kills")
    require_one_row_aside(
        receipt, tmp_path / "out", corpus, "its worker process ended when step 'keep_where' ran exclusively on this row"
    )
    assert 0 < receipt["retries"]["worker lost"] <= 8  # ranges beside it on the same worker are lost with it


def test_the_smaller_block_is_remembered_for_later_ranges(together):
    # Blocks of 100 kB are 250 rows or more, for which the step wants 800 MB: more than memory= is. Blocks of 64 kB are fewer.
    folder, found = together
    receipt = found["hungry"]
    assert ids(folder / "hungry") == list(range(ROWS))
    assert "after input splits ran out of memory" in receipt["settings"]["blocks"]
    # By itself each range would be halved three times.
    assert 0 < receipt["retries"]["memory"] < 2 * receipt["ranges"]
    assert receipt["rows_out_of_memory"] == 0
    assert receipt["measured_bytes"] < 600_000_000


def test_a_row_too_long_for_the_node_is_set_aside(together):
    folder, found = together
    said = "does not fit even when it is processed exclusively"
    require_one_row_aside(found["fits"], folder / "fits", folder / "long/a.jsonl", said)


def test_on_oom_fail_stops_at_the_first_failure(together):
    folder, found = together
    assert isinstance(found["stops"], str)
    assert "MemoryError" in found["stops"]
    assert not (folder / "stops/_quarantine").exists()


@pytest.mark.slow
def test_the_memory_that_is_named_for_a_long_row_is_enough(run, tmp_path):
    corpus = write_corpus(tmp_path / "in", "x" * 90_000_000)
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


@pytest.mark.proof  # the same end without processes is in tests/core/runner/test_dispatch.py
def test_on_oom_fail_stops_at_the_first_lost_worker(run, corpus, tmp_path):
    said = run("kills", on_oom="raise")
    assert isinstance(said, str)
    assert re.search(r"WorkerLostError: input split [0-9]+ .*crashed its worker", said)
    assert not (tmp_path / "out/_quarantine").exists()

# SPDX-License-Identifier: Apache-2.0
"""Workers and whole runs killed with real signals in every stage of a drop; what comes out is what an undisturbed run writes."""

import collections
import json
import os
import random
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
from curator_df.exchange import exchange_plan
from curator_df.core.runner import run
from curator_df.exchange import key_stages

run.SMALL_RANGE_BYTES = 20_000             # many ranges from a small corpus,
exchange_plan.MOST_DIRECT_READS = 1        # a stage that collects drops,
exchange_plan.choose_reducers = lambda *_: 24  # and many tasks in each
merge = key_stages.run_merge

def slow_merge(*arguments):
    time.sleep(0.15)
    return merge(*arguments)

def slow(block):
    time.sleep(0.05)
    return block.id >= 0

key_stages.run_merge = slow_merge

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

    def start(memory="800MB", on_existing="raise", *more):
        folder = script.parent
        command = [
            sys.executable,
            str(script),
            str(folder / "in.jsonl"),
            str(folder / "out"),
            memory,
            on_existing,
            *more,
        ]
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


def wait_for(stage, target, process, journals=JOURNALS):
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if any(len(path.read_bytes().splitlines()) >= 2 for path in Path(target).glob(journals[stage])):
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


NEAR_SCRIPT = """
import json, sys, time
import curator_df as cdf
from curator_df.dedup.near import stages as near_stages
from curator_df.core.runner import run

run.SMALL_RANGE_BYTES = 20_000   # many ranges from a small corpus, and time to kill in each stage
SCHEME = cdf.minhash.Scheme("words", 3, num_bands=12, minhashes_per_band=3)

def slowly(task):
    def run_slowly(*arguments):
        time.sleep(0.15)
        return task(*arguments)
    return run_slowly

for name in ("run_buckets", "run_pairs", "run_verify"):
    setattr(near_stages, name, slowly(getattr(near_stages, name)))

def slow(block):
    time.sleep(0.05)
    return block.id >= 0

if __name__ == "__main__":
    source, target, memory, on_existing, *index = sys.argv[1:]
    docs = cdf.read_jsonl(source).curate.keep_where(slow)
    against = cdf.read_parquet(index[0]).curate.keep_where(slow) if index else None
    docs = docs.curate.drop_near_duplicates(scheme=SCHEME, jaccard_threshold=0.6, bands_per_iteration=4, against=against)
    with cdf.start_cluster(memory=memory, cpus=2):
        receipt = cdf.write_parquet(docs, target, on_existing=on_existing)
    print(json.dumps(receipt.to_json()))
"""
NEAR_JOURNALS = {
    "signatures": "_curator/stages/*/_curator/done.jsonl",
    "buckets": "_curator/stages/*/iteration-001/buckets/_curator/done.jsonl",
    "pairs": "_curator/stages/*/iteration-001/pairs/_curator/done.jsonl",
    "texts": "_curator/stages/*/fetch/_curator/done.jsonl",
    "compare": "_curator/stages/*/compare/_curator/done.jsonl",
    "write": "_curator/done.jsonl",
}
AGAINST_JOURNALS = {
    "kept signatures": "_curator/stages/*/against/_curator/done.jsonl",
    "pairs": NEAR_JOURNALS["pairs"],
    "signatures of candidates": "_curator/stages/*/fetch-against/_curator/done.jsonl",
    "compare": NEAR_JOURNALS["compare"],
}
NEAR_ROWS = 3_000
INDEX_ROWS = 360
INDEX_SCRIPT = """
import sys
import curator_df as cdf

if __name__ == "__main__":
    scheme = cdf.minhash.Scheme("words", 3, num_bands=12, minhashes_per_band=3)
    docs = cdf.read_jsonl(sys.argv[1]).curate.keep_where(lambda block: block.id % 500 < 60).curate.add_minhash(scheme=scheme)
    with cdf.start_cluster(memory="800MB", cpus=2):
        cdf.write_parquet(docs[["id", "minhash"]], sys.argv[2], target_file_size=20_000)
"""


FIND_SCRIPT = """
import sys, time
import curator_df as cdf
from curator_df.dedup.table import id_pass
from curator_df.exchange import exchange_plan
from curator_df.core.runner import run
from curator_df.exchange import key_stages
from curator_df.ops.duplicates import groups

run.SMALL_RANGE_BYTES = 20_000
exchange_plan.choose_reducers = lambda *_: 24

def slowly(task):
    def run_slowly(*arguments):
        time.sleep(0.15)
        return task(*arguments)
    return run_slowly

for module, name in ((key_stages, "run_merge"), (id_pass, "run_questions"), (groups, "run_table")):
    setattr(module, name, slowly(getattr(module, name)))

def slow(block):
    time.sleep(0.05)
    return block.id >= 0

if __name__ == "__main__":
    source, target, memory, _ = sys.argv[1:5]
    docs = cdf.read_jsonl(source).curate.keep_where(slow)
    with cdf.start_cluster(memory=memory, cpus=2):
        found = cdf.find_exact_duplicates(docs, keep="last", id="id", workdir=target).compute()
    print(found[["id", "matched_id", "group_size", "kept"]].to_json(orient="values"))
"""
FIND_JOURNALS = {
    "merge": "find_*/_curator/drops/merge/_curator/done.jsonl",
    "ask": "find_*/_curator/stages/ids/ask/_curator/done.jsonl",
    "collect": "find_*/_curator/stages/ids/wanted/_curator/done.jsonl",
    "look up": "find_*/_curator/stages/ids/look-up/_curator/done.jsonl",
    "table": "find_*/_curator/done.jsonl",
}


@pytest.fixture
def near_script(script):
    script.write_text(NEAR_SCRIPT)
    chance = random.Random(4)
    words = [f"w{number}" for number in range(3_000)]
    texts = [" ".join(chance.choices(words, k=40)) for _ in range(NEAR_ROWS // 3)]
    with open(script.parent / "in.jsonl", "w") as file:
        for number in range(NEAR_ROWS):
            text = texts[number * number % len(texts)].split()
            text[number % 40] = words[number]
            file.write(json.dumps({"id": number, "text": " ".join(text)}) + "\n")
    return script


def undisturbed(script, folder, *more):
    command = [sys.executable, str(script), str(folder / "in.jsonl"), str(folder / "whole"), "800MB", "raise", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    return ids_in(folder / "whole"), json.loads(done.stdout.splitlines()[-1])["exchanges"][0]["details"]


def kill_a_worker_and_then_the_run(start, folder, stage, journals, expected, *more, less="460MB"):
    process = start("800MB", "raise", *more)
    wait_for(stage, folder / "out", process, journals)
    for child in psutil.Process(process.pid).children():
        if "--multiprocessing-fork" in child.cmdline():
            child.send_signal(signal.SIGKILL)
    finish(process)
    assert ids_in(folder / "out") == expected
    subprocess.run(["rm", "-rf", str(folder / "out")], check=True)
    process = start("800MB", "raise", *more)
    wait_for(stage, folder / "out", process, journals)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    finish(start(less, "resume", *more))
    assert ids_in(folder / "out") == expected
    assert not (folder / "out/_curator/stages").exists()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", NEAR_JOURNALS)
def test_near_duplicates_with_a_worker_and_then_the_run_killed(near_script, start, tmp_path, stage):
    expected, details = undisturbed(near_script, tmp_path)
    assert details["joined"] > 100
    kill_a_worker_and_then_the_run(start, tmp_path, stage, NEAR_JOURNALS, expected)


STORED_JOURNALS = {
    "store": "_curator/stages/stored-*/_curator/done.jsonl",
    "signatures": "_curator/stages/drop_*/_curator/done.jsonl",
    "texts": "_curator/stages/drop_*/fetch/_curator/done.jsonl",
    "write": "_curator/done.jsonl",
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", STORED_JOURNALS)
def test_stored_rows_with_a_worker_and_then_the_run_killed(near_script, start, tmp_path, stage):
    expected, _ = undisturbed(near_script, tmp_path)
    near_script.write_text(NEAR_SCRIPT.replace("on_existing=on_existing)", "on_existing=on_existing, reuse='always')"))
    kill_a_worker_and_then_the_run(start, tmp_path, stage, STORED_JOURNALS, expected)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", AGAINST_JOURNALS)
def test_against_kept_signatures_with_a_worker_and_then_the_run_killed(near_script, start, tmp_path, stage):
    index = str(tmp_path / "index")
    (tmp_path / "index.py").write_text(INDEX_SCRIPT)
    subprocess.run(
        [sys.executable, str(tmp_path / "index.py"), str(tmp_path / "in.jsonl"), index], check=True, timeout=180
    )
    expected, details = undisturbed(near_script, tmp_path, index)
    assert details["against"] == INDEX_ROWS
    assert 0 < len(expected) < NEAR_ROWS - INDEX_ROWS
    kill_a_worker_and_then_the_run(start, tmp_path, stage, AGAINST_JOURNALS, expected, index)


SEMANTIC_SCRIPT = """
import json, sys, time
import curator_df as cdf
from curator_df.dedup.vectors import stages as vector_stages
from curator_df.core.runner import run

run.SMALL_RANGE_BYTES = 20_000   # many ranges from a small corpus, and time to kill in each stage

def slowly(task):
    def run_slowly(*arguments):
        time.sleep(0.15)
        return task(*arguments)
    return run_slowly

for name in ("run_sample", "run_assign", "run_compare", "run_collect"):
    setattr(vector_stages, name, slowly(getattr(vector_stages, name)))

def slow(block):
    time.sleep(0.05)
    return block.id >= 0

if __name__ == "__main__":
    source, target, memory, on_existing = sys.argv[1:]
    docs = cdf.read_jsonl(source).curate.keep_where(slow)
    docs = docs.curate.drop_semantic_duplicates(eps=0.02, num_clusters=20, dimensions=16)
    with cdf.start_cluster(memory=memory, cpus=2):
        receipt = cdf.write_parquet(docs, target, on_existing=on_existing)
    print(json.dumps(receipt.to_json()))
"""
SEMANTIC_JOURNALS = {
    "vectors": "_curator/stages/*/_curator/done.jsonl",
    "sample": "_curator/stages/*/sampled/_curator/done.jsonl",
    "clusters": "_curator/stages/*/placed/_curator/done.jsonl",
    "compare": "_curator/stages/*/compare/_curator/done.jsonl",
    "groups": "_curator/stages/*/collect/_curator/done.jsonl",
    "write": "_curator/done.jsonl",
}


@pytest.fixture
def semantic_script(script):
    pytest.importorskip("sklearn", reason="needs the models extra (scikit-learn is not installed)")
    script.write_text(SEMANTIC_SCRIPT)
    chance = random.Random(5)
    vectors = [[chance.gauss(0, 1) for _ in range(16)] for _ in range(NEAR_ROWS // 3)]
    with open(script.parent / "in.jsonl", "w") as file:
        for number in range(NEAR_ROWS):
            moved = [round(one + chance.gauss(0, 0.05), 4) for one in vectors[number * number % len(vectors)]]
            file.write(json.dumps({"id": number, "embedding": moved}) + "\n")
    return script


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", SEMANTIC_JOURNALS)
def test_semantic_duplicates_with_a_worker_and_then_the_run_killed(semantic_script, start, tmp_path, stage):
    expected, details = undisturbed(semantic_script, tmp_path)
    assert details["by_eps"][0]["going"] > 500
    kill_a_worker_and_then_the_run(start, tmp_path, stage, SEMANTIC_JOURNALS, expected, less="760MB")


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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("stage", FIND_JOURNALS)
def test_a_table_of_groups_whose_run_is_killed_in_any_stage(script, start, tmp_path, stage):
    script.write_text(FIND_SCRIPT)
    process = start()
    wait_for(stage, tmp_path / "out", process, FIND_JOURNALS)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    last = {n * n % KINDS: n for n in range(ROWS)}
    sizes = collections.Counter(n * n % KINDS for n in range(ROWS))
    rows = [(n, last[n * n % KINDS], sizes[n * n % KINDS]) for n in range(ROWS) if sizes[n * n % KINDS] > 1]
    assert finish(start(memory="460MB")) == [
        [n, None if n == stays else stays, size, n == stays] for n, stays, size in rows
    ]

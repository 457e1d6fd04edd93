# SPDX-License-Identifier: Apache-2.0
"""A leak is told from noise and from a cache, its step is named, and its worker starts again without losing work."""

import ast
import json
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest

import curator_df as cdf
from curator_df.core import cluster_client
from curator_df.core.cluster_client import restart
from curator_df.core.runner import recycling, run
from curator_df.core.runner.recycling import diagnose_leak
from curator_df.memory.leaks import PROBE_CALLS, Leak, LeakWatch, theil_sen, trend_probability

MB = 1_000_000


def found(floors, work_bytes=300 * MB, threads=1):
    """Return how many tasks a watch took until it told of a leak, and what it told."""
    watch = LeakWatch(work_bytes, threads)
    for number, floor in enumerate(floors, start=1):
        leak = watch.add("node:1", int(floor))
        if leak is not None:
            return number, leak
    return None, None


def unnamed(floors, work_bytes=500 * MB):
    """Return the tasks at which a worker was told of, and whether it was started again, when no step is ever named."""
    watch, told = LeakWatch(work_bytes, 1), []
    for number, floor in enumerate(floors, start=1):
        leak = watch.add("node:1", int(floor))
        if leak is not None:
            told.append((number, leak.again))
            (watch.forget if leak.again else watch.wait)("node:1")
    return told


def noise(count, seed=0, correlation=0.0, size=20 * MB):
    random = np.random.default_rng(seed)
    values, state = np.empty(count), 0.0
    for place, step in enumerate(random.exponential(size, count)):
        state = correlation * state + (1 - correlation) * step
        values[place] = state
    return 250 * MB + values


def test_a_leak_of_one_megabyte_a_task_is_found_with_its_size():
    tasks, leak = found(noise(400, size=5 * MB) + np.arange(400) * MB)
    assert tasks < 120
    assert leak.task_bytes == pytest.approx(MB, rel=0.25)
    assert leak.growth_bytes > 32 * MB
    assert "node:1 uses" in str(leak)


def test_a_leak_beside_other_threads_is_found_by_the_least_of_some_floors():
    busy = np.where(np.arange(600) % 3 == 0, 0, np.random.default_rng(1).uniform(0, 200 * MB, 600))
    tasks, leak = found(250 * MB + busy + np.arange(600) * MB, work_bytes=600 * MB, threads=4)
    assert tasks is not None
    assert leak.task_bytes == pytest.approx(MB, rel=0.3)


@pytest.mark.parametrize("tasks_to_fill", [10, 40, 100])
def test_a_cache_that_fills_up_is_no_leak(tasks_to_fill):
    held = np.minimum(np.arange(1_000) / tasks_to_fill, 1.0) * 200 * MB
    tasks, _ = found(noise(1_000, seed=tasks_to_fill) + held)
    # While it fills nothing tells it from a leak; once it is full it is none.
    assert tasks is None or tasks <= tasks_to_fill + 10


@pytest.mark.parametrize("size", [1 * MB, 5 * MB, 20 * MB])
@pytest.mark.parametrize("tasks_to_fill", [10, 20, 40, 60, 100, 150, 200])
def test_a_cache_that_still_fills_is_told_of_once_at_most_and_its_worker_goes_on(tasks_to_fill, size):
    held = np.minimum(np.arange(1_000) / tasks_to_fill, 1.0) * 200 * MB
    told = unnamed(noise(1_000, seed=tasks_to_fill, size=size) + held)
    assert len(told) <= 1
    assert not any(again for _, again in told)


@pytest.mark.parametrize("rate", [1 * MB, 2 * MB, 5 * MB, 10 * MB])
def test_a_leak_that_no_step_is_seen_to_make_is_remedied_when_it_goes_on(rate):
    (first, at_first), (second, at_second), *_ = unnamed(noise(500, size=5 * MB) + np.arange(500) * rate)
    assert (at_first, at_second) == (False, True)
    assert rate * (second - first) >= 240 * MB  # up to half of 500 MB it could be a cache
    assert rate * second < 450 * MB  # before the worker is full


def test_floors_that_wander_start_no_worker_again():
    told = [unnamed(noise(300, seed, 0.9, size=60 * MB), 300 * MB) for seed in range(100)]
    assert (sum(bool(one) for one in told), sum(len(one) > 1 for one in told)) == (63, 0)  # as docs/monitoring.md says


@pytest.mark.parametrize(("correlation", "size"), [(0.0, 60 * MB), (0.5, 60 * MB), (0.9, 20 * MB)])
def test_workers_without_a_trend_raise_no_alarm(correlation, size):
    alarms = sum(found(noise(300, seed, correlation, size=size))[0] is not None for seed in range(100))
    assert alarms == 0  # of 100 runs of 300 tasks


def test_little_growth_is_not_worth_a_restart():
    assert found(250 * MB + np.arange(200) * 0.1 * MB) == (None, None)
    assert found(250 * MB + np.arange(80) * MB, work_bytes=2_000 * MB)[0] is None  # a tenth of it is 200 MB


def test_a_worker_that_was_started_again_begins_anew():
    watch = LeakWatch(300 * MB, 1)
    floors = [250 * MB + number * MB for number in range(400)]
    first = next(number for number, floor in enumerate(floors) if watch.add("node:1", floor))
    watch.forget("node:1")
    assert not any(watch.add("node:1", floor) for floor in floors[: first // 2])


def test_the_statistics_are_those_of_the_textbook():
    # Mann-Kendall of 1..8 with one swap: S = 26, var = 65.33, z = 25 / 8.083 = 3.09.
    assert trend_probability([1, 2, 4, 3, 5, 6, 7, 8]) == pytest.approx(0.000990, abs=2e-5)
    assert trend_probability([3, 2, 1]) == 1.0
    assert trend_probability([5, 5, 5, 5]) == 1.0
    assert theil_sen([10, 8, 6]) == -2.0


# In a process of its own: that of the tests has threads which take and free what they like.
CALLS = """
import numpy as np
from curator_df.memory.leaks import left_by

kept, kept_few = [], []
calls = [
    ("keeps", lambda: kept.append(np.ones(8_000_000, np.uint8))),
    ("keeps a little", lambda: kept_few.append(np.ones(1_000_000, np.uint8))),
    ("frees", lambda: np.ones(8_000_000, np.uint8)),
]
print(left_by(calls), len(kept), len(kept_few), sep=";")
"""


def test_the_call_that_leaves_memory_behind_is_named_after_few_calls_if_it_is_much():
    said = subprocess.check_output([sys.executable, "-c", CALLS], text=True, timeout=120)
    left, kept, kept_few = (ast.literal_eval(part) for part in said.split(";"))
    assert left == {"keeps": pytest.approx(8_000_000, rel=0.1), "keeps a little": pytest.approx(1_000_000, rel=0.1)}
    assert kept == 2  # so that its worker need not be restarted for it
    assert kept_few == 1 + PROBE_CALLS


@pytest.mark.parametrize(
    ("answer", "there", "gone"), [("OK", "new", True), ("timed out", "new", True), ("timed out", "old", False)]
)
def test_a_worker_that_is_slow_to_come_back_was_started_again(answer, there, gone):
    client = mock.Mock()
    before = {"old": {"nanny": "its nanny", "local_directory": "a"}}
    client.scheduler_info.side_effect = [
        {"workers": before},
        *[{"workers": {**(before if there == "old" else {}), there: {"local_directory": "a"}}}] * 3,
    ]
    client.restart_workers.return_value = {"old": answer}
    client.nthreads.return_value = {there: 1}
    assert restart(client, "old") is gone


def treated(gave, probed=("keep_where", MB), restarts=True, job_bytes=b"job", again=False):
    """Return what is told of a worker that held 40 MB more, when giving free pages back gives so much."""
    client = mock.Mock()  # whose scheduler never notices that a worker is gone
    client.run.side_effect = [{"tcp://a": "node:1"}, {"tcp://a": gave}, *[{"tcp://b": 0}] * 2]  # and what it holds then
    client.submit.return_value.result.return_value = dict([probed] if probed else [])
    client.scheduler_info.return_value = {"workers": {"tcp://a": {"nanny": "its nanny"}}}
    client.restart_workers.return_value = {"tcp://a": "OK"}
    client.nthreads.side_effect = lambda: {"tcp://b" if client.restart_workers.called else "tcp://a": 1}
    with mock.patch.object(cluster_client, "LEAVE_SECONDS", 0.1):
        told = diagnose_leak(client, Leak("node:1", 40, 40 * MB, MB, again), job_bytes, None, restarts=restarts)
    return told, client


def test_pages_that_were_only_kept_are_no_leak_and_it_is_said_what_giving_them_back_gave():
    told, client = treated(gave=30 * MB)
    assert told.only_kept
    assert "returning free pages freed 30 MB, so it is not a leak" in str(told)
    assert not client.submit.called
    assert not client.restart_workers.called


def test_a_worker_that_leaks_is_probed_and_started_again():
    told, client = treated(gave=2 * MB)
    assert (told.step, told.left_bytes, told.recycled, told.only_kept) == ("keep_where", MB, True, False)
    assert "freed 2 MB; keep_where leaves 1 MB behind at each block; the worker was restarted, no work was lost" in str(
        told
    )
    told, client = treated(gave=0, restarts=False)
    assert (told.step, told.recycled, client.restart_workers.called) == ("keep_where", False, False)
    assert str(told).endswith(
        "keep_where leaves 1 MB behind at each block; the worker was not restarted, because it has no nanny"
    )


@pytest.mark.parametrize("how", [{"probed": None}, pytest.param({"job_bytes": None}, marks=pytest.mark.proof)])
def test_where_no_step_is_seen_to_leave_memory_behind_a_worker_is_started_again_the_second_time(how):
    told, client = treated(gave=0, **how)
    assert (told.step, told.recycled, client.restart_workers.called) == ("", False, False)
    assert str(told).endswith(
        "; no step was found to leave memory behind, so it may be a cache that is filling up. The worker is checked again if it "
        "grows much more"
    )
    told, client = treated(gave=0, again=True, **how)
    assert (told.step, told.recycled) == ("", True)
    assert str(told).endswith("behind, and it continued to grow; the worker was restarted, no work was lost")
    told, client = treated(gave=0, again=True, restarts=False, **how)
    assert (told.recycled, client.restart_workers.called) == (False, False)
    assert str(told).endswith("and it continued to grow; the worker was not restarted, because it has no nanny")


def test_a_probe_whose_worker_crashes_ends_with_the_worker():
    client = mock.Mock()
    client.submit.return_value.result.side_effect = TimeoutError
    client.submit.return_value.done.return_value = False
    client.nthreads.side_effect = [{"tcp://a": 1}, {"tcp://b": 1}]
    assert recycling.probe(client, "tcp://a", b"job", None) is None
    assert client.submit.return_value.cancel.called
    assert client.submit.return_value.result.call_count == 2


def test_what_giving_back_gives_is_what_is_held_less(monkeypatch):
    held = iter([70 * MB, 40 * MB, 40 * MB, 41 * MB])
    monkeypatch.setattr(recycling, "status_bytes", lambda name: next(held))
    assert [recycling.given_back(), recycling.given_back()] == [30 * MB, 0]


SCRIPT = """
import json, sys
import numpy as np
import curator_df as cdf
from curator_df.core.runner import run

run.FEWEST_RANGES = 10_000
run.SMALL_RANGE_BYTES = 8_000 if sys.argv[3:] == ["leaks"] else 40_000  # two blocks a task, or ten
kept = []

def leaks(block):
    sys.modules.setdefault("_kept_by_leaks", kept).append(np.ones(1_000_000, np.uint8))
    return block.id % 5 != 0

def clean(block):
    np.ones(1_000_000, np.uint8)
    return block.id % 5 != 0

if __name__ == "__main__":
    source, target, step = sys.argv[1:4]
    docs = cdf.read_jsonl(source, blocksize="4kB").pipe(cdf.normalize_unicode).curate.keep_where(globals()[step])
    with cdf.start_cluster(memory="900MB", cpus=1) as cluster:
        receipt = cdf.write_parquet(docs, target)
    print(json.dumps(receipt.to_json()))
"""


@pytest.mark.proof
@pytest.mark.timeout(2_000)
@pytest.mark.parametrize(("step", "rows"), [("leaks", 1_200), ("clean", 20_000)])
def test_an_operator_that_leaks_a_megabyte_a_block_is_named_and_2000_clean_blocks_are_not(tmp_path, step, rows):
    (tmp_path / "script.py").write_text(SCRIPT)
    with open(tmp_path / "in.jsonl", "w") as file:
        file.writelines(json.dumps({"id": number, "text": f"{number} " * 70}) + "\n" for number in range(rows))
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "in.jsonl"), str(tmp_path / "out"), step]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_800, env={**os.environ}, check=False)
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout.splitlines()[-1])
    kept = [n for path in sorted((tmp_path / "out").glob("*.parquet")) for n in pq.read_table(path)["id"].to_pylist()]
    assert kept == [number for number in range(rows) if number % 5 != 0]
    assert receipt["rows_out_of_memory"] == 0
    if step == "clean":
        assert (tmp_path / "in.jsonl").stat().st_size > 2_000 * 3_800
        assert receipt["leaks"] == []
        return
    assert receipt["leaks"]
    assert all(leak["recycled"] for leak in receipt["leaks"] if leak["step"])
    assert all(leak["task_bytes"] > 1_000_000 for leak in receipt["leaks"])
    assert all(leak["given_back_bytes"] < leak["growth_bytes"] / 2 for leak in receipt["leaks"])
    named = [leak for leak in receipt["leaks"] if leak["step"]]
    assert {leak["step"] for leak in named} == {"keep_where"}
    assert named[0]["left_bytes"] == pytest.approx(1_000_000, rel=0.3)
    assert receipt["retries"] == {}  # no work was lost, and no allocation had to fail
    assert any("because keep_where leaves memory behind" in text for text in receipt["advice"])


HELD: list[bytearray] = []


def hold_more(block):
    """Leave 8 MB behind at each block; a range has many blocks."""
    HELD.append(bytearray(b"x") * 8 * MB)
    return block


@pytest.mark.slow
def test_one_worker_that_is_full_of_earlier_ranges_is_started_again_and_all_rows_are_written(
    tmp_path, monkeypatch, beside_tests
):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 4_000_000)
    row = json.dumps({"text": "word " * 120}) + "\n"
    (tmp_path / "in.jsonl").write_text(row * 60_000)
    with cdf.start_cluster(memory=beside_tests(900_000_000), cpus=1):
        docs = cdf.read_jsonl(tmp_path / "in.jsonl", blocksize="512kB")
        receipt = cdf.write_parquet(docs.map_partitions(hold_more, meta=docs._meta), tmp_path / "out")
    assert (receipt.rows_written, receipt.rows_quarantined) == (60_000, 0)
    assert set(receipt.retries) <= {"full worker"}
    assert [leak.recycled for leak in receipt.leaks] == [True] * len(receipt.leaks) != []

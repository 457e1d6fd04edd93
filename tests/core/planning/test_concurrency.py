# SPDX-License-Identifier: Apache-2.0
"""How many tasks a worker has at a time where a step's work is done elsewhere: judged by figures, and in real runs."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

import curator_df as cdf
from curator_df.core.planning import concurrency as module
from curator_df.core.planning.concurrency import ConcurrencyTuner
from curator_df.core.planning.lowering import lower
from curator_df.core.planning.plan import plan_stream
from curator_df.core.planning.price import task_bytes
from curator_df.core.planning.program import Step
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.ranges.step_counts import StepCounts
from curator_df.core.runner import run
from curator_df.core.runner.session import current_session
from curator_df.core.tasks import task as tasks
from curator_df.io.output.files import FileSink
from curator_df.io.output.formats import Folder, ParquetFormat
from curator_df.memory.budget import choose_layout
from tests.models.completion_server import completion_server

DEVICE_BYTES = 16_000_000_000


def come_back(balance, count, *, seconds, elsewhere):
    """Let tasks come back that took so long; return how often something was settled."""
    began_with = balance.extra_tasks
    done = [
        Manifest(0, seconds=seconds, elsewhere_seconds=elsewhere, steps=[StepCounts(bytes_in=1_000_000)])
        for _ in range(count)
    ]
    return sum(balance.add(began_with, manifest) for manifest in done)


def test_one_more_task_stays_where_more_text_comes_back():
    balance = ConcurrencyTuner(["ask"], workers=1, threads=1, most=1)
    assert "too few input splits" in str(balance)
    assert come_back(balance, 4, seconds=2.0, elsewhere=1.2) == 1
    assert balance.extra_tasks == 1
    assert come_back(balance, 5, seconds=2.4, elsewhere=1.2) == 1
    assert balance.extra_tasks == 1
    assert str(balance) == (
        "2 tasks run concurrently in each worker of 1 thread: 0.5 MB/s with 1, 0.833 MB/s with 2; "
        "ask took 50% of the time of a task, on a GPU or server"
    )
    assert come_back(balance, 9, seconds=9.0, elsewhere=1.2) == 0  # settled


def test_one_more_task_goes_again_where_it_wins_nothing():
    balance = ConcurrencyTuner(["ask"], workers=2, threads=2, most=2)
    come_back(balance, 8, seconds=2.0, elsewhere=1.0)
    assert balance.extra_tasks == 2
    come_back(balance, 16, seconds=4.0, elsewhere=3.0)  # 8 at a time and twice as long: nothing won
    assert balance.extra_tasks == 0
    assert str(balance).startswith(
        "2 tasks run concurrently in each worker of 2 threads: 2 MB/s with 2, 2 MB/s with 4; "
    )


def test_tasks_are_doubled_up_to_the_spare_cpus_however_little_works_elsewhere():
    balance, tried = ConcurrencyTuner(["embed"], workers=1, threads=1, most=8, spare_cpus=7), []
    for at_a_time in (1, 2, 4, 8):
        tried.append(balance.extra_tasks)
        assert come_back(balance, 2 * at_a_time + 2, seconds=1.0, elsewhere=0.02) == 1
    assert (tried, balance.extra_tasks) == ([0, 1, 3, 7], 7)
    assert str(balance) == (
        "8 tasks run concurrently in each worker of 1 thread and 7 more CPUs: 1 MB/s with 1, 2 MB/s with 2, 4 MB/s with 4, "
        "8 MB/s with 8; embed took 2% of the time of a task, on a GPU or server, so more tasks than CPUs would not help"
    )


def test_a_gpu_that_is_busy_all_the_time_is_not_asked_by_more_tasks():
    balance = ConcurrencyTuner(["embed"], workers=1, threads=1, most=8, spare_cpus=7)
    come_back(balance, 4, seconds=1.0, elsewhere=0.5)
    come_back(balance, 5, seconds=1.0, elsewhere=0.5)  # twice as much
    assert balance.extra_tasks == 3
    come_back(balance, 8, seconds=2.0, elsewhere=1.5)  # they wait for it
    assert balance.extra_tasks == 1
    assert str(balance).startswith("2 tasks run concurrently in each worker of 1 thread and 7 more CPUs: ")


def test_without_a_step_that_works_elsewhere_there_are_no_more_tasks_than_cpus():
    balance = ConcurrencyTuner([], workers=1, threads=1, most=9, spare_cpus=3)
    for at_a_time in (1, 2, 4):
        come_back(balance, 2 * at_a_time + 2, seconds=1.0, elsewhere=0.0)
    assert balance.extra_tasks == 3
    assert str(balance).endswith("more CPUs: 1 MB/s with 1, 2 MB/s with 2, 4 MB/s with 4")


def test_nothing_is_tried_where_a_step_takes_little_and_no_more_than_there_is_room_for():
    balance = ConcurrencyTuner(["ask", "ask"], workers=1, threads=2, most=1)
    come_back(balance, 5, seconds=2.0, elsewhere=0.1)
    assert balance.extra_tasks == 0
    assert str(balance).endswith(
        "ask took 5% of the time of a task, on a GPU or server, so more tasks than CPUs would not help"
    )
    balance = ConcurrencyTuner(["ask"], workers=1, threads=2, most=1)
    for wins in (1.0, 0.5, 0.25):
        come_back(balance, 6, seconds=wins, elsewhere=0.2)
    assert balance.extra_tasks == 1


def test_tasks_that_began_in_other_circumstances_do_not_count():
    balance = ConcurrencyTuner(["ask"], workers=1, threads=1, most=1)
    come_back(balance, 4, seconds=1.0, elsewhere=0.5)
    late = Manifest(0, seconds=100.0, elsewhere_seconds=1.0, steps=[StepCounts(bytes_in=1)])
    assert not any(balance.add(0, late) for _ in range(20))
    assert balance.extra_tasks == 1


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 6_000)
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": f"{n} text " * 20}) + "\n" for n in range(1_600)))
    return cdf.read_jsonl(str(path))


def device(texts):
    time.sleep(0.05)  # a GPU works
    return [[len(text)] for text in texts]


def quick_device(texts):
    return [[len(text)] for text in texts]


def slowly(block):
    time.sleep(0.05)  # a CPU works
    return block


def slowly_a_third(block):
    return slowly(block).iloc[::3]


def slow_cpu(block):
    time.sleep(0.3)  # so long that what a task costs besides does not count
    return block


def on_device(docs, model=device, clean=slowly):
    docs = docs.map_partitions(clean, meta=docs._meta)
    return docs.pipe(cdf.add_embedding, cdf.model(model, resources=cdf.resources(gpus=1)), dimensions=1)


def planned(docs, layout):
    return plan_stream(lower(docs), FileSink(Folder("out"), ParquetFormat("zstd"), 1), None, layout)


def test_a_plan_has_room_for_one_more_task_for_each_call_and_says_so(table):
    layout = dataclasses.replace(choose_layout(1_000_000_000, cpus=2), device_bytes=DEVICE_BYTES)
    plan, alone = planned(on_device(table), layout), planned(table.map_partitions(slowly, meta=table._meta), layout)
    assert (layout.threads, plan.stages[-1].extra_tasks, alone.stages[-1].extra_tasks) == (2, 1, 0)
    assert (
        "add_embedding: a GPU or a server does the work, so from 2 to 3 tasks run concurrently in each worker"
        in str(plan)
    )
    assert plan.projected_bytes == layout.reserved_bytes + 3 * plan.stages[-1].task_bytes <= layout.allowed_bytes
    assert alone.projected_bytes == layout.reserved_bytes + 2 * alone.stages[-1].task_bytes
    assert "tasks run concurrently in each worker" not in str(alone)


def test_where_blocks_would_be_too_small_there_are_no_more_tasks_than_threads(table):
    layout = dataclasses.replace(choose_layout(600_000_000, cpus=2), device_bytes=DEVICE_BYTES)
    plan = planned(on_device(table), layout)
    assert plan.stages[-1].extra_tasks == 0
    assert "the budget leaves no room for more tasks than threads" in str(plan)
    factor = plan.stages[-1].task_factor
    assert 3 * task_bytes(module.LEAST_BLOCK_BYTES, factor) > layout.work_bytes


def test_tasks_have_the_spare_cpus_of_a_worker_where_blocks_stay_on_the_host(table, monkeypatch):
    one = dataclasses.replace(choose_layout(2_000_000_000, cpus=1), device_bytes=DEVICE_BYTES, spare_cpus=3)
    plan, plain = planned(on_device(table), one), planned(table, one)
    assert (plan.stages[-1].extra_tasks, plain.stages[-1].extra_tasks) == (3 + 1, 3)
    assert plan.projected_bytes == one.reserved_bytes + 5 * plan.stages[-1].task_bytes <= one.allowed_bytes
    assert (
        "add_embedding: a GPU or a server does the work, and each worker has 3 more CPUs, so from 1 to 5 tasks run concurrently"
        in str(plan)
    )
    assert "blocks stay on the host, and each worker has 3 more CPUs, so from 1 to 4 tasks run concurrently" in str(
        plain
    )
    assert "add_embedding: at most 1 of the 5 tasks of a worker" in str(plan)
    monkeypatch.setattr(Step, "on_device", property(lambda step: True))
    plan = planned(on_device(table), one)
    assert plan.stages[-1].extra_tasks == 1  # each task has a block on the GPU
    assert plan.device_bytes <= DEVICE_BYTES


def test_calls_that_share_a_gpu_are_counted_for_as_many_tasks_as_there_may_be(table):
    layout = dataclasses.replace(choose_layout(2_000_000_000, cpus=1), device_bytes=DEVICE_BYTES)
    shared = table.pipe(cdf.add_embedding, cdf.model(device, resources=cdf.resources(gpus=0.25)), dimensions=1)
    plan = planned(shared, layout)
    assert plan.stages[-1].extra_tasks == 1
    assert plan.limits == (("add_embedding", 2),)  # a quarter of the GPU each, but no third task
    assert plan.device.held_bytes == DEVICE_BYTES // 2


@pytest.fixture(scope="module")
def cluster(beside_tests):
    with cdf.start_cluster(memory=beside_tests(900_000_000), cpus=1) as running:
        assert (running.layout.workers, running.layout.threads) == (1, 1)
        yield running


@pytest.fixture
def session(cluster):
    """The session of the cluster, as if its workers had devices."""
    running = current_session()
    running.layout = dataclasses.replace(cluster.layout, device_bytes=DEVICE_BYTES)
    yield running
    running.layout = cluster.layout


def test_a_task_cleans_while_another_has_the_device(table, session, tmp_path):
    texts = sorted(pd.read_json(tmp_path / "in.jsonl", lines=True).text)
    receipt = cdf.write_parquet(on_device(table), tmp_path / "out")
    said = receipt.settings["balance"]
    assert said.startswith("2 tasks run concurrently in each worker of 1 thread: ")
    assert "add_embedding took" in said
    assert any("2 tasks run concurrently" in event.text for event in receipt.events)
    assert receipt.measured_bytes <= receipt.projected_bytes <= receipt.allowed_bytes
    assert not receipt.retries
    assert sorted(pd.read_parquet(tmp_path / "out").text) == texts
    assert said in receipt._repr_html_()


def test_while_a_gpu_waits_more_tasks_clean_on_the_spare_cpus_of_its_worker(table, session, tmp_path):
    session.layout = dataclasses.replace(session.layout, spare_cpus=3)
    receipt = cdf.write_parquet(on_device(table, quick_device, slow_cpu), tmp_path / "out")
    said = receipt.settings["balance"]
    assert said.startswith("4 tasks run concurrently in each worker of 1 thread and 3 more CPUs: ")
    assert receipt.rows_written == 1_600
    assert receipt.measured_bytes <= receipt.projected_bytes <= receipt.allowed_bytes
    plain = cdf.write_parquet(table.map_partitions(slow_cpu, meta=table._meta), tmp_path / "plain")
    assert plain.settings["balance"].startswith("4 tasks run concurrently in each worker of 1 thread and 3 more CPUs: ")


def test_a_server_that_answers_slowly_is_asked_while_another_task_cleans(table, session, tmp_path):
    pytest.importorskip("httpx", reason="needs the completions extra (httpx is not installed)")
    with completion_server() as server:
        server.seconds = 0.015
        how = {"base_url": server.base_url, "model": "m", "cache": tmp_path / "cache", "max_concurrent": 8}
        docs = table.map_partitions(slowly_a_third, meta=table._meta).pipe(cdf.add_completion, "{text}", **how)
        receipt = cdf.write_parquet(docs, tmp_path / "out")
    assert 500 < receipt.rows_written < 600
    said = receipt.settings["balance"]
    assert "add_completion took" in said
    assert said.startswith(("1 task run concurrently", "2 tasks run concurrently"))
    assert server.most_at_a_time <= 8


def test_a_chain_that_works_on_its_cpus_has_nothing_to_balance(table, session, tmp_path):
    receipt = cdf.write_parquet(table.map_partitions(slowly, meta=table._meta), tmp_path / "out")
    assert "balance" not in receipt.settings


def test_no_more_tasks_leave_their_threads_than_may(monkeypatch):
    left, lock, together = [], threading.Lock(), threading.Barrier(6, timeout=60)
    monkeypatch.setattr(tasks, "secede", lambda: left.append(tasks.seceded_tasks()))

    def task(_):
        with tasks.allow_secede(2):
            together.wait()
            with lock:
                tasks.secede_if_allowed()
            together.wait()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(task, range(6)))
    assert (len(left), tasks.seceded_tasks()) == (2, 0)
    with tasks.allow_secede(0):
        tasks.secede_if_allowed()
    assert len(left) == 2

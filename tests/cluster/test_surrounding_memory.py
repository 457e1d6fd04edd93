# SPDX-License-Identifier: Apache-2.0
"""The layout of a cluster follows from what its processes hold, by literal figures and in processes that hold more than usual."""

import json
import math
import os
import re
import subprocess
import sys

import pytest

from curator_df.cluster.cuda import Devices, gpu_layout
from curator_df.cluster.surroundings import Held, fits, measure_held, require_room, smaller_layout
from curator_df.errors import BudgetError
from curator_df.memory.budget import MIN_THREAD_BYTES, choose_layout
from curator_df.memory.counted_memory import tree_bytes

MB = 1_000_000


def chosen(allowed_mb, cpus=2):
    return choose_layout(allowed_mb * MB, cpus=cpus), lambda baseline: choose_layout(
        allowed_mb * MB, cpus=cpus, baseline=baseline
    )


@pytest.mark.quick
def test_what_is_held_as_assumed_or_a_little_more_changes_nothing():
    for allowed_mb, workers in ((450, 0), (600, 1), (1_000, 1), (1_500, 2)):
        layout, _ = chosen(allowed_mb)
        client_mb = 140 if workers else 195
        assert fits(layout, Held((client_mb + 145 * workers + 100) * MB, (145 * MB,) * workers))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("allowed_mb", "before", "client_mb", "worker_mb", "shape", "thread_mb"),
    [
        # Two processes would leave less than 320 MB each.
        (1_500, "2 worker processes x 1 thread", 290, 310, "1 worker process x 2 threads", 352),
        (2_200, "2 worker processes x 1 thread", 290, 310, "2 worker processes x 1 thread", 537),
        (1_000, "1 worker process x 2 threads", 290, 310, "1 worker process x 2 threads", 110),
        (850, "1 worker process x 2 threads", 290, 310, "1 worker process x 1 thread", 74),
        (700, "1 worker process x 2 threads", 290, 310, "2 threads of this process", 119),
        (600, "1 worker process x 2 threads", 290, 310, "2 threads of this process", 71),
        (500, "2 threads of this process", 380, 0, "1 thread of this process", 48),
    ],
)
def test_a_cluster_that_holds_more_gets_less_for_work_then_fewer_threads_then_one_process(
    allowed_mb, before, client_mb, worker_mb, shape, thread_mb
):
    layout, choose = chosen(allowed_mb)
    workers = 0 if layout.in_process else layout.workers
    held = Held((client_mb + worker_mb * workers) * MB, (worker_mb * MB,) * workers)
    assert (layout.shape, fits(layout, held)) == (before, False)
    smaller = smaller_layout(layout, held, choose)
    assert (smaller.shape, smaller.thread_bytes // MB) == (shape, thread_mb)
    assert "; this session holds " in smaller.reason


@pytest.mark.quick
def test_only_where_not_even_one_thread_fits_a_cluster_is_refused_with_memory_that_is_enough():
    layout, choose = chosen(450)
    held = Held(400 * MB)
    with pytest.raises(BudgetError, match="this session holds 400 MB") as refused:
        smaller_layout(layout, held, choose)
    with pytest.raises(BudgetError, match="not even the smallest layout fits"):
        require_room(layout, held)
    named = int(re.search(r"memory='(\d+)MB'", str(refused.value))[1])
    enough = choose_layout(named * MB, cpus=2, baseline=held.baseline)
    assert fits(enough, held)
    assert enough.thread_bytes >= MIN_THREAD_BYTES
    with pytest.raises(BudgetError):
        choose_layout(math.floor(named * 0.97) * MB, cpus=2, baseline=held.baseline)


@pytest.mark.quick
def test_workers_with_a_gpu_each_are_never_fewer():
    devices = Devices(("0", "1"), 10**9, 2 * 10**9)
    layout = gpu_layout(1_500 * MB, devices, 0, 4)
    held = Held(1_150 * MB, (450 * MB, 460 * MB))
    assert not fits(layout, held)
    smaller = smaller_layout(layout, held, lambda baseline: gpu_layout(1_500 * MB, devices, 0, 4, baseline=baseline))
    assert (smaller.workers, smaller.threads, fits(smaller, held)) == (2, 1, True)
    with pytest.raises(BudgetError, match="use about memory="):
        smaller_layout(
            layout,
            Held(1_600 * MB, (650 * MB, 660 * MB)),
            lambda baseline: gpu_layout(1_500 * MB, devices, 0, 4, baseline=baseline),
        )


@pytest.mark.quick
def test_what_is_held_is_that_of_the_tree_and_of_the_workers_in_it():
    held = measure_held([os.getpid(), 2**22 - 1])
    assert held.total_bytes == pytest.approx(tree_bytes(os.getpid()), rel=0.1)
    assert len(held.workers) == 1
    assert 0 <= held.baseline.client_bytes < held.total_bytes


HOLDS = """
import os

held = b"x" * int(os.environ["HELD_MB"]) * 10**6
"""
RUN = """
import json, os, sys
import curator_df as cdf
from curator_df.memory.counted_memory import tree_bytes
from curator_df.core.runner.session import current_session

if __name__ == "__main__":
    memory, cpus, corpus, out = sys.argv[1:]
    docs = cdf.read_jsonl(corpus).pipe(cdf.normalize_unicode).curate.keep_where("id % 2 == 0")
    try:
        with cdf.start_cluster(memory=memory, cpus=int(cpus), dashboard_port=None) as cluster:
            layout = cluster.layout
            held = tree_bytes(os.getpid(), excluded=current_session().sampler.pid)
            limits = cluster.client.run(lambda dask_worker: os.environ.get("CURATOR_DF_WORK_BYTES"))
            receipt = cdf.write_parquet(docs, out)
    except cdf.errors.BudgetError as exc:
        print(json.dumps({"refused": str(exc)}))
    else:
        told = {"shape": layout.shape, "in_process": layout.in_process, "workers": layout.workers, "held": held}
        told |= {"work": layout.workers * layout.work_bytes, "limits": list(limits.values()), "why": layout.reason}
        told |= {"of_each": layout.work_bytes, "rows": receipt.rows_written}
        told |= {"bytes": [receipt.measured_bytes, receipt.projected_bytes, receipt.allowed_bytes]}
        print(json.dumps(told))
"""


@pytest.fixture
def run(tmp_path):
    """Run a script in an interpreter in which each process holds more before any work."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more/sitecustomize.py").write_text(HOLDS)
    (tmp_path / "script.py").write_text(RUN)
    with open(tmp_path / "a.jsonl", "w") as file:
        file.writelines(json.dumps({"id": n, "text": f"line {n} " * 400}) + "\n" for n in range(4_000))

    def run(memory, cpus, more_mb):
        path = os.pathsep.join(filter(None, [str(tmp_path / "more"), os.environ.get("PYTHONPATH")]))
        out = tmp_path / f"out {memory}"
        done = subprocess.run(
            [sys.executable, tmp_path / "script.py", memory, str(cpus), tmp_path / "a.jsonl", out],
            env={**os.environ, "PYTHONPATH": path, "HELD_MB": str(more_mb)},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize(
    ("memory", "cpus", "in_process"),
    [
        # In one process there is the test below, and shapes follow from the literal figures above.
        pytest.param("450MB", 2, True, marks=pytest.mark.proof),
        pytest.param("600MB", 2, True, marks=pytest.mark.proof),
        pytest.param("1GB", 16, False, marks=pytest.mark.proof),
        ("2GB", 2, False),
    ],
)
def test_where_each_process_holds_150_mb_more_a_run_keeps_the_budget_all_the_same(run, memory, cpus, in_process):
    told = run(memory, cpus, 150)
    assert told["in_process"] == in_process, told
    measured, projected, allowed = told["bytes"]
    assert told["held"] + told["work"] <= allowed, told
    assert told["held"] > 270 * MB, "the hook of this test has no effect"  # 140 MB of it without the hook
    assert measured <= projected <= allowed, told
    assert told["rows"] == 2_000
    if not in_process:
        assert "this session holds" in told["why"]
        assert told["limits"] == [str(told["of_each"])] * told["workers"]  # of workers that a nanny starts again, too


def test_where_each_process_holds_too_much_the_named_memory_is_enough(run):
    said = run("450MB", 2, 230)["refused"]
    told = run(re.findall(r"memory='([\d.]+[MG]B)'", said)[-1], 2, 230)
    assert told.get("rows") == 2_000, (said, told)

# SPDX-License-Identifier: Apache-2.0
"""Jobs of a real Slurm: workers come up within their limits, and jobs cancelled in mid-run change nothing."""

import importlib.util
import json
import os
import time

import pandas as pd
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.cluster import batch, job_keeper
from curator_df.cluster import jobs as jobs_module
from curator_df.core.runner import run
from curator_df.core.runner.events import TaskEnded
from curator_df.core.runner.session import current_session
from tests.cluster.slurm_machine import running_slurm, slurm, why_no_slurm

pytestmark = [pytest.mark.proof, pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm() or "Slurm is here")]

ROWS = 4000
START_SECONDS = 180


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory):
    with running_slurm(tmp_path_factory.mktemp("slurm")):
        yield


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 100_000)  # many ranges from a small corpus
    (tmp_path / "in").mkdir()
    rows = [{"id": n, "text": f"row {n % 900} " + "some words that make a text long enough " * 10} for n in range(ROWS)]
    (tmp_path / "in/a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "in"


def chain(source):
    def slowly(block):
        time.sleep(0.1)  # so that jobs can be cancelled while there is work
        return block.id % 7 != 0

    docs = cdf.read_jsonl(source, blocksize="50kB").pipe(cdf.normalize_unicode).pipe(cdf.keep_where, slowly)
    return docs.pipe(cdf.drop_exact_duplicates)


def jobs():
    return slurm("squeue", "-h", "-t", "running,pending", "-o", "%i").split()


def cluster(tmp_path, processes=1, **options):
    where = {"partition": "cpu", "job_directory": tmp_path / "jobs"}
    made = cdf.slurm_cluster(
        memory=900_000_000 * processes, cpus=processes, queue_timeout=START_SECONDS, **where, **options
    )
    assert made.layout.node_workers == processes
    return made


def wait_until(is_so):
    deadline = time.monotonic() + START_SECONDS
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert is_so()


@pytest.mark.parametrize("processes", [1, 2])
def test_cancelled_jobs_are_sent_again_and_change_nothing(processes, corpus, tmp_path):
    cancelled, ended = [], []

    def cancel_jobs(event):
        ended.append(isinstance(event, TaskEnded))
        if sum(ended) == 3:  # one of two goes
            cancelled.append(slurm("squeue", "-h", "-o", "%i").split()[0])
            slurm("scancel", cancelled[-1])
        if sum(ended) == 12:  # and all of them
            cancelled.extend(jobs())
            slurm("scancel", *jobs())

    with cluster(tmp_path, processes, jobs=2) as there:
        assert f"#SBATCH --mem={-(-900_000_000 * processes // 2**20)}M" in there.job_script
        assert there.client.scheduler.address.startswith("tls://")
        current_session().watchers.append(cancel_jobs)
        receipt = cdf.write_parquet(chain(corpus), tmp_path / "out", rejects=tmp_path / "rejects")
        assert len(cancelled) >= 2
        wait_until(lambda: len(set(jobs()) - set(cancelled)) == 2)
    with cdf.start_cluster(memory="4GB", cpus=1):
        alone = cdf.write_parquet(chain(corpus), tmp_path / "alone", rejects=tmp_path / "alone_rejects")
    assert receipt.rows_read == alone.rows_read == ROWS
    assert receipt.rows_written == alone.rows_written > 0
    for ours, plain in ((tmp_path / "out", tmp_path / "alone"), (tmp_path / "rejects", tmp_path / "alone_rejects")):
        pd.testing.assert_frame_equal(pd.read_parquet(ours), pd.read_parquet(plain))
    wait_until(lambda: jobs() == [])


def test_workers_leave_before_their_time_is_up_and_others_go_on(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "lifetime", lambda _: ["--lifetime", "14s", "--lifetime-stagger", "4s"])
    monkeypatch.setattr(job_keeper, "ASK_SECONDS", 2.0)
    seen = set()
    with cluster(tmp_path, jobs=2):
        current_session().watchers.append(lambda _: seen.update(jobs()))

        def slowly(block):
            time.sleep(0.4)
            return block.id % 7 != 0

        docs = cdf.read_jsonl(corpus, blocksize="20kB").pipe(cdf.keep_where, slowly)
        receipt = cdf.write_parquet(docs, tmp_path / "out")
    assert len(seen) > 2
    assert receipt.rows_read == ROWS
    assert pd.read_parquet(tmp_path / "out")["id"].tolist() == [n for n in range(ROWS) if n % 7]
    said = "".join(log.read_text() for log in (tmp_path / "jobs").glob("*.err"))
    assert "worker-lifetime-reached" in said  # it left by itself, and was not killed


def test_jobs_come_and_go_with_the_work(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(job_keeper, "LOOKS_BEFORE_END", 2)
    with cluster(tmp_path, 2, jobs=(0, 1)):
        assert jobs() == []
        receipt = cdf.write_parquet(cdf.read_jsonl(corpus), tmp_path / "out")
        wait_until(lambda: jobs() == [])
    assert receipt.rows_written == ROWS


def test_a_job_that_is_cancelled_before_its_workers_come_is_sent_again(tmp_path, monkeypatch):
    monkeypatch.setattr(job_keeper, "ASK_SECONDS", 2.0)
    first_waits = f"mkdir {tmp_path}/first 2> /dev/null && sleep 600"
    with cluster(tmp_path, 2, jobs=2, prologue=[first_waits]) as there:
        there.client.wait_for_workers(2, timeout=START_SECONDS)
        (with_workers,) = set(there.client.run(lambda: os.environ["SLURM_JOB_ID"]).values())
        (cancelled,) = set(jobs()) - {with_workers}
        slurm("scancel", cancelled)
        there.client.wait_for_workers(4, timeout=START_SECONDS)
        assert len(jobs()) == 2
        assert with_workers in jobs()


def test_jobs_that_end_before_their_workers_come_are_not_sent_without_end(tmp_path, monkeypatch):
    for name, value in {"ASK_SECONDS": 1.0, "LEAST_WAIT_SECONDS": 0.1, "MOST_FRUITLESS": 3}.items():
        monkeypatch.setattr(job_keeper, name, value)
    said = rf"3 times in a row, jobs of slurm came to nothing: job \d+ ended before(?s:.*){tmp_path}/jobs"
    with (
        pytest.raises(errors.NoClusterError, match=said),
        cluster(tmp_path, jobs=1, prologue=["echo no such module >&2; exit 1"]),
    ):
        pytest.fail("a job has started a worker")
    logs = list((tmp_path / "jobs").glob("*.err"))
    assert [log.read_text() for log in logs] == ["no such module\n"] * 3
    assert jobs() == []


@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(importlib.util.find_spec("dask_cuda") is None, reason="needs the gpu extra (dask-cuda)")
def test_a_job_starts_a_worker_of_dask_cuda_for_each_of_its_gpus(corpus, tmp_path, monkeypatch):
    # There is no GPU: dask-cuda goes without one by its own switch, and what its workers would say of theirs is not asked.
    monkeypatch.setenv("DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC", "1")
    asked = []
    monkeypatch.setattr(jobs_module, "verified_devices", lambda client, allowed_bytes: asked.append(allowed_bytes))
    budget = {"memory": "3GB", "cpus": 2, "gpus": 2, "device_memory": "10GB"}
    with cdf.slurm_cluster(
        **budget, partition="cpu", job_directory=tmp_path / "jobs", queue_timeout=START_SECONDS
    ) as there:
        assert asked == [10_000_000_000]
        there.client.wait_for_workers(2, timeout=START_SECONDS)
        seen = there.client.run(lambda: (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["SLURM_JOB_ID"]))
        assert sorted(gpus for gpus, _ in seen.values()) == ["0,1", "1,0"]
        assert len({job for _, job in seen.values()}) == 1
        receipt = cdf.write_parquet(cdf.read_jsonl(corpus), tmp_path / "out")
    assert receipt.rows_written == ROWS


def test_what_slurm_says_to_a_wrong_job_is_in_the_error(tmp_path):
    with (
        pytest.raises(errors.NoClusterError, match=r"slurm did not take the job:(?s:.*)[Ii]nvalid partition"),
        cdf.slurm_cluster(memory="1GB", cpus=1, partition="nowhere", job_directory=tmp_path / "jobs"),
    ):
        pytest.fail("a job was taken")
    with (
        pytest.raises(errors.NoClusterError, match=r"within queue_timeout=1 s(?s:.*)longer timeout"),
        cdf.slurm_cluster(memory="1GB", cpus=1, jobs=1, job_directory=tmp_path / "jobs", queue_timeout=1),
    ):
        pytest.fail("a job cannot start a worker in a second")

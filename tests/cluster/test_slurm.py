# SPDX-License-Identifier: Apache-2.0
"""Jobs of a real Slurm: workers come up within their limits, and jobs cancelled in mid-run change nothing."""

import importlib.util
import os

import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.cluster import job_keeper
from curator_df.cluster import jobs as jobs_module
from tests.cluster.batch_runs import (
    ROWS,
    START_SECONDS,
    check_cancelled_jobs,
    check_late_job,
    check_lifetime,
    wait_until,
    write_corpus,
)
from tests.cluster.slurm_machine import running_slurm, slurm, why_no_slurm

pytestmark = [pytest.mark.proof, pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm() or "Slurm is here")]


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory):
    with running_slurm(tmp_path_factory.mktemp("slurm")):
        yield


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    return write_corpus(tmp_path / "in", monkeypatch)


def jobs():
    return slurm("squeue", "-h", "-t", "running,pending", "-o", "%i").split()


def cancel(*numbers):
    slurm("scancel", *numbers)


def cluster(tmp_path, processes=1, **options):
    where = {"partition": "cpu", "job_directory": tmp_path / "jobs"}
    made = cdf.slurm_cluster(
        memory=900_000_000 * processes, cpus=processes, queue_timeout_seconds=START_SECONDS, **where, **options
    )
    assert made.layout.node_workers == processes
    return made


@pytest.mark.parametrize("processes", [1, 2])
def test_cancelled_jobs_are_sent_again_and_change_nothing(processes, corpus, tmp_path):
    made = cluster(tmp_path, processes, jobs=2)
    assert f"#SBATCH --mem={-(-900_000_000 * processes // 2**20)}M" in made.job_script
    check_cancelled_jobs(made, jobs, cancel, corpus, tmp_path)


def test_workers_leave_before_their_time_is_up_and_others_go_on(corpus, tmp_path, monkeypatch):
    check_lifetime(cluster, jobs, corpus, tmp_path, monkeypatch)


def test_jobs_come_and_go_with_the_work(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(job_keeper, "LOOKS_BEFORE_END", 2)
    with cluster(tmp_path, 2, jobs=(0, 1)):
        assert jobs() == []
        receipt = cdf.write_parquet(cdf.read_jsonl(corpus), tmp_path / "out")
        wait_until(lambda: jobs() == [])
    assert receipt.rows_written == ROWS


def test_a_job_that_is_cancelled_before_its_workers_come_is_sent_again(tmp_path, monkeypatch):
    check_late_job(cluster, jobs, cancel, "SLURM_JOB_ID", tmp_path, monkeypatch)


def test_jobs_that_end_before_their_workers_come_are_not_sent_without_end(tmp_path, monkeypatch):
    for name, value in {"ASK_SECONDS": 1.0, "LEAST_WAIT_SECONDS": 0.1, "MOST_FRUITLESS": 3}.items():
        monkeypatch.setattr(job_keeper, name, value)
    said = rf"Jobs of slurm failed to start a worker 3 times in a row: job \d+ ended before(?s:.*){tmp_path}/jobs"
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
        **budget, partition="cpu", job_directory=tmp_path / "jobs", queue_timeout_seconds=START_SECONDS
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
        pytest.raises(errors.NoClusterError, match=r"slurm refused the job:(?s:.*)[Ii]nvalid partition"),
        cdf.slurm_cluster(memory="1GB", cpus=1, partition="nowhere", job_directory=tmp_path / "jobs"),
    ):
        pytest.fail("a job was taken")
    with (
        pytest.raises(
            errors.NoClusterError, match=r"within queue_timeout_seconds=1 s(?s:.*)larger queue_timeout_seconds="
        ),
        cdf.slurm_cluster(memory="1GB", cpus=1, jobs=1, job_directory=tmp_path / "jobs", queue_timeout_seconds=1),
    ):
        pytest.fail("a job cannot start a worker in a second")

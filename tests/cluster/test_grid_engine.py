# SPDX-License-Identifier: Apache-2.0
"""Jobs of a real Grid Engine: workers come up within their limits, and jobs cancelled in mid-run change nothing."""

import os
import time

import psutil
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.cluster import job_keeper
from curator_df.core.runner.session import current_session
from tests.cluster.batch_runs import (
    ROWS,
    START_SECONDS,
    check_cancelled_jobs,
    check_late_job,
    check_lifetime,
    wait_until,
    write_corpus,
)
from tests.cluster.grid_engine_machine import grid_engine, running_grid_engine, why_no_grid_engine

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(bool(why_no_grid_engine()), reason=why_no_grid_engine() or "Grid Engine is here"),
]


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory):
    with running_grid_engine(tmp_path_factory.mktemp("grid_engine")):
        yield


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    return write_corpus(tmp_path / "in", monkeypatch)


def jobs():
    """Return the numbers of the jobs that run or wait, and are not being deleted."""
    rows = [line.split() for line in grid_engine("qstat").splitlines()[2:]]
    return [row[0] for row in rows if "d" not in row[4]]


def delete(*numbers):
    grid_engine("qdel", *numbers)


def job_processes():
    """Return the processes of all jobs, by the folder that Grid Engine names to them."""
    environments = {there.pid: there.info["environ"] or {} for there in psutil.process_iter(["environ"])}
    folders = {pid: environment.get("SGE_JOB_SPOOL_DIR", "") for pid, environment in environments.items()}
    return [pid for pid, folder in folders.items() if folder.startswith(os.environ["SGE_ROOT"])]


def cluster(tmp_path, processes=1, resource="mem_free=900M", **options):
    directives = [f"-l {resource}", *[f"-pe smp {processes}"] * (processes > 1), *options.pop("directives", [])]
    where = {"queue": "all.q", "job_directory": tmp_path / "jobs", "queue_timeout_seconds": START_SECONDS}
    budget = {"memory": 900_000_000 * processes, "cpus": processes}
    made = cdf.job_cluster("sge", directives=directives, **budget, **{**where, **options})
    assert made.layout.node_workers == processes
    return made


# One that is counted only, and one that also limits the address space of each process, by its slots.
@pytest.mark.parametrize(("processes", "resource"), [(1, "h_vmem=1500M"), (2, "mem_free=900M")])
def test_deleted_jobs_are_sent_again_and_change_nothing(processes, resource, corpus, tmp_path):
    made = cluster(tmp_path, processes, resource, jobs=2)
    assert {f"#$ -l {resource}", "#$ -S /bin/bash"} <= set(made.job_script.splitlines())
    seen = []

    def look_and_delete(*numbers):
        seen.append(job_processes())
        delete(*numbers)

    check_cancelled_jobs(made, jobs, look_and_delete, corpus, tmp_path)
    assert all(seen)
    wait_until(lambda: job_processes() == [])


def test_workers_leave_before_their_time_is_up_and_others_go_on(corpus, tmp_path, monkeypatch):
    check_lifetime(cluster, jobs, corpus, tmp_path, monkeypatch)


@pytest.mark.parametrize(("least", "most"), [(0, 1), (1, 2)])
def test_jobs_come_and_go_with_the_work(least, most, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(job_keeper, "LOOKS_BEFORE_END", 2)
    seen = []

    def slowly(block):
        time.sleep(0.4)
        return block.id >= 0

    with cluster(tmp_path, 2, jobs=(least, most)):
        assert len(jobs()) == least
        current_session().watchers.append(lambda _: seen.append(len(jobs())))
        receipt = cdf.write_parquet(
            cdf.read_jsonl(corpus, blocksize="20kB").pipe(cdf.keep_where, slowly), tmp_path / "out"
        )
        assert max(seen) == most
        wait_until(lambda: len(jobs()) == least)
    assert receipt.rows_written == ROWS
    wait_until(lambda: jobs() == [])


def test_a_job_that_is_deleted_before_its_workers_come_is_sent_again(tmp_path, monkeypatch):
    check_late_job(cluster, jobs, delete, "JOB_ID", tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("options", "said", "logs"),
    [
        ({"prologue": ["echo no such module >&2; exit 1"]}, "had connected. What", ["no such module\n"] * 3),
        # Nothing of it runs: Grid Engine keeps it in error.
        ({"directives": ["-wd /nowhere"]}, r"had connected \(state in sge: Eqw\). The output", []),
    ],
)
def test_jobs_that_come_to_nothing_are_not_sent_without_end(options, said, logs, tmp_path, monkeypatch):
    for name, value in {"ASK_SECONDS": 1.0, "LEAST_WAIT_SECONDS": 0.1, "MOST_FRUITLESS": 3}.items():
        monkeypatch.setattr(job_keeper, name, value)
    problem = (
        rf"failed to start a worker 3 times in a row: job \d+ ended before a worker of it {said}(?s:.*){tmp_path}/jobs"
    )
    with pytest.raises(errors.NoClusterError, match=problem), cluster(tmp_path, jobs=1, **options):
        pytest.fail("a job has started a worker")
    assert [log.read_text() for log in (tmp_path / "jobs").glob("*.o*")] == logs
    assert jobs() == []


def test_grid_engine_reads_the_directives_as_they_are_meant(tmp_path):
    budget = {"memory": "3GB", "cpus": 2, "gpus": 2, "device_memory": "10GB", "walltime": "02:00:00"}
    directives = ["-l mem_free=1431M,gpu=1", "-pe smp 2"]
    made = cdf.job_cluster("sge", **budget, directives=directives, queue="all.q", job_directory=tmp_path)
    try:
        (tmp_path / "script").write_text(made.job_script)
    finally:
        made.close()
    number = grid_engine("qsub", "-terse", "-h", str(tmp_path / "script")).strip()
    try:
        job = dict(line.split(":", 1) for line in grid_engine("qstat", "-j", number).splitlines()[1:])
    finally:
        grid_engine("qdel", number)
    read = {name: value.strip() for name, value in job.items()}
    assert read["hard resource_list"] == "h_rt=7200,mem_free=1431M,gpu=1"
    assert (read["hard_queue_list"], read["parallel environment"]) == ("all.q", "smp range: 2")
    assert (read["shell_list"], read["job_name"]) == ("NONE:/bin/bash", "curator-df")
    assert read["stdout_path_list"] == f"NONE:NONE:{tmp_path}/"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": "nowhere"}, 'unknown queue "nowhere"'),
        ({"resource": "m_mem_free=900M"}, 'unknown resource "m_mem_free"'),
        ({"directives": ["-pe mpi 2"]}, '"mpi" does not exist'),
        ({"resource": "mem_free=900T", "directives": ["-w e"]}, "no suitable queues"),
    ],
)
def test_what_grid_engine_says_to_a_wrong_job_is_in_the_error(options, said, tmp_path):
    with (
        pytest.raises(errors.NoClusterError, match=rf"sge refused the job:(?s:.*){said}"),
        cluster(tmp_path, **options),
    ):
        pytest.fail("a job was taken")
    assert jobs() == []


def test_a_job_that_does_not_start_in_time_does_not_stay(tmp_path):
    with (
        pytest.raises(
            errors.NoClusterError, match=r"within queue_timeout_seconds=1 s(?s:.*)larger queue_timeout_seconds="
        ),
        cluster(tmp_path, resource="mem_free=900T", queue_timeout_seconds=1),
    ):
        pytest.fail("a node cannot have that much")
    assert jobs() == []


def test_a_job_that_is_refused_and_queued_all_the_same_does_not_stay(tmp_path):
    (tmp_path / "others").write_text("name others\ntype ACL\nfshare 0\noticket 0\nentries nobody\n")
    grid_engine("qconf", "-Au", str(tmp_path / "others"))
    grid_engine("qconf", "-aattr", "queue", "user_lists", "others", "all.q")
    try:
        with (
            pytest.raises(errors.NoClusterError, match=r"not allowed to run in any queue(?s:.*)has been submitted"),
            cluster(tmp_path, jobs=2),
        ):
            pytest.fail("a job was taken")
        wait_until(lambda: jobs() == [])
    finally:
        grid_engine("qconf", "-dattr", "queue", "user_lists", "others", "all.q")

# SPDX-License-Identifier: Apache-2.0
"""How many jobs are sent, ended, and sent again, by looks at a cluster that does nothing; `test_slurm.py` has real jobs."""

import asyncio
import itertools
import logging
from types import SimpleNamespace

import pytest

from curator_df.cluster import job_keeper
from curator_df.cluster.job_keeper import JobKeeper


class QuietCluster:
    """What a keeper sees of Dask's cluster: jobs that nobody runs."""

    def __init__(self):
        self.worker_spec, self.workers, self.new_spec, self.cancelled = {}, {}, {}, []
        self.target, self.refuses = 0, ""
        self.numbers = itertools.count(1)
        self.scheduler = SimpleNamespace(workers={}, adaptive_target=lambda: self.target, retire_workers=self.retire)

    def _new_worker_name(self, number):
        return f"job-{number}"

    async def _correct_state(self):
        for job in self.workers.keys() - self.worker_spec.keys():
            self.cancelled.append(job)
            del self.workers[job]
        for job in sorted(self.worker_spec.keys() - self.workers.keys()):
            self.workers[job] = SimpleNamespace(job_id=None if self.refuses else str(next(self.numbers)))
        if self.refuses:
            raise RuntimeError(self.refuses)

    async def retire(self, names, close_workers):
        for name in names:
            self.leave(name)

    def come(self, *names):
        for name in names:
            self.scheduler.workers[name] = SimpleNamespace(name=name, processing={})

    def leave(self, *names):
        for name in names:
            del self.scheduler.workers[name]


@pytest.fixture
def cluster():
    return QuietCluster()


@pytest.fixture
def ended(monkeypatch):
    """Numbers of jobs that the batch system says have ended."""
    numbers = set()
    monkeypatch.setattr(job_keeper, "ended_jobs", lambda system, asked: dict.fromkeys(numbers & set(asked), "FAILED"))
    return numbers


@pytest.fixture
def clock(monkeypatch):
    at = SimpleNamespace(now=0.0)
    monkeypatch.setattr(job_keeper, "time", SimpleNamespace(monotonic=lambda: at.now))
    return at


def keeper_of(cluster, jobs, processes=2):
    least, most = jobs
    layout = SimpleNamespace(node_workers=processes)
    keeper = JobKeeper(
        cluster, SimpleNamespace(system="slurm", job_directory="/logs", least_jobs=least, most_jobs=most, layout=layout)
    )
    keeper._add(least)
    asyncio.run(cluster._correct_state())
    return keeper


def look(keeper, clock, seconds, every=2.0):
    end = clock.now + seconds
    while clock.now < end:
        clock.now += every
        asyncio.run(keeper._look(clock.now))


def test_another_job_is_sent_for_one_that_ended_with_all_its_workers(cluster, ended, clock):
    keeper = keeper_of(cluster, (2, 2))
    cluster.come("job-0-0", "job-0-1", "job-1-0", "job-1-1")
    look(keeper, clock, 60)
    cluster.leave("job-0-0")  # the other one goes on
    look(keeper, clock, 600)
    assert list(cluster.worker_spec) == ["job-0", "job-1"]
    cluster.leave("job-0-1")
    ended.add("1")
    look(keeper, clock, job_keeper.ASK_SECONDS + 4)
    assert cluster.workers.keys() == cluster.worker_spec.keys() == {"job-1", "job-2"}
    assert cluster.cancelled == ["job-0"]


def test_a_job_whose_workers_stay_away_is_given_up_though_it_seems_to_run(cluster, ended, clock):
    keeper = keeper_of(cluster, (1, 1))
    cluster.come("job-0-0")
    look(keeper, clock, 2)
    cluster.leave("job-0-0")
    look(keeper, clock, job_keeper.WORKER_START_SECONDS - 4)
    assert list(cluster.worker_spec) == ["job-0"]  # a nanny may bring it back
    look(keeper, clock, 8)
    assert list(cluster.worker_spec) == ["job-1"]


def test_a_job_that_waits_for_its_queue_is_left_alone(cluster, ended, clock):
    keeper = keeper_of(cluster, (1, 1))
    look(keeper, clock, 3600, every=10)
    assert list(cluster.worker_spec) == ["job-0"]


def test_jobs_that_end_before_a_worker_comes_are_sent_again_ever_later_and_it_is_said(cluster, ended, clock, caplog):
    keeper = keeper_of(cluster, (3, 3))
    ended.update(str(number) for number in range(1000))
    with caplog.at_level(logging.WARNING, "curator_df.cluster"):
        look(keeper, clock, 3600)
    rounds = len(cluster.cancelled) / 3  # the three of them count once
    assert 12 <= rounds <= 20  # each took 15 s and more to be found; without waiting there would be 200
    assert keeper.problem in caplog.text
    assert "times in a row: job " in keeper.problem
    assert keeper.problem.endswith("had connected (state in slurm: FAILED). The output of the jobs is in /logs")
    ended.clear()
    look(keeper, clock, job_keeper.MOST_WAIT_SECONDS)
    cluster.come(f"{next(iter(cluster.worker_spec))}-0")
    look(keeper, clock, 4)
    assert keeper.problem == ""


def test_jobs_that_are_not_taken_in_the_middle_of_a_run_are_sent_again(cluster, ended, clock):
    keeper = keeper_of(cluster, (1, 1))
    cluster.come("job-0-0")
    look(keeper, clock, 2)
    cluster.leave("job-0-0")
    ended.add("1")
    cluster.refuses = "Unable to contact slurm controller"
    look(keeper, clock, 200)
    assert keeper.problem.endswith("the batch system refused them with\nUnable to contact slurm controller")
    cluster.refuses = ""
    look(keeper, clock, job_keeper.MOST_WAIT_SECONDS)
    assert [job.job_id for job in cluster.workers.values()] == ["2"]


def test_the_number_of_jobs_follows_the_work_and_jobs_that_work_are_not_ended(cluster, ended, clock):
    keeper = keeper_of(cluster, (0, 3))
    look(keeper, clock, 4)
    assert not cluster.worker_spec
    cluster.target = 3  # processes: two jobs of two
    look(keeper, clock, 120)
    assert list(cluster.worker_spec) == ["job-0", "job-1"]
    cluster.target = 100
    look(keeper, clock, 4)
    assert list(cluster.worker_spec) == ["job-0", "job-1", "job-2"]
    cluster.come("job-0-0", "job-0-1", "job-1-0", "job-1-1")
    cluster.scheduler.workers["job-1-1"].processing = {"a task": 1}
    cluster.target = 1
    look(keeper, clock, 2 * job_keeper.LOOKS_BEFORE_END - 4)
    assert len(cluster.worker_spec) == 3
    look(keeper, clock, 60)
    assert list(cluster.worker_spec) == ["job-1"]  # not the one of which only one process was idle
    assert set(cluster.cancelled) == {"job-0", "job-2"}
    cluster.scheduler.workers["job-1-1"].processing = {}
    cluster.target = 0
    look(keeper, clock, 60)
    assert not cluster.worker_spec
    assert not cluster.scheduler.workers


def test_a_look_that_fails_is_not_the_last_and_stopping_ends_them(cluster, monkeypatch, caplog):
    looks = []

    async def failing(now):
        looks.append(now)
        raise ValueError("no state")

    async def keep_for_a_moment():
        cluster.status = job_keeper.Status.running
        keeper = JobKeeper(cluster, SimpleNamespace(least_jobs=0, most_jobs=1))
        monkeypatch.setattr(keeper, "_look", failing)
        await keeper.start()
        while len(looks) < 2:
            await asyncio.sleep(0.01)
        await keeper.stop()

    monkeypatch.setattr(job_keeper, "LOOK_SECONDS", 0.01)
    asyncio.run(keep_for_a_moment())
    assert "a check of the jobs failed: ValueError('no state')" in caplog.text

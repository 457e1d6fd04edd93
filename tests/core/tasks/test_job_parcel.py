# SPDX-License-Identifier: Apache-2.0
"""The job of a stage is sent with few of its tasks, and again to a worker that does not have it."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest
from distributed import Client

import curator_df as cdf
from curator_df.core.ranges.manifest import Manifest
from curator_df.core.runner import run
from curator_df.core.tasks import job_parcel
from curator_df.core.tasks.job_parcel import KEPT_JOBS, run_with_job

RANGES = 40


def attempt(stage, number=0):
    return SimpleNamespace(stage_id=stage, piece=SimpleNamespace(number=number))


def echo(job_bytes, of):
    return Manifest(of.piece.number, outcome="done", worker=job_bytes.decode())


@pytest.fixture(autouse=True)
def _no_jobs(monkeypatch):
    monkeypatch.setattr(job_parcel, "_jobs", type(job_parcel._jobs)())


def test_a_worker_that_was_never_told_says_so_and_one_that_was_knows():
    assert run_with_job(echo, None, attempt("a", 3)) == Manifest(3, outcome="no job")
    assert run_with_job(echo, b"job", attempt("a", 3)).worker == "job"
    assert run_with_job(echo, None, attempt("a", 4)).worker == "job"
    assert run_with_job(echo, None, attempt("b")).outcome == "no job"


def test_jobs_that_were_used_last_are_kept():
    for number in range(KEPT_JOBS):
        run_with_job(echo, b"%d" % number, attempt(number))
    run_with_job(echo, None, attempt(0))
    run_with_job(echo, b"new", attempt("new"))
    kept = [number for number in range(KEPT_JOBS) if run_with_job(echo, None, attempt(number)).outcome == "done"]
    assert kept == [0, *range(2, KEPT_JOBS)]


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """A table that is cut into `RANGES` ranges."""
    lines = [json.dumps({"id": number, "text": f"text {number:04}"}) + "\n" for number in range(10 * RANGES)]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    size = sum(map(len, lines)) // RANGES
    for name, value in {"SMALL_RANGE_BYTES": size, "RANGE_BYTES": size, "MOST_RANGES": RANGES}.items():
        monkeypatch.setattr(run, name, value)
    return cdf.read_jsonl(tmp_path / "in.jsonl")


@pytest.fixture
def sent(monkeypatch):
    """For each task that is submitted, whether the job goes with it."""
    seen, submit = [], Client.submit

    def noted(self, function, *args, **kwargs):
        if function is run_with_job:
            seen.append(args[1] is not None)
        return submit(self, function, *args, **kwargs)

    monkeypatch.setattr(Client, "submit", noted)
    return seen


def test_tasks_of_workers_that_were_started_again_are_sent_again(docs, sent, tmp_path):
    """A worker is ended in mid-run by the step that it runs, once."""
    marker, pids = tmp_path / "ended", tmp_path / "pids"
    pids.mkdir()

    def end_worker(block):
        import os
        import signal
        import time

        (pids / str(os.getpid())).touch()
        if (block["id"] == 100).any() and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        give_up = time.monotonic() + 60
        while (block["id"] > 109).any() and not marker.exists() and time.monotonic() < give_up:
            time.sleep(0.05)  # otherwise a block from 200 on could wait for a new worker before one has ended
        while (block["id"] >= 200).any() and len(list(pids.iterdir())) < 3 and time.monotonic() < give_up:
            time.sleep(0.05)  # until the new worker has a task
        return block

    with cdf.start_cluster(memory="2GB", cpus=2) as cluster:
        first = cluster.layout.workers * (cluster.layout.threads + 1)
        receipt = cdf.write_parquet(docs.map_partitions(end_worker, meta=docs._meta), tmp_path / "out")
    assert marker.exists()
    assert sent[:first] == [True] * first
    assert 1 <= sum(sent[first:]) < len(sent) - first
    assert receipt.rows_written == 10 * RANGES
    assert pd.read_parquet(tmp_path / "out")["id"].tolist() == list(range(10 * RANGES))

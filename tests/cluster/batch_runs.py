# SPDX-License-Identifier: Apache-2.0
"""Runs on the jobs of a batch system that go away in the middle: what the tests of all such systems share."""

import json
import os
import time

import pandas as pd

import curator_df as cdf
from curator_df.cluster import batch, job_keeper
from curator_df.core.runner import run
from curator_df.core.runner.events import TaskEnded
from curator_df.core.runner.session import current_session

ROWS = 4000
START_SECONDS = 180


def write_corpus(folder, monkeypatch):
    """Write rows in one file, of which there are many ranges for all that it is small; return its folder."""
    monkeypatch.setattr(run, "SMALL_RANGE_BYTES", 100_000)
    folder.mkdir()
    rows = [{"id": n, "text": f"row {n % 900} " + "some words that make a text long enough " * 10} for n in range(ROWS)]
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def slow_steps(corpus, blocksize, seconds):
    """Return a chain that takes its time, so that there is work while jobs go away."""

    def slowly(block):
        time.sleep(seconds)
        return block.id % 7 != 0

    return cdf.read_jsonl(corpus, blocksize=blocksize).pipe(cdf.normalize_unicode).pipe(cdf.keep_where, slowly)


def wait_until(is_so):
    """Look until it is so."""
    deadline = time.monotonic() + START_SECONDS
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert is_so()


def check_cancelled_jobs(made, jobs, cancel, corpus, folder):
    """Run a chain on two jobs while one is cancelled, and then all; others come, and the rows are those of a run without any."""
    cancelled, ended = [], []

    def cancel_some(event):
        ended.append(isinstance(event, TaskEnded))
        going = {3: jobs()[:1], 12: jobs()}.get(sum(ended), []) if ended[-1] else []
        if going:
            cancelled.extend(going)
            cancel(*going)

    def write(name):
        docs = slow_steps(corpus, "50kB", 0.1).pipe(cdf.drop_exact_duplicates)
        return cdf.write_parquet(docs, folder / name, rejects=folder / f"{name}_rejects")

    with made as there:
        assert there.client.scheduler.address.startswith("tls://")
        current_session().watchers.append(cancel_some)
        receipt = write("out")
        assert len(cancelled) >= 2
        wait_until(lambda: len(set(jobs()) - set(cancelled)) == 2)
    with cdf.start_cluster(memory="4GB", cpus=1):
        alone = write("alone")
    assert receipt.rows_read == alone.rows_read == ROWS
    assert receipt.rows_written == alone.rows_written > 0
    for ours, plain in (("out", "alone"), ("out_rejects", "alone_rejects")):
        pd.testing.assert_frame_equal(pd.read_parquet(folder / ours), pd.read_parquet(folder / plain))
    wait_until(lambda: jobs() == [])


def check_lifetime(make, jobs, corpus, folder, monkeypatch):
    """Run a chain on workers that leave by themselves after a while: others go on, and what they say is in the jobs' logs."""
    monkeypatch.setattr(batch, "lifetime", lambda _: ["--lifetime", "14s", "--lifetime-stagger", "4s"])
    monkeypatch.setattr(job_keeper, "ASK_SECONDS", 2.0)
    seen = set()
    with make(folder, jobs=2):
        current_session().watchers.append(lambda _: seen.update(jobs()))
        receipt = cdf.write_parquet(slow_steps(corpus, "20kB", 0.4), folder / "out")
    assert len(seen) > 2
    assert receipt.rows_read == ROWS
    assert pd.read_parquet(folder / "out")["id"].tolist() == [n for n in range(ROWS) if n % 7]
    said = "".join(log.read_text() for log in (folder / "jobs").iterdir() if log.is_file())
    assert "worker-lifetime-reached" in said


def check_late_job(make, jobs, cancel, number, folder, monkeypatch):
    """Cancel a job before its workers come: another takes its place. ``number`` is the variable in which a job has its own."""
    monkeypatch.setattr(job_keeper, "ASK_SECONDS", 2.0)
    first_waits = f"mkdir {folder}/first 2> /dev/null && sleep 600"
    with make(folder, 2, jobs=2, prologue=[first_waits]) as there:
        there.client.wait_for_workers(2, timeout=START_SECONDS)
        (with_workers,) = set(there.client.run(lambda: os.environ[number]).values())
        (cancelled,) = set(jobs()) - {with_workers}
        cancel(cancelled)
        there.client.wait_for_workers(4, timeout=START_SECONDS)
        assert len(jobs()) == 2
        assert with_workers in jobs()

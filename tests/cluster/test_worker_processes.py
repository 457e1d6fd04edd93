# SPDX-License-Identifier: Apache-2.0
"""A start waits for its workers without reading the list of all processes at each look."""

from types import SimpleNamespace

import pytest
from distributed import Status

from curator_df.cluster import worker_processes
from curator_df.errors import NoClusterError


@pytest.fixture
def waits(monkeypatch):
    """A cluster without workers, on a clock that only sleeping moves, with the times at which processes were counted."""
    nanny = SimpleNamespace(status=Status.starting, start_error=None)
    cluster = SimpleNamespace(scheduler=SimpleNamespace(workers={}), workers={0: nanny}, close=lambda timeout: None)
    found = SimpleNamespace(cluster=cluster, nanny=nanny, now=0.0, alive=1, counts=[], events={})

    def sleep(seconds):
        found.now += seconds
        for when in [when for when in found.events if when <= found.now]:
            found.events.pop(when)()

    def count():
        found.counts.append(found.now)
        return found.alive

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: found.now)
    monkeypatch.setattr(worker_processes, "time", clock)
    monkeypatch.setattr(worker_processes, "worker_processes", count)
    return found


def wait(waits):
    worker_processes.wait_for_workers(waits.cluster, 1)


def test_a_worker_is_seen_at_once_and_processes_are_counted_a_few_times_a_second(waits):
    waits.events[2.0] = lambda: waits.cluster.scheduler.workers.update(first=object())
    wait(waits)
    assert waits.now < 2.0 + 2 * worker_processes.LOOK_SECONDS
    assert 4 <= len(waits.counts) <= 10


def test_a_worker_process_that_dies_ends_the_start_with_the_next_count(waits):
    waits.events[1.0] = lambda: setattr(waits, "alive", 0)
    with pytest.raises(NoClusterError, match="the worker processes did not start"):
        wait(waits)
    assert waits.now < 1.0 + 2 * worker_processes.COUNT_SECONDS


def test_a_nanny_that_ended_is_seen_at_once_with_its_error(waits):
    waits.nanny.start_error = OSError("no more processes")

    def end():
        waits.nanny.status = Status.failed

    waits.events[1.1] = end
    with pytest.raises(NoClusterError, match=r"could not be started .*no more processes"):
        wait(waits)
    assert waits.now < 1.1 + 2 * worker_processes.LOOK_SECONDS


def test_a_start_without_a_living_process_ends_after_a_minute(waits):
    waits.alive = 0
    with pytest.raises(NoClusterError):
        wait(waits)
    assert worker_processes.SILENT_SECONDS < waits.now < worker_processes.SILENT_SECONDS + 1

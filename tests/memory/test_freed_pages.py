# SPDX-License-Identifier: Apache-2.0
"""When a process gives freed pages back: with the last of its tasks, and else once for a few that ended."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

from curator_df.memory import freed_pages
from curator_df.memory.freed_pages import FreedPages
from curator_df.memory.leaks import LeakWatch


@pytest.fixture
def given(monkeypatch):
    """List the generations that were looked through each time that pages were given back."""
    times = []
    monkeypatch.setattr(freed_pages, "release_free_memory", lambda generation=2: times.append(generation))
    return times


def test_a_task_alone_gives_pages_back_when_it_ends(given):
    pages = FreedPages()
    for number in range(1, 4):
        with pages.task():
            assert len(given) == number - 1
        assert len(given) == number


def test_beside_others_one_of_a_few_does_and_the_last_one_in_any_case(given):
    pages = FreedPages()
    with contextlib.ExitStack() as beside:
        beside.enter_context(pages.task())
        for number in range(1, 13):
            with pages.task():
                pass
            assert len(given) == number // 4
    assert len(given) == 4


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_every_window_of_floors_has_one_that_was_taken_after_it(given, threads):
    pages, window, seen = FreedPages(), LeakWatch(10**9, threads)._window, []
    running = [contextlib.ExitStack() for _ in range(threads)]
    for one in running:
        one.enter_context(pages.task())
    for number in range(40 * threads):  # one ends, and the next begins in its place
        running[number % threads].close()
        seen.append(len(given))
        running[number % threads].enter_context(pages.task())
    assert seen[0] == 0
    for start in range(0, len(seen) - window, window):
        before = seen[start - 1] if start else 0
        assert seen[start + window - 1] > before


def test_a_task_that_fails_counts_as_one_that_ended(given):
    pages = FreedPages()
    with pytest.raises(MemoryError), pages.task():
        raise MemoryError
    assert len(given) == 1


def run_tasks(monkeypatch, task_seconds, look_seconds, tasks=100):
    """Return the generations that were looked through after tasks of one thread, by a clock of our own."""
    now, looks = [0.0], []

    def release(generation=2):
        looks.append(generation)
        now[0] += look_seconds if generation == 2 else 0.0

    monkeypatch.setattr(freed_pages, "release_free_memory", release)
    monkeypatch.setattr(freed_pages.time, "monotonic", lambda: now[0])
    pages = FreedPages()
    for _ in range(tasks):
        with pages.task():
            now[0] += task_seconds
    return looks


def test_where_looking_for_garbage_is_fast_every_task_does(monkeypatch):
    assert set(run_tasks(monkeypatch, task_seconds=0.1, look_seconds=0.001)) == {2}


def test_where_it_is_slow_it_takes_a_small_share_of_the_time(monkeypatch):
    looks = run_tasks(monkeypatch, task_seconds=1.6, look_seconds=0.15)
    assert looks[:5] == [2, 1, 2, 1, 2]  # 0.15 s in 3.2 s


def test_short_tasks_leave_no_garbage_for_longer_than_a_few(monkeypatch):
    looks = run_tasks(monkeypatch, task_seconds=0.001, look_seconds=0.15)
    assert "".join(map(str, looks)) == "2111" * 25


TASKS_OF_THREADS = """
import threading
from curator_df.memory.freed_pages import FreedPages
from curator_df.memory.limits import release_free_memory
from curator_df.memory.system import status_bytes

release_free_memory()  # what it imports does not count
pages, at_once, results = FreedPages(), threading.Barrier(4), []

def work():
    with pages.task():
        kept = []
        for _ in range(500):
            kept.append(bytes(range(256)) * 400)  # a piece that malloc keeps: below its threshold
            results.append(bytes(2_000))  # and one after it that outlives the task: the end of the heap does not shrink
        at_once.wait()
        at_once.wait()
        del kept

before = status_bytes("RssAnon")
threads = [threading.Thread(target=work) for _ in range(3)]
for one in threads:
    one.start()
at_once.wait()
held = status_bytes("RssAnon") - before
at_once.wait()
for one in threads:
    one.join()
print(held, status_bytes("RssAnon") - before)
"""


def test_pages_that_tasks_of_threads_have_freed_are_gone_when_the_last_has_ended():
    said = subprocess.check_output([sys.executable, "-c", TASKS_OF_THREADS], text=True, timeout=120)
    held, kept = map(int, said.split())
    assert held > 150_000_000  # three times 500 of 102 kB
    assert kept < 15_000_000  # without giving back: 150 MB

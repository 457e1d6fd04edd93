# SPDX-License-Identifier: Apache-2.0
"""Workers that are started again before anything is wrong with them: when, and in what order (tests/faults: no work is lost)."""

import re
import threading

import pytest

from curator_df import errors
from curator_df.core.runner import recycling
from curator_df.core.runner.recycling import RecycleAfter, Recycling, read_recycle_after, require_processes
from curator_df.memory.budget import choose_layout
from curator_df.memory.sizes import read_size

MB = 1_000_000


@pytest.mark.parametrize(
    ("given", "after", "said"),
    [
        (None, None, "None"),
        (1000, RecycleAfter(1000, "tasks"), "1,000 tasks"),
        ("500MB", RecycleAfter(500 * MB, "bytes"), "500 MB more than at first"),
        ("2h", RecycleAfter(7200, "seconds"), "7,200 seconds"),
    ],
)
def test_a_number_is_tasks_and_a_text_is_bytes_or_time(given, after, said):
    assert read_recycle_after("start_cluster", given) == after
    assert str(after) == said
    assert after is None or read_recycle_after("start_cluster", after.argument) == after


@pytest.mark.parametrize("given", [0, -1, "0s", "often", "5 parsecs"])
def test_what_is_none_of_them_is_refused(given):
    with pytest.raises(errors.ParameterError, match="recycle_after="):
        read_recycle_after("start_cluster", given)


def test_workers_are_due_one_after_the_other():
    each = Recycling(RecycleAfter(9, "tasks"), workers=3)
    due = [(task, name) for task in range(1, 10) for name in "abc" if each.add(name, 0)]
    # The first ones have the shares 1/3, 2/3 and 1 of the limit, and stay due until they are started again.
    assert [min(task for task, name in due if name == one) for one in "abc"] == [3, 6, 9]


def test_bytes_are_those_beyond_what_a_worker_held_at_first():
    each = Recycling(RecycleAfter(100 * MB, "bytes"), workers=1)
    assert [each.add("a", floor * MB) for floor in (400, 450, 499, 500)] == [None, None, None, "a"]


def test_seconds_count_from_the_first_task(monkeypatch):
    now = [50.0]
    monkeypatch.setattr(recycling.time, "monotonic", lambda: now[0])
    each = Recycling(RecycleAfter(60, "seconds"), workers=1)
    assert each.add("a", 0) is None
    now[0] += 60
    assert each.add("a", 0) == "a"


def test_while_one_is_away_no_other_goes():
    each, back = Recycling(RecycleAfter(1, "tasks"), workers=2), threading.Event()
    each._restart = threading.Thread(target=back.wait, daemon=True)
    each._restart.start()
    assert each.add("a", 0) is None
    back.set()
    each.join()
    assert each.add("a", 0) == "a"


def test_threads_of_the_client_cannot_be_started_again():
    layout = choose_layout(410 * MB, cpus=1)
    with pytest.raises(errors.ParameterError, match=r"needs worker processes.*Use memory='[0-9.]+MB'") as refused:
        require_processes(RecycleAfter(10, "tasks"), layout, 0)
    named = read_size("memory", re.search(r"Use memory='([0-9.]+MB)'", str(refused.value)).group(1))
    assert choose_layout(named * 99 // 100, cpus=1).in_process
    assert not choose_layout(named, cpus=1).in_process

# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator_df.errors import BudgetError, ParameterError
from curator_df.memory.budget import (
    CLIENT_RESERVED_BYTES,
    HELD_SLACK_BYTES,
    LIBRARY_BYTES,
    MARGIN_FRACTION,
    MIN_THREAD_BYTES,
    Baseline,
    assumed_baseline,
    choose_layout,
    larger_memory,
    layout_of_workers,
    least_allowed,
    least_memory,
    memory_for_alone,
    most_cpus,
    parse_memory,
    worker_reserved_bytes,
)
from curator_df.memory.limits import machine_bytes
from curator_df.memory.sizes import read_size, size_to_type

pytestmark = pytest.mark.quick
MB = 1_000_000


@pytest.mark.parametrize(
    ("allowed_mb", "in_process", "workers", "threads"),
    [
        (4000, False, 2, 1),
        (1350, False, 2, 1),
        (1000, False, 1, 2),
        (600, False, 1, 2),
        (470, True, 1, 2),
        (450, True, 1, 1),
        (410, True, 1, 1),
        (400, True, 1, 1),
        (252, True, 1, 1),
    ],
)
def test_layout_follows_from_the_number(allowed_mb, in_process, workers, threads):
    layout = choose_layout(allowed_mb * MB, cpus=2)
    assert (layout.in_process, layout.workers, layout.threads) == (in_process, workers, threads)
    assert layout.reserved_bytes + layout.workers * layout.work_bytes <= layout.allowed_bytes
    assert layout.thread_bytes >= MIN_THREAD_BYTES


def test_under_the_floor_is_refused_with_the_floor():
    with pytest.raises(BudgetError, match="below the minimum") as refused:
        choose_layout(100 * MB, cpus=2)
    floor = read_size("memory", str(refused.value).rsplit("memory=", 1)[1].strip("'"))
    assert choose_layout(floor, cpus=2).thread_bytes >= MIN_THREAD_BYTES
    assert floor == least_memory(0, cpus=2) == least_memory(MIN_THREAD_BYTES, cpus=16)
    with pytest.raises(BudgetError):
        choose_layout(int(floor * 0.99), cpus=2)


def test_a_number_that_lacks_its_unit_is_asked_for_it():
    with pytest.raises(
        BudgetError, match=r"memory=4 B is .* without a unit is a number of bytes: write memory='4GB' for"
    ):
        choose_layout(4, cpus=2)
    with pytest.raises(BudgetError) as raised:
        choose_layout(50_000, cpus=2)
    assert "50000GB" not in str(raised.value)


@pytest.mark.parametrize("more_mb", [0, 60, 150, 600])
@pytest.mark.parametrize("cpus", [1, 2, 16])
def test_where_processes_hold_more_there_is_less_for_work_down_to_one_thread(more_mb, cpus):
    usual = assumed_baseline()
    more = Baseline(*(held + more_mb * MB for held in dataclasses.astuple(usual)))
    least = least_allowed(more)
    for allowed in (least, *range(400 * MB, 6_000 * MB, 50 * MB)):
        if allowed < least:
            with pytest.raises(BudgetError, match="below the minimum"):
                choose_layout(allowed, cpus=cpus, baseline=more)
            continue
        layout = choose_layout(allowed, cpus=cpus, baseline=more)
        held = more.held_bytes(0 if layout.in_process else layout.workers)
        assert held + layout.workers * layout.work_bytes + layout.library_bytes <= allowed
        assert layout.thread_bytes >= MIN_THREAD_BYTES
        assert layout.library_bytes == LIBRARY_BYTES or (layout.in_process, layout.threads) == (True, 1)


def test_more_memory_for_a_measured_baseline_is_named_from_that_baseline():
    baseline = Baseline(300 * MB, 310 * MB, 340 * MB)
    layout = choose_layout(1_000 * MB, cpus=2, baseline=baseline)
    assert (layout.baseline, layout.workers, layout.threads) == (baseline, 1, 2)
    enough = larger_memory(200 * MB, layout)
    assert choose_layout(enough, cpus=2, baseline=baseline).thread_bytes >= 200 * MB
    assert most_cpus(layout.thread_bytes + MB, layout) == 1
    alone = memory_for_alone(900 * MB, layout)
    assert choose_layout(alone, cpus=2, baseline=baseline).exclusive_bytes >= 900 * MB
    assert choose_layout(least_memory(200 * MB, cpus=2), cpus=2, baseline=baseline).thread_bytes < 200 * MB


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_whose_number_is_given_have_less_room_for_libraries_before_they_are_refused(workers):
    least = least_allowed(assumed_baseline(), workers)
    layout = layout_of_workers(least, workers, reason="asked for")
    assert (layout.workers, layout.work_bytes >= MIN_THREAD_BYTES, layout.library_bytes < MB) == (workers, True, True)
    with pytest.raises(BudgetError, match=f"Use at least memory={size_to_type(least)}, or fewer"):
        layout_of_workers(int(least * 0.99), workers, reason="asked for")


@pytest.mark.parametrize("cpus", [1, 2, 6, 16])
@pytest.mark.parametrize("thread_mb", [60, 200, 400, 2000])
def test_least_memory_is_enough_and_one_percent_less_is_not(cpus, thread_mb):
    enough = least_memory(thread_mb * MB, cpus=cpus)
    assert choose_layout(enough, cpus=cpus).thread_bytes >= thread_mb * MB
    assert choose_layout(int(enough * 0.99), cpus=cpus).thread_bytes < thread_mb * MB


@given(
    st.integers(255_000_000, 20_000_000_000),
    st.integers(0, 1_000_000_000),
    st.one_of(st.integers(1, 20_000_000), st.integers(1, 5_000_000_000)),
    st.sampled_from([1, 2, 3, 6, 8]),
)
def test_what_is_named_instead_of_a_budget_that_is_too_small_is_larger_and_enough(allowed, held, more, cpus):
    allowed += 2 * held
    layout = choose_layout(allowed, cpus=cpus, held_bytes=held)
    needed = layout.thread_bytes + more
    enough = larger_memory(needed, layout)
    assert enough > allowed
    assert choose_layout(enough, cpus=cpus, held_bytes=held).thread_bytes >= needed
    assert choose_layout(enough, cpus=cpus, held_bytes=held + HELD_SLACK_BYTES).thread_bytes >= needed
    fewer = most_cpus(needed, layout)
    assert fewer < layout.cpus
    if fewer:
        assert choose_layout(allowed, cpus=fewer, held_bytes=held).thread_bytes >= needed
    if fewer + 1 < cpus:
        assert choose_layout(allowed, cpus=fewer + 1, held_bytes=held).thread_bytes < needed


def test_memory_is_read_as_users_write_it():
    assert parse_memory("1.5GB") == 1_500_000_000
    assert parse_memory(123_456_789) == 123_456_789
    assert 0 < parse_memory(None) < machine_bytes()


@pytest.mark.parametrize("memory", ["many", "-3GB", 0])
def test_what_is_not_a_size_is_refused(memory):
    with pytest.raises(ParameterError, match="memory="):
        parse_memory(memory)


def test_more_than_the_machine_has_is_refused():
    with pytest.raises(BudgetError, match="this machine"):
        parse_memory(machine_bytes() + 1)


def test_no_cpus_is_refused():
    with pytest.raises(ParameterError, match="cpus=0"):
        choose_layout(1000 * MB, cpus=0)


@given(st.integers(255_000_000, 20_000_000_000), st.integers(1, 5_000_000_000), st.sampled_from([1, 2, 3, 8]))
def test_the_memory_named_for_a_task_alone_is_enough(allowed, needed, cpus):
    layout = choose_layout(allowed, cpus=cpus)
    enough = memory_for_alone(needed, layout)
    assert choose_layout(enough, cpus=cpus).exclusive_bytes >= needed
    assert enough == allowed or layout.exclusive_bytes < needed
    # No more than what the processes of the larger layout hold of their own.
    most = (needed + CLIENT_RESERVED_BYTES + (cpus + 1) * worker_reserved_bytes()) / (1 - MARGIN_FRACTION)
    assert enough <= max(allowed, most + 10**6)


@pytest.mark.parametrize("cpus", [0, -3, 10**30, 2.5, "2", True])
def test_a_number_of_cpus_that_no_machine_has_is_refused(cpus):
    with pytest.raises(ParameterError, match=f"cpus={cpus!r} must be a whole number from 1 to 65,536"):
        choose_layout(4_000 * MB, cpus=cpus)

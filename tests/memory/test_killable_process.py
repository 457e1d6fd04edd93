# SPDX-License-Identifier: Apache-2.0
"""Calls that never return, take too much memory or crash: what they cost, and that the next call is not affected."""

import contextlib
import errno
import gc
import os
import subprocess
import sys
import threading
import time

import psutil
import pytest

from curator_df.errors import OperatorError
from curator_df.memory import killable_process
from curator_df.memory.killable_process import CallFailedError, KillableProcess, KillableProcesses
from curator_df.memory.process_cache import outside_of_runs
from curator_df.memory.system import PORTABLE

ACT = "tests.memory.killable_functions:act"
MB = 1_000_000


@pytest.fixture
def process():
    one = KillableProcess(ACT, 60 * MB)
    yield one
    one.close()


def test_calls_use_one_process(process):
    assert process.pid is None
    pids = {process.call(b"pid", 1) for _ in range(5)}
    assert pids == {b"%d" % process.pid}


@pytest.mark.parametrize("request_size", [0, 1, 70_000, 5 * MB])
def test_requests_of_any_length_come_back(process, request_size):
    request = b"x" * request_size
    assert process.call(request, 10) == request


@pytest.mark.parametrize("what", [b"loop", b"search"])
def test_an_endless_call_costs_its_limit_and_no_more(process, what):
    first = process.call(b"pid", 1)
    started = time.monotonic()
    with pytest.raises(CallFailedError, match=r"^took more than 0\.3 CPU seconds$"):
        process.call(what, 0.3)
    assert 0.25 < time.monotonic() - started < 5
    assert process.call(b"pid", 1) != first
    assert not psutil.pid_exists(int(first))


def test_a_call_that_waits_is_killed_too(process, monkeypatch):
    process.call(b"", 1)
    monkeypatch.setattr(killable_process, "LEAST_WAIT_SECONDS", 0.2)
    started = time.monotonic()
    with pytest.raises(CallFailedError, match=r"did not return, although it used less than 0\.03 s of CPU time"):
        process.call(b"wait", 0.03)
    assert time.monotonic() - started < 5
    assert process.call(b"again", 1) == b"again"


def test_the_limit_is_that_of_one_call(process):
    pid = process.call(b"pid", 1)
    for _ in range(6):
        process.call(b"compute", 0.4)
    assert process.call(b"pid", 1) == pid


def test_an_exception_is_told_and_the_process_stays(process):
    pid = process.call(b"pid", 1)
    with pytest.raises(CallFailedError, match=r"^raised ValueError: no such page$"):
        process.call(b"raise", 1)
    assert process.call(b"pid", 1) == pid


@pytest.mark.parametrize(("what", "said"), [(b"crash", "SIGABRT"), (b"exit", "exit code 1")])
def test_a_crash_is_told(process, what, said):
    process.call(b"", 1)
    with pytest.raises(CallFailedError, match=f"ended its process with {said}"):
        process.call(what, 1)
    assert process.call(b"fine", 1) == b"fine"


def test_a_crash_for_which_earlier_calls_are_the_cause_is_no_fault_of_the_call(process):
    process.call(b"pid", 1)
    assert process.call(b"crash_again", 1) == b"done"


@pytest.mark.parametrize("times", [1, 2])
def test_a_process_that_the_system_kills_is_charged_to_the_call_only_the_second_time(
    process, tmp_path, monkeypatch, times
):
    monkeypatch.setenv("KILLED_FOLDER", str(tmp_path))
    if times == 1:
        assert process.call(b"kill 1", 5) == b"done"
    else:
        with pytest.raises(
            CallFailedError,
            match=r"killed by SIGKILL.* twice in succession, the second time in a new process without earlier calls$",
        ):
            process.call(b"kill 2", 5)
    assert len(list(tmp_path.iterdir())) == times
    assert process.call(b"fine", 1) == b"fine"


def test_a_call_that_runs_alone_waits_for_others_and_others_wait_for_it():
    turns, order, inside = killable_process._Turns(), [], threading.Event()
    leave = threading.Event()

    def together():
        with turns.together():
            inside.set()
            leave.wait(30)
            order.append("together")

    def alone():
        with turns.alone():
            order.append("alone")

    first = threading.Thread(target=together)
    first.start()
    inside.wait(30)
    second = threading.Thread(target=alone)
    second.start()
    while not turns._is_alone:
        time.sleep(0.01)
    third = threading.Thread(target=together)
    third.start()
    assert order == []
    leave.set()
    for each in (first, second, third):
        each.join(30)
    assert order == ["together", "alone", "together"]


@pytest.mark.linux
def test_a_process_of_which_the_guard_cannot_be_told_leaves_nothing(monkeypatch):
    started = []

    @contextlib.contextmanager
    def full_disk():
        def tell(pid):
            started.append(pid)
            raise OSError(errno.ENOSPC, "No space left on device")

        yield tell

    monkeypatch.setattr(killable_process, "planned_start", full_disk)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No space left"):
        KillableProcess(ACT, 60 * MB).call(b"", 1)
    assert len(os.listdir("/proc/self/fd")) == before
    assert not psutil.pid_exists(started[0])


def test_the_answer_of_a_call_that_was_interrupted_is_not_that_of_the_next_one(process, monkeypatch):
    process.call(b"", 1)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(process, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            process.call(b"first", 1)
    assert process.call(b"second", 1) == b"second"


@pytest.mark.linux
@pytest.mark.parametrize("what", [b"take 80000000", b"take 57000000", b"hide 1000000"])
def test_a_call_that_needs_more_memory_than_planned_fails(process, what):
    """Also where the function hides it, and returns something else."""
    process.call(b"", 1)
    with pytest.raises(CallFailedError, match=r"needed more than the 52\.5 MB|needed more than the 52 MB"):
        process.call(what, 10)
    assert process.call(b"take 30000000", 10) == b"30000000"


@pytest.mark.linux
def test_memory_that_earlier_calls_left_is_given_back_by_a_new_process(process):
    pids = set()
    for _ in range(10):
        assert process.call(b"keep 20000000", 10) == b"done"
        pids.add(process.pid)
        assert psutil.Process(process.pid).memory_info().rss < 120 * MB
    assert len(pids) > 3


def test_what_a_function_prints_is_no_answer(process):
    assert process.call(b"print", 1) == b"done"


def test_the_order_of_a_set_is_the_same_in_every_process():
    orders = set()
    for _ in range(3):
        one = KillableProcess(ACT, 60 * MB)
        orders.add(one.call(b"order", 1))
        one.close()
    assert len(orders) == 1


@pytest.mark.parametrize("target", ["no_such_module:act", "tests.memory.killable_functions:no_such_function"])
def test_a_function_that_cannot_be_imported_is_an_error_at_once(target):
    with pytest.raises(OperatorError, match=r"could not be started: \w+Error"):
        KillableProcess(target, 60 * MB).call(b"", 1)


def test_a_process_that_is_forgotten_ends():
    one = KillableProcess(ACT, 60 * MB)
    one.call(b"", 1)
    pid = one.pid
    del one
    gc.collect()
    assert not psutil.pid_exists(pid)


PARENT = f"""
import threading, time
from curator_df.memory.killable_process import KillableProcess
one = KillableProcess({ACT!r}, 60_000_000)
one.call(b"", 1)
threading.Thread(target=one.call, args=(b"search", 600), daemon=True).start()
time.sleep(0.5)
print(one.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.linux
def test_a_process_ends_with_its_parent_even_in_an_endless_call():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.status() == psutil.STATUS_RUNNING
        parent.kill()
    gone, _ = psutil.wait_procs([child], timeout=5)
    assert gone == [child]


def test_each_thread_borrows_a_process_of_its_own():
    pool, together = KillableProcesses(ACT, 60 * MB), threading.Barrier(3)
    pids = []

    def work():
        with pool.borrowed() as one:
            pids.append(one.call(b"pid", 5))
            together.wait(timeout=30)

    for _ in range(2):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert len(set(pids)) == 3 < len(pids)
    pool.close()
    assert not any(psutil.pid_exists(int(pid)) for pid in pids)


def test_a_process_ends_after_a_block_that_is_computed_outside_of_a_run():
    pool = KillableProcesses(ACT, 60 * MB)
    with outside_of_runs({}), pool.borrowed() as one:
        one.call(b"", 1)
        pid = one.pid
    assert not psutil.pid_exists(pid)


def test_a_process_in_use_when_the_pool_closes_ends_when_it_is_returned():
    pool = KillableProcesses(ACT, 60 * MB)
    with pool.borrowed() as one:
        pool.close()
        assert one.call(b"still", 1) == b"still"
        pid = one.pid
    assert not psutil.pid_exists(pid)


@pytest.mark.skipif(PORTABLE, reason="data limits are Linux's")
def test_the_limit_cannot_be_raised_by_the_guard(process):
    import resource

    process.call(b"", 1)
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_DATA)
    assert soft == hard < 1_000 * MB
    assert os.getpid() != process.pid

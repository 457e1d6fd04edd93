# SPDX-License-Identifier: Apache-2.0
"""Who is ended for the memory of all processes together, and when: the decisions, and a guard of real processes."""

import dataclasses
import errno
import os
import resource
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from curator_df.memory import guard, system
from curator_df.memory.counted_memory import tree_bytes
from curator_df.memory.guard import HEAD, OTHER, PAST, WORKER, Family, Member, excess, offender, open_file
from curator_df.memory.wall import read_ended
from tests.memory.waiting import is_alive, wait_until

pytestmark = pytest.mark.quick
MB = 1_000_000


def member(pid, megabytes, kind=OTHER, started=0, shmem=0, limit=0, ended=False):
    one = Member(pid, 1, started, kind, worker=1)
    one.bytes, one.shmem, one.limit, one.ended = megabytes * MB, shmem * MB, limit * MB, ended
    return one


def test_nothing_is_ended_before_the_wall():
    assert offender([member(2, 600)], 0) is None


def test_the_youngest_of_what_steps_started_is_ended_first():
    assert offender([member(2, 300, started=5), member(3, 300, started=9), member(4, 300, started=7)], 1).pid == 3


def test_of_processes_that_started_at_once_the_last_is_ended():
    assert offender([member(2, 300), member(3, 300)], 1).pid == 3


def test_a_young_process_that_holds_little_is_not_ended_for_another():
    shell = member(3, 9, started=9)
    assert offender([member(2, 600, started=5), shell], 1).pid == 2


def test_what_is_ended_already_counts_as_gone():
    going = member(3, 300, started=9, ended=True)
    assert offender([member(2, 300, started=5), going], 299 * MB) is None
    assert offender([member(2, 300, started=5), going], 301 * MB).pid == 2


def test_a_worker_is_ended_for_shared_memory_only_when_nothing_else_is_left():
    worker = member(1, 700, WORKER, shmem=500, limit=600)
    assert offender([worker, member(2, 100)], 1).pid == 2
    assert offender([worker, member(2, 1)], 1).pid == 1


def test_a_worker_within_its_limit_is_never_ended():
    assert offender([member(1, 600, WORKER, limit=600)], 100 * MB) is None
    assert offender([member(1, 900, WORKER, limit=600)], 100 * MB).pid == 1


def test_the_client_and_what_it_starts_for_the_cluster_are_never_ended():
    assert offender([member(1, 900, guard.CLIENT, shmem=800), member(2, 900, guard.OWN)], 900 * MB) is None


@pytest.mark.linux
def test_private_memory_that_the_data_limit_of_a_worker_does_not_bind_is_over_its_limit(worker, watch):
    process, _ = worker(1 * MB)
    watching = watch(os.getpid(), 1 << 40)
    one = watching.family.members[process.pid]
    resource.prlimit(process.pid, resource.RLIMIT_DATA, (300 * MB, resource.RLIM_INFINITY))
    watching._find_workers()
    one.bytes = 500 * MB  # a data limit does not count all memory: a mapping that grows down is one example
    assert excess(one) == 200 * MB - guard.SLACK_BYTES
    resource.prlimit(process.pid, resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    watching._find_workers()
    assert excess(one) == 500 * MB - one.idle - watching.exclusive - guard.SLACK_BYTES


def test_shared_memory_and_what_is_over_the_limit_are_what_no_limit_binds():
    assert excess(member(1, 700, WORKER, shmem=100, limit=500)) == 200 * MB
    assert excess(member(1, 400, WORKER, shmem=100, limit=500)) == 100 * MB


def test_a_process_that_begins_a_program_of_ours_late_is_known_then(watch):
    """Right after its start, a process has the command line of the one that started it."""
    program = "print('there', flush=True); input()  # of curator_df"
    late = subprocess.Popen(
        ["sh", "-c", 'read line; exec "$PYTHON" -c "$PROGRAM"'],
        env={**os.environ, "PYTHON": sys.executable, "PROGRAM": program},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with late:
        watching = watch(os.getpid(), 1 << 40)
        one = watching.family.members[late.pid]
        assert watching.family.is_other(one)
        late.stdin.write(b"\n")
        late.stdin.flush()
        assert late.stdout.readline() == b"there\n"
        assert not watching.family.is_other(one)
        assert one.kind == guard.OWN
        late.communicate(b"\n")


TAKES = """
import sys, time
x = bytearray(b"1") * int(sys.argv[1])
print("there", flush=True)
time.sleep(60)
"""
WORKS = """
import subprocess, sys
started = [subprocess.Popen([sys.executable, "-c", sys.argv[1], size], stdout=subprocess.PIPE) for size in sys.argv[2:]]
for one in started:
    one.stdout.readline()
print(*(one.pid for one in started), flush=True)
input()
"""


@pytest.fixture
def worker(tmp_path):
    """Start a process that says that it is a worker, and that starts others which take so many bytes."""
    running = []

    def start(*sizes):
        command = [sys.executable, "-c", WORKS, TAKES, *map(str, sizes)]
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        (tmp_path / f"worker-{running[-1].pid}").write_bytes(HEAD.pack(0, 20 * MB) + b"'step'")
        return running[-1], [int(pid) for pid in running[-1].stdout.readline().split()]

    yield start
    for one in running:
        one.kill()
        one.wait()
        one.stdin.close()
        one.stdout.close()


def test_the_youngest_process_of_a_worker_is_ended_and_named(worker, watch, tmp_path):
    process, (first, second) = worker(100 * MB, 100 * MB)
    watching = watch(os.getpid(), -20 * MB)
    wait_until(lambda: watching.look() and not is_alive(second))
    assert is_alive(first)
    (ended,), _ = read_ended(str(tmp_path))
    assert (ended.worker, ended.pid, ended.child, ended.what) == (process.pid, second, second, "processes")
    assert ended.steps == "'step'" and 200 * MB < ended.took_bytes < 260 * MB
    assert "step 'f' starts processes that took 2" in str(ended.error("'1GB'", "'f'"))


def test_a_process_that_outlives_its_step_is_named_after_the_step(worker, watch, tmp_path):
    process, (_, second) = worker(100 * MB, 100 * MB)
    (tmp_path / f"worker-{process.pid}").write_bytes(HEAD.pack(0, 20 * MB) + PAST + b"'step'")
    watching = watch(os.getpid(), -20 * MB)
    wait_until(lambda: watching.look() and not is_alive(second))
    (ended,), _ = read_ended(str(tmp_path))
    assert str(ended.error("'1GB'")).startswith("step 'step' starts processes that took 2")
    assert str(dataclasses.replace(ended, steps="").error("'1GB'")).startswith("a step starts processes that took 2")


def test_the_guard_goes_on_while_the_disk_is_full(worker, watch, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write = os.write
    process, (_, second) = worker(100 * MB, 100 * MB)
    watching = watch(os.getpid(), -20 * MB)
    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        disk.setattr(os, "write", lambda file, line: write(file, line[:5]))  # a part still fits
        wait_until(lambda: watching.look() and not is_alive(second))
        assert read_ended(str(tmp_path)) == ([], 0)
    wait_until(lambda: watching.look() and read_ended(str(tmp_path))[0])
    ((ended,), _) = read_ended(str(tmp_path))
    assert (ended.worker, ended.pid) == (process.pid, second)
    wait_until(lambda: watching.look() and len((tmp_path / "free").read_bytes()) == 8)


def test_nothing_is_ended_while_there_is_room(worker, watch, tmp_path):
    _, pids = worker(100 * MB)
    watch(os.getpid(), 50 * MB).look()
    assert all(is_alive(pid) for pid in pids)
    assert read_ended(str(tmp_path)) == ([], 0)


@pytest.mark.linux
def test_what_a_step_has_started_may_ask_for_what_is_free(worker, watch, tmp_path):
    _, (pid,) = worker(10 * MB)
    watching, told = watch(os.getpid(), 300 * MB), tmp_path / "free"
    wait_until(lambda: watching.look() and struct.unpack("q", told.read_bytes())[0] < 320 * MB)
    (free,), (soft, _) = struct.unpack("q", told.read_bytes()), resource.prlimit(pid, resource.RLIMIT_DATA)
    assert 250 * MB < free < soft < free + 100 * MB


def test_children_with_smaller_numbers_than_their_parents_are_found_at_once(worker, tmp_path):
    """The numbers of processes begin again when they are used up."""
    try:
        Path("/proc/sys/kernel/ns_last_pid").write_text("400")
    except OSError:
        pytest.skip("by nature: only root may choose the number of the next process")
    process, pids = worker(10 * MB)
    if process.pid > os.getpid():
        pytest.skip("the process of the tests has a small number")
    found = Family(os.getpid(), 0, str(tmp_path)).find(time.monotonic())
    assert {os.getpid(), process.pid, *pids} <= {one.pid for one in found}


def test_a_worker_that_goes_on_with_its_step_is_ended(worker, watch, tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "PATIENCE_SECONDS", 0.05)
    process, _ = worker(100 * MB)
    watching = watch(os.getpid(), -20 * MB)
    wait_until(lambda: watching.look() and not is_alive(process.pid))
    found, _ = read_ended(str(tmp_path))
    assert [one.is_worker for one in found] == [False, True]
    assert "so the worker was killed" in str(found[1].error("'1GB'"))


def test_a_worker_that_has_handled_the_end_goes_on(worker, watch, tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "PATIENCE_SECONDS", 0.5)
    process, (pid,) = worker(100 * MB)
    watching = watch(os.getpid(), -20 * MB)
    wait_until(lambda: watching.look() and not is_alive(pid))
    slot = open_file(f"{tmp_path}/worker-{process.pid}")
    os.pwrite(slot, HEAD.pack(1, 20 * MB), 0)
    os.close(slot)
    deadline = time.monotonic() + 0.7
    while time.monotonic() < deadline:
        watching.look()
    assert is_alive(process.pid)


def test_pages_that_a_fork_shares_count_once(watch):
    held = bytearray(b"1") * (200 * MB)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(read, 1)
        os._exit(0)
    try:
        watching = watch(os.getpid(), 100 * MB)
        watching.look()
        assert watching._bound < watching.wall  # both processes have the pages resident
        assert is_alive(pid) and len(held)
    finally:
        os.write(write, b"1")
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)


def test_a_program_that_starts_does_not_count_with_the_pages_of_its_parent(worker, watch):
    process, _ = worker(100 * MB)
    watching = watch(os.getpid(), 50 * MB)
    watching.look()
    members = watching.family.members
    starting = members[987654321] = Member(987654321, process.pid, 0, OTHER, process.pid)
    starting.private, starting.shared = members[process.pid].private, members[process.pid].shared
    watching.family.read_shares()
    assert starting.bytes == 0
    assert members[process.pid].bytes > MB


def test_what_is_free_is_told_again_soon_after_a_process_has_ended(worker, watch, tmp_path):
    _, (pid,) = worker(100 * MB)
    watching = watch(os.getpid(), 50 * MB)
    watching.look()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: watching.look() and pid not in watching.family.members)
    wait_until(lambda: watching.look() and struct.unpack("q", (tmp_path / "free").read_bytes())[0] > 140 * MB)


def test_a_process_that_ignores_signals_is_ended():
    ignores = "import signal, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('there', flush=True)\nsys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", ignores], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    guard.end(process.pid)
    assert process.wait(timeout=5) == -signal.SIGKILL
    process.stdin.close()
    process.stdout.close()


@pytest.mark.linux
def test_a_look_costs_little(worker, watch):
    worker(10 * MB, 10 * MB)
    watching = watch(os.getpid(), 300 * MB)
    began = time.process_time()
    for _ in range(100):
        watching.look()
    assert time.process_time() - began < 0.1  # of a second, in which there are 100 looks


def test_shares_are_read_again_only_of_processes_whose_pages_have_changed(worker, watch, monkeypatch):
    _, (pid,) = worker(10 * MB)
    watching = watch(os.getpid(), 300 * MB)
    monkeypatch.setattr(guard, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(guard, "STALE_SECONDS", 1e9)
    monkeypatch.setattr(guard, "WALK_SECONDS", 1e9)
    watching._refresh(time.monotonic())
    asked, fields = [], dict.fromkeys(("Pss_Anon", "Pss_Shmem", "Private_Dirty", "Shared_Dirty"), 0)
    monkeypatch.setattr(system, "rollup", lambda pid: asked.append(pid) or fields)
    watching._has_forks = False
    watching._refresh(time.monotonic())
    assert asked == []
    watching.family.members[pid].private += 2 * MB
    watching._refresh(time.monotonic())
    assert asked == [pid]


def test_near_the_wall_shares_are_read_only_of_processes_of_which_page_counts_do_not_tell_them(
    worker, watch, monkeypatch
):
    _, (pid,) = worker(10 * MB)
    watching = watch(os.getpid(), 300 * MB)
    watching._read()
    members, asked, rollup = watching.family.members, [], system.rollup
    monkeypatch.setattr(system, "rollup", lambda one: asked.append(one) or rollup(one))
    before = members[pid].bytes
    members[pid].private += 50 * MB
    watching._read(whole=False)
    assert asked == []
    assert members[pid].bytes == before + 50 * MB
    members[pid].private -= 50 * MB  # as if another program ran in it now
    watching._read(whole=False)
    assert asked == [pid]


def test_near_the_wall_a_fork_that_shares_pages_makes_all_shares_be_read(watch, monkeypatch):
    held = bytearray(b"1") * (100 * MB)
    watching = watch(os.getpid(), 300 * MB)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(read, 1)
        os._exit(0)
    try:
        watching.family.find(time.monotonic() + 10)
        watching.family.read_pages()
        watching._read(whole=False)
        both = watching.family.members[pid].bytes + watching.family.members[os.getpid()].bytes
        assert both < watching.family.members[os.getpid()].private + 60 * MB  # and not twice what both have
        assert len(held)
    finally:
        os.write(write, b"1")
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)


def test_a_sample_of_the_guard_is_what_the_tree_holds(worker, watch):
    worker(60 * MB)
    watching = watch(os.getpid(), 300 * MB)
    watching.look()
    assert abs(watching.held(reread=True) - tree_bytes(os.getpid())) < 10 * MB


@pytest.mark.linux
def test_the_end_of_a_process_in_the_plan_is_not_blamed_on_the_step_and_its_worker_stays(
    worker, watch, tmp_path, monkeypatch
):
    """Without data limits the guard may end such a process; its worker starts another, and goes on with the step."""
    _, (child,) = worker(60 * MB)
    (tmp_path / f"planned-{child}").touch()
    watching = watch(os.getpid(), 10_000 * MB)
    wait_until(lambda: watching.look() and watching.family.members[child].planned)
    monkeypatch.setattr(watching, "_find_workers", lambda: None)
    watching.family.members[child].kind = guard.OTHER  # as it stays without data limits
    watching.wall = -20 * MB
    wait_until(lambda: watching.look() and not is_alive(child))
    assert watching._waiting == []
    assert not (tmp_path / "ended").exists()


@pytest.mark.linux
def test_a_process_in_the_plan_is_not_ended_for_others(worker, watch, tmp_path):
    _, (first, second) = worker(100 * MB, 100 * MB)
    (tmp_path / f"planned-{second}").touch()
    watching = watch(os.getpid(), -20 * MB)
    wait_until(lambda: watching.look() and not is_alive(first))
    assert is_alive(second)
    os.kill(second, signal.SIGKILL)
    wait_until(lambda: watching.look() and not (tmp_path / f"planned-{second}").exists())

# SPDX-License-Identifier: Apache-2.0
"""Who is ended for the memory of all processes together, and when: the decisions, and a guard of real processes."""

import contextlib
import errno
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from curator_df.memory import guard, memory_files, system
from curator_df.memory.guard import HEAD, OTHER, WORKER, Family, Guard, Member, excess, offender, open_file
from curator_df.memory.peak import tree_bytes
from curator_df.memory.system import read_stat
from curator_df.memory.wall import read_ended

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


def test_shared_memory_and_what_is_over_the_limit_are_what_no_limit_binds():
    assert excess(member(1, 700, WORKER, shmem=100, limit=500)) == 200 * MB
    assert excess(member(1, 400, WORKER, shmem=100, limit=500)) == 100 * MB


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


def is_alive(pid):
    try:
        return read_stat(pid)[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def watch(tmp_path):
    """Return a guard of the process of this test, so much above what it holds now, that sees it as the client."""

    def watch(root, free_bytes):
        made = Guard(root, 1 << 60, 50 * MB, str(tmp_path), 0)
        made.look()
        made._read()
        made.wall = made._bound + free_bytes
        return made

    return watch


def test_the_youngest_process_of_a_worker_is_ended_and_named(worker, watch, tmp_path):
    process, (first, second) = worker(100 * MB, 100 * MB)
    watching = watch(os.getpid(), -20 * MB)
    wait_until(lambda: watching.look() and not is_alive(second))
    assert is_alive(first)
    (ended,), _ = read_ended(str(tmp_path))
    assert (ended.worker, ended.pid, ended.child, ended.what) == (process.pid, second, second, "processes")
    assert ended.steps == "'step'" and 200 * MB < ended.took_bytes < 260 * MB
    assert "step 'f' starts processes that took 2" in str(ended.error("'1GB'", "'f'"))


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


HOLDS = """
import os, sys
kind, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "memfd":
    file = os.memfd_create("test")
else:
    file = os.open(path, os.O_RDONLY if kind == "reads" else os.O_RDWR | os.O_CREAT)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(size // 1_000_000):
    os.read(file, 1_000_000) if kind == "reads" else os.write(file, b"x" * 1_000_000)
if kind == "maps":
    import mmap
    pages = mmap.mmap(file, size)
    pages[::4096]
if kind == "closes":
    os.close(file)
print("written", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path, shared_file):
    """Start a worker that has open what it does not map."""
    running = []

    def start(kind, size, path=shared_file):
        command = [sys.executable, "-c", HOLDS, kind, path, str(size)]
        running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        (tmp_path / f"worker-{running[-1].pid}").write_bytes(HEAD.pack(0, 20 * MB) + b"'step'")
        running[-1].stdout.readline()
        return running[-1]

    yield start
    for one in running:
        one.kill()
        one.wait()
        one.stdin.close()
        one.stdout.close()


@pytest.fixture
def shared_file():
    """Return a path in /dev/shm where there is no file yet."""
    file, path = tempfile.mkstemp(dir=system.SHARED_FOLDER)
    os.close(file)
    os.unlink(path)
    yield path
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()


def written(process):
    go_on(process)
    process.stdout.readline()


def files_of(watching, process):
    watching._read(time.monotonic())
    return watching.family.members[process.pid].files


@pytest.mark.linux
@pytest.mark.parametrize("kind", ["memfd", "named"])
def test_memory_that_is_written_as_a_file_counts_and_its_worker_is_ended(holder, watch, tmp_path, kind):
    process = holder(kind, 100 * MB)
    watching = watch(os.getpid(), 60 * MB)
    go_on(process)
    wait_until(lambda: watching.look() and not is_alive(process.pid))
    (ended,), _ = read_ended(str(tmp_path))
    assert (ended.pid, ended.what, ended.steps) == (process.pid, "files", "'step'")
    assert "step 'step' writes files that are memory (memfds, or in /dev/shm) and took" in str(ended.error("'1GB'"))


@pytest.mark.linux
def test_a_worker_that_only_reads_a_file_in_memory_goes_on(holder, watch, tmp_path, shared_file):
    process = holder("named", 0)
    watching = watch(os.getpid(), 60 * MB)
    Path(shared_file + "-other").write_bytes(b"x" * (100 * MB))
    try:
        reads = holder("reads", 100 * MB, shared_file + "-other")
        written(reads)
        for _ in range(20):
            watching.look()
        assert is_alive(reads.pid) and is_alive(process.pid)
        assert files_of(watching, reads) == 0
        assert watching._bound < watching.wall
    finally:
        os.unlink(shared_file + "-other")


@pytest.mark.linux
def test_of_a_file_that_was_there_only_what_it_grows_counts(holder, watch, shared_file):
    Path(shared_file).write_bytes(b"x" * (30 * MB))
    process = holder("named", 40 * MB)  # it writes over what is there, and 10 MB more
    watching = watch(os.getpid(), 1 << 40)
    assert files_of(watching, process) == 0
    written(process)
    assert 9 * MB < files_of(watching, process) < 11 * MB


@pytest.mark.linux
@pytest.mark.parametrize("readings", [1, 2])  # after one, nothing changes until a process of the tree opens the file
def test_of_a_file_of_another_program_only_what_a_step_adds_counts(holder, watch, shared_file, monkeypatch, readings):
    monkeypatch.setattr(memory_files, "MOST_SEEN", 1 << 40)
    watching = watch(os.getpid(), 1 << 40)
    Path(shared_file).write_bytes(b"x" * (30 * MB))
    for _ in range(readings):
        watching._read()
    time.sleep(memory_files.NEW_SECONDS)
    process = holder("named", 40 * MB)
    watching.family.find(time.monotonic() + 10)
    assert files_of(watching, process) == 0
    written(process)
    assert 9 * MB < files_of(watching, process) < 11 * MB


@pytest.mark.linux
def test_files_are_looked_at_until_none_is_new_although_shared_memory_does_not_change(shared_file, monkeypatch):
    monkeypatch.setattr(memory_files, "MOST_SEEN", 1)
    monkeypatch.setattr(memory_files, "IDLE_SECONDS", 0)
    monkeypatch.setattr(memory_files.system, "shared_memory_bytes", lambda: 0)
    found = memory_files.MemoryFiles([], "/nowhere")
    Path(shared_file).write_bytes(b"x" * MB)
    key = memory_files.system.memory_file(shared_file).key
    found.read({}, time.monotonic())
    for _ in range(2 * len(list(memory_files.system.files_in_memory())) + 2):
        found.look({}, time.monotonic())
    assert found._seen[key] >= MB


@pytest.mark.linux
def test_a_folder_of_the_run_that_is_a_link_into_memory_does_not_count(holder, watch, shared_file, tmp_path):
    own = Path(f"{shared_file}.folder")
    own.mkdir()
    try:
        (tmp_path / "link").symlink_to(own)
        found = memory_files.MemoryFiles([os.getpid()], str(tmp_path / "link"))
        with open(own / "spilled", "wb") as file:
            file.write(b"x" * MB)
            file.flush()
            assert not found._admit(memory_files.system.memory_file(str(own / "spilled")), os.getpid())
    finally:
        shutil.rmtree(own)


@pytest.mark.linux
def test_a_file_that_was_closed_counts_until_it_is_deleted_also_when_its_process_has_ended(holder, watch, shared_file):
    process = holder("closes", 50 * MB)
    watching = watch(os.getpid(), 1 << 40)
    written(process)
    assert 49 * MB < files_of(watching, process) < 51 * MB
    process.kill()
    wait_until(lambda: watching.look() and process.pid not in watching.family.members)
    watching._read()
    assert 49 * MB < watching.files.left_bytes < 51 * MB
    os.unlink(shared_file)
    watching._read()
    assert watching.files.left_bytes == 0


@pytest.mark.linux
def test_a_file_of_which_its_worker_has_told_counts_although_nobody_saw_it_open(holder, watch, shared_file, tmp_path):
    process = holder("memfd", 0)
    watching = watch(os.getpid(), 1 << 40)
    (tmp_path / f"written-{process.pid}").write_text(f"0\t{shared_file}\n0\t{shared_file}-not-there\n")
    watching._find_workers()
    assert files_of(watching, process) == 0  # it is not there yet
    Path(shared_file).write_bytes(b"x" * (10 * MB))
    assert 9 * MB < files_of(watching, process) < 11 * MB


@pytest.mark.linux
def test_pages_that_are_mapped_and_in_a_file_count_once(holder, watch):
    process = holder("maps", 40 * MB)
    watching = watch(os.getpid(), 1 << 40)
    files_of(watching, process)
    before = watching._bound
    written(process)
    assert files_of(watching, process) < MB
    assert watching.family.members[process.pid].shmem > 39 * MB
    assert watching._bound - before < 50 * MB


def test_shared_memory_that_grows_counts_once_before_anything_is_read_again(tmp_path, monkeypatch):
    of_machine, one = [0], member(7, 100, WORKER)
    monkeypatch.setattr(system, "shared_memory_bytes", lambda: of_machine[0])
    monkeypatch.setattr(system, "open_memory", lambda pid: [])
    files, one.shared, one.read_shared = memory_files.MemoryFiles([], str(tmp_path)), 30 * MB, 30 * MB
    files.read({7: one}, 1e9)
    of_machine[0], one.shared = 50 * MB, 70 * MB  # 40 of the 50 MB are mapped, which are among the pages of the process
    files.look({7: one}, 1e9)
    assert files.grown_bytes == 10 * MB
    one.shmem, one.read_shared = 40 * MB, 70 * MB  # its shares were read
    files.look({7: one}, 1e9)
    assert files.grown_bytes == 10 * MB


@pytest.mark.linux
def test_files_of_a_run_itself_do_not_count(holder, watch, shared_file):
    unfinished = Path(shared_file, "_curator/unfinished")
    unfinished.mkdir(parents=True)
    try:
        process = holder("named", 20 * MB, str(unfinished / "part"))
        watching = watch(os.getpid(), 1 << 40)
        written(process)
        assert files_of(watching, process) == 0
    finally:
        shutil.rmtree(shared_file)


@pytest.mark.linux
def test_open_files_are_not_read_while_no_memory_is_shared(watch, monkeypatch):
    watching = watch(os.getpid(), 1 << 40)
    monkeypatch.setattr(system, "shared_memory_bytes", lambda: watching.files._then)
    monkeypatch.setattr(system, "open_memory", lambda pid: pytest.fail("read"))
    for later in range(100):
        assert not watching.files.look(watching.family.members, time.monotonic() + later)


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

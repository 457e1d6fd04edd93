# SPDX-License-Identifier: Apache-2.0
"""Memory that no process maps: which files and segments count for a tree, and that a guard sees them."""

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from curator_df.memory import memory_files, system
from curator_df.memory.guard import HEAD, WORKER
from curator_df.memory.wall import read_ended
from tests.memory.test_guard import member
from tests.memory.waiting import is_alive, wait_until

pytestmark = pytest.mark.quick
MB = 1_000_000
HOLDS = """
import os, sys
kind, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "memfd":
    file = os.memfd_create("test")
elif kind == "segment":
    import ctypes
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    place = ctypes.c_void_p(libc.shmat(libc.shmget(0, ctypes.c_size_t(size), 0o1600), None, 0))
else:
    file = os.open(path, os.O_RDONLY if kind == "reads" else os.O_RDWR | os.O_CREAT)
print("ready", flush=True)
sys.stdin.readline()
if kind == "segment":
    ctypes.memset(place, 1, size)
    libc.shmdt(place)
for _ in range(size // 1_000_000 if kind != "segment" else 0):
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
        delete_segments(one.pid)


def delete_segments(pid):
    for creator, segment in system.segments():
        if creator == pid:
            ctypes.CDLL(None).shmctl(segment.key[1], 0, None)


@pytest.fixture
def shared_file():
    """Yield the path of a file in /dev/shm that a test may create; it is deleted afterwards."""
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
    said = str(ended.error("'1GB'"))
    assert "step 'step' writes files that are memory (memfds, in /dev/shm, or System V segments) and took" in said


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


def ended_with_50_mb(process, watch):
    """Kill a process that has made 50 MB of shared memory, which must still count; return the guard and the process ID."""
    watching = watch(os.getpid(), 1 << 40)
    written(process)
    assert 49 * MB < files_of(watching, process) < 51 * MB
    process.kill()
    wait_until(lambda: watching.look() and process.pid not in watching.family.members)
    watching._read()
    assert 49 * MB < watching.files.left_bytes < 51 * MB
    return watching, process.pid


@pytest.mark.linux
def test_a_file_that_was_closed_counts_until_it_is_deleted_also_when_its_process_has_ended(holder, watch, shared_file):
    watching, _ = ended_with_50_mb(holder("closes", 50 * MB), watch)
    os.unlink(shared_file)
    watching._read()
    assert watching.files.left_bytes == 0


@pytest.mark.linux
def test_a_segment_counts_until_it_is_deleted_also_when_its_process_has_ended(holder, watch):
    watching, pid = ended_with_50_mb(holder("segment", 50 * MB), watch)
    delete_segments(pid)
    watching._read()
    assert watching.files.left_bytes == 0


def test_a_segment_that_was_there_does_not_count_for_a_process_that_gets_the_number_of_its_maker(tmp_path, monkeypatch):
    def segment(number):
        return 7, system.MemoryFile(f"segment {number}", (system.SEGMENT_DEVICE, number), 50 * MB)

    there = [segment(1)]
    monkeypatch.setattr(system, "segments", lambda: there)
    monkeypatch.setattr(system, "open_memory", lambda pid: [])
    files, one = memory_files.MemoryFiles([], str(tmp_path)), member(7, 100, WORKER)
    files.read({}, 1e9)  # it looks around, and forgets files that are gone
    files.read({7: one}, 1e9)
    assert one.files == 0
    there.append(segment(2))
    files.read({7: one}, 1e9)
    assert one.files == 50 * MB


@pytest.mark.linux
def test_a_segment_that_is_mapped_counts_once(holder, watch):
    process = holder("segment", 50 * MB)
    watching = watch(os.getpid(), 1 << 40)
    (segment,) = [one for creator, one in system.segments() if creator == process.pid]
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    place = ctypes.c_void_p(libc.shmat(segment.key[1], None, 0))
    try:
        ctypes.memset(place, 1, 50 * MB)
        assert files_of(watching, process) < MB
        assert watching.family.members[os.getpid()].shmem > 49 * MB
    finally:
        libc.shmdt(place)


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

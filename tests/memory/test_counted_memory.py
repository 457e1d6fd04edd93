# SPDX-License-Identifier: Apache-2.0
"""What counts as memory in use: what the kernel cannot take back from a process without swapping."""

import mmap
import os
import signal
import subprocess
import sys
import time

import pytest

from curator_df.core.runner.session import PeakSampler
from curator_df.memory.counted_memory import (
    changes_files,
    children_bytes,
    counted,
    counted_bytes,
    private_bytes,
    tree_bytes,
)
from curator_df.memory.system import rollup

pytestmark = pytest.mark.quick
MB = 1_000_000
SIZE = 32 * 1024 * 1024
NEAR = 3 * MB


def rollup_of(**values):
    return dict.fromkeys(("Pss", "Private_Clean", "Private_Dirty", "Shared_Dirty"), 0) | values


@pytest.mark.parametrize(
    ("fields", "changes", "expected"),
    [
        ({"Pss": 300, "Pss_Anon": 100, "Pss_Shmem": 0, "Pss_File": 200, "Pss_Dirty": 100}, None, 100),
        ({"Pss": 330, "Pss_Anon": 100, "Pss_Shmem": 30, "Pss_File": 200, "Pss_Dirty": 130}, None, 130),
        ({"Pss": 300, "Pss_Anon": 100, "Pss_Shmem": 0, "Pss_File": 200, "Pss_Dirty": 180}, False, 100),
        ({"Pss": 300, "Pss_Anon": 100, "Pss_Shmem": 0, "Pss_File": 200, "Pss_Dirty": 180}, True, 180),
        ({"Pss": 300, "Pss_Anon": 100, "Pss_Shmem": 20, "Private_Dirty": 90, "Shared_Dirty": 60}, True, 150),
        ({"Pss": 300, "Private_Clean": 120, "Private_Dirty": 130}, None, 180),
    ],
    ids=["clean files", "shared memory", "written elsewhere", "changed here", "before 6.0", "before 5.3"],
)
def test_what_the_kernel_can_take_back_does_not_count(fields, changes, expected):
    def tell():
        assert changes is not None, "asked without need: it takes milliseconds"
        return changes

    assert counted(rollup_of(**fields), tell) == expected


@pytest.fixture
def file_bytes(tmp_path):
    """A file of a file system that is not memory itself, just written."""
    found = subprocess.check_output(["stat", "-f", "-c", "%T", tmp_path], text=True).strip()
    if found in ("tmpfs", "ramfs"):
        pytest.skip("the temporary folder is memory: its files cannot be taken back")
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    return path


def touch(pages, write=False):
    for start in range(0, len(pages), mmap.PAGESIZE):
        if write:
            pages[start] = 1
        else:
            pages[start]
    return pages


@pytest.mark.linux
def test_a_file_that_is_mapped_to_be_read_does_not_count_just_written_or_not(file_bytes):
    assert not changes_files(os.getpid())
    before, dirty = counted_bytes(os.getpid()), rollup(os.getpid())
    with open(file_bytes, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        touch(pages)
        fields = rollup(os.getpid())
        assert fields["Pss"] - dirty["Pss"] > SIZE - NEAR
        assert abs(counted_bytes(os.getpid()) - before) < NEAR
        os.fsync(file.fileno())
        assert abs(counted_bytes(os.getpid()) - before) < NEAR


@pytest.mark.linux
def test_a_file_that_is_changed_through_its_mapping_counts_until_it_is_on_disk(file_bytes):
    before = counted_bytes(os.getpid())
    with open(file_bytes, "r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        os.fsync(file.fileno())
        touch(pages, write=True)
        assert changes_files(os.getpid())
        assert counted_bytes(os.getpid()) - before > SIZE - NEAR
        pages.flush()
        assert abs(counted_bytes(os.getpid()) - before) < NEAR
    assert not changes_files(os.getpid())


@pytest.mark.parametrize("flags", [mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS])
def test_memory_of_a_process_and_shared_memory_count(flags):
    before = counted_bytes(os.getpid())
    with mmap.mmap(-1, SIZE, flags=flags) as pages:
        touch(pages, write=True)
        assert abs(counted_bytes(os.getpid()) - before - SIZE) < NEAR
        assert not changes_files(os.getpid())


def test_a_tree_counts_its_children_and_no_process_that_has_ended():
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "held = b'x' * 50_000_000; print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout.readline() == b"1\n"
        held_bytes = counted_bytes(child.pid)
        assert 50 * MB < held_bytes < 65 * MB
        assert children_bytes(os.getpid()) >= held_bytes
        assert tree_bytes(os.getpid()) >= counted_bytes(os.getpid()) + held_bytes - NEAR
        assert tree_bytes(os.getpid(), excluded=child.pid) < tree_bytes(os.getpid()) - 45 * MB
        child.communicate(b"\n")
    assert counted_bytes(child.pid) == private_bytes(child.pid) == 0


def test_a_guard_that_is_killed_is_replaced(tmp_path, caplog):
    sampler = PeakSampler(guarding=(str(tmp_path), 1 << 60, 1 << 60))
    try:
        assert sampler.now() > 0
        killed = sampler.pid
        os.kill(killed, signal.SIGKILL)
        os.waitid(os.P_PID, killed, os.WEXITED | os.WNOWAIT)
        assert sampler.now() > 0
        assert sampler.pid != killed
        assert f"process {killed}, which guards the memory budget, was killed" in caplog.text
    finally:
        sampler.close()
    assert sampler.now() == 0  # a closed one stays closed


@pytest.mark.linux
def test_the_sampler_sees_memory_that_counts_and_no_other(file_bytes, take_pages):
    sampler = PeakSampler()
    try:
        with open(file_bytes, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
            before = sampler.take()
            touch(pages)
            time.sleep(1.3)  # what is not anonymous is looked at once a second
            assert abs(sampler.seen() - before) < 2 * NEAR
            kept = take_pages(SIZE)
            deadline = time.monotonic() + 20
            while sampler.now() - before < SIZE - NEAR and time.monotonic() < deadline:
                time.sleep(0.05)
            assert abs(sampler.seen() - before - SIZE) < 2 * NEAR
            kept.close()
    finally:
        sampler.close()

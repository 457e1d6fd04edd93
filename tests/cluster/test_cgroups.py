# SPDX-License-Identifier: Apache-2.0
"""Where a cgroup for a cluster can be made, and what is written to it: in folders with the kernel's file names.

No machine of the tests has had the memory controller in version 2. What is real here is the look at this machine's own.
"""

import os

import pytest

from curator_df.cluster import cgroups
from curator_df.cluster.cgroups import MemoryCgroup, enter_worker_cgroup, find_place, own_cgroup

pytestmark = pytest.mark.quick
MINE = os.getpid()


def make(folder, *, pids=(), controllers="cpu memory pids", control=""):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text(control)
    return folder


@pytest.fixture
def session(tmp_path):
    """The cgroups of a systemd user session: the one above hands memory on, another process is in this process's own."""
    make(tmp_path, control="cpu memory")
    above = make(tmp_path / "user.slice/app.slice", control="memory pids")
    return tmp_path, above, make(above / "jupyter.scope", pids=(MINE, 1), controllers="memory pids")


def test_the_cgroup_of_this_process_is_found_by_the_mounts(tmp_path):
    mounts, cgroup = tmp_path / "mountinfo", tmp_path / "cgroup"
    cgroup.write_text("4:memory:/slurm\n0::/user.slice/app.scope\n")
    mounts.write_text("20 1 0:5 / /proc rw - proc proc rw\n30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    assert tuple(map(str, own_cgroup(mounts, cgroup))) == ("/sys/fs/cgroup/user.slice/app.scope", "/sys/fs/cgroup")
    mounts.write_text("30 20 0:26 /user.slice /cg rw shared:4 - cgroup2 cgroup2 rw\n")
    assert tuple(map(str, own_cgroup(mounts, cgroup))) == ("/cg/app.scope", "/cg")


@pytest.mark.parametrize("text", ["4:memory:/slurm\n", ""])
def test_there_is_none_without_version_2(tmp_path, text):
    mounts, cgroup = tmp_path / "mountinfo", tmp_path / "cgroup"
    cgroup.write_text(text)
    mounts.write_text("30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
    assert own_cgroup(mounts, cgroup) is None
    assert own_cgroup(tmp_path / "none", cgroup) is None


def test_a_session_has_a_place_above_this_process(session):
    mount, above, own = session
    assert find_place(own, mount, [MINE]) == above


def test_a_cgroup_that_would_be_left_empty_is_not_left(session):
    mount, _, own = session
    make(own, pids=(MINE,), controllers="pids")
    assert find_place(own, mount, [MINE]) is None


def test_the_own_cgroup_is_a_place_if_all_in_it_is_ours(session):
    mount, _, own = session
    make(own, pids=(MINE,), controllers="memory")
    assert find_place(own, mount, [MINE]) == own


def test_the_root_of_the_hierarchy_is_no_place(tmp_path):
    make(tmp_path, pids=(MINE,))
    assert find_place(tmp_path, tmp_path, [MINE]) is None


def test_without_the_memory_controller_there_is_no_place(session):
    mount, above, own = session
    for folder in (mount, above):
        make(folder, control="pids")
    assert find_place(own, mount, [MINE]) is None


def test_what_may_not_be_written_is_no_place(session, monkeypatch):
    mount, _, own = session
    monkeypatch.setattr(cgroups.os, "access", lambda path, mode: False)
    assert find_place(own, mount, [MINE]) is None


def test_a_process_whose_cgroup_shows_no_processes_has_no_place(session):
    mount, _, own = session
    make(own)
    assert find_place(own, mount, [MINE]) is None


def test_the_client_goes_below_a_limit_and_back(session):
    _, above, own = session
    made = MemoryCgroup(own, above, 1_000_000_000)
    assert made.path == above / f"curator-df-{MINE}"
    assert (made.path / "memory.max").read_text() == "1000000000"
    assert (made.path / "cgroup.subtree_control").read_text() == "+memory"
    assert (made.path / "client/cgroup.procs").read_text() == str(MINE)
    assert (above / "cgroup.subtree_control").read_text() == "memory pids"
    made.close()
    assert (own / "cgroup.procs").read_text() == str(MINE)
    assert (made.path / "memory.max").read_text() == "max"  # a folder of the kernel's would be gone


def test_below_the_own_cgroup_memory_is_handed_on_only_while_it_is_empty(session):
    _, _, own = session
    make(own, pids=(MINE,), controllers="memory")
    made = MemoryCgroup(own, own, 1_000_000_000)
    assert (own / "cgroup.subtree_control").read_text() == "+memory"
    made.close()
    assert (own / "cgroup.subtree_control").read_text() == "-memory"
    assert (own / "cgroup.procs").read_text() == str(MINE)


def test_what_fails_is_undone(session, monkeypatch):
    _, above, own = session
    (above / f"curator-df-{MINE}" / "memory.max").mkdir(parents=True)  # cannot be written to
    with pytest.raises(IsADirectoryError):
        MemoryCgroup(own, above, 1_000_000_000)
    assert (own / "cgroup.procs").read_text() == str(MINE)


def test_a_worker_enters_one_of_its_own(tmp_path, monkeypatch):
    enter_worker_cgroup(str(tmp_path), 800_000_000, tmp_path / "score")
    assert (tmp_path / "score").read_text() == "500"
    assert (tmp_path / f"worker-{MINE}/memory.max").read_text() == "800000000"
    assert (tmp_path / f"worker-{MINE}/cgroup.procs").read_text() == str(MINE)


def test_this_machine_is_left_as_it_was():
    before = cgroups.CGROUP.read_text()
    made = MemoryCgroup.make(64 << 30)
    if made is not None:
        assert cgroups.CGROUP.read_text() != before
        made.close()
    assert cgroups.CGROUP.read_text() == before

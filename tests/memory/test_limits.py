# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys

import pytest

from curator_df.memory import limits
from curator_df.memory.limits import machine_bytes, usable_cpus


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """Write a tree of cgroups, and in which of them this process is."""

    def write(places, files):
        (tmp_path / "self").write_text("".join(f"{place}\n" for place in places))
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        monkeypatch.setattr(limits, "CGROUP_FILE", tmp_path / "self")
        monkeypatch.setattr(limits, "CGROUP_ROOT", tmp_path / "cgroup")

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    return write


SLURM = "system.slice/slurmstepd.scope/job_7"


@pytest.mark.parametrize(
    ("places", "files"),
    [
        (["0::/"], {"memory.max": 1000, "cpu.max": "300000 100000"}),
        (
            [f"0::/{SLURM}/step_0/user/task_0"],
            {f"{SLURM}/memory.max": 1000, f"{SLURM}/step_0/memory.max": "max", f"{SLURM}/cpu.max": "300000 100000"},
        ),
        (
            ["0::/a/b"],
            {"memory.max": 2000, "a/memory.max": 1000, "a/b/memory.max": 3000, "a/b/cpu.max": "300000 100000"},
        ),
        (
            ["4:memory:/job/step", "3:cpu,cpuacct:/job", "0::/"],
            {
                "memory/job/memory.limit_in_bytes": 1000,
                "memory/memory.limit_in_bytes": 2**63 - 4096,
                "cpu,cpuacct/job/cpu.cfs_quota_us": 300000,
                "cpu,cpuacct/job/cpu.cfs_period_us": 100000,
                "cpu,cpuacct/cpu.cfs_quota_us": -1,
                "cpu,cpuacct/cpu.cfs_period_us": 100000,
            },
        ),
        (["0::/../../elsewhere"], {"memory.max": 1000, "cpu.max": "300000 100000"}),
    ],
    ids=["namespace", "Slurm", "least of all", "version 1", "outside of the namespace"],
)
def test_the_limits_of_all_cgroups_above_count(cgroups, places, files):
    cgroups(places, files)
    assert (machine_bytes(), usable_cpus()) == (1000, 3)


def test_without_limits_the_machine_counts(cgroups):
    cgroups(["0::/a"], {"memory.max": "max", "a/cpu.max": "max 100000"})
    assert machine_bytes() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert usable_cpus() == 8


def test_a_quota_below_one_cpu_is_one(cgroups):
    cgroups(["0::/a"], {"a/cpu.max": "50000 100000"})
    assert usable_cpus() == 1


RAISES = """
from curator_df.memory.limits import limit_data, raised_data_limit
from curator_df.memory.system import data_limit, status_bytes
limit_data(100_000_000)
left = bytearray(b"1") * 80_000_000
with raised_data_limit(300_000_000):
    print(data_limit()[0] - status_bytes("VmData"))
"""


@pytest.mark.linux
def test_what_earlier_tasks_left_is_part_of_what_an_exclusive_task_may_take():
    free_bytes = int(subprocess.check_output([sys.executable, "-c", RAISES]))
    assert 200_000_000 < free_bytes < 235_000_000

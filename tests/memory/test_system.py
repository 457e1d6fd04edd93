# SPDX-License-Identifier: Apache-2.0
"""What the operating system tells of processes: from Linux, and through psutil, which other systems need."""

import ast
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from curator_df.memory import system

pytestmark = pytest.mark.quick
MB = 1_000_000
PACKAGE = Path(system.__file__).parents[1]
HOLDS = "import sys; held = b'x' * 50_000_000; print(1, flush=True); input()"


@pytest.fixture(params=[pytest.param(False, marks=pytest.mark.linux), True], ids=["Linux", "psutil"])
def portable(request, monkeypatch):
    monkeypatch.setattr(system, "PORTABLE", request.param)
    return request.param


@pytest.fixture
def child():
    with subprocess.Popen(
        [sys.executable, "-S", "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"1\n"
        yield process
        process.kill()


def test_a_process_is_found_with_its_parent_its_command_and_its_start(portable, child):
    state, parent, started = system.read_stat(child.pid)
    assert state in "RS" and parent == os.getpid()
    assert started >= system.read_stat(os.getpid())[2]
    assert system.read_stat(child.pid)[2] == started
    assert HOLDS.encode() in system.command_line(child.pid).split(b"\0")
    assert system.is_process(child.pid) and system.exists(child.pid)
    assert child.pid in system.processes(os.getpid(), 0)
    assert child.pid not in system.processes(os.getpid(), child.pid)


def test_what_a_process_holds_is_read_in_each_way(portable, child):
    resident, shared = system.statm(child.pid)
    pages = system.Pages(child.pid)
    private_bytes, shared_bytes = pages.read()
    assert abs(private_bytes + shared_bytes - resident) < MB
    assert 50 * MB < system.rollup(child.pid)["Pss_Anon"] < 75 * MB
    assert 50 * MB < resident - shared < 75 * MB
    assert abs(system.status_bytes("VmRSS", child.pid) - resident) < MB
    assert pages.faults() > 0 or portable  # far fewer than small pages where the allocator asks for large ones
    child.kill()
    child.wait()
    assert pages.read() == (0, 0) == system.statm(child.pid)
    pages.close()


def test_a_process_that_ended_is_an_error_of_the_system(portable, child):
    child.kill()
    child.wait()
    for ask in (system.read_stat, system.rollup, system.command_line, system.Pages):
        with pytest.raises(OSError, match=r"No such process|No such file|not found"):
            ask(child.pid)
    assert not system.exists(child.pid)
    assert system.processes(child.pid, 0) == []


def test_this_process_knows_its_memory_and_its_peak(portable):
    held = bytearray(b"1") * (60 * MB)
    assert system.status_bytes("VmHWM") >= system.status_bytes("VmRSS") - MB > len(held)
    assert system.status_bytes("RssAnon") > len(held)
    assert system.cpus_of_process() >= 1 and system.seconds_since_boot() > 0


def test_with_psutil_no_process_has_a_data_limit(monkeypatch, child):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    monkeypatch.setattr(system, "PORTABLE", True)
    system.set_data_limit(10**12, 10**12)
    system.limit_data_of(child.pid, MB)
    assert (
        system.data_limit() == (system.NO_LIMIT, system.NO_LIMIT) and system.data_limit_of(child.pid) == system.NO_LIMIT
    )
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


NAMES = {"prlimit", "getrlimit", "setrlimit", "sched_getaffinity", "CLOCK_BOOTTIME", "prctl"}
WITH_A_WAY_OUT = {
    "memory/system.py",
    "cluster/cgroups.py",
    "memory/limits.py",  # the file that lists cgroups; where it is missing there are none
    "kernels/compiling/compile_cache.py",  # /proc/cpuinfo, or what the platform says
    "kernels/compiling/shipped_kernels.py",  # the same; without it, kernels are compiled
    "memory/address_space.py",  # RLIMIT_AS, and how much of it is used where it is set
    "cluster/surroundings.py",  # RLIMIT_AS and RLIMIT_NOFILE, of every Unix
}


def test_what_only_linux_has_is_used_in_one_module():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_path = isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/proc/")
            if is_path or (isinstance(node, ast.Attribute) and node.attr in NAMES):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == WITH_A_WAY_OUT


CHAIN = """
import json, resource, sys
import curator_df as cdf
from curator_df.memory import system

def starts(block):
    import subprocess
    subprocess.run([sys.executable, "-S", "-c", "x = bytearray(b'1') * 900_000_000; input()"], stdin=subprocess.PIPE, check=True)
    return block

if __name__ == "__main__":
    said = {"portable": system.PORTABLE}
    with cdf.start_cluster(memory="1GB", cpus=1) as cluster:
        said["wall"] = str(cluster)
        docs = cdf.read_jsonl(sys.argv[1]).pipe(cdf.normalize_unicode).pipe(cdf.drop_exact_duplicates)
        said["rows"] = cdf.write_parquet(docs, sys.argv[2] + "/out").rows_written
        limits = cluster.client.run(resource.getrlimit, resource.RLIMIT_DATA).values()
        said["limited"] = [limit for limit, _ in limits if limit != resource.RLIM_INFINITY]
        docs = cdf.read_jsonl(sys.argv[1])
        try:
            cdf.write_parquet(docs.map_partitions(starts, meta=docs._meta), sys.argv[2] + "/starts", on_oom="raise")
        except cdf.errors.StepMemoryError as exc:
            said["error"] = str(exc)
    print(json.dumps(said))
"""


def test_a_chain_runs_and_the_guard_alone_holds_the_budget(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": f"row {n % 50}"}) + "\n" for n in range(500)))
    (tmp_path / "chain.py").write_text(CHAIN)
    ran = subprocess.run(
        [sys.executable, tmp_path / "chain.py", tmp_path / "in.jsonl", tmp_path],
        env={**os.environ, system.PORTABLE_VARIABLE: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["portable"] and said["rows"] == 50 and said["limited"] == []
    assert "the guard, kills processes that would exceed the budget" in said["wall"]
    assert "'map_partitions(starts)' starts processes that took" in said["error"]

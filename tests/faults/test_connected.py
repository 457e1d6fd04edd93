# SPDX-License-Identifier: Apache-2.0
"""A scheduler and workers that were started by their own commands, as on a cluster: any of them is killed or stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from distributed import Client

from tests.faults.runs import EXPECTED, PATIENCE_SECONDS, ROWS, finish, ids, wait_for_ranges
from tests.memory.waiting import wait_until

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3 * PATIENCE_SECONDS)]

DASK = (sys.executable, "-m", "distributed.cli.dask_scheduler"), (sys.executable, "-m", "distributed.cli.dask_worker")


class Running:
    """A scheduler, and two workers with their nannies, or one that a command limits."""

    def __init__(self, folder, *limited, options=()):
        self.file, self.folder, self.options = folder / "scheduler.json", folder, options
        self.processes = []
        self.scheduler = self.start_scheduler()
        self.nannies = [self.start_worker(*limited) for _ in range(1 if limited else 2)]

    def start_scheduler(self, port=0):
        command = [*DASK[0], "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
        return self._start([*command, "--scheduler-file", str(self.file)])

    def start_worker(self, *limited):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        command = [*limited, *DASK[1], "--scheduler-file", str(self.file), "--nthreads", "1", "--memory-limit", "800MB"]
        return self._start([*command, *self.options, "--no-dashboard", "--local-directory", str(self.folder)])

    def worker_of(self, nanny):
        """Return the worker process below a nanny."""
        (worker,) = [p for p in psutil.Process(nanny.pid).children() if "--multiprocessing-fork" in p.cmdline()]
        return worker

    def stop(self):
        self._kill(self.processes)

    def stop_workers(self):
        self._kill(self.nannies)
        with Client(json.loads(self.file.read_text())["address"]) as client:
            wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"], PATIENCE_SECONDS)

    @staticmethod
    def _kill(processes):
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _start(self, command):
        nothing = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes.append(subprocess.Popen(command, start_new_session=True, cwd=self.folder, **nothing))
        return self.processes[-1]


@pytest.fixture
def running(tmp_path):
    (tmp_path / "dask").mkdir()
    running = Running(tmp_path / "dask")
    yield running
    running.stop()


GROUP_BYTES = 225_000_000
"""For a nanny and its worker, which take 175 MB when they work; the step wants 93 MB for the rows of the first range."""


@pytest.fixture
def full_group():
    """A memory cgroup below that of this process: the kernel kills what is in it when it is full."""
    groups = dict(line.split(":")[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    top, limit, failures = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.oom_control"
    if "memory" not in groups:
        top, limit, failures = Path("/sys/fs/cgroup"), "memory.max", "memory.events"
    own = top / groups.get("memory", groups.get("", "/")).lstrip("/")
    group = (own if own.is_dir() else top) / f"curator-df-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(GROUP_BYTES))
    except OSError as exc:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"by nature: no memory cgroup can be made here ({exc})")
    yield group / "cgroup.procs", group / failures
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    group.rmdir()


def killed_in(failures):
    """Return how many processes the kernel killed in a group."""
    words = failures.read_text().split()
    return int(words[words.index("oom_kill") + 1])


def address(running, workers=2):
    found = json.loads(running.file.read_text())["address"]
    with Client(found) as client:
        client.wait_for_workers(workers, timeout=PATIENCE_SECONDS)
    return found


def test_a_nanny_that_is_killed_changes_nothing(start, script, corpus, tmp_path, running):
    process = start(script, corpus, tmp_path / "out", ADDRESS=address(running))
    wait_for_ranges(tmp_path / "out", 3, process)
    running.nannies[0].send_signal(signal.SIGKILL)  # its worker ends when it sees that
    receipt = finish(process)
    assert receipt["rows_read"] == ROWS
    assert ids(tmp_path / "out") == EXPECTED


def test_a_worker_that_stands_still_for_20_s_changes_nothing(start, script, corpus, tmp_path, running):
    process = start(script, corpus, tmp_path / "out", ADDRESS=address(running))
    wait_for_ranges(tmp_path / "out", 3, process)
    worker = running.worker_of(running.nannies[0])
    worker.send_signal(signal.SIGSTOP)
    time.sleep(20)
    worker.send_signal(signal.SIGCONT)
    assert finish(process)["rows_read"] == ROWS
    assert ids(tmp_path / "out") == EXPECTED


def test_workers_that_leave_when_their_time_is_over_and_come_back_change_nothing(start, script, corpus, tmp_path):
    """As jobs of a batch system do before their time ends: `curator_df.cluster.batch`."""
    (tmp_path / "dask").mkdir()
    running = Running(tmp_path / "dask", options=("--lifetime", "8s", "--lifetime-stagger", "2s", "--lifetime-restart"))
    try:
        process = start(script, corpus, tmp_path / "out", ADDRESS=address(running), SLEEP="1.5")
        wait_for_ranges(tmp_path / "out", 1, process)
        before = {running.worker_of(nanny).pid for nanny in running.nannies}
        receipt = finish(process)
        assert before.isdisjoint(psutil.pids())
    finally:
        running.stop()
    assert receipt["rows_read"] == ROWS
    assert ids(tmp_path / "out") == EXPECTED


def test_a_scheduler_that_is_killed_is_an_error_and_the_run_resumes_elsewhere(start, script, corpus, tmp_path, running):
    process = start(script, corpus, tmp_path / "out", ADDRESS=address(running))
    wait_for_ranges(tmp_path / "out", 3, process)
    running.scheduler.send_signal(signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode != 0
    assert "SchedulerLostError" in err
    first, *others = err.splitlines()
    assert first == "Traceback (most recent call last):"  # no log message, of whatever library
    assert [line for line in others if not line.startswith(" ")] == [others[-1]]  # one traceback, and the error
    assert others[-1].startswith("curator_df.errors.SchedulerLostError: the connection to the scheduler at tcp://")
    assert "on_existing='resume'" in err
    finish(start(script, corpus, tmp_path / "out", on_existing="resume", SLEEP="0"))
    assert ids(tmp_path / "out") == EXPECTED


COMPUTES = """
import sys, time
import curator_df as cdf

def slow(block):
    time.sleep(1)
    return block

if __name__ == "__main__":
    with cdf.connect(sys.argv[1]):
        rows = cdf.read_jsonl(sys.argv[2], blocksize="20kB").map_partitions(slow)
        print("begins", flush=True)
        rows.compute()
"""


def test_a_table_that_is_computed_while_the_scheduler_is_killed_is_the_same_error(corpus, tmp_path, running):
    (tmp_path / "computes.py").write_text(COMPUTES)
    command = [sys.executable, "computes.py", address(running), str(corpus)]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "begins\n"
        time.sleep(3)
        running.scheduler.send_signal(signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    others = err.splitlines()[1:]
    assert [line for line in others if not line.startswith(" ")] == [others[-1]], err
    assert others[-1].startswith("curator_df.errors.SchedulerLostError: the connection to the scheduler at tcp://"), err
    assert others[-1].endswith("compute the table again")


def test_workers_whose_address_space_is_limited_change_nothing(start, script, corpus, tmp_path, running):
    where = address(running)
    before = [running.worker_of(nanny) for nanny in running.nannies]
    for worker in before:
        most = worker.memory_info().vms + 100_000_000  # the step wants 320 kB a row, and has the imports before it
        worker.rlimit(psutil.RLIMIT_AS, (most, most))
    hungry = {"ADDRESS": where, "step": "hungry", "BLOCK": "400kB"}
    process = start(script, corpus, tmp_path / "out", **hungry)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    # An allocation failed, or a worker ended.
    if process.returncode == 0:
        receipt = json.loads(out.splitlines()[-1])
        assert receipt["retries"] or any(not worker.is_running() for worker in before)
    else:  # the limit stopped the imports of the first task, or Dask's own allocations: the workers neither work nor end
        refused = "NoClusterError: a worker cannot run curator_df: ImportError('ulimit -v allows " in err
        assert refused or "WorkerLostError: no worker came back within 120 s" in err
        assert "Cleaning up afterwards failed" not in err
        assert refused or "on_existing='resume'" in err
        if refused:
            running.stop_workers()
        for _ in before:
            running.start_worker()
        address(running)
        receipt = finish(start(script, corpus, tmp_path / "out", on_existing="resume", **hungry))
    assert receipt["rows_out_of_memory"] == 0
    assert ids(tmp_path / "out") == list(range(ROWS))


def test_workers_that_their_nanny_ends_because_they_hold_too_much_change_nothing(
    start, script, corpus, tmp_path, running
):
    where = address(running)  # of workers that may hold 800 MB: at 95% a nanny ends its worker and starts another
    receipt = finish(start(script, corpus, tmp_path / "out", ADDRESS=where, step="swells_at_first", BLOCK="400kB"))
    assert receipt["retries"]["worker lost"] > 0
    assert all(nanny.poll() is None for nanny in running.nannies)
    assert receipt["rows_out_of_memory"] == 0
    assert ids(tmp_path / "out") == list(range(ROWS))


def test_workers_that_the_kernel_kills_because_a_cgroup_is_full_change_nothing(
    full_group, start, script, corpus, tmp_path
):
    members, failures = full_group
    (tmp_path / "dask").mkdir()
    running = Running(tmp_path / "dask", "sh", "-c", f'echo $$ > {members}; exec "$@"', "sh")
    try:
        where = address(running, 1)
        receipt = finish(start(script, corpus, tmp_path / "out", ADDRESS=where, step="hungry_at_first", BLOCK="400kB"))
        assert killed_in(failures) > 0
        assert receipt["retries"]["worker lost"] > 0
        assert receipt["rows_out_of_memory"] == 0
        assert ids(tmp_path / "out") == list(range(ROWS))
    finally:
        running.stop()

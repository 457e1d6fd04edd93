# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import logging
import os
import pkgutil
import platform
import resource
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import dask
import distributed
import numpy as np
import psutil
import pyarrow as pa
import pytest

import curator_df as cdf
from curator_df import errors
from curator_df.cluster.worker_processes import is_starting
from curator_df.core.cluster_client import restart
from curator_df.core.runner.session import current_session
from curator_df.memory import wall
from curator_df.memory.budget import choose_layout
from curator_df.memory.counted_memory import tree_bytes


def hold(size_bytes):
    return len(np.ones(size_bytes, dtype="u1"))


def data_limit():
    return resource.getrlimit(resource.RLIMIT_DATA)[0]


def test_when_it_ends_the_process_has_its_own_limit_and_no_cluster():
    before = data_limit()
    with cdf.start_cluster(memory="2GB", cpus=1) as cluster:
        assert data_limit() == before
        assert "closed" not in repr(cluster)
    assert data_limit() == before
    assert repr(cluster).startswith("status     closed")
    with pytest.raises(errors.NoClusterError, match="start_cluster"):
        current_session()


def of_this_process():
    """What a start changes: Dask's settings and default client, logs, the limit of this process, its children and sockets."""
    return {
        "scheduler": dask.config.get("scheduler", None),
        "folder": dask.config.get("temporary-directory", None),
        "clients": [one for one in distributed.client._global_clients.values() if one.status != "closed"],
        "clusters": [one for one in distributed.SpecCluster._instances if one.status != distributed.Status.closed],
        "logs": logging.getLogger("distributed").level,
        "limit": data_limit(),
        "children": psutil.Process().children(),
        "listens": len([one for one in psutil.Process().net_connections() if one.status == "LISTEN"]),
        "side": wall._side,
        "walls": list(wall._walls),
    }


@pytest.mark.parametrize(
    "fails",
    [
        "curator_df.cluster.local.Wall",
        "distributed.LocalCluster.sync",
        "curator_df.cluster.worker_processes.sync",
        "curator_df.cluster.local.stand_in",
        "curator_df.cluster.local.PeakSampler",
        "curator_df.interactive.operations.return_in_pieces",
        "curator_df.interactive.operations.look_at_deferred",
        "curator_df.cluster.local.open_session",
    ],
)
def test_an_interrupt_at_any_step_of_a_start_leaves_nothing(tmp_path, monkeypatch, beside_tests, fails):
    monkeypatch.setattr("curator_df.cluster.local.import_rest", lambda: None)
    before = of_this_process()
    interrupted = []

    def fail(*arguments, **named):
        if fails.endswith("sync"):  # the main thread waits for Dask's event loop, which goes on
            waited = waits(*arguments, **named)
            if interrupted:
                return waited
        interrupted.append(fails)
        raise KeyboardInterrupt

    waits = pkgutil.resolve_name(fails)
    monkeypatch.setattr(fails, fail)
    with pytest.raises(KeyboardInterrupt):
        cdf.start_cluster(memory=beside_tests(450_000_000), cpus=1, spill_directory=tmp_path)
    monkeypatch.undo()
    assert interrupted == [fails]
    assert of_this_process() == before
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(errors.NoClusterError, match="start_cluster"):
        current_session()


@pytest.mark.parametrize(
    "seconds", [pytest.param(0.0, marks=pytest.mark.proof), 0.4, pytest.param(1.0, marks=pytest.mark.proof)]
)
def test_a_cluster_whose_worker_was_just_killed_can_be_closed(seconds):
    before = worker_processes()
    with cdf.start_cluster(memory="2GB", cpus=1) as cluster:
        (pid,) = cluster.client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        time.sleep(seconds)  # the nanny has not seen it; starts another; is waiting for that one
    assert worker_processes() == before


def test_workers_that_are_starting_are_not_ended_to_start_others():
    with cdf.start_cluster(memory="2GB", cpus=1) as cluster:
        [nanny] = cluster._local.workers.values()
        (pid,) = cluster.client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while not is_starting(cluster._local) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert is_starting(cluster._local)
        cluster._revive()
        cluster.client.wait_for_workers(1, timeout=120)
        assert list(cluster._local.workers.values()) == [nanny]
        while is_starting(cluster._local) and time.monotonic() < deadline + 60:  # the nanny hears of it a moment later
            time.sleep(0.001)
        assert not is_starting(cluster._local)
        cluster._revive()  # now it is done: the one that is there goes, and another comes
        while [nanny] == list(cluster._local.workers.values()) and time.monotonic() < deadline + 60:
            time.sleep(0.1)
        cluster.client.wait_for_workers(1, timeout=120)
        assert cluster.client.submit(sum, [1, 2]).result(timeout=60) == 3


def worker_processes():
    return [child for child in psutil.Process().children() if "--multiprocessing-fork" in child.cmdline()]


def require_loopback():
    """Check that this process and those below it listen on the loopback interface alone, and not on Dask's own port."""
    listening = [
        socket.laddr
        for process in (psutil.Process(), *psutil.Process().children(recursive=True))
        for socket in process.net_connections(kind="inet")
        if socket.status == psutil.CONN_LISTEN
    ]
    assert {address.ip for address in listening} == {"127.0.0.1"}
    assert 8787 not in {address.port for address in listening}


@pytest.mark.parametrize("port", [None, 0], ids=["no dashboard", "dashboard"])
def test_every_socket_of_a_cluster_of_threads_is_of_the_loopback_interface(beside_tests, port):
    with cdf.start_cluster(memory=beside_tests(500_000_000), cpus=1, dashboard_port=port) as cluster:
        assert cluster.layout.in_process
        require_loopback()


def test_a_spill_limit_beyond_the_disk_is_refused(tmp_path):
    with pytest.raises(errors.BudgetError, match="spill_limit"):
        cdf.start_cluster(memory="2GB", spill_limit="900TB", spill_directory=tmp_path)
    with pytest.raises(errors.ParameterError, match="spill_directory"):
        cdf.start_cluster(memory="2GB", spill_directory=tmp_path / "nowhere")


def test_a_process_that_holds_much_already_is_refused():
    held = np.ones(900_000_000, dtype="u1")
    with pytest.raises(errors.BudgetError, match="that this process already uses"):
        cdf.start_cluster(memory="1GB", cpus=2)
    assert len(held)


def test_what_this_process_has_started_is_room_that_is_taken():
    child = subprocess.Popen(
        [sys.executable, "-c", "held = b'x' * 300_000_000; print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout.readline() == b"1\n"
        alone = choose_layout(3_000_000_000, cpus=1)
        with cdf.start_cluster(memory="3GB", cpus=1, dashboard_port=None) as cluster:
            assert cluster.layout.work_bytes < alone.work_bytes - 250_000_000
            assert tree_bytes(os.getpid()) + cluster.layout.exclusive_bytes < 3_000_000_000
    finally:
        child.communicate(b"\n")


def test_a_script_without_a_main_guard_is_told_so_at_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import curator_df as cdf\nwith cdf.start_cluster(memory='1GB') as cluster:\n    print(cluster)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode != 0
    assert "script.py, line 2: " in done.stderr.splitlines()[-1]
    assert "if __name__ == '__main__':" in done.stderr.splitlines()[-1]
    assert done.stderr.count("Traceback") == 1  # no worker was started, which would print one of its own


def test_a_script_without_a_main_guard_runs_in_its_own_threads_and_keeps_its_budget(tmp_path):
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"text": f"text {number}"}) + "\n" for number in range(2_000))
    )
    script = tmp_path / "script.py"
    script.write_text(
        "import curator_df as cdf\nwith cdf.start_cluster(memory='1GB', cpus=2, processes=False) as cluster:\n"
        f"    receipt = cdf.write_parquet(cdf.read_jsonl({str(tmp_path / 'in.jsonl')!r}), {str(tmp_path / 'out')!r})\n"
        "    print(cluster.layout.shape, receipt.rows_written, receipt.measured_bytes)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=280, check=True)
    shape, rows, peak = done.stdout.splitlines()[-1].rsplit(maxsplit=2)
    assert (shape, int(rows)) == ("2 threads of this process", 2_000)
    assert 100_000_000 < int(peak) < 1_000_000_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"recycle_after": 1000}, "recycle_after=1000 needs worker processes, and processes=False starts none"),
        ({"processes": 4}, "processes=4 must be True or False"),
    ],
)
def test_what_needs_worker_processes_is_refused_without_them(options, said):
    with pytest.raises(errors.ParameterError, match=said):
        cdf.start_cluster(memory="2GB", **{"processes": False, **options})


GUARD_SEEN = """
import contextlib, multiprocessing, runpy, sys
from curator_df.cluster.surroundings import require_main_guard
from curator_df.errors import NoClusterError

def START():
    require_main_guard(sys._getframe(1))
    started.append(True)
    return contextlib.nullcontext()

for path in sys.argv[1:]:
    started = []
    try:
        runpy.run_path(path, {"START": START, "multiprocessing": multiprocessing}, run_name="__main__")
        print("started" if started else "nothing")
    except NoClusterError:
        print("refused")
started = []
START()  # this program has no file: python -c
print("started" if started else "nothing")
"""


def test_a_missing_main_guard_is_seen_in_the_script(tmp_path):
    scripts = {
        "START()": "refused",
        "def main():\n    START()\n\nmain()": "refused",
        "with START():\n    pass": "refused",
        "if __name__ == '__main__':\n    START()": "started",
        "def main():\n    START()\n\nif __name__ == '__main__':\n    main()": "started",
        "try:\n    if __name__ == '__main__':\n        START()\nfinally:\n    pass": "started",
        "if multiprocessing.parent_process() is None:\n    START()": "started",
    }
    paths = [tmp_path / f"{number}.py" for number in range(len(scripts))]
    for path, script in zip(paths, scripts, strict=True):
        path.write_text(f"{script}\n")
    done = subprocess.run(
        [sys.executable, "-c", GUARD_SEEN, *paths], capture_output=True, text=True, timeout=100, check=True
    )
    *found, without_file = done.stdout.split()
    assert dict(zip(scripts, found, strict=True)) == scripts
    assert without_file == "started"


def memory_settings(dask_worker) -> dict[str, object]:
    """Return what a worker process goes by (runs on it)."""
    manager = dask_worker.memory_manager
    return {
        "target": manager.memory_target_fraction,
        "spill": manager.memory_spill_fraction,
        "pause": manager.memory_pause_fraction,
        "max_spill": manager.max_spill,
        "limit": manager.memory_limit,
        "has_data_limit": resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY,
        "shuffle": dask.config.get("distributed.p2p.comm.buffer"),
        "environment": [os.environ.get(name) for name in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "OMP_NUM_THREADS")],
    }


def test_a_worker_that_is_started_again_has_the_same_settings():
    with cdf.start_cluster(memory="4GB", cpus=1) as cluster:
        ((address, first),) = cluster.client.run(memory_settings).items()
        assert first["pause"] is False
        assert first["has_data_limit"]
        for end in (lambda pid: os.kill(pid, signal.SIGKILL), lambda _: cluster._revive()):  # by its nanny, by another
            deadline = time.monotonic() + 60
            while is_starting(cluster._local) and time.monotonic() < deadline:
                time.sleep(0.01)
            end(cluster.client.run(os.getpid)[address])
            while address in cluster.client.nthreads() and time.monotonic() < deadline:
                time.sleep(0.05)
            cluster.client.wait_for_workers(1, timeout=60)
            ((other, again),) = cluster.client.run(memory_settings).items()
            assert other != address
            assert again == first
            address = other


@pytest.fixture(scope="module")
def cluster():
    """Open from its first test on: tests that want none come before."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("GLIBC_TUNABLES", raising=False)
        with cdf.start_cluster(memory="2GB", cpus=2) as running:
            yield running


def test_workers_cannot_allocate_beyond_their_share(cluster):
    work_bytes = cluster.layout.work_bytes
    assert cluster.client.submit(hold, work_bytes // 2).result() == work_bytes // 2
    with pytest.raises(MemoryError):
        cluster.client.submit(hold, work_bytes * 2).result()
    assert cluster.client.submit(os.getpid).result() != os.getpid()


def test_a_cluster_shows_itself_and_listens_on_loopback_only(cluster):
    assert "2.00 GB for all processes together" in repr(cluster)
    assert "<a href='http://127.0.0.1:" in cluster._repr_html_()
    addresses = [cluster.client.scheduler.address, *cluster.client.scheduler_info(n_workers=-1)["workers"]]
    assert all(address.startswith("tcp://127.0.0.1:") for address in addresses)
    assert current_session().client is cluster.client
    require_loopback()


def flags_of_a_buffer():
    """Return the kernel's flags of the mapping that a buffer of Arrow lies in."""
    held = pa.allocate_buffer(64_000_000)
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, dash, last = line.partition(" ")[0].partition("-")
        inside = int(first, 16) <= held.address < int(last, 16) if dash else inside
        if inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError("no such mapping")


@pytest.mark.skipif(platform.libc_ver() < ("glibc", "2.35"), reason="glibc asks for large pages from 2.35 on")
def test_large_buffers_of_workers_ask_for_large_pages(cluster):
    assert all("hg" in flags for flags in cluster.client.run(flags_of_a_buffer).values())


def test_a_nanny_stays_although_its_worker_takes_longer_to_start_than_dask_waits(cluster):
    nannies = dict(cluster._local.workers)
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "50ms"}):
        address, *_ = cluster.client.nthreads()
        cluster.client.restart_workers([address], timeout=120)
    assert dict(cluster._local.workers) == nannies
    assert {nanny.status.name for nanny in nannies.values()} == {"running"}


def test_the_dashboard_is_there_and_workers_answer_without_pages(cluster):
    for page in ("status", "workers", "individual-progress", "health"):
        with urllib.request.urlopen(cluster.dashboard_link.replace("status", page), timeout=60) as answer:
            assert answer.status == 200
    for worker in cluster.client.scheduler_info(n_workers=-1)["workers"].values():
        address = f"http://127.0.0.1:{worker['services']['dashboard']}"
        with urllib.request.urlopen(f"{address}/health", timeout=60) as answer:
            assert answer.read() == b"ok"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/counters", timeout=60)


def log_an_error(dask_worker):
    """Log an error as Dask does for a result that it cannot spill; return the kept text, and the kept frames."""
    try:
        {}["result"]
    except KeyError:
        logging.getLogger("distributed.worker").exception("Failed to spill")
    record = dask_worker._deque_handler.deque[-1]
    return dask_worker._deque_handler.format(record), record.exc_info


def test_log_messages_of_workers_hold_no_frames(cluster):
    for text, frames in cluster.client.run(log_an_error).values():
        assert frames is None
        assert "in log_an_error" in text


SECOND_CLUSTER = """
import curator_df as cdf
from curator_df.cluster import local

if __name__ == "__main__":
    with cdf.start_cluster(memory="2GB", cpus=2, dashboard_port=None):
        local.Cluster = None  # nothing may be started
        try:
            cdf.start_cluster(memory="500MB", cpus=1)
        except cdf.errors.BudgetError as exc:
            print(exc)
"""


CLUSTER_BESIDE_THREADS = """
import curator_df as cdf

if __name__ == "__main__":
    with cdf.start_cluster(memory="320MB", dashboard_port=None) as first:
        assert first.layout.in_process
        starts = [lambda m=m: cdf.start_cluster(memory=m, dashboard_port=None) for m in ("320MB", "1GB", "2GB")]
        for start in (*starts, lambda: cdf.slurm_cluster(memory="4GB", cpus=1)):
            try:
                start()
            except cdf.errors.BudgetError as exc:
                print(exc)
    with cdf.start_cluster(memory="1GB", dashboard_port=None) as second:  # the limit went with the first
        assert second.client.submit(sum, [1, 2]).result(60) == 3
"""


def test_no_cluster_starts_beside_one_that_limits_this_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CLUSTER_BESIDE_THREADS)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == 4
    assert all(line.startswith("A cluster is already running in threads of this process") for line in said)
    assert all(line.endswith("or close it first: close() of the cluster that start_cluster returned") for line in said)


def test_a_second_cluster_without_room_is_refused_before_it_starts(tmp_path):
    script = tmp_path / "script.py"  # a process that holds nothing else
    script.write_text(SECOND_CLUSTER)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("A cluster is already running in this process: "), done.stdout
    assert " or close it first, or start the other one with about memory=" in done.stdout


def test_results_do_not_pass_through_the_scheduler(cluster):
    with pytest.MonkeyPatch.context() as patched:
        patched.delitem(cluster._local.scheduler.handlers, "gather")
        assert cluster.client.submit(hold, 1_000).result(60) == 1_000


class Heavy:
    """A value for which there is no memory at first, when another process receives it."""

    def __init__(self, folder, times):
        self.folder, self.times = folder, times

    def __reduce__(self):
        return receive, (self.folder, self.times)


def receive(folder, times):
    tries = len(os.listdir(folder))
    Path(folder, str(tries)).touch()
    if tries < times:
        raise MemoryError("Unable to allocate 66.0 MiB")
    return Heavy(folder, times)


@pytest.mark.parametrize("times", [2, 1_000])
def test_a_task_whose_result_from_another_worker_finds_no_memory_does_not_wait_for_ever(cluster, tmp_path, times):
    first, second = cluster.client.nthreads()
    made = cluster.client.submit(Heavy, str(tmp_path), times, workers=[first])
    taken = cluster.client.submit(type, made, workers=[second])
    if times == 2:
        assert taken.result(60).__name__ == "Heavy"
    else:
        with pytest.raises(errors.BudgetError, match="no memory for"):
            taken.result(60)
    assert len(os.listdir(tmp_path)) == 3


@pytest.fixture
def late(cluster):
    """The scheduler notices only after a second that a worker has ended, as it may on a busy machine."""
    scheduler = cluster._local.scheduler
    remove_worker = scheduler.remove_worker

    async def remove_late(*arguments, **options):
        await asyncio.sleep(1)
        return await remove_worker(*arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scheduler, "remove_worker", remove_late)
        patched.setitem(scheduler.handlers, "unregister", remove_late)
        yield


@pytest.mark.usefixtures("late")
def test_after_a_restart_all_workers_are_new_although_the_scheduler_notices_late(cluster):
    before = set(cluster.client.run(os.getpid).values())
    cluster.client.restart(timeout=120)
    found = set(cluster.client.run(os.getpid).values())
    assert len(found) == len(before)
    assert before.isdisjoint(found)
    assert all(0 < limit < 3_000_000_000 for limit in cluster.client.run(data_limit).values())


@pytest.mark.usefixtures("late")
def test_after_the_restart_of_one_worker_it_is_new_although_the_scheduler_notices_late(cluster):
    before = cluster.client.run(os.getpid)
    address, *_ = before
    assert restart(cluster.client, address)
    found = cluster.client.run(os.getpid)
    assert len(found) == len(before)
    assert address not in found

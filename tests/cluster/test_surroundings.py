# SPDX-License-Identifier: Apache-2.0
"""Programs in odd surroundings: each either works or ends soon, with an error that names what is odd. Real processes."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from pathlib import Path

import psutil
import pytest
from distributed.comm import CommClosedError

from curator_df import errors
from curator_df.cluster import surroundings
from curator_df.cluster.spill_folder import new_spill_folder
from curator_df.core.ranges.out_of_memory import is_out_of_memory
from curator_df.core.ranges.source import Range
from curator_df.core.tasks.task import Attempt, run_guarded
from curator_df.kernels.compiling import compile_cache
from curator_df.memory import address_space
from curator_df.memory import limits as memory_limits

ROWS = 50
PATIENCE_SECONDS = 240
"""What a process may take on a machine that has much else to do; more is a hang."""

PROGRAM = """
import os, sys
import curator_df as cdf

def main():
    with cdf.start_cluster(memory=os.environ["MEMORY"], cpus=1):
        receipt = cdf.write_parquet(cdf.read_jsonl(os.environ["SOURCE"]), os.environ["TARGET"])
    with open(os.environ["TARGET"] + ".rows", "w") as file:
        file.write(str(receipt.rows_written))

if __name__ == "__main__":
    main()
"""


START_PATIENCE_SECONDS = 120
"""What a cluster that cannot start may take until it says so, of a minute without a sign of a worker."""

LIMITED_PATIENCE_SECONDS = 60
"""What a start may take until its end while a limit of the shell is low."""

NO_THREADS = """
import multiprocessing, os, threading, time
from distributed.process import AsyncProcess
import curator_df as cdf
from curator_df.cluster.worker_processes import worker_processes

start_process, start_threads, start_thread = multiprocessing.Process.start, AsyncProcess._start_threads, threading.Thread.start

def refuse_threads(self):
    raise RuntimeError("can't start new thread")

def refuse_process(self):
    raise OSError(12, "Cannot allocate memory")

def refuse_watching(self):
    if "watch process join" in self.name:
        raise RuntimeError("can't start new thread")
    start_thread(self)

def attempt(name):
    try:
        cdf.start_cluster(memory=os.environ["MEMORY"], cpus=1)
    except cdf.errors.NoClusterError as exc:
        print(name, type(exc).__name__, exc, flush=True)

if __name__ == "__main__":
    AsyncProcess._start_threads = refuse_threads
    attempt("before")
    AsyncProcess._start_threads = start_threads
    kind = multiprocessing.get_context("spawn").Process
    kind.start = refuse_process
    attempt("during")
    del kind.start
    threading.Thread.start = refuse_watching
    attempt("after")
    threading.Thread.start = start_thread
    deadline = time.monotonic() + 20
    while worker_processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    print("left", worker_processes())
"""


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(f'{{"text": "row {number}"}}\n' for number in range(ROWS)))
    (tmp_path / "program.py").write_text(PROGRAM)
    given = {"SOURCE": str(tmp_path / "in.jsonl"), "TARGET": str(tmp_path / "out"), "MEMORY": "2GB"}
    given["PROGRAM"] = str(tmp_path / "program.py")
    return {**os.environ, **given}


def run(command, environment, folder):
    """Run a line of a shell; return its exit code and what it said."""
    done = subprocess.run(
        ["bash", "-c", command.replace("python ", f"{sys.executable} ")],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def rows_of(environment):
    with open(environment["TARGET"] + ".rows") as file:
        return int(file.read())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "python - < program.py",
            "was read from standard input .* which is '<stdin>' here. Save the program in a file",
        ),
        (
            "mkdir gone; cd gone; rmdir ../gone; python $PROGRAM",
            "The working directory of this process was deleted",
        ),
        pytest.param(
            "cp program.py p.py; python -c \"import sys; sys.argv = ['p.py']; exec(open('p.py').read())\"",
            "",
            marks=pytest.mark.proof,
        ),
    ],
    ids=["standard input", "deleted working directory", "the option -c"],
)
def test_a_program_that_cannot_have_workers_is_told_why(environment, tmp_path, command, said):
    code, output = run(command, environment, tmp_path)
    if said:
        assert code == 1
        assert "NoClusterError" in output
        assert re.search(said, output), output
    else:
        assert code == 0, output
        assert rows_of(environment) == ROWS


@pytest.mark.parametrize("closed", [pytest.param("2>&-", marks=pytest.mark.proof), "<&- >&- 2>&-"])
def test_a_program_whose_standard_streams_are_closed_works(environment, tmp_path, closed):
    code, _ = run(f"python program.py {closed}", environment, tmp_path)
    assert code == 0
    assert rows_of(environment) == ROWS


def test_a_program_with_an_odd_name_and_an_odd_environment_works(environment, tmp_path):
    name = "a program – ünïcode.py"
    (tmp_path / name).write_text(PROGRAM)
    odd = {
        "PYTHONSAFEPATH": "1",
        "PYTHONOPTIMIZE": "1",
        "PYTHONWARNINGS": "error",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
        "LC_ALL": "C",
    }
    command = f"umask 077; ulimit -n 256; nohup python '{name}' < /dev/null"
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode == 0:
        command = f'unshare --uts bash -c "hostname no-such-host-anywhere; {command}"'
    kept = {name: value for name, value in environment.items() if name != "HOME"}
    code, output = run(command, {**kept, **odd}, tmp_path)
    assert code == 0, output
    assert rows_of(environment) == ROWS


FORKS = """
import os, signal, sys
import curator_df as cdf

def compute(docs):
    return docs.compute()

def head(docs):
    return docs.head()

def write(docs):
    return cdf.write_parquet(docs, os.environ["TARGET"] + "-child")

def start(docs):
    cdf.start_cluster(memory=os.environ["MEMORY"], cpus=1)

def leave(docs):
    sys.exit(0)

if __name__ == "__main__":
    with cdf.start_cluster(memory=os.environ["MEMORY"], cpus=1):
        docs = cdf.read_jsonl(os.environ["SOURCE"])
        for call in (write, compute, head, start, leave):
            sys.stdout.flush()
            if child := os.fork():
                _, status = os.waitpid(child, 0)
                print(call.__name__, "ended with", os.waitstatus_to_exitcode(status))
                continue
            signal.alarm(60)  # a child that hangs ends by it
            try:
                call(docs)
            except cdf.errors.NoClusterError as exc:
                print(call.__name__, exc, flush=True)
                os._exit(7)
        print("rows", cdf.write_parquet(docs, os.environ["TARGET"]).rows_written, len(docs.compute()))
"""


def test_a_child_that_is_forked_is_told_that_the_cluster_is_not_its_own(environment, tmp_path):
    (tmp_path / "forks.py").write_text(FORKS)
    code, output = run("python forks.py", environment, tmp_path)
    assert code == 0, output
    for call in ("write", "compute", "head", "start"):
        assert f"{call} The cluster was started by process" in output
        assert f"{call} ended with 7" in output
    assert "leave ended with 0" in output
    assert "Exception ignored" not in output
    assert f"rows {ROWS} {ROWS}" in output  # the cluster goes on, and its folders are still there


CHILDREN = """
import multiprocessing, os, sys
import curator_df as cdf

def work(name, memory, ends):
    cluster = cdf.start_cluster(memory=memory, cpus=1)
    cdf.write_parquet(cdf.read_jsonl(os.environ["SOURCE"]), os.environ["TARGET"] + name)
    if ends:
        cluster.close()

if __name__ == "__main__":
    for method, memory, daemon in (("spawn", "2GB", False), ("fork", "2GB", True), ("fork", "500MB", True)):
        child = multiprocessing.get_context(method).Process(target=work, args=(method + memory, memory, False), daemon=daemon)
        child.start()
        child.join(100)
        print(method, memory, daemon, child.exitcode, flush=True)
        if child.exitcode is None:
            child.kill()
"""


def test_children_of_multiprocessing_end_though_they_leave_their_cluster_open(environment, tmp_path):
    (tmp_path / "children.py").write_text(CHILDREN)
    code, output = run("python children.py", environment, tmp_path)
    assert code == 0, output
    assert "spawn 2GB False 0" in output
    assert "fork 2GB True 1" in output
    assert "This process is a daemonic child of multiprocessing" in output
    assert "fork 500MB True 0" in output


SIGNALS = """
import os, signal, sys
import psutil
import curator_df as cdf

if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
    with cdf.start_cluster(memory="2GB", cpus=1):
        print(*(child.pid for child in psutil.Process().children(recursive=True)), flush=True)
        signal.pause()
"""


def test_a_signal_that_ends_the_program_ends_its_workers(environment, tmp_path):  # SIGTERM: tests/faults/test_runs.py
    (tmp_path / "signals.py").write_text(SIGNALS)
    command = [sys.executable, str(tmp_path / "signals.py")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        below = [int(word) for word in process.stdout.readline().split()]
        assert below
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == -signal.SIGHUP  # 128 + its number, as a shell has it
    deadline = time.monotonic() + 60
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in below):
        assert time.monotonic() < deadline
        time.sleep(0.1)


LOOP = """
import os, time
import curator_df as cdf

if __name__ == "__main__":
    cluster = cdf.start_cluster(memory="2GB", cpus=1)
    spill = cluster._spill.path
    cluster.client.loop.add_callback(cluster.client.loop.stop)
    time.sleep(1)
    cluster.close()
    print("closed", os.path.exists(spill))
"""


def test_a_cluster_whose_loop_has_ended_is_closed(environment, tmp_path):
    (tmp_path / "loop.py").write_text(LOOP)
    code, output = run("python loop.py", environment, tmp_path)
    assert code == 0, output
    assert "closed False" in output


def test_limits_that_are_low_are_named(monkeypatch, tmp_path):
    def limits(**low):
        found = {getattr(resource, f"RLIMIT_{name}"): (value, value) for name, value in low.items()}
        infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        monkeypatch.setattr(surroundings.resource, "getrlimit", lambda which: found.get(which, infinite))
        return surroundings.limits_in_force()

    monkeypatch.setattr(memory_limits, "threads_of_user", lambda: 90)
    monkeypatch.setattr(memory_limits.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(memory_limits, "_cgroup_folders", lambda controller: iter([tmp_path]))
    assert limits() == ""
    assert "ulimit -n allows 64 open files" in limits(NOFILE=64)
    assert "ulimit -u allows this user 100 processes and threads, and 90 exist" in limits(NPROC=100)
    failed = RuntimeError("Cluster failed to start: ")
    failed.__cause__ = RuntimeError("can't start new thread")
    assert "ulimit -u allows this user 100 processes" in str(surroundings.start_failure(failed))
    assert isinstance(surroundings.start_failure(failed), errors.NoClusterError)
    for said in (
        SystemError("error return"),
        ImportError("x.so: failed to map segment"),
        OSError(12, "Cannot allocate memory"),
    ):
        failed.__cause__ = said
        assert "ulimit -u allows this user 100 processes" in str(surroundings.start_failure(failed))
    failed.__cause__ = RuntimeError("can't start new thread")
    assert surroundings.start_failure(RuntimeError("a port is taken")) is None
    late = surroundings.start_failure(RuntimeError("Cluster failed to start: Timed out trying to connect to tcp://x"))
    assert isinstance(late, errors.NoClusterError)
    assert str(late) == "The cluster could not start (Cluster failed to start: Timed out trying to connect to tcp://x)"
    assert limits() == ""
    assert isinstance(surroundings.start_failure(MemoryError()), errors.BudgetError)
    lost = surroundings.start_failure(CommClosedError("in <TCP (closed)>"))
    assert isinstance(lost, errors.NoClusterError)
    assert str(lost).startswith("A worker process ended while the cluster started (CommClosedError: in <TCP")
    assert is_out_of_memory(failed.__cause__)  # there was no memory for its stack
    (tmp_path / "pids.max").write_text("120\n")
    (tmp_path / "pids.current").write_text("120\n")
    assert "(pids.max), and 120 exist" in limits()
    assert not is_out_of_memory(failed.__cause__)

    def work(manifest):
        raise RuntimeError("can't start new thread")

    manifest = run_guarded(Attempt(Range(0, 0, 0, 0, 0), 1, 1), work)
    assert manifest.outcome == "failed"
    assert "A step could not start a thread. The cause is not memory" in str(manifest.error)


SAID_FOR_KB = {
    30_000: "ImportError: ulimit -v allows 30,000 kB .* libraries that curator_df imports need 683,593 kB",
    585_000: "ImportError: ulimit -v allows 585,000 kB of address space",
    640_000: "ImportError: ulimit -v allows 640,000 kB of address space",
    720_000: "NoClusterError: ulimit -v allows 720,000 kB .* A cluster needs 830,078 kB more",
    900_000: "NoClusterError: ulimit -v allows 900,000 kB .* A cluster needs 830,078 kB more",
    1_100_000: "NoClusterError: .*ulimit -v allows 1,100,000 kB",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address_space_kb", "memory"),
    [
        *((kb, "500MB") for kb in (30_000, 640_000, 900_000)),
        (1_100_000, "2GB"),
        *(pytest.param(kb, "500MB", marks=pytest.mark.proof) for kb in (585_000, 720_000, 1_100_000)),
    ],
)
def test_a_start_under_little_address_space_ends_soon(environment, tmp_path, memory, address_space_kb):
    command = f"ulimit -v {address_space_kb}; timeout -s KILL {LIMITED_PATIENCE_SECONDS} python program.py"
    code, output = run(command, {**environment, "MEMORY": memory}, tmp_path)
    if code == 0:  # what a process maps depends on the machine, and so does where it suffices
        assert address_space_kb > 640_000
        assert rows_of(environment) == ROWS
    else:
        assert code == 1, f"{code}: {output}"  # 137: it hung
        assert re.search(f"{SAID_FOR_KB[address_space_kb]}.*Set ulimit -v unlimited", output), output


STALLS = """
import asyncio, os, threading, time
from distributed import Client, LocalCluster
import curator_df as cdf
from curator_df.cluster import surroundings, worker_processes

async def never(self, *args, **options):
    await asyncio.sleep(1000)

def ends_soon(cls, name):  # what waits for never() waits a second, and not for what is left of the time of the start
    kept = getattr(cls, name)
    def method(self, *args, **options):
        if never in (getattr(called, "__func__", None) for called in (*args, getattr(self, "_start", None))):
            self._deadline._until = time.monotonic()
        return kept(self, *args, **options)
    setattr(cls, name, method)

def attempt(name):
    started = time.monotonic()
    try:
        cdf.start_cluster(memory=os.environ["MEMORY"], cpus=1)
    except cdf.errors.NoClusterError as exc:
        print(name, time.monotonic() - started < worker_processes.LIMITED_START_SECONDS + 15, exc, flush=True)

if __name__ == "__main__":
    worker_processes.limits_in_force = surroundings.limits_in_force = lambda: "ulimit -v allows nothing"
    worker_processes.LIMITED_START_SECONDS = 6
    for cls, name in ((worker_processes.BoundedCluster, "sync"), (worker_processes.BoundedClient, "sync"),
                      (worker_processes.BoundedClient, "start")):
        ends_soon(cls, name)
    for kind, method in ((LocalCluster, "_start"), (Client, "_start"), (Client, "_run")):
        kept = getattr(kind, method)
        setattr(kind, method, never)
        attempt(method)
        setattr(kind, method, kept)
    worker_processes.LIMITED_START_SECONDS = 100
    with cdf.start_cluster(memory=os.environ["MEMORY"], cpus=1) as cluster:
        print("answers", len(cluster.client.run(os.getpid)), "limit", cluster._deadline.left_seconds)
"""


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["2GB", pytest.param("500MB", marks=pytest.mark.proof)])
def test_a_start_that_waits_for_the_event_loop_in_vain_ends(environment, tmp_path, memory):
    (tmp_path / "stalls.py").write_text(STALLS)
    code, output = run("python stalls.py", {**environment, "MEMORY": memory}, tmp_path)
    assert code == 0, output
    assert (
        len(re.findall("True (The cluster did not start in time .TimeoutError|the worker processes did not)", output))
        == 3
    )
    assert output.count("A limit of this shell is too low: ulimit -v allows nothing") == 3
    assert "answers 1 limit None" in output


def test_what_ulimit_leaves_is_compared_with_what_a_start_maps(monkeypatch):
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    def allow(count):
        monkeypatch.setattr(address_space.resource, "getrlimit", lambda which: (count, count))

    for enough in (resource.RLIM_INFINITY, mapped + 2 * address_space.START_ADDRESS_BYTES):
        allow(enough)
        surroundings.require_address_space()
        address_space.refuse_import()
    allow(mapped + address_space.START_ADDRESS_BYTES // 2)
    with pytest.raises(
        errors.NoClusterError, match=r"of which this process maps [\d,]+ kB\. A cluster needs 830,078 kB more"
    ):
        surroundings.require_address_space()
    allow(address_space.IMPORT_ADDRESS_BYTES - 1)
    with pytest.raises(
        ImportError, match=r"allows 683,593 kB of address space, and the libraries that curator_df imports"
    ):
        address_space.refuse_import()


def test_a_cluster_whose_process_can_start_no_more_threads_is_refused(monkeypatch):
    before, start, started = threading.active_count(), threading.Thread.start, []
    surroundings.require_threads()
    assert threading.active_count() == before

    def refuse(self):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(errors.NoClusterError, match=r"cannot start the threads of a run \(can't start new thread\)"):
        surroundings.require_threads()
    assert len(started) == 2
    assert threading.active_count() == before


def test_a_worker_process_that_cannot_be_started_is_an_error_at_once(environment, tmp_path):
    (tmp_path / "no_threads.py").write_text(NO_THREADS)
    started = time.monotonic()
    code, output = run("python no_threads.py", environment, tmp_path)
    assert code == 0, output
    no_thread, no_memory = "RuntimeError: can't start new thread", "OSError: [Errno 12] Cannot allocate memory"
    for failure, said in (("before", no_thread), ("during", no_memory), ("after", no_thread)):
        assert f"{failure} NoClusterError A worker process could not be started ({said})." in output
    assert "left 0" in output
    assert time.monotonic() - started < START_PATIENCE_SECONDS


LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket() as any_socket:  # bring the interface up, and take its address of IPv4 away
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x49))
    fcntl.ioctl(any_socket, 0x8916, struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, bytes(4)))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.mark.parametrize("memory", [pytest.param("2GB", marks=pytest.mark.proof), "500MB"])
@pytest.mark.parametrize("network", ["IPv6 alone", "none"])
def test_a_machine_without_the_loopback_address_of_ipv4(environment, tmp_path, network, memory):
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("by nature: this user may not make a network namespace")
    (tmp_path / "loopback.py").write_text(LOOPBACK)
    before = "python loopback.py" if network == "IPv6 alone" else "python"
    code, output = run(f"unshare -n {before} program.py", {**environment, "MEMORY": memory}, tmp_path)
    if network == "none" and memory == "2GB":
        assert code == 1
        assert "NoClusterError: This machine has no loopback address that works (127.0.0.1: " in output
        assert "ip link set lo up" in output
    else:
        assert code == 0, output
        assert rows_of(environment) == ROWS


@pytest.mark.parametrize("memory", ["2GB", pytest.param("500MB", marks=pytest.mark.proof)])
def test_a_directory_for_temporary_files_that_is_full(environment, tmp_path, memory):
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("by nature: this user may not mount a file system of their own")
    (tmp_path / "small").mkdir()
    small = tmp_path / "small"
    fill = f"mount -t tmpfs -o size=1m tmpfs {small} && (cat /dev/zero > {small}/fill; true)"
    command = f"unshare -m bash -c '{fill} && TMPDIR={small} python program.py'"
    code, output = run(command, {**environment, "MEMORY": memory}, tmp_path)
    if code == 0:
        assert rows_of(environment) == ROWS
    else:
        assert re.search(r"curator_df\.errors\.(ParameterError|DiskFullError|NoClusterError)", output), output


def test_a_user_who_may_start_few_threads_is_told(environment, tmp_path):
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("by nature: the limit does not bind root, and only root can become another user")
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o777)
    become = (
        "setpriv --reuid 12346 --regid 12346 --clear-groups --inh-caps +dac_read_search --ambient-caps +dac_read_search"
    )
    given = {**environment, "TMPDIR": folder, "TARGET": f"{folder}/out", "HOME": "/nonexistent"}
    code, output = run(f"{become} bash -c 'ulimit -u 4; python {environment['PROGRAM']}'", given, "/")
    assert code == 1, output
    assert re.search(r"NoClusterError.*ulimit -u allows this user 4 processes and threads", output), output
    shutil.rmtree(folder)


def test_the_loopback_address_is_that_of_the_machine(monkeypatch):
    assert surroundings.loopback_host() in ("127.0.0.1", "::1")
    assert (surroundings.in_brackets("::1"), surroundings.in_brackets("127.0.0.1")) == ("[::1]", "127.0.0.1")


@pytest.mark.slow  # the basic kernels are compiled again
def test_a_user_without_home_and_entry_who_may_write_to_the_temporary_directory_only(environment, tmp_path):
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("by nature: only root can become a user whom the system does not know")
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o777)
    become = (
        "setpriv --reuid 12345 --regid 12345 --clear-groups --inh-caps +dac_read_search --ambient-caps +dac_read_search"
    )
    given = {**environment, "TMPDIR": folder, "TARGET": f"{folder}/out"}
    for name in ("HOME", "CURATOR_DF_CACHE"):
        given.pop(name, None)
    code, output = run(f"{become} python {environment['PROGRAM']}", given, "/")
    assert code == 0, output
    assert rows_of(given) == ROWS
    assert output.count(f"{folder}/curator-df-kernels-12345") == 1
    shutil.rmtree(folder)


def test_a_program_whose_file_is_gone_is_told_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", types.SimpleNamespace(__file__="/gone/program.py", __spec__=None))
    with pytest.raises(errors.NoClusterError, match=r"'/gone/program\.py', no longer exists"):
        surroundings.require_importable_program()


def test_no_directory_for_temporary_files_is_an_error_of_the_parameter(monkeypatch, tmp_path):
    def none():
        raise FileNotFoundError(2, "No usable temporary directory found in ['/nowhere']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    monkeypatch.setenv("TMPDIR", "/nowhere")
    monkeypatch.setattr(compile_cache.os, "access", lambda path, mode: False)
    for name in ("CURATOR_DF_CACHE", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert compile_cache.cache_folder().name == "kernels"  # asking for it is no error
    with pytest.raises(errors.ParameterError, match=r"TMPDIR='/nowhere' and /tmp"):
        surroundings.temporary_directory()
    with pytest.raises(
        errors.ParameterError, match=r"spill_directory='/proc' cannot be written to: .*Set spill_directory= or TMPDIR"
    ):
        new_spill_folder("/proc")

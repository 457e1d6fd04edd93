# SPDX-License-Identifier: Apache-2.0
"""Functions of users that take memory outside of their worker: the number holds, and the end is a clear error or success."""

import json
import subprocess
import sys

import pytest

MEMORY = 1_000_000_000
MOST = 1.05
"""Of the number, with the guard alone: it looks 100 times a second, and what grows meanwhile is there already."""

SCRIPT = """
import json, mmap, os, resource, subprocess, sys, threading, time, warnings
import numpy as np
import psutil
import curator_df as cdf

warnings.simplefilter("ignore")
AT_ONCE = "x = bytearray(600_000_000)\\nfor i in range(0, len(x), 4096): x[i] = 1"
TAKES = "import time\\nx = []\\nfor i in range(60): x.append(bytearray(b'1') * 10_000_000); time.sleep(0.005)\\ntime.sleep(5)"
NO_LIMIT = "import resource\\nresource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2)\\n" + TAKES

def start(code):
    subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.DEVNULL)

def starts_a_program(block):
    start(AT_ONCE)
    return block

def starts_one_that_lifts_its_limit(block):
    start(NO_LIMIT)
    return block

def catches_what_it_started(block):
    try:
        start(NO_LIMIT)
    except subprocess.CalledProcessError:
        pass
    return block

def starts_a_grandchild(block):
    start(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {NO_LIMIT!r}], check=True)")
    return block

def forks(block):
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2)
        held = []
        for _ in range(60):
            held.append(np.ones(1_250_000))
            time.sleep(0.005)
        time.sleep(5)
        os._exit(0)
    os.waitpid(pid, 0)
    return block

def leaves_an_orphan(block):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2)
        held = []
        for _ in range(60):
            held.append(np.ones(1_250_000))
            time.sleep(0.005)
        time.sleep(5)
        os._exit(0)
    time.sleep(1)
    return block

def shares_memory(block):
    from multiprocessing import shared_memory
    memory = shared_memory.SharedMemory(create=True, size=1_000_000_000)  # all of memory=
    try:
        for i in range(0, memory.size, 4096):
            memory.buf[i] = 1
        time.sleep(1)
    finally:
        memory.close()
        memory.unlink()
    return block

def maps_memory(block):  # without Python, so that nothing is refused
    import ctypes
    call = ctypes.CDLL(None).mmap
    call.restype = ctypes.c_void_p
    address = call(None, ctypes.c_size_t(1_000_000_000), 3, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, 0)
    step = 10_000_000
    for start in range(0, 1_000_000_000, step):
        ctypes.memset(address + start, 1, step)
        time.sleep(0.002)
    time.sleep(5)
    return block

def lifts_its_limit(block):
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2)
    held = []
    for _ in range(200):
        held.append(np.ones(1_250_000))
        time.sleep(0.002)
    time.sleep(5)
    return block

def takes_turns(block):  # two at a time do not fit, one does
    start("import time\\nx = bytearray(b'1') * 300_000_000\\ntime.sleep(0.5)")
    return block

def fits(block):
    start("import time\\nx = bytearray(b'1') * 100_000_000\\ntime.sleep(0.2)")
    return block

class Peak(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.bytes, self.on = 0, True

    def run(self):
        me = psutil.Process()
        while self.on:
            total = 0
            for process in [me, *me.children(recursive=True)]:
                try:
                    total += process.memory_full_info().pss
                except psutil.Error:
                    pass
            self.bytes = max(self.bytes, total)
            time.sleep(0.03)

if __name__ == "__main__":
    source, target, on_error, *names = sys.argv[1:]
    found = {}
    with cdf.start_cluster(memory="1GB", cpus=2) as cluster:
        found["layout"] = str(cluster)
        for name in names:
            docs = cdf.read_jsonl(source)
            docs = docs.map_partitions(globals()[name], meta=docs._meta)
            while not cluster.client.nthreads():
                time.sleep(0.05)
            peak, began, rows, error = Peak(), time.monotonic(), None, ""
            peak.start()
            try:
                rows = cdf.write_parquet(docs, f"{target}/{name}", on_error=on_error).rows_written
            except cdf.errors.CuratorError as exc:
                error = f"{type(exc).__name__}: {exc}"
            peak.on = False
            peak.join()
            found[name] = {"peak": peak.bytes, "seconds": time.monotonic() - began, "rows": rows, "error": error}
    print(json.dumps(found))
"""
ROWS = 60_000
PROCESSES = (
    "starts_a_program",
    "starts_one_that_lifts_its_limit",
    "catches_what_it_started",
    "starts_a_grandchild",
    "forks",
    "leaves_an_orphan",
)
WORKERS = ("maps_memory", "lifts_its_limit")
SUCCEED = ("takes_turns", "fits")
ALL = ("shares_memory", *PROCESSES, *WORKERS, *SUCCEED)
BY_HAND = {"starts_a_program", "catches_what_it_started", "forks", "fits"}
"""Functions that do a part of what others do."""


def each(names):
    """Return a decorator for some functions, some of which are by hand alone."""
    marked = [pytest.param(name, marks=pytest.mark.proof if name in BY_HAND else ()) for name in names]
    return pytest.mark.parametrize("name", marked)


@pytest.fixture(scope="module")
def ends(tmp_path_factory, request):
    """What became of each function that a test asks for, all on one cluster."""
    wanted = {
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and "ends" in item.fixturenames and hasattr(item, "callspec")
    }
    folder = tmp_path_factory.mktemp("wall")
    (folder / "script.py").write_text(SCRIPT)
    with open(folder / "in.jsonl", "w", encoding="utf-8") as out:
        out.writelines(json.dumps({"id": n, "text": f"row {n} " + "word " * 120}) + "\n" for n in range(ROWS))
    command = [
        sys.executable,
        "script.py",
        "in.jsonl",
        "out",
        "raise",
        *(name for name in ALL if name in wanted | {"shares_memory"}),
    ]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.slow
@each(ALL)
def test_the_number_holds_for_what_steps_start(ends, name):
    assert ends[name]["peak"] <= MOST * MEMORY


@pytest.mark.slow
def test_the_layout_says_which_wall_stands(ends):
    assert "\nwall       " in ends["layout"]


@pytest.mark.slow
@each(PROCESSES)
def test_a_step_is_named_whose_processes_find_no_room_or_all_rows_are_there(ends, name):
    """What is refused memory ends by itself, and its function may make nothing of it; what takes it nevertheless is ended."""
    error = ends[name]["error"]
    assert f"step 'map_partitions({name})'" in error or ends[name]["rows"] == ROWS


@pytest.mark.slow
def test_shared_memory_that_does_not_fit_is_refused(ends):
    said = "StepMemoryError: step 'map_partitions(shares_memory)' uses shared memory and took 1.00 GB, but only "
    assert ends["shares_memory"]["error"].startswith(said)


@pytest.mark.slow
@each(WORKERS)
def test_a_worker_is_ended_for_memory_that_nothing_else_bounds(ends, name):
    assert ends[name]["error"].startswith(f"StepMemoryError: step 'map_partitions({name})' ")
    assert "so the worker was killed" in ends[name]["error"]


@pytest.mark.slow
@each(SUCCEED)
def test_what_fits_alone_succeeds(ends, name):
    assert ends[name]["rows"] == ROWS and not ends[name]["error"]

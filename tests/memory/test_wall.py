# SPDX-License-Identifier: Apache-2.0
"""The wall as a worker sees it: what it started is bounded at once, and what was ended is an error of its step."""

import contextlib
import json
import resource
import subprocess
import sys
from resource import RLIMIT_AS, RLIMIT_DATA, getrlimit, setrlimit

import pytest

from curator_df.errors import CuratorError, StepMemoryError
from curator_df.memory import limits
from curator_df.memory.guard import PAST
from curator_df.memory.system import PORTABLE, append_line
from curator_df.memory.wall import LEAST_CHILD_BYTES, Wall, read_ended, users_step

pytestmark = pytest.mark.quick
MB = 1_000_000

WORKER = """
import json, mmap, os, resource, struct, subprocess, sys, tempfile, threading, time
from multiprocessing import shared_memory
from curator_df.memory import wall
from curator_df.memory.guard import HEAD
from curator_df.memory.system import append_line
from curator_df.errors import StepMemoryError

folder = sys.argv[1]
wall.stand_in(folder)
with open(f"{folder}/free", "r+b") as file:
    file.write(struct.pack("q", 100_000_000))
me, said = os.getpid(), {}
LIMIT = "input(); import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0])"

def error_of(call):
    try:
        call()
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"
    return ""

def end(pid, child=None):
    append_line(f"{folder}/ended", [me, pid, child or pid, "processes", 700_000_000, 480_000_000, "'f'"])

with wall.users_step("f"):
    # It begins to work when this process, which a busy machine may delay, has started it.
    said["program"] = int(subprocess.check_output([sys.executable, "-c", LIMIT], input=b"\\n"))
    read, write = os.pipe()
    if os.fork() == 0:
        with open("/proc/self/status") as status:
            asked = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
        os.write(write, str(resource.getrlimit(resource.RLIMIT_DATA)[0] - asked).encode())
        os._exit(0)
    said["fork"] = int(os.read(read, 100))
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", "input()"], os.environ, file_actions=[
        (os.POSIX_SPAWN_OPEN, 0, "/dev/zero", os.O_RDONLY, 0)])
    said["spawned"] = resource.prlimit(pid, resource.RLIMIT_DATA)[0]
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    said["shared"] = error_of(lambda: shared_memory.SharedMemory(create=True, size=200_000_000))
    said["mapped"] = error_of(lambda: mmap.mmap(-1, 200_000_000))
    wall.PROMISED_SECONDS = 60.0  # on a busy machine, the second mapping may come after the usual time
    small = shared_memory.SharedMemory(create=True, size=80_000_000)
    said["twice"] = error_of(lambda: mmap.mmap(-1, 80_000_000))
    small.close()
    small.unlink()
with open(f"{folder}/worker-{me}", "rb") as file:
    said["between"] = file.read()[HEAD.size:].rstrip(b"\\0").decode()
with tempfile.TemporaryDirectory(dir="/dev/shm") as shared, tempfile.TemporaryDirectory() as other:
    for home in (shared, other):
        with open(f"{home}/file", "wb") as file:
            file.write(b"x" * 100_000)
        with open(f"{home}/file", "ab"), open(f"{home}/file", "rb"):
            pass
    os.chdir(shared)
    os.close(os.open("file", os.O_WRONLY))
    os.chdir("/")
    said["folder"] = shared
try:
    with open(f"{folder}/written-{me}") as lines:
        said["written"] = lines.read()
except FileNotFoundError:
    said["written"] = ""
said["outside"] = error_of(lambda: mmap.mmap(-1, 200_000_000))

def caught():
    with wall.users_step("f"):
        try:
            end(1)
            raise OSError("the program ended")
        except OSError:
            pass

said["caught"] = error_of(caught)

def raised():
    with wall.users_step("f"):
        end(1)
        raise OSError("the program ended")

said["raised"] = error_of(raised)

def after():
    with wall.users_step("f"):
        pass

said["after"] = error_of(after)

def later():
    with wall.users_step("g"):
        pass

with wall.users_step("f"):
    left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
end(left.pid)
said["left behind, then another step"] = error_of(later)
end(left.pid)
said["left behind, then the same step"] = error_of(after)
left.kill()
left.wait()

def of_another():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    started.append(child.pid)
    waits.wait(10)

started, waits, others = [], threading.Event(), []
def other():
    try:
        with wall.users_step("g"):
            of_another()
    except StepMemoryError as exc:
        others.append(str(exc))
thread = threading.Thread(target=other)
thread.start()
while not started:
    time.sleep(0.01)
end(1, started[0])
said["not of this thread"] = error_of(after)
waits.set()
thread.join()
said["of the other thread"] = others

def fails():
    with wall.users_step("f"):
        subprocess.run([sys.executable, "-c", "raise SystemExit(1)"], check=True)
try:
    fails()
except subprocess.CalledProcessError as exc:
    said["note"] = wall.started_processes(exc)
def below(frames):
    if frames:
        below(frames - 1)
    else:
        raise MemoryError("in the fork")
with wall.users_step("f"):
    child = os.fork()
    if child == 0:
        below(20)
    said["forked"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
with open(f"{folder}/worker-{me}", "rb") as slot:
    said["handled"] = struct.unpack_from("q", slot.read())[0]
orphan = "import os, sys\\nif os.fork() == 0:\\n os.setsid()\\n sys.stdin.read()\\nelse:\\n print(os.getppid())"
def children():
    with open(f"/proc/{me}/task/{me}/children") as pids:
        return pids.read().split()
before = children()
read, write = os.pipe()
subprocess.run([sys.executable, "-c", orphan], stdin=read, stdout=subprocess.DEVNULL)
said["orphans"] = len(set(children()) - set(before))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    wall = Wall(str(tmp_path_factory.mktemp("wall") / "files"), "'1GB'")
    out = subprocess.run([sys.executable, "-c", WORKER, wall.folder], capture_output=True, text=True, check=False)
    wall.close()
    assert out.returncode == 0, out.stderr
    return {**json.loads(out.stdout), "stderr": out.stderr}


@pytest.mark.linux
@pytest.mark.parametrize("how", ["program", "fork", "spawned"])
def test_a_process_may_ask_for_what_is_free_as_soon_as_it_is_there(said, how):
    assert 100 * MB <= said[how] <= 130 * MB


@pytest.mark.parametrize("how", [pytest.param("shared", marks=pytest.mark.linux), "mapped"])
def test_a_mapping_that_is_larger_than_what_is_free_is_refused(said, how):
    assert said[how].startswith(
        "StepMemoryError: step 'f' uses shared memory and took 200 MB, but only 100 MB were free of memory='1GB'"
    )


@pytest.mark.linux
def test_a_mapping_counts_before_its_pages_are_there(said):
    assert said["twice"].startswith(
        "StepMemoryError: step 'f' uses shared memory and took 80 MB, but only 20 MB were free"
    )


@pytest.mark.linux
def test_a_worker_says_which_files_in_memory_it_opens_for_writing_and_what_they_had(said):
    file = f"{said['folder']}/file\n"
    assert said["written"] == f"0\t{file}102400\t{file}102400\t{file}"


def test_a_worker_says_which_step_was_the_last(said):
    assert said["between"] == f"{PAST.decode()}'f'"


def test_outside_of_a_step_it_is_a_lack_of_memory(said):
    assert said["outside"].startswith("MemoryError: a function requested 200 MB of shared memory")


@pytest.mark.parametrize("how", ["caught", "raised"])
def test_what_was_ended_is_an_error_of_the_step_whatever_its_function_does(said, how):
    assert said[how].startswith(
        "StepMemoryError: step 'f' starts processes that took 700 MB, but only 480 MB were free"
    )


def test_an_end_is_an_error_once(said):
    assert said["after"] == ""
    assert said["handled"] == 5


def test_what_a_step_left_behind_is_no_error_of_another_step(said):
    assert said["left behind, then another step"] == ""
    assert said["left behind, then the same step"].startswith(
        "StepMemoryError: step 'f' starts processes that took 700 MB"
    )


def test_an_end_is_an_error_of_the_thread_that_started_it(said):
    assert said["not of this thread"] == ""
    assert len(said["of the other thread"]) == 1 and "step 'g' starts" in said["of the other thread"][0]


def test_an_error_after_processes_were_started_says_what_they_could_take(said):
    assert said["note"].startswith("Processes that a step starts may take what is free of memory='1GB', now ")


def test_a_fork_ends_where_the_step_does(said):
    assert said["forked"] == 1


def test_a_fork_that_fails_tells_its_last_lines_only(said):
    # Each forked process writes to the same output; without a limit, 40 frames of Dask and curator_df come before the user's.
    assert "MemoryError: in the fork" in said["stderr"]
    assert said["stderr"].count("in below") == 3


def test_a_function_that_calls_exit_fails_like_any_other():
    with (
        pytest.raises(
            RuntimeError, match=r"called sys\.exit\(3\), which would end the whole worker\. Raise an exception"
        ),
        users_step("f"),
    ):
        sys.exit(3)


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("kind", [pytest.param(RLIMIT_DATA, marks=pytest.mark.linux), RLIMIT_AS])
def test_memory_limits_that_a_function_sets_end_with_its_step(kind, fails):
    before = getrlimit(kind)
    with contextlib.suppress(ValueError), users_step("f"):
        with users_step("another, concurrently"):
            setrlimit(kind, (1 << 45, before[1]))
        assert getrlimit(kind) == before
        setrlimit(kind, (1 << 45, before[1]))
        if fails:
            raise ValueError("of the function")
    assert getrlimit(kind) == before


@pytest.mark.linux
def test_a_limit_that_the_client_sets_during_a_step_stays(monkeypatch):
    before = getrlimit(RLIMIT_DATA)
    monkeypatch.setattr(limits, "_full_limit", 1 << 45)
    setrlimit(RLIMIT_DATA, (1 << 45, before[1]))
    try:
        with users_step("f"):
            limits.lower_data_limit(1 << 20)
        assert getrlimit(RLIMIT_DATA)[0] == (1 << 45) - (1 << 20)
    finally:
        setrlimit(RLIMIT_DATA, before)


def test_a_worker_refuses_a_lower_hard_limit_and_a_process_that_a_step_starts_does_not(tmp_path):
    script = """
import resource, subprocess, sys
from curator_df.memory import wall
wall.stand_in(sys.argv[1])
kind, limits = resource.RLIMIT_AS, (1 << 45, 1 << 45)
try:
    with wall.users_step("f"):
        subprocess.run(["true"], check=True, preexec_fn=lambda: resource.setrlimit(kind, limits))
        resource.setrlimit(kind, limits)
except ValueError as exc:
    print(exc)
print(resource.getrlimit(kind)[1])
resource.setrlimit(kind, limits)  # outside of steps the process may be the user's own program
print(resource.getrlimit(kind)[1])
"""
    (tmp_path / "number").write_text("'1GB'")
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert said[0].startswith("resource.setrlimit with a hard limit of 35.18 TB would hold for all later tasks")
    assert said[1] == str(getrlimit(RLIMIT_AS)[1])
    assert said[2] == str(1 << 45)


def test_a_hard_limit_that_cannot_be_raised_again_is_an_error_of_the_function(monkeypatch):
    before = getrlimit(RLIMIT_AS)

    def refuse(kind, values):
        raise ValueError("not allowed to raise maximum limit")

    def lower():
        with users_step("f"):
            setrlimit(RLIMIT_AS, (1 << 45, before[1]))
            monkeypatch.setattr(limits.resource, "setrlimit", refuse)

    with pytest.raises(RuntimeError, match="lowered a hard memory limit of its process"):
        lower()
    monkeypatch.undo()
    setrlimit(RLIMIT_AS, before)


@pytest.mark.linux
def test_orphans_stay_below_the_worker(said):
    assert said["orphans"] == 1


def test_only_whole_and_new_ends_are_read(tmp_path):
    wall = Wall(str(tmp_path), "'1GB'")
    append_line(f"{tmp_path}/ended", [1, 2, 2, "processes", 5, 4, "'f'"])
    wall.skip_ended()
    assert wall.ended_worker() is None
    append_line(f"{tmp_path}/ended", [1, 2, 2, "processes", 5, 4, "'f'"])
    append_line(f"{tmp_path}/ended", [7, 7, 7, "shared", 600 * MB, 480 * MB, "'f', 'g'"])
    ended = wall.ended_worker()
    assert ended.worker == 7 and wall.ended_worker() is None
    error = ended.error(wall.memory_argument)
    assert isinstance(error, StepMemoryError) and isinstance(error, CuratorError) and isinstance(error, MemoryError)
    assert str(error).startswith(
        "step 'f', 'g' uses shared memory and took 600 MB, but only 480 MB were free of memory='1GB'"
    )
    wall.close()


def test_nothing_is_read_where_nothing_was_ended(tmp_path):
    assert read_ended(str(tmp_path)) == ([], 0)


def test_a_planned_process_is_no_business_of_a_step_that_fails_later(tmp_path):
    script = """
import subprocess, sys
from curator_df.memory import wall
wall.stand_in(sys.argv[1])
with wall.planned_start() as tell:
    process = subprocess.Popen(["sleep", "60"])
    forget = tell(process.pid)
with process:
    try:
        with wall.users_step("f"):
            raise ValueError("of the step")
    except ValueError as exc:
        print(process.pid, getattr(exc, "__notes__", []))
    process.kill()
"""
    (tmp_path / "number").write_text("'1GB'")
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    pid, notes = said.split(maxsplit=1)
    assert notes == "[]\n"
    assert (tmp_path / f"planned-{pid}").exists()


@pytest.mark.linux
@pytest.mark.skipif(PORTABLE, reason="data limits are Linux's")
def test_a_planned_process_may_start_where_nothing_is_free_and_leaves_no_file(tmp_path):
    script = """
import subprocess, sys
from curator_df.memory import wall
wall.stand_in(sys.argv[1])
command = [sys.executable, "-c", "import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0])"]
with wall.planned_start() as tell, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    forget = tell(process.pid)
    print(process.stdout.readline())
forget()
command[-1] = "import time; time.sleep(60)"
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    import resource
    print(resource.prlimit(process.pid, resource.RLIMIT_DATA)[0])
    process.kill()
"""
    (tmp_path / "number").write_text("'1GB'")
    said = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    planned, other = map(int, said.stdout.split())
    assert LEAST_CHILD_BYTES <= other < 2 * LEAST_CHILD_BYTES  # beyond what it holds when it starts
    assert planned == resource.getrlimit(resource.RLIMIT_DATA)[0]
    assert not list(tmp_path.glob("planned-*"))

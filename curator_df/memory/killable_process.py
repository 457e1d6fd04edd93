# SPDX-License-Identifier: Apache-2.0
"""Processes for calls that may never return: started once, used for many calls, and killed when a call passes its time limit.

A signal handler of Python cannot interrupt a call of C code, so a limit that always holds needs a process that can be killed.
The limit is CPU time, which the process sets for itself before each call (``ITIMER_PROF``, whose signal ends it): what other
processes do does not matter. A call that waits instead of computing is killed after `WAIT_FACTOR` times as many seconds, and
so is one whose process gets under a tenth of a core. The process ends with the process that started it, also in the
middle of a call, because the kernel sends it a signal when the pipe between them closes.

Its memory is part of a plan: `core.ranges.price.Price.held_by_task`. Its own data limit holds it, so the guard does not
end it (`memory.wall.plan_child`). A call that needs nearly all of this memory fails, because a library might otherwise hide an
allocation that failed, and return something else.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator

from curator_df.errors import OperatorError, type_and_text
from curator_df.memory import system
from curator_df.memory.process_cache import is_outside_of_runs
from curator_df.memory.sizes import show_size
from curator_df.memory.wall import planned_start

START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from curator_df.memory.killable_process import serve; serve()"
)
START_SECONDS = 120.0
"""Time in which a process must have imported its function."""
WAIT_FACTOR = 10
"""Seconds of a call as a multiple of its CPU seconds, after which it is killed although it does not compute."""
LEAST_WAIT_SECONDS = 5.0
USABLE = 0.875
"""Fraction of the planned memory that a call may use."""
REQUEST, REPLY = struct.Struct("<dQ"), struct.Struct("<cQ")
RESULT, RAISED, MEMORY = b"r", b"e", b"m"
READ_BYTES = 1 << 20


class CallFailedError(Exception):
    """A call that did not return: the message says what it did, such as "took more than 10 CPU seconds"."""


class _LostError(Exception):
    """The process ended, or used too much memory, during a call; a new process may succeed."""


class _KilledError(_LostError):
    """Something else killed the process during a call, as the kernel or the guard does when memory is short."""


class _Turns:
    """Calls of this process's threads that run together, or one of them alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._together, self._is_alone = 0, False

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Wait until no call runs alone, then run with others."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_alone)
            self._together += 1
        try:
            yield
        finally:
            with self._changed:
                self._together -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Let the others finish, and run while no other call begins."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_alone)
            self._is_alone = True
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._together)
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()


_TURNS = _Turns()


class KillableProcess:
    """A process that calls one function of bytes, and is started again after it was killed.

    Parameters
    ----------
    target : str
        Function that takes and returns bytes, as ``module:name``. If the module has a function ``prepare``, it is called with
        each request before the time counts, for what the first call would import.
    memory_bytes : int
        Bytes that a call may use in addition to what the process holds when idle.
    """

    def __init__(self, target: str, memory_bytes: int) -> None:
        self._target, self._memory_bytes = target, memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._stop: Callable[[], object] = int
        self._calls = 0
        self._cpu_seconds = 0.0

    @property
    def pid(self) -> int | None:
        """Number of the process; None if it does not run."""
        return None if self._process is None else self._process.pid

    def call(self, request: bytes, cpu_seconds: float) -> bytes:
        """Return the result of the function.

        Raises
        ------
        CallFailedError
            If the function raised an exception or passed a limit, or if it crashed a new process. A process that something
            else kills is not the fault of the call: it runs once more, alone in a new process.
        """
        was_killed = False
        while True:
            with _TURNS.alone() if was_killed else _TURNS.together():
                try:
                    if self._process is None:
                        self._start()
                    self._calls += 1
                    return self._call_once(request, cpu_seconds)
                except CallFailedError:
                    raise
                except (
                    BaseException
                ) as exc:  # the answer of a call that is interrupted must not be that of the next one
                    self.close()
                    if isinstance(exc, _KilledError) and not was_killed:
                        was_killed = True
                    elif isinstance(exc, _KilledError):
                        raise CallFailedError(
                            f"{exc} twice in succession, the second time in a new process without earlier calls"
                        ) from None
                    elif not isinstance(exc, _LostError):
                        raise
                    elif self._calls == 1:  # what earlier calls left in the process was not the cause
                        raise CallFailedError(str(exc)) from None

    def close(self) -> None:
        """Kill the process; the next call starts another."""
        self._process = None
        self._stop()

    def _start(self) -> None:
        # It closes when this process ends, also if that is killed, and the other one then ends too.
        life, ours = os.pipe()
        paths = json.dumps([os.path.abspath(path) for path in sys.path])
        command = [sys.executable, "-c", START, self._target, str(self._memory_bytes), str(life), paths]
        with planned_start() as tell:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    # `poll` does not see what a buffer of Python has read already.
                    bufsize=0,
                    pass_fds=(life,),
                    env={**os.environ, "PYTHONHASHSEED": "0"},  # the order of a set must not change a result
                )
            except BaseException:
                os.close(ours)
                raise
            finally:
                os.close(life)
            try:
                forget = tell(process.pid)
            except BaseException:  # the disk is full
                _end(process, ours)
                raise
        self._process, self._calls = process, 0
        self._stop = weakref.finalize(self, _end, process, ours, forget)
        try:
            kind, said = self._receive(process, time.monotonic() + START_SECONDS)
        except (_LostError, CallFailedError) as exc:
            self.close()
            raise OperatorError(
                f"a process for {self._target} could not be started: {exc}. Free memory or end other programs on this "
                "machine, and run again"
            ) from exc
        if kind != RESULT:
            self.close()
            raise OperatorError(
                f"a process for {self._target} could not be started: {said.decode()}. Check that its packages are "
                "installed, and that the machine has free memory"
            )

    def _call_once(self, request: bytes, cpu_seconds: float) -> bytes:
        process = self._process
        if process is None or process.stdin is None:
            raise _LostError("was closed")
        try:
            for part in (REQUEST.pack(cpu_seconds, len(request)), request):
                left = memoryview(part)
                while left:
                    left = left[process.stdin.write(left) or 0 :]
        except BrokenPipeError:
            raise self._lost(process) from None
        self._cpu_seconds = cpu_seconds
        wait_seconds = max(WAIT_FACTOR * cpu_seconds, LEAST_WAIT_SECONDS)
        try:
            kind, said = self._receive(process, time.monotonic() + wait_seconds)
        except CallFailedError:
            self.close()
            raise
        if kind == RESULT:
            return said
        if kind == MEMORY:
            allowed = show_size(int(USABLE * self._memory_bytes))
            raise _LostError(f"needed more than the {allowed} of memory that are planned for a call")
        raise CallFailedError(f"raised {said.decode()}")

    def _receive(self, process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
        kind, length = REPLY.unpack(self._read(process, REPLY.size, deadline))
        return kind, self._read(process, length, deadline)

    def _read(self, process: subprocess.Popen[bytes], count: int, deadline: float) -> bytes:
        if process.stdout is None:
            raise _LostError("was closed")
        file, found, poll = process.stdout.fileno(), bytearray(), select.poll()
        poll.register(file, select.POLLIN)
        while len(found) < count:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(1000 * left):
                raise CallFailedError(
                    f"did not return, although it used less than {self._cpu_seconds:g} s of CPU time, so it probably waits "
                    "for something"
                )
            part = os.read(file, min(count - len(found), READ_BYTES))
            if not part:
                raise self._lost(process)
            found += part
        return bytes(found)

    def _lost(self, process: subprocess.Popen[bytes]) -> Exception:
        """Return the error for a process that has ended."""
        code = process.wait()
        if code == -signal.SIGPROF:
            return CallFailedError(f"took more than {self._cpu_seconds:g} CPU seconds")
        if code == -signal.SIGKILL:
            return _KilledError("had its process killed by SIGKILL, as the system does when memory is short,")
        return _LostError(f"ended its process with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}")


def _end(process: subprocess.Popen[bytes], ours: int, forget: Callable[[], object] = int) -> None:
    process.kill()
    forget()  # before the number may be that of another process
    process.wait()
    for file in (process.stdin, process.stdout):
        if file is not None:
            file.close()
    os.close(ours)


class KillableProcesses:
    """Processes for one function: a thread borrows one that is idle, or starts one. Closed when the run ends."""

    def __init__(self, target: str, memory_bytes: int) -> None:
        self._target, self._memory_bytes = target, memory_bytes
        self._idle: list[KillableProcess] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[KillableProcess]:
        """Lend a process to this thread. After a block that is computed outside of a run, whose end is unknown, it ends."""
        with self._lock:
            one = self._idle.pop() if self._idle else KillableProcess(self._target, self._memory_bytes)
        is_kept = False
        try:
            yield one
            is_kept = not is_outside_of_runs()
        finally:
            with self._lock:
                is_kept = is_kept and not self._is_closed
                if is_kept:
                    self._idle.append(one)
            if not is_kept:
                one.close()

    def close(self) -> None:
        """Kill the idle processes; those in use end when they are returned."""
        with self._lock:
            going, self._idle, self._is_closed = self._idle, [], True
        for one in going:
            one.close()


def serve() -> None:
    """Answer calls until standard input ends; runs in the started process."""
    name, memory_bytes, life = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    _end_with_parent(life)
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not be read as an answer
    try:
        module, _, attribute = name.partition(":")
        functions = importlib.import_module(module)
        function: Callable[[bytes], bytes] = getattr(functions, attribute)
        prepare: Callable[[bytes], bytes] | None = getattr(functions, "prepare", None)
    except Exception as exc:  # noqa: BLE001 - the parent raises it
        _send(answers, RAISED, type_and_text(exc).encode(errors="replace"))
        return
    idle_bytes = system.status_bytes("VmHWM")
    _, hard = system.data_limit()
    limit = system.status_bytes("VmData") + memory_bytes
    limit = limit if hard == system.NO_LIMIT else min(limit, hard)
    system.set_data_limit(limit, limit)
    _send(answers, RESULT, b"")
    while head := _receive_exactly(REQUEST.size):
        cpu_seconds, length = REQUEST.unpack(head)
        request = _receive_exactly(length)
        kind, said = (RESULT, b"") if prepare is None else _answer(prepare, request)
        if kind == RESULT:
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            kind, said = _answer(function, request)
            signal.setitimer(signal.ITIMER_PROF, 0)
        if system.status_bytes("VmHWM") - idle_bytes > USABLE * memory_bytes:
            kind, said = MEMORY, b""
        _send(answers, kind, said)


def _answer(function: Callable[[bytes], bytes], request: bytes) -> tuple[bytes, bytes]:
    try:
        return RESULT, function(request)
    except MemoryError:
        return MEMORY, b""
    except Exception as exc:  # noqa: BLE001 - whatever the function raises belongs to its argument
        return RAISED, type_and_text(exc).encode(errors="replace")


def _end_with_parent(life: int) -> None:
    """Let the kernel end this process when the other end of a pipe closes, even in the middle of a call of C code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    for number in (signal.SIGIO, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGIO, signal.SIGPROF))
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)


def _send(file: int, kind: bytes, said: bytes) -> None:
    for part in (REPLY.pack(kind, len(said)), said):
        left = memoryview(part)
        while left:
            left = left[os.write(file, left) :]


def _receive_exactly(count: int) -> bytes:
    """Return that many bytes of standard input; nothing if it has ended."""
    found = bytearray()
    while len(found) < count:
        part = os.read(0, min(count - len(found), READ_BYTES))
        if not part:
            return b""
        found += part
    return bytes(found)

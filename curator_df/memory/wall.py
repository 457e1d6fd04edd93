# SPDX-License-Identifier: Apache-2.0
"""Side of workers and client of the memory guard (`memory.guard`) around all processes of a cluster.

What ends processes is `guard`, in a process of its own. A worker tells it, in a file that both have in their memory, that it is a
worker and on which steps of the user it works; what the guard has ended is in a file of lines. A worker also bounds what a step
may take before the guard has seen it: processes that Python starts get a data limit at once, and a mapping that is larger than
what is free is refused.
"""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curator_df.errors import StepMemoryError
from curator_df.memory.counted_memory import counted_bytes
from curator_df.memory.guard import (
    ENDED,
    FILES,
    FREE,
    HEAD,
    PAST,
    PLANNED,
    PROCESS,
    SHARED,
    SLOT_BYTES,
    WORKER,
    WRITTEN,
    open_file,
)
from curator_df.memory.limits import refuse_hard_limit, same_limits
from curator_df.memory.sizes import show_size, show_sizes
from curator_df.memory.system import (
    PORTABLE,
    SHARED_FOLDER,
    adopt_orphans,
    append_line,
    exists,
    is_memory,
    limit_data_of,
)

WALL_VARIABLE = "CURATOR_DF_WALL"
"""Environment variable of workers: the folder of the wall."""
STARTED = "Processes that a step starts"
"""Beginning of the note that an error gets if its step had started processes."""
NUMBER = "number"
"""File of the folder: the number, as a user types it."""
LEAST_CHILD_BYTES = 16_000_000
"""A process may always ask for this much: less, and not even a shell starts."""
USERS_FRAMES = 3
"""Number of the last frames that a forked process that failed writes to stderr: those before are of Dask and curator_df."""
PROMISED_SECONDS = 0.3
"""Seconds for which a mapping counts as taken, although its pages are not there yet."""


@dataclass(frozen=True)
class Ended:
    """Something that was ended because all processes together would have passed the number."""

    worker: int
    """Process number of the worker whose step had started it; its own, if it is the worker that was ended."""
    pid: int
    """Number of the process that was ended."""
    child: int
    """Number of the process that the worker itself had started: the ended one, or one above it."""
    what: str
    """``processes``, ``shared`` memory, ``private`` memory, or ``files`` that are memory."""
    took_bytes: int
    """Bytes that the step took in this way."""
    free_bytes: int
    """Bytes that were free for it."""
    steps: str
    """Names of the user's steps on which the worker worked."""

    @property
    def is_worker(self) -> bool:
        """Whether the worker itself was ended."""
        return self.pid == self.worker

    def error(self, memory_argument: str, step: str = "") -> StepMemoryError:
        """Return the error that names the step."""
        ended = "the worker was killed" if self.is_worker else "they were killed"
        return step_memory_error(
            step or self.steps, self.what, self.took_bytes, self.free_bytes, memory_argument, ended
        )


def step_memory_error(
    step: str, what: str, took_bytes: int, free_bytes: int, memory_argument: str, ended: str
) -> StepMemoryError:
    """Return the error of a step, whose name is quoted (empty if unknown), that took more than was free."""
    files = f"writes files that are memory (memfds, in {SHARED_FOLDER}, or System V segments) and took"
    how = {PROCESS: "starts processes that took", SHARED: "uses shared memory and took", FILES: files}.get(what, "took")
    less = {
        PROCESS: "Start fewer or smaller concurrent processes",
        SHARED: "Use less shared memory",
        FILES: f"Delete what the step left in {SHARED_FOLDER} or as segments (ipcs -m), and write less there",
    }.get(what, "Let the step take less memory")
    took, free = show_sizes(took_bytes, free_bytes)
    return StepMemoryError(
        f"{f'step {step}' if step else 'a step'} {how} {took}, but only {free} were free of "
        f"memory={memory_argument}, the budget of all processes together, so {ended}. {less}, or start the "
        "cluster with a larger memory="
    )


def read_ended(folder: str, start: int = 0) -> tuple[list[Ended], int]:
    """Return what was ended since a place in the file of lines, and the place of its end."""
    path = f"{folder}/{ENDED}"
    try:
        if os.stat(path).st_size <= start:
            return [], start
        with open(path, "rb") as file:
            file.seek(start)
            lines = file.read()
    except FileNotFoundError:
        return [], start
    found = []
    for line in lines.decode().splitlines():
        worker, pid, child, what, took_bytes, free_bytes, steps = line.split("\t")
        found.append(Ended(int(worker), int(pid), int(child), what, int(took_bytes), int(free_bytes), steps))
    return found, start + len(lines)


class WorkerSide:
    """The wall as a worker process sees it."""

    def __init__(self, folder: str) -> None:
        self.folder, self._pid = folder, os.getpid()
        self._number = Path(folder, NUMBER).read_text()
        self._free = open_file(f"{folder}/{FREE}")
        self._lock = threading.Lock()
        self._steps: dict[int, str] = {}
        self._last_steps = b""
        self._started: dict[int, int] = {}
        self._starters: dict[int, str] = {}
        """Steps that have started processes which may still run, by the number of the process."""
        self._planning: set[int] = set()
        self._promised: list[tuple[float, int, int]] = []
        self._place = self._handled = 0
        self._ended: list[Ended] = []
        # Written before it gets its name, by which the guard knows that this is a worker.
        self._written, self._home = -1, os.fsencode(os.path.realpath(folder))
        self._slot = open_file(f"{folder}/new-{self._pid}")
        self.weigh()
        os.rename(f"{folder}/new-{self._pid}", f"{folder}/{WORKER}-{self._pid}")

    def close(self) -> None:
        """Close the files of the wall."""
        os.close(self._free)
        os.close(self._slot)
        if self._written >= 0:
            os.close(self._written)

    def weigh(self) -> None:
        """Say what this process holds when it is idle."""
        self._idle_bytes = counted_bytes(self._pid)
        self._write_head()

    def _write_head(self) -> None:
        os.pwrite(self._slot, HEAD.pack(self._handled, self._idle_bytes), 0)

    def free_bytes(self) -> int:
        """Return what is free now for all that nobody has planned."""
        now, told = time.monotonic(), os.pread(self._free, 8, 0)
        free = int(struct.unpack("q", told)[0]) if len(told) == 8 else 0
        self._promised = [promise for promise in self._promised if promise[0] > now]
        # What has been taken since a promise was made is part of it.
        return max(0, free - sum(max(0, size - max(0, before - free)) for _, size, before in self._promised))

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Work on a step of the user in this thread; raise `StepMemoryError` if something that it has started was ended."""
        thread = threading.get_ident()
        self._enter(thread, name)
        try:
            yield
        except Exception as exc:
            if (ended := self._of_thread(thread)) is not None:
                raise ended.error(self._number, self._starters.get(ended.child, repr(name))) from exc
            if thread in self._started.values():
                exc.add_note(self._remedy())
            raise
        else:
            if (ended := self._of_thread(thread)) is not None:
                raise ended.error(self._number, self._starters.get(ended.child, repr(name)))
        finally:
            self._leave(thread)

    def _remedy(self) -> str:
        """Return what is to be said of a step that failed after it had started processes: memory may be the reason."""
        free = show_size(self.free_bytes())
        return f"{STARTED} may take what is free of memory={self._number}, now {free}, and fail if they ask for more"

    def is_in_step(self) -> bool:
        """Return whether this thread runs a user's step: the rest of the process may be the user's own program."""
        return threading.get_ident() in self._steps

    def _enter(self, thread: int, name: str) -> None:
        with self._lock:
            if not self._steps:
                # Processes that another step left behind were not ended for this one, and the rows of that step are complete.
                self._take_ended(
                    lambda one: repr(name) not in (self._starters.get(one.child) or one.steps or repr(name))
                )
            self._steps[thread] = name
            self._show_steps()

    def _leave(self, thread: int) -> None:
        with self._lock:
            self._steps.pop(thread, None)
            self._show_steps()
            self._started = {pid: by for pid, by in self._started.items() if by != thread}
            live = self._started.keys() | {one.child for one in self._ended}
            self._starters = {pid: step for pid, step in self._starters.items() if pid in live or exists(pid)}

    def _show_steps(self) -> None:
        if self._steps:
            names = ", ".join(sorted({repr(name) for name in self._steps.values()}))
            self._last_steps = names.replace("\t", " ").replace("\n", " ").encode()
        room = SLOT_BYTES - HEAD.size
        shown = self._last_steps if self._steps else PAST + self._last_steps
        os.pwrite(self._slot, shown[:room].ljust(room, b"\0"), HEAD.size)

    def _of_thread(self, thread: int) -> Ended | None:
        """Return something that was ended and that a thread has started, as far as is known; None if there is nothing."""
        with self._lock:
            mine = self._take_ended(lambda one: self._started.get(one.child, thread) == thread)
            return max(mine, key=lambda one: one.took_bytes, default=None)

    def _take_ended(self, is_taken: Callable[[Ended], bool]) -> list[Ended]:
        """Return what was ended and is handled now, and tell the guard; what else was ended waits for its step."""
        new, self._place = read_ended(self.folder, self._place)
        self._ended += [one for one in new if one.worker == self._pid]
        taken = [one for one in self._ended if is_taken(one)]
        self._ended = [one for one in self._ended if one not in taken]
        if taken:
            self._handled += len(taken)
            self._write_head()
        return taken

    def bound_child(self, pid: int) -> None:
        """Let a process that this thread has just started ask for what is free, unless it is in the plan."""
        with self._lock:
            if threading.get_ident() in self._planning:
                return
            thread = threading.get_ident()
            self._started[pid] = thread
            if thread in self._steps:
                self._starters[pid] = repr(self._steps[thread])
        limit_data_of(pid, max(self.free_bytes(), LEAST_CHILD_BYTES))

    @contextlib.contextmanager
    def planning(self) -> Iterator[None]:
        """Leave processes that this thread starts in the block to their own data limits: what is free is not for them."""
        thread = threading.get_ident()
        with self._lock:
            self._planning.add(thread)
        try:
            yield
        finally:
            with self._lock:
                self._planning.discard(thread)

    def plan_child(self, pid: int) -> None:
        """Tell the guard that the memory of a process is in the plan."""
        Path(self.folder, f"{PLANNED}-{pid}").touch(0o600)

    def forget_child(self, pid: int) -> None:
        """Delete what `plan_child` has left, before another process may get the number."""
        Path(self.folder, f"{PLANNED}-{pid}").unlink(missing_ok=True)

    def bound_fork(self) -> None:
        """Let this process, which was just forked from a worker, ask for what is free."""
        limit_data_of(os.getpid(), max(self.free_bytes(), LEAST_CHILD_BYTES))

    def refuse_mapping(self, file: int, size_bytes: int) -> None:
        """Raise `StepMemoryError` if a mapping of shared memory, or of memory that has no file, is larger than what is free."""
        if file != -1 and not is_memory(file):
            return  # pages of a file on disk can be written there
        with self._lock:
            there = 0 if file == -1 else os.fstat(file).st_blocks * 512  # it is counted already
            new_bytes = size_bytes - there
            free = self.free_bytes()
            if new_bytes > max(free, LEAST_CHILD_BYTES):
                step = self._steps.get(threading.get_ident())
                if step is None:
                    asked, has = show_sizes(new_bytes, free)
                    raise MemoryError(
                        f"a function requested {asked} of shared memory, but only {has} of the "
                        "cluster's memory budget are free. Request less, or start the cluster with a larger memory="
                    )
                raise step_memory_error(repr(step), SHARED, new_bytes, free, self._number, "it was refused")
            if new_bytes > LEAST_CHILD_BYTES:
                self._promised.append((time.monotonic() + PROMISED_SECONDS, new_bytes, free))

    def note_file(self, path: str | bytes | os.PathLike[str]) -> None:
        """Tell the guard that this process is about to open a file for writing, if the file is memory."""
        with contextlib.suppress(
            OSError
        ):  # no working directory, or a full disk: the guard sees the file while it is open
            name = os.fsencode(os.path.realpath(path))
            if not name.startswith(f"{SHARED_FOLDER}/".encode()) or b"\n" in name or name.startswith(self._home):
                return
            before_bytes = os.stat(name).st_blocks * 512 if os.path.exists(name) else 0
            if self._written < 0:
                self._written = open_file(f"{self.folder}/{WRITTEN}-{self._pid}", os.O_APPEND)
            os.write(self._written, b"%d\t%s\n" % (before_bytes, name))


class Wall:
    """The wall as the client sees it.

    Parameters
    ----------
    folder : str
        Its files; made if it is not there.
    memory_argument : str
        The number, as a user types it.
    """

    def __init__(self, folder: str, memory_argument: str) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, NUMBER).write_text(memory_argument)
        self.folder, self.memory_argument = folder, memory_argument
        self.says = "a separate process, the guard, kills processes that would exceed the budget"
        """Description of how it holds, for people."""
        self._place = 0
        _walls.append(self)

    def close(self) -> None:
        """Let go of its files."""
        _walls.remove(self)

    def skip_ended(self) -> None:
        """Forget what was ended by now."""
        _, self._place = read_ended(self.folder, self._place)

    def ended_worker(self) -> Ended | None:
        """Return a worker that was ended since the last question, if there is one."""
        found, self._place = read_ended(self.folder, self._place)
        return next((one for one in found if one.is_worker), None)


_WRITES = 0 if PORTABLE else os.O_WRONLY | os.O_RDWR
"""Flags of opening a file of which one says that it is written to. Without `/proc`, nobody looks at such files."""
_side: WorkerSide | None = None
_walls: list[Wall] = []
_watches = False


def stand_in(folder: str, *, is_users: bool = False) -> None:
    """Make this process a worker of a wall; where it is the user's own process, what it starts is left alone."""
    global _side  # noqa: PLW0603 - of this process, as its limits are
    _side = WorkerSide(folder)
    if not is_users:
        adopt_orphans()
        watch_starts()


def started_processes(exc: BaseException) -> str:
    """Return the note of an error whose step had started processes, or an empty string."""
    return next((note for note in getattr(exc, "__notes__", ()) if note.startswith(STARTED)), "")


@contextlib.contextmanager
def planned_start() -> Iterator[Callable[[int], Callable[[], None]]]:
    """Start a process for which the plan of the run has room, in a block; yield the function that tells the guard its number.

    That function returns the call to make when the process has ended, before its number may be that of another.
    """
    side = _side
    if side is None:
        yield lambda _: lambda: None
        return

    def tell(pid: int) -> Callable[[], None]:
        side.plan_child(pid)
        return lambda: side.forget_child(pid)

    with side.planning():
        yield tell


def weigh_idle() -> None:
    """Tell the guard what this process holds now, when it is idle."""
    if _side is not None:
        _side.weigh()


def leave_wall() -> None:
    """Make this process no worker of a wall any more."""
    global _side  # noqa: PLW0603 - of this process
    if _side is not None:
        _side.close()
    _side = None


@contextlib.contextmanager
def users_step(name: str) -> Iterator[None]:
    """Work on a step of the user, in a process around which there may be a wall.

    A process that the step has forked ends where the step does: it would go on with the task, and write its rows again.
    A function that calls ``sys.exit`` fails like any other: it would crash the worker, or end the program of the user.
    Memory limits that the function sets hold for the function only.
    """
    pid, side = os.getpid(), _side
    with contextlib.nullcontext() if side is None else side.step(name), same_limits():
        try:
            yield
        except SystemExit as exc:
            raise RuntimeError(
                f"your function called sys.exit({exc.code!r}), which would end the whole worker. Raise an exception instead"
            ) from exc
        except BaseException:
            if os.getpid() != pid:
                traceback.print_exc(limit=-USERS_FRAMES)
            raise
        finally:
            if os.getpid() != pid:
                os._exit(1)


def watch_starts() -> None:
    """Bound the processes that Python code starts in this process, and the shared memory that it maps, from now on."""
    global _watches  # noqa: PLW0603 - of this process: hooks cannot be taken away
    if _watches:
        return
    _watches = True
    for module, name in _starters():
        setattr(module, name, _bounding(getattr(module, name)))
    os.register_at_fork(after_in_child=_after_fork)
    sys.addaudithook(_on_event)


def _starters() -> list[tuple[Any, str]]:
    """Return the functions by which Python starts a program and that return its process number."""
    import _posixsubprocess

    named = [(_posixsubprocess, "fork_exec"), (subprocess, "_fork_exec"), (os, "posix_spawn"), (os, "posix_spawnp")]
    return [(module, name) for module, name in named if hasattr(module, name)]


def _bounding(start: Callable[..., int]) -> Callable[..., int]:
    def bounded(*arguments: Any, **named: Any) -> int:
        pid = start(*arguments, **named)
        if _side is not None:
            _side.bound_child(pid)
        return pid

    return bounded


def _after_fork() -> None:
    global _side  # noqa: PLW0603 - of this process, which is no worker
    if _side is not None:
        _side.bound_fork()
        _side = None  # a lock of it may be held by a thread that this process does not have


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "mmap.__new__" and _side is not None:
        _side.refuse_mapping(arguments[0], arguments[1])
    elif event == "resource.setrlimit" and _side is not None and _side.is_in_step():
        refuse_hard_limit(*arguments)
    elif event == "open" and _side is not None and arguments[2] & _WRITES and not isinstance(arguments[0], int):
        _side.note_file(arguments[0])


def note_end_by_nanny(pid: int, counted: int, limit_bytes: int) -> None:
    """Note that a nanny of this process kills the worker, because its memory passes the limit."""
    for wall in _walls:
        slot = Path(wall.folder, f"{WORKER}-{pid}")
        if slot.exists():
            content = slot.read_bytes()
            idle_bytes, steps = (
                HEAD.unpack_from(content)[1],
                content[HEAD.size :].rstrip(b"\0"),
            )
            steps = b"" if steps.startswith(PAST) else steps
            took_bytes, free_bytes = counted - idle_bytes, max(0, limit_bytes - idle_bytes)
            with contextlib.suppress(OSError):  # the disk is full: the worker is ended nevertheless, only not named
                append_line(
                    f"{wall.folder}/{ENDED}",
                    [pid, pid, pid, SHARED, took_bytes, free_bytes, steps.decode(errors="replace")],
                )

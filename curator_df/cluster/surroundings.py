# SPDX-License-Identifier: Apache-2.0
"""Check this process, its environment and its memory for obstacles to a cluster, before its start, and name them.

Otherwise the result would be a worker that never connects, an empty error, or a file in place of a standard stream. The
memory that the processes hold is checked again after the start, because only then is it known.
"""

from __future__ import annotations

import ast
import dataclasses
import errno
import logging
import multiprocessing
import os
import resource
import shutil
import socket
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curator_df.core.runner.session import has_session, has_session_in_process
from curator_df.errors import BudgetError, DiskFullError, NoClusterError, ParameterError, type_and_text
from curator_df.memory.address_space import START_ADDRESS_BYTES, WAY_OUT, lacking_address_space
from curator_df.memory.budget import HELD_SLACK_BYTES, Baseline, Layout, least_allowed, worker_reserved_bytes
from curator_df.memory.counted_memory import counted_bytes, tree_bytes
from curator_df.memory.limits import thread_limit
from curator_df.memory.sizes import show_size, size_to_type
from curator_df.memory.system import processes

LOG = logging.getLogger("curator_df.cluster")
NO_HOME = "/nonexistent"
"""Home folder of users without one, as in Debian. A folder that others can write to could contain their settings."""
ADDRESS_SPACE_BYTES = 8_000_000_000
"""Maximum bytes that a process maps before it works (stacks of threads, arenas, libraries), hardly any of which are touched."""
OPEN_FILES = 256
"""Number of open files needed: a client with a few workers has up to 60, and 8 more for each worker."""
THREADS_OF_RUN = 4
"""Threads that a run starts in the process of its client."""
LOOPBACK_SECONDS = 5
"""Maximum seconds for a connection of this process to itself."""
REFUSALS = (
    "MemoryError",
    "start new thread",
    "Too many open files",
    "Cannot allocate memory",
    "CommClosedError",  # a worker ended
    "failed to map segment",  # a shared library, in an ImportError
    "SystemError",  # an extension module that had no memory for its own error
)
"""Words of errors that a limit of the shell may have caused."""
MAIN_GUARD = (
    "In a script, start_cluster must be below \"if __name__ == '__main__':\", because worker processes import the script "
    "that starts them. This is not needed in a notebook, or where no worker process is started: "
    "with processes=False, or with little memory"
)
THREADS = 64
"""Number of threads and processes of a client with one worker."""


def prepare_surroundings() -> None:
    """Raise if no cluster can start in this process; make sure that its standard streams are open.

    Raises
    ------
    NoClusterError
        If the working directory was deleted.
    """
    try:
        os.getcwd()
    except FileNotFoundError as exc:
        raise NoClusterError(
            "The working directory of this process was deleted, so worker processes cannot start in it. Change to a directory "
            "that exists (cd, or os.chdir) and run again"
        ) from exc
    try:
        Path.home()
    except RuntimeError:  # no HOME, and a user unknown to the system: Bokeh, for example, needs one
        os.environ["HOME"] = NO_HOME
        LOG.info("this user has no home folder; HOME is %s in this process and its workers", NO_HOME)
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed, as by 2>&-: the next file or connection would get its number, and the printed output
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)


def loopback_host(*, connects: bool = True) -> str:
    """Return the loopback address of this machine that can be used: ``127.0.0.1``, or ``::1`` where only IPv6 is there.

    Parameters
    ----------
    connects : bool
        Whether processes will connect to it; threads of one process only need an address.

    Raises
    ------
    NoClusterError
        There is none: a container or network namespace whose loopback interface is down.
    """
    said = []
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.create_server((host, 0), family=family) as server:
                if connects:
                    socket.create_connection(server.getsockname()[:2], timeout=LOOPBACK_SECONDS).close()
        except OSError as exc:
            said.append(f"{host}: {os.strerror(exc.errno) if exc.errno else exc}")
        else:
            return host
    raise NoClusterError(
        f"This machine has no loopback address that works ({'; '.join(said)}), and the processes of a cluster talk over it. "
        "Bring the interface up (ip link set lo up), or run in a container with a network"
    )


def in_brackets(host: str) -> str:
    """Return an address as it stands in a URL: brackets belong round one of IPv6."""
    return f"[{host}]" if ":" in host else host


def require_importable_program() -> None:
    """Raise `NoClusterError` if worker processes could not import the program, or cannot be started.

    Python starts a worker process by importing the file of the program that starts it.
    """
    if multiprocessing.current_process().daemon:
        raise NoClusterError(
            "This process is a daemonic child of multiprocessing (such as a worker of a Pool), which Python does not let "
            "start worker processes. Start the cluster in the main process, or start this process with daemon=False. For a "
            "small job, use memory='500MB': then threads of this process do the work"
        )
    require_main_guard(sys._getframe(1))
    main: Any = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if path is None or getattr(main, "__spec__", None) is not None or os.path.exists(path):
        return
    if path == "<stdin>":
        raise NoClusterError(
            "This program was read from standard input (python - < script.py), and worker processes import the file of the "
            "program that starts them, which is '<stdin>' here. Save the program in a file and run python script.py, or run "
            'python -c "$(cat script.py)"'
        )
    raise NoClusterError(
        f"The file of this program, {path!r}, no longer exists, but worker processes import it. Run the program again "
        "from a permanent file"
    )


def is_interactive() -> bool:
    """Return whether this program is a notebook or a prompt, which has no file for worker processes to import."""
    return hasattr(sys, "ps1") or getattr(sys.modules.get("__main__"), "__file__", None) is None


def require_main_guard(frame: types.FrameType | None) -> None:
    """Raise `NoClusterError` if a script starts the cluster outside of ``if __name__ == "__main__":``.

    Every worker process would import the script, and with it start a cluster of its own.

    Parameters
    ----------
    frame : frame, optional
        Frame from which to look outward for the script's own.
    """
    main: Any = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    while frame is not None and not (frame.f_globals is vars(main) and frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    if frame is None or path is None or hasattr(sys, "ps1") or not os.path.isfile(path):
        return  # it is imported, or no file that workers would import
    try:
        script = ast.parse(Path(path).read_bytes())
    except (OSError, ValueError, SyntaxError):
        return  # it has changed since Python read it
    line = frame.f_lineno
    conditions = (each for each in ast.walk(script) if isinstance(each, ast.If | ast.Match | ast.IfExp | ast.BoolOp))
    if not any(each.lineno <= line <= (each.end_lineno or line) for each in conditions):
        raise NoClusterError(f"{os.path.basename(path)}, line {line}: {MAIN_GUARD}")


def temporary_directory() -> str:
    """Return the system's directory for temporary files; raise `ParameterError` if none can be used."""
    try:
        found = tempfile.gettempdir()
    except FileNotFoundError as exc:
        named = os.environ.get("TMPDIR")
        said = f"TMPDIR={named!r} and /tmp" if named else "/tmp"  # noqa: S108 - only named, not used
        raise ParameterError(
            f"No directory for temporary files can be written to. {said} and others were tried: they are missing, read-only, "
            "full, or another user's. Set TMPDIR to your own directory with free space, or pass one as "
            "start_cluster(spill_directory=...)"
        ) from exc
    return found


def limits_in_force() -> str:
    """Describe the limits of this shell that are so low that processes or threads may not start; empty if there are none."""
    found = []
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY and address_space < ADDRESS_SPACE_BYTES:
        found.append(
            f"ulimit -v allows {address_space // 1024:,} kB of address space, but a process of curator_df needs up to "
            f"{ADDRESS_SPACE_BYTES // 1024:,} kB of it (hardly any of it is used). Set ulimit -v unlimited; memory= limits "
            "the memory in use"
        )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < OPEN_FILES:
        found.append(f"ulimit -n allows {files:,} open files. Set ulimit -n 4096")
    if threads := thread_limit(THREADS):
        found.append(threads)
    return "; ".join(found)


def require_address_space() -> None:
    """Raise `NoClusterError` if ``ulimit -v`` leaves this process less than a start adds to it."""
    if lacking := lacking_address_space(START_ADDRESS_BYTES):
        raise NoClusterError(f"{lacking}. A cluster needs {START_ADDRESS_BYTES // 1024:,} kB more. {WAY_OUT}")


def require_threads() -> None:
    """Raise `NoClusterError` if this process could not start the threads of a run any more: a limit of the shell is reached."""
    release, started = threading.Event(), []
    try:
        for _ in range(THREADS_OF_RUN):
            started.append(threading.Thread(target=release.wait, daemon=True))
            started[-1].start()
    except RuntimeError as exc:
        started.pop()
        raise NoClusterError(
            f"The cluster started, but this process cannot start the threads of a run ({exc}). "
            + (f"A limit of this shell is too low: {limits}" if (limits := limits_in_force()) else "End other programs")
        ) from exc
    finally:
        release.set()
        for thread in started:
            thread.join()


def start_failure(exc: BaseException, spill_directory: str = "") -> Exception | None:
    """Return the error for the cause that kept Dask from starting a cluster, or None if it is unknown."""
    said: list[str] = []
    one: BaseException | None = exc
    while one is not None and len(said) < 8:
        said.append(type_and_text(one))
        one = one.__cause__ or one.__context__
    limits = limits_in_force()
    text = " <- ".join(said)
    if any(f"[Errno {number}]" in text for number in (errno.ENOSPC, errno.EDQUOT)):
        return _full_disk(spill_directory)
    if isinstance(exc, TimeoutError):
        return NoClusterError(
            f"The cluster did not start in time ({said[0]}). "
            + (
                f"A limit of this shell is too low: {limits}"
                if limits
                else "The machine is too busy: end other programs"
            )
        )
    if limits and (any(words in text for words in REFUSALS) or not str(exc)):
        return NoClusterError(f"The cluster could not start ({said[-1]}). A limit of this shell is too low: {limits}")
    if "CommClosedError" in text:
        return NoClusterError(
            f"A worker process ended while the cluster started ({text}). What it printed says why, for example a kill by the "
            "system because memory ran out"
        )
    if "MemoryError" in text:
        return BudgetError(f"The cluster could not start, because memory ran out ({text}). Free memory on the machine")
    is_of_dask = str(exc).startswith("Cluster failed to start: ")
    return NoClusterError(f"The cluster could not start ({text.partition(': ')[2]})") if is_of_dask else None


def _full_disk(spill_directory: str) -> DiskFullError:
    free = f" ({show_size(shutil.disk_usage(spill_directory).free)} free)" if os.path.isdir(spill_directory) else ""
    return DiskFullError(
        f"The cluster could not start, because no space is left in spill_directory={spill_directory!r}{free}. Free some "
        "space, or name another directory with spill_directory="
    )


@dataclass(frozen=True)
class Held:
    """Counted memory of a started cluster, before any work."""

    total_bytes: int
    """Bytes of this process and all processes that it has started."""
    workers: tuple[int, ...] = ()
    """Bytes of each worker process; empty if tasks run in this process."""

    def plus(self, more_bytes: int) -> Held:
        """Return the baseline with ``more_bytes`` added to each process that runs tasks."""
        return Held(
            self.total_bytes + more_bytes * max(1, len(self.workers)), tuple(size + more_bytes for size in self.workers)
        )

    @property
    def baseline(self) -> Baseline:
        """Baseline of a layout chosen from these figures.

        A client without worker processes holds at least as much as this client; the rest is measured after the start.
        """
        client_bytes = self.total_bytes - sum(self.workers)
        return Baseline(client_bytes, max(self.workers, default=worker_reserved_bytes()), client_bytes)


def measure_held(worker_pids: Iterable[int], later_bytes: int = 0) -> Held:
    """Return the memory of this process, all processes that it has started, and these worker processes.

    ``later_bytes`` is what this process will need in addition, whatever it runs.
    """
    counted = {pid: counted_bytes(pid) for pid in processes(os.getpid(), 0)}
    return Held(sum(counted.values()) + later_bytes, tuple(counted[pid] for pid in worker_pids if pid in counted))


def fits(layout: Layout, held: Held) -> bool:
    """Return whether the held memory and the working memory of all workers fit into the budget together."""
    return held.total_bytes + layout.node_workers * layout.work_bytes <= layout.allowed_bytes


def smaller_layout(layout: Layout, held: Held, choose: Callable[[Baseline], Layout]) -> Layout:
    """Return the layout for a cluster whose processes hold more than assumed.

    Parameters
    ----------
    layout : Layout
        Layout that does not fit.
    held : Held
        Memory of its processes before any work.
    choose : callable
        Function that chooses a layout for a baseline.

    Raises
    ------
    BudgetError
        If not even the smallest layout fits; the message has the memory that would.
    """
    try:
        smaller = choose(held.baseline)
    except BudgetError:
        raise _no_room(layout, held) from None
    why = f"{smaller.reason}; this session holds {show_size(held.total_bytes)} before any work"
    return dataclasses.replace(smaller, reason=why)


def refuse_cluster_beside_threads() -> None:
    """Raise `BudgetError`, before anything starts, if an open cluster works in threads of this process."""
    if has_session_in_process():  # processes that it starts inherit the limit of its memory
        raise BudgetError(
            "A cluster is already running in threads of this process, whose memory it limits, so another one cannot start. "
            f"{_what_to_free()}: close() of the cluster that start_cluster returned"
        )


def refuse_second_cluster(layout: Layout) -> None:
    """Raise `BudgetError`, before anything starts, if an open cluster leaves no room for another one."""
    refuse_cluster_beside_threads()
    if not has_session():
        return
    held_bytes = tree_bytes(os.getpid())
    needed_bytes = layout.exclusive_bytes + (0 if layout.in_process else layout.workers * worker_reserved_bytes())
    if held_bytes + needed_bytes > layout.allowed_bytes:
        raise BudgetError(
            f"A cluster is already running in this process: {show_size(held_bytes)} are in use, and another one needs "
            f"{show_size(needed_bytes)} more, but its memory={show_size(layout.allowed_bytes)} must cover both. "
            f"{_what_to_free()}, or start the other one with about "
            f"memory={size_to_type(held_bytes + needed_bytes + HELD_SLACK_BYTES)}"
        )


def require_room(layout: Layout, held: Held) -> None:
    """Raise `BudgetError` if a started cluster leaves too little memory for its work."""
    if not fits(layout, held):
        raise _no_room(layout, held)


def _no_room(layout: Layout, held: Held) -> BudgetError:
    # A requested number of workers, such as one for each GPU, cannot be reduced.
    workers = layout.node_workers if not layout.shares_work else 0
    enough_bytes = least_allowed(held.baseline, workers) + HELD_SLACK_BYTES
    return BudgetError(
        f"Before any work, this session holds {show_size(held.total_bytes)} (this process and its workers), so not even the "
        f"smallest layout fits into memory={show_size(layout.allowed_bytes)}. {_what_to_free()}, or use about "
        f"memory={size_to_type(enough_bytes)}"
    )


def _what_to_free() -> str:
    if has_session():
        return "Use the running cluster (operators find it automatically), or close it first"
    return "Free memory in this process (large tables, models)"

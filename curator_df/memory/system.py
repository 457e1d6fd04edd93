# SPDX-License-Identifier: Apache-2.0
"""Memory, process trees and limits, as the operating system reports and enforces them.

What only Linux offers for this (``/proc``, ``prlimit``, data limits) is used in this module alone, and in `cgroups`, which does
nothing where there are none. On other systems, and where the environment variable ``CURATOR_DF_PORTABLE`` is ``1``, psutil
answers instead: no process has a data limit then, the counted memory of a process is its USS, and the guard alone holds the
budget (docs/memory.md, "Other systems").

It is part of scripts that start without the package (`peak`, `guard`), so it imports a few modules of the standard library;
psutil and ctypes are imported where they are used.
"""

import errno
import os
import resource
import stat
import sys
import time

TYPE_CHECKING = False  # same name as in typing, without the import
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PORTABLE_VARIABLE = "CURATOR_DF_PORTABLE"
"""Environment variable: ``1`` uses psutil on Linux as well, as on systems without ``/proc``."""
PORTABLE = sys.platform != "linux" or os.environ.get(PORTABLE_VARIABLE, "") not in ("", "0")
"""Whether psutil answers, because this is not Linux or because `PORTABLE_VARIABLE` says so."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NO_LIMIT = resource.RLIM_INFINITY
PR_SET_CHILD_SUBREAPER = 36
"""From ``linux/prctl.h``."""
SHARED_FOLDER = "/dev/shm"  # noqa: S108 - where shared memory is
MEMFD = "/memfd:"
"""Prefix of the path of a memfd, as ``/proc`` shows it."""
SEGMENTS = "/proc/sysvipc/shm"
"""List of the segments of System V shared memory."""
SEGMENT_DEVICE = -1
"""Device in the key of a segment, which lies on none that has a number for all kernels."""
_load: "list[int]" = []
"""File in which the kernel tells the number of the last process, once it is open: it is read 100 times a second."""
_meminfo: "list[int]" = []
"""File in which the kernel tells the shared memory of the machine, once it is open: it is read 100 times a second."""
TICKS_PER_SECOND = 100
"""Resolution of the start time of a process that psutil tells."""


def processes(root: int, excluded: int) -> list[int]:
    """Return the process and all its descendants, without the excluded one."""
    if PORTABLE:
        try:
            below = _ask(root, lambda process: process.children(recursive=True))
        except OSError:  # it has ended
            return []
        return [pid for pid in (root, *(child.pid for child in below)) if pid != excluded]
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        if pid == excluded:
            continue
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as children:
                    waiting.extend(int(child) for child in children.read().split())
        except OSError:  # it ended in the meantime
            continue
        found.append(pid)
    return found


def _ask(pid: int, question: "Any") -> "Any":
    """Return what psutil tells of a process. Raises `OSError` if the process has ended or may not be looked at."""
    import psutil

    try:
        return question(psutil.Process(pid))
    except psutil.AccessDenied as exc:
        raise PermissionError(str(exc)) from exc
    except psutil.Error as exc:
        raise ProcessLookupError(str(exc)) from exc


def read_stat(pid: int) -> "tuple[str, int, int]":
    """Return state (a letter), parent and start of a process in clock ticks. Raises `OSError` if it has ended.

    On Linux the start is counted from that of the machine, so it does not change when somebody sets the clock.
    """
    if PORTABLE:
        return _ask(pid, _portable_stat)  # type: ignore[no-any-return]
    with open(f"/proc/{pid}/stat", "rb") as file:
        state, parent, *fields = file.read().rpartition(b")")[2].split()
    return state.decode(), int(parent), int(fields[17])


def _portable_stat(process: "Any") -> "tuple[str, int, int]":
    status = process.status()
    letter = {"zombie": "Z", "dead": "X"}.get(status, "S")
    return letter, process.ppid(), int(process.create_time() * TICKS_PER_SECOND)


def is_process(pid: int) -> bool:
    """Tell whether a number is that of a process, and not of a thread."""
    if PORTABLE:
        return True
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            return any(line.split()[1] == str(pid).encode() for line in status if line.startswith(b"Tgid:"))
    except OSError:
        return False


def exists(pid: int) -> bool:
    """Tell whether a process exists, even if it has ended and nobody has waited for it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def command_line(pid: int) -> bytes:
    """Return the arguments of a process, each ended by a null byte. Raises `OSError` if the process has ended."""
    if PORTABLE:
        words = _ask(pid, lambda process: process.cmdline())
        return b"".join(word.encode(errors="surrogateescape") + b"\0" for word in words)
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def last_process() -> "int | None":
    """Return the number that the kernel gave last to a process or thread; None where the system does not tell it."""
    if PORTABLE:
        return None
    if not _load:
        _load.append(os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC))
    return int(os.pread(_load[0], 128, 0).rpartition(b" ")[2])


class Pages:
    """Resident pages of one process, read often: its files stay open."""

    __slots__ = ("_faults", "_process", "_read", "_statm", "_told")

    def __init__(self, pid: int) -> None:
        self._process: Any = None
        self._told, self._read = b"", (0, 0)
        self._statm = self._faults = -1
        if PORTABLE:
            self._process = _ask(pid, lambda process: process)
            return
        self._statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
        try:
            self._faults = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        except OSError:
            os.close(self._statm)
            raise

    def read(self) -> "tuple[int, int]":
        """Return the bytes of pages that are private, and of those backed by files or shared memory; zeros if it has ended.

        With psutil, all resident pages are taken to be private: a sum of them is never too small.
        """
        try:
            if self._process is not None:
                return _ask_again(self._process), 0
            told = os.pread(self._statm, 128, 0)
        except OSError:
            return 0, 0
        if told != self._told:
            _, resident, shared, *_ = told.split()
            self._told = told
            self._read = (int(resident) - int(shared)) * PAGE_BYTES, int(shared) * PAGE_BYTES
        return self._read

    def faults(self) -> int:
        """Return the minor faults so far; 0 if the process has ended, or if the system does not tell them."""
        if self._process is not None:
            return 0
        try:
            return int(os.pread(self._faults, 1024, 0).rpartition(b")")[2].split()[7])
        except OSError:
            return 0

    def close(self) -> None:
        """Close the files."""
        for file in (self._statm, self._faults):
            if file >= 0:
                os.close(file)


def _ask_again(process: "Any") -> int:
    import psutil

    try:
        return 0 if process.status() == psutil.STATUS_ZOMBIE else int(process.memory_info().rss)
    except psutil.Error as exc:
        raise ProcessLookupError(str(exc)) from exc


def statm(pid: int) -> "tuple[int, int]":
    """Return the bytes of resident pages, and of those that other processes may share; zeros if the process has ended."""
    try:
        if PORTABLE:
            return _ask(pid, lambda process: _resident_and_shared(process.memory_full_info()))  # type: ignore[no-any-return]
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared, *_ = file.read().split()
    except OSError:
        return 0, 0
    return int(resident) * PAGE_BYTES, int(shared) * PAGE_BYTES


def _resident_and_shared(memory: "Any") -> "tuple[int, int]":
    return int(memory.rss), max(0, int(memory.rss) - int(memory.uss))


def rollup(pid: int) -> "dict[str, int]":
    """Return the fields of ``smaps_rollup`` in bytes. Raises `OSError` if the process has ended.

    With psutil, all fields say the same: what would be free if the process ended (USS).
    """
    if PORTABLE:
        unique_bytes = int(_ask(pid, lambda process: process.memory_full_info().uss))
        whole = ("Pss", "Pss_Anon", "Pss_Dirty", "Private_Dirty")
        return dict.fromkeys(whole, unique_bytes) | dict.fromkeys(("Pss_Shmem", "Private_Clean", "Shared_Dirty"), 0)
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        next(lines, "")  # the range of addresses
        fields = (line.split() for line in lines)
        return {name.rstrip(":"): int(size) * 1024 for name, size, _ in fields}


def shared_mappings(pid: int) -> "list[str]":
    """Return the paths that a process maps to change them; none where the system does not tell."""
    if PORTABLE:
        return []
    with open(f"/proc/{pid}/maps") as maps:
        mappings = (line.split(maxsplit=5) for line in maps)
        return [path[0] for _, flags, _, _, _, *path in mappings if flags[1] == "w" and flags[3] == "s" and path]


def status_bytes(field: str, pid: "int | None" = None) -> int:
    """Return a field of ``/proc/<pid>/status`` in bytes: ``VmData``, ``VmRSS``, ``VmHWM``, ``RssAnon``; 0 if it is unknown.

    With psutil, ``RssAnon`` is USS, ``VmHWM`` is the peak since this process started, and ``VmData`` is unknown.
    """
    if PORTABLE:
        return _portable_status(field, os.getpid() if pid is None else pid)
    with open(f"/proc/{'self' if pid is None else pid}/status") as status:
        for line in status:
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    return 0


def _portable_status(field: str, pid: int) -> int:
    if field == "VmHWM" and pid == os.getpid():
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    if field in ("VmRSS", "VmHWM"):
        return int(_ask(pid, lambda process: process.memory_info().rss))
    return int(_ask(pid, lambda process: process.memory_full_info().uss)) if field == "RssAnon" else 0


def reset_peak() -> None:
    """Start a new ``VmHWM`` (peak resident bytes) for this process; do nothing where the system cannot."""
    if not PORTABLE:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")


def data_limit() -> "tuple[int, int]":
    """Return the data limit of this process and the highest that it may set; `NO_LIMIT` where there is none."""
    return (NO_LIMIT, NO_LIMIT) if PORTABLE else resource.getrlimit(resource.RLIMIT_DATA)


def set_data_limit(soft: int, hard: int) -> None:
    """Set the data limit of this process; do nothing where the system does not enforce one."""
    if not PORTABLE:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def limit_data_of(pid: int, more_bytes: int) -> None:
    """Let a process allocate that much more than it has by now; do nothing where the system has no such limit."""
    if PORTABLE:
        return
    try:
        asked = status_bytes("VmData", pid)
        _, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
        soft = asked + more_bytes
        resource.prlimit(pid, resource.RLIMIT_DATA, (soft if hard == NO_LIMIT else min(soft, hard), hard))
    except (OSError, ValueError):  # it has ended, or belongs to somebody else now: then it can only be ended
        return


def data_limit_of(pid: int) -> int:
    """Return the data limit of a process; `NO_LIMIT` if it has none, such as a worker in which a library has lifted it."""
    if PORTABLE:
        return NO_LIMIT
    try:
        return resource.prlimit(pid, resource.RLIMIT_DATA)[0]
    except (OSError, ValueError):  # it has ended, or belongs to somebody else now
        return sys.maxsize


def is_memory(file: int) -> bool:
    """Tell whether an open file is memory: a memfd, or a file in /dev/shm. With psutil: whether it is not a regular file."""
    try:
        if PORTABLE:
            return not stat.S_ISREG(os.fstat(file).st_mode)
        return os.readlink(f"/proc/self/fd/{file}").startswith((f"{SHARED_FOLDER}/", MEMFD))
    except OSError:
        return False


class MemoryFile:
    """A file that is memory: a memfd, a file in /dev/shm, or a segment of System V shared memory."""

    __slots__ = ("key", "path", "size_bytes")

    def __init__(self, path: str, key: "tuple[int, int]", size_bytes: int) -> None:
        self.path, self.key, self.size_bytes = path, key, size_bytes

    @classmethod
    def of(cls, path: str, about: os.stat_result) -> "MemoryFile":
        """Return the file of which the system tells this."""
        return cls(path, (about.st_dev, about.st_ino), about.st_blocks * 512)


def shared_memory_bytes() -> int:
    """Return the shared memory of the whole machine, mapped or not, in bytes; 0 where the system does not tell it."""
    if PORTABLE:
        return 0
    if not _meminfo:
        _meminfo.append(os.open("/proc/meminfo", os.O_RDONLY | os.O_CLOEXEC))
    _, _, told = os.pread(_meminfo[0], 4096, 0).partition(b"Shmem:")
    return int(told.split(maxsplit=1)[0]) * 1024 if told else 0


def memory_file(path: str) -> MemoryFile:
    """Return a file in /dev/shm. Raises `OSError` if there is none."""
    return MemoryFile.of(path, os.stat(path, follow_symlinks=False))


def files_in_memory() -> "Iterator[MemoryFile]":
    """Yield the files in /dev/shm and its folders, whoever has them open."""
    waiting = [] if PORTABLE else [SHARED_FOLDER]
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except OSError:  # it was deleted, or belongs to somebody else
            continue
        with entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        yield MemoryFile.of(entry.path, entry.stat(follow_symlinks=False))
                except OSError:  # it was deleted in the meantime
                    continue


def open_memory(pid: int) -> "list[MemoryFile]":
    """Return the files that are memory and that a process has open for writing."""
    found: list[MemoryFile] = []
    if PORTABLE:
        return found
    try:
        folder = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # the process has ended, or belongs to somebody else
        return found
    try:
        for name in os.listdir(folder):
            try:
                # Only a file that is memory is looked at: stat of another may wait for a server that does not answer.
                path = os.readlink(name, dir_fd=folder)
                if path.startswith((f"{SHARED_FOLDER}/", MEMFD)) and _is_open_for_writing(pid, name):
                    about = os.stat(name, dir_fd=folder)
                    if stat.S_ISREG(about.st_mode):
                        found.append(MemoryFile.of(path, about))
            except OSError:  # it was closed in the meantime
                continue
    except OSError:  # it has ended in the meantime
        return found
    finally:
        os.close(folder)
    return found


def _is_open_for_writing(pid: int, name: str) -> bool:
    with open(f"/proc/{pid}/fdinfo/{name}", "rb") as lines:
        flags = next((int(line.split()[1], 8) for line in lines if line.startswith(b"flags:")), os.O_RDONLY)
    return flags & os.O_ACCMODE != os.O_RDONLY


def mapped_memory(pid: int) -> "dict[tuple[int, int], int]":
    """Return the bytes (PSS) of files that are memory and that a process maps, by device and inode."""
    found: dict[tuple[int, int], int] = {}
    key = None
    try:
        with open(f"/proc/{pid}/smaps", "rb") as lines:
            for line in lines:
                if line.startswith(b"Pss:"):
                    if key is not None:
                        found[key] = found.get(key, 0) + int(line.split()[1]) * 1024
                    key = None
                elif b"/dev/shm/" in line or b"/memfd:" in line or b"/SYSV" in line:
                    _, _, _, device, inode, path = line.split(maxsplit=5)
                    major, _, minor = device.partition(b":")
                    is_segment = path.startswith(b"/SYSV")
                    place = SEGMENT_DEVICE if is_segment else os.makedev(int(major, 16), int(minor, 16))
                    key = place, int(inode)
    except OSError:  # it has ended
        return found
    return found


def segments() -> "list[tuple[int, MemoryFile]]":
    """Return the segments of System V shared memory, each with the process that made it. They stay when it ends."""
    found: list[tuple[int, MemoryFile]] = []
    try:
        with open(os.devnull if PORTABLE else SEGMENTS, "rb") as lines:
            names = lines.readline().split()
            for line in lines:
                told = dict(zip(names, map(int, line.split())))  # noqa: B905 - of fields
                number, kept = told[b"shmid"], told.get(b"rss", told[b"size"])
                found.append((told[b"cpid"], MemoryFile(f"{SEGMENTS}/{number}", (SEGMENT_DEVICE, number), kept)))
    except (OSError, KeyError, ValueError):  # the kernel has none
        return found
    return found


def adopt_orphans() -> None:
    """Become the parent of processes whose own parent ends, so that they stay in the tree (Linux only)."""
    import ctypes

    prctl = None if PORTABLE else getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cpus_of_process() -> int:
    """Return the number of CPUs on which this process may run."""
    return os.cpu_count() or 1 if PORTABLE else len(os.sched_getaffinity(0))


def threads_of_user() -> int:
    """Count the threads of the processes of this user, as ``ulimit -u`` does; 0 where the system does not tell."""
    own, count = os.getuid(), 0
    for name in () if PORTABLE else os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == own:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:  # it ended in the meantime
            continue
    return count


def boot_id() -> str:
    """Return what differs after each start of this machine. Raises `OSError` where the system does not tell it."""
    if PORTABLE:
        raise FileNotFoundError("this system has no /proc/sys/kernel/random/boot_id, which differs after each boot")
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def process_namespace() -> str:
    """Return the name of the namespace of process numbers; empty where there are none."""
    return "" if PORTABLE else os.readlink("/proc/self/ns/pid")


def seconds_since_boot() -> float:
    """Return a monotonic time that includes the time in which the machine sleeps."""
    # macOS has no CLOCK_BOOTTIME; its CLOCK_MONOTONIC goes on while the machine sleeps.
    return time.clock_gettime(time.CLOCK_MONOTONIC if sys.platform == "darwin" else time.CLOCK_BOOTTIME)


def append_line(path: str, fields: "list[object]") -> None:
    """Append a line to a file that others read at the same time: at once, so that none of them sees half of it.

    Raises
    ------
    OSError
        If the disk has no room for it; nothing of it is then in the file.
    """
    line = ("\t".join(map(str, fields)) + "\n").encode()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        before = os.fstat(file).st_size
        if os.write(file, line) < len(line):
            os.ftruncate(file, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(file)

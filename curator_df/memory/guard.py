# SPDX-License-Identifier: Apache-2.0
"""Guard the budget of a process tree from a process of its own: end what a step starts before the sum passes the number.

Run as a script (``python -S -E guard.py PID BYTES EXCLUSIVE FOLDER``) it samples like `peak`, and looks at the tree 100 times a
second, and 500 times when memory runs short. A look costs microseconds: the files of ``/proc`` stay open, and only if the sum
of resident pages could pass the wall are the shares of shared pages read, which takes milliseconds. Once a second they are read
of processes whose pages have changed. New processes are found by the number that the kernel gave last (``/proc/loadavg``).

What it knows of workers, and what it tells them, is in the files of FOLDER (`curator_df.memory.wall`). It imports a few
modules of the standard library and nothing else, like `peak`.
"""

import os
import signal
import struct
import sys
import time

TYPE_CHECKING = False  # what typing has under this name, without the import
if TYPE_CHECKING or __name__ != "__main__":
    from curator_df.memory import counted_memory, system
    from curator_df.memory.memory_files import MemoryFiles
else:
    import counted_memory
    import system
    from memory_files import MemoryFiles
if TYPE_CHECKING:
    from collections.abc import Iterable

LOOK_SECONDS = 0.05 if system.PORTABLE else 0.01
"""Time between two looks at the tree. With psutil a look takes milliseconds."""
SHORT_SECONDS = 0.002
"""Time between two looks after a process has appeared, and while memory is short."""
SHORT_FRACTION = 0.75
"""Share of the number from which on memory is short, if something is there that may take the rest."""
WALK_SECONDS = 0.5
"""Interval at which the whole tree is walked, in case the kernel's last number told nothing."""
AHEAD_SECONDS = 0.02
"""Growth of this time counts as if it had happened: it takes as long to read the shares, and for a process to end."""
AHEAD_FRACTION = 0.03
"""Share of the number that such growth counts for at most."""
LEAST_BYTES = 8_000_000
"""A process that holds less is not ended: it would change nothing."""
SLACK_BYTES = 48_000_000
"""Bytes that a worker may hold beyond its idle memory: libraries that it imports with its first tasks."""
LEAST_SHARE = 0.25
"""Share of the largest process from which on a process is an offender; of those the youngest is ended first."""
SETTLE_SECONDS = 0.1
"""Time for which shares are read again after a process has appeared or ended: a program starts with the pages of its parent."""
REFRESH_SECONDS = 1.0
"""Interval at which shares are read of processes whose pages have changed: pages of libraries look like memory until then."""
MOVED_BYTES = 1_000_000
"""Difference from the pages at the last reading of its shares at which a process counts as changed."""
STALE_SECONDS = 30.0
"""Interval at which shares are read in any case."""
WORKERS_SECONDS = 0.05
"""Interval at which the files and limits of workers are looked at while there is room."""
READ_SHARE = 0.1
"""Share of its time that the guard may spend on reading the shares of pages, unless the sum grows."""
PATIENCE_SECONDS = 3.0
"""Time for which a worker may go on with a step of which something was ended, such as a pool that waits for it for ever."""
OURS = (b"curator_df", b"multiprocessing")
"""Parts of the command line of processes that the client itself starts for the cluster, such as workers and compilers."""
PRIORITY = -15
"""Scheduling priority of the guard's process, on the scale of ``nice`` (-20 is the highest)."""
MOST_NUMBERS = 64
"""More new numbers than this between two looks, and the whole tree is walked."""
LIMIT_STEP = 0.02
"""Share of the number by which what is free has changed when limits of processes are set again."""
FREE, ENDED = "free", "ended"
"""Files of the folder: bytes that are free now; a line for all that was ended."""
HEAD = struct.Struct("qq")
"""Head of a worker's file: ends that it has handled, counted bytes when idle. Then: names of steps, or of the last (`PAST`)."""
SLOT_BYTES, PAST = 1024, b"\x01"
"""Size of that file, and what begins the names of past steps, whose processes and files may outlive them."""
PROCESS, SHARED, PRIVATE, FILES = "processes", "shared", "private", "files"
"""Causes of an end: a process that a step had started, or a worker's shared memory, private memory or files in memory."""
WRITTEN = "written"
"""First word of the name of the file in which a worker lists files that are memory and that it opens for writing."""
PLANNED = "planned"
"""First word of the name of an empty file for a process that a worker has started, whose memory is in the plan, and which has
a data limit of its own."""
CLIENT, OWN, WORKER, OTHER = "client", "own", "worker", "other"
"""Kinds of processes: the user's own, those it starts for the cluster, workers, and those that a step has started."""


class Member:
    """One process of the tree."""

    __slots__ = (
        "bytes",
        "ended",
        "files",
        "idle",
        "kind",
        "limit",
        "parent",
        "pid",
        "planned",
        "private",
        "read_faults",
        "read_private",
        "read_shared",
        "shared",
        "shmem",
        "started",
        "worker",
    )

    def __init__(self, pid: int, parent: int, started: int, kind: str = OTHER, worker: int = 0) -> None:
        self.pid, self.parent, self.started, self.kind, self.worker = pid, parent, started, kind, worker
        self.private = self.shared = self.bytes = self.shmem = 0
        self.read_private = self.read_shared = self.read_faults = 0
        """Pages and faults when its shares were read."""
        self.files = 0
        """Bytes in files that are memory, and that no process maps."""
        self.limit = self.idle = 0
        """Counted bytes that a worker may hold."""
        self.ended = False
        self.planned = False
        """Whether its memory is in the plan. Without data limits it may be ended nevertheless: its worker then starts another."""

    @property
    def held(self) -> int:
        """Counted bytes, and those of files that are memory."""
        return self.bytes + self.files


def offender(members: "Iterable[Member]", over_bytes: int) -> "Member | None":
    """Return what is to be ended, if anything.

    Parameters
    ----------
    members : iterable of Member
        The processes of the tree, with their counted bytes.
    over_bytes : int
        By how much they pass the wall together. What was ended and is still there counts as gone.
    """
    members = list(members)
    if over_bytes - sum(one.held for one in members if one.ended) <= 0:
        return None
    others = [one for one in members if one.kind == OTHER and not one.ended and one.held >= LEAST_BYTES]
    if others:
        least = LEAST_SHARE * max(one.held for one in others)
        return max((one for one in others if one.held >= least), key=lambda one: (one.started, one.pid))
    workers = [one for one in members if one.kind == WORKER and not one.ended and excess(one) >= LEAST_BYTES]
    return max(workers, key=excess, default=None)


def excess(worker: Member) -> int:
    """Return the bytes of a worker that no limit of its own binds: shared memory, and what is over the limit."""
    return worker.shmem + worker.files + max(0, worker.bytes - worker.shmem - worker.limit)


class Family:
    """The processes of a tree, found as they appear, with the pages of each."""

    def __init__(self, root: int, excluded: int, folder: str) -> None:
        self.root, self.excluded, self.began, self.folder = root, excluded, system.read_stat(os.getpid())[2], folder
        self.members: dict[int, Member] = {}
        self._pages: dict[int, system.Pages] = {}
        self._last: int | None = None
        self._walked = 0.0

    def find(self, now: float) -> "list[Member]":
        """Return the processes that are new. The kernel numbers them in turn, so only numbers since the last look are tried."""
        last, was = system.last_process(), self._last
        if (
            now - self._walked < WALK_SECONDS
            and last is not None
            and was is not None
            and 0 <= last - was <= MOST_NUMBERS
        ):
            waiting = list(range(was + 1, last + 1))
        else:
            # Parents come first: where the numbers of processes began again, a child may have a smaller one.
            waiting, self._walked = system.processes(self.root, self.excluded), now
        self._last = last
        return [new for pid in waiting if (new := self._admit(pid)) is not None]

    def _admit(self, pid: int) -> "Member | None":
        if pid in self.members or pid == self.excluded:
            return None
        try:
            state, parent, started = system.read_stat(pid)
            if state == "Z" or (pid != self.root and (parent not in self.members or not system.is_process(pid))):
                return None
            kind, worker = self._kind(pid, parent, started)
            self._pages[pid] = system.Pages(pid)
        except OSError:  # it ended while we looked
            return None
        self.members[pid] = Member(pid, parent, started, kind, worker)
        return self.members[pid]

    def _kind(self, pid: int, parent: int, started: int) -> "tuple[str, int]":
        if pid == self.root:
            return CLIENT, 0
        if os.path.exists(f"{self.folder}/{WORKER}-{pid}"):
            return WORKER, pid
        above = self.members[parent]
        if above.kind in (WORKER, OTHER):
            return OTHER, above.worker
        command = system.command_line(pid)
        is_own = above.kind == OWN or started < self.began or any(part in command for part in OURS)
        return (OWN, 0) if is_own else (OTHER, above.worker)

    def is_other(self, one: Member) -> bool:
        """Return whether a process is not of curator_df, by its command line of now.

        A process that the client has just started has the command line of the client until it runs its own program.
        """
        if one.kind == OTHER and not one.worker and one.parent in self.members:
            try:
                one.kind, one.worker = self._kind(one.pid, one.parent, one.started)
            except OSError:  # it has ended
                return True
        return one.kind == OTHER

    def read_pages(self) -> "tuple[bool, bool]":
        """Read the resident pages of all, forget those that have ended; return whether any changed, and whether any ended."""
        gone = changed = False
        for pid, pages in list(self._pages.items()):
            private, shared = pages.read()
            one = self.members[pid]
            if private == one.private and shared == one.shared and (private or shared):
                continue
            changed = True
            if private or shared:
                one.private, one.shared = private, shared
            else:  # a zombie has none
                self.forget(pid)
                gone = True
        return changed, gone

    def faults(self) -> int:
        """Return the minor faults of all so far. A page that a process copies because its fork has it too is one of them."""
        return sum(pages.faults() for pages in self._pages.values())

    def moved(self, *, by_faults: bool) -> "list[Member]":
        """Return the processes whose pages have changed since their shares were read; those that copied some only if asked."""
        return [
            one
            for one in self.members.values()
            if abs(one.private - one.read_private) >= MOVED_BYTES
            or abs(one.shared - one.read_shared) >= MOVED_BYTES
            or (by_faults and (self._pages[one.pid].faults() - one.read_faults) * system.PAGE_BYTES >= MOVED_BYTES)
        ]

    def read_shares(self, members: "Iterable[Member] | None" = None) -> None:
        """Read the counted bytes of some, or of all."""
        for one in self.members.values() if members is None else members:
            one.bytes, one.shmem = one.private, 0
            one.read_private, one.read_shared = one.private, one.shared
            one.read_faults = self._pages[one.pid].faults() if one.pid in self._pages else 0
            above = self.members.get(one.parent)
            if above is not None and (one.private, one.shared) == (above.private, above.shared):
                one.bytes = 0  # between vfork and exec a process runs in the memory of its parent
                continue
            try:
                fields = system.rollup(one.pid)
                one.bytes = counted_memory.counted(fields, lambda pid=one.pid: counted_memory.changes_files(pid))  # type: ignore[misc]
                one.shmem = max(0, one.bytes - fields.get("Pss_Anon", one.bytes))
            except OSError:  # it has ended
                continue

    def read_unsure(self) -> bool:
        """Read the counted bytes of processes where page counts do not tell them; return whether that is enough.

        Private pages that a process has added since it was read are its own, unless a fork shares them.
        """
        unsure = [
            one
            for one in self.members.values()
            if not (one.read_private and one.bytes)
            or one.private < one.read_private - MOVED_BYTES
            or abs(one.shared - one.read_shared) >= MOVED_BYTES
        ]
        for one in self.members.values():
            one.bytes = max(0, one.bytes + one.private - one.read_private)
            one.read_private = one.private
        self.read_shares(unsure)
        return not any(one.bytes and one.private - one.bytes >= MOVED_BYTES for one in unsure)

    def forget(self, pid: int) -> None:
        """Forget a process that has ended."""
        self._pages.pop(pid).close()
        del self.members[pid]


class Guard:
    """Looks at a tree, says how much is free, and ends what passes the wall.

    Parameters
    ----------
    root : int
        The process at the top, the user's.
    wall_bytes : int
        What all processes may hold together: the number, without its margin and without room for pages of libraries.
    exclusive_bytes : int
        What a worker may hold at most, over what it holds when it is idle.
    folder : str
        Folder with one file for each worker, which names its process, and the list of the processes that were ended.
    excluded : int
        A process that does not count: the guard's own.
    """

    def __init__(self, root: int, wall_bytes: int, exclusive_bytes: int, folder: str, excluded: int) -> None:
        self.wall, self.exclusive, self.folder = wall_bytes, exclusive_bytes, folder
        self.family = Family(root, excluded, folder)
        self.slots: dict[int, int] = {}
        self.files = MemoryFiles(system.processes(root, excluded), os.path.dirname(folder))
        self._free = open_file(f"{folder}/{FREE}")
        self._bound = self._base = self._pages = self._faults = self._foreign = 0
        self._looked = self._read_due = self._read_at = self._refreshed = 0.0
        self._unsettled_until = self._workers_due = 0.0
        self._has_forks, self._shares, self._limits_due, self._told = False, False, wall_bytes, -1
        self._waiting: list[tuple[float, int, int, list[object]]] = []
        self._lines: list[list[object]] = []
        self._places: dict[int, int] = {}

    def look(self) -> float:
        """Look once; return the seconds until the next look."""
        now = time.monotonic()
        new, (changed, gone) = self.family.find(now), self.family.read_pages()
        if new or gone or now >= self._workers_due:
            self._workers_due = now + WORKERS_SECONDS
            self._find_workers()
        changed = self.files.look(self.family.members, now) or changed
        if not (changed or new or self._has_forks or self._bound > self.wall or now < self._unsettled_until):
            # Nothing has grown, so nothing is over the wall: most looks end here.
            self._looked = now
            self._end_waiting(now)
            if now - self._refreshed > REFRESH_SECONDS and now >= self._read_due:
                self._refresh(now)
                self._tell_free(new)
            return self._pause(new)
        before = self._bound
        self._bound = self._upper_bound(bool(new), gone)
        ahead = self._ahead(now)
        if new or gone:
            self._unsettled_until = now + SETTLE_SECONDS
        if self._bound + ahead > self.wall and self.files.grown_bytes:  # that of other programs does not count
            self.files.read(self.family.members, now)
            self._bound = self._upper_bound(False, False)
        is_over, is_due = self._bound + ahead > self.wall, now >= self._read_due
        if (is_over and self._bound > before) or (is_due and (is_over or now < self._unsettled_until)):
            self._read(now, whole=False)
            if is_over:
                self._find_workers()
            self._end(max(ahead, self._at_most_ahead(self.files.rate)))
        elif is_due and now - self._refreshed > REFRESH_SECONDS:
            self._refresh(now)
        self._tell_free(new)
        self._end_waiting(now)
        return self._pause(new)

    def _pause(self, new: "list[Member]") -> float:
        """Return the seconds until the next look."""
        is_short = self._bound > SHORT_FRACTION * self.wall and self._foreign > LEAST_BYTES
        return SHORT_SECONDS if new or is_short else LOOK_SECONDS

    def _find_workers(self) -> None:
        """Take note of processes that have said that they are workers."""
        for name in os.listdir(self.folder):
            kind, _, number = name.partition("-")
            if kind == WORKER and int(number) in self.family.members and int(number) not in self.slots:
                slot = os.open(f"{self.folder}/{name}", os.O_RDONLY)
                one, pid = self.family.members[int(number)], int(number)
                one.kind, one.worker = (CLIENT if pid == self.family.root else WORKER), pid
                self.slots[pid] = slot
            elif kind == PLANNED and int(number) in self.family.members:
                self.family.members[int(number)].planned = True
                if not system.PORTABLE:  # where no data limit holds, the guard does
                    self.family.members[int(number)].kind = OWN
            elif kind == PLANNED and not system.exists(int(number)):
                os.unlink(f"{self.folder}/{name}")
            elif kind == WRITTEN:
                self._find_written(int(number), f"{self.folder}/{name}")
        for pid, slot in list(self.slots.items()):
            if pid in self.family.members:
                one = self.family.members[pid]
                one.idle = read_head(slot)[1]
                # A data limit binds its worker, except for pages such as those of a mapping that grows down like a stack.
                # Without one (a task that runs exclusively may lift it), the worker may hold its idle memory and one task's.
                bound = system.data_limit_of(pid)
                one.limit = SLACK_BYTES + (one.idle + self.exclusive if bound == system.NO_LIMIT else bound)
            else:
                os.close(slot)
                del self.slots[pid]
                os.unlink(f"{self.folder}/{WORKER}-{pid}")

    def _find_written(self, pid: int, path: str) -> None:
        """Take note of files that a worker has said it opens for writing."""
        with open(path, "rb") as lines:
            lines.seek(self._places.get(pid, 0))
            said = lines.read()
        *whole, part = said.split(b"\n")
        self._places[pid] = self._places.get(pid, 0) + len(said) - len(part)
        for line in whole:
            before_bytes, _, name = line.partition(b"\t")
            self.files.note(os.fsdecode(name), int(before_bytes), pid)
        if pid not in self.family.members:
            os.unlink(path)
            del self._places[pid]

    def _upper_bound(self, is_new: bool, is_gone: bool) -> int:
        """Return what the tree holds at most, from what it held when shares were read and what its pages have become since."""
        members = self.family.members.values()
        pages = sum(one.private + one.shared for one in members)
        files = sum(one.files for one in members) + self.files.left_bytes + self.files.grown_bytes
        self._has_forks = self._has_forks or is_new
        # Only forks share pages that are copied later, and then the faults of every process have to be read.
        if not self._has_forks:
            return min(self._base + max(0, pages - self._pages), pages) + files
        if is_gone:  # its share of pages is that of others now
            self._base = pages
        copied = max(0, self.family.faults() - self._faults) * system.PAGE_BYTES
        return min(self._base + max(0, pages - self._pages) + copied, pages) + files

    def _ahead(self, now: float) -> int:
        """Return by how much what no limit binds grows until it is ended."""
        members = self.family.members.values()
        foreign = sum(one.private + one.shared for one in members if one.kind == OTHER)
        foreign += sum(one.shared + max(0, one.private - one.limit) for one in members if one.kind == WORKER)
        grown, self._foreign = foreign - self._foreign, foreign
        elapsed, self._looked = max(now - self._looked, SHORT_SECONDS), now
        return self._at_most_ahead(max(0, grown) / elapsed)

    def _at_most_ahead(self, rate: float) -> int:
        return int(min(rate * AHEAD_SECONDS, AHEAD_FRACTION * self.wall))

    def held(self, *, reread: bool = False) -> int:
        """Return the bytes that the tree holds, as of the last look (see `counted_memory.Tree`); ``reread`` reads all shares."""
        if reread or not self._read_at:
            now = time.monotonic()
            self.family.find(now)
            self.family.read_pages()
            self._read(now)
        members = self.family.members.values()
        return self.files.left_bytes + sum(max(0, one.held + one.private - one.read_private) for one in members)

    def _read(self, now: float = 0.0, *, whole: bool = True) -> None:
        """Read the shares of all pages, from which later looks go on; or only those that cannot be known from page counts.

        Reading those of the client and the workers takes 10 ms for each, in which what a step has started may take 100 MB.
        """
        began = time.monotonic()
        self._refreshed = now
        self._read_at = now if whole else self._read_at
        if whole or self._shares or not self.family.read_unsure():
            self.family.read_shares()
        if whole or self.files.has_news:
            self.files.read(self.family.members, now)
        self._go_on_from_shares(began)

    def _refresh(self, now: float) -> None:
        """Read the shares of processes whose pages have changed; of all now and then, and where a fork shares pages."""
        began = time.monotonic()
        self._refreshed = now
        if now - self._read_at > STALE_SECONDS:
            self._read(now)
        elif moved := self.family.moved(by_faults=self._has_forks):
            self.family.read_shares(None if self._has_forks else moved)
            self._go_on_from_shares(began)

    def _go_on_from_shares(self, began: float) -> None:
        members = self.family.members.values()
        self._base = sum(one.bytes for one in members)
        self._pages = sum(one.read_private + one.read_shared for one in members)
        self._faults = sum(one.read_faults for one in members)
        self._has_forks = self._shares = sum(one.read_private for one in members) > self._base + LEAST_BYTES
        self._bound = self._upper_bound(False, False)
        self._read_due = began + (time.monotonic() - began) / READ_SHARE

    def _end(self, ahead: int) -> None:
        """End what is to be ended, one after the other."""
        members = self.family.members
        while (one := offender(members.values(), self._bound + ahead - self.wall)) is not None:
            if one.kind == OTHER and not self.family.is_other(one):
                continue
            same = [other for other in members.values() if other.kind == OTHER and other.worker == one.worker]
            shared = one.shmem + one.files
            took = sum(other.held for other in same) if one.kind == OTHER else max(shared, one.held - one.idle)
            self._note(one, took + ahead, max(0, self.wall - self._bound + took))
            one.ended = True
            end(one.pid)

    def _note(self, one: Member, took_bytes: int, free_bytes: int) -> None:
        """Write down what is ended, for the worker whose step has started it and for the client.

        The end of a planned process is left to the step, which sees it and goes on.
        """
        if one.planned:
            return
        child = one
        while child.kind == OTHER and child.parent in self.family.members and child.parent != one.worker:
            child = self.family.members[child.parent]
        slot = self.slots.get(one.worker)
        steps = b"" if slot is None else os.pread(slot, SLOT_BYTES, HEAD.size).rstrip(b"\0")
        kind = FILES if one.files > one.shmem else SHARED
        what = PROCESS if one.kind == OTHER else kind if 2 * (one.shmem + one.files) > took_bytes else PRIVATE
        steps = steps.removeprefix(PAST) if what in (PROCESS, FILES) or not steps.startswith(PAST) else b""
        fields = [one.worker, one.pid, child.pid, what, took_bytes, free_bytes, steps.decode(errors="replace")]
        self._write_down(fields)
        if one.kind == OTHER and one.worker in self.slots and one.worker != self.family.root:
            due = time.monotonic() + PATIENCE_SECONDS
            self._waiting.append((due, one.worker, self._handled(one.worker), fields))
        elif not one.worker:
            sys.stderr.write(
                f"curator_df ended process {one.pid}, which was not started by a step and used {took_bytes / 1e6:,.0f} MB. The "
                f"memory budget of the cluster had {free_bytes / 1e6:,.0f} MB left for it. Start the cluster with a larger "
                "memory=, or start this process from another program\n"
            )

    def _write_down(self, fields: "list[object] | None" = None) -> None:
        """Append a line about what is ended, and those for which the disk had no room; these wait until it has."""
        if fields is not None:
            self._lines.append(fields)
        try:
            while self._lines:
                system.append_line(f"{self.folder}/{ENDED}", self._lines[0])
                del self._lines[0]
        except OSError:  # the guard goes on: without it, nothing would hold the budget
            return

    def _handled(self, worker: int) -> int:
        return read_head(self.slots[worker])[0]

    def _end_waiting(self, now: float) -> None:
        """End workers whose step goes on although what it had started was ended: it may wait for it for ever."""
        for waiting in list(self._waiting):
            due, worker, handled, fields = waiting
            if worker not in self.family.members or self._handled(worker) > handled:
                self._waiting.remove(waiting)
            elif now >= due:
                self._waiting.remove(waiting)
                if os.pread(self.slots[worker], 1, HEAD.size) == PAST:  # it works on no step, so none waits
                    continue
                self.family.members[worker].ended = True
                self._write_down([worker, worker, worker, *fields[3:]])
                end(worker)

    def _tell_free(self, new: "list[Member]") -> None:
        """Say how much is free, and let what steps have started ask for no more than that."""
        free = max(0, self.wall - self._bound)
        if free != self._told:
            try:
                os.pwrite(self._free, struct.pack("q", free), 0)
                self._told = free
            except OSError:  # the disk is full: until it has room, what is free counts as nothing or as it was
                self._told = -1
        if self._lines:
            self._write_down()
        if new or abs(free - self._limits_due) > LIMIT_STEP * self.wall:
            self._limits_due = free
            for one in self.family.members.values():
                if self.family.is_other(one) and not one.ended and not one.planned:
                    system.limit_data_of(one.pid, free)


def end(pid: int) -> None:
    """End a process, whatever it does about other signals."""
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:  # it has ended, or belongs to somebody else now
        return


def open_file(path: str, flags: int = 0) -> int:
    """Open a file in which processes leave each other a few bytes, made if it is not there.

    It is not mapped: a process that maps a file to change it would count dirty pages of other files too (`counted`).
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)


def read_head(file: int) -> "tuple[int, int]":
    """Return what the file of a worker begins with: ends that it has handled, and bytes when idle; zeros if it is empty."""
    head = os.pread(file, HEAD.size, 0)
    return HEAD.unpack(head) if len(head) == HEAD.size else (0, 0)


def come_first() -> None:
    """Let this process run before those that compute, where that is permitted: a look that comes late may be too late."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    except OSError:  # only root may
        return


if __name__ == "__main__":
    come_first()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that is guarded; this one ends with it
    root, *sizes = (int(argument) for argument in sys.argv[1:4])
    guard = Guard(root, sizes[0], sizes[1], sys.argv[4], os.getpid())
    counted_memory.sample_forever(root, guard, guard.look)

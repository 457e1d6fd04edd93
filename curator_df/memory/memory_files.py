# SPDX-License-Identifier: Apache-2.0
"""Files that are memory, memfds and files in /dev/shm, as far as the processes of a tree write them; System V segments as well.

A page of such a file is memory although nobody maps it, and belongs to no process. A file counts for a tree by this rule:

- A process of the tree has it open for writing, or had when the guard looked, or a worker has said that it opens it
  (`curator_df.memory.wall`). What is open for reading only never counts, and neither does what other programs write.
- It counts with what it has grown since it was last seen before that: a file that was there when the cluster started, or that
  another program made, counts with what was added. A file that was not seen before counts whole.
- A file in /dev/shm counts until it is deleted, also when it was closed or its process has ended. A memfd is gone then.
- Pages that a process of the tree maps are in its own memory, and do not count twice.
- A segment of System V shared memory counts if a process of the tree has made it, until it is deleted. The system names only the
  number of that process, which may have had it from one that has ended: what was there at the start counts with what is added.
- Folders that the user chose for curator_df's own files do not count: outputs, working files and spilled data.

A file that a program other than a worker opens and closes between two looks, 50 ms, is not found. It is part of a script that
starts without the package (`guard`), so it imports a few modules of the standard library.
"""

import itertools
import os
import time

TYPE_CHECKING = False  # what typing has under this name, without the import
if TYPE_CHECKING or __package__:
    from curator_df.memory import system
else:  # the guard runs as a script
    import system
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from typing import Protocol

    class Holder(Protocol):
        """Process of the tree, with its shared memory; ``files`` receives its bytes in files that are memory."""

        pid: int
        started: int
        shmem: int
        shared: int
        read_shared: int
        files: int


LEAST_BYTES = 8_000_000
"""Bytes by which the shared memory of the machine has grown, from which on the open files are read soon."""
LOOK_SECONDS = 0.05
"""Interval at which open files are read while the tree has such files, or while shared memory of the machine grows."""
IDLE_SECONDS = 1.0
"""Interval otherwise, and only if the shared memory of the machine has changed."""
READ_SHARE = 0.1
"""Share of the time of the guard that may be spent on reading them."""
NEW_SECONDS = 0.1
"""Age up to which a file that was seen in /dev/shm counts as made by the process that has it open then."""
MOST_SEEN = 100
"""Number of files in /dev/shm that are looked at with each reading: 0.5 ms."""
OWN_PART = "/_curator/"
"""Part of the path of a file that a run itself writes, such as an output in a folder that the user chose."""


class MemoryFiles:
    """The files of a tree that are memory, and what each process holds in them.

    The open files of all processes take milliseconds to read. The kernel tells the shared memory of the whole machine in
    microseconds, so the files are read only if that has changed.

    Parameters
    ----------
    pids : collection of int
        The processes that are there at the start. What they have open counts with what it grows.
    own_folder : str
        Folder of the cluster's own files, which do not count.
    """

    def __init__(self, pids: "Collection[int]", own_folder: str) -> None:
        self.grown_bytes = 0
        """Bytes by which the files may have grown since they were read: those of the machine, without what the tree maps."""
        self.left_bytes = 0
        """Bytes in files whose processes have all ended."""
        self.rate = 0.0
        """Bytes in a second by which the files grew between the last two readings."""
        self._own_folder = os.path.realpath(own_folder)  # as the system shows the files in it
        self._seen: dict[tuple[int, int], int] = {}
        """Bytes of each file that is not of the tree when it was last seen."""
        self._looked_at = 0.0
        """When files in /dev/shm were looked at, by the monotonic clock."""
        self._latest: dict[tuple[int, int], int] = {}
        """Bytes of files that were seen at the last reading, and that no process of the tree had open until then."""
        self._before: dict[tuple[int, int], int] = {}
        """Bytes that files of the tree had before they became so."""
        self._paths: dict[tuple[int, int], str] = {}
        """Path of each file of the tree."""
        self._holders: dict[tuple[int, int], int] = {}
        """Process for which each counts."""
        self._now = self._then = self._least = system.shared_memory_bytes()
        self._mapped_then: dict[int, int] = {}
        """Most bytes of shared memory that each process mapped when the files were read."""
        self._noted: list[tuple[str, int, int]] = []
        self._again: list[tuple[str, int, int]] = []
        self._read_at = self._due = self._total = 0.0
        for file in (*system.files_in_memory(), *(segment for _, segment in system.segments())):
            self._seen[file.key] = file.size_bytes
        for pid in pids:
            for file in system.open_memory(pid):
                self._admit(file, pid, file.size_bytes)
        for pid, file in system.segments():
            if pid in pids:
                self._admit(file, pid, file.size_bytes)
        self._walk: Iterator[system.MemoryFile] = system.files_in_memory()
        self._walked: set[tuple[int, int]] = set()

    def look(self, members: "Mapping[int, Holder]", now: float) -> bool:
        """Look at the shared memory of the machine, and read the files if that is due; return whether there is anything new."""
        before = self.grown_bytes
        self._now = system.shared_memory_bytes()
        self._least = min(self._least, self._now)
        grown = self._now - self._least
        self.grown_bytes = max(0, grown - self._mapped_since(members)) if grown else 0
        if self._now != self._then and now >= self._due:
            is_urgent = bool(self._paths) or grown >= LEAST_BYTES
            if is_urgent or now >= self._read_at + IDLE_SECONDS:
                self.read(members, now)
                return True
        elif self._latest and time.monotonic() > self._looked_at + IDLE_SECONDS:
            self._look_around()  # until no file is left that was not seen before
        return self.grown_bytes != before

    @property
    def has_news(self) -> bool:
        """Whether the tree has such files, or may have since they were read."""
        return bool(self._paths or self._noted) or self._now != self._then

    def note(self, path: str, before_bytes: int, pid: int) -> None:
        """Note that a worker is about to open a file for writing, and the bytes that it has until then."""
        self._noted.append((path, before_bytes, pid))

    def read(self, members: "Mapping[int, Holder]", now: float) -> None:
        """Read which files the processes have open for writing; say for each process what it holds in them."""
        began = time.monotonic()
        self._now = self._then = self._least = system.shared_memory_bytes()
        self.grown_bytes = 0
        self._mapped_then = {pid: most_mapped(one) for pid, one in members.items()}
        self._admit_noted()
        sizes: dict[tuple[int, int], int] = {}
        for one in sorted(members.values(), key=lambda one: (one.started, one.pid)):
            one.files = 0
            for file in system.open_memory(one.pid):
                if self._admit(file, one.pid):
                    if file.key not in sizes:  # it counts for the oldest of those that have it open
                        self._holders[file.key] = one.pid
                    sizes[file.key] = file.size_bytes
        for pid, file in system.segments():
            if file.key in self._paths or (pid in members and self._admit(file, pid)):
                sizes[file.key] = file.size_bytes
        self._keep(sizes)
        self._look_around()
        mapped = self._mapped(sizes, members)
        self.left_bytes = 0
        for key, size_bytes in sizes.items():
            self._before[key] = min(self._before[key], size_bytes)
            held = max(0, size_bytes - max(self._before[key], mapped.get(key, 0)))
            if self._holders[key] in members:
                members[self._holders[key]].files += held
            else:
                self.left_bytes += held
        self._finish(began, now, self.left_bytes + sum(one.files for one in members.values()))

    def _finish(self, began: float, now: float, total: int) -> None:
        elapsed = max(now - self._read_at, 0.002)
        self.rate = max(0.0, total - self._total) / elapsed if self._read_at else 0.0
        self._total, self._read_at = total, now
        self._due = now + max(LOOK_SECONDS, (time.monotonic() - began) / READ_SHARE)

    def _admit(self, file: "system.MemoryFile", pid: int, before_bytes: "int | None" = None) -> bool:
        """Take a file that is open for writing for one of the tree; return whether it is."""
        if file.key in self._paths:
            return True
        if OWN_PART in file.path or file.path.startswith(f"{self._own_folder}/"):
            return False
        seen_bytes = self._seen.pop(file.key, 0)
        if time.monotonic() > self._looked_at + NEW_SECONDS:
            seen_bytes = max(seen_bytes, self._latest.get(file.key, 0))
        self._paths[file.key], self._holders[file.key] = file.path, pid
        self._before[file.key] = seen_bytes if before_bytes is None else before_bytes
        return True

    def _admit_noted(self) -> None:
        """Take files that workers have opened; one that is not there yet is looked for once more."""
        again, self._again = self._again, []
        for is_last, noted in ((True, again), (False, self._noted)):
            for path, before_bytes, pid in noted:
                try:
                    self._admit(system.memory_file(path), pid, before_bytes)
                except OSError:  # it is not made yet, or was deleted
                    if not is_last:
                        self._again.append((path, before_bytes, pid))
        self._noted = []

    def _keep(self, sizes: "dict[tuple[int, int], int]") -> None:
        """Add files that nobody has open any more, and forget those that are gone."""
        for key, path in list(self._paths.items()):
            if key not in sizes:
                try:
                    file = system.memory_file(path)
                except OSError:
                    file = None
                if file is None or file.key != key:
                    del self._paths[key], self._before[key], self._holders[key]
                    continue
                sizes[key] = file.size_bytes

    def _look_around(self) -> None:
        """Note the sizes of some more of the files that are not of the tree."""
        # A file that was made just before it was seen counts whole, if a process has it open at the next reading.
        self._seen.update((key, size_bytes) for key, size_bytes in self._latest.items() if key not in self._paths)
        self._looked_at = time.monotonic()
        some = list(itertools.islice(self._walk, MOST_SEEN))
        self._latest = {file.key: file.size_bytes for file in some}
        self._walked.update(self._latest)
        if len(some) < MOST_SEEN:  # all were seen: what is missing was deleted
            known = self._walked.union(key for key in self._seen if key[0] == system.SEGMENT_DEVICE)
            self._seen = {key: size_bytes for key, size_bytes in self._seen.items() if key in known}
            self._walked, self._walk = set(), system.files_in_memory()

    def _mapped_since(self, members: "Mapping[int, Holder]") -> int:
        """Return by how much the shared memory that processes map has grown since the files were read: their pages count it."""
        then = self._mapped_then
        return sum(max(0, most_mapped(one) - then.get(pid, 0)) for pid, one in members.items())

    def _mapped(
        self, sizes: "dict[tuple[int, int], int]", members: "Mapping[int, Holder]"
    ) -> "dict[tuple[int, int], int]":
        """Return the bytes of each file that processes of the tree map; few of them are not worth the milliseconds."""
        found: dict[tuple[int, int], int] = {}
        if sum(sizes.values()) < LEAST_BYTES or sum(map(most_mapped, members.values())) < LEAST_BYTES:
            return found
        for one in members.values():
            for key, size_bytes in system.mapped_memory(one.pid).items() if most_mapped(one) else ():
                found[key] = found.get(key, 0) + size_bytes
        return found


def most_mapped(one: "Holder") -> int:
    """Return the bytes of shared memory that a process maps, from its shares and what its pages have become since."""
    return one.shmem + max(0, one.shared - one.read_shared)
